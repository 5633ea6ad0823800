"""Attention of one query per row of a batch, as a recurrent decoder needs it at every step.

With scores z of the query against keys k_s and a mapping π,

    p = π(z)        c = Σ_s p_s h_s        (Peters et al. 2019, Eq. 1)

Shapes: scores and weights (…, S), keys and values (…, S, d), context (…, d). Each contraction is a
single operation on the tape, because a decoder runs them once per output token.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.seq2seq.nn.shared_matrix import shared


class AttentionMapping(Protocol):
    """A function from scores to weights over the last axis, such as `choose_mapping` gives."""

    def __call__(self, scores: Tensor, /, *, mask: Array | None = None) -> Tensor:
        """The weights; ``mask`` is True where there may be one above zero."""


class Memory(NamedTuple):
    """What a decoder attends to.

    Attributes
    ----------
    keys : (…, S, d) Tensor or array
        Compared with the query.
    values : (…, S, d) Tensor or array
        Averaged.
    mask : (…, S) bool array
        True where there is a token.
    """

    keys: Any
    values: Any
    mask: Array


def weighted_average(weights: Any, values: Any) -> Tensor:
    """c = Σ_s p_s h_s, for weights (…, S) and values (…, S, d).

    Examples
    --------
    >>> import numpy as np
    >>> weighted_average(np.array([0.25, 0.75]), np.array([[4.0, 0.0], [0.0, 4.0]])).data
    array([1., 3.])
    """
    weights, values = as_tensor(weights), shared(values)
    return Tensor(
        (weights.data[..., None, :] @ values.data)[..., 0, :],
        (weights, lambda g: (values.data @ g[..., None])[..., 0]),
        (values, lambda g: [(weights.data[..., None, :], g[..., None, :])]),
    )


def attend(scores: Tensor, memory: Memory, mapping: AttentionMapping) -> tuple[Tensor, Tensor]:
    """The context vectors (…, d) and the attention weights (…, S) of scores (…, S).

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.seq2seq.autograd import sparsemax
    >>> h = np.array([[4.0, 0.0], [0.0, 4.0], [1.0, 1.0]])
    >>> memory = Memory(keys=h, values=h, mask=np.array([True, True, False]))
    >>> context, weights = attend(as_tensor(np.array([0.5, 0.0, 9.0])), memory, sparsemax)
    >>> weights.data, context.data
    (array([0.75, 0.25, 0.  ]), array([3., 1.]))
    """
    weights = mapping(scores, mask=memory.mask)
    return weighted_average(weights, memory.values), weights
