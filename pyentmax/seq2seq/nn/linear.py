"""Affine layers and embeddings: parameters under a name, and the operations that use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd import Tensor, ops
from pyentmax.seq2seq.nn.initializers import Generator, Parameters, glorot_uniform
from pyentmax.seq2seq.nn.shared_matrix import SharedMatrix


def init_linear(
    rng: Generator, name: str, inputs: int, outputs: int, bias: bool = True, dtype: Any = np.float32
) -> Parameters:
    """Parameters of x W + b: ``name.weight`` (inputs, outputs) and, optionally, ``name.bias``.

    Examples
    --------
    >>> params = init_linear(np.random.default_rng(0), "output", 4, 2)
    >>> linear(params, "output", np.ones((3, 4))).shape
    (3, 2)
    """
    params: Parameters = {f"{name}.weight": glorot_uniform(rng, inputs, outputs, dtype)}
    if bias:
        params[f"{name}.bias"] = np.zeros(outputs, dtype)
    return params


def linear(params: Parameters, name: str, x: Any) -> Tensor:
    """x W + b over the last axis of x (…, inputs), with the parameters under ``name``."""
    weight, bias = params[f"{name}.weight"], params.get(f"{name}.bias")
    if isinstance(weight, SharedMatrix):
        return weight.times(x) if bias is None else weight.times(x) + bias
    return ops.linear(x, weight, bias)


def init_embedding(
    rng: Generator, name: str, size: int, width: int, dtype: Any = np.float32
) -> Parameters:
    """A table ``name.weight`` (size, width) of normal entries, each row with a length of about 1.

    Examples
    --------
    >>> params = init_embedding(np.random.default_rng(0), "source", size=9, width=4)
    >>> embedding(params, "source", [[3, 1, 4], [1, 5, 0]]).shape
    (2, 3, 4)
    """
    return {f"{name}.weight": (rng.standard_normal((size, width)) / width**0.5).astype(dtype)}


def embedding(params: Parameters, name: str, index: Any) -> Tensor:
    """The rows of the table under ``name`` at the integers in ``index``, of any shape."""
    return ops.take_rows(params[f"{name}.weight"], index)
