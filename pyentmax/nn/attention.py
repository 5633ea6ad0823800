"""Attention: scores of a query against keys, a mapping to weights, an average of values.

Shapes: query (B, H), keys and values (B, S, H), weights (B, S). Both contractions are single
operations on the tape, because a decoder runs them at every step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..autograd import Tensor, as_tensor
from ..autograd.tensor import Array
from .mapping_choice import ChosenMapping


class Memory(NamedTuple):
    """What a decoder attends to."""

    keys: Any  # (B, S, H), compared with the query
    values: Any  # (B, S, H), averaged
    mask: Array  # (B, S), True where there is a token


def dot_scores(query: Any, keys: Any) -> Tensor:
    """z_s = keys_s · query (Luong et al. 2015, "dot").

    With keys = memory Wᵀ this is the bilinear score queryᵀ W memory, and the product with W is
    done once a sequence instead of once a step.
    """
    query, keys = as_tensor(query), as_tensor(keys)

    def vjp(g: Array) -> tuple[Array, Array]:
        return (g[:, None, :] @ keys.data)[:, 0], g[:, :, None] * query.data[:, None, :]

    scores = (keys.data @ query.data[:, :, None])[:, :, 0]
    return Tensor(scores, parents=(query, keys), vjp=vjp)


def weighted_average(weights: Any, values: Any) -> Tensor:
    """Σ_s p_s values_s (Peters et al., Eq. 1)."""
    weights, values = as_tensor(weights), as_tensor(values)

    def vjp(g: Array) -> tuple[Array, Array]:
        return (values.data @ g[:, :, None])[:, :, 0], weights.data[:, :, None] * g[:, None, :]

    average = (weights.data[:, None, :] @ values.data)[:, 0]
    return Tensor(average, parents=(weights, values), vjp=vjp)


def attend(query: Any, memory: Memory, mapping: ChosenMapping) -> tuple[Tensor, Tensor]:
    """The context vector (B, H) and the attention weights (B, S) of a query (B, H)."""
    weights = mapping(dot_scores(query, memory.keys), mask=memory.mask)
    return weighted_average(weights, memory.values), weights
