"""When multi-head attention goes over the support of its weights.

`pyentmax.seq2seq.autograd.attention` stores only the weights that are not zero, never an array of
all of them. That pays from about 128 queries and keys on: half the time of training with 256
(1.5-entmax, 5% of the weights not zero) and a fifth with 1,024. In decoding, with a query at a
time, it pays from 1,024 keys on. These calls use the products of
whole matrices in `heads`, which take fewer steps:

- shorter inputs, such as sentences,
- attention whose weights are requested,
- dropout of the weights,
- additive scores, which are not products of queries with keys,
- softmax and α-entmax below 1, which have no zeros, and top-k with more than a quarter of the keys,
- mappings whose derivative is not that of α-entmax on the support: fusedmax, oscarmax, normmax, the
  bounded ones, and bisection, where the algorithm itself is studied,
- an α per query,
- arrays on a device, and an installation without compiled kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends import choice
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.seq2seq.autograd.sparse_attention import attention
from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.seq2seq.nn.attention.alpha import LearnedEntmax
from pyentmax.seq2seq.nn.attention.heads import merge_heads, split_heads
from pyentmax.seq2seq.nn.attention.single_query import AttentionMapping
from pyentmax.seq2seq.nn.bisection import bisection
from pyentmax.seq2seq.nn.mapping_choice import ChosenMapping
from pyentmax.sparse_attention.few_queries import FEW
from pyentmax.sparse_attention.route import MANY_KEYS, is_short


def sparse_arguments(
    mapping: AttentionMapping, heads: int, query: Array, keys: Array
) -> dict[str, Any] | None:
    """The arguments of `autograd.attention` for a mapping; None if whole products are faster.

    Examples
    --------
    >>> from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
    >>> long, short = np.zeros((256, 8), np.float32), np.zeros((20, 8), np.float32)
    >>> arguments = sparse_arguments(choose_mapping(1.5), 2, long, long)
    >>> arguments in ({"alpha": 1.5}, None)  # None without kernels
    True
    >>> sparse_arguments(choose_mapping(1.5), 2, short, short)
    """
    shape = query.shape[-2], keys.shape[-2]
    short = is_short(shape, caller="tape") and not (shape[0] <= FEW and shape[1] >= MANY_KEYS)
    if type(query) is not np.ndarray or short or not choice.kernels():
        return None
    if isinstance(mapping, LearnedEntmax):
        alpha = mapping.alpha()
        if alpha.shape not in ((), (1,), (1, 1), (heads, 1)):
            return None
        return {"alpha": alpha.reshape(alpha.shape[:-1])}
    if not isinstance(mapping, ChosenMapping) or mapping.name == bisection.name:
        return None
    if MAPPINGS[mapping.name].parameters == ("k",):
        (k,) = mapping.params
        return {"mapping": mapping.name, "k": k} if 4 * k <= keys.shape[-2] else None
    return None if mapping.alpha is None or mapping.alpha <= 1 else {"alpha": mapping.alpha}


def can_screen(mapping: AttentionMapping, heads: int, query: Array, keys: int) -> bool:
    """Whether attention of queries (…, T, n) to so many keys takes these as `ScreenedRows`."""
    arguments = sparse_arguments(mapping, heads, query, np.empty((keys, 0)))
    if arguments is None or query.shape[-2] > FEW or "alpha" not in arguments:
        return False
    alpha = as_tensor(arguments["alpha"]).data
    return bool(((alpha > 1) & (alpha <= 2)).all())


def sparse_head_averages(
    query: Any, keys: Any, values: Any, heads: int, **arguments: Any
) -> Tensor:
    """Σ_s p_s v_s in every head, (…, T, n), for queries (…, T, n), keys and values (…, S, n).

    Examples
    --------
    >>> query, keys = np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, 4.0]])
    >>> sparse_head_averages(query, keys, keys, heads=2, scale=1.0, alpha=2).data
    array([[3., 4.]])
    """
    split = (split_heads(as_tensor(x), heads) for x in (query, keys, values))
    return merge_heads(attention(*split, **arguments))
