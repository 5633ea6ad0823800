"""What the kernels of pyentmax take, made from NumPy arrays: the structs of ``rows.cuh``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import pyentmax

SOURCES = Path(str(pyentmax.__file__)).parent / "engine" / "backends" / "cuda"

OPERAND = np.dtype(
    [("at", "u8"), ("outer", "i8"), ("middle", "i8"), ("last", "i8"), ("inner", "i8")]
)
PARAMETER = np.dtype(
    [("at", "u8"), ("outer", "i8"), ("middle", "i8"), ("last", "i8"), ("value", "f8")]
)
BATCH = np.dtype([("rows", "u4"), ("n", "u4"), ("middle", "u4"), ("last", "u4")])
STORAGE = np.dtype([("room", "u4"), ("words", "u4")])


class Arguments:
    """Structs over the arrays of one launch, whose rows lie along the last axis.

    Attributes
    ----------
    arrays : list of array
        all that the structs point to
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        assert len(shape) <= 4
        self._shape = shape
        self.arrays: list[np.ndarray] = []

    def operand(self, array: np.ndarray | None) -> Any:
        """A struct Operand: an array that broadcasts to the shape, or none."""
        if array is None:
            return np.zeros((), OPERAND)[()]
        self.arrays.append(array)
        steps = self._steps(np.broadcast_to(array, self._shape), 4)
        return np.array((array.ctypes.data, *steps), OPERAND)[()]

    def parameter(self, value: Any = 0.0) -> Any:
        """A struct Parameter: float64 numbers that broadcast to the batch, or one for all rows."""
        if np.ndim(value) == 0:
            return np.array((0, 0, 0, 0, value), PARAMETER)[()]
        self.arrays.append(value)
        steps = self._steps(np.broadcast_to(value, self._shape[:-1]), 3)
        return np.array((value.ctypes.data, *steps, 0), PARAMETER)[()]

    def batch(self) -> Any:
        """The struct Batch."""
        *outer, n = self._shape
        outer, middle, last = ([1] * 3 + outer)[-3:]
        return np.array((outer * middle * last, n, middle, last), BATCH)[()]

    @staticmethod
    def storage(room: int, words: int) -> Any:
        """The struct Storage of the streaming kernels."""
        return np.array((room, words), STORAGE)[()]

    @staticmethod
    def _steps(array: np.ndarray, axes: int) -> list[int]:
        steps = [stride // array.itemsize for stride in array.strides]
        return [0] * (axes - array.ndim) + steps
