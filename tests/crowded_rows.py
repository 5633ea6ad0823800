"""Rows in which thousands of entries stand at one distance from the leader, and from the threshold.

Each entry of such a row is off by as much as the threshold, at most half a unit of its last place,
and the sum by that times their number: much more than 4ε√d allows, unless what the threshold lacks
is found and handed out. The hardest entries are right at it, within a unit or two.
"""

from __future__ import annotations

import numpy as np


def crowded_rows(d: int, dtype: type) -> np.ndarray:
    """One row for each of some distances, and of how far the crowd is spread."""
    rng, ulp, rows = np.random.default_rng(d), np.finfo(dtype).eps, []
    for distance in (0.01, 0.3, 0.5, 0.95, 1 - 1e-4, 1, 2, 10):
        for width in (2 * ulp, 1e3 * ulp, 1e-4):
            z = (width * rng.uniform(-1, 1, d) - distance).astype(dtype)
            z[rng.integers(d)] = 0
            rows.append(z)
    return np.stack(rows)
