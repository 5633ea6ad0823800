"""The k-th largest score of a row, without a sort.

The bits of a float, read as an unsigned integer, rise with it if it is positive. So a float has
digits like any number, and its place among others is found digit by digit. For NumPy arrays: the
bits are looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.thresholds.pruning import chunk_maxima
from pyentmax.thresholds.threshold import as_scores

DIGIT_BITS = 8


class Selection(NamedTuple):
    """The k-th largest score of each row, shape batch + (1,), and the passes taken."""

    score: Any
    passes: int


def radix_select(x: Any, k: Any) -> Selection:
    """The k-th largest score, 1 ≤ k ≤ d, its digits found from the highest on.

    Each pass counts how often each digit occurs, and keeps the scores that share the digit of the
    k-th; those with a higher digit are larger, and k is less by their number. As many passes as a
    float has bytes, whatever the row holds: O(d). k is one for all rows, or one per row with a last
    axis of 1.

    Examples
    --------
    >>> print(radix_select(np.array([3.0, -1.0, 7.0, 3.0]), 2).score)
    [3.]
    """
    x = as_scores(x)
    shape, x = (*x.shape[:-1], 1), x.reshape(-1, x.shape[-1])
    keys = rising_keys(x)
    k = np.broadcast_to(k, shape).reshape(-1, 1)
    kept, passes, row = np.ones_like(x, dtype=bool), 0, np.arange(len(x))[:, None]
    for shift in range(8 * x.itemsize - DIGIT_BITS, -1, -DIGIT_BITS):
        passes += 1
        digits = (keys >> np.array(shift, keys.dtype)).astype(np.intp) % (1 << DIGIT_BITS)
        count = np.zeros((len(x), 1 << DIGIT_BITS), np.intp)
        np.add.at(count, (row, digits), kept)
        above = np.cumsum(count[:, ::-1], axis=-1)[:, ::-1] - count  # how many have a higher digit
        digit = np.argmax(above < k, axis=-1)[:, None]
        k = k - np.take_along_axis(above, digit, axis=-1)
        kept &= digits == digit
        if (np.sum(kept, axis=-1) == 1).all():
            break
    score = np.max(np.where(kept, x, -np.inf), axis=-1)
    return Selection(score.reshape(shape).astype(x.dtype, copy=False), passes)


def kth_largest(x: Any, k: Any, chunk: int = 256, lanes: int = 16) -> Selection:
    """The k-th largest score, 1 ≤ k ≤ d, as the CPU kernel finds it: most of a long row is skipped.

    The k-th largest of the chunks' maxima has k scores at or above itself, so it is a lower bound,
    and only the scores beyond it go on to `radix_select`. If they are fewer than k, it is the k-th
    largest score itself, several times over.

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
    """The k-th largest score, 1 ≤ k ≤ d, as the GPU kernel finds it: bisection on a float's bits.

    The distance max x − x_i ≥ 0 is one whose bits rise with it. So the k-th smallest distance is
    found by halving a bracket of integers: one pass per bit of the dtype, and no more as soon as
    exactly k distances are within its middle. Two scores at one rounded distance are tied.

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
    """A float's bits as an unsigned integer that rises with it: those below 0 are reversed."""
    bits = x.view(f"u{x.itemsize}")
    sign = np.array(1, bits.dtype) << np.array(8 * x.itemsize - 1, bits.dtype)
    return np.where(bits & sign, ~bits, bits | sign)
