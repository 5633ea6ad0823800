"""Probabilities with upper bounds, by filling up to a common level.

`water_fill` sorts the levels where something changes. The kernels find the level without a sort, by
Newton's method in a bracket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.thresholds.threshold import between


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
