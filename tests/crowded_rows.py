"""Rows in which thousands of entries stand at one distance from the leader, and from the threshold.

Each entry of such a row is off by as much as the threshold, at most half a unit of its last place,
and the sum by that times their number: much more than 4ε√d allows, unless what the threshold lacks
is found and handed out. The hardest entries are right at it, within a unit or two: how it is
rounded decides whether they get anything, and what they do not get goes to the largest.
"""

from __future__ import annotations

import numpy as np


def crowds_at_the_threshold(d: int, alpha: float, dtype: type) -> np.ndarray:
    """Rows in which α decides whether the crowd is in the support: a thousandth of a unit to 1,000
    units above the threshold, one value or spread over some units."""
    rng, ulp, beta = np.random.default_rng(d), float(np.finfo(dtype).eps), alpha - 1
    rows = []
    for above in ulp * 10 ** rng.uniform(-3, 3, 10):
        t = (1 - min(d * above ** (1 / beta), 0.5)) ** beta
        z = above - t + rng.choice([0, 0, 1, 10]) * ulp * rng.uniform(-1, 1, d)
        z[: d // 2] -= rng.choice([0, 0, ulp, above])
        z[rng.integers(d)] = 0
        rows.append((z / beta).astype(dtype))
    return np.stack(rows)
