"""Constrained softmax: the dense distribution that keeps below a bound on each probability.

Problem: argmin of KL(p‖softmax(z)) over the simplex with p ≤ u, equally argmax of p·z + H(p)
there, H Shannon's entropy (Martins & Kreutzer 2017). Used as attention, u is what each source
word may still be attended to: its fertility less the attention that it has had.

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

from pyentmax.backends.choice import accelerated
from pyentmax.mappings import _simplex
from pyentmax.mappings._bounded import BoundedRows, BoundedTangent, BoundsTangent, solve_shifted
from pyentmax.mappings._record import Mapping
from pyentmax.thresholds import water_fill


@accelerated(BoundedRows)
def csoftmax(z: Any, upper: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """Probabilities p = min(u, e^z r): softmax with upper bounds (Martins & Kreutzer 2017).

    Minimises KL(p‖softmax(z)) over the simplex with p ≤ upper. Exact, by a sort of the
    breakpoints log u − z and a binary search over them (`pyentmax.thresholds.water_fill`):
    O(d log d); twice that where full entries score far above the rest, to keep the rest's digits.
    The compiled kernel finds the level without a sort, O(d) per pass.

    Parameters
    ----------
    z : array of scores
    upper : array of bounds u ≥ 0 that broadcasts against z
        1 or more, ``inf`` too, is no bound. In each row the unmasked ones must sum to 1 or more;
        from 1 − 8ε√d on, ε the coarser precision of z and upper, they count as such, and then
        p = u
    axis, out, workers : as in `pyentmax.softmax`
    mask : as in `pyentmax.softmax`
        where it is False, `upper` may hold anything

    Returns
    -------
    array of z's shape, in no entry above `upper` (rounded to z's dtype)

    Raises
    ------
    ValueError
        if `upper` is infeasible, negative, NaN or of the wrong shape; else as in
        `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(csoftmax([2.0, 0.0, 0.0], [0.5, 1.0, 1.0]))
    [0.5  0.25 0.25]
    """
    rows = BoundedRows(z, upper, axis, mask=mask, out=out)
    u = rows.upper
    with np.errstate(divide="ignore"):  # log 0 = −∞: full from the start
        log_u = np.log(u)

    def solve(y: Any) -> Any:
        full = log_u - y
        return water_fill(full, lambda t: _filled(y, u, full, t), 1).p

    return rows.restore(solve_shifted(rows, u, solve))


def csoftmax_support(z: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where csoftmax gives probability: every unmasked score above −∞ whose bound is not 0.

    Examples
    --------
    >>> print(csoftmax_support([0.0, -1e6, 0.0], [1.0, 1.0, 0.0]))
    [ True  True False]
    """
    rows = BoundedRows(z, upper, axis, mask=mask)
    rows.scores()
    return rows.restore_support(rows.upper > 0)


@accelerated(BoundedTangent)
def csoftmax_jvp(p: Any, v: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v = s ∘ (v − (s·v)/Σs), s = p where p is below its bound, else 0.

    Parameters
    ----------
    p, v : arrays of one shape, p = csoftmax(z, upper)
    upper, axis, mask : as in `csoftmax`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> print(csoftmax_jvp([0.5, 0.25, 0.25], [9.0, -1.0, 0.0], [0.5, 1.0, 1.0]))
    [ 0.    -0.125  0.125]
    """
    rows = BoundedTangent(p, v, upper, axis, mask=mask)
    return rows.restore(_simplex.product(_curvature(rows), rows.v))


# J is symmetric: with the free entries alone, p is the gradient of a convex conjugate.
csoftmax_vjp = csoftmax_jvp


@accelerated(BoundsTangent)
def csoftmax_vjp_upper(p: Any, g: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """Σ_i g_i ∂p_i/∂u: the gradient in the bounds of a loss with gradient g in p.

    With A = {p_i = u_i} and m the mean of g off A under p, it is g_i − m on A and 0 off A: what a
    full entry gains, the others lose in the ratio of p. This holds for an exhausted u_i = 0 too.
    Where all entries are full m is 0.

    Parameters
    ----------
    p, g : arrays of one shape, p = csoftmax(z, upper)
    upper, axis, mask : as in `csoftmax`
        a score of −∞ is not to be told from an exhausted bound in p: mask it

    Returns
    -------
    array of upper's shape

    Examples
    --------
    >>> print(csoftmax_vjp_upper([0.5, 0.25, 0.25], [3.0, 1.0, 0.0], [0.5, 1.0, 1.0]))
    [2.5 0.  0. ]
    """
    rows = BoundsTangent(p, g, upper, axis, mask=mask)
    return rows.product(_curvature(rows), rows.full)


def csoftmax_jacobian(p: Any, upper: Any, axis: Any = -1) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = p where p is below its bound, else 0; shape batch + (d, d).

    Examples
    --------
    >>> print(csoftmax_jacobian([0.5, 0.25, 0.25], [0.5, 1.0, 1.0]))
    [[ 0.     0.     0.   ]
     [ 0.     0.125 -0.125]
     [ 0.    -0.125  0.125]]
    """
    return _simplex.dense(_curvature(BoundedTangent(p, p, upper, axis)))


def _filled(y: Any, u: Any, full: Any, t: Any) -> Any:
    # min(u, e^y r) at t = log r; the comparison is for what rounding leaves short of u.
    return np.where(full <= t, u, np.minimum(np.exp(y + t), u))


def _curvature(rows: BoundedTangent) -> Any:
    # p off A, 0 on A; a NaN compares as not full and so stays.
    return np.where(rows.full, 0, rows.p)


MAPPING = Mapping(
    name="csoftmax",
    forward=csoftmax,
    support=csoftmax_support,
    jvp=csoftmax_jvp,
    vjp=csoftmax_vjp,
    jacobian=csoftmax_jacobian,
    omega=None,  # −H with a constraint: a label above its bound would cost infinity
    parameters=("upper",),
    sparse=False,
    permutation_equivariant=False,  # unless the bounds are permuted too
)
