"""The k-th largest score of a row, without a sort.

The bits of a float, read as an unsigned integer, rise with it if it is positive. So floats can be
ranked digit by digit, as in a radix sort. For NumPy arrays only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.thresholds.pruning import chunk_maxima
from pyentmax.reference.thresholds.threshold import as_scores

DIGIT_BITS = 8


class Selection(NamedTuple):
    """The k-th largest score of each row, shape batch + (1,), and the passes taken."""

    score: Any
    passes: int


def radix_select(x: Any, k: Any) -> Selection:
    """The k-th largest score, 1 ≤ k ≤ d, by its digits from the most significant on.

    Each pass counts the occurrences of each digit and keeps the scores that share the digit of the
    k-th largest; k decreases by the number of scores with a higher digit. There are as many passes
    as a float has bytes, for every row: O(d). k is a number, or one per row with a last axis of 1.

    Examples
    --------
    >>> print(radix_select(np.array([3.0, -1.0, 7.0, 3.0]), 2).score)
    [3.]
    """
    x = as_scores(x)
    shape, x = (*x.shape[:-1], 1), x.reshape(-1, x.shape[-1])
    keys = rising_keys(x)
    k = np.broadcast_to(k, shape).reshape(-1, 1)
    candidates, passes, row = np.ones_like(x, dtype=bool), 0, np.arange(len(x))[:, None]
    for shift in range(8 * x.itemsize - DIGIT_BITS, -1, -DIGIT_BITS):
        passes += 1
        digits = (keys >> np.array(shift, keys.dtype)).astype(np.intp) % (1 << DIGIT_BITS)
        count = np.zeros((len(x), 1 << DIGIT_BITS), np.intp)
        np.add.at(count, (row, digits), candidates)
        above = np.cumsum(count[:, ::-1], axis=-1)[:, ::-1] - count  # those with a higher digit
        digit = np.argmax(above < k, axis=-1)[:, None]
        k = k - np.take_along_axis(above, digit, axis=-1)
        candidates &= digits == digit
        if (np.sum(candidates, axis=-1) == 1).all():
            break
    score = np.max(np.where(candidates, x, -np.inf), axis=-1)
    return Selection(score.reshape(shape).astype(x.dtype, copy=False), passes)


def kth_largest(x: Any, k: Any, chunk: int = 256, lanes: int = 16) -> Selection:
    """The k-th largest score, 1 ≤ k ≤ d, as in the CPU kernel: most of a long row is skipped.

    At least k scores reach the k-th largest of the chunks' maxima, so this is a lower bound, and
    `radix_select` gets only the scores above it. If these are fewer than k, the bound itself is
    the k-th largest score.

    Examples
    --------
    >>> print(kth_largest(np.array([3.0, -1.0, 7.0, 3.0]), 2).score)
    [3.]
    """
    x = as_scores(x)
    maxima = chunk_maxima(x, chunk, lanes)
    k = np.broadcast_to(k, (*x.shape[:-1], 1))
    bound, passes = radix_select(maxima, np.minimum(k, maxima.shape[-1]))
    bound = np.where(k <= maxima.shape[-1], bound, -np.inf).astype(x.dtype)
    beyond = np.sum(x > bound, axis=-1, keepdims=True)
    score, more = radix_select(np.where(x > bound, x, -np.inf).astype(x.dtype), k)
    return Selection(np.where(beyond < k, bound, score), 1 + passes + more)


def bisect_kth_largest(x: Any, k: Any) -> Selection:
    """The k-th largest score, 1 ≤ k ≤ d, as in the GPU kernel: by bisection on the bits of a float.

    The distance max x − x_i is never negative, so its bits rise with it. The k-th smallest distance
    is found by halving a bracket of integers: one pass per bit of the dtype, fewer if exactly k
    distances lie within its middle. Scores with the same rounded distance are tied.

    Examples
    --------
    >>> print(bisect_kth_largest(np.array([3.0, -1.0, 7.0, 3.0]), 2).score)
    [3.]
    """
    x = as_scores(x)
    distance = np.max(x, axis=-1, keepdims=True) - x
    bits = distance.view(f"u{x.itemsize}")
    nearest = np.zeros_like(bits[..., :1])
    farthest = nearest + np.array(np.inf, x.dtype).view(bits.dtype)
    moving, passes = k < np.full(nearest.shape, x.shape[-1]), 0
    while moving.any():
        middle = nearest + (farthest - nearest) // 2
        within = np.sum(bits <= middle, axis=-1, keepdims=True)
        nearest = np.where(moving & (within < k), middle + 1, nearest)
        farthest = np.where(moving & (within >= k), middle, farthest)
        moving = moving & (nearest < farthest) & (within != k)
        passes += 1
    score = np.min(np.where(bits <= farthest, x, np.inf), axis=-1, keepdims=True)
    return Selection(score.astype(x.dtype, copy=False), max(passes, 1))


def rising_keys(x: Any) -> Any:
    """A float's bits as an unsigned integer that rises with it: inverted for negative floats."""
    bits = x.view(f"u{x.itemsize}")
    sign = np.array(1, bits.dtype) << np.array(8 * x.itemsize - 1, bits.dtype)
    return np.where(bits & sign, ~bits, bits | sign)


def number_at(keys: Any) -> Any:
    """The floats of `rising_keys`."""
    sign = np.array(1, keys.dtype) << np.array(8 * keys.itemsize - 1, keys.dtype)
    return np.where(keys & sign, keys ^ sign, ~keys).view(f"f{keys.itemsize}")
