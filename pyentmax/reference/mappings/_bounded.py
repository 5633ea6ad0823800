"""Common parts of the mappings with an upper bound on each probability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# How often scores are shifted again: each time removes the full entries of one more scale. A scale
# is as wide as a significand, so that float64 has 2 · 2098/53 of them at most, and float32 fewer.
# On a device, where testing for another would synchronise, more than a few are not worth the time.
_MAX_SHIFTS, _DEVICE_SHIFTS = 80, 3


def full_entries(p: Any, upper: Any) -> Any:
    """Where p is at its bound; False in masked entries and in rows that are all masked."""
    return (p >= upper) & np.any(p > 0, axis=-1, keepdims=True)


def solve_shifted(z: Any, upper: Any, solve: Callable[[Any], Any]) -> Any:
    """p = solve(y), where y is z minus the largest score whose p is below its bound.

    If all entries with higher scores are full, an entry gets probability however low its score is.
    Relative to a full entry the score would lose digits, or overflow. Which entries are full only p
    shows. So the first solve is relative to the largest score with a bound above 0, and it is
    repeated as long as that entry is full and more than 1 above all that are not full. (A smaller
    gap costs no digits that p could show.) Masked entries have a bound of 0 and the score 0.
    """
    allowed = upper > 0
    z = np.where(allowed, z, 0)

    def solved(shift: Any) -> Any:
        with np.errstate(over="ignore"):
            most = np.finfo(z.dtype).max
            return solve(np.where(allowed, np.clip(z - shift, -most, most), 0))

    shift = np.max(np.where(allowed, z, -np.inf), axis=-1, keepdims=True)
    shift = np.where(shift > -np.inf, shift, 0)
    p = solved(shift)
    for _ in range(_MAX_SHIFTS if isinstance(z, np.ndarray) else _DEVICE_SHIFTS):
        open_top = np.max(np.where(allowed & (p < upper), z, -np.inf), axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            lower = (open_top > -np.inf) & (shift - open_top > 1)
        if isinstance(z, np.ndarray) and not lower.any():
            break
        shift = np.where(lower, open_top, shift)
        p = solved(shift)
    return p


def gradient_in_bounds(p: Any, g: Any, s: Any, active: Any) -> Any:
    """The gradient of Σ g ∘ p in the bounds.

    Where a bound is active, p moves with it one to one, and the free entries compensate in
    proportion to s, their share of a change of the threshold: g_i minus the mean of g under s.
    """
    total = np.sum(s, axis=-1, keepdims=True)
    weighted = np.sum(s * np.where(s != 0, g, 0), axis=-1, keepdims=True)  # g is unused elsewhere
    mean = weighted / np.where(total == 0, 1, total)
    return np.where(np.isnan(p), p, np.where(active, g - mean, 0))
