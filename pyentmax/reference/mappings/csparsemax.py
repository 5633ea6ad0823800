"""Constrained sparsemax: sparse probabilities with an upper bound on each.

Problem: argmin of ½‖p − z‖² over the simplex with p ≤ u (Malaviya et al. 2018). Where constrained
softmax spreads the attention that exhausted words leave over all others, this one gives it to
a few.

The optimality conditions are p_i = clip(z_i − τ, 0, u_i), with τ such that p sums to 1: an entry
moves, one to one with −τ, from τ = z_i down to τ = z_i − u_i, and stands still elsewhere. Let
I = {0 < p_i < u_i} be the free entries. A change of z moves only these, less their mean:
J = diag(s) − s sᵀ/Σs with s = 1 on I and 0 off it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.parameters import UpperBounds
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.mappings._bounded import full_entries, gradient_in_bounds, solve_shifted
from pyentmax.reference.thresholds.water_filling import project_capped_simplex

__all__ = ["csparsemax"]


def textbook(z: Any, upper: Any) -> np.ndarray:
    """argmin_{p ∈ Δ, p ≤ u} ½‖p − z‖² = clip(z − τ, 0, u) (Malaviya et al. 2018), for one vector.

    Σp falls as τ rises, from Σu at min(z − u) to 0 at max z: halve that bracket.

    >>> textbook([2.0, 0.5, 0.0, -1.0], [0.5, 1.0, 1.0, 1.0]).round(6)
    array([0.5, 0.5, 0. , 0. ])
    """
    z, u = np.asarray(z, float), np.asarray(upper, float)
    low, high = np.min(z - u), np.max(z)
    for _ in range(60):
        tau = (low + high) / 2
        p = np.clip(z - tau, 0, u)
        low, high = (tau, high) if p.sum() >= 1 else (low, tau)
    return p


def textbook_jacobian(p: Any, upper: Any) -> np.ndarray:
    """J = diag(s) − s sᵀ/Σs at p = csparsemax(z, u), s_i = 1 where 0 < p_i < u_i, else 0.

    >>> textbook_jacobian([0.5, 0.3, 0.2], [0.5, 1.0, 1.0])
    array([[ 0. ,  0. ,  0. ],
           [ 0. ,  0.5, -0.5],
           [ 0. , -0.5,  0.5]])
    """
    p = np.asarray(p, float)
    s = np.where((p > 0) & (p < np.asarray(upper)), 1.0, 0.0)
    return np.diag(s) - np.outer(s, s) / (s.sum() or 1)


# What follows is right for every input: exact, by the breakpoints instead of a bracket, and a full
# entry, however high its score, costs the others no digits.

UPPER = UpperBounds("upper")


@mapping(UPPER, permutation_equivariant=False)
def csparsemax(
    z: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Sparse probabilities p = clip(z − τ, 0, u): sparsemax with bounds (Malaviya et al. 2018).

    The point nearest to z of the simplex with p ≤ upper. Exact, by a sort of the breakpoints z
    and z − u and a binary search over them (`pyentmax.reference.thresholds.water_fill`): O(d log
    d); twice that where full entries score far above the rest, to keep the rest's digits. The
    compiled kernel finds the level without a sort, O(d) per pass.

    Parameters
    ----------
    z, upper, axis, mask, out : as in `pyentmax.csoftmax`

    Returns
    -------
    array of z's shape, with exact zeros and no entry above `upper` (rounded to z's dtype)

    Raises
    ------
    ValueError, TypeError
        as in `pyentmax.csoftmax`

    Examples
    --------
    >>> print(csparsemax([2.0, 0.5, 0.0, -1.0], [0.5, 1.0, 1.0, 1.0]))
    [0.5 0.5 0.  0. ]
    >>> print(csparsemax.support([2.0, 0.5, 0.0, -1.0], [0.5, 1.0, 1.0, 1.0]))
    [ True  True False False]
    >>> print(csparsemax.jvp([0.5, 0.3, 0.2, 0.0], [9.0, -1.0, 0.0, 9.0], [0.5, 1.0, 1.0, 1.0]))
    [ 0.  -0.5  0.5  0. ]
    >>> p, g, upper = [0.5, 0.5, 0.0, 0.0], [3.0, 1.0, 5.0, 5.0], [0.5, 1.0, 0.0, 0.0]
    >>> print(csparsemax.parameter_vjp.at_scores([2.0, 0.5, 0.4, -1.0], p, g, upper))
    [2. 0. 4. 0.]
    """
    return z, upper, axis, mask, out


@csparsemax.rule
def _forward(y: Any, upper: Any) -> Any:
    return solve_shifted(y, upper, lambda y: project_capped_simplex(y, upper, 1).p)


@csparsemax.support.rule
def _support(y: Any, upper: Any) -> Any:
    """Where z > τ and the bound is not 0."""
    return csparsemax(y, upper, mask=upper > 0) > 0


@csparsemax.jvp.rule
def _product(p: Any, v: Any, upper: Any) -> Any:
    """J v: v less its mean over the free entries 0 < p_i < u_i; 0 elsewhere."""
    return _simplex.product(_curvature(p, upper), v)


def _curvature(p: Any, upper: Any) -> Any:
    # 1 on the free entries, written so that a NaN stays a NaN.
    return np.where(full_entries(p, upper), 0, np.where(p > 0, 1, p))


@csparsemax.jacobian.rule
def _jacobian(p: Any, upper: Any) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = 1 where 0 < p_i < u_i, else 0."""
    return _simplex.dense(_curvature(p, upper))


@csparsemax.parameter_vjp.rule_with(scores=True)
def _vjp_upper(p: Any, g: Any, upper: Any, z: Any) -> Any:
    """Σ_i g_i ∂p_i/∂u, the gradient in the bounds, `at_scores`.

    With m the mean of g over the free entries (0 where there are none), it is g_i − m where the
    bound holds p_i down, 0 elsewhere. An exhausted bound, u_i = 0, does so where z_i > τ, which
    p_i = 0 does not show; hence the scores. As z − p is τ on the free entries and above it on the
    full, τ is its minimum over the support.
    """
    # Relative to the least score on the support, which is near τ, no digit is lost to a full entry.
    least = np.min(np.where(p > 0, z, np.inf), axis=-1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        y = z - least
        tau = np.min(np.where(p > 0, y - p, np.inf), axis=-1, keepdims=True)
    held = full_entries(p, upper) & (y > tau)
    return gradient_in_bounds(p, g, _curvature(p, upper), held)


csparsemax.textbook, csparsemax.jacobian.textbook = textbook, textbook_jacobian
