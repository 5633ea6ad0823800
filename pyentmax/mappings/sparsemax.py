"""sparsemax: the Euclidean projection onto the simplex, α = 2.

Problem: argmin over the simplex of ½‖p − z‖², equally argmax of p·z + H(p), H Gini's entropy.
The optimality conditions are p_i = z_i − τ where that is positive, else 0, with τ such that p sums
to 1. So a score at or below τ gets exactly nothing. Moving z moves p one to one on the
support, less the mean: s = 1 on the support, 0 off it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.backends.choice import accelerated
from pyentmax.calls.rows import Rows, Tangent
from pyentmax.entropies import gini_entropy
from pyentmax.mappings import _simplex
from pyentmax.mappings._record import Mapping
from pyentmax.thresholds import sort_sparsemax


@accelerated(Rows)
def sparsemax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """Sparse probabilities: the point of the simplex nearest to z (Martins & Astudillo 2016).

    p = [z − τ]₊, τ by a sort (`pyentmax.thresholds.sort_sparsemax`). O(d log d).

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
    >>> print(sparsemax([1.0, 0.5, -2.0]))
    [0.75 0.25 0.  ]
    """
    rows = Rows(z, axis, mask=mask, out=out)
    x = rows.scores()
    p = np.maximum(x - sort_sparsemax(x).tau, 0)
    return rows.restore(_simplex.normalized(p, _curvature(p)))


def sparsemax_support(z: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where sparsemax gives probability: z > τ.

    Examples
    --------
    >>> print(sparsemax_support([1.0, 0.5, -2.0]))
    [ True  True False]
    """
    rows = Rows(z, axis, mask=mask)
    x = rows.scores()
    return rows.restore_support(x > sort_sparsemax(x).tau)


@accelerated(Tangent)
def sparsemax_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v at the output p = sparsemax(z): v less its mean on the support, 0 off it.

    Parameters
    ----------
    p, v : arrays of one shape
    axis, mask : as in `sparsemax`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> print(sparsemax_jvp([0.75, 0.25, 0.0], [-1.0, 0.0, 9.0]))
    [-0.5  0.5  0. ]
    """
    rows = Tangent(p, v, axis, mask=mask)
    return rows.restore(_simplex.product(_curvature(rows.p), rows.v))


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
sparsemax_vjp = sparsemax_jvp


def sparsemax_jacobian(p: Any, axis: Any = -1) -> Any:
    """J = diag(s) − s sᵀ/Σs at p = sparsemax(z), s = 1 on the support; of shape batch + (d, d).

    Examples
    --------
    >>> print(sparsemax_jacobian([0.75, 0.25, 0.0]))
    [[ 0.5 -0.5  0. ]
     [-0.5  0.5  0. ]
     [ 0.   0.   0. ]]
    """
    rows = Tangent(p, p, axis)
    return _simplex.dense(_curvature(rows.p))


def sparsemax_omega(p: Any, axis: Any = -1) -> Any:
    """Ω(p) = −½ Σ p (1 − p), the negative of Gini's entropy.

    Examples
    --------
    >>> print(sparsemax_omega([0.5, 0.5]))
    -0.25
    """
    return -gini_entropy(p, axis) + 0.0


def _curvature(p: Any) -> Any:
    # 1 on the support, written so that a NaN stays a NaN.
    return np.where(np.isnan(p), p, np.sign(p))


MAPPING = Mapping(
    name="sparsemax",
    forward=sparsemax,
    support=sparsemax_support,
    jvp=sparsemax_jvp,
    vjp=sparsemax_vjp,
    jacobian=sparsemax_jacobian,
    omega=sparsemax_omega,
    omega_vertices=0.0,
)
