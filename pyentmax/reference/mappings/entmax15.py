"""1.5-entmax: half way between softmax and sparsemax, with an exact solution of its own.

Problem: argmax over the simplex of p·z + H(p), H Tsallis' entropy of order 1.5, that is
H(p) = (4/3) Σ (p − p^{3/2}). The optimality conditions are p_i = [z_i/2 − τ]₊²: sparse as
sparsemax, but p leaves zero smoothly. Given the support, τ solves a quadratic. The Jacobian has
s = √p.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends import declare
from pyentmax.engine.calls.record import Mapping
from pyentmax.engine.calls.types import Array, ArrayLike, Axis, Reduction
from pyentmax.reference.entropies import tsallis_entropy
from pyentmax.reference.log_probabilities import logarithms
from pyentmax.reference.losses import declare as losses
from pyentmax.reference.losses.definition import fenchel_young, fenchel_young_and_gradient
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.thresholds.proof import doubtful
from pyentmax.reference.thresholds.sorting import sort_entmax15

__all__ = [
    "ENTMAX15",
    "entmax15",
    "entmax15_jacobian",
    "entmax15_jvp",
    "entmax15_loss",
    "entmax15_loss_and_grad",
    "entmax15_support",
    "entmax15_vjp",
    "log_entmax15",
]


def textbook(z: Any) -> np.ndarray:
    """p = [z/2 − τ]₊² by a sort and a quadratic (Peters et al. 2019, Alg. 2), for one vector.

    For x = z/2 with x₍₁₎ ≥ x₍₂₎ ≥ …, M(ρ) the mean of the ρ largest and V(ρ) = Σ_{j≤ρ} (x₍ⱼ₎ − M)²,
    τ(ρ) = M − sqrt((1 − V)/ρ); of these the one with x₍ρ+1₎ ≤ τ(ρ) ≤ x₍ρ₎.

    >>> textbook([2.0, 1.6, -1.0]).round(6)
    array([0.64, 0.36, 0.  ])
    """
    x = np.asarray(z, float) / 2
    falling = np.sort(x)[::-1]
    rho = np.arange(1, len(x) + 1)
    mean = np.cumsum(falling) / rho
    v = np.cumsum(falling**2) - rho * mean**2
    tau = mean - np.sqrt(np.maximum(1 - v, 0) / rho)  # beyond V = 1 none is asked for
    best = np.sum(tau <= falling)
    return np.maximum(x - tau[best - 1], 0) ** 2


def textbook_jacobian(p: Any) -> np.ndarray:
    """J = diag(s) − s sᵀ/Σs, s = √p, at p = entmax15(z) (Peters et al. 2019, Prop. 1).

    >>> textbook_jacobian([0.25, 0.25, 0.25, 0.25])[0]
    array([ 0.375, -0.125, -0.125, -0.125])
    """
    s = np.sqrt(p)
    return np.diag(s) - np.outer(s, s) / s.sum()


def textbook_loss(z: Any, y: int) -> float:
    """L = (p − e_y)·z + H(p), H(p) = (4/3) Σ (p − p^{3/2}) (Peters et al. 2019, Eq. 9 and 11).

    >>> round(float(textbook_loss([0.0, 0.0], 0)), 6)
    0.390524
    """
    p, z = textbook(z), np.asarray(z, float)
    return p @ z - z[y] + 4 / 3 * np.sum(p - p**1.5)


# What follows is right for every input: V(ρ) cancels for scores far from 0, so the largest is
# shifted to 0, sums run in double, and Newton's steps inside `sort_entmax15` correct the last
# digits.


def _forward(y: Any) -> Any:
    x = y / 2
    u = np.maximum(x - sort_entmax15(x).tau, 0)
    return _simplex.normalized(u * u, u)


@declare.mapping(_forward)
def entmax15(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Sparse probabilities p = [z/2 − τ]₊²: α-entmax at α = 1.5 (Peters et al. 2019, Alg. 2).

    Maximises p·z + H(p) over the simplex, H Tsallis' 1.5-entropy; τ by a sort
    (`pyentmax.reference.thresholds.sort_entmax15`). O(d log d).

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
    >>> print(entmax15([2.0, 1.6, -1.0]).round(6))
    [0.64 0.36 0.  ]
    """
    return entmax15.dispatch(z, None, axis, mask, out, workers, offsets)


def _support(y: Any) -> Any:
    x = y / 2
    return x > sort_entmax15(x).tau


@declare.support(_support)
def entmax15_support(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Where 1.5-entmax gives probability: z/2 > τ.

    Parameters
    ----------
    z, axis, mask, offsets : as in `entmax15`

    Returns
    -------
    bool array of z's shape

    Examples
    --------
    >>> print(entmax15_support([2.0, 1.6, -1.0]))
    [ True  True False]
    """
    return entmax15_support.dispatch(z, None, axis, mask, offsets)


def _product(p: Any, v: Any) -> Any:
    return _simplex.product(np.sqrt(p), v)


@declare.product(_product)
def entmax15_jvp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """J v = s ∘ (v − (s·v)/Σs), s = √p, at the output p = entmax15(z) (Peters et al., Prop. 1).

    Parameters
    ----------
    p, v : arrays of one shape
        p is what `entmax15` gave, v a direction
    axis, mask, workers, offsets : as in `entmax15`

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
    >>> print(entmax15_jvp([0.25, 0.25, 0.25, 0.25, 0.0], [-1.0, 0.0, 0.0, 0.0, 9.0]))
    [-0.375  0.125  0.125  0.125  0.   ]
    """
    return entmax15_jvp.dispatch(p, v, None, axis, mask, workers, offsets)


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
entmax15_vjp = entmax15_jvp


def _jacobian(p: Any) -> Any:
    return _simplex.dense(np.sqrt(p))


@declare.jacobian(_jacobian)
def entmax15_jacobian(p: ArrayLike, axis: Axis = -1) -> Array:
    """J = diag(s) − s sᵀ/Σs at p = entmax15(z), s = √p; of shape batch + (d, d).

    Parameters
    ----------
    p : array of probabilities
        what `entmax15` gave
    axis : as in `entmax15`

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
    >>> print(entmax15_jacobian([0.25, 0.25, 0.25, 0.25])[0])
    [ 0.375 -0.125 -0.125 -0.125]
    """
    return entmax15_jacobian.dispatch(p, None, axis)


def entmax15_omega(p: Any, axis: Any = -1) -> Any:
    """Ω(p) = (4/3) Σ (p^{3/2} − p), the negative of Tsallis' 1.5-entropy.

    Examples
    --------
    >>> print(round(float(entmax15_omega([0.25, 0.25, 0.25, 0.25])), 6))
    -0.666667
    """
    return 0 - tsallis_entropy(p, 1.5, axis)


def _loss(y: Any, target: Any) -> Any:
    return fenchel_young(ENTMAX15, y, target)


@losses.loss(_loss)
def entmax15_loss(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """The 1.5-entmax loss (Peters et al. 2019, §3.2), 0 from a margin of 2 on.

    For a label, p·z − z_y + H(p) at p = entmax15(z), H Tsallis' 1.5-entropy.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    axis, workers, offsets : as in `entmax15`
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
    >>> print(entmax15_loss([2.0, 0.0], 0))
    0.0
    """
    return entmax15_loss.dispatch(
        z, y, None, axis, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers, offsets,
    )  # fmt: skip


def _loss_and_grad(y: Any, target: Any) -> tuple[Any, Any]:
    return fenchel_young_and_gradient(ENTMAX15, y, target)


@losses.loss_and_grad(_loss_and_grad)
def entmax15_loss_and_grad(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]:  # fmt: skip
    """`entmax15_loss` and its gradient in z, with one forward pass.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    axis, workers, offsets : as in `entmax15`
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
    >>> loss, grad = entmax15_loss_and_grad([0.0, 0.0], 0)
    >>> print(round(float(loss), 6), grad)
    0.390524 [-0.5  0.5]
    """
    return entmax15_loss_and_grad.dispatch(
        z, y, None, axis, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers, offsets,
    )  # fmt: skip


def _log(y: Any) -> Any:
    return logarithms(entmax15.body(y))


@declare.log_probabilities(_log)
def log_entmax15(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """log p of p = entmax15(z), −∞ off its support.

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
    >>> print(log_entmax15([2.0, 1.6, -1.0]).round(6))
    [-0.446287 -1.021651      -inf]
    """
    return log_entmax15.dispatch(z, None, axis, mask, out, workers, offsets)


def _doubtful(z: Any, on: Any) -> Any:
    return doubtful(z, on, power=2, beta=0.5)


ENTMAX15 = Mapping(
    name="entmax15",
    forward=entmax15,
    support=entmax15_support,
    jvp=entmax15_jvp,
    vjp=entmax15_vjp,
    jacobian=entmax15_jacobian,
    omega=entmax15_omega,
    omega_at_vertices=0.0,
    support_alpha=1.5,
    log=log_entmax15,
    doubtful=_doubtful,
    loss=entmax15_loss,
    loss_and_grad=entmax15_loss_and_grad,
    textbook=textbook,
    textbook_jacobian=textbook_jacobian,
    textbook_loss=textbook_loss,
)
