"""softmax: the dense end of the family, α = 1.

Problem: argmax over the simplex of p·z + H(p), H Shannon's entropy. Setting the Lagrangian's
derivative z_i − log p_i − 1 − τ to zero gives p_i ∝ exp(z_i): every score above −∞ keeps some
probability. The Jacobian is that of every separable Ω with s_i = 1/Ω''(p_i) = p_i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends import declare
from pyentmax.engine.calls.record import Mapping
from pyentmax.engine.calls.types import Array, ArrayLike, Axis, Reduction
from pyentmax.reference.entropies import shannon_entropy
from pyentmax.reference.log_probabilities import log_sum_exp
from pyentmax.reference.losses import declare as losses
from pyentmax.reference.losses.definition import fenchel_young, fenchel_young_and_gradient
from pyentmax.reference.mappings import _simplex

__all__ = [
    "SOFTMAX",
    "log_softmax",
    "softmax",
    "softmax_jacobian",
    "softmax_jvp",
    "softmax_loss",
    "softmax_loss_and_grad",
    "softmax_support",
    "softmax_vjp",
]


def textbook(z: Any) -> np.ndarray:
    """p_i = exp(z_i) / Σ_j exp(z_j) (Peters et al. 2019, Eq. 4), for one vector.

    >>> textbook([-0.3, -1.0, 1.8]).round(2)
    array([0.1 , 0.05, 0.85])
    """
    e = np.exp(np.asarray(z, float))
    return e / e.sum()


def textbook_jacobian(p: Any) -> np.ndarray:
    """J = diag(p) − p pᵀ at p = softmax(z).

    >>> textbook_jacobian([0.5, 0.5])
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    return np.diag(p) - np.outer(p, p)


def textbook_loss(z: Any, y: int) -> float:
    """L = −log softmax(z)_y (Peters et al. 2019, Eq. 3).

    >>> round(float(textbook_loss([2.0, 1.0], 0)), 6)
    0.313262
    """
    return -np.log(textbook(z)[y])


# What follows is right for every input: exp(z) overflows from z = 710 on (89 in float32), and
# relative to the largest score it does not; −log p_y is 0 or infinite where p_y rounds to 1 or 0.


def _forward(y: Any) -> Any:
    p = np.exp(y)
    return p / np.sum(p, axis=-1, keepdims=True)


@declare.mapping(_forward)
def softmax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
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
        how many threads share the rows; by default as `pyentmax.set_workers` says
    offsets : int32 or int64 array of shape (rows + 1,), optional
        cuts the axis, one int, into rows of different lengths: row r has the entries from
        offsets[r] to offsets[r + 1], and may be empty. They rise from 0 to the axis' length. What
        is per row, a parameter or label, has z's shape with the number of rows in that length's
        place

    Returns
    -------
    array of z's shape
        rows sum to 1; a row that is all masked or −∞ is zeros, one with a NaN or +∞ is NaN

    Raises
    ------
    ValueError
        if z is 0-dimensional or empty along the axis, or mask, out or offsets do not fit
    TypeError
        if z is complex, of objects, or a masked array, or offsets are not int32 or int64, or cut
        more than one axis

    Examples
    --------
    >>> print(softmax([-0.3, -1.0, 1.8]).round(2))
    [0.1  0.05 0.85]
    >>> print(softmax([0.0, 0.0, 0.0, 0.0, 5.0], offsets=[0, 4, 5]))
    [0.25 0.25 0.25 0.25 1.  ]
    """
    return softmax.dispatch(z, None, axis, mask, out, workers, offsets)


def _support(y: Any) -> Any:
    return y > -np.inf


@declare.support(_support)
def softmax_support(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Where softmax gives probability: every unmasked score above −∞, even if p underflows.

    Parameters
    ----------
    z, axis, mask, offsets : as in `softmax`

    Returns
    -------
    bool array of z's shape

    Examples
    --------
    >>> print(softmax_support([0.0, -1e6, -np.inf]))
    [ True  True False]
    """
    return softmax_support.dispatch(z, None, axis, mask, offsets)


@declare.product(_simplex.product)
def softmax_jvp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """J v = p ∘ (v − p·v) at the output p = softmax(z).

    Parameters
    ----------
    p, v : arrays of one shape
        p is what `softmax` gave, v a direction. That p are not scores is not checked: reading them
        would take longer than the product of a short row
    axis, mask, workers, offsets : as in `softmax`

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
    >>> print(softmax_jvp([0.5, 0.5], [1.0, 0.0]))
    [ 0.25 -0.25]
    """
    return softmax_jvp.dispatch(p, v, None, axis, mask, workers, offsets)


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
softmax_vjp = softmax_jvp


@declare.jacobian(_simplex.dense)
def softmax_jacobian(p: ArrayLike, axis: Axis = -1) -> Array:
    """J = diag(p) − p pᵀ at p = softmax(z), of shape batch + (d, d).

    Parameters
    ----------
    p : array of probabilities
        what `softmax` gave
    axis : as in `softmax`

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
    >>> print(softmax_jacobian([0.5, 0.5]))
    [[ 0.25 -0.25]
     [-0.25  0.25]]
    """
    return softmax_jacobian.dispatch(p, None, axis)


def softmax_omega(p: Any, axis: Any = -1) -> Any:
    """Ω(p) = Σ p log p, the negative of Shannon's entropy.

    Examples
    --------
    >>> print(softmax_omega([1.0, 0.0]))
    0.0
    """
    return 0 - shannon_entropy(p, axis)  # not −H: a corner's value is 0, not −0


def _loss(y: Any, target: Any) -> Any:
    return fenchel_young(SOFTMAX, y, target)


@losses.loss(_loss)
def softmax_loss(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """Cross-entropy: log Σ exp z − z_y for a label, KL(q‖softmax(z)) for a distribution.

    Equal to PyTorch's and scikit-learn's log loss for labels; for soft targets it is theirs minus
    the entropy of q, so that its minimum is 0.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    axis, workers, offsets : as in `softmax`
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
    >>> print(round(float(softmax_loss([2.0, 1.0], 0)), 6))
    0.313262
    """
    return softmax_loss.dispatch(
        z, y, None, axis, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers, offsets,
    )  # fmt: skip


def _loss_and_grad(y: Any, target: Any) -> tuple[Any, Any]:
    return fenchel_young_and_gradient(SOFTMAX, y, target)


@losses.loss_and_grad(_loss_and_grad)
def softmax_loss_and_grad(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]:  # fmt: skip
    """`softmax_loss` and its gradient in z, with one forward pass.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    axis, workers, offsets : as in `softmax`
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
    >>> loss, grad = softmax_loss_and_grad([0.0, 0.0], 0)
    >>> print(round(float(loss), 6), grad)
    0.693147 [-0.5  0.5]
    """
    return softmax_loss_and_grad.dispatch(
        z, y, None, axis, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers, offsets,
    )  # fmt: skip


def _log(y: Any) -> Any:
    return y - log_sum_exp(y)


@declare.log_probabilities(_log)
def log_softmax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """log p = z − log Σ exp z, of p = softmax(z): finite for every finite score.

    Parameters
    ----------
    z, axis, mask, out, workers, offsets : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape; −∞ where p is 0, as in a row that is all masked, and NaN where p is NaN

    Raises
    ------
    ValueError, TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(log_softmax([0.0, -1000.0, -np.inf]))
    [    0. -1000.   -inf]
    """
    return log_softmax.dispatch(z, None, axis, mask, out, workers, offsets)


def _conjugate(z: Any, p: Any) -> Any:
    # log Σ exp z: p·z + H(p) would cancel where p is nearly certain.
    return log_sum_exp(z)[..., 0]


SOFTMAX = Mapping(
    name="softmax",
    forward=softmax,
    support=softmax_support,
    jvp=softmax_jvp,
    vjp=softmax_vjp,
    jacobian=softmax_jacobian,
    omega=softmax_omega,
    sparse=False,
    omega_at_vertices=0.0,
    support_alpha=1.0,
    conjugate=_conjugate,
    log=log_softmax,
    loss=softmax_loss,
    loss_and_grad=softmax_loss_and_grad,
    textbook=textbook,
    textbook_jacobian=textbook_jacobian,
    textbook_loss=textbook_loss,
)
