"""Attention whose weights are sparse, at a cost that follows their support.

For queries Q, keys K and values V, attention is three lines:

    S = scale · Q Kᵀ + bias  scores, a row for each query
    P = π(S)                weights: a mapping of `pyentmax.MAPPINGS`, row by row
    O = P V                 the output

`dense` computes them, and their derivatives. But P has T · S entries, and if π is sparse nearly all
of them are zeros that neither O nor any gradient needs. So `tiles` goes through S one tile of
queries after the other, while the tile lies in the processor's cache, and stores only the weights
that are not zero (`weights`). From then on, forward and backward, time and memory follow the
support. Heads with few zeros go to `dense` instead, and store no weights, as do CuPy's arrays. A
few queries, as in decoding, need no tiles: `few_queries` goes over the keys as they lie, and
`screened_rows` proves of most keys, from copies of 8 bits, that they need not be read.
"""

from pyentmax.sparse_attention.bias import DistanceBias
from pyentmax.sparse_attention.entmax_linear import entmax_linear
from pyentmax.sparse_attention.exact_heads import (
    linear_argmax,
    linear_min_p,
    linear_sample,
    linear_top_k,
)
from pyentmax.sparse_attention.functions import (
    attention,
    attention_vjp,
    attention_vjp_alpha,
)
from pyentmax.sparse_attention.screened_rows import ScreenedRows
from pyentmax.sparse_attention.weights import AttentionWeights

__all__ = [
    "AttentionWeights",
    "DistanceBias",
    "ScreenedRows",
    "attention",
    "attention_vjp",
    "attention_vjp_alpha",
    "entmax_linear",
    "linear_argmax",
    "linear_min_p",
    "linear_sample",
    "linear_top_k",
]
