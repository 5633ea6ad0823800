"""Constrained softmax: the dense distribution with an upper bound on each probability.

Problem: argmin of KL(p‖softmax(z)) over the simplex with p ≤ u, equally argmax of p·z + H(p)
there, H Shannon's entropy (Martins & Kreutzer 2017). Used as attention, u is the attention that
each source word may still get: its fertility minus the attention it has had.

The optimality conditions are log p_i = z_i + log r where p_i < u_i, and log p_i ≤ z_i + log r
where p_i = u_i, so that

    p_i = min(u_i, e^{z_i} r),

with the one r that makes the sum 1. An entry is full from r = u_i e^{−z_i} on; between two such
breakpoints all others are linear in r. Let A be the full entries. A change of z moves only the
rest, which share the fixed mass 1 − Σ_A u as softmax: J = diag(s) − s sᵀ/Σs with s = p off A and
0 on A.
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
from pyentmax.reference.thresholds.water_filling import water_fill

__all__ = ["csoftmax"]


def textbook(z: Any, upper: Any) -> np.ndarray:
    """argmin_{p ∈ Δ, p ≤ u} KL(p‖softmax(z)) (Martins & Kreutzer 2017, Alg. 1), for one vector.

    Clip what exceeds its bound, renormalise the rest to what is left, until nothing exceeds.

    >>> textbook([2.0, 0.0, 0.0], [0.5, 1.0, 1.0])
    array([0.5 , 0.25, 0.25])
    """
    e, u = np.exp(np.asarray(z, float)), np.asarray(upper, float)
    full = np.zeros(len(e), bool)
    while True:
        p = np.where(full, u, 0)
        if not full.all():
            p = p + np.where(full, 0, e) * (1 - p.sum()) / e[~full].sum()
        if not (p > u).any():
            return p
        full |= p > u


def textbook_jacobian(p: Any, upper: Any) -> np.ndarray:
    """J = diag(s) − s sᵀ/Σs at p = csoftmax(z, u), s_i = p_i where p_i < u_i, else 0.

    >>> textbook_jacobian([0.5, 0.25, 0.25], [0.5, 1.0, 1.0])
    array([[ 0.   ,  0.   ,  0.   ],
           [ 0.   ,  0.125, -0.125],
           [ 0.   , -0.125,  0.125]])
    """
    s = np.where(np.asarray(p) < np.asarray(upper), p, 0)
    return np.diag(s) - np.outer(s, s) / (s.sum() or 1)


# What follows is right for every input: one level r for all entries is exact, where repeated
# clipping adds up rounding; and a full entry, however high its score, costs the others no digits.

UPPER = UpperBounds("upper")


@mapping(UPPER, sparse=False, permutation_equivariant=False)
def csoftmax(
    z: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Probabilities p = min(u, e^z r): softmax with upper bounds (Martins & Kreutzer 2017).

    Minimises KL(p‖softmax(z)) over the simplex with p ≤ upper. Exact, by a sort of the
    breakpoints log u − z and a binary search over them
    (`pyentmax.reference.thresholds.water_fill`): O(d log d); twice that where full entries score
    far above the rest, to keep the rest's digits. The compiled kernel finds the level without a
    sort, O(d) per pass.

    There is no loss: Ω is −H with a constraint, and a label above its bound would cost infinity.

    Parameters
    ----------
    z : array of scores
    upper : array of bounds u ≥ 0 that broadcasts against z
        1 or more, including ``inf``, sets no bound. In each row the unmasked bounds must sum to 1
        or more; a sum from 1 − 8ε√d on, with ε the coarser precision of z and upper, counts as 1,
        and then p = u
    axis : as in `pyentmax.softmax`
    mask : as in `pyentmax.softmax`
        where it is False, `upper` may hold anything
    out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with no entry above `upper` (rounded to z's dtype)

    Raises
    ------
    ValueError
        if `upper` is infeasible, negative, NaN or of the wrong shape; else as in
        `pyentmax.softmax`. On a device, where values are not validated, the row is NaN instead
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(csoftmax([2.0, 0.0, 0.0], [0.5, 1.0, 1.0]))
    [0.5  0.25 0.25]
    >>> print(csoftmax.support([0.0, -1e6, 0.0], [1.0, 1.0, 0.0]))
    [ True  True False]
    >>> p, upper = [0.5, 0.25, 0.25], [0.5, 1.0, 1.0]
    >>> print(csoftmax.jvp(p, [9.0, -1.0, 0.0], upper))
    [ 0.    -0.125  0.125]
    >>> print(csoftmax.parameter_vjp(p, [3.0, 1.0, 0.0], upper))
    [2.5 0.  0. ]
    """
    return z, upper, axis, mask, out


@csoftmax.rule
def _forward(y: Any, upper: Any) -> Any:
    with np.errstate(divide="ignore"):  # log 0 = −∞: full from the start
        log_u = np.log(upper)

    def solve(y: Any) -> Any:
        full = log_u - y
        return water_fill(full, lambda t: _filled(y, upper, full, t), 1).p

    return solve_shifted(y, upper, solve)


def _filled(y: Any, u: Any, full: Any, t: Any) -> Any:
    # min(u, e^y r) at t = log r; the comparison gives exactly u where rounding would not reach it.
    return np.where(full <= t, u, np.minimum(np.exp(y + t), u))


@csoftmax.support.rule
def _support(y: Any, upper: Any) -> Any:
    """Every unmasked score above −∞ whose bound is not 0."""
    return upper > 0


@csoftmax.jvp.rule
def _product(p: Any, v: Any, upper: Any) -> Any:
    """J v = s ∘ (v − (s·v)/Σs), s = p where p is below its bound, else 0."""
    return _simplex.product(_curvature(p, upper), v)


def _curvature(p: Any, upper: Any) -> Any:
    # p where it is free, written so that a NaN stays a NaN.
    return np.where(full_entries(p, upper), 0, p)


@csoftmax.jacobian.rule
def _jacobian(p: Any, upper: Any) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = p where p is below its bound, else 0."""
    return _simplex.dense(_curvature(p, upper))


@csoftmax.parameter_vjp.rule
def _vjp_upper(p: Any, g: Any, upper: Any) -> Any:
    """Σ_i g_i ∂p_i/∂u, the gradient in the bounds.

    With A = {p_i = u_i} and m the mean of g off A under p, it is g_i − m on A and 0 off A: what a
    full entry gains, the others lose in proportion to p. This holds for an exhausted u_i = 0 too.
    Where all entries are full m is 0. p does not show whether a score is −∞ or its bound exhausted:
    mask a score of −∞.
    """
    return gradient_in_bounds(p, g, _curvature(p, upper), full_entries(p, upper))


csoftmax.textbook, csoftmax.jacobian.textbook = textbook, textbook_jacobian
