"""Types in the signatures of array functions."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

__all__ = ["Array", "ArrayLike", "Axis", "Reduction"]

Array = NDArray[Any]
Axis = int | tuple[int, ...] | None
Reduction = Literal["mean", "sum", "none"]
