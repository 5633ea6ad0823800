"""sparsemax: the Euclidean projection onto the simplex, α = 2.

Problem: argmin over the simplex of ½‖p − z‖², equally argmax of p·z + H(p), H Gini's entropy.
The optimality conditions are p_i = z_i − τ where that is positive, else 0, with τ such that p sums
to 1. So a score at or below τ gets exactly 0. Moving z moves p one to one on the
support, less the mean: s = 1 on the support, 0 off it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends import declare
from pyentmax.engine.calls.record import Mapping
from pyentmax.engine.calls.types import Array, ArrayLike, Axis, Reduction
from pyentmax.reference.entropies import gini_entropy
from pyentmax.reference.log_probabilities import logarithms
from pyentmax.reference.losses import declare as losses
from pyentmax.reference.losses.definition import fenchel_young, fenchel_young_and_gradient
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.thresholds.newton import remainder
from pyentmax.reference.thresholds.proof import doubtful
from pyentmax.reference.thresholds.sorting import sort_sparsemax

__all__ = [
    "SPARSEMAX",
    "log_sparsemax",
    "sparsemax",
    "sparsemax_jacobian",
    "sparsemax_jvp",
    "sparsemax_loss",
    "sparsemax_loss_and_grad",
    "sparsemax_support",
    "sparsemax_vjp",
]


def textbook(z: Any) -> np.ndarray:
    """argmin_{p ∈ Δ} ‖p − z‖² (Peters et al. 2019, Eq. 5), for one vector.

    p = [z − τ]₊ with τ(ρ) = (Σ_{j≤ρ} z₍ⱼ₎ − 1)/ρ of the largest ρ with z₍ρ₎ > τ(ρ), for scores
    z₍₁₎ ≥ z₍₂₎ ≥ … (Martins & Astudillo 2016, Alg. 1).

    >>> textbook([1.0, 0.5, -2.0])
    array([0.75, 0.25, 0.  ])
    """
    z = np.asarray(z, float)
    falling = np.sort(z)[::-1]
    rho = np.arange(1, len(z) + 1)
    tau = (np.cumsum(falling) - 1) / rho
    best = np.sum(falling > tau)
    return np.maximum(z - tau[best - 1], 0)


def textbook_jacobian(p: Any) -> np.ndarray:
    """J = diag(s) − s sᵀ/|S| at p = sparsemax(z), s = 1 on the support S, 0 off it.

    >>> textbook_jacobian([0.75, 0.25])
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    s = np.sign(p)
    return np.diag(s) - np.outer(s, s) / s.sum()


def textbook_loss(z: Any, y: int) -> float:
    """L = ½ (‖e_y − z‖² − ‖p − z‖²), p = sparsemax(z) (Peters et al. 2019, Eq. 6).

    >>> float(textbook_loss([0.0, 0.0], 0))
    0.25
    """
    p, q = textbook(z), np.eye(len(np.asarray(z)))[y]
    return (np.sum((q - z) ** 2) - np.sum((p - z) ** 2)) / 2


# What follows is right for every input: running sums over thousands of scores lose digits, which
# Newton's steps inside `sort_sparsemax` and `_simplex.normalized` recover; the loss as a
# difference of squares would cancel for large scores, and Ω*(z) + Ω(q) − q·z does not.


def _forward(y: Any) -> Any:
    p = np.maximum(above_threshold(y), 0)
    return _simplex.normalized(p, _curvature(p))


@declare.mapping(_forward)
def sparsemax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Sparse probabilities: the point of the simplex nearest to z (Martins & Astudillo 2016).

    p = [z − τ]₊, τ by a sort (`pyentmax.reference.thresholds.sort_sparsemax`). O(d log d).

    Parameters
    ----------
    z, axis, mask, out, workers, offsets : as in `pyentmax.softmax`

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
    return sparsemax.dispatch(z, None, axis, mask, out, workers, offsets)


def _support(y: Any) -> Any:
    return above_threshold(y) > 0


@declare.support(_support)
def sparsemax_support(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Where sparsemax gives probability: z > τ.

    Parameters
    ----------
    z, axis, mask, offsets : as in `sparsemax`

    Returns
    -------
    bool array of z's shape

    Examples
    --------
    >>> print(sparsemax_support([1.0, 0.5, -2.0]))
    [ True  True False]
    """
    return sparsemax_support.dispatch(z, None, axis, mask, offsets)


def _product(p: Any, v: Any) -> Any:
    return _simplex.product(_curvature(p), v)


@declare.product(_product)
def sparsemax_jvp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """J v at the output p = sparsemax(z): v less its mean on the support, 0 off it.

    Parameters
    ----------
    p, v : arrays of one shape
        p is what `sparsemax` gave, v a direction
    axis, mask, workers, offsets : as in `sparsemax`

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
    >>> print(sparsemax_jvp([0.75, 0.25, 0.0], [-1.0, 0.0, 9.0]))
    [-0.5  0.5  0. ]
    """
    return sparsemax_jvp.dispatch(p, v, None, axis, mask, workers, offsets)


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
sparsemax_vjp = sparsemax_jvp


def _jacobian(p: Any) -> Any:
    return _simplex.dense(_curvature(p))


@declare.jacobian(_jacobian)
def sparsemax_jacobian(p: ArrayLike, axis: Axis = -1) -> Array:
    """J = diag(s) − s sᵀ/Σs at p = sparsemax(z), s = 1 on the support; of shape batch + (d, d).

    Parameters
    ----------
    p : array of probabilities
        what `sparsemax` gave
    axis : as in `sparsemax`

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
    >>> print(sparsemax_jacobian([0.75, 0.25, 0.0]))
    [[ 0.5 -0.5  0. ]
     [-0.5  0.5  0. ]
     [ 0.   0.   0. ]]
    """
    return sparsemax_jacobian.dispatch(p, None, axis)


def sparsemax_omega(p: Any, axis: Any = -1) -> Any:
    """Ω(p) = −½ Σ p (1 − p), the negative of Gini's entropy.

    Examples
    --------
    >>> print(sparsemax_omega([0.5, 0.5]))
    -0.25
    """
    return 0 - gini_entropy(p, axis)


def _loss(y: Any, target: Any) -> Any:
    return fenchel_young(SPARSEMAX, y, target)


@losses.loss(_loss)
def sparsemax_loss(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """The sparsemax loss (Martins & Astudillo 2016), 0 from a margin of 1 on.

    For a label, p·z − z_y + ½ Σ p (1 − p) at p = sparsemax(z): a smooth hinge, exactly 0 where z_y
    exceeds every other score by 1.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    axis, workers, offsets : as in `sparsemax`
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
    >>> print(sparsemax_loss([2.0, 1.0], 0), sparsemax_loss([0.0, 0.0], 0))
    0.0 0.25
    """
    return sparsemax_loss.dispatch(
        z, y, None, axis, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers, offsets,
    )  # fmt: skip


def _loss_and_grad(y: Any, target: Any) -> tuple[Any, Any]:
    return fenchel_young_and_gradient(SPARSEMAX, y, target)


@losses.loss_and_grad(_loss_and_grad)
def sparsemax_loss_and_grad(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]:  # fmt: skip
    """`sparsemax_loss` and its gradient in z, with one forward pass.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    axis, workers, offsets : as in `sparsemax`
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
    >>> loss, grad = sparsemax_loss_and_grad([0.0, 0.0], 0)
    >>> print(loss, grad)
    0.25 [-0.5  0.5]
    """
    return sparsemax_loss_and_grad.dispatch(
        z, y, None, axis, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers, offsets,
    )  # fmt: skip


def _log(y: Any) -> Any:
    return logarithms(sparsemax.body(y))


@declare.log_probabilities(_log)
def log_sparsemax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """log p of p = sparsemax(z), −∞ off its support.

    Parameters
    ----------
    z, axis, mask, out, workers, offsets : as in `log_softmax`

    Returns
    -------
    as in `log_softmax`

    Raises
    ------
    ValueError, TypeError
        as in `log_softmax`

    Examples
    --------
    >>> print(log_sparsemax([0.5, 0.5, -1.0]).round(6))
    [-0.693147 -0.693147      -inf]
    """
    return log_sparsemax.dispatch(z, None, axis, mask, out, workers, offsets)


def above_threshold(z: Any) -> Any:
    """z − τ, including the digits that do not fit into τ."""
    u = z - sort_sparsemax(z).tau
    return u - remainder(u, np.ones_like(u[..., :1]))


def _curvature(p: Any) -> Any:
    # 1 on the support, written so that a NaN stays a NaN.
    return np.where(p > 0, 1, p)


def _doubtful(z: Any, on: Any) -> Any:
    return doubtful(z, on, power=1)


SPARSEMAX = Mapping(
    name="sparsemax",
    forward=sparsemax,
    support=sparsemax_support,
    jvp=sparsemax_jvp,
    vjp=sparsemax_vjp,
    jacobian=sparsemax_jacobian,
    omega=sparsemax_omega,
    omega_at_vertices=0.0,
    support_alpha=2.0,
    log=log_sparsemax,
    doubtful=_doubtful,
    loss=sparsemax_loss,
    loss_and_grad=sparsemax_loss_and_grad,
    textbook=textbook,
    textbook_jacobian=textbook_jacobian,
    textbook_loss=textbook_loss,
)
