"""Thresholds by Newton's method, for α up to 2.

The norm of [x − τ]₊ that should be 1 is a convex function of τ for α ≤ 2, so the root of its
tangent lies between the point of contact and the root: from the left the iterates rise to it, and
need no bracket. Few steps are needed: where g ≥ 0 is convex, its values and slopes at successive
iterates obey g₊/g + g'₊/g' ≤ 1, so that each step divides g·|g'| by 4 or more. This product starts
below d² and is negligible below ε: at most log₂d + ½log₂(1/ε) steps.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.thresholds.threshold import (
    Threshold,
    as_scores,
    beta_per_row,
    row_sums,
    support_size,
)
from pyentmax.reference.thresholds.tsallis import in_support, tsallis_exp


class Normalizer(NamedTuple):
    """Newton's result: c per row with Σ exp_β(z − max z − c) = 1, support size and passes."""

    c: Any
    size: Any
    passes: int


def newton(y: Any, beta: Any) -> Normalizer:
    """The normaliser c of α-entmax for −1 ≤ β = α − 1 ≤ 1: Σ exp_β(y − c) = 1, y = z − max z.

    Newton's method on g(c) = (S^β − 1)/β, S(c) = Σ exp_β(y − c), which is log S at β = 0. Up to
    a constant βg is the 1/β-norm of [1 + β(y − c)]₊: convex in c where 1/β ≥ 1, and concave where
    1/β < 0. So g is convex for either sign of β, and the iterates rise from c = 0 (where S ≥ 1) to
    the root and need no bracket. As dS/dc = −Σ s with s = exp_β^{1−β}, a step is

        c ← c + S · (1 − S^{−β})/β / Σs,

    exact at β = 0 after one step (log-sum-exp); Michelot's step at β = 1.

    It takes at most log₂d + ½log₂(1/ε) steps (see the module's docstring). NumPy arrays stop as
    soon as no row changes. Other arrays take all steps: a test of their values would synchronise
    the device.

    Examples
    --------
    >>> c, size, _ = newton(np.array([0.0, 0.0]), np.array([0.0]))
    >>> print(np.round(c, 6), size)
    [0.693147] [2]
    """
    epsilon = np.finfo(y.dtype).eps
    shannon = beta == 0
    divisor = np.where(shannon, 1, beta)
    c, passes = np.zeros_like(y[..., :1]), 0
    # A row stops one step after its first step below rounding, whatever the other rows do, since
    # its result must not depend on them. The last step corrects the rounding of the one before.
    moving = settling = c == 0
    for passes in range(1, most_steps(y) + 1):  # noqa: B007
        total, slope = (np.sum(a, axis=-1, keepdims=True) for a in tsallis_exp(y - c, beta))
        log_total = np.log(total)
        normalized = np.where(shannon, log_total, -np.expm1(-beta * log_total) / divisor)
        # Only rounding puts c beyond the root, but many tied scores may then drop out of the sum.
        step = np.maximum(total * normalized / slope, -2 * epsilon * (1 + c))
        c = np.where(moving, c + step, c)
        moving, settling = settling, settling & (np.abs(step) > 2 * epsilon * (1 + c))
        if isinstance(y, np.ndarray) and not bool(np.any(moving)):
            break
    return Normalizer(c, support_size(in_support(y, c, beta)), passes)


def remainder(u: Any, beta: Any) -> Any:
    """Correction ρ of a rounded threshold: Σ [u − ρ]₊^{1/β} = 1, which ρ = 0 nearly satisfies.

    Thousands of scores may lie so near the threshold that rounding alone decides whether they are
    in the support. Each gets a tiny probability, but their sum can be large, and the largest score
    loses it. The differences u = x − τ are exact there, and ρ is small, so it has enough digits.
    The sum is convex in ρ: from the second step on, Newton's iterates decrease it towards 1, and a
    sum that no longer falls has reached rounding. ρ = 0 for β < ½, where u^{1/β} is negligible.

    Examples
    --------
    Sparsemax of 0 and, 2000 times, −0.99999: in float32 the threshold is −0.99999, too.

    >>> u = np.zeros(2001, np.float32)
    >>> u[0] = 0.99999
    >>> print(f"{remainder(u, np.ones(1)).item():.1e}")
    -5.0e-09
    """
    if isinstance(beta, np.ndarray) and bool((beta < 0.5).all()):
        return np.zeros_like(u[..., :1])
    close = 4 * np.finfo(u.dtype).eps
    u, power = np.where(beta >= 0.5, u, 0), 1 / np.maximum(beta, 0.5)  # below α = 1, u is huge
    rest, total_before = np.zeros_like(u[..., :1]), np.inf
    for passes in range(most_steps(u)):
        w = np.maximum(u - rest, 0)
        s = np.where(w > 0, np.where(w > 0, w, 1) ** (power - 1), 0)
        total, slope = row_sums(s * w, s)
        falls = (passes < 2) | (total < total_before)
        moving = (beta >= 0.5) & falls & (np.abs(total - 1) > close)
        if isinstance(u, np.ndarray) and not bool(np.any(moving)):
            break
        step = (total - 1) / (power * np.where(slope > 0, slope, 1))
        rest, total_before = np.where(moving, rest + step, rest), total
    return rest


def most_steps(y: Any) -> int:
    """The steps after which Newton's method on a convex norm of these rows has ended.

    >>> most_steps(np.zeros(8)), most_steps(np.zeros(8, np.float32))
    (31, 17)
    """
    return 2 + math.ceil(math.log2(y.shape[-1]) - 0.5 * math.log2(np.finfo(y.dtype).eps))


def newton_threshold(x: Any, alpha: Any) -> Threshold:
    """τ of α-entmax, 1 < α ≤ 2, x = (α−1) z, from `newton`'s normaliser: τ = max x + βc − 1.

    For comparison with the others: near α = 1, τ does not determine p accurately. α as in
    `bisection`, up to 2.

    Examples
    --------
    >>> print(newton_threshold(np.array([1.0, 0.5, -2.0]), 2))
    Threshold(tau=array([0.25]), size=array([2]), passes=3)
    """
    x = as_scores(x)
    beta = beta_per_row(alpha, x, 2)
    top = np.max(x, axis=-1, keepdims=True)
    c, size, passes = newton((x - top) / beta, beta)
    return Threshold(top + (beta * c - 1), size, passes)
