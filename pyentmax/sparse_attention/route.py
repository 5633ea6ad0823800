"""Whether attention multiplies whole matrices, or sums over the support of its weights.

Both give the same numbers. Products of whole matrices take T · S steps of a fast kind, sums over
the support a few of a slow kind, and some work for each tile before. The numbers here were measured
with `benchmarks/attention.py`, and on a GPU with `benchmarks/gpu_attention.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

# Above this density of weights whole matrices are faster, forward and backward, within a tile.
DENSE = 0.4
# Above this number of scores of a head, T · S, sums over the support are faster: for PyTorch's
# tensors, and for the tape, whose other operations each make an array of all scores.
LEAST_SCORES = {"tensors": 1 << 16, "tape": 1 << 14}
# The least number of keys for which few queries of tensors take the kernel for few queries. Its
# time relative to whole matrices (AVX2): with 8 heads 1.3 for 256 keys, 1 for 512 and 0.7 for
# 1,024; with 32 heads 0.95 for 256 and 0.75 for 512.
MANY_KEYS = 1024
CAUSAL = 4  # causal attention needs a fourth of these scores
# The share of a GPU's memory that an array of all scores may take: products of whole matrices are
# 1.5 to 10 times as fast there (docs/results/gpu.md). Gradients need a few such arrays at a time.
SHARE_OF_MEMORY = 1 / 128


def is_short(
    shape: tuple[int, ...],
    causal: bool = False,
    caller: str = "tensors",
    memory: int | None = None,
    known: Callable[[Any], bool] = bool,
) -> bool:
    """Whether whole matrices are faster for scores of this shape, (…, T, S), and fit.

    Parameters
    ----------
    shape, causal
    caller : {"tensors", "tape"}
    memory : int, optional
        bytes of a GPU's memory
    known : callable
        whether a comparison of sizes, which a graph may leave open, is known to be true

    Examples
    --------
    >>> is_short((8, 100, 100)), is_short((8, 1000, 1000)), is_short((8, 1, 1000))
    (True, False, True)
    """
    *batch, queries, keys = shape
    if memory is not None:
        few = 4 * math.prod(batch) * queries * keys <= memory * SHARE_OF_MEMORY
    else:
        few = queries * keys < LEAST_SCORES[caller] // (CAUSAL if causal else 1)
    return known(few) or (caller == "tensors" and known(queries == 1))
