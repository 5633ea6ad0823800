"""Attention scores: four ways to compare a query q with a value h.

    dot        hᵀq                     (Luong et al. 2015, §3.1)
    bilinear   hᵀWq                    (Luong et al. 2015, §3.1, "general")
    scaled     hᵀWq / √d               (Vaswani et al. 2017, §3.2.1)
    additive   vᵀ tanh(W₁h + W₂q)      (Bahdanau et al. 2015, A.1.2)

What depends on h alone is computed once per sequence, as its keys: hᵀW, hᵀW/√d and W₁h. A query
then has shape (…, d), keys (…, S, d) and scores (…, S), with the same leading axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.seq2seq.nn.initializers import Generator, Parameters, glorot_uniform
from pyentmax.seq2seq.nn.linear import init_linear, linear
from pyentmax.seq2seq.nn.shared_matrix import shared


def dot_scores(query: Any, keys: Any) -> Tensor:
    """z_s = keys_s · query, for a query (…, d) and keys (…, S, d).

    Examples
    --------
    >>> import numpy as np
    >>> dot_scores(np.array([1.0, 2.0]), np.array([[3.0, 0.0], [0.0, 3.0]])).data
    array([3., 6.])
    """
    query, keys = as_tensor(query), shared(keys)
    return Tensor(
        (keys.data @ query.data[..., None])[..., 0],
        (query, lambda g: (g[..., None, :] @ keys.data)[..., 0, :]),
        (keys, lambda g: [(g[..., None, :], query.data[..., None, :])]),
    )


def additive_scores(query: Any, keys: Any, v: Any) -> Tensor:
    """z_s = v · tanh(keys_s + query), for a query (…, d), keys (…, S, d) and v (d,).

    Query and keys are projected already: W₂q and W₁h.

    Examples
    --------
    >>> import numpy as np
    >>> query, keys = np.array([1.0, 2.0]), np.array([[-1.0, -2.0], [0.0, -2.0]])
    >>> additive_scores(query, keys, np.ones(2)).data.round(3)
    array([0.   , 0.762])
    """
    query, keys, v = as_tensor(query), as_tensor(keys), as_tensor(v)
    hidden = np.tanh(keys.data + query.data[..., None, :])

    def vjp(g: Array) -> tuple[Array, Array, Array]:
        g = g[..., None]
        gradient = g * (v.data * (1 - hidden * hidden))
        rows = tuple(range(hidden.ndim - 1))
        return gradient.sum(axis=-2), gradient, (g * hidden).sum(axis=rows)

    return Tensor(hidden @ v.data, ((query, keys, v), vjp))


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
    keys: Callable[[Parameters, str, Tensor], Tensor]
    compare: Callable[[Parameters, str, Any, Any], Tensor]


def _no_parameters(rng: Generator, name: str, width: int, dtype: Any) -> Parameters:
    return {}


def _matrix(rng: Generator, name: str, width: int, dtype: Any) -> Parameters:
    return init_linear(rng, name, width, width, bias=False, dtype=dtype)


def _additive_parameters(rng: Generator, name: str, width: int, dtype: Any) -> Parameters:
    params = _matrix(rng, name, width, dtype) | _matrix(rng, f"{name}.query", width, dtype)
    return params | {f"{name}.v": glorot_uniform(rng, width, 1, dtype)[:, 0]}


# Every query has a product with the keys: `shared` collects what they send back.
def _values_as_keys(params: Parameters, name: str, values: Tensor) -> Tensor:
    return shared(values)


def _bilinear_keys(params: Parameters, name: str, values: Tensor) -> Tensor:
    return shared(linear(params, name, values))


def _scaled_keys(params: Parameters, name: str, values: Tensor) -> Tensor:
    return shared(linear(params, name, values) * values.shape[-1] ** -0.5)


def _dot(params: Parameters, name: str, query: Any, keys: Any) -> Tensor:
    return dot_scores(query, keys)


def _additive(params: Parameters, name: str, query: Any, keys: Any) -> Tensor:
    return additive_scores(linear(params, f"{name}.query", query), keys, params[f"{name}.v"])


SCORES: dict[str, Score] = {
    "additive": Score(_additive_parameters, linear, _additive),
    "bilinear": Score(_matrix, _bilinear_keys, _dot),
    "dot": Score(_no_parameters, _values_as_keys, _dot),
    "scaled": Score(_matrix, _scaled_keys, _dot),
}
"""Name → score. The mapping sees only z, so every score goes with every mapping."""


def choose_score(name: str) -> Score:
    """The score with a name in :data:`SCORES`; for another name, an error that lists them."""
    if name not in SCORES:
        raise ValueError(f"score: expected one of {', '.join(SCORES)}; got {name!r}")
    return SCORES[name]
