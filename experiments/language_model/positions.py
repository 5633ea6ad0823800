r"""Relative positions in the scores of attention (Dai et al. 2019, Transformer-XL, §3.3).

A query at i and a key at j ≤ i are compared by what they are and by how far they stand apart,

    z_ij = (q_i + u)·k_j + (q_i + v)·r_{i−j},    r_d = W_R R_d,

with the sinusoidal encoding R_d of the distance, and u, v the same for all queries. Here u is the
bias of the projection of the queries, so that q_i has it already; v is what is added to that.

References
----------
Dai, Yang, Yang, Carbonell, Le and Salakhutdinov (2019), Transformer-XL: Attentive Language Models
beyond a Fixed-Length Context.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd import Tensor, as_tensor
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.nn.attention import split_heads
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.linear import init_linear, linear
from pyentmax.seq2seq.nn.positions import sinusoidal_positions


def init_relative_positions(
    rng: Generator, name: str, width: int, dtype: Any = np.float32
) -> Parameters:
    """``name.distance.weight`` (width, width), W_R, and ``name.distance_query`` (width,), v.

    Examples
    --------
    >>> sorted(init_relative_positions(np.random.default_rng(0), "self", 4))
    ['self.distance.weight', 'self.distance_query']
    """
    params = init_linear(rng, f"{name}.distance", width, width, bias=False, dtype=dtype)
    return params | {f"{name}.distance_query": np.zeros(width, dtype)}


def relative_scores(
    params: Parameters, name: str, query: Tensor, distances: Array, scale: float
) -> Tensor:
    """scale · (q_i + v)·r_d in every head, (B, heads, T, S), for T queries (B, heads, T, d).

    The distances, (S,), are the same for all queries, and `shift` brings the scores to their keys;
    or there is one query per row, and they are its own, (B, S).
    """
    heads, d = query.shape[-3], query.shape[-1]
    r = linear(params, f"{name}.distance", sinusoidal_positions(distances, heads * d, query.dtype))
    v = as_tensor(params[f"{name}.distance_query"]).reshape(heads, 1, d)
    return ((query + v) * scale) @ split_heads(r, heads).swapaxes(-1, -2)


def shift(x: Tensor) -> Tensor:
    """From scores by distance, S − 1 to 0, to scores by key: y_ij = x_{i, T−1−i+j} where j ≤ i+S−T.

    The last query stands at the last key; what a query has for keys after its own is to be masked.
    The trick of the authors' appendix B: a column before the others, and the rows cut anew.

    Examples
    --------
    >>> x = as_tensor(np.array([[2.0, 1.0, 0.0]] * 2))  # distances, for two queries
    >>> shift(x).data  # of the second key for the first query, of the third for the second
    array([[1., 0., 0.],
           [2., 1., 0.]])
    """
    *leading, rows, columns = x.shape

    def vjp(g: Array) -> Array:
        flat = np.zeros((*leading, rows * (columns + 1)), g.dtype)
        flat[..., rows:] = g.reshape(*leading, rows * columns)
        return flat.reshape(*leading, rows, columns + 1)[..., 1:]

    padded = np.zeros((*leading, rows, columns + 1), x.dtype)
    padded[..., 1:] = x.data
    flat = padded.reshape(*leading, rows * (columns + 1))
    return Tensor(flat[..., rows:].reshape(*leading, rows, columns), (x, vjp))
