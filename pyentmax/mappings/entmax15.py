"""1.5-entmax: half way between softmax and sparsemax, with an exact solution of its own.

Problem: argmax over the simplex of p·z + H(p), H Tsallis' entropy of order 1.5, that is
H(p) = (4/3) Σ (p − p^{3/2}). The optimality conditions are p_i = [z_i/2 − τ]₊²: sparse as
sparsemax, but p leaves zero smoothly. Given the support, τ solves a quadratic. The Jacobian has
s = √p.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.backends.choice import accelerated
from pyentmax.calls.rows import Rows, Tangent
from pyentmax.entropies import tsallis_entropy
from pyentmax.mappings import _simplex
from pyentmax.mappings._record import Mapping
from pyentmax.thresholds import sort_entmax15


@accelerated(Rows)
def entmax15(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """Sparse probabilities p = [z/2 − τ]₊²: α-entmax at α = 1.5 (Peters et al. 2019, Alg. 2).

    Maximises p·z + H(p) over the simplex, H Tsallis' 1.5-entropy; τ by a sort
    (`pyentmax.thresholds.sort_entmax15`). O(d log d).

    Parameters
    ----------
    z, axis, mask, out, workers : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros

    Raises
    ------
    ValueError, TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(entmax15([2.0, 1.6, -1.0]).round(6))
    [0.64 0.36 0.  ]
    """
    rows = Rows(z, axis, mask=mask, out=out)
    x = rows.scores() / 2
    u = np.maximum(x - sort_entmax15(x).tau, 0)
    return rows.restore(_simplex.normalized(u * u, u))


def entmax15_support(z: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where 1.5-entmax gives probability: z/2 > τ.

    Examples
    --------
    >>> print(entmax15_support([2.0, 1.6, -1.0]))
    [ True  True False]
    """
    rows = Rows(z, axis, mask=mask)
    x = rows.scores() / 2
    return rows.restore_support(x > sort_entmax15(x).tau)


@accelerated(Tangent)
def entmax15_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v = s ∘ (v − (s·v)/Σs), s = √p, at the output p = entmax15(z) (Peters et al., Prop. 1).

    Parameters
    ----------
    p, v : arrays of one shape
    axis, mask : as in `entmax15`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> print(entmax15_jvp([0.25, 0.25, 0.25, 0.25, 0.0], [-1.0, 0.0, 0.0, 0.0, 9.0]))
    [-0.375  0.125  0.125  0.125  0.   ]
    """
    rows = Tangent(p, v, axis, mask=mask)
    return rows.restore(_simplex.product(np.sqrt(rows.p), rows.v))


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
entmax15_vjp = entmax15_jvp


def entmax15_jacobian(p: Any, axis: Any = -1) -> Any:
    """J = diag(s) − s sᵀ/Σs at p = entmax15(z), s = √p; of shape batch + (d, d).

    Examples
    --------
    >>> print(entmax15_jacobian([0.25, 0.25, 0.25, 0.25])[0])
    [ 0.375 -0.125 -0.125 -0.125]
    """
    rows = Tangent(p, p, axis)
    return _simplex.dense(np.sqrt(rows.p))


def entmax15_omega(p: Any, axis: Any = -1) -> Any:
    """Ω(p) = (4/3) Σ (p^{3/2} − p), the negative of Tsallis' 1.5-entropy.

    Examples
    --------
    >>> print(round(float(entmax15_omega([0.25, 0.25, 0.25, 0.25])), 6))
    -0.666667
    """
    return -tsallis_entropy(p, 1.5, axis) + 0.0


MAPPING = Mapping(
    name="entmax15",
    forward=entmax15,
    support=entmax15_support,
    jvp=entmax15_jvp,
    vjp=entmax15_vjp,
    jacobian=entmax15_jacobian,
    omega=entmax15_omega,
    omega_vertices=0.0,
)
