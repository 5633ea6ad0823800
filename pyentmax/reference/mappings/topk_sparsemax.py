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

from pyentmax.engine.backends import declare
from pyentmax.engine.calls.parameters import PerRow
from pyentmax.engine.calls.record import Mapping
from pyentmax.engine.calls.types import Array, ArrayLike, Axis, Reduction
from pyentmax.reference.losses import declare as losses
from pyentmax.reference.losses.definition import fenchel_young, fenchel_young_and_gradient
from pyentmax.reference.mappings import sparsemax as _sparsemax
from pyentmax.reference.mappings.sparsemax import (
    above_threshold,
    sparsemax,
    sparsemax_jacobian,
    sparsemax_jvp,
    sparsemax_omega,
)
from pyentmax.reference.thresholds.proof import doubtful

__all__ = [
    "TOPK_SPARSEMAX",
    "topk_sparsemax",
    "topk_sparsemax_jacobian",
    "topk_sparsemax_jvp",
    "topk_sparsemax_loss",
    "topk_sparsemax_loss_and_grad",
    "topk_sparsemax_support",
    "topk_sparsemax_vjp",
]


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

K = PerRow("k", least=1, whole=True, in_product=False, shifted=False)


def _forward(y: Any, k: Any) -> Any:
    return sparsemax.body(_gaps_kept(y, k))


@declare.mapping(_forward, K)
def topk_sparsemax(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Sparse probabilities: the point nearest to z of the simplex with at most k non-zeros.

    Sparsemax of each row's k largest scores (Kyrillidis et al. 2013). Of scores that tie for the
    k-th place, those of the lowest indices are kept. O(d log d), by a sort; O(d) in the compiled
    kernel.

    Parameters
    ----------
    z : array of scores
    k : whole number or array that broadcasts against the batch shape (z's without the axis)
        the most non-zeros, at least 1; sparsemax from the number of unmasked scores on
    axis, mask, out, workers, offsets : as in `pyentmax.softmax`

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
    """
    return topk_sparsemax.dispatch(z, k, axis, mask, out, workers, offsets)


def _support(y: Any, k: Any) -> Any:
    return above_threshold(_gaps_kept(y, k)) > 0


@declare.support(_support, K)
def topk_sparsemax_support(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Where top-k sparsemax gives probability: the scores kept that exceed their threshold.

    Parameters
    ----------
    z, k, axis, mask, offsets : as in `topk_sparsemax`

    Returns
    -------
    bool array of z's shape

    Examples
    --------
    >>> print(topk_sparsemax_support([1.0, 0.8, 0.9, -1.0], 2))
    [ True False  True False]
    """
    return topk_sparsemax_support.dispatch(z, k, axis, mask, offsets)


def _product(p: Any, v: Any, k: Any) -> Any:
    return sparsemax_jvp.body(p, v)


@declare.product(_product, K, kernel="sparsemax_jvp")
def topk_sparsemax_jvp(
    p: ArrayLike, v: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """J v at the output p = topk_sparsemax(z, k): v less its mean on the support, 0 off it.

    p is 0 wherever a score was dropped, so k is not needed, only checked.

    Parameters
    ----------
    p, v : arrays of one shape
        p is what `topk_sparsemax` gave, v a direction
    k, axis, mask, workers, offsets : as in `topk_sparsemax`

    Returns
    -------
    array of p's shape

    Raises
    ------
    ValueError
        if p and v differ in shape or are empty along the axis, or another argument is out of its
        range or does not fit
    TypeError
        if an array is complex, of objects, or a masked array

    Examples
    --------
    >>> print(topk_sparsemax_jvp([0.55, 0.0, 0.45], [-1.0, 9.0, 0.0], 2))
    [-0.5  0.   0.5]
    """
    return topk_sparsemax_jvp.dispatch(p, v, k, axis, mask, workers, offsets)


# J is symmetric, being sparsemax's on the support: Jᵀ v is J v.
topk_sparsemax_vjp = topk_sparsemax_jvp


def _jacobian(p: Any, k: Any) -> Any:
    return sparsemax_jacobian(p)


@declare.jacobian(_jacobian, K)
def topk_sparsemax_jacobian(p: ArrayLike, k: ArrayLike, axis: Axis = -1) -> Array:
    """J = diag(s) − s sᵀ/Σs at p = topk_sparsemax(z, k), s = 1 on the support; batch + (d, d).

    Parameters
    ----------
    p : array of probabilities
        what `topk_sparsemax` gave
    k, axis : as in `topk_sparsemax`

    Returns
    -------
    array of p's shape without the axis, and (d, d)

    Raises
    ------
    ValueError
        if p is 0-dimensional or empty along the axis, or another argument does not fit
    TypeError
        if p is complex, of objects, or a masked array

    Examples
    --------
    >>> print(topk_sparsemax_jacobian([0.55, 0.0, 0.45], 2))
    [[ 0.5  0.  -0.5]
     [ 0.   0.   0. ]
     [-0.5  0.   0.5]]
    """
    return topk_sparsemax_jacobian.dispatch(p, k, axis)


def _omega(p: Any, k: Any) -> Any:
    too_many = np.sum(p != 0, axis=-1) > k[:, 0]
    return np.where(too_many, np.inf, sparsemax_omega(p))


@declare.regularizer(_omega, K)
def topk_sparsemax_omega(p: ArrayLike, k: ArrayLike, axis: Axis = -1) -> Array:
    """Ω(p) = −½ Σ p (1 − p), and ∞ where p has more than k non-zeros.

    Examples
    --------
    >>> print(topk_sparsemax_omega([0.5, 0.5], 2), topk_sparsemax_omega([0.5, 0.5], 1))
    -0.25 inf
    """
    return topk_sparsemax_omega.dispatch(p, k, axis)


def _loss(y: Any, target: Any, k: Any) -> Any:
    return fenchel_young(TOPK_SPARSEMAX, y, target, k)


@losses.loss(_loss, K)
def topk_sparsemax_loss(
    z: ArrayLike, y: ArrayLike, k: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """The top-k sparsemax loss, 0 from a margin of 1 on.

    For a label, p·z − z_y + ½ Σ p (1 − p) at p = topk_sparsemax(z, k): sparsemax's loss, but
    its gradient touches only k scores and the label's. A target distribution with more than k
    non-zeros has infinite loss, and so has a label that is smoothed over more.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    k, axis, workers, offsets : as in `topk_sparsemax`
    reduction, weight, mask, ignore_index : as in `fenchel_young_loss`
    label_smoothing, class_weight : as in `fenchel_young_loss`

    Returns
    -------
    float, or array of the labels' shape for "none"; a gradient has z's shape

    Raises
    ------
    ValueError
        if y is neither labels nor distributions that fit z, or another argument is out of its
        range or does not fit
    TypeError
        if an array is not of real numbers or is a masked array, or an option is of the wrong kind

    Examples
    --------
    >>> print(topk_sparsemax_loss([2.0, 1.0, 0.0], 0, 2), topk_sparsemax_loss([0.0, 0.0], 0, 2))
    0.0 0.25
    """
    return topk_sparsemax_loss.dispatch(
        z, y, k, axis, reduction, weight, mask, ignore_index, label_smoothing, class_weight,
        workers, offsets,
    )  # fmt: skip


def _loss_and_grad(y: Any, target: Any, k: Any) -> tuple[Any, Any]:
    return fenchel_young_and_gradient(TOPK_SPARSEMAX, y, target, k)


@losses.loss_and_grad(_loss_and_grad, K)
def topk_sparsemax_loss_and_grad(
    z: ArrayLike, y: ArrayLike, k: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]:  # fmt: skip
    """`topk_sparsemax_loss` and its gradient in z, with one forward pass.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    k, axis, workers, offsets : as in `topk_sparsemax`
    reduction, weight, mask, ignore_index : as in `fenchel_young_loss`
    label_smoothing, class_weight : as in `fenchel_young_loss`

    Returns
    -------
    float, or array of the labels' shape for "none"; a gradient has z's shape

    Raises
    ------
    ValueError
        if y is neither labels nor distributions that fit z, or another argument is out of its
        range or does not fit
    TypeError
        if an array is not of real numbers or is a masked array, or an option is of the wrong kind

    Examples
    --------
    >>> loss, grad = topk_sparsemax_loss_and_grad([0.0, 0.0, 0.0], 2, 2)
    >>> print(loss, grad)
    0.25 [ 0.5  0.5 -1. ]
    """
    return topk_sparsemax_loss_and_grad.dispatch(
        z, y, k, axis, reduction, weight, mask, ignore_index, label_smoothing, class_weight,
        workers, offsets,
    )  # fmt: skip


def _kept(z: Any, k: Any) -> Any:
    """z, but −∞ from the k-th place on; the sort is stable, so equal scores stay in their order."""
    place = np.argsort(np.argsort(-z, axis=-1, kind="stable"), axis=-1)
    return np.where(place < np.fmin(k, z.shape[-1]), z, -np.inf).astype(z.dtype, copy=False)


def _gaps_kept(z: Any, k: Any) -> Any:
    kept = _kept(z, k)
    with np.errstate(over="ignore"):
        return kept - np.max(kept, axis=-1, keepdims=True)


def _doubtful(z: Any, on: Any, k: float) -> Any:
    return doubtful(_kept(z, k), on, power=1)


TOPK_SPARSEMAX = Mapping(
    name="topk_sparsemax",
    forward=topk_sparsemax,
    support=topk_sparsemax_support,
    jvp=topk_sparsemax_jvp,
    vjp=topk_sparsemax_vjp,
    jacobian=topk_sparsemax_jacobian,
    omega=topk_sparsemax_omega,
    parameters=(K.name,),
    permutation_equivariant=False,  # ties are broken by position
    omega_at_vertices=0.0,
    support_alpha=2.0,
    of_largest="sparsemax",
    doubtful=_doubtful,
    loss=topk_sparsemax_loss,
    loss_and_grad=topk_sparsemax_loss_and_grad,
    textbook=textbook,
    textbook_jacobian=textbook_jacobian,
    textbook_loss=textbook_loss,
)
