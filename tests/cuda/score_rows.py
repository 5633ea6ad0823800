"""Rows of scores of every kind that has ever made trouble."""

from __future__ import annotations

import numpy as np


def score_rows(n: int, seed: int = 0) -> np.ndarray:
    """One row of n scores of each kind, float64."""
    rng = np.random.default_rng((seed, n))
    normal = rng.standard_normal((8, n))
    place = rng.integers(n)
    rows = [
        0.01 * normal[0],
        normal[1],
        5 * normal[2],
        30 * normal[3],
        normal[4] - 1000,
        np.zeros(n),
        np.linspace(-3, 3, n),
        np.linspace(0.5, -0.5, n),
        np.where(np.arange(n) % 2, 1.0, 1.0 - 1 / 64),  # ties at and near the top
        np.where(np.arange(n) == place, 100.0, normal[5]),  # one takes it all
        np.where(rng.random(n) < 0.5, -np.inf, normal[6]),
        np.where(np.arange(n) == n - 1, 0.0, -np.inf),  # the last is all there is
        np.full(n, -np.inf),
        np.where(np.arange(n) == place, np.nan, normal[7]),
        np.where(np.arange(n) == n - 1, np.inf, normal[7]),
    ]
    return np.array(rows)
