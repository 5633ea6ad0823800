"""Budget sparsemax: how much of each entry to take when k in all are to be taken.

Problem: argmax of p·z − ½‖p‖² over 0 ≤ p ≤ 1, Σp = k. The feasible set is the convex hull of the
0/1 vectors with k ones (for whole k), so this is to choosing k of d what sparsemax, k = 1, is to
choosing one. (Amos, Koltun & Kolter 2019 regularise the same set by binary entropies, which leaves
no p_i at 0 or 1.)

The optimality conditions are p_i = clip(z_i − τ, 0, 1), τ such that p sums to k. A change of z
moves only the free entries, 0 < p_i < 1, less their mean: J = diag(s) − s sᵀ/Σs with s = 1 there
and 0 elsewhere. A larger k is shared evenly by them: ∂p_i/∂k = s_i/Σs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.parameters import Budget
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.mappings._bounded import solve_shifted
from pyentmax.reference.thresholds.water_filling import project_capped_simplex

__all__ = ["budget_sparsemax"]


def textbook(z: Any, budget: float) -> np.ndarray:
    """p = clip(z − τ, 0, 1) with Σp = k, for one vector; τ by bisection.

    >>> textbook([3.0, 1.0, 0.5, -2.0], 2).round(6)
    array([1.  , 0.75, 0.25, 0.  ])
    """
    z = np.asarray(z, float)
    low, high = np.min(z) - 1, np.max(z)
    for _ in range(60):
        tau = (low + high) / 2
        p = np.clip(z - tau, 0, 1)
        low, high = (tau, high) if p.sum() >= budget else (low, tau)
    return p


def textbook_jacobian(p: Any, budget: float) -> np.ndarray:
    """J = diag(s) − s sᵀ/Σs at p = budget_sparsemax(z, k), s_i = 1 where 0 < p_i < 1, else 0.

    >>> textbook_jacobian([1.0, 0.75, 0.25], 2)
    array([[ 0. ,  0. ,  0. ],
           [ 0. ,  0.5, -0.5],
           [ 0. , -0.5,  0.5]])
    """
    p = np.asarray(p, float)
    s = np.where((p > 0) & (p < 1), 1.0, 0.0)
    return np.diag(s) - np.outer(s, s) / (s.sum() or 1)


# What follows is right for every input: exact, by the breakpoints instead of a bracket, and a full
# entry, however high its score, costs the others no digits.

BUDGET = Budget("budget", least=0, in_product=False)


@mapping(BUDGET, on_simplex=False)
def budget_sparsemax(
    z: ArrayLike, budget: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Shares p = clip(z − τ, 0, 1) that sum to the budget k: sparsemax that takes k in all.

    Maximises p·z − ½‖p‖² over 0 ≤ p ≤ 1, Σp = k: the operator of SparseK attention (Lou et al.
    2024), and soft top-k with a quadratic regulariser. Exact, by a sort of the breakpoints z and
    z − 1 and a binary search over them (`pyentmax.reference.thresholds.water_fill`): O(d log d);
    twice that where full entries score far above the rest, to keep the rest's digits. The compiled
    kernel finds the level without a sort, O(d) per pass.

    There is no loss: Ω is ½‖p‖², but no label or distribution sums to k.

    Parameters
    ----------
    z : array of scores
    budget : float or array that broadcasts against the batch shape (z's without the axis)
        k, at most the number of a row's unmasked entries; for 0, p and its derivatives are 0
    axis, mask, out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros and ones

    Raises
    ------
    ValueError
        if a budget is out of its range or does not fit the batch; else as in `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(budget_sparsemax([3.0, 1.0, 0.5, -2.0], 2))
    [1.   0.75 0.25 0.  ]
    >>> print(budget_sparsemax.support([3.0, 1.0, 0.5, -2.0], 2))
    [ True  True  True False]
    >>> p = [1.0, 0.75, 0.25, 0.0]
    >>> print(budget_sparsemax.jvp(p, [9.0, -1.0, 0.0, 9.0], 2))
    [ 0.  -0.5  0.5  0. ]
    >>> print(budget_sparsemax.parameter_vjp(p, [9.0, 1.0, 0.0, 9.0], 2))
    0.5
    """
    return z, budget, axis, mask, out


@budget_sparsemax.rule
def _forward(y: Any, budget: Any) -> Any:
    upper = (y > -np.inf).astype(y.dtype)
    return solve_shifted(y, upper, lambda y: project_capped_simplex(y, upper, budget).p)


@budget_sparsemax.support.rule
def _support(y: Any, budget: Any) -> Any:
    """Where z > τ."""
    # A row that is all masked is zeros here, and its budget may be anything. A budget that rounds
    # to 0 takes nothing.
    least = np.finfo(y.dtype).tiny
    p = budget_sparsemax(y, np.clip(budget[:, 0], least, y.shape[-1]))
    return (p > 0) & (budget > 0)


@budget_sparsemax.jvp.rule
def _product(p: Any, v: Any, budget: Any) -> Any:
    """J v: v less its mean over the free entries 0 < p_i < 1; 0 elsewhere."""
    return _simplex.product(_free(p), v)


def _free(p: Any) -> Any:
    # 1 where p is free to move, written so that a NaN stays a NaN.
    return np.where(p >= 1, 0, np.where(p > 0, 1, p))


@budget_sparsemax.jacobian.rule
def _jacobian(p: Any, budget: Any) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = 1 where 0 < p_i < 1, else 0."""
    return _simplex.dense(_free(p))


@budget_sparsemax.parameter_vjp.rule
def _vjp_budget(p: Any, g: Any, budget: Any) -> Any:
    """Σ_i g_i ∂p_i/∂k, the gradient in the budget: the mean of g over the free entries.

    It is 0 where there are none, since p is then at a vertex.
    """
    free = _free(p)
    count = np.sum(free, axis=-1)
    total = np.sum(np.where(free != 0, free * g, 0), axis=-1)
    return total / np.where(count == 0, 1, count)


budget_sparsemax.textbook, budget_sparsemax.jacobian.textbook = textbook, textbook_jacobian
