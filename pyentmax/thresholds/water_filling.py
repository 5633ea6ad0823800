"""Probabilities with upper bounds, by filling up to a common level."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class WaterFilling(NamedTuple):
    """Water-filling's result: the probabilities, and the passes."""

    p: Any
    passes: int


def water_fill(points: Any, fill: Callable[[Any], Any], total: Any) -> WaterFilling:
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
    WaterFilling

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
    p = p_below + share * (p_above - p_below)
    return WaterFilling(np.minimum(p, p_above), passes)  # a tie may round to above p_above


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
    # The comparison is for levels that rounding leaves short of making x + t the whole of u.
    return water_fill(points, lambda t: np.where(full <= t, upper, np.clip(x + t, 0, upper)), total)
