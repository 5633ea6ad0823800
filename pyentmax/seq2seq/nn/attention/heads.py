"""Scores and averages of all heads at once, on the tape: what surrounds the mapping.

Queries (…, T, n), keys and values (…, S, n) hold the heads side by side, as a projection gives
them: head i has the features from i·d on, d = n / heads. Scores and weights are (…, heads, T, S).
Every product runs on views of these arrays, so that no head is ever copied out or back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor


def head_scores(query: Any, keys: Any, heads: int, scale: float = 1.0) -> Tensor:
    """scale · q·k in every head, for queries (…, T, n) and keys (…, S, n).

    Examples
    --------
    >>> query, keys = np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, 4.0]])
    >>> head_scores(query, keys, heads=2).data
    array([[[3., 0.]],
           [[0., 8.]]])
    """
    query, keys = as_tensor(query), as_tensor(keys)
    q, k = by_head(query.data, heads), by_head(keys.data, heads)
    scores = q @ k.swapaxes(-1, -2)
    if scale != 1:
        scores *= scale

    # The scale goes to the shorter arrays.
    return Tensor(
        scores,
        (query, lambda g: _merged_products(g, k) * scale),
        (keys, lambda g: _merged_products(g.swapaxes(-1, -2), q) * scale),
    )


def scaled_heads(query: Any, scale: Any, heads: int) -> Tensor:
    """Queries (…, T, n) times a scale of each head and query, which broadcasts to (…, heads, T).

    Examples
    --------
    >>> scaled_heads(np.ones((2, 2)), np.array([[2.0], [3.0]]), heads=2).data
    array([[2., 3.],
           [2., 3.]])
    """
    query, scale = as_tensor(query), as_tensor(scale)
    factor = scale.reshape(*(1,) * (2 - scale.ndim), *scale.shape).swapaxes(-1, -2)
    by_head = query.reshape(*query.shape[:-1], heads, query.shape[-1] // heads)
    return (by_head * factor.reshape(*factor.shape, 1)).reshape(*query.shape)


def additive_head_scores(query: Any, keys: Any, v: Any) -> Tensor:
    """v_i · tanh(k + q) in every head i, for v (heads, d), queries (…, T, n) and keys (…, S, n).

    Holds an array of T·S·n numbers for each example: it is for short sequences.

    Examples
    --------
    >>> v = np.ones((2, 1))  # two heads of one feature
    >>> additive_head_scores(np.array([[1.0, 2.0]]), np.array([[-1.0, 0.0]]), v).data.round(3)
    array([[[0.   ]],
           [[0.964]]])
    """
    query, keys, v = as_tensor(query), as_tensor(keys), as_tensor(v)
    heads = v.shape[0]
    q, k = by_head(query.data, heads), by_head(keys.data, heads)
    hidden = np.tanh(q[..., :, None, :] + k[..., None, :, :])
    v_by_head = v.data[:, None, :, None]

    def vjp(g: Array) -> tuple[Array, Array, Array]:
        g = g[..., None]
        gradient = g * (1 - hidden * hidden)
        gradient *= v.data[:, None, None, :]
        product = (g * hidden).sum(axis=(-3, -2))
        leading = tuple(range(product.ndim - 2))
        merged = (merge(gradient.sum(axis=-2)), merge(gradient.sum(axis=-3)))
        return *merged, product.sum(axis=leading)

    return Tensor((hidden @ v_by_head)[..., 0], ((query, keys, v), vjp))


def head_averages(weights: Any, values: Any) -> Tensor:
    """Σ_s p_s v_s in every head, (…, T, n), for weights (…, heads, T, S) and values (…, S, n).

    Examples
    --------
    >>> weights = np.array([[[1.0, 0.0]], [[0.5, 0.5]]])  # two heads, one query
    >>> head_averages(weights, np.array([[3.0, 0.0], [0.0, 4.0]])).data
    array([[3., 2.]])
    """
    weights, values = as_tensor(weights), as_tensor(values)
    p, v = weights.data, by_head(values.data, weights.shape[-3])

    heads = p.shape[-3]
    return Tensor(
        _merged_products(p, v),
        (weights, lambda g: by_head(g, heads) @ v.swapaxes(-1, -2)),
        (values, lambda g: _merged_products(p.swapaxes(-1, -2), by_head(g, heads))),
    )


def by_head(x: Array, heads: int) -> Array:
    """(…, T, n) → (…, heads, T, n / heads), a view if the array is contiguous."""
    *leading, width = x.shape
    if heads < 1 or width % heads:
        raise ValueError(f"heads: expected a divisor of the width {width}, got {heads}")
    return x.reshape(*leading, heads, width // heads).swapaxes(-2, -3)


def merge(x: Array) -> Array:
    """(…, heads, T, d) → (…, T, heads · d): the inverse of `by_head`."""
    x = x.swapaxes(-2, -3)
    *leading, heads, d = x.shape
    return x.reshape(*leading, heads * d)


def split_heads(x: Any, heads: int) -> Tensor:
    """(…, T, n) → (…, heads, T, n / heads): the h-th part of each row goes to head h.

    Examples
    --------
    >>> split_heads(np.ones((5, 3, 8)), heads=2).shape
    (5, 2, 3, 4)
    """
    x = as_tensor(x)
    return Tensor(by_head(x.data, heads), (x, merge))


def merge_heads(x: Any) -> Tensor:
    """(…, heads, T, d) → (…, T, heads · d): the inverse of :func:`split_heads`.

    Examples
    --------
    >>> merge_heads(np.ones((5, 2, 3, 4))).shape
    (5, 3, 8)
    """
    x = as_tensor(x)
    return Tensor(merge(x.data), (x, lambda g: by_head(g, x.shape[-3])))


def _merged_products(a: Array, b: Array) -> Array:
    """The products of every head, a (…, heads, T, S) with b (…, heads, S, d), as (…, T, n)."""
    leading = np.broadcast_shapes(a.shape[:-3], b.shape[:-3])
    heads, rows, d = a.shape[-3], a.shape[-2], b.shape[-1]
    out = np.empty((*leading, rows, heads, d), np.result_type(a, b))
    # BLAS writes each head's product to its place among the others.
    np.matmul(a, b, out=out.swapaxes(-2, -3))
    return out.reshape(*leading, rows, heads * d)
