"""Options of all losses, stated once."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

REDUCTIONS = ("mean", "sum", "none")


class Options(NamedTuple):
    """Options of a loss, made by `checked_options`; `pyentmax.fenchel_young_loss` explains them."""

    reduction: str = "mean"
    weight: Any = None
    mask: Any = None
    ignore_index: int | None = None
    label_smoothing: float = 0.0


USUAL = Options()


def checked_options(*values: Any, **named: Any) -> Options:
    """`Options` of these values; a ValueError or TypeError for one that no loss accepts."""
    options = Options(*values, **named)
    reduction, _, _, ignore_index, label_smoothing = options
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
