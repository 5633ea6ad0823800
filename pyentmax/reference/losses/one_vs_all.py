"""One-vs-all losses: a binary decision for every class, so that several classes may apply.

    L(z, y) = Ω*(z) + Ω(y) − y z,    Ω(p) = −H_α([p, 1 − p]),

the Fenchel-Young loss of `pyentmax.entmax_sigmoid` for a score and a target from 0 to 1 (Blondel,
Martins & Niculae 2020), by itself or summed over the classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.calls.parameters import PerEntry
from pyentmax.engine.calls.types import Array, ArrayLike, Axis, Reduction
from pyentmax.reference.losses.declare import loss_of_entries
from pyentmax.reference.thresholds.binary import finite_beta, smaller

__all__ = [
    "entmax_sigmoid_loss",
    "entmax_sigmoid_loss_and_grad",
    "one_vs_all_loss",
    "one_vs_all_loss_and_grad",
]

ALPHA = PerEntry("alpha", least=0, strict=True)
KERNEL = "entmax_sigmoid_loss_and_grad"


def _loss_and_slope(z: Any, y: Any, beta: Any) -> tuple[Any, Any]:
    """Ω*(z) + Ω(y) − y z and p − y of each entry.

    L(z, y) = L(−z, 1 − y), so let z ≥ 0. At y = 1 the loss is Ω*(−a), without cancellation
    (`_conjugate`); y < 1 adds (1 − y) a − H_α([y, 1 − y]).
    """
    a, positive = np.abs(z), z > 0
    q = smaller(a, beta)
    away = np.where(positive, 1 - y, y)
    with np.errstate(over="ignore"):
        loss = _conjugate(q, beta) + np.where(away == 0, 0, away * np.where(away == 0, 0, a))
    loss = np.maximum(loss - _entropy(y, beta), 0)  # below 0 is rounding
    return loss, np.where(positive, (1 - y) - q, q - y)


def _conjugate(q: Any, beta: Any) -> Any:
    """Ω* of −a, which is H_α − a q at its q, as a sum of positive terms:

        q^α/α + ∫₀^q s (1 − s)^{β−1} ds,

    the integral being (1 − (1 − q)^β (1 + βq))/(αβ), or for small q its series. At β = 0 the sum is
    −log(1 − q), at β = 1 it is q². For β < 0, where α may be near 0, the integral is taken as
    (1 − (1 − q)^β)/β − (1 − (1 − q)^α)/α.
    """
    finite = finite_beta(np.where(np.isinf(beta), 1, beta))
    shannon = finite == 0
    few = (1 + np.maximum(finite, 0)) * q < 0.05
    small, series = np.where(few, q, 0), np.zeros_like(q + finite)
    for k in range(13, -1, -1):  # of (1 − s)^{β−1}: 1 + (1 − β) s (1 + (2 − β)/2 s (1 + …))
        series = 1 / (k + 2) + (k + 1 - finite) / (k + 1) * small * series
    divisor = np.where(shannon, 1, finite)
    log = np.log1p(-q)
    growth = np.where(shannon, q, np.log1p(finite * q) / divisor) + log
    with np.errstate(over="ignore", under="ignore"):
        whole = np.where(shannon, -growth, -np.expm1(finite * growth) / divisor) / (1 + finite)
        below = np.expm1((1 + finite) * log) / (1 + finite) - np.expm1(finite * log) / divisor
        whole = np.where(finite < 0, below, whole)
        power = q ** (1 + finite) / (1 + finite)
    return np.where(np.isinf(beta), q * 0, power + np.where(few, small * small * series, whole))


def _entropy(y: Any, beta: Any) -> Any:
    """H_α([y, 1 − y]), exactly 0 at 0 and 1."""
    if isinstance(y, np.ndarray) and bool(np.all((y == 0) | (y == 1))):
        return np.zeros_like(y)
    finite = finite_beta(np.where(np.isinf(beta), 1, beta))
    divisor = np.where(finite == 0, 1, finite)
    total = np.zeros_like(y)
    for part in (y, 1 - y):
        log = np.log(np.where(part == 0, 1, part))
        with np.errstate(over="ignore", under="ignore"):
            power = np.where(finite == 0, log, np.expm1(finite * log) / divisor)
        total = total - part * power / (1 + finite)
    return np.where(np.isinf(beta), 0, total)


@loss_of_entries(_loss_and_slope, ALPHA, kernel=KERNEL, gradient=False, each_a_row=True)
def entmax_sigmoid_loss(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
) -> Any:  # fmt: skip
    """The Fenchel-Young loss of `entmax_sigmoid`, for a score and a binary target.

        L(z, y) = Ω*(z) + Ω(y) − y z,    Ω(p) = −H_α([p, 1 − p])

    Binary cross-entropy at α = 1, log(1 + e^{−z}) for y = 1. Above, it is exactly 0 from a margin
    of 1/(α−1) on, z ≥ 1/(α−1) for y = 1 and z ≤ −1/(α−1) for y = 0.

    Parameters
    ----------
    z : array of scores, of any shape
    y : array of z's shape
        of 0 and 1, bools, or probabilities between
    alpha : float or array that broadcasts to z
    reduction : {"mean", "sum", "none"}
        the mean divides by the weights that count
    weight : array that broadcasts to z, optional
    mask : bool array that broadcasts to z, optional
        entries where it is False are ignored
    ignore_index : int, optional
        entries with this target are ignored
    label_smoothing : float
        y is moved towards ½ by this fraction
    class_weight : None
        for labels alone, which this loss does not take: pass ``weight=``
    workers : as in `entmax_sigmoid`

    Returns
    -------
    float, or array of z's shape for "none"

    Raises
    ------
    ValueError
        if some y is outside [0, 1], some alpha not above 0, a weight negative, or shapes do not fit
    TypeError
        if z is not of real numbers

    Examples
    --------
    >>> print(entmax_sigmoid_loss([3.0, 0.0, -1.0], [1, 1, 0], reduction="none").round(6))
    [0.       0.390524 0.061656]
    """
    return entmax_sigmoid_loss.dispatch(
        z, y, alpha, None, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers,
    )  # fmt: skip


@loss_of_entries(_loss_and_slope, ALPHA, kernel=KERNEL, gradient=True, each_a_row=True)
def entmax_sigmoid_loss_and_grad(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
) -> tuple[Any, Array]:  # fmt: skip
    """`entmax_sigmoid_loss` and its gradient p − y in z, with one forward pass.

    Parameters
    ----------
    z, y, alpha : as in `entmax_sigmoid_loss`
    reduction, weight, mask, ignore_index, label_smoothing, class_weight, workers : as in
        `entmax_sigmoid_loss`

    Returns
    -------
    loss, gradient
        as `entmax_sigmoid_loss` returns it, and of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `entmax_sigmoid_loss`

    Examples
    --------
    >>> loss, grad = entmax_sigmoid_loss_and_grad([0.0, 2.0], [1, 1], 2)
    >>> print(loss, grad)
    0.125 [-0.25  0.  ]
    """
    return entmax_sigmoid_loss_and_grad.dispatch(
        z, y, alpha, None, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers,
    )  # fmt: skip


@loss_of_entries(_loss_and_slope, ALPHA, kernel=KERNEL, gradient=False, each_a_row=False)
def one_vs_all_loss(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None,
    mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """Σ over the classes of `entmax_sigmoid_loss`: a binary decision for every class.

    For one label per row, or for any number of labels per row (multi-label targets).

    Parameters
    ----------
    z : array of scores
    y : array
        integer labels of z's shape without the axis; or of z's shape, 0 and 1, bools or
        probabilities, which need not sum to 1
    alpha : float or array that broadcasts to z
        with shape (d,), one for each class, if the axis is the last
    axis : int, tuple of int or None
        of the classes
    reduction : {"mean", "sum", "none"}
        over the rows: a row's loss is the sum over its classes
    weight : array that broadcasts against the rows, optional
        the mean divides by the weights that count
    mask : bool array that broadcasts to z, optional
        classes where it is False are ignored, and so is a row without any class
    ignore_index : int, optional
        rows with this label are ignored; if y has z's shape, entries with this target
    label_smoothing : float
        each class's target is moved towards ½ by this fraction
    class_weight : array of shape (d,), optional
        a row of an integer label counts by the weight of that class
    workers : as in `entmax_sigmoid`
    offsets : as in `softmax`, optional
        rows of different lengths, each with its classes; not with `class_weight`

    Returns
    -------
    float, or array of the rows' shape for "none"

    Raises
    ------
    ValueError
        if a label is not a class, a target outside [0, 1], some alpha not above 0, a weight
        negative, or shapes do not fit
    TypeError
        if z is not of real numbers

    Examples
    --------
    >>> scores = np.array([[2.5, -2.0, -3.0], [0.0, 0.0, -2.0]])
    >>> print(one_vs_all_loss(scores, [0, 1], reduction="none").round(6))
    [0.       0.781049]
    >>> print(one_vs_all_loss(scores, [[1, 0, 0], [1, 1, 0]], 2, reduction="none"))
    [0.  0.5]
    """
    return one_vs_all_loss.dispatch(
        z, y, alpha, axis, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers, offsets,
    )  # fmt: skip


@loss_of_entries(_loss_and_slope, ALPHA, kernel=KERNEL, gradient=True, each_a_row=False)
def one_vs_all_loss_and_grad(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None,
    mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> tuple[Any, Array]:  # fmt: skip
    """`one_vs_all_loss` and its gradient p − y in z, with one forward pass.

    Parameters
    ----------
    z, y, alpha, axis : as in `one_vs_all_loss`
    reduction, weight, mask, ignore_index, label_smoothing, class_weight, workers, offsets : as in
        `one_vs_all_loss`

    Returns
    -------
    loss, gradient
        as `one_vs_all_loss` returns it, and of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `one_vs_all_loss`

    Examples
    --------
    >>> loss, grad = one_vs_all_loss_and_grad([[0.0, 0.0, -2.0]], [1], 2)
    >>> print(loss, grad)
    0.5 [[ 0.5 -0.5  0. ]]
    """
    return one_vs_all_loss_and_grad.dispatch(
        z, y, alpha, axis, reduction, weight, mask, ignore_index, label_smoothing,
        class_weight, workers, offsets,
    )  # fmt: skip
