"""Constrained sparsemax: sparse probabilities that keep below a bound each.

Problem: argmin of ½‖p − z‖² over the simplex with p ≤ u (Malaviya et al. 2018). Where constrained
softmax spreads the attention that exhausted words leave over all others, this one gives it to
few.

The optimality conditions are p_i = clip(z_i − τ, 0, u_i), with τ such that p sums to 1: an entry
moves, one to one with −τ, from τ = z_i down to τ = z_i − u_i, and stands still elsewhere. Let
I = {0 < p_i < u_i} be the free entries. A change of z moves only these, less their mean:
J = diag(s) − s sᵀ/Σs with s = 1 on I and 0 off it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.backends.choice import accelerated
from pyentmax.calls.rows import Rows
from pyentmax.mappings import _simplex
from pyentmax.mappings._bounded import BoundedRows, BoundedTangent, BoundsTangent, solve_shifted
from pyentmax.mappings._record import Mapping
from pyentmax.thresholds import fill_boxes


class _BoundsTangent(BoundsTangent):
    """Probabilities, a direction and bounds, and the scores."""

    __slots__ = ("z",)

    def __init__(
        self, p: Any, v: Any, upper: Any, z: Any, axis: Any = -1, *, mask: Any = None
    ) -> None:
        super().__init__(p, v, upper, axis, mask=mask)
        scores = Rows(z, axis, mask=mask)
        if scores.z.shape != self.p.shape:
            raise ValueError(f"z must have the shape of p, {np.shape(p)}, got {scores.shape}")
        self.z = scores.z
        self.kernel_ready = self.kernel_ready and scores.kernel_ready

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that its bounds need no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: p, v, the bounds and the scores."""
        return (*super().operands(), self.z)


@accelerated(BoundedRows)
def csparsemax(z: Any, upper: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """Sparse probabilities p = clip(z − τ, 0, u): sparsemax with bounds (Malaviya et al. 2018).

    The point nearest to z of the simplex with p ≤ upper. Exact, by a sort of the breakpoints z
    and z − u and a binary search over them (`pyentmax.thresholds.water_fill`): O(d log d); twice
    that where full entries score far above the rest, to keep the rest's digits. The compiled kernel
    finds the level without a sort, O(d) per pass.

    Parameters
    ----------
    z, upper, axis, mask, out, workers : as in `pyentmax.csoftmax`

    Returns
    -------
    array of z's shape, with exact zeros, in no entry above `upper` (rounded to z's dtype)

    Raises
    ------
    ValueError, TypeError
        as in `pyentmax.csoftmax`

    Examples
    --------
    >>> print(csparsemax([2.0, 0.5, 0.0, -1.0], [0.5, 1.0, 1.0, 1.0]))
    [0.5 0.5 0.  0. ]
    """
    rows = BoundedRows(z, upper, axis, mask=mask, out=out)
    return rows.restore(_projected(rows))


def csparsemax_support(z: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where csparsemax gives probability: z > τ and a bound that is not 0.

    Examples
    --------
    >>> print(csparsemax_support([2.0, 0.5, 0.0, -1.0], [0.5, 1.0, 1.0, 1.0]))
    [ True  True False False]
    """
    rows = BoundedRows(z, upper, axis, mask=mask)
    rows.scores()
    return rows.restore_support(csparsemax(rows.z, rows.upper, mask=rows.mask) > 0)


@accelerated(BoundedTangent)
def csparsemax_jvp(p: Any, v: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v: v less its mean over the free entries 0 < p_i < u_i; 0 elsewhere.

    Parameters
    ----------
    p, v : arrays of one shape, p = csparsemax(z, upper)
    upper, axis, mask : as in `csparsemax`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> print(csparsemax_jvp([0.5, 0.3, 0.2, 0.0], [9.0, -1.0, 0.0, 9.0], [0.5, 1.0, 1.0, 1.0]))
    [ 0.  -0.5  0.5  0. ]
    """
    rows = BoundedTangent(p, v, upper, axis, mask=mask)
    return rows.restore(_simplex.product(_curvature(rows), rows.v))


# J is symmetric, a projection onto differences between free entries: Jᵀ v is J v.
csparsemax_vjp = csparsemax_jvp


@accelerated(_BoundsTangent)
def csparsemax_vjp_upper(
    p: Any, g: Any, upper: Any, z: Any, axis: Any = -1, *, mask: Any = None
) -> Any:
    """Σ_i g_i ∂p_i/∂u: the gradient in the bounds of a loss with gradient g in p.

    With m the mean of g over the free entries (0 where there are none), it is g_i − m where the
    bound holds p_i down, 0 elsewhere. An exhausted bound, u_i = 0, does so where z_i > τ; p_i = 0
    does not tell, hence the argument z. As z − p is τ on the free entries and above it on the
    full, τ is its least value over the support.

    Parameters
    ----------
    p, g, z : arrays of one shape, p = csparsemax(z, upper)
    upper, axis, mask : as in `csparsemax`

    Returns
    -------
    array of upper's shape

    Raises
    ------
    ValueError
        if z has not the shape of p; else as in `csparsemax`

    Examples
    --------
    >>> p, g, upper = [0.5, 0.5, 0.0, 0.0], [3.0, 1.0, 5.0, 5.0], [0.5, 1.0, 0.0, 0.0]
    >>> print(csparsemax_vjp_upper(p, g, upper, [2.0, 0.5, 0.4, -1.0]))
    [2. 0. 4. 0.]
    """
    rows = _BoundsTangent(p, g, upper, z, axis, mask=mask)
    # Relative to the least score on the support, which is near τ, no digit is lost to a full entry.
    least = np.min(np.where(rows.p > 0, rows.z, np.inf), axis=-1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        y = rows.z - least
        tau = np.min(np.where(rows.p > 0, y - rows.p, np.inf), axis=-1, keepdims=True)
    return rows.product(_curvature(rows), rows.full & (y > tau))


def csparsemax_jacobian(p: Any, upper: Any, axis: Any = -1) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = 1 where 0 < p_i < u_i, else 0; of shape batch + (d, d).

    Examples
    --------
    >>> print(csparsemax_jacobian([0.5, 0.3, 0.2], [0.5, 1.0, 1.0]))
    [[ 0.   0.   0. ]
     [ 0.   0.5 -0.5]
     [ 0.  -0.5  0.5]]
    """
    return _simplex.dense(_curvature(BoundedTangent(p, p, upper, axis)))


def _projected(rows: BoundedRows) -> Any:
    return solve_shifted(rows, rows.upper, lambda y: fill_boxes(y, rows.upper, 1).p)


def _curvature(rows: BoundedTangent) -> Any:
    # 1 on the free entries, written so that a NaN stays a NaN.
    return np.where(np.isnan(rows.p), rows.p, np.where(rows.full, 0, np.sign(rows.p)))


MAPPING = Mapping(
    name="csparsemax",
    forward=csparsemax,
    support=csparsemax_support,
    jvp=csparsemax_jvp,
    vjp=csparsemax_vjp,
    jacobian=csparsemax_jacobian,
    omega=None,  # sparsemax's with a constraint: a label above its bound would cost infinity
    parameters=("upper",),
    permutation_equivariant=False,  # unless the bounds are permuted too
)
