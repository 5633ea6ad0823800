"""Thresholds by Newton's method, for α up to 2."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pyentmax.thresholds.threshold import Threshold, as_scores, beta_per_row, support_size
from pyentmax.thresholds.tsallis import in_support, tsallis_exp


class Normalizer(NamedTuple):
    """Newton's result: c per row with Σ exp_β(z − max z − c) = 1, support size and passes."""

    c: Any
    size: Any
    passes: int


def newton(y: Any, beta: Any) -> Normalizer:
    """The normaliser c of α-entmax for 0 ≤ β = α − 1 ≤ 1: Σ exp_β(y − c) = 1, y = z − max z.

    Newton's method on g(c) = (S^β − 1)/β, S(c) = Σ exp_β(y − c), which is log S at β = 0. Up to
    a constant g is the 1/β-norm of [1 + β(y − c)]₊, a convex function of c since 1/β ≥ 1, so the
    iterates rise from c = 0 (where S ≥ 1) to the root and need no bracket. As dS/dc = −Σ s with
    s = exp_β^{1−β}, a step is

        c ← c + S · (1 − S^{−β})/β / Σs,

    exact at β = 0 after one step (log-sum-exp); Michelot's step at β = 1.

    It ends: for convex g, Newton's values and slopes obey g₊/g + g'₊/g' ≤ 1, so each step divides
    g·|g'| by 4 or more. That starts below d² and matters no more below ε, hence at most
    log₂d + ½log₂(1/ε) steps. NumPy rows stop as soon as none moves; other arrays, which must not
    be looked at, take all of them.

    Examples
    --------
    >>> c, size, _ = newton(np.array([0.0, 0.0]), np.array([0.0]))
    >>> print(np.round(c, 6), size)
    [0.693147] [2]
    """
    epsilon = np.finfo(y.dtype).eps
    limit = 2 + math.ceil(math.log2(y.shape[-1]) - 0.5 * math.log2(epsilon))
    shannon = beta == 0
    divisor = np.where(shannon, 1, beta)
    c, passes = np.zeros_like(y[..., :1]), 0
    # A row rests one step after its first that moved nothing, whatever its neighbours do: what it
    # gets must not depend on them. The last step takes the rounding of the one before off c.
    moving = settling = c == 0
    for passes in range(1, limit + 1):  # noqa: B007
        total, slope = (np.sum(a, axis=-1, keepdims=True) for a in tsallis_exp(y - c, beta))
        log_total = np.log(total)
        normalized = np.where(shannon, log_total, -np.expm1(-beta * log_total) / divisor)
        step = total * normalized / slope
        c = np.where(moving, c + step, c)
        moving, settling = settling, settling & (np.abs(step) > 2 * epsilon * (1 + c))
        if isinstance(y, np.ndarray) and not bool(np.any(moving)):
            break
    return Normalizer(c, support_size(in_support(y, c, beta)), passes)


def newton_threshold(x: Any, alpha: Any) -> Threshold:
    """τ of α-entmax, 1 < α ≤ 2, x = (α−1) z, from `newton`'s normaliser: τ = max x + βc − 1.

    To compare with the others: near α = 1, τ itself no longer tells p. α as in `bisection`, up
    to 2.

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
