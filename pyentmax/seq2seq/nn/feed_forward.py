"""The position-wise network of a Transformer: [x W₁ + b₁]₊ W₂ + b₂ (Vaswani et al. 2017, §3.3).

The hidden layer is several times as wide as x, so that each pass over it counts: rectification and
dropout work in the array that the first product made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.autograd.ops import dropout_factors
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.linear import init_linear, linear


def init_feed_forward(
    rng: Generator, name: str, width: int, inner: int, dtype: Any = np.float32
) -> Parameters:
    """``name.inner`` (width, inner) and ``name.output`` (inner, width), each weight and bias."""
    params = init_linear(rng, f"{name}.inner", width, inner, dtype=dtype)
    return params | init_linear(rng, f"{name}.output", inner, width, dtype=dtype)


def feed_forward(
    params: Parameters, name: str, x: Any, rate: float = 0.0, rng: Generator | None = None
) -> Tensor:
    """[x W₁ + b₁]₊ W₂ + b₂ over the last axis of x, with dropout between the layers.

    Examples
    --------
    >>> params = init_feed_forward(np.random.default_rng(0), "network", width=2, inner=8)
    >>> feed_forward(params, "network", np.ones((3, 2))).shape
    (3, 2)
    """
    hidden = linear(params, f"{name}.inner", x)
    return linear(params, f"{name}.output", _rectified(hidden, rate, rng))


def _rectified(h: Tensor, rate: float, rng: Generator | None) -> Tensor:
    """[h]₊ with dropout, in the array of h: nothing else reads it."""
    y = h.data
    np.maximum(y, 0, out=y)
    slope = y.dtype.type(1)
    if rng is not None and rate:
        y *= dropout_factors(y, rate, rng)
        slope /= 1 - rate
    return Tensor(y, (h, lambda g: g * ((y > 0) * slope)))
