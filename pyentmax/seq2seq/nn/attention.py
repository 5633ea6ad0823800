r"""Attention: scores of queries against keys, a mapping to weights, an average of the values.

    z_s = score(q, k_s)        p = π(z)        c = Σ_s p_s v_s           (Peters et al. 2019, Eq. 1)

:func:`attend` is that, for one query per row of a batch (a recurrent decoder's step) or for many.
:data:`SCORES` are the four ways to compare a query q with a value h:

    dot        hᵀq                     (Luong et al. 2015, §3.1)
    bilinear   hᵀWq                    (Luong et al. 2015, §3.1, "general")
    scaled     hᵀWq / √d               (Vaswani et al. 2017, §3.2.1)
    additive   vᵀ tanh(W₁h + W₂q)      (Bahdanau et al. 2015, A.1.2)

:class:`MultiHead` attends several times at once, each head with projections and an α of its own:

    Att(Q, K, V)  = π(Q Kᵀ / √d) V                                          (Correia et al., Eq. 1)
    Head_i        = Att(Q W_iQ, K W_iK, V W_iV)                              (Correia et al., Eq. 3)
    MultiHead     = [Head_1 … Head_H] W_O                            (Vaswani et al. 2017, §3.2.2)

Q (T, n) are the queries, K and V (S, n) the keys and values. Q = K = V is self-attention, with a
causal mask in a decoder; context attention takes K = V from the encoder.

References
----------
Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §2.1, §3 and §4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from pyentmax.engine.backends import choice
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.seq2seq.autograd import MAPPING_OPS, dropout, sigmoid
from pyentmax.seq2seq.autograd.sparse_attention import attention
from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.seq2seq.nn.initializers import Generator, Parameters, glorot_uniform
from pyentmax.seq2seq.nn.linear import init_linear, linear
from pyentmax.seq2seq.nn.mapping_choice import ChosenMapping
from pyentmax.seq2seq.nn.shared_matrix import SharedMatrix, shared
from pyentmax.sparse_attention.route import is_short


class AttentionMapping(Protocol):
    """A function from scores to weights over the last axis, such as `choose_mapping` gives."""

    def __call__(self, scores: Tensor, /, *, mask: Array | None = None) -> Tensor:
        """The weights; ``mask`` is True where there may be one above zero."""


def attend(
    query: Any, keys: Any, values: Any, mapping: AttentionMapping, mask: Array | None = None,
    *, score: Callable[[Any, Any], Tensor] | None = None, rate: float = 0.0,
    rng: Generator | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The averages of values that queries attend to, and the weights.

    Parameters
    ----------
    query : (…, T, d) Tensor or array, or (…, d) for a single query
    keys, values : (…, S, d), (…, S, m) Tensors or arrays
    mapping : callable
        From scores and ``mask=`` to weights.
    mask : bool array, optional
        Broadcastable to the weights; True where a query may attend to a key. A query that may
        attend to none gets zeros, and gives zero gradients.
    score : callable, optional
        From query and keys to scores; :func:`dot_scores` by default.
    rate : float
        Of dropout on the weights, after the mapping, where ``rng`` is given.
    rng : numpy.random.Generator, optional

    Returns
    -------
    averages : (…, T, m) or (…, m) Tensor
    weights : (…, T, S) or (…, S) Tensor
        As the mapping gives them, without dropout.

    Examples
    --------
    >>> from pyentmax.seq2seq.autograd import sparsemax
    >>> h = np.array([[4.0, 0.0], [0.0, 4.0], [1.0, 1.0]])
    >>> mask = np.array([True, True, False])
    >>> context, weights = attend(np.array([0.125, 0.0]), h, h, sparsemax, mask)
    >>> weights.data, context.data
    (array([0.75, 0.25, 0.  ]), array([3., 1.]))
    """
    weights = mapping((score or dot_scores)(query, keys), mask=mask)
    return weighted_average(dropout(weights, rate, rng), values), weights


def dot_scores(query: Any, keys: Any, scale: float = 1.0) -> Tensor:
    """z_s = scale · keys_s · query, for keys (…, S, d) and queries (…, T, d), or one (…, d).

    Examples
    --------
    >>> dot_scores(np.array([1.0, 2.0]), np.array([[3.0, 0.0], [0.0, 3.0]])).data
    array([3., 6.])
    """
    query, keys = _operands(query, keys)
    q, k = query.data, keys.data
    z = _products(q, k)
    if scale != 1:
        z *= scale
    return Tensor(  # the scale goes to the shorter arrays
        z,
        (query, lambda g: _scaled(_sums(g, k), scale)),
        (keys, lambda g: _toward(keys, g, q, scale)),
    )


def additive_scores(query: Any, keys: Any, v: Any) -> Tensor:
    """z_s = v · tanh(keys_s + query), for v (d,), keys (…, S, d) and queries (…, T, d), or (…, d).

    Query and keys are projected already: W₂q and W₁h. With heads, v is (heads, 1, 1, d). Holds an
    array of T·S·d numbers for each example: it is for short sequences.

    Examples
    --------
    >>> query, keys = np.array([1.0, 2.0]), np.array([[-1.0, -2.0], [0.0, -2.0]])
    >>> additive_scores(query, keys, np.ones(2)).data.round(3)
    array([0.   , 0.762])
    """
    query, keys, v = as_tensor(query), as_tensor(keys), as_tensor(v)
    one = query.ndim < keys.ndim
    hidden = (keys.data if one else keys.data[..., None, :, :]) + query.data[..., None, :]
    np.tanh(hidden, out=hidden)
    z = hidden @ v.data if v.ndim == 1 else (hidden @ v.data.swapaxes(-1, -2))[..., 0]

    def vjp(g: Array) -> tuple[Array, Array, Array]:
        g = g[..., None]
        gradient = hidden * hidden
        np.subtract(1, gradient, out=gradient)
        gradient *= v.data
        gradient *= g
        return gradient.sum(axis=-2), gradient if one else gradient.sum(axis=-3), g * hidden

    return Tensor(z, ((query, keys, v), vjp))


def weighted_average(weights: Any, values: Any) -> Tensor:
    """c = Σ_s p_s v_s, for values (…, S, d) and weights (…, T, S), or one row (…, S).

    Examples
    --------
    >>> weighted_average(np.array([0.25, 0.75]), np.array([[4.0, 0.0], [0.0, 4.0]])).data
    array([1., 3.])
    """
    weights, values = _operands(weights, values)
    p, v = weights.data, values.data
    return Tensor(
        _sums(p, v),
        (weights, lambda g: _products(g, v)),
        (values, lambda g: _toward(values, p, g)),
    )


def _operands(x: Any, rows: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors; what one query is compared with, other steps' queries are, too."""
    x, rows = as_tensor(x), as_tensor(rows)
    return x, shared(rows) if x.ndim < rows.ndim else rows


def _products(x: Array, rows: Array) -> Array:
    """x · rows_s for all s: (…, T, S) of x (…, T, d), or (…, S) of one x (…, d)."""
    one = x.ndim < rows.ndim
    return (rows @ x[..., None])[..., 0] if one else x @ rows.swapaxes(-1, -2)


def _sums(x: Array, rows: Array) -> Array:
    """Σ_s x_s rows_s: (…, T, d) of x (…, T, S), or (…, d) of one x (…, S)."""
    return (x[..., None, :] @ rows)[..., 0, :] if x.ndim < rows.ndim else x @ rows


def _toward(matrix: Tensor, left: Array, right: Array, scale: float = 1.0) -> Any:
    """The gradient leftᵀ right of a matrix; of one that many steps share, its factors."""
    if left.ndim < matrix.ndim:
        left, right = left[..., None, :], right[..., None, :]
    if isinstance(matrix, SharedMatrix):
        return [(left, _scaled(right, scale))]
    return _scaled(left.swapaxes(-1, -2) @ right, scale)


def _scaled(x: Array, scale: float) -> Array:
    return x if scale == 1 else x * scale


# --- the four scores ------------------------------------------------------------------------------
class Score(NamedTuple):
    """A way to compare a query with values; its parameters lie under a name.

    Attributes
    ----------
    initialize : callable
        (generator, name, width d, dtype) → parameters.
    keys : callable
        (parameters, name, values (…, S, d)) → keys (…, S, d); called once per sequence.
    compare : callable
        (parameters, name, query (…, d), keys) → scores (…, S); called once per step.
    """

    initialize: Callable[[Generator, str, int, Any], Parameters]
    keys: Callable[[Parameters, str, Any], Tensor]
    compare: Callable[[Parameters, str, Any, Any], Tensor]


def _matrix(rng: Generator, name: str, width: int, dtype: Any) -> Parameters:
    return init_linear(rng, name, width, width, bias=False, dtype=dtype)


def _additive_parameters(rng: Generator, name: str, width: int, dtype: Any) -> Parameters:
    params = _matrix(rng, name, width, dtype) | _matrix(rng, f"{name}.query", width, dtype)
    return params | {f"{name}.v": glorot_uniform(rng, width, 1, dtype)[:, 0]}


def _scaled_keys(params: Parameters, name: str, values: Any) -> Tensor:
    return linear(params, name, values) * values.shape[-1] ** -0.5


def _dot(params: Parameters, name: str, query: Any, keys: Any) -> Tensor:
    return dot_scores(query, keys)


def _additive(params: Parameters, name: str, query: Any, keys: Any) -> Tensor:
    return additive_scores(linear(params, f"{name}.query", query), keys, params[f"{name}.v"])


# Every step's query has a product with the keys: `shared` collects what they send back.
SCORES: dict[str, Score] = {
    "additive": Score(_additive_parameters, linear, _additive),
    "bilinear": Score(_matrix, lambda *given: shared(linear(*given)), _dot),
    "dot": Score(lambda *_: {}, lambda params, name, values: shared(values), _dot),
    "scaled": Score(_matrix, lambda *given: shared(_scaled_keys(*given)), _dot),
}
"""Name → score. The mapping sees only z, so every score goes with every mapping.

A head of :class:`MultiHead` has them too, W = W_K W_Qᵀ of its two projections; "dot" compares
the head's part of the inputs without projections, and "additive" has a v per head.
"""


def check_score(name: str) -> None:
    """Raise an error that lists :data:`SCORES` for a name that is none of theirs."""
    if name not in SCORES:
        raise ValueError(f"score: expected one of {', '.join(SCORES)}; got {name!r}")


# --- α as a parameter -----------------------------------------------------------------------------
LEARNED = "learned"
"""In place of α in a configuration: the attention is α-entmax, and α is a parameter."""


def init_learned_alpha(
    name: str, shape: tuple[int, ...] = (1,), rng: Generator | None = None, dtype: Any = np.float32
) -> Parameters:
    """The parameter a of α = 1 + σ(a), between softmax and sparsemax, under ``name.alpha_logit``.

    Parameters
    ----------
    name : str
    shape : tuple of int
        That of α, which broadcasts against the scores without their last axis: (1,) is one α for
        all rows, (heads, 1) one per head for the (…, heads, T, S) scores of multi-head attention.
    rng : numpy.random.Generator, optional
        Draws a from N(0, 1). By default a is 0, so that α starts at 1.5.
    dtype : dtype

    Examples
    --------
    >>> init_learned_alpha("self_attention", shape=(2, 1))
    {'self_attention.alpha_logit': array([[0.],
           [0.]], dtype=float32)}
    """
    a = np.zeros(shape) if rng is None else rng.standard_normal(shape)
    return {f"{name}.alpha_logit": a.astype(dtype)}


def learned_alpha(params: Parameters, name: str) -> Tensor:
    """α = 1 + σ(a) with the parameter a under ``name`` (Correia et al. 2019, §4 and Eq. 10).

    Examples
    --------
    >>> learned_alpha(init_learned_alpha("attention"), "attention").data
    array([1.5], dtype=float32)
    """
    return 1 + sigmoid(as_tensor(params[f"{name}.alpha_logit"]))


class LearnedEntmax(NamedTuple):
    """α-entmax with the α under ``name``, which gets a gradient: the sum of g ∘ ∂p/∂α.

    The sum goes over all rows that share an α: over the batch and the queries of a head, say.

    Examples
    --------
    One head with α = 1 and one with α = 2, for a single query:

    >>> params = {"a.alpha_logit": np.array([[-50.0], [50.0]])}
    >>> z = as_tensor(np.zeros((2, 1, 3)) + [2.0, 0.0, -9.0])
    >>> LearnedEntmax(params, "a")(z).data.round(3)
    array([[[0.881, 0.119, 0.   ]],
           [[1.   , 0.   , 0.   ]]])
    """

    params: Parameters
    name: str

    def __call__(self, scores: Tensor, /, *, mask: Array | None = None) -> Tensor:
        """The weights of scores over the last axis."""
        return MAPPING_OPS["entmax"](scores, learned_alpha(self.params, self.name), mask=mask)


# --- several heads --------------------------------------------------------------------------------
def init_multi_head_attention(
    rng: Generator, name: str, width: int, dtype: Any = np.float32, *, bias: bool = False,
    score: str = "scaled", heads: int = 1,
) -> Parameters:  # fmt: skip
    """Projections (width, width): ``name.query``, ``.key``, ``.value`` and ``.output.weight``.

    With ``bias`` each has one; the score "dot" has neither query nor key, and "additive" in
    addition ``name.v`` (heads, width / heads).

    Examples
    --------
    >>> sorted(init_multi_head_attention(np.random.default_rng(0), "a", 4, score="dot"))
    ['a.output.weight', 'a.value.weight']
    """
    check_score(score)
    params: Parameters = {}
    for part in ("query", "key", "value", "output"):
        if score != "dot" or part in ("value", "output"):
            params |= init_linear(rng, f"{name}.{part}", width, width, bias=bias, dtype=dtype)
    if score == "additive":
        columns = [glorot_uniform(rng, width // heads, 1, dtype)[:, 0] for _ in range(heads)]
        params[f"{name}.v"] = np.stack(columns)
    return params


@dataclass(frozen=True)
class MultiHead:
    """Attention of several heads, with the projections under a name.

    Parameters
    ----------
    params : dict of Tensors or arrays
        With what :func:`init_multi_head_attention` makes under ``name``.
    name : str
    mapping : callable
        From scores (…, heads, T, S) and ``mask=`` to weights, such as ``choose_mapping(1.5)`` or
        ``LearnedEntmax(params, name)``: α of shape (heads, 1) is one per head.
    heads : int
        A divisor of the width n.
    score : str
        One of :data:`SCORES`, the one that the parameters were made for.
    causal : bool
        Whether a query sees only the keys up to its own position. With fewer queries than keys,
        the queries are those of the last positions.
    rate : float
        Of dropout on the weights, where ``rng`` is given.
    rng : numpy.random.Generator, optional
    """

    params: Parameters
    name: str
    mapping: AttentionMapping
    heads: int
    score: str = "scaled"
    causal: bool = False
    rate: float = 0.0
    rng: Generator | None = None

    def keys_and_values(self, key: Any, value: Any = None) -> tuple[Tensor, Tensor]:
        """Keys, which queries are compared with, and values to be averaged, (…, S, n) both.

        A decoder computes them once per source or token and keeps them. Without a ``value`` both
        are projections of the key.
        """
        check_score(self.score)
        value = key if value is None else value
        return self._projected("key", key), linear(self.params, f"{self.name}.value", value)

    def __call__(
        self, query: Any, keys: Any, values: Any, mask: Array | None = None,
        *, scale: Any = None, need_weights: bool = True,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The output (…, T, n) of queries (…, T, n), and the weights (…, heads, T, S).

        Parameters
        ----------
        query : (…, T, n) Tensor or array
        keys, values : (…, S, n) Tensors or arrays
            From :meth:`keys_and_values`.
        mask : bool array, optional
            As for :func:`attend`. If a query has no key, its averages are zero, and its output is
            the bias of the output's projection, if there is one.
        scale : Tensor or array that broadcasts to (…, heads, T), optional
            Multiplies the scores, in addition to what the score divides by.
        need_weights : bool
            False leaves the weights out. Long inputs then take time and memory by what the weights
            leave of them, as :func:`sparse_arguments` says.
        """
        parts = (self._projected("query", query), keys, values)
        q, k, v = (split_heads(x, self.heads) for x in parts)
        if scale is not None:
            q = q * as_tensor(scale)[..., None]
        factor = q.shape[-1] ** -0.5 if self.score == "scaled" else 1.0
        dropping = self.rng is not None and self.rate > 0
        whole = need_weights or dropping or self.score == "additive"
        sparse = None if whole else sparse_arguments(self.mapping, q, k)
        if sparse is not None:
            if self.causal:
                sparse |= {"causal": True, "offset": k.shape[-2] - q.shape[-2]}
            averages, weights = attention(q, k, v, mask=mask, scale=factor, **sparse), None
        else:
            if self.causal and q.shape[-2] > 1:
                before = causal_mask(q.shape[-2], k.shape[-2])
                mask = before if mask is None else mask & before
            averages, weights = attend(
                q, k, v, self.mapping, mask, score=self._scores(factor, mask), rate=self.rate,
                rng=self.rng,
            )  # fmt: skip
        output = linear(self.params, f"{self.name}.output", merge_heads(averages))
        return output, weights if need_weights else None

    def _projected(self, part: str, x: Any) -> Tensor:
        return (
            as_tensor(x) if self.score == "dot" else linear(self.params, f"{self.name}.{part}", x)
        )

    def _scores(self, factor: float, mask: Array | None) -> Callable[[Any, Any], Tensor]:
        """The scores of queries (…, heads, T, d) and keys (…, heads, S, d)."""
        if self.score != "additive":
            return partial(dot_scores, scale=factor)
        v = as_tensor(self.params[f"{self.name}.v"])
        return partial(additive_scores, v=v.reshape(self.heads, 1, 1, -1))


def multi_head_attention(
    params: Parameters, name: str, query: Any, key: Any, value: Any, mapping: AttentionMapping,
    *, heads: int, mask: Array | None = None, need_weights: bool = True, **options: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """MultiHead(Q, K, V): self, context or key-value attention, by what Q, K and V are.

    Parameters
    ----------
    query, key, value : (…, T, n), (…, S, n), (…, S, n) Tensors or arrays
        The same tensor three times is self-attention.
    mask : (…, S) bool array, optional
        False where a key is padding.
    params, name, mapping, heads, need_weights, **options
        As for :class:`MultiHead`: score, causal, rate and rng.

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
    layer = MultiHead(params, name, mapping, heads, **options)
    allowed = None if mask is None else mask[..., None, None, :]
    pair = layer.keys_and_values(key, value)
    return layer(query, *pair, allowed, need_weights=need_weights)


def split_heads(x: Any, heads: int) -> Tensor:
    """(…, T, n) → (…, heads, T, n / heads), a view: the h-th part of each row goes to head h.

    Examples
    --------
    >>> split_heads(np.ones((5, 3, 8)), heads=2).shape
    (5, 2, 3, 4)
    """
    x = as_tensor(x)
    *_, width = x.shape
    if heads < 1 or width % heads:
        raise ValueError(f"heads: expected a divisor of the width {width}, got {heads}")
    return Tensor(_split(x.data, heads), (x, _merge))


def merge_heads(x: Any) -> Tensor:
    """(…, heads, T, d) → (…, T, heads · d): the inverse of :func:`split_heads`.

    Examples
    --------
    >>> merge_heads(np.ones((5, 2, 3, 4))).shape
    (5, 3, 8)
    """
    x = as_tensor(x)
    return Tensor(_merge(x.data), (x, lambda g: _split(g, x.shape[-3])))


def _split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def _merge(x: Array) -> Array:
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def causal_mask(queries: int, keys: int) -> Array:
    """(queries, keys) bool array: True up to the query's own position, the last one's being last.

    Examples
    --------
    >>> causal_mask(2, 3)
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    return np.arange(keys) <= np.arange(keys - queries, keys)[:, None]


def sparse_arguments(
    mapping: AttentionMapping, query: Tensor, key: Tensor
) -> dict[str, Any] | None:
    """The arguments of `autograd.attention` for a mapping; None if whole products are faster.

    That operation stores only the weights that are not zero, never an array of all of them, which
    pays from about 128 queries and keys on: half the time of training with 256 (1.5-entmax, 5% of
    the weights not zero) and a fifth with 1,024. It serves α-entmax above 1, with an α per head at
    most, and top-k with a quarter of the keys or fewer; kernels have to be there.

    Examples
    --------
    >>> from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
    >>> long, short = (as_tensor(np.zeros((2, rows, 8), np.float32)) for rows in (256, 20))
    >>> sparse_arguments(choose_mapping(1.5), long, long) in ({"alpha": 1.5}, None)
    True
    >>> sparse_arguments(choose_mapping(1.5), short, short)
    """
    if is_short((query.shape[-2], key.shape[-2]), caller="tape") or not choice.kernels():
        return None
    if isinstance(mapping, LearnedEntmax):
        alpha = learned_alpha(*mapping)
        per_query = alpha.ndim and alpha.shape[-1] != 1
        return None if per_query else {"alpha": alpha.reshape(alpha.shape[:-1])}
    if not isinstance(mapping, ChosenMapping) or mapping.name not in MAPPINGS:
        return None
    if MAPPINGS[mapping.name].parameters == ("k",):
        (k,) = mapping.params
        return {"mapping": mapping.name, "k": k} if 4 * k <= key.shape[-2] else None
    return None if mapping.alpha is None or mapping.alpha <= 1 else {"alpha": mapping.alpha}
