"""Initial values of parameters. Every function draws from the generator that it is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Generator = np.random.Generator
Parameters = dict[str, Any]
"""A model's parameters: a flat dict from dotted names to arrays, or to tensors on the tape."""


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
    q, r = np.linalg.qr(rng.standard_normal((n, n)))
    # The signs of R's diagonal are arbitrary in a QR factorisation; this makes Q uniform.
    return (q * np.sign(np.diag(r))).astype(dtype)
