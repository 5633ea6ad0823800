"""topk_sparsemax: the nearest point of the simplex with at most k non-zeros.

Problem: argmin of ½‖p − z‖² over the p of the simplex with at most k non-zeros, equally argmax of
p·z + H(p) there, H Gini's entropy. Whichever entries are allowed, sparsemax of their scores is
best, and a larger score in place of a smaller one never does worse: so keep the k largest and
project (Kyrillidis, Becker, Cevher & Koch 2013, Thm. 1),

    p = sparsemax(M),  M_i = z_i if z_i is one of the k largest, else −∞.

The set is not convex, so p jumps where an entry overtakes the k-th while both would have
probability; and where scores tie for the k-th place there are several nearest points, of which the
one with the lowest indices is taken. Between the jumps the Jacobian is sparsemax's: s = 1 on the
support, 0 off it. Still Ω, infinite beyond k non-zeros, has a conjugate and a Fenchel-Young loss,
whose gradient is p − q.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.parameters import TopK
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import sparsemax as _sparsemax
from pyentmax.reference.mappings.sparsemax import above_threshold, sparsemax
from pyentmax.reference.thresholds.proof import doubtful

__all__ = ["topk_sparsemax"]


def textbook(z: Any, k: int) -> np.ndarray:
    """argmin ‖p − z‖² over p ∈ Δ with at most k non-zeros (Kyrillidis et al. 2013, Alg. 1).

    >>> textbook([1.0, 0.8, 0.9, -1.0], 2).round(4)
    array([0.55, 0.  , 0.45, 0.  ])
    """
    z = np.asarray(z, float)
    largest = np.argsort(-z, kind="stable")[:k]
    p = np.zeros(len(z))
    p[largest] = _sparsemax.textbook(z[largest])
    return p


def textbook_jacobian(p: Any, k: int) -> np.ndarray:
    """J = diag(s) − s sᵀ/|S| at p = topk_sparsemax(z, k), s = 1 on the support S, 0 off it.

    >>> textbook_jacobian([0.55, 0.0, 0.45], 2)
    array([[ 0.5,  0. , -0.5],
           [ 0. ,  0. ,  0. ],
           [-0.5,  0. ,  0.5]])
    """
    return _sparsemax.textbook_jacobian(p)


def textbook_loss(z: Any, y: int, k: int) -> float:
    """L = (p − e_y)·z + ½ Σ p (1 − p), p = topk_sparsemax(z, k).

    >>> float(textbook_loss([0.0, 0.0], 0, 2))
    0.25
    """
    p, z = textbook(z, k), np.asarray(z, float)
    return p @ z - z[y] + np.sum(p * (1 - p)) / 2


# What follows is right for every input, since sparsemax's body is; k may exceed the number of
# scores.

K = TopK("k", least=1, whole=True, in_product=False, shifted=False)


@mapping(
    K,
    permutation_equivariant=False,  # ties are broken by position
    omega_at_vertices=0.0,
    support_alpha=2.0,
    of_largest="sparsemax",
)
def topk_sparsemax(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Sparse probabilities: the point nearest to z of the simplex with at most k non-zeros.

    Sparsemax of each row's k largest scores (Kyrillidis et al. 2013). Of scores that tie for the
    k-th place, those of the lowest indices are kept. O(d log d), by a sort; O(d) in the compiled
    kernel.

    `topk_sparsemax.loss` is 0 from a margin of 1 on. Its gradient touches only k scores and the
    label's. A target distribution with more than k non-zeros has infinite loss, and so has a label
    that is smoothed over more.

    Parameters
    ----------
    z : array of scores
    k : whole number or array that broadcasts against the batch shape (z's without the axis)
        the most non-zeros, at least 1; sparsemax from the number of unmasked scores on
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
    >>> print(topk_sparsemax([1.0, 0.8, 0.9, -1.0], 2).round(4))
    [0.55 0.   0.45 0.  ]
    >>> print(topk_sparsemax([0.5, 0.5, 0.5], 2))
    [0.5 0.5 0. ]
    >>> print(topk_sparsemax.support([1.0, 0.8, 0.9, -1.0], 2))
    [ True False  True False]
    >>> print(topk_sparsemax.jvp([0.55, 0.0, 0.45], [-1.0, 9.0, 0.0], 2))
    [-0.5  0.   0.5]
    >>> print(topk_sparsemax.regularizer([0.5, 0.5], 2), topk_sparsemax.regularizer([0.5, 0.5], 1))
    -0.25 inf
    >>> loss, grad = topk_sparsemax.loss_and_grad([0.0, 0.0, 0.0], 2, 2)
    >>> print(loss, grad, topk_sparsemax.loss([2.0, 1.0, 0.0], 0, 2))
    0.25 [ 0.5  0.5 -1. ] 0.0
    """
    return z, k, axis, mask, out


@topk_sparsemax.rule
def _forward(y: Any, k: Any) -> Any:
    return sparsemax.body(_gaps_kept(y, k))


def _gaps_kept(z: Any, k: Any) -> Any:
    kept = _largest_k(z, k)
    with np.errstate(over="ignore"):
        return kept - np.max(kept, axis=-1, keepdims=True)


def _largest_k(z: Any, k: Any) -> Any:
    """z, but −∞ from the k-th place on; the sort is stable, so equal scores stay in their order."""
    place = np.argsort(np.argsort(-z, axis=-1, kind="stable"), axis=-1)
    return np.where(place < np.fmin(k, z.shape[-1]), z, -np.inf).astype(z.dtype, copy=False)


@topk_sparsemax.support.rule
def _support(y: Any, k: Any) -> Any:
    """The scores kept that exceed their threshold."""
    return above_threshold(_gaps_kept(y, k)) > 0


@topk_sparsemax.jvp.rule
def _product(p: Any, v: Any, k: Any) -> Any:
    """J v: v less its mean on the support, 0 off it.

    p is 0 wherever a score was dropped, so k is not needed, only checked.
    """
    return sparsemax.jvp.body(p, v)


@topk_sparsemax.jacobian.rule
def _jacobian(p: Any, k: Any) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = 1 on the support."""
    return sparsemax.jacobian.body(p)


@topk_sparsemax.regularizer.rule
def _omega(p: Any, k: Any) -> Any:
    """Ω(p) = −½ Σ p (1 − p), and ∞ where p has more than k non-zeros."""
    too_many = np.sum(p != 0, axis=-1) > k[:, 0]
    return np.where(too_many, np.inf, sparsemax.regularizer.body(p))


def _doubtful(z: Any, on: Any, k: float) -> Any:
    return doubtful(_largest_k(z, k), on, power=1)


topk_sparsemax.jvp.kernel = "sparsemax_jvp"
topk_sparsemax.doubtful = _doubtful
topk_sparsemax.textbook, topk_sparsemax.jacobian.textbook = textbook, textbook_jacobian
topk_sparsemax.loss.textbook = textbook_loss
