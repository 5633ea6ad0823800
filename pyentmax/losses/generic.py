"""The Fenchel-Young loss of any mapping with an Ω: its named one, if it has that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyentmax.calls.options import Options
from pyentmax.losses import named
from pyentmax.losses._definition import loss_and_gradient, record_and_parameters
from pyentmax.mappings import MAPPINGS, Mapping

# The losses, and the losses with their gradients, that have names and perhaps kernels.
_LOSS: dict[str, Callable[..., Any]] = {
    "softmax": named.softmax_loss,
    "sparsemax": named.sparsemax_loss,
    "entmax15": named.entmax15_loss,
    "entmax": named.entmax_loss,
    "normmax": named.normmax_loss,
}
_LOSS_AND_GRAD: dict[str, Callable[..., Any]] = {
    "softmax": named.softmax_loss_and_grad,
    "sparsemax": named.sparsemax_loss_and_grad,
    "entmax15": named.entmax15_loss_and_grad,
    "entmax": named.entmax_loss_and_grad,
    "normmax": named.normmax_loss_and_grad,
}


def fenchel_young_loss(
    z: Any,
    y: Any,
    mapping: str | Mapping,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    **params: Any,
) -> Any:
    """The Fenchel-Young loss of any mapping with an Ω: Ω*(z) + Ω(q) − q·z.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    mapping : name of a row of `pyentmax.MAPPINGS`, or a `Mapping` of one's own
    axis : int, tuple of int or None
        which axes form a row
    reduction : "mean", "sum" or "none"
        the mean divides by the sum of the weights that count, and is 0 where none does
    weight : array that broadcasts against the labels' shape, optional
        what each row counts
    mask : bool array that broadcasts to z, optional
        True where a score may get probability. A label on a masked entry costs infinity; what a
        distribution holds there is not looked at. A row with nothing left costs and counts
        nothing, nor does one of weight 0, and their targets may be anything
    ignore_index : int, optional
        rows with this label cost and count nothing; for labels only
    label_smoothing : float in [0, 1]
        ε in q = (1 − ε) q + ε/d, d the number of unmasked entries
    **params
        the mapping's own parameters, such as ``alpha``

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError
        if y is neither labels nor distributions that fit z, or an option is out of its range
    TypeError
        if y is not of numbers or is a masked array, an option is of the wrong kind, or a parameter
        is missing or unknown

    Examples
    --------
    >>> print(fenchel_young_loss([[2.0, 1.0, 0.0]], [0], "sparsemax"))
    0.0
    >>> print(fenchel_young_loss([[2.0, 1.0, 0.0]], [1], "entmax", alpha=2))
    1.0
    """
    record, values = record_and_parameters(mapping, params)
    if record is MAPPINGS.get(record.name) and record.name in _LOSS:
        return _LOSS[record.name](
            z,
            y,
            *values,
            axis=axis,
            reduction=reduction,
            weight=weight,
            mask=mask,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = loss_and_gradient(z, y, record, values, axis, options)
    return loss


def fenchel_young_loss_and_grad(
    z: Any,
    y: Any,
    mapping: str | Mapping,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    **params: Any,
) -> tuple[Any, Any]:
    """`fenchel_young_loss` and its gradient in z, of z's shape, for one forward pass.

    For "none" the gradient is each row's own.

    Examples
    --------
    >>> loss, grad = fenchel_young_loss_and_grad([[2.0, 1.0, 0.0]], [1], "sparsemax")
    >>> print(loss, grad)
    1.0 [[ 1. -1.  0.]]
    """
    record, values = record_and_parameters(mapping, params)
    if record is MAPPINGS.get(record.name) and record.name in _LOSS_AND_GRAD:
        return _LOSS_AND_GRAD[record.name](
            z,
            y,
            *values,
            axis=axis,
            reduction=reduction,
            weight=weight,
            mask=mask,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, grad = loss_and_gradient(z, y, record, values, axis, options)
    return loss, grad()
