"""The searches of the kernels, in NumPy and with the same variable names: their twins.

The kernels in C and CUDA do not sort. Where their search is not one of
`pyentmax.reference.thresholds`, which has a table of all, it stands here, beside the tests that
compare the two. For NumPy arrays only. The bits of a float, read as an unsigned integer, rise with
it if it is positive, so floats can be ranked digit by digit, as in a radix sort.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.thresholds import MaxProbability, Threshold, WaterFilling
from pyentmax.reference.thresholds.pruning import chunk_maxima
from pyentmax.reference.thresholds.threshold import (
    MAX_PASSES,
    as_scores,
    beta_per_row,
    clipped_gaps,
    row_sums,
    support_size,
)

FREE_LEVELS = 20
"""Passes after which every other one halves the number of floats in the bracket."""
MAX_LEVELS = 160
"""More passes than that leaves: fewer than 2⁶⁴ doubles lie in a bracket."""


def newton_entmax15(x: Any, t: Any = 1) -> Threshold:
    """τ of 1.5-entmax, x = z/2, by tangents and the quadratic's root, as in the kernels.

    With gaps x ← x − max x ≤ 0 and t = −τ, f(t) = Σ [x_i + t]₊² = 1. Each pass computes two
    steps from t. The norm √f is convex, so the root of its tangent,

        t + (1 − √f) √f/Σ [x + t]₊,

    is always an upper bound. If the support is already right, f is quadratic around t, and the root
    of the quadratic is exact: it is taken where it lies within the bounds known so far. Supports
    are nested in t, so two passes with the same size have the same support, and t is the root.

    For t above the root, [x + t]₊ has too many entries, and the quadratic's root is too low or
    better than the tangent's; for t below, it has too few, and the quadratic's root is too high. So
    at least one of any two passes makes the progress of a Newton step from above: at most
    2 log₂d + log₂(1/ε) passes. No more than ten have been observed.

    Examples
    --------
    >>> tau, size, passes = newton_entmax15(np.array([0.0, 0.0, -5.0]))
    >>> print(np.round(tau, 6), size, passes)
    [-0.707107] [2] 2
    """
    top, x = clipped_gaps(x)
    t = np.ones_like(top) * t
    lower, upper, size_before = np.zeros_like(top), np.ones_like(top), np.zeros_like(top)
    for passes in range(1, MAX_PASSES + 1):  # noqa: B007
        u = np.maximum(x + t, 0)
        squares, total, size = row_sums(u * u, u, (u > 0).astype(u.dtype))
        norm, excess = np.sqrt(squares), squares - 1
        tangent = t + (1 - norm) * norm / total
        lower = np.where(excess < 0, np.maximum(lower, t), lower)
        upper = np.where(excess >= 0, np.minimum(upper, t), upper)
        upper = np.minimum(upper, tangent)
        # The larger root of size·r² + 2·total·r + excess = 0, in the form that does not cancel.
        rest = -excess / (total + np.sqrt(np.maximum(total * total - size * excess, 0)))
        trust = (lower < t + rest) & (t + rest <= upper)
        step_to = np.where(trust, t + rest, upper)
        moving = (size != size_before) & (step_to != t)
        if not moving.any():
            break
        t = np.where(moving, step_to, t)
        size_before = np.where(moving, trust * size, size)
    return Threshold(top - (t + rest), support_size(x + t > 0), passes)


def halley_norm(x: Any, alpha: Any, t: Any = 1) -> Threshold:
    """τ of α-entmax, 1 < α ≤ 2, x = (α−1) z, by Halley's method on a norm, as in the kernels.

    With β = α − 1, b = 1/β, gaps x ← x − max x ≤ 0 and t = −τ, let w_i = [1 + x_i/t]₊. Then

        p_i = t^b w_i^b,   N(t) = t (Σ w^b)^β = 1,   d^{−β} ≤ t ≤ 1,

    N being the norm of [x + t]₊ of order b ≥ 1: convex, and close to a straight line. One pass
    gives h = (N − 1)/N, a = tN'/N = Σw^{b−1}/Σw^b and v = t²N''/N = (b − 1)(Σw^{b−2}/Σw^b − a²).
    Newton's step reduces t by the fraction h/a and ends at or above the root; Halley's, of third
    order, by 2ha/(2a² − hv). Halley's step is taken if it stays above all t known to be below the
    root. From the ninth pass on only Newton's steps are taken, which always converge: at most
    10 + log₂d + ½log₂(1/ε) passes. Unlike `halley` it needs no bracket, because every tangent of N
    gives a bound.

    t may be any starting value. For long rows the kernel starts from the root for a sixteenth of
    the entries, each counted 16 times.

    Examples
    --------
    >>> tau, size, passes = halley_norm(np.array([1.0, 0.5, -2.0]), 1.75)
    >>> print(np.round(tau, 6), size, passes)
    [0.173712] [2] 4
    """
    top, x = clipped_gaps(x)
    beta = beta_per_row(alpha, x, 2)
    b, rounding = 1 / beta, 16 * np.finfo(x.dtype).eps
    steepness = np.ones_like(top) / t  # 1/t
    beyond = x.shape[-1] ** beta * (1 + rounding)  # the smallest 1/t known to be too large
    for passes in range(1, MAX_PASSES + 1):
        w = np.maximum(1 + x * steepness, 0)
        on = np.where(w > 0, w, 1)
        p = np.where(w > 0, np.exp(b * np.log1p(np.where(w > 0, x * steepness, 0))), 0)
        power, slope, bend = row_sums(p, p / on, p / on / on)
        a = slope / power
        h, v = 1 - steepness * power**-beta, (b - 1) * (bend / power - a * a)
        denominator = 2 * a * a - h * v
        tangent, halley = h / a, 2 * h * a / np.where(denominator > 0, denominator, 1)
        beyond = np.where(h < 0, np.minimum(steepness, beyond), beyond)
        trust = (denominator > 0) & (steepness < beyond * (1 - halley)) & (passes <= 8)
        part = np.where(trust, halley, tangent)
        moving = np.abs(part) > rounding
        if not moving.any():
            break
        # Rounding may take a tangent past the root, where many scores tied at it drop out.
        aimed, just_below = steepness / (1 - part), beyond * (1 - rounding / 16)
        aimed = np.where(steepness < beyond, np.minimum(aimed, just_below), aimed)
        steepness = np.where(moving, np.maximum(aimed, 1), steepness)
    t = (1 - tangent) / steepness
    return Threshold(top - t, support_size(x + t > 0), passes)


def newton_p_last(y: Any, beta: Any) -> MaxProbability:
    """The result of `bisect_p_max`, by Newton's method in the smallest p, as in the CPU kernel.

    With x = βy and t = −τ, p_i = (x_i + t)^{1/β}. Σ p_i is neither convex nor concave in t, but
    convex in v, the p of the last entry of the support, as long as none enters or leaves: so
    Newton's steps end at or above the root, v (1 − (Σ p − 1)/(u Σ p/u)) with u = v^β. A step below
    0 tells that the last entry is no part of the support. Then t jumps to what the slope of
    log Σ p in log t aims at, or every third time halfway down to a known bound, but not above where
    that entry enters. t is kept as an anchor, the place where an entry enters, and what is beyond
    it, which has all digits where one ulp of t would be a large part of p. Most rows take three to
    six passes.

    Examples
    --------
    >>> p, p_max, passes = newton_p_last(np.array([0.0, -1e-3]), np.array([3.0]))
    >>> print(np.round(p, 6), passes)
    [0.502 0.498] 2
    """
    eps = float(np.finfo(y.dtype).eps)
    lowest = -900.0 if y.dtype == np.float64 else -100.0
    least_u = y.dtype.type(2.0**lowest)
    beta = np.asarray(beta, y.dtype)
    x = np.maximum(beta * y, -2)  # what is below −1 is in no support
    low = np.exp2(np.maximum(-beta * np.log2(y.shape[-1]) - 16 * eps, lowest)).astype(y.dtype)
    low, high = low + np.zeros_like(y[..., :1]), np.ones_like(y[..., :1])
    near = x > -1
    size = np.sum(near, axis=-1, keepdims=True).astype(y.dtype)
    alike = np.exp2(np.maximum(-beta * np.log2(size), lowest))  # t if all of them were equal
    mean = np.sum(np.where(near, x, 0), axis=-1, keepdims=True) / size
    anchor, beyond, shift = np.clip(alike - mean, low, high), 0 * low, 0 * low
    moving, passes = low > 0, 0
    while moving.any() and passes < 2 * MAX_PASSES:
        u = (x + anchor) + beyond
        in_support, u = u > 0, np.maximum(u, least_u)
        p = np.where(in_support, u ** (1 / beta), 0)
        total, slope = row_sums(p)[0], np.sum(p / u, axis=-1, keepdims=True)
        over, t = total - 1, anchor + beyond
        kink = -np.min(np.where(in_support, x, 0), axis=-1, keepdims=True)
        u_last = np.maximum((anchor - kink) + beyond, least_u)  # closer ones tie
        shift = np.where(moving, over / slope, shift)
        part = shift / u_last
        fits, is_low = part < 1, over < 0
        close = over**2 * (beta - 1) <= 2 * eps * (slope * u_last)
        there = (fits & ~is_low & (close | (u_last <= least_u))) | (np.abs(over) <= 4 * eps)
        moving = moving & ~there
        low = np.where(moving & is_low, np.maximum(low, t), low)
        high = np.where(moving & ~is_low, np.where(fits, t, kink), high)
        if passes % 3 == 2:
            aimed = np.sqrt(low) * np.sqrt(kink)
        else:
            aimed = t * np.exp2(np.maximum(-beta * total / (t * slope) * np.log2(total), lowest))
        jump = np.minimum(np.maximum(aimed, low * (1 + 2 * eps)), kink)
        further = np.maximum(u_last * np.where(fits, 1 - part, 0) ** beta, least_u)
        next_anchor, next_beyond = np.where(fits, kink, jump), np.where(fits, further, 0)
        above = is_low & (next_anchor + next_beyond >= high)
        anchor = np.where(moving, np.where(above, high, next_anchor), anchor)
        beyond = np.where(moving, np.where(above, 0, next_beyond), beyond)
        passes += 1
    # What t is still too large by is taken off along the tangent of each p.
    u = (x + anchor) + beyond
    in_support, u = u > 0, np.maximum(u, least_u)
    p = np.where(in_support, u ** (1 / beta), 0)
    p = np.maximum(p - p * (shift / u), 0)
    p = p / np.where(anchor + beyond <= 2 * least_u, row_sums(p)[0], 1)
    return MaxProbability(p, np.max(p, axis=-1, keepdims=True), passes)


DIGIT_BITS = 8


class Selection(NamedTuple):
    """The k-th largest score of each row, shape batch + (1,), and the passes taken."""

    score: Any
    passes: int


def radix_select(x: Any, k: Any) -> Selection:
    """The k-th largest score, 1 ≤ k ≤ d, by its digits from the most significant on.

    Each pass counts the occurrences of each digit and keeps the scores that share the digit of the
    k-th largest; k decreases by the number of scores with a higher digit. There are as many passes
    as a float has bytes, for every row: O(d). k is a number, or one per row with a last axis of 1.

    Examples
    --------
    >>> print(radix_select(np.array([3.0, -1.0, 7.0, 3.0]), 2).score)
    [3.]
    """
    x = as_scores(x)
    shape, x = (*x.shape[:-1], 1), x.reshape(-1, x.shape[-1])
    keys = rising_keys(x)
    k = np.broadcast_to(k, shape).reshape(-1, 1)
    candidates, passes, row = np.ones_like(x, dtype=bool), 0, np.arange(len(x))[:, None]
    for shift in range(8 * x.itemsize - DIGIT_BITS, -1, -DIGIT_BITS):
        passes += 1
        digits = (keys >> np.array(shift, keys.dtype)).astype(np.intp) % (1 << DIGIT_BITS)
        count = np.zeros((len(x), 1 << DIGIT_BITS), np.intp)
        np.add.at(count, (row, digits), candidates)
        above = np.cumsum(count[:, ::-1], axis=-1)[:, ::-1] - count  # those with a higher digit
        digit = np.argmax(above < k, axis=-1)[:, None]
        k = k - np.take_along_axis(above, digit, axis=-1)
        candidates &= digits == digit
        if (np.sum(candidates, axis=-1) == 1).all():
            break
    score = np.max(np.where(candidates, x, -np.inf), axis=-1)
    return Selection(score.reshape(shape).astype(x.dtype, copy=False), passes)


def kth_largest(x: Any, k: Any, chunk: int = 256, lanes: int = 16) -> Selection:
    """The k-th largest score, 1 ≤ k ≤ d, as in the CPU kernel: most of a long row is skipped.

    At least k scores reach the k-th largest of the chunks' maxima, so this is a lower bound, and
    `radix_select` gets only the scores above it. If these are fewer than k, the bound itself is
    the k-th largest score.

    Examples
    --------
    >>> print(kth_largest(np.array([3.0, -1.0, 7.0, 3.0]), 2).score)
    [3.]
    """
    x = as_scores(x)
    maxima = chunk_maxima(x, chunk, lanes)
    k = np.broadcast_to(k, (*x.shape[:-1], 1))
    bound, passes = radix_select(maxima, np.minimum(k, maxima.shape[-1]))
    bound = np.where(k <= maxima.shape[-1], bound, -np.inf).astype(x.dtype)
    beyond = np.sum(x > bound, axis=-1, keepdims=True)
    score, more = radix_select(np.where(x > bound, x, -np.inf).astype(x.dtype), k)
    return Selection(np.where(beyond < k, bound, score), 1 + passes + more)


def bisect_kth_largest(x: Any, k: Any) -> Selection:
    """The k-th largest score, 1 ≤ k ≤ d, as in the GPU kernel: by bisection on the bits of a float.

    The distance max x − x_i is never negative, so its bits rise with it. The k-th smallest distance
    is found by halving a bracket of integers: one pass per bit of the dtype, fewer if exactly k
    distances lie within its middle. Scores with the same rounded distance are tied.

    Examples
    --------
    >>> print(bisect_kth_largest(np.array([3.0, -1.0, 7.0, 3.0]), 2).score)
    [3.]
    """
    x = as_scores(x)
    distance = np.max(x, axis=-1, keepdims=True) - x
    bits = distance.view(f"u{x.itemsize}")
    nearest = np.zeros_like(bits[..., :1])
    farthest = nearest + np.array(np.inf, x.dtype).view(bits.dtype)
    moving, passes = k < np.full(nearest.shape, x.shape[-1]), 0
    while moving.any():
        middle = nearest + (farthest - nearest) // 2
        within = np.sum(bits <= middle, axis=-1, keepdims=True)
        nearest = np.where(moving & (within < k), middle + 1, nearest)
        farthest = np.where(moving & (within >= k), middle, farthest)
        moving = moving & (nearest < farthest) & (within != k)
        passes += 1
    score = np.min(np.where(bits <= farthest, x, np.inf), axis=-1, keepdims=True)
    return Selection(score.astype(x.dtype, copy=False), max(passes, 1))


def rising_keys(x: Any) -> Any:
    """A float's bits as an unsigned integer that rises with it: inverted for negative floats."""
    bits = x.view(f"u{x.itemsize}")
    sign = np.array(1, bits.dtype) << np.array(8 * x.itemsize - 1, bits.dtype)
    return np.where(bits & sign, ~bits, bits | sign)


def number_at(keys: Any) -> Any:
    """The floats of `rising_keys`."""
    sign = np.array(1, keys.dtype) << np.array(8 * keys.itemsize - 1, keys.dtype)
    return np.where(keys & sign, keys ^ sign, ~keys).view(f"f{keys.itemsize}")


def newton_water_fill(y: Any, upper: Any, total: Any, exponential: bool = False) -> WaterFilling:
    """p = clip(y + t, 0, u), or min(t e^y, u), that sums to `total`, as in the CPU kernels.

    p_i is linear in t from where it starts to where it is full, so the sum is piecewise linear and
    increasing. Newton's step is exact if it crosses no breakpoint, and the next one is then a
    rounding of t. Where a step leaves the bracket, the secant through its ends and its middle are
    tried in turn. From the 21st on, every other pass halves the bracket in the order of floating-
    point numbers, fewer than 2⁶³ of which are above 0: 150 passes at most. In a long row, the
    kernel starts from the level of every sixteenth entry. All is computed in double. The rounding
    of the level is the same for all entries, so thousands of them add it up. A row that misses
    `total` by that is solved again relative to a level a little below, where the difference has all
    its digits.

    Parameters
    ----------
    y : array of scores, −∞ where there is nothing to fill
    upper : array of y's shape
        the bounds u ≥ 0; where they sum to less than `total`, p equals the bounds
    total : float or array of shape batch + (1,), above 0
    exponential : bool
        for csoftmax's p rather than csparsemax's; an entry e^−700 times the largest gets nothing,
        even if all larger ones are full (csoftmax shifts its scores for such rows)

    Returns
    -------
    WaterFilling

    Examples
    --------
    >>> print(newton_water_fill(np.array([1.0, 0.5, -2.0]), np.array([0.6, 1.0, 1.0]), 1))
    WaterFilling(p=array([0.6, 0.4, 0. ]), passes=2)
    """
    dtype = y.dtype
    u = np.where(y > -np.inf, upper, 0).astype(np.float64)
    there = u > 0
    gap = y.astype(np.float64) - np.max(np.where(there, y, -np.inf), axis=-1, keepdims=True)
    gap = np.where(there, gap, 0)
    a = np.where(there, np.exp(gap) if exponential else gap, 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        full_at = np.where(there & (a > 0), u / a, 0) if exponential else np.where(there, u - a, 0)
        highest = np.max(full_at, axis=-1, keepdims=True)
        most, all_a, count = row_sums(u, a, there.astype(float))
        guess = total / all_a if exponential else np.minimum(total, (total - all_a) / count)
        rows = _Rows(a, u, there, exponential)
        t, rest, passes = _newton_level(rows, total, np.minimum(guess, highest), highest, most)
        p = rows.filled(t, rest)
        off = np.abs(np.sum(p, axis=-1, keepdims=True) - total)
        off = (off > np.finfo(float).eps * np.sqrt(y.shape[-1]) * total) & (most > total)
        if off.any() and not exponential:
            below = t * (1 - 4 * np.finfo(float).eps)
            rows = _Rows(np.where(there, a + below, 0), u, there, exponential)
            t, rest, more = _newton_level(rows, total, t - below, highest - below, most)
            p, passes = np.where(off, rows.filled(t, rest), p), passes + more
    p = np.where(np.sum(u, axis=-1, keepdims=True) <= total, u, p)
    return WaterFilling(p.astype(dtype), passes)


class _Rows(NamedTuple):
    a: Any
    u: Any
    there: Any
    exponential: bool

    @property
    def slope(self) -> Any:
        return self.a if self.exponential else np.ones_like(self.a)

    def raised(self, t: Any) -> Any:
        return self.a * t if self.exponential else self.a + t

    def filled(self, t: Any, rest: Any) -> Any:
        return np.clip(self.raised(t) + self.slope * rest, 0, self.u)


def _newton_level(rows: _Rows, total: Any, t: Any, highest: Any, most: Any) -> tuple[Any, Any, int]:
    # The level, the correction of its rounding, and the passes. At the highest level all entries
    # are full, and the sum is `most`.
    lowest, least = np.zeros_like(most), np.zeros_like(most)
    rest, secant, moving = np.zeros_like(most), most < 0, most > total
    for passes in range(1, 151):  # noqa: B007
        level = rows.raised(t)
        moves = rows.there & (level > 0) & (level < rows.u)
        now, slope = row_sums(np.clip(level, 0, rows.u), np.where(moves, rows.slope, 0))
        step = (total - now) / slope
        moving = moving & (now != total)
        rounding = moving & (np.abs(step) <= 2 * np.finfo(float).eps * t)
        rest = np.where(rounding, step, rest)
        moving = moving & ~rounding
        if not moving.any():
            break
        below = now < total
        lowest, least = np.where(below, t, lowest), np.where(below, now, least)
        highest, most = np.where(below, highest, t), np.where(below, most, now)
        halve = passes > 20 and passes % 2 == 1
        newton = (slope > 0) & (lowest < t + step) & (t + step < highest) & (not halve)
        secant = secant ^ ~newton
        share = np.where(secant, (total - least) / (most - least), 0.5)
        inner = lowest + (highest - lowest) * share
        inner = middle_float(lowest, highest) if halve else inner
        following = np.where(newton, t + step, inner)
        moving = moving & (following != t)
        t = np.where(moving, following, t)
    return t, rest, passes


def middle_float(low: Any, high: Any) -> Any:
    """Halfway between low ≤ high in the order of floating-point numbers.

    Examples
    --------
    >>> print(middle_float(np.array([1e-200]), np.array([1e200])).round(3))
    [0.959]
    """
    start, end = rising_keys(low), rising_keys(high)
    return number_at(start + (end - start) // 2)


def bracketed_water_fill(y: Any, upper: Any, total: Any, exponential: bool = False) -> WaterFilling:
    """p = clip(y + t, 0, u), or min(e^{y + t}, u), that sums to `total`, as on the GPU.

    The sum rises with t, piecewise smooth, neither convex nor concave. Each pass tries the step
    that is exact if the set of moving entries is already right. Where none moves, the sum is
    constant, and the next level where one starts or stops moving is taken. If the step leaves the
    bracket, or two passes did not halve it, the bracket is halved; from the 21st pass on, every
    other one halves it in the order of floating-point numbers, so that 20 passes and two per bit
    are enough. Finally p is mixed from two levels a few ε from the last one, so that the sum is
    right.

    Parameters and result are those of `newton_water_fill`.

    Examples
    --------
    >>> print(bracketed_water_fill(np.array([1.0, 0.5, -2.0]), np.array([0.6, 1.0, 1.0]), 1))
    WaterFilling(p=array([0.6, 0.4, 0. ]), passes=2)
    """
    u = np.where(y > -np.inf, upper, 0).astype(y.dtype)
    there = u > 0
    y = np.where(there, y - np.max(np.where(there, y, -np.inf), axis=-1, keepdims=True), 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        full_at = np.where(there, np.log(u) - y if exponential else u - y, -np.inf)
        count = np.sum(there, axis=-1, keepdims=True, dtype=y.dtype)
        bottom = np.log(total) - np.log(count) if exponential else 0 * count
        top = np.max(full_at, axis=-1, keepdims=True)
        top = top + 2 * np.finfo(y.dtype).eps * np.abs(top)  # the last level of all is tried, too
        begins_at = full_at if exponential else -y

        def fill(t: Any) -> Any:
            risen = np.exp(y + t) if exponential else np.maximum(y + t, 0)
            return np.where(full_at <= t, u, np.minimum(risen, u))

        def missing_at(t: Any) -> Any:
            p, full = fill(t), full_at <= t
            first, second = row_sums(np.where(full, u, 0), np.where(full | ~there, 0, p))
            return (total - first) - second

        t = np.where(bottom + 1 < top, bottom + 1, bottom / 2 + top / 2)
        moving, widths = np.sum(u, axis=-1, keepdims=True) > total, [np.inf, np.inf]
        for passes in range(1, MAX_LEVELS + 1):  # noqa: B007
            missing, rising = missing_at(t), (beyond := full_at - t) > 0
            up = missing > 0
            may_move = np.where(up, rising, there & (beyond >= 0))
            if exponential:
                weight = np.sum(np.where(may_move, np.exp(y + t), 0), axis=-1, keepdims=True)
                following = t + np.log1p(missing / weight)
            else:
                starts = np.where(up, y + t >= 0, y + t > 0)
                weight = np.sum(may_move & starts, axis=-1, keepdims=True, dtype=y.dtype)
                following = t + missing / weight
            level = np.where(up, -begins_at, full_at)
            on = there & (level < np.where(up, -t, t))
            nearest = np.max(np.where(on, level, -np.inf), axis=-1, keepdims=True)
            following = np.where(weight > 0, following, np.where(up, -nearest, nearest))
            bottom, top = np.where(moving & up, t, bottom), np.where(moving & ~up, t, top)
            coarse = np.finfo(y.dtype).eps * np.abs(t) > 0.01  # one rounding may move all of p
            moving = moving & (missing != 0) & ((following != t) | coarse) & (bottom < top)
            width = top - bottom
            good = (bottom < following) & (following < top) & (width <= widths[-2] / 2)
            following = np.where(good, following, bottom / 2 + top / 2)
            if passes > FREE_LEVELS and passes % 2 == 0:
                following = middle_float(bottom, top)
            widths.append(width)
            moving = moving & (bottom < following) & (following < top)
            t = np.where(moving, following, t)
            if not moving.any():
                break
        around = 2 * np.finfo(y.dtype).eps * (1 + np.abs(t))
        missing, p_low, p_high = missing_at(t - around), fill(t - around), fill(t + around)
        gap = np.sum(p_high - p_low, axis=-1, keepdims=True)
        share = np.clip(np.where(gap > 0, missing / gap, 0), 0, 1)
        p = np.minimum(p_low + share * (p_high - p_low), p_high)
    p = np.where(np.sum(u, axis=-1, keepdims=True) <= total, u, p)
    return WaterFilling(np.where(there, p, 0).astype(y.dtype), passes)


# The first step of fusedmax in one pass over a row, as the GPU kernel takes it. A finished run is
# final, so a thread needs no memory but its row's, and it is O(d²) in the worst case. The mapping
# runs Johnson's dynamic program instead, and the CPU kernel pulls a string taut: O(d) for all rows.
def condat_tv(y: Any, strength: float) -> np.ndarray:
    """argmin ½‖u − y‖² + λ Σ_j |u_{j+1} − u_j| of one vector, λ the strength (Condat 2013).

    The run that begins at `start` may so far have any value from `low` to `high`. The slope of the
    next |u_{j+1} − u_j| that it passes on to the entry after `at` is then `out_low` or `out_high`,
    between −λ and λ. If even the lowest value passes on too little, the run must end with a fall at
    `low_end`, where `low` was last binding; likewise with a rise at `high_end`. A finished run gets
    the mean of its scores, moved by λ/n towards each neighbour: this is exact despite the rounding
    of the search.

    >>> print(condat_tv([1.0, 0.9, 1.1, -1.0, 0.8], 0.1).round(4))
    [ 0.9667  0.9667  0.9667 -0.8     0.7   ]
    """
    y = np.asarray(y, float)
    u, last = np.empty_like(y), len(y) - 1
    start = at = low_end = high_end = before = 0
    low, high = y[0] - strength, y[0] + strength
    out_low, out_high = strength, -strength

    def write(end: int, behind: int) -> int:
        """Write the run `start` to `end`, before a fall (−1) or a rise (1); the next start."""
        u[start : end + 1] = np.mean(y[start : end + 1]) + (
            strength * (before + behind) / (end + 1 - start)
        )
        return end + 1

    while True:
        if at == last:  # nothing is passed on after the last entry
            if out_low < 0:
                start, before = write(low_end, -1), 1
                at = low_end = start
                low, out_low = y[at], strength
                out_high = y[at] + strength - high
            elif out_high > 0:
                start, before = write(high_end, 1), -1
                at = high_end = start
                high, out_high = y[at], -strength
                out_low = y[at] - strength - low
            else:
                write(last, 0)
                return u
        elif y[at + 1] + out_low < low - strength:  # a fall
            start, before = write(low_end, -1), 1
            at = low_end = high_end = start
            low, high = y[at], y[at] + 2 * strength
            out_low, out_high = strength, -strength
        elif y[at + 1] + out_high > high + strength:  # a rise
            start, before = write(high_end, 1), -1
            at = low_end = high_end = start
            low, high = y[at] - 2 * strength, y[at]
            out_low, out_high = strength, -strength
        else:
            at += 1
            out_low, out_high = out_low + y[at] - low, out_high + y[at] - high
            if out_low >= strength:
                low += (out_low - strength) / (at - start + 1)
                out_low, low_end = strength, at
            if out_high <= -strength:
                high += (out_high + strength) / (at - start + 1)
                out_high, high_end = -strength, at
