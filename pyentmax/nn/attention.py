"""Attention: scores of a query against keys, a mapping to weights, an average of values.

Shapes: query (B, H), keys and values (B, S, H), weights (B, S). All contractions are single
operations on the tape, because a decoder runs them at every step.

The scores, by name, of a value h and a query q (Luong et al. 2015, §3.1; additive: Bahdanau et al.
2015, A.1.2; scaled: Vaswani et al. 2017, §3.2.1):

    dot        hᵀq                      scaled     hᵀWq / √d
    bilinear   hᵀWq                     additive   vᵀ tanh(W₁h + W₂q)

What depends on h alone is computed once a sequence, as its keys: hᵀW, hᵀW/√d and W₁h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyentmax.autograd import MAPPING_OPS, GradientProduct, Tensor, as_tensor, concatenate, ops
from pyentmax.autograd.tensor import Array
from pyentmax.nn.initializers import Generator, Parameters, glorot_uniform
from pyentmax.nn.linear import init_linear, linear
from pyentmax.nn.mapping_choice import ChosenMapping

AttentionMapping = ChosenMapping | Callable[..., Tensor]
"""Scores and ``mask=`` to weights."""


class Memory(NamedTuple):
    """What a decoder attends to."""

    keys: Any  # (B, S, H), compared with the query
    values: Any  # (B, S, H), averaged
    mask: Array  # (B, S), True where there is a token


def dot_scores(query: Any, keys: Any) -> Tensor:
    """z_s = keys_s · query."""
    query, keys = as_tensor(query), as_tensor(keys)

    def vjp(g: Array) -> tuple[Array, GradientProduct]:
        g = g[:, None, :]
        return (g @ keys.data)[:, 0], GradientProduct(g, query.data[:, None, :])

    scores = (keys.data @ query.data[:, :, None])[:, :, 0]
    return Tensor(scores, parents=(query, keys), vjp=vjp)


def additive_scores(query: Any, keys: Any, v: Any) -> Tensor:
    """z_s = v · tanh(keys_s + query), of a query and keys that are projected already."""
    query, keys, v = as_tensor(query), as_tensor(keys), as_tensor(v)
    hidden = keys.xp.tanh(keys.data + query.data[:, None, :])

    def vjp(g: Array) -> tuple[Array, Array, Array]:
        inner = g[:, :, None] * (v.data * (1 - hidden * hidden))
        return inner.sum(axis=1), inner, (g[:, :, None] * hidden).sum(axis=(0, 1))

    return Tensor(hidden @ v.data, parents=(query, keys, v), vjp=vjp)


class Score(NamedTuple):
    """A way to compare a query with values, whose parameters lie under a name."""

    initialize: Callable[[Generator, str, int, Any], Parameters]  # rng, name, width, dtype
    keys: Callable[[Parameters, str, Tensor], Tensor]  # of all values, once a sequence
    compare: Callable[[Parameters, str, Any, Any], Tensor]  # query with keys, once a step


def _no_parameters(rng: Generator, name: str, n: int, dtype: Any) -> Parameters:
    return {}


def _matrix(rng: Generator, name: str, n: int, dtype: Any) -> Parameters:
    return init_linear(rng, name, n, n, bias=False, dtype=dtype)


def _additive_parameters(rng: Generator, name: str, n: int, dtype: Any) -> Parameters:
    params = _matrix(rng, name, n, dtype) | _matrix(rng, f"{name}.query", n, dtype)
    return params | {f"{name}.v": glorot_uniform(rng, n, 1, dtype)[:, 0]}


def _values_as_keys(params: Parameters, name: str, values: Tensor) -> Tensor:
    return as_tensor(values)


def _scaled_keys(params: Parameters, name: str, values: Tensor) -> Tensor:
    return linear(params, name, values) * values.shape[-1] ** -0.5


def _dot(params: Parameters, name: str, query: Any, keys: Any) -> Tensor:
    return dot_scores(query, keys)


def _additive(params: Parameters, name: str, query: Any, keys: Any) -> Tensor:
    return additive_scores(linear(params, f"{name}.query", query), keys, params[f"{name}.v"])


SCORES: dict[str, Score] = {
    "additive": Score(_additive_parameters, linear, _additive),
    "bilinear": Score(_matrix, linear, _dot),
    "dot": Score(_no_parameters, _values_as_keys, _dot),
    "scaled": Score(_matrix, _scaled_keys, _dot),
}
"""Name → score. The mapping sees only z: every score goes with every mapping."""


def choose_score(name: str) -> Score:
    """The score of a name in :data:`SCORES`; a ValueError tells the names."""
    if name not in SCORES:
        raise ValueError(f"score: expected one of {', '.join(SCORES)}; got {name!r}")
    return SCORES[name]


def weighted_average(weights: Any, values: Any) -> Tensor:
    """Σ_s p_s values_s (Peters et al., Eq. 1)."""
    weights, values = as_tensor(weights), as_tensor(values)

    def vjp(g: Array) -> tuple[Array, GradientProduct]:
        return (values.data @ g[:, :, None])[:, :, 0], GradientProduct(
            weights.data[:, None, :], g[:, None, :]
        )

    average = (weights.data[:, None, :] @ values.data)[:, 0]
    return Tensor(average, parents=(weights, values), vjp=vjp)


def attend(scores: Tensor, memory: Memory, mapping: AttentionMapping) -> tuple[Tensor, Tensor]:
    """The context vectors (B, H) and the attention weights (B, S) of scores (B, S)."""
    weights = mapping(scores, mask=memory.mask)
    return weighted_average(weights, memory.values), weights


LEARNED = "learned"
"""In place of α in a configuration: the attention is α-entmax, and α is a parameter."""


def init_learned_alpha(name: str, dtype: Any = np.float32) -> Parameters:
    """``name.alpha_logit``, of shape (1,): one α for all rows, which starts at 1.5."""
    return {f"{name}.alpha_logit": np.zeros(1, dtype)}


def learned_alpha(params: Parameters, name: str) -> Tensor:
    """α = 1 + σ(a), between softmax and sparsemax, with the parameter a under ``name``.

    References
    ----------
    Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §4 (one α a head).

    Examples
    --------
    >>> learned_alpha(init_learned_alpha("attention"), "attention").data
    array([1.5], dtype=float32)
    """
    return 1 + ops.sigmoid(as_tensor(params[f"{name}.alpha_logit"]))


def learned_entmax(params: Parameters, name: str) -> AttentionMapping:
    """α-entmax with the α under ``name``, which gets a gradient: Σ g ∘ ∂p/∂α over all rows."""

    def mapping(z: Tensor, *, mask: Array | None = None) -> Tensor:
        return MAPPING_OPS["entmax"](z, learned_alpha(params, name), mask=mask)

    return mapping


CONSTRAINED = {"softmax": "csoftmax", "sparsemax": "csparsemax"}
"""Mapping → its twin with upper bounds, for attention within a fertility."""


def within_fertility(scores: Tensor, upper: Any, name: str, mask: Array) -> Tensor:
    """Attention weights that take from each position no more than what is left of its fertility.

    A sink with score 0 and no bound stands beside the source: it takes what the positions may not
    or need not have, so that there is an answer even when all fertility is used up. Its weight is
    left out of the result, whose rows thus sum to at most 1.

    Parameters
    ----------
    scores : (B, S) Tensor
    upper : (B, S) Tensor or array
        Fertility less the attention already spent. Rounding may put it a little under 0.
    name : str
        Of the mapping without bounds, "softmax" or "sparsemax".
    mask : (B, S) bool array

    References
    ----------
    Malaviya, Ferreira and Martins (2018), Sparse and Constrained Attention for Neural Machine
    Translation (fertilities as bounds, and the sink token).

    Examples
    --------
    >>> import numpy as np
    >>> scores, mask = as_tensor(np.array([[3.0, 1.0]])), np.array([[True, True]])
    >>> within_fertility(scores, np.array([[0.5, 1.0]]), "sparsemax", mask).data
    array([[0.5, 0.5]])
    >>> within_fertility(scores, np.array([[0.0, 0.25]]), "sparsemax", mask).data
    array([[0.  , 0.25]])
    >>> within_fertility(scores, np.array([[0.0, 0.0]]), "sparsemax", mask).data
    array([[0., 0.]])
    """
    xp = scores.xp
    column = xp.ones_like(scores.data[:, :1])
    bounds = concatenate([ops.relu(as_tensor(upper)), column])
    allowed = xp.concatenate([mask, column > 0], axis=1)
    with_sink = concatenate([scores, 0 * column])
    return MAPPING_OPS[CONSTRAINED[name]](with_sink, bounds, mask=allowed)[:, :-1]
