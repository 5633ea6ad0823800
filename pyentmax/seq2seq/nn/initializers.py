"""Initial values of parameters. Every function draws from the generator that it is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Generator = np.random.Generator
Parameters = dict[str, Any]
"""A model's parameters: a flat dict from dotted names to arrays, or to tensors on the tape."""


class Outline(Generator):
    """A generator for the shapes of parameters only.

    It returns zero-stride arrays of zeros, which allocate nothing, at most ``most`` zeros in all.

    Examples
    --------
    >>> glorot_uniform(Outline(6), 2, 3).shape
    (2, 3)
    >>> glorot_uniform(Outline(5), 2, 3)
    Traceback (most recent call last):
    ValueError: configuration: expected at most 5 parameters, got more
    """

    def __init__(self, most: int) -> None:
        super().__init__(np.random.PCG64(0))
        self._most, self._drawn = most, 0

    def standard_normal(self, shape: Any) -> np.ndarray:  # type: ignore[override]
        """Zeros of that shape."""
        self._drawn += math.prod(shape)
        if self._drawn > self._most:
            raise ValueError(f"configuration: expected at most {self._most} parameters, got more")
        return np.broadcast_to(0.0, shape)

    def uniform(self, low: Any, high: Any, shape: Any) -> np.ndarray:  # type: ignore[override]
        """Zeros of that shape."""
        return self.standard_normal(shape)


def uniform(
    rng: Generator, shape: tuple[int, ...], bound: float, dtype: Any = np.float32
) -> np.ndarray:
    """An array with entries uniform in ±bound.

    Examples
    --------
    >>> bool(abs(uniform(np.random.default_rng(0), (4, 3), 0.5)).max() <= 0.5)
    True
    """
    return rng.uniform(-bound, bound, shape).astype(dtype)


def glorot_uniform(
    rng: Generator, inputs: int, outputs: int, dtype: Any = np.float32
) -> np.ndarray:
    """A matrix (inputs, outputs) with entries uniform in ±sqrt(6/(inputs + outputs)).

    The variance 2/(inputs + outputs) keeps the size of signals about the same in the forward and
    in the backward pass (Glorot & Bengio 2010).

    Examples
    --------
    >>> glorot_uniform(np.random.default_rng(0), 2, 3).shape
    (2, 3)
    """
    return uniform(rng, (inputs, outputs), math.sqrt(6 / (inputs + outputs)), dtype)


def orthogonal(rng: Generator, n: int, dtype: Any = np.float32) -> np.ndarray:
    """A random orthogonal matrix (n, n): a product with it keeps lengths (Saxe et al. 2014).

    Examples
    --------
    >>> q = orthogonal(np.random.default_rng(0), 3, np.float64)
    >>> bool(np.allclose(q.T @ q, np.eye(3)))
    True
    """
    normal = rng.standard_normal((n, n))
    if isinstance(rng, Outline):  # where a factorisation would take minutes
        return normal.astype(dtype)
    q, r = np.linalg.qr(normal)
    # The signs of R's diagonal are arbitrary in a QR factorisation; this makes Q uniform.
    return (q * np.sign(np.diag(r))).astype(dtype)
