"""Ways to find the threshold τ of α-entmax, each a small function in plain NumPy.

All work on rows along the last axis. With x = (α−1) z,

    α-entmax(z) = [x − τ]₊^{1/(α−1)},    f(τ) = Σ [x_i − τ]₊^{1/(α−1)} = 1,

and f decreases, so τ is unique. It lies in [max x − 1, max x − d^{1−α}]: at the left end the
largest term alone is 1, at the right end each of d terms is at most 1/d (Peters et al. 2019,
Alg. 1). So a score with x ≤ max x − 1 is never in the support.

Near α = 1 all thresholds crowd at max x − 1 and the powers explode, so the general solvers work
with a better variable each: `newton` (1 ≤ α ≤ 2) with the normaliser c of u = 1 + (α−1)(y − c),
which becomes log-sum-exp at α = 1; `bisect_largest` (α > 2) with the largest probability q, since
u = q^{α−1} + (α−1) y and q^{α−1} may be far below the rounding of 1 − u. Here y = z − max z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Threshold(NamedTuple):
    """A threshold per row, shape batch + (1,), how many scores exceed it, and the passes taken."""

    tau: Any
    size: Any
    passes: int


class Normalizer(NamedTuple):
    """Newton's result: c per row with Σ exp_β(z − max z − c) = 1, support size and passes."""

    c: Any
    size: Any
    passes: int


class Filling(NamedTuple):
    """Water-filling's result: the probabilities, and the passes."""

    p: Any
    passes: int


class Largest(NamedTuple):
    """Bisection's result for α > 2: the probabilities, the largest per row, and the passes."""

    p: Any
    largest: Any
    passes: int


def sort_sparsemax(x: Any) -> Threshold:
    """τ of sparsemax (α = 2) by sorting: exact but for rounding, O(d log d).

    For scores x₍₁₎ ≥ x₍₂₎ ≥ … the threshold of a support of size ρ is
    τ(ρ) = (Σ_{j≤ρ} x₍ⱼ₎ − 1)/ρ, and ρ* is the largest ρ with x₍ρ₎ > τ(ρ)
    (Martins & Astudillo 2016).

    Examples
    --------
    >>> tau, size, _ = sort_sparsemax(np.array([1.0, 0.5, -2.0]))
    >>> print(tau, size)
    [0.25] [2]
    """
    top, x = _clipped(x)
    u = -np.sort(-x, axis=-1).astype(np.promote_types(x.dtype, np.float64), copy=False)
    tau = (np.cumsum(u, axis=-1) - 1) / _ranks(u)
    size = np.maximum(np.sum(u > tau, axis=-1, keepdims=True), 1)
    tau = np.take_along_axis(tau, size - 1, axis=-1).astype(x.dtype, copy=False)
    # Running sums of d terms are off by up to dε, too much in float32 (hence double above) and
    # still some in double. Newton on f with NumPy's pairwise sums mends that, and a support that
    # is wrong at the margin with it: f is convex.
    for _ in range(2):
        above = x > tau
        excess = np.sum(np.where(above, x - tau, 0), axis=-1, keepdims=True) - 1
        tau = tau + excess / np.sum(above, axis=-1, keepdims=True, dtype=x.dtype)
    return Threshold(tau + top, _count(x > tau), 1)


def sort_entmax15(x: Any) -> Threshold:
    """τ of 1.5-entmax by sorting, x = z/2: exact but for rounding, O(d log d).

    Given the support's size ρ, Σ_{j≤ρ} (x₍ⱼ₎ − τ)² = 1 is a quadratic with the smaller root
    τ(ρ) = M − sqrt((1 − ρV)/ρ), M and V the mean and variance of the ρ largest; ρ* is the largest
    ρ with τ(ρ) ≤ x₍ρ₎ (Peters et al. 2019, Alg. 2).

    Examples
    --------
    >>> tau, size, _ = sort_entmax15(np.array([0.0, 0.0, -5.0]))
    >>> print(np.round(tau, 6), size)
    [-0.707107] [2]
    """
    top, x = _clipped(x)
    u = -np.sort(-x, axis=-1).astype(np.promote_types(x.dtype, np.float64), copy=False)
    rho = _ranks(u)
    mean = np.cumsum(u, axis=-1) / rho
    spread = np.cumsum(u * u, axis=-1) - rho * mean * mean
    tau = mean - np.sqrt(np.maximum(1 - spread, 0) / rho)
    size = np.maximum(np.sum(tau <= u, axis=-1, keepdims=True), 1)
    # Rounding may put τ above every score: −1/√d is the bound.
    tau = np.minimum(np.take_along_axis(tau, size - 1, axis=-1), -(u.shape[-1] ** -0.5))
    tau = tau.astype(x.dtype, copy=False)
    for _ in range(2):  # Newton, as in sort_sparsemax; f' = −2 Σ [x − τ]₊
        above = np.maximum(x - tau, 0)
        excess = np.sum(above * above, axis=-1, keepdims=True) - 1
        tau = tau + excess / (2 * np.sum(above, axis=-1, keepdims=True))
    return Threshold(tau + top, _count(x > tau), 1)


def bisection(x: Any, alpha: Any, passes: int | None = None) -> Threshold:
    """τ of α-entmax, α > 1, x = (α−1) z, by halving the bracket: one bit per pass.

    The plain Algorithm 1 of Peters et al. (2019), for any α and any array; probabilities from it
    want renormalising. `passes` defaults to the bits of the dtype.

    Examples
    --------
    >>> print(np.round(bisection(np.array([1.0, 0.5, -2.0]), 2).tau, 6))
    [0.25]
    """
    beta = np.asarray(alpha, dtype=x.dtype) - 1
    passes = np.finfo(x.dtype).nmant + 2 if passes is None else passes
    top = np.max(x, axis=-1, keepdims=True)
    low, high = top - 1, top - x.shape[-1] ** -beta
    for _ in range(passes):
        tau = low + (high - low) / 2
        enough = np.sum(np.maximum(x - tau, 0) ** (1 / beta), axis=-1, keepdims=True) >= 1
        low, high = np.where(enough, tau, low), np.where(enough, high, tau)
    return Threshold(low, _count(x > low), passes)


def exp_beta(t: Any, beta: Any) -> tuple[Any, Any]:
    """p = [1 + βt]₊^{1/β}, which is exp(t) at β = 0, and its slope dp/dt = s = p^{1−β}.

    Tsallis' exponential of order 1 − β. Written as exp(log1p(βt)/β), it is accurate for every
    β ≥ 0, however small; s is p/(1 + βt).

    Examples
    --------
    >>> p, s = exp_beta(np.array([-3.0, -1.0, 0.0]), np.array([0.5]))
    >>> print(np.round(p, 6), np.round(s, 6))
    [0.   0.25 1.  ] [0.  0.5 1. ]
    """
    t = np.maximum(t, np.finfo(t.dtype).min)  # −∞ times β = 0 would be a NaN
    limit, x = beta == 0, np.maximum(beta * t, -1)
    with np.errstate(divide="ignore", over="ignore"):  # log1p(−1) = −∞ is meant: p = 0
        log_p = np.log1p(x) / np.where(limit, 1, beta)
    p = np.exp(np.where(limit, t, log_p))
    return p, p / np.where(x > -1, 1 + x, 1)


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
    for passes in range(1, limit + 1):  # noqa: B007
        total, slope = (np.sum(a, axis=-1, keepdims=True) for a in exp_beta(y - c, beta))
        log_total = np.log(total)
        normalized = np.where(shannon, log_total, -np.expm1(-beta * log_total) / divisor)
        step = total * normalized / slope
        c = c + step
        if isinstance(y, np.ndarray) and bool(np.all(np.abs(step) <= 2 * epsilon * (1 + c))):
            break
    return Normalizer(c, _count(inside(y, c, beta)), passes)


def inside(y: Any, c: Any, beta: Any) -> Any:
    """The support u = 1 + β(y − c) > 0, read where no float underflows: all of y > −∞ at β = 0."""
    lowest = np.finfo(y.dtype).min
    return (beta * np.maximum(y - c, lowest) > -1) & (y > -np.inf)


def bisect_largest(y: Any, beta: Any) -> Largest:
    """Probabilities of α-entmax for β = α − 1 > 1, by bisection on the largest, q.

    With y = z − max z, p_i(q) = (q^β + βy_i)₊^{1/β}, each increasing in q, and Σ p_i(q) = 1 for one
    q in [1/d, 1]. For β > 1 the sum is neither convex nor concave in q, and near an entry's
    threshold it rises by more than one ulp of q can resolve: at β = 49 a probability jumps from
    0 to 0.4 between neighbouring floats. So the last bracket's two ends are mixed such that the
    sum is 1: each p_i^β then lies between its two ends' values, which differ by q^β times a few ε,
    that is, p is exact for scores moved by a few ε.

    Works at β = ∞ (uniform over the ties at the top).

    Examples
    --------
    >>> print(np.round(bisect_largest(np.array([0.0, -1e-3]), np.array([3.0])).p, 6))
    [0.502 0.498]
    """
    passes = np.finfo(y.dtype).nmant + 2 + math.ceil(math.log2(y.shape[-1]))
    high = np.ones_like(y[..., :1])
    low = high / y.shape[-1]
    for _ in range(passes):
        q = low + (high - low) / 2
        enough = np.sum(_below_largest(y, q, beta), axis=-1, keepdims=True) >= 1
        low, high = np.where(enough, low, q), np.where(enough, q, high)
    p_low, p_high = _below_largest(y, low, beta), _below_largest(y, high, beta)
    sum_low = np.sum(p_low, axis=-1, keepdims=True)
    gap = np.sum(p_high, axis=-1, keepdims=True) - sum_low
    share = np.clip((1 - sum_low) / np.where(gap > 0, gap, 1), 0, 1)
    return Largest(p_low + share * (p_high - p_low), high, passes)


def water_fill(points: Any, fill: Callable[[Any], Any], total: Any) -> Filling:
    """The p = fill(t) that sums to `total`, by binary search over breakpoints: exact in ⌈log₂ n⌉.

    For mappings with bounds. Each p_i = fill(t)_i must be non-decreasing in the level t, 0 at −∞
    and its upper bound at ∞, and all of them linear, in one and the same function of t, between
    neighbours of `points`. Their sum is then monotone, so that halving the sorted points finds
    the two around the solution; mixing their two p such that the sum is right is exact, and
    never divides by a count of entries that rounding may have put on the wrong side.

    Parameters
    ----------
    points : array, shape batch + (n,)
        the levels where some entry begins or ceases to move, in any order
    fill : function of levels, shape batch + (1,), that returns shape batch + (d,)
    total : float or array of shape batch + (1,)
        where the bounds sum to less, p is the bounds

    Returns
    -------
    Filling

    Examples
    --------
    >>> bound = np.array([0.5, 0.9, 0.9])  # p = min(bound, t): all rise at the same pace
    >>> print(water_fill(bound, lambda t: np.minimum(bound, np.maximum(t, 0)), 2).p)
    [0.5  0.75 0.75]
    """
    points = np.sort(points, axis=-1)
    n = points.shape[-1]
    # The first point where enough is filled has this index; n where none has.
    first = np.zeros_like(points[..., :1], dtype=np.intp)
    last, passes = first + n, math.ceil(math.log2(n + 1))
    for _ in range(passes):
        middle = (first + last) // 2
        level = np.take_along_axis(points, np.minimum(middle, n - 1), axis=-1)
        enough = (middle == n) | (np.sum(fill(level), axis=-1, keepdims=True) >= total)
        first, last = np.where(enough, first, middle + 1), np.where(enough, middle, last)
    below = np.take_along_axis(points, np.maximum(last - 1, 0), axis=-1)
    above = np.take_along_axis(points, np.minimum(last, n - 1), axis=-1)
    below, above = np.where(last == 0, -np.inf, below), np.where(last == n, np.inf, above)
    p_below, p_above = fill(below), fill(above)
    sum_below = np.sum(p_below, axis=-1, keepdims=True)
    gap = np.sum(p_above, axis=-1, keepdims=True) - sum_below
    share = np.clip((total - sum_below) / np.where(gap > 0, gap, 1), 0, 1)
    p = np.where(share == 1, p_above, p_below + share * (p_above - p_below))
    return Filling(np.minimum(p, p_above), passes)


def fill_boxes(x: Any, upper: Any, total: Any) -> Filling:
    """p = clip(x − τ, 0, u) that sums to `total`: the point nearest to x with 0 ≤ p ≤ u.

    Water-filling with the level −τ: entry i moves from −x_i to u_i − x_i, one to one with it.
    Takes finite x and u; O(d log d).

    Examples
    --------
    >>> print(fill_boxes(np.array([1.0, 0.5, -2.0]), np.array([0.6, 1.0, 1.0]), 1).p)
    [0.6 0.4 0. ]
    """
    full = upper - x
    points = np.concatenate([-x, full], axis=-1)
    # The comparison is for levels that rounding leaves short of making x + t the whole of u.
    return water_fill(points, lambda t: np.where(full <= t, upper, np.clip(x + t, 0, upper)), total)


def _below_largest(y: Any, q: Any, beta: Any) -> Any:
    # q (1 + βy/q^β)₊^{1/β}: q^β may underflow, but the score at the top, y = 0, is q regardless.
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        r = np.where(y == 0, 0, beta * y / q**beta)
        return np.where(r > -1, q * np.exp(np.log1p(np.maximum(r, -1)) / beta), 0)


def _clipped(x: Any) -> tuple[Any, Any]:
    # Scores relative to the largest; −1 stands for all that can never be in the support.
    top = np.max(x, axis=-1, keepdims=True)
    return top, np.maximum(x - top, -1)


def _ranks(x: Any) -> Any:
    return np.cumsum(np.ones_like(x), axis=-1)


def _count(above: Any) -> Any:
    return np.sum(above, axis=-1, keepdims=True)
