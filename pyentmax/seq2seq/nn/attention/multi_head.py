"""Multi-head attention: many queries at once, each head with projections and an α of its own.

    Att(Q, K, V)  = π(Q Kᵀ / √d) V                                          (Correia et al., Eq. 1)
    Head_i        = Att(Q W_iQ, K W_iK, V W_iV)                              (Correia et al., Eq. 3)
    MultiHead     = [Head_1 … Head_H] W_O                            (Vaswani et al. 2017, §3.2.2)

Q (T, n) are the queries, K and V (S, n) the keys and values, each head's projections (n, d) with
d = n / H, and π maps every row of scores to weights. Q = K = V is self-attention, with a causal
mask in a decoder; context attention takes K = V from the encoder; key-value attention has K ≠ V.

π may be any mapping. α-entmax with α of shape (H, 1), against scores (…, H, T, S), has one α per
head: see :func:`pyentmax.seq2seq.nn.attention.learned_entmax`.

References
----------
Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §2.1 and §3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.reference.mappings import MAPPINGS
from pyentmax.seq2seq.autograd import concatenate, dropout
from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.seq2seq.nn.attention.heads import (
    additive_head_scores,
    by_head,
    head_averages,
    head_scores,
    merge,
    scaled_heads,
)
from pyentmax.seq2seq.nn.attention.single_query import AttentionMapping
from pyentmax.seq2seq.nn.attention.sparse import sparse_arguments, sparse_head_averages
from pyentmax.seq2seq.nn.initializers import Generator, Parameters, glorot_uniform
from pyentmax.seq2seq.nn.linear import init_linear, linear
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.sparse_attention import ScreenedRows, attention


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
    >>> from pyentmax.seq2seq.autograd import sparsemax
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


HEAD_SCORES = ("scaled", "bilinear", "dot", "additive")
"""How a head compares queries with keys; the names and formulas are those of
:data:`pyentmax.seq2seq.nn.attention.SCORES`, where W = W_K W_Qᵀ comes from the two projections:

    scaled     k·q / √d   of projected q and k   (Vaswani et al. 2017, §3.2.1)
    bilinear   k·q        of projected q and k
    dot        k·q        of the head's part of the inputs, without projections
    additive   v·tanh(k + q)   of projected q and k, with a v per head
"""


def init_multi_head_attention(
    rng: Generator,
    name: str,
    width: int,
    dtype: Any = np.float32,
    *,
    bias: bool = False,
    score: str = "scaled",
    heads: int = 1,
) -> Parameters:
    """Projections (width, width): ``name.query``, ``.key``, ``.value`` and ``.output.weight``.

    With ``bias`` each has one; the score "dot" has neither query nor key, and "additive" in
    addition ``name.v`` (heads, width / heads).

    Examples
    --------
    >>> sorted(init_multi_head_attention(np.random.default_rng(0), "a", 4, score="dot"))
    ['a.output.weight', 'a.value.weight']
    """
    _check_score(score)
    params: Parameters = {}
    for part in ("query", "key", "value", "output"):
        if score != "dot" or part in ("value", "output"):
            params |= init_linear(rng, f"{name}.{part}", width, width, bias=bias, dtype=dtype)
    if score == "additive":
        d = width // heads
        params[f"{name}.v"] = np.stack(
            [glorot_uniform(rng, d, 1, dtype)[:, 0] for _ in range(heads)]
        )
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
    score: str = "scaled",
    rate: float = 0.0,
    rng: Generator | None = None,
    need_weights: bool = True,
    scale: Any = None,
    sink: Any = None,
) -> tuple[Tensor, Tensor | None]:
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
        False where a key is padding. If all of a row is padding, its averages are zero, and its
        output is the bias of the output's projection, if there is one.
    causal : bool, default False
        Whether a query sees only the keys up to its own position. With fewer queries than keys,
        the queries are those of the last positions.
    score : str, default "scaled"
        One of :data:`HEAD_SCORES`, the one that the parameters were made for.
    rate : float, default 0
        Of dropout on the weights, after the mapping, where ``rng`` is given.
    rng : numpy.random.Generator, optional
        Switches dropout on.
    need_weights : bool, default True
        False leaves the weights out. Long inputs then take time and memory by what the weights
        leave of them, as ``pyentmax/seq2seq/nn/attention/sparse.py`` says.
    scale : Tensor or array that broadcasts to (…, heads, T), optional
        Multiplies the queries, in addition to what the score divides by: of shape (heads, 1) one
        for each head.
    sink : Tensor or array of shape (heads,), optional
        One more score in each head, with no value behind it, for α-entmax and the top-k mappings.

    Returns
    -------
    output : (…, T, n) Tensor
    weights : (…, heads, T, S) Tensor, or None where they are not needed
        As the mapping gives them, without dropout.

    Examples
    --------
    >>> from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
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
    keys, values = keys_and_values(params, name, key, value, score)
    allowed = None if mask is None else mask[..., None, None, :]
    return attend_heads(
        params,
        name,
        query,
        keys,
        values,
        mapping,
        heads=heads,
        mask=allowed,
        causal=causal,
        score=score,
        rate=rate,
        rng=rng,
        need_weights=need_weights,
        scale=scale,
        sink=sink,
    )


def keys_and_values(
    params: Parameters, name: str, key: Any, value: Any, score: str = "scaled"
) -> tuple[Tensor, Tensor]:
    """What queries are compared with and what is averaged, (…, S, n) both: the part of K and V.

    A decoder computes them once per source or token and keeps them.
    """
    _check_score(score)
    keys = as_tensor(key) if score == "dot" else linear(params, f"{name}.key", key)
    return keys, linear(params, f"{name}.value", value)


def attend_heads(
    params: Parameters,
    name: str,
    query: Any,
    keys: Any,
    values: Any,
    mapping: AttentionMapping,
    *,
    heads: int,
    mask: Array | None = None,
    causal: bool = False,
    score: str = "scaled",
    rate: float = 0.0,
    rng: Generator | None = None,
    need_weights: bool = True,
    scale: Any = None,
    sink: Any = None,
) -> tuple[Tensor, Tensor | None]:
    """MultiHead from what :func:`keys_and_values` gave, as `multi_head_attention` but for the mask.

    In decoding, keys may be `ScreenedRows` (…, heads, S, d), without weights that are needed.
    ``mask`` is broadcastable to the scores, (…, heads, T, S).
    """
    q = as_tensor(query) if score == "dot" else linear(params, f"{name}.query", query)
    if isinstance(keys, ScreenedRows):
        averages = _screened_averages(q, keys, values, mapping, mask, score, scale)
        return linear(params, f"{name}.output", averages), None
    keys = as_tensor(keys)
    factor = (q.shape[-1] // max(heads, 1)) ** -0.5 if score == "scaled" else 1.0
    dropping = rate > 0 and rng is not None
    is_plain = not (need_weights or dropping or score == "additive")
    sparse = sparse_arguments(mapping, heads, q.data, keys.data) if is_plain else None
    if sparse is not None:
        if causal:
            sparse |= {"causal": True, "offset": keys.shape[-2] - q.shape[-2]}
        sparse |= {"scale": factor if scale is None else as_tensor(scale) * factor, "sink": sink}
        averages = sparse_head_averages(q, keys, values, heads, mask=mask, **sparse)
        return linear(params, f"{name}.output", averages), None
    if scale is not None:
        q = scaled_heads(q, scale, heads)
    if score == "additive":
        scores = additive_head_scores(q, keys, params[f"{name}.v"])
    else:
        scores = head_scores(q, keys, heads, factor)
    if causal:
        before = causal_mask(q.shape[-2], keys.shape[-2])
        mask = before if mask is None else mask & before
    weights = (
        mapping(scores, mask=mask)
        if sink is None
        else _weights_with_sink(sink, mapping, scores, mask)
    )
    averages = head_averages(dropout(weights, rate, rng), values)
    return linear(params, f"{name}.output", averages), weights if need_weights else None


def _screened_averages(
    q: Tensor, keys: ScreenedRows, values: Any, mapping: Any, mask: Array | None, score: str,
    scale: Any,
) -> Tensor:  # fmt: skip
    """Σ_s p_s v_s in every head for queries (…, T, n), off the tape."""
    heads, factor = keys.shape[-3], keys.shape[-1] ** -0.5 if score == "scaled" else 1.0
    factor = factor if scale is None else as_tensor(scale).data * factor
    query, value = (by_head(as_tensor(x).data, heads) for x in (q, values))
    arguments = sparse_arguments(mapping, heads, q.data, keys.rows) or {}
    alpha = as_tensor(arguments["alpha"]).data
    return as_tensor(merge(attention(query, keys, value, alpha, mask=mask, scale=factor)))


def _weights_with_sink(
    sink: Any, mapping: AttentionMapping, scores: Tensor, mask: Array | None
) -> Tensor:
    """The weights of scores (…, heads, T, S) and sinks (heads,), of rows that are one longer."""
    name = getattr(mapping, "name", "")
    of_largest = MAPPINGS[name].of_largest if name in MAPPINGS else None
    if of_largest is not None:  # a sink takes none of the k places
        mask = mapping(scores.data, mask=mask).data != 0
        mapping = choose_mapping(of_largest)
    elif getattr(mapping, "alpha", None) is None:
        raise ValueError(f"sink: expected α-entmax or a top-k mapping, got {name or mapping}")
    zeros = np.zeros((*scores.shape[:-1], 1), scores.dtype)
    longer = concatenate([scores, as_tensor(sink).reshape(-1, 1, 1) + zeros])
    if mask is not None:
        mask = np.concatenate([np.broadcast_to(mask, scores.shape), zeros == 0], axis=-1)
    return mapping(longer, mask=mask)[..., :-1]


def _check_score(score: str) -> None:
    if score not in HEAD_SCORES:
        raise ValueError(f"score: expected one of {', '.join(HEAD_SCORES)}; got {score!r}")


def causal_mask(queries: int, keys: int) -> Array:
    """(queries, keys) bool array: True up to the query's own position, the last one's being last.

    Examples
    --------
    >>> causal_mask(2, 3)
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    return np.arange(keys) <= np.arange(keys - queries, keys)[:, None]
