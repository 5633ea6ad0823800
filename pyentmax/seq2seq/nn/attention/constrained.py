"""Constrained attention: no source position gets more than its fertility over all steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd.mappings import MAPPING_OPS
from pyentmax.seq2seq.autograd.ops import concatenate, relu
from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor

CONSTRAINED = {"softmax": "csoftmax", "sparsemax": "csparsemax"}
"""Mapping → its counterpart with upper bounds."""


def constrained_attention(scores: Tensor, upper: Any, name: str, mask: Array) -> Tensor:
    """Attention weights bounded by what is left of each position's fertility.

    A sink with score 0 and no bound stands next to the source. It takes the weight that the
    positions may not or need not have, so that there is an answer even when all fertility is used
    up. The weight of the sink is left out of the result, whose rows thus sum to at most 1.

    Parameters
    ----------
    scores : (…, S) Tensor
        The weights have the same shape.
    upper : (…, S) Tensor or array
        Fertility minus coverage, the attention already spent. Rounding may put it slightly below 0.
    name : str
        Of the mapping without bounds, "softmax" or "sparsemax".
    mask : (…, S) bool array
        True where a position may get weight.

    References
    ----------
    Malaviya, Ferreira and Martins (2018), Sparse and Constrained Attention for Neural Machine
    Translation (fertilities as bounds, and the sink token).

    Examples
    --------
    >>> import numpy as np
    >>> scores, mask = as_tensor(np.array([[3.0, 1.0]])), np.array([[True, True]])
    >>> constrained_attention(scores, np.array([[0.5, 1.0]]), "sparsemax", mask).data
    array([[0.5, 0.5]])
    >>> constrained_attention(scores, np.array([[0.0, 0.25]]), "sparsemax", mask).data
    array([[0.  , 0.25]])
    >>> constrained_attention(scores, np.array([[0.0, 0.0]]), "sparsemax", mask).data
    array([[0., 0.]])
    """
    sink = np.ones_like(scores.data[..., :1])
    bounds = concatenate([relu(as_tensor(upper)), sink])
    allowed = np.concatenate([mask, sink > 0], axis=-1)
    weights = MAPPING_OPS[CONSTRAINED[name]](concatenate([scores, 0 * sink]), bounds, mask=allowed)
    return weights[..., :-1]
