r"""The position-wise network of a Transformer: [x W₁ + b₁]₊ W₂ + b₂ (Vaswani et al. 2017, §3.3).

One operation on the tape. The hidden layer is several times as wide as x, so that each pass over it
counts: rectification and dropout work in the array that the product made, and their gradient in the
array that the product backwards made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.autograd import GradientProduct, Tensor, as_tensor
from pyentmax.autograd.gradients import Array
from pyentmax.autograd.ops import dropout_factors, times_matrix
from pyentmax.nn.initializers import Generator, Parameters
from pyentmax.nn.linear import init_linear


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
    layers = (f"{name}.inner", f"{name}.output")
    weights = [as_tensor(params[f"{layer}.weight"]) for layer in layers]
    biases = [as_tensor(params[f"{layer}.bias"]) for layer in layers]
    x = as_tensor(x)
    xp = x.xp
    hidden = times_matrix(x.data, weights[0].data)
    hidden += biases[0].data
    xp.maximum(hidden, 0, out=hidden)
    factors = None
    if rng is not None and rate:
        factors = dropout_factors(hidden, rate, rng)
        hidden *= factors
    y = times_matrix(hidden, weights[1].data)
    y += biases[1].data

    def vjp(g: Array) -> tuple[Any, ...]:
        rows = g.reshape(-1, g.shape[-1])
        gh = times_matrix(g, weights[1].data.T)
        if factors is not None:
            gh *= factors
        gh *= hidden > 0  # not rectified away
        inner = gh.reshape(-1, gh.shape[-1])
        return (
            times_matrix(gh, weights[0].data.T) if x.requires_grad else None,
            GradientProduct(x.data.reshape(-1, x.shape[-1]), inner),
            inner.sum(axis=0),
            GradientProduct(hidden.reshape(-1, hidden.shape[-1]), rows),
            rows.sum(axis=0),
        )

    return Tensor(y, parents=(x, weights[0], biases[0], weights[1], biases[1]), vjp=vjp)
