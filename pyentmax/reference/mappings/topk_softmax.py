"""topk_softmax: softmax over the k largest scores of a row, and nothing for the rest.

Problem: softmax with all but the k largest scores set to −∞ (Explicit Sparse Transformer: Zhao et
al. 2019, §3). With t the k-th largest score of the row,

    p = softmax(M),  M_i = z_i if z_i ≥ t else −∞.

Unlike the other mappings this is not the argmax for a strictly convex Ω: p jumps where an entry
overtakes the k-th, so there is no Ω in its record and no Fenchel-Young loss. Between the jumps
p does not depend on t, hence the backward pass holds it constant (App. A.3) and the Jacobian is
softmax's on the entries kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.parameters import TopK
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.keep import top_k
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex

__all__ = ["topk_softmax"]


def textbook(z: Any, k: int) -> np.ndarray:
    """p = softmax(M), M_i = z_i if z_i ≥ t else −∞, t the k-th largest (Eq. 2 and 3).

    >>> textbook([2.0, 1.0, 0.0, -1.0], 2).round(4)
    array([0.7311, 0.2689, 0.    , 0.    ])
    """
    z = np.asarray(z, float)
    t = np.sort(z)[-k]
    e = np.exp(np.where(z >= t, z, -np.inf))
    return e / e.sum()


def textbook_jacobian(p: Any, k: int) -> np.ndarray:
    """J = diag(p) − p pᵀ at p = topk_softmax(z, k): t is held constant (App. A.3).

    >>> textbook_jacobian([0.5, 0.5, 0.0], 2)
    array([[ 0.25, -0.25,  0.  ],
           [-0.25,  0.25,  0.  ],
           [ 0.  ,  0.  ,  0.  ]])
    """
    return np.diag(p) - np.outer(p, p)


# What follows is right for every input: the exponentials are relative to the largest score, and k
# may exceed the number of scores.

K = TopK("k", least=1, whole=True, in_product=False, shifted=False)


@mapping(K, support_alpha=1.0, of_largest="softmax")
def topk_softmax(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Softmax over each row's k largest scores (Explicit Sparse Transformer, Eq. 2 and 3).

    All scores that tie with the k-th largest are kept, so there may be more than k. O(d log d), by
    a sort; O(d) in the compiled kernel.

    Parameters
    ----------
    z : array of scores
    k : whole number or array that broadcasts against the batch shape (z's without the axis)
        number of scores to keep, at least 1; from the number of unmasked scores on, all are kept
    axis, mask, out : as in `pyentmax.softmax`

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
    >>> print(topk_softmax.support([0.0, -1e6, -2e6], 2))
    [ True  True False]
    >>> print(topk_softmax.jvp([0.5, 0.5, 0.0], [-1.0, 0.0, 9.0], 2))
    [-0.25  0.25  0.  ]
    """
    return z, k, axis, mask, out


@topk_softmax.rule
def _forward(y: Any, k: Any) -> Any:
    kept = np.where(top_k.body(np, y, k), y, -np.inf)
    with np.errstate(over="ignore"):
        p = np.exp(kept - np.max(kept, axis=-1, keepdims=True))
    return p / np.sum(p, axis=-1, keepdims=True)


@topk_softmax.support.rule
def _support(y: Any, k: Any) -> Any:
    """The scores kept, even if p underflows."""
    return top_k.body(np, y, k) & (y > -np.inf)


@topk_softmax.jvp.rule
def _product(p: Any, v: Any, k: Any) -> Any:
    """J v = p ∘ (v − p·v): softmax's own (App. A.3).

    p is 0 wherever a score was dropped, so k is not needed, only checked.
    """
    return _simplex.product(p, v)


@topk_softmax.jacobian.rule
def _jacobian(p: Any, k: Any) -> Any:
    """J = diag(p) − p pᵀ."""
    return _simplex.dense(p)


def _doubtful(z: Any, on: Any, k: float) -> None:
    # Scores off the support are below the k-th largest: no rounding is involved.
    return None


topk_softmax.jvp.kernel = "softmax_jvp"
topk_softmax.doubtful = _doubtful
topk_softmax.textbook, topk_softmax.jacobian.textbook = textbook, textbook_jacobian
