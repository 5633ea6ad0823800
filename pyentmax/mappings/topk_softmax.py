"""topk_softmax: softmax over the k largest scores of a row, and nothing for the rest.

Problem: softmax with all but the k largest scores set to −∞ (Explicit Sparse Transformer: Zhao et
al. 2019, §3). With t the k-th largest score of the row,

    p = softmax(M),  M_i = z_i if z_i ≥ t else −∞.

Unlike its neighbours here this is no argmax with a strictly convex Ω: p jumps where an entry
overtakes the k-th, so there is no Ω in its record and no Fenchel-Young loss. Between the jumps
t plays no part, hence the backward pass holds it constant (App. A.3) and the Jacobian is
softmax's on the entries kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.backends.choice import accelerated
from pyentmax.calls.dtypes import as_floating
from pyentmax.calls.rows import Rows, Tangent, check_parameter
from pyentmax.mappings import _simplex
from pyentmax.mappings._record import Mapping
from pyentmax.mappings.softmax import softmax_jvp


class _Rows(Rows):
    """The scores of one call, and k."""

    __slots__ = ("k",)

    def __init__(
        self, z: Any, k: Any, axis: Any = -1, *, mask: Any = None, out: Any = None
    ) -> None:
        super().__init__(z, axis, mask=mask, out=out)
        self.k = self.parameter(_check_whole(k), "k", 1)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that k needs no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: scores, mask, and k per row or one for all, as a whole number."""
        d = self.z.shape[-1]
        return (*super().operands(), np.minimum(self.k, d).astype(np.int64))


@accelerated(_Rows)
def topk_softmax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """Softmax over each row's k largest scores (Explicit Sparse Transformer, Eq. 2 and 3).

    Scores that tie with the k-th largest all stay, so more than k may. O(d log d), by a sort; O(d)
    in the compiled kernel.

    Parameters
    ----------
    z : array of scores
    k : whole number or array that broadcasts against the batch shape (z's without the axis)
        how many scores to keep, at least 1; from the number of unmasked scores on, all are kept
    axis, mask, out, workers : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros

    Raises
    ------
    ValueError
        if some k is below 1, not whole or does not fit the batch; else as in `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(topk_softmax([2.0, 1.0, 0.0, -1.0], 2).round(4))
    [0.7311 0.2689 0.     0.    ]
    >>> print(topk_softmax([1.0, 0.0, 1.0, 1.0], 2).round(4))
    [0.3333 0.     0.3333 0.3333]
    """
    rows = _Rows(z, k, axis, mask=mask, out=out)
    x = rows.scores()
    p = np.exp(np.where(_kept(x, rows.k), x, -np.inf))
    return rows.restore(p / np.sum(p, axis=-1, keepdims=True))


def topk_softmax_support(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where top-k softmax gives probability: the scores kept, though a float underflows.

    Examples
    --------
    >>> print(topk_softmax_support([0.0, -1e6, -2e6], 2))
    [ True  True False]
    """
    rows = _Rows(z, k, axis, mask=mask)
    x = rows.scores()
    return rows.restore_support(_kept(x, rows.k) & (x > -np.inf))


@accelerated(None)
def topk_softmax_jvp(p: Any, v: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v = p ∘ (v − p·v) at the output p = topk_softmax(z, k): softmax's own (App. A.3).

    p is 0 wherever a score was dropped, so that it tells all, and k is only checked.

    Parameters
    ----------
    p, v : arrays of one shape
    k, axis, mask : as in `topk_softmax`

    Returns
    -------
    array of p's shape

    Raises
    ------
    ValueError, TypeError
        as in `topk_softmax`, and if p and v differ in shape

    Examples
    --------
    >>> print(topk_softmax_jvp([0.5, 0.5, 0.0], [-1.0, 0.0, 9.0], 2))
    [-0.25  0.25  0.  ]
    """
    rows = Tangent(p, v, axis, mask=mask)
    check_parameter(_check_whole(k), "k", rows.p, 1)
    return rows.restore(softmax_jvp(rows.p, rows.v))


# J is symmetric, being softmax's on the entries kept: Jᵀ v is J v.
topk_softmax_vjp = topk_softmax_jvp


def topk_softmax_jacobian(p: Any, k: Any, axis: Any = -1) -> Any:
    """J = diag(p) − p pᵀ at p = topk_softmax(z, k), of shape batch + (d, d).

    Examples
    --------
    >>> print(topk_softmax_jacobian([0.5, 0.5, 0.0], 2))
    [[ 0.25 -0.25  0.  ]
     [-0.25  0.25  0.  ]
     [ 0.    0.    0.  ]]
    """
    rows = Tangent(p, p, axis)
    check_parameter(_check_whole(k), "k", rows.p, 1)
    return _simplex.dense(rows.p)


def _check_whole(k: Any) -> Any:
    """k in floating point; where nobody may look, NaN for what is no whole number."""
    k, _ = as_floating(k, "k")
    whole = (k == np.floor(k)) | np.isnan(k)  # a NaN is not at least 1, which is asked next
    if not isinstance(k, np.ndarray):
        return np.where(whole, k, np.nan)
    if not whole.all():
        raise ValueError(f"k must be a whole number, got {k[~whole].flat[0]:g}")
    return k


def _kept(x: Any, k: Any) -> Any:
    """x ≥ t, t the k-th largest; with fewer than k above −∞, t is −∞ and all are kept."""
    d = x.shape[-1]
    place = d - np.fmin(k, d).astype(np.intp)  # of the k-th largest in rising order
    place = np.broadcast_to(place, x.shape[:-1])[..., None]
    return x >= np.take_along_axis(np.sort(x, axis=-1), place, axis=-1)


MAPPING = Mapping(
    name="topk_softmax",
    forward=topk_softmax,
    support=topk_softmax_support,
    jvp=topk_softmax_jvp,
    vjp=topk_softmax_vjp,
    jacobian=topk_softmax_jacobian,
    omega=None,
    parameters=("k",),
)
