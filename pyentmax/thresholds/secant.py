"""Probabilities of α-entmax by secants, for α above 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.thresholds.bisection import MaxProbability, below_p_max
from pyentmax.thresholds.threshold import MAX_PASSES, row_sums


def secant_p_max(y: Any, beta: Any) -> MaxProbability:
    """The result of `bisect_p_max`, by secants in a bracket of q = p_max, as in the CPU kernel.

    Σ p_i(q) rises with q, and 1/d ≤ q ≤ 1 encloses the root: each pass moves one end to where the
    straight line through both ends is 1, but by more than the rounding of q, so that the bracket
    closes from both sides. A secant that did not halve the bracket is followed by a bisection: at
    most two passes per bit, 2 log₂(d/2ε) + 2 in total. For α near 2 about a third of that is
    needed; the larger α is, the more the sum resembles a step function, which secants cannot
    follow. q is float64 for every dtype of y.

    Examples
    --------
    >>> p, p_max, passes = secant_p_max(np.array([0.0, -1e-3]), np.array([3.0]))
    >>> print(np.round(p, 6), passes)
    [0.502 0.498] 10
    """
    narrow = 2 * float(np.finfo(y.dtype).eps)

    def total_at(q: Any) -> Any:
        return row_sums(below_p_max(y, q.astype(y.dtype), beta))[0].astype(np.float64)

    high = np.ones_like(y[..., :1], dtype=np.float64)
    low = high / y.shape[-1]
    low_total, high_total, passes = total_at(low), total_at(high), 2
    halve = high < low
    while passes < 2 * MAX_PASSES and (open_ := high - low > narrow * high).any():
        width, min_step = high - low, narrow / 3 * high
        with np.errstate(invalid="ignore", divide="ignore"):  # in rows that have converged
            secant = low + (1 - low_total) / (high_total - low_total) * width
        q = np.where(halve, low + width / 2, np.clip(secant, low + min_step, high - min_step))
        total = total_at(q)
        enough = open_ & (total >= 1)
        short = open_ & (total < 1)
        high, high_total = np.where(enough, q, high), np.where(enough, total, high_total)
        low, low_total = np.where(short, q, low), np.where(short, total, low_total)
        halve = ~halve & (high - low > width / 2)
        passes += 1
    p_low, p_high = (below_p_max(y, q.astype(y.dtype), beta) for q in (low, high))
    gap = high_total - low_total
    share = np.clip((1 - low_total) / np.where(gap > 0, gap, 1), 0, 1).astype(y.dtype)
    return MaxProbability(p_low + share * (p_high - p_low), high.astype(y.dtype), passes)
