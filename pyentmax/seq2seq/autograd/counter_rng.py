"""Counter-based random bits: each is a function of a seed and of its place, without any state.

A GPU computes them where they are used, in a few passes over the array and with no generator to set
up; the host draws only the seed. For arrays on the host, NumPy's generators are faster.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

_STEP = 0x9E3779B97F4A7C15  # 2⁶⁴ divided by the golden ratio
_MIXES = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def random_bits(seed: int, shape: tuple[int, ...], xp: ModuleType = np) -> Any:
    """64 random bits per place: what SplitMix64 (Steele et al. 2014) draws, starting from a seed.

    The i-th number is a bijective mix of seed + i · step modulo 2⁶⁴. So all places are computed at
    once, and every array module ``xp`` computes the same uint64 array. The seed is below 2⁶⁴.

    Examples
    --------
    >>> [hex(x) for x in random_bits(0, (2,)).tolist()]
    ['0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4']
    """
    bits = xp.arange(1, math.prod(shape) + 1, dtype=np.uint64)
    bits *= np.uint64(_STEP)
    bits += np.uint64(seed)
    for shift, factor in _MIXES:
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return bits.reshape(shape)
