"""Probabilities of α-entmax by Newton's method, for α above 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.reference.thresholds.bisection import MaxProbability
from pyentmax.reference.thresholds.threshold import MAX_PASSES, row_sums


def newton_p_last(y: Any, beta: Any) -> MaxProbability:
    """The result of `bisect_p_max`, by Newton's method in the smallest p, as in the CPU kernel.

    With x = βy and t = −τ, p_i = (x_i + t)^{1/β}. Σ p_i is neither convex nor concave in t, but
    convex in v, the p of the last entry of the support, as long as none enters or leaves: so
    Newton's steps end at or above the root, v (1 − (Σ p − 1)/(u Σ p/u)) with u = v^β. A step below
    0 tells that the last entry is no part of the support. Then t jumps to what the slope of
    log Σ p in log t aims at, or every third time halfway down to a known bound, but not above where
    that entry enters. t is kept as an anchor, the place where an entry enters, and what is beyond
    it, which has all digits where one ulp of t would be a large part of p. Most rows take three to
    six passes.

    Examples
    --------
    >>> p, p_max, passes = newton_p_last(np.array([0.0, -1e-3]), np.array([3.0]))
    >>> print(np.round(p, 6), passes)
    [0.502 0.498] 2
    """
    eps = float(np.finfo(y.dtype).eps)
    lowest = -900.0 if y.dtype == np.float64 else -100.0
    least_u = y.dtype.type(2.0**lowest)
    beta = np.asarray(beta, y.dtype)
    x = np.maximum(beta * y, -2)  # what is below −1 is in no support
    low = np.exp2(np.maximum(-beta * np.log2(y.shape[-1]) - 16 * eps, lowest)).astype(y.dtype)
    low, high = low + np.zeros_like(y[..., :1]), np.ones_like(y[..., :1])
    near = x > -1
    size = np.sum(near, axis=-1, keepdims=True).astype(y.dtype)
    alike = np.exp2(np.maximum(-beta * np.log2(size), lowest))  # t if all of them were equal
    mean = np.sum(np.where(near, x, 0), axis=-1, keepdims=True) / size
    anchor, beyond, shift = np.clip(alike - mean, low, high), 0 * low, 0 * low
    moving, passes = low > 0, 0
    while moving.any() and passes < 2 * MAX_PASSES:
        u = (x + anchor) + beyond
        in_support, u = u > 0, np.maximum(u, least_u)
        p = np.where(in_support, u ** (1 / beta), 0)
        total, slope = row_sums(p)[0], np.sum(p / u, axis=-1, keepdims=True)
        over, t = total - 1, anchor + beyond
        kink = -np.min(np.where(in_support, x, 0), axis=-1, keepdims=True)
        u_last = np.maximum((anchor - kink) + beyond, least_u)  # closer ones tie
        shift = np.where(moving, over / slope, shift)
        part = shift / u_last
        fits, is_low = part < 1, over < 0
        close = over**2 * (beta - 1) <= 2 * eps * (slope * u_last)
        there = (fits & ~is_low & (close | (u_last <= least_u))) | (np.abs(over) <= 4 * eps)
        moving = moving & ~there
        low = np.where(moving & is_low, np.maximum(low, t), low)
        high = np.where(moving & ~is_low, np.where(fits, t, kink), high)
        if passes % 3 == 2:
            aimed = np.sqrt(low) * np.sqrt(kink)
        else:
            aimed = t * np.exp2(np.maximum(-beta * total / (t * slope) * np.log2(total), lowest))
        jump = np.minimum(np.maximum(aimed, low * (1 + 2 * eps)), kink)
        further = np.maximum(u_last * np.where(fits, 1 - part, 0) ** beta, least_u)
        next_anchor, next_beyond = np.where(fits, kink, jump), np.where(fits, further, 0)
        above = is_low & (next_anchor + next_beyond >= high)
        anchor = np.where(moving, np.where(above, high, next_anchor), anchor)
        beyond = np.where(moving, np.where(above, 0, next_beyond), beyond)
        passes += 1
    # What t is still too large by is taken off along the tangent of each p.
    u = (x + anchor) + beyond
    in_support, u = u > 0, np.maximum(u, least_u)
    p = np.where(in_support, u ** (1 / beta), 0)
    p = np.maximum(p - p * (shift / u), 0)
    p = p / np.where(anchor + beyond <= 2 * least_u, row_sums(p)[0], 1)
    return MaxProbability(p, np.max(p, axis=-1, keepdims=True), passes)
