"""Thresholds by Newton's and Halley's methods, for general α."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pyentmax.thresholds._rows import Threshold, checked, checked_beta, count


def log_exp_beta(t: Any, beta: Any) -> Any:
    """log p = log1p(βt)/β of p = [1 + βt]₊^{1/β}: t itself at β = 0, −∞ from t = −1/β down.

    Accurate for every β ≥ 0, however small, and where p itself underflows.

    Examples
    --------
    >>> print(log_exp_beta(np.array([-3.0, -900.0, 0.0]), np.array([1e-3])).round(4))
    [   -3.0045 -2302.5851     0.    ]
    """
    t = np.maximum(t, np.finfo(t.dtype).min)  # −∞ times β = 0 would be a NaN
    limit, x = beta == 0, np.maximum(beta * t, -1)
    with np.errstate(divide="ignore", over="ignore"):  # log1p(−1) = −∞ is meant: p = 0
        return np.where(limit, t, np.log1p(x) / np.where(limit, 1, beta))


def exp_beta(t: Any, beta: Any) -> tuple[Any, Any]:
    """p = [1 + βt]₊^{1/β}, which is exp(t) at β = 0, and its slope dp/dt = s = p^{1−β}.

    Tsallis' exponential of order 1 − β, as the exponential of `log_exp_beta`; s is p/(1 + βt).

    Examples
    --------
    >>> p, s = exp_beta(np.array([-3.0, -1.0, 0.0]), np.array([0.5]))
    >>> print(np.round(p, 6), np.round(s, 6))
    [0.   0.25 1.  ] [0.  0.5 1. ]
    """
    p = np.exp(log_exp_beta(t, beta))
    x = np.maximum(beta * np.maximum(t, np.finfo(t.dtype).min), -1)
    return p, p / np.where(x > -1, 1 + x, 1)


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
        total, slope = (np.sum(a, axis=-1, keepdims=True) for a in exp_beta(y - c, beta))
        log_total = np.log(total)
        normalized = np.where(shannon, log_total, -np.expm1(-beta * log_total) / divisor)
        step = total * normalized / slope
        c = np.where(moving, c + step, c)
        moving, settling = settling, settling & (np.abs(step) > 2 * epsilon * (1 + c))
        if isinstance(y, np.ndarray) and not bool(np.any(moving)):
            break
    return Normalizer(c, count(inside(y, c, beta)), passes)


def inside(y: Any, c: Any, beta: Any) -> Any:
    """The support u = 1 + β(y − c) > 0, read where no float underflows: all of y > −∞ at β = 0."""
    lowest = np.finfo(y.dtype).min
    return (beta * np.maximum(y - c, lowest) > -1) & (y > -np.inf)


def newton_threshold(x: Any, alpha: Any) -> Threshold:
    """τ of α-entmax, 1 < α ≤ 2, x = (α−1) z, from `newton`'s normaliser: τ = max x + βc − 1.

    To compare with the others: near α = 1, τ itself no longer tells p. α as in `bisection`, up
    to 2.

    Examples
    --------
    >>> print(newton_threshold(np.array([1.0, 0.5, -2.0]), 2))
    Threshold(tau=array([0.25]), size=array([2]), passes=3)
    """
    x = checked(x)
    beta = checked_beta(alpha, x, 2)
    top = np.max(x, axis=-1, keepdims=True)
    c, size, passes = newton((x - top) / beta, beta)
    return Threshold(top + (beta * c - 1), size, passes)


def halley(x: Any, alpha: Any) -> Threshold:
    """τ of α-entmax, any α > 1, x = (α−1) z, by Halley's method on f, safeguarded by bisection.

    With b = 1/(α−1) and u = [x − τ]₊, one pass gives f = Σu^b − 1, f' = −bΣu^{b−1} and
    f'' = b(b−1)Σu^{b−2}, and Halley's step is τ ← τ − 2ff'/(2f'² − ff''), of third order where f
    is smooth (Gonçalves et al. 2025). f' jumps where an entry enters (is infinite there for α > 2),
    so a step that leaves the bracket, or one after two that did not halve it, is replaced by its
    middle: at most three passes per bit. A step too short to see is made long enough to pass
    the root, so that the bracket closes from both sides.

    Not the mappings' default: up to α = 2 `newton` needs no safeguard, and beyond, where one ulp
    of τ moves a small p by more than itself, `bisect_largest` gives p and not τ. α as in
    `bisection`.

    Examples
    --------
    >>> tau, size, passes = halley(np.array([1.0, 0.5, -2.0]), 3)
    >>> print(np.round(tau, 6), size)
    [0.4375] [2]
    """
    x = checked(x)
    b = 1 / checked_beta(alpha, x)
    top = np.max(x, axis=-1, keepdims=True)
    y, epsilon = x - top, np.finfo(x.dtype).eps
    low, high = np.full_like(top, -1), np.full_like(top, 0) - y.shape[-1] ** (-1 / b)
    widths, tau = [high - low] * 2, (low + high) / 2
    for passes in range(1, 3 * (np.finfo(x.dtype).nmant + 2)):  # noqa: B007
        u = np.maximum(y - tau, 0)
        safe = np.where(u > 0, u, 1)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            f, slope, bend = (
                np.sum(np.where(u > 0, safe**power, 0), axis=-1, keepdims=True)
                for power in (b, b - 1, b - 2)
            )
            f, slope, bend = f - 1, b * slope, b * (b - 1) * bend
            step = 2 * f * slope / (2 * slope * slope - f * bend)
        low, high = np.where(f >= 0, tau, low), np.where(f >= 0, high, tau)
        if isinstance(x, np.ndarray) and bool((high - low <= 2 * epsilon).all()):
            break
        step = np.where(np.abs(step) < 2 * epsilon, np.copysign(2 * epsilon, f), step)
        stalls = high - low > widths[-2] / 2
        good = (tau + step > low) & (tau + step < high) & ~stalls
        tau = np.where(good, tau + step, low + (high - low) / 2)
        widths.append(high - low)
    return Threshold(low + top, count(y > low), passes)
