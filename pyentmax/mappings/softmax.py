"""softmax: the dense end of the family, α = 1.

Problem: argmax over the simplex of p·z + H(p), H Shannon's entropy. Setting the Lagrangian's
derivative z_i − log p_i − 1 − τ to zero gives p_i ∝ exp(z_i): every score above −∞ keeps some
probability. The Jacobian is that of every separable Ω with s_i = 1/Ω''(p_i) = p_i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.backends.choice import accelerated
from pyentmax.calls.rows import Rows, Tangent
from pyentmax.entropies import shannon_entropy
from pyentmax.mappings import _simplex
from pyentmax.mappings._record import Mapping


@accelerated(Rows)
def softmax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """Dense probabilities: argmax of p·z + H(p) over the simplex, H Shannon's entropy.

    p_i = exp(z_i) / Σ_j exp(z_j), computed relative to the largest score so that no exponential
    overflows. O(d).

    Parameters
    ----------
    z : array of scores
    axis : int, tuple of int or None
        which axes form a row
    mask : bool array that broadcasts to z, optional
        True where a score may get probability; False is the same as a score of −∞
    out : array of z's shape, optional
        where to write the result; may be z itself
    workers : int, optional
        how many threads share the rows, as in `pyentmax.set_workers`

    Returns
    -------
    array of z's shape
        rows sum to 1, but are zeros where nothing is left and NaN where a score is NaN or +∞

    Raises
    ------
    ValueError
        if z is 0-dimensional or empty along the axis, or mask or out do not fit
    TypeError
        if z is complex, of objects, or a masked array

    Examples
    --------
    >>> print(softmax([-0.3, -1.0, 1.8]).round(2))
    [0.1  0.05 0.85]
    """
    rows = Rows(z, axis, mask=mask, out=out)
    p = np.exp(rows.scores())
    return rows.restore(p / np.sum(p, axis=-1, keepdims=True))


def softmax_support(z: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where softmax gives probability: every unmasked score above −∞, though a float underflows.

    Examples
    --------
    >>> print(softmax_support([0.0, -1e6, -np.inf]))
    [ True  True False]
    """
    rows = Rows(z, axis, mask=mask)
    return rows.restore_support(rows.scores() > -np.inf)


@accelerated(Tangent)
def softmax_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v = p ∘ (v − p·v) at the output p = softmax(z).

    Parameters
    ----------
    p, v : arrays of one shape
    axis, mask : as in `softmax`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> print(softmax_jvp([0.5, 0.5], [1.0, 0.0]))
    [ 0.25 -0.25]
    """
    rows = Tangent(p, v, axis, mask=mask)
    return rows.restore(_simplex.product(rows.p, rows.v))


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
softmax_vjp = softmax_jvp


def softmax_jacobian(p: Any, axis: Any = -1) -> Any:
    """J = diag(p) − p pᵀ at p = softmax(z), of shape batch + (d, d).

    Examples
    --------
    >>> print(softmax_jacobian([0.5, 0.5]))
    [[ 0.25 -0.25]
     [-0.25  0.25]]
    """
    rows = Tangent(p, p, axis)
    return _simplex.dense(rows.p)


def softmax_omega(p: Any, axis: Any = -1) -> Any:
    """Ω(p) = Σ p log p, the negative of Shannon's entropy.

    Examples
    --------
    >>> print(softmax_omega([1.0, 0.0]))
    0.0
    """
    return -shannon_entropy(p, axis) + 0.0  # + 0: a corner's value is 0, not −0


MAPPING = Mapping(
    name="softmax",
    forward=softmax,
    support=softmax_support,
    jvp=softmax_jvp,
    vjp=softmax_vjp,
    jacobian=softmax_jacobian,
    omega=softmax_omega,
    sparse=False,
    omega_vertices=0.0,
)
