"""Multi-head attention: many queries at once, each head with projections and an α of its own.

    Att(Q, K, V)  = π(Q Kᵀ / √d) V                                          (Correia et al., Eq. 1)
    Head_i        = Att(Q W_iQ, K W_iK, V W_iV)                              (Correia et al., Eq. 3)
    MultiHead     = [Head_1 … Head_H] W_O                            (Vaswani et al. 2017, §3.2.2)

Q (T, n) are the queries, K and V (S, n) the keys and values, each head's projections (n, d) with
d = n / H, and π maps every row of scores to weights. Q = K = V is self-attention, with a causal
mask in a decoder; context attention takes K = V from the encoder; key-value attention has K ≠ V.

π may be any mapping. α-entmax with α of shape (H, 1), against scores (…, H, T, S), has one α per
head: see :func:`pyentmax.nn.attention.learned_entmax`.

References
----------
Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §2.1 and §3.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from pyentmax.autograd.gradients import Array
from pyentmax.autograd.tensor import Tensor, as_tensor
from pyentmax.nn.attention.single_query import AttentionMapping
from pyentmax.nn.initializers import Generator, Parameters
from pyentmax.nn.linear import init_linear, linear


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mapping: AttentionMapping, mask: Array | None = None
) -> tuple[Tensor, Tensor]:
    """Att(Q, K, V) = π(Q Kᵀ / √d) V, and the weights π(Q Kᵀ / √d).

    Parameters
    ----------
    query, key, value : (…, T, d), (…, S, d), (…, S, m) Tensors
    mapping : callable
        From scores and ``mask=`` to weights.
    mask : bool array, optional
        Broadcastable to (…, T, S); True where a query may attend to a key. A query that may attend
        to none gets zeros, and gives zero gradients.

    Returns
    -------
    output : (…, T, m) Tensor
    weights : (…, T, S) Tensor

    Examples
    --------
    >>> from pyentmax.autograd import sparsemax
    >>> query, key, value = (as_tensor(np.eye(2) * k) for k in (3.0, 1.0, 5.0))
    >>> output, weights = scaled_dot_product_attention(query, key, value, sparsemax)
    >>> weights.data
    array([[1., 0.],
           [0., 1.]])
    >>> output.data
    array([[5., 0.],
           [0., 5.]])
    """
    scores = (query * query.shape[-1] ** -0.5) @ key.swapaxes(-1, -2)
    weights = mapping(scores, mask=mask)
    return weights @ value, weights


def init_multi_head_attention(
    rng: Generator, name: str, width: int, dtype: Any = np.float32
) -> Parameters:
    """Projections (width, width): ``name.query``, ``.key``, ``.value`` and ``.output.weight``."""
    params: Parameters = {}
    for part in ("query", "key", "value", "output"):
        params |= init_linear(rng, f"{name}.{part}", width, width, bias=False, dtype=dtype)
    return params


def multi_head_attention(
    params: Parameters,
    name: str,
    query: Any,
    key: Any,
    value: Any,
    mapping: AttentionMapping,
    *,
    heads: int,
    mask: Array | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """MultiHead(Q, K, V): self, context or key-value attention, by what Q, K and V are.

    Parameters
    ----------
    params : dict of Tensors or arrays
        With the projections that :func:`init_multi_head_attention` makes under ``name``.
    name : str
    query, key, value : (…, T, n), (…, S, n), (…, S, n) Tensors or arrays
        The same tensor three times is self-attention.
    mapping : callable
        From scores (…, heads, T, S) and ``mask=`` to weights, such as ``choose_mapping(1.5)`` or
        ``learned_entmax(params, name)``.
    heads : int
        A divisor of the width n.
    mask : (…, S) bool array, optional
        False where a key is padding. If all of a row is padding, its output is zero.
    causal : bool, default False
        Whether a query sees only the keys up to its own position. With fewer queries than keys,
        the queries are those of the last positions.

    Returns
    -------
    output : (…, T, n) Tensor
    weights : (…, heads, T, S) Tensor

    Examples
    --------
    >>> from pyentmax.nn.mapping_choice import choose_mapping
    >>> rng = np.random.default_rng(0)
    >>> params = init_multi_head_attention(rng, "self", 4)
    >>> x = rng.standard_normal((2, 3, 4))
    >>> output, weights = multi_head_attention(
    ...     params, "self", x, x, x, choose_mapping(1.5), heads=2, causal=True
    ... )
    >>> output.shape, weights.shape
    ((2, 3, 4), (2, 2, 3, 3))
    >>> weights.data[0, 0, 0]
    array([1., 0., 0.])
    """
    q, k, v = (
        split_heads(linear(params, f"{name}.{part}", x), heads)
        for part, x in (("query", query), ("key", key), ("value", value))
    )
    allowed = None if mask is None else mask[..., None, None, :]
    if causal:
        before = causal_mask(q.shape[-2], k.shape[-2], q.xp)
        allowed = before if allowed is None else allowed & before
    averages, weights = scaled_dot_product_attention(q, k, v, mapping, allowed)
    return linear(params, f"{name}.output", merge_heads(averages)), weights


def causal_mask(queries: int, keys: int, xp: ModuleType = np) -> Array:
    """(queries, keys) bool array: True up to the query's own position, the last one's being last.

    Examples
    --------
    >>> causal_mask(2, 3)
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    return xp.arange(keys) <= xp.arange(keys - queries, keys)[:, None]


def split_heads(x: Any, heads: int) -> Tensor:
    """(…, T, n) → (…, heads, T, n / heads): the h-th part of each row goes to head h.

    Examples
    --------
    >>> split_heads(np.ones((5, 3, 8)), heads=2).shape
    (5, 2, 3, 4)
    """
    x = as_tensor(x)
    *leading, width = x.shape
    if heads < 1 or width % heads:
        raise ValueError(f"heads: expected a divisor of the width {width}, got {heads}")
    return x.reshape(*leading, heads, width // heads).swapaxes(-2, -3)


def merge_heads(x: Any) -> Tensor:
    """(…, heads, T, d) → (…, T, heads · d): the inverse of :func:`split_heads`.

    Examples
    --------
    >>> merge_heads(np.ones((5, 2, 3, 4))).shape
    (5, 3, 8)
    """
    x = as_tensor(x).swapaxes(-2, -3)
    *leading, heads, width = x.shape
    return x.reshape(*leading, heads * width)
