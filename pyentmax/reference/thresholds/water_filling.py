"""Probabilities with upper bounds, by filling up to a common level.

`water_fill` sorts the levels where something changes. The kernels find the level without a sort, by
Newton's method in a bracket: `newton_water_fill` on the CPU, `bracketed_water_fill` on the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.thresholds.selection import number_at, rising_keys
from pyentmax.reference.thresholds.threshold import between, row_sums

FREE_LEVELS = 20
"""Passes after which every other one halves the number of floats in the bracket."""
MAX_LEVELS = 160
"""More passes than that leaves: fewer than 2⁶⁴ doubles lie in a bracket."""


class WaterFilling(NamedTuple):
    """Water-filling's result: the probabilities, and the passes."""

    p: Any
    passes: int


def water_fill(points: Any, fill: Callable[[Any], Any], total: Any) -> WaterFilling:
    """The p = fill(t) that sums to `total`, by binary search over breakpoints: exact in ⌈log₂ n⌉.

    For mappings with bounds. Each p_i = fill(t)_i must be non-decreasing in the level t, 0 at −∞
    and its upper bound at ∞, and all of them linear, in one and the same function of t, between
    neighbours of `points`. Their sum is then monotone, so that binary search over the sorted points
    finds the two around the solution. Mixing the p at these two such that the sum is right is
    exact, and never divides by a count of entries that rounding may have made wrong.

    Parameters
    ----------
    points : array, shape batch + (n,)
        the levels where some entry starts or stops changing, in any order
    fill : function of levels, shape batch + (1,), that returns shape batch + (d,)
    total : float or array of shape batch + (1,)
        where the bounds sum to less, p equals the bounds

    Returns
    -------
    WaterFilling

    Examples
    --------
    >>> bound = np.array([0.5, 0.9, 0.9])  # p = min(bound, t): all rise at the same pace
    >>> print(water_fill(bound, lambda t: np.minimum(bound, np.maximum(t, 0)), 2).p)
    [0.5  0.75 0.75]
    """
    points = np.sort(points, axis=-1)
    n = points.shape[-1]
    # The index of the first point at which the sum reaches `total`; n if there is none.
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
    p_above = fill(above)
    p = np.minimum(between(fill(below), p_above, total), p_above)  # a tie may round to above
    return WaterFilling(p, passes)


def project_capped_simplex(x: Any, upper: Any, total: Any) -> WaterFilling:
    """p = clip(x − τ, 0, u) that sums to `total`: the point nearest to x with 0 ≤ p ≤ u.

    Water-filling with the level −τ: entry i moves from −x_i to u_i − x_i, one to one with it.
    Takes finite x and u; O(d log d).

    Examples
    --------
    >>> print(project_capped_simplex(np.array([1.0, 0.5, -2.0]), np.array([0.6, 1.0, 1.0]), 1).p)
    [0.6 0.4 0. ]
    """
    full = upper - x
    points = np.concatenate([-x, full], axis=-1)
    # The comparison gives exactly u where rounding would leave x + t a little below it.
    return water_fill(points, lambda t: np.where(full <= t, upper, np.clip(x + t, 0, upper)), total)


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
