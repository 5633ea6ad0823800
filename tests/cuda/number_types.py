"""The number types of the kernels; bfloat16, which NumPy lacks, as 16 bits without sign."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NumberType:
    """One type that kernels read and write.

    Attributes
    ----------
    cuda : str
        what the kernels call it
    stored : type
        the dtype of NumPy arrays of it
    computed : type
        the dtype that kernels compute in
    digits : int
        bits of its significand, the leading one included
    least_exponent : int
        of 2 in its smallest normal number
    """

    cuda: str
    stored: type
    computed: type
    digits: int
    least_exponent: int

    def __str__(self) -> str:
        return self.cuda

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """float64 numbers as this type stores them."""
        if self is not BFLOAT16:
            with np.errstate(over="ignore"):
                return x.astype(self.stored)
        bits = x.astype(np.float32).view(np.uint32)
        nearest = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
        return np.where(np.isnan(x), np.uint32(0x7FFF), nearest).astype(np.uint16)

    def exact(self, stored: np.ndarray) -> np.ndarray:
        """The float64 numbers that are stored."""
        if self is not BFLOAT16:
            return stored.astype(np.float64)
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """Numbers as they are once stored, in the dtype that kernels compute in."""
        return self.exact(self.rounded(x)).astype(self.computed)

    def ulp(self, x: np.ndarray) -> np.ndarray:
        """The distance of the type's numbers around each x."""
        exponent = np.frexp(x)[1] - 1
        return np.ldexp(1.0, np.maximum(exponent, self.least_exponent) - self.digits + 1)


FLOAT16 = NumberType("__half", np.float16, np.float32, 11, -14)
BFLOAT16 = NumberType("BFloat16", np.uint16, np.float32, 8, -126)
FLOAT32 = NumberType("float", np.float32, np.float32, 24, -126)
FLOAT64 = NumberType("double", np.float64, np.float64, 53, -1022)
TYPES = [FLOAT32, FLOAT64, FLOAT16, BFLOAT16]
