"""What all losses can be asked for, stated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

REDUCTIONS = ("mean", "sum", "none")


@dataclass(frozen=True)
class Options:
    """What all losses can be asked for."""

    reduction: str
    weight: Any
    mask: Any
    ignore_index: int | None
    smoothing: float

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise ValueError(
                f"reduction must be one of {', '.join(REDUCTIONS)}, got {self.reduction!r}"
            )
        if not isinstance(self.smoothing, (int, float, np.integer, np.floating)):
            raise TypeError(
                f"label_smoothing must be a number in [0, 1], got {type(self.smoothing).__name__}"
            )
        if not 0 <= self.smoothing <= 1:
            raise ValueError(f"label_smoothing must be in [0, 1], got {self.smoothing}")
