"""One against all: a binary decision for every class, by α-entmax of the pair (z, 0).

Problem: argmax over 0 ≤ p ≤ 1 of p z + H_α([p, 1 − p]), H_α Tsallis' entropy, is the first entry of
α-entmax([z, 0]): the logistic sigmoid at α = 1; clip((1 + z)/2, 0, 1) at 2; at 1.5, √p is
(√(2 − t²) + t)/2 with t = z/2. Where 0 < p < 1, (p^{α−1} − (1 − p)^{α−1})/(α − 1) = z. Its
Fenchel-Young loss is that of the pair, for the target [y, 1 − y] (Blondel, Martins & Niculae 2020).

Scores and targets go as pairs through `pyentmax.entmax`, whose derivatives have all of theirs:
``entmax.jvp`` of a pair, say. There are no kernels: a call takes several times that of `entmax` on
as many scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.calls.dtypes import as_floating, largest
from pyentmax.engine.calls.options import Options, checked_options
from pyentmax.engine.calls.rows import arrange_scores, broadcasts, to_rows
from pyentmax.engine.calls.types import Array, ArrayLike, Axis, Reduction
from pyentmax.reference.losses.function import weighted
from pyentmax.reference.losses.targets import prepare_entries
from pyentmax.reference.mappings.entmax import entmax

__all__ = ["entmax_sigmoid", "one_vs_all_loss", "one_vs_all_loss_and_grad"]


def entmax_sigmoid(z: ArrayLike, alpha: ArrayLike = 1.5) -> Array:
    """α-sigmoid of each score: p of the problem max p z + H_α([p, 1 − p]), α-entmax([z, 0])₁.

    The logistic sigmoid at α = 1; entmoid (Popov et al. 2019) at α = 1.5. Above 1, p is exactly 0
    below z = −1/(α−1), exactly 1 above 1/(α−1), and at α = ∞ a step, ½ at 0.

    Parameters
    ----------
    z : array of scores, of any shape
        −∞ gives 0 and ∞ gives 1
    alpha : float or array that broadcasts to z
        above 0; only above 1 can p be 0 or 1

    Returns
    -------
    array of z's shape and dtype; integers become float64

    Raises
    ------
    ValueError
        if some alpha is not above 0, or shapes do not fit
    TypeError
        if z is not of real numbers

    Examples
    --------
    >>> print(entmax_sigmoid([-3.0, -1.0, 0.0, 0.5, 2.0]).round(6))
    [0.       0.169281 0.5      0.673993 1.      ]
    >>> print(entmax_sigmoid([-1.0, 0.5, 1.0], 2))
    [0.   0.75 1.  ]
    """
    z, dtype = as_floating(z, "z")
    return entmax(_pairs(z), alpha)[..., 0].astype(dtype, copy=False)


def one_vs_all_loss(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """Sum over the classes of the loss of `entmax_sigmoid`: a binary decision for every class.

    For one label per row, or for any number of labels per row (multi-label targets). Binary
    cross-entropy at α = 1; above, exactly 0 from a margin of 1/(α−1) on.

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
    options = checked_options(reduction, weight, mask, ignore_index, label_smoothing)
    return _loss_and_grad(z, y, alpha, axis, options)[0]


def one_vs_all_loss_and_grad(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
) -> tuple[Any, Array]:  # fmt: skip
    """`one_vs_all_loss` and its gradient p − y in z, with one forward pass.

    Parameters
    ----------
    z, y, alpha, axis : as in `one_vs_all_loss`
    reduction, weight, mask, ignore_index, label_smoothing : as in `one_vs_all_loss`

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
    options = checked_options(reduction, weight, mask, ignore_index, label_smoothing)
    return _loss_and_grad(z, y, alpha, axis, options)


def _loss_and_grad(z: Any, y: Any, alpha: Any, axis: Any, options: Options) -> tuple[Any, Any]:
    rows = arrange_scores(z, axis, options.mask)
    alpha = as_floating(alpha, "alpha")[0]
    if not broadcasts(alpha.shape, rows.shape):
        raise ValueError(
            f"alpha of shape {alpha.shape} does not broadcast to the entries, of shape {rows.shape}"
        )
    if alpha.ndim:
        alpha = to_rows(np.broadcast_to(alpha, rows.shape), rows.axes)
    q, live, weights = prepare_entries(y, rows, options)
    pairs = _pairs(np.where(live, rows.array, 0))
    if isinstance(q, np.ndarray) and ((q == 0) | (q == 1)).all():  # of labels no digit is lost
        target = (q == 0).astype(np.int64)
    else:
        target = np.stack([q, 1 - q], axis=-1)
    losses, gradient = entmax.loss_and_grad(pairs, target, alpha, reduction="none")
    losses = np.sum(np.where(live, losses, 0), axis=-1)
    loss, gradient = weighted(losses, gradient[..., 0], live, weights, rows, options)
    return loss, gradient


def _pairs(z: Any) -> Any:
    """[z, 0] of finite scores, as −∞ would be no score, and ∞ has no probabilities."""
    z = np.clip(z, -largest(z.dtype), largest(z.dtype))
    return np.stack([z, np.zeros_like(z)], axis=-1)
