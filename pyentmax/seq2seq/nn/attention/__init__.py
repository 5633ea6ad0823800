"""Attention: scores of queries against keys, a mapping to weights, an average of the values.

``scores`` compares a query with keys, ``single_query`` averages values for one query (a recurrent
decoder's step), ``multi_head`` for many queries and several heads at once (a Transformer's layer),
``heads`` has the products of all heads, ``sparse`` the path of long inputs over the support alone,
``alpha`` makes α a parameter, and ``constrained`` bounds the weights of a position.
"""

from pyentmax.seq2seq.nn.attention.alpha import (
    LEARNED,
    init_learned_alpha,
    learned_alpha,
    learned_entmax,
)
from pyentmax.seq2seq.nn.attention.constrained import CONSTRAINED, constrained_attention
from pyentmax.seq2seq.nn.attention.heads import merge_heads, split_heads
from pyentmax.seq2seq.nn.attention.multi_head import (
    HEAD_SCORES,
    attend_heads,
    causal_mask,
    init_multi_head_attention,
    keys_and_values,
    multi_head_attention,
    scaled_dot_product_attention,
)
from pyentmax.seq2seq.nn.attention.scores import SCORES, additive_scores, choose_score, dot_scores
from pyentmax.seq2seq.nn.attention.single_query import (
    AttentionMapping,
    Memory,
    attend,
    weighted_average,
)

__all__ = [
    "CONSTRAINED",
    "HEAD_SCORES",
    "LEARNED",
    "SCORES",
    "AttentionMapping",
    "Memory",
    "additive_scores",
    "attend_heads",
    "attend",
    "causal_mask",
    "choose_score",
    "constrained_attention",
    "dot_scores",
    "init_learned_alpha",
    "init_multi_head_attention",
    "keys_and_values",
    "learned_alpha",
    "learned_entmax",
    "merge_heads",
    "multi_head_attention",
    "scaled_dot_product_attention",
    "split_heads",
    "weighted_average",
]
