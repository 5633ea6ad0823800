"""Independent answers for fusedmax and oscarmax: a certificate, and rationals."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import linprog


def chain(mask: Any) -> list[tuple[int, int]]:
    """Neighbours of which neither is masked."""
    return [(i, i + 1) for i in range(len(mask) - 1) if mask[i] and mask[i + 1]]


def pairs(mask: Any) -> list[tuple[int, int]]:
    """All pairs of entries that are not masked."""
    return list(combinations(np.flatnonzero(mask), 2))


def distance_from_optimality(z: Any, p: Any, edges: list[tuple[int, int]], weight: float) -> float:
    """How far p is from the optimum of argmax p·z − ½‖p‖² − weight Σ_edges |p_i − p_j|.

    Optimal means z − p − Σ_e y_e (e_i − e_j) − τ + μ = 0 for some τ, some μ ≥ 0 that is 0 where
    p > 0, and some y_e in [−w, w] that is w·sign(p_i − p_j) where those differ. The least possible
    maximum of the left side's absolute entries is a linear program.
    """
    d, m = len(z), len(edges)
    left = np.zeros((d, m + d + 2))  # columns: y, μ, τ, the maximum
    bounds: list[tuple[float | None, float | None]] = []
    for e, (i, j) in enumerate(edges):
        left[i, e], left[j, e] = -1, 1
        sign = np.sign(p[i] - p[j])
        bounds.append((-weight, weight) if sign == 0 else (sign * weight, sign * weight))
    left[:, m : m + d] = np.eye(d)
    bounds += [(0, 0) if value > 0 else (0, None) for value in p] + [(None, None), (0, None)]
    left[:, m + d] = -1
    maximum = np.zeros((d, m + d + 2))
    maximum[:, -1] = 1
    cost = maximum[0]
    rows = np.concatenate([left - maximum, -left - maximum])
    right = np.concatenate([p - z, z - p])
    result = linprog(cost, A_ub=rows, b_ub=right, bounds=bounds, method="highs")
    assert result.success, result.message
    return float(result.fun)


def exact_fusedmax(z: Any, weight: float) -> Any:
    """fusedmax in rational arithmetic, rounded once: sparsemax of the slopes of a taut string.

    The running sums of u are the shortest path from 0 to Σz whose inner points lie within ±weight
    of the running sums of z.
    """
    sums = [Fraction(0)]
    for score in z:
        sums.append(sums[-1] + Fraction(float(score)))
    n, width = len(z), Fraction(float(weight))
    slopes: list[Fraction] = []
    start, height = 0, sums[0]
    while start < n:
        # The slopes that stay inside so far, and where a path of that slope touches the border.
        least: tuple[Any, int] = (-np.inf, n)
        most: tuple[Any, int] = (np.inf, n)
        for k in range(start + 1, n + 1):
            margin = width if k < n else 0
            rise = (sums[k] - margin - height) / (k - start)
            fall = (sums[k] + margin - height) / (k - start)
            if rise > most[0] or fall < least[0]:  # a bend, where the path touches
                slope, k = most if rise > most[0] else least
                break
            if rise >= least[0]:  # of two places the later one
                least = rise, k
            if fall <= most[0]:
                most = fall, k
            slope = rise
        height += slope * (k - start)
        slopes += [slope] * (k - start)
        start = k
    return _exact_sparsemax(slopes)


def exact_oscarmax(z: Any, weight: float) -> Any:
    """oscarmax in rational arithmetic, rounded once: sparsemax of pooled adjacent violators."""
    order = np.argsort(-np.asarray(z, float), kind="stable")
    pools: list[tuple[Fraction, int]] = []
    for place, i in enumerate(order):
        total, size = Fraction(float(z[i])) + Fraction(float(weight)) * place, 1
        while pools and total * pools[-1][1] > pools[-1][0] * size:
            before = pools.pop()
            total, size = total + before[0], size + before[1]
        pools.append((total, size))
    pooled = _exact_sparsemax([total / size for total, size in pools for _ in range(size)])
    p = np.empty_like(pooled)
    p[order] = pooled
    return p


def _exact_sparsemax(u: list[Fraction]) -> Any:
    total, threshold = Fraction(0), Fraction(0)
    for size, value in enumerate(sorted(u, reverse=True), 1):
        if 1 + size * value <= total + value:
            break
        total += value
        threshold = (total - 1) / size
    return np.array([float(max(value - threshold, Fraction(0))) for value in u])


def error_in_epsilons(p: Any, exact: Any, z: Any) -> float:
    """The largest error, in units of ε·max(1, how far the support reaches below the largest)."""
    z = np.asarray(z)
    reach = max(1.0, float(z.max() - z[exact > 0].min()))
    return float(np.abs(p - exact).max() / (np.finfo(z.dtype).eps * reach))
