"""Independent answers for fusedmax and oscarmax: a certificate, a generic solver, a dual solver."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import linprog, lsq_linear, minimize


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


def generic_solution(z: Any, penalty: list[list[Any]]) -> Any:
    """argmax p·z − ½‖p‖² − Σ_e max {f·p, f in penalty[e]} over the simplex, by SLSQP."""
    d, m = len(z), len(penalty)
    functions = np.array([f for group in penalty for f in group]).reshape(-1, d)
    owner = [e for e, group in enumerate(penalty) for _ in group]
    epigraph = np.concatenate([-functions, np.eye(m)[owner]], 1)
    start = np.concatenate([np.full(d, 1 / d), np.full(m, 1.0)])
    result = minimize(
        lambda x: 0.5 * x[:d] @ x[:d] - x[:d] @ z + x[d:].sum(),
        start,
        jac=lambda x: np.concatenate([x[:d] - z, np.ones(m)]),
        bounds=[(0, None)] * d + [(None, None)] * m,
        constraints=[
            {"type": "eq", "fun": lambda x: x[:d].sum() - 1},
            {"type": "ineq", "fun": lambda x: epigraph @ x},
        ],
        options={"maxiter": 500, "ftol": 1e-13},
    )
    return result.x[:d]


def smoothed_by_the_dual(z: Any, edges: list[tuple[int, int]], weight: float) -> Any:
    """argmin ½‖u − z‖² + weight Σ_edges |u_i − u_j|, by bounded least squares over the edges."""
    if not edges or not weight:
        return np.asarray(z)
    incidence = np.zeros((len(z), len(edges)))
    for e, (i, j) in enumerate(edges):
        incidence[i, e], incidence[j, e] = 1, -1
    y = lsq_linear(incidence, z, bounds=(-weight, weight), method="bvls", tol=1e-15).x
    return z - incidence @ y
