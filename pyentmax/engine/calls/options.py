"""What all losses can be asked for, stated once."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, TypedDict

import numpy as np

REDUCTIONS = ("mean", "sum", "none")


class LossOptions(TypedDict, total=False):
    """The same for signatures: ``**options: Unpack[LossOptions]``.

    Parameters
    ----------
    reduction : "mean", "sum" or "none"
        the mean divides by the sum of the weights that count, and is 0 where none does
    weight : array that broadcasts against the labels' shape, optional
        the weight of each row; `class_weight` has those of classes
    mask : bool array that broadcasts to z, optional
        True where a score may get probability. The loss of a label on a masked entry is infinite;
        a distribution's values there are ignored. Rows that are all masked and rows of weight 0
        are ignored, and their targets may be anything
    ignore_index : int, optional
        rows with this label are ignored; for labels only
    label_smoothing : float in [0, 1]
        ε in q = (1 − ε) q + ε/d, d the number of unmasked entries
    class_weight : array of shape (d,), optional
        the weight of each class: a row counts by that of its label, before smoothing, or by the
        mean of all under its distribution, times its `weight`. With integer labels that are not
        smoothed this is the `weight` of PyTorch's ``cross_entropy``, which otherwise multiplies
        each term −q_c log p_c, and divides the mean over distributions by the number of rows
    """

    reduction: str
    weight: Any
    mask: Any
    ignore_index: int | None
    label_smoothing: float
    class_weight: Any


class Options(NamedTuple):
    """The same with their defaults; `checked_options` makes them."""

    reduction: str = "mean"
    weight: Any = None
    mask: Any = None
    ignore_index: int | None = None
    label_smoothing: float = 0.0
    class_weight: Any = None


def checked_options(*values: Any, **named: Any) -> Options:
    """`Options` of these values; a ValueError or TypeError for one that no loss accepts."""
    options = Options(*values, **named)
    reduction, _, _, ignore_index, label_smoothing, _ = options
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    if ignore_index is not None:
        try:
            operator.index(ignore_index)
        except TypeError:
            raise TypeError(
                f"ignore_index must be a whole number or None, got {ignore_index!r}"
            ) from None
    if label_smoothing != 0:
        if not isinstance(label_smoothing, int | float | np.integer | np.floating):
            raise TypeError(
                f"label_smoothing must be a number in [0, 1], got {type(label_smoothing).__name__}"
            )
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing}")
    return options
