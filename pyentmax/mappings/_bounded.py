"""What mappings with an upper bound on each probability share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# How often scores are shifted anew: each time takes one more scale of full entries off. A scale is
# as wide as a significand, so that float64 has 2 · 2098/53 of them at most, and float32 fewer. On
# a device, where nobody looks whether another is left, rows with more than a few are not worth it.
_SHIFTS, _SHIFTS_UNSEEN = 80, 3


def full_entries(p: Any, upper: Any) -> Any:
    """Where p is at its bound; nowhere if masked, or in a row with nothing left."""
    return (p >= upper) & np.any(p > 0, axis=-1, keepdims=True)


def solve_shifted(z: Any, upper: Any, solve: Callable[[Any], Any]) -> Any:
    """p = solve(y), y = z less the largest score of which p is below its bound.

    Where all that scores more is full, an entry gets probability however low its score. Relative to
    a full entry it would lose its digits, or overflow. Which are full is seen in p: so solve with
    the largest score of a bound above 0 at 0 first, and again as long as that entry turns out to be
    full and far above all that are not. Less than 1 apart no digit is lost that p could show.
    Entries that are ruled out have a bound of 0, and stand at 0.
    """
    there = upper > 0
    z = np.where(there, z, 0)

    def solved(shift: Any) -> Any:
        with np.errstate(over="ignore"):
            most = np.finfo(z.dtype).max
            return solve(np.where(there, np.clip(z - shift, -most, most), 0))

    shift = np.max(np.where(there, z, -np.inf), axis=-1, keepdims=True)
    shift = np.where(shift > -np.inf, shift, 0)
    p = solved(shift)
    for _ in range(_SHIFTS if isinstance(z, np.ndarray) else _SHIFTS_UNSEEN):
        open_top = np.max(np.where(there & (p < upper), z, -np.inf), axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            lower = (open_top > -np.inf) & (shift - open_top > 1)
        if isinstance(z, np.ndarray) and not lower.any():
            break
        shift = np.where(lower, open_top, shift)
        p = solved(shift)
    return p


def gradient_in_bounds(p: Any, g: Any, s: Any, active: Any) -> Any:
    """What each bound's change does to Σ g ∘ p.

    Where a bound is active, p moves with it one to one, and the free entries make room in
    proportion to s, their share of a change of the threshold: g_i less g's mean under s.
    """
    total = np.sum(s, axis=-1, keepdims=True)
    along = np.sum(s * np.where(s != 0, g, 0), axis=-1, keepdims=True)  # elsewhere: anything
    mean = along / np.where(total == 0, 1, total)
    return np.where(np.isnan(p), p, np.where(active, g - mean, 0))
