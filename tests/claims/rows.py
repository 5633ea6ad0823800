"""The rows of scores that every table takes: each has the name of what makes it hard."""

from __future__ import annotations

from typing import Any

import numpy as np

LENGTHS = (1, 2, 7, 33, 129)
SPOILT = ("NaN", "+inf", "nothing left")


def rows(n: int, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """Name → n scores, the same in every run."""
    rng, place = np.random.default_rng(n), np.arange(n)
    z, ulp, largest = rng.standard_normal(n), np.finfo(dtype).eps, np.finfo(dtype).max
    middle, last = place == n // 2, place == n - 1
    table = {
        "random": z,
        "flat": 1e-3 * z,
        "sharp": 30 * z,
        "rising": np.sort(z),
        "falling": np.sort(z)[::-1],
        "tied": np.zeros(n),
        "some tied": np.round(z),
        "tied but for roundings": 1 + ulp * rng.integers(0, 4, n),
        "far above 0": z + 1e4,
        "far below 0": z - 1e4,
        "gaps from 1e-3 to 600": -np.geomspace(1e-3, 600, n),
        "one leads": np.where(middle, 0.1, -1.9),
        "one leads by 30": np.where(last, 30, z),
        "at the threshold": np.where(place == 0, 1.0, ulp * rng.integers(-2, 3, n)),
        "crowd": np.where(last, 0, 1e-4 * z - 0.95),
        "tiny": 1e-300 * z if dtype == np.float64 else 1e-37 * z,
        "largest floats": np.where(place % 2, -0.9, 0.9) * largest,
        "half is -inf": np.where(place % 2, -np.inf, z),
        "NaN": np.where(place == 0, np.nan, z),
        "+inf": np.where(last, np.inf, z),
        "nothing left": np.full(n, -np.inf),
    }
    return {name: row.astype(dtype) for name, row in table.items()}


def batch(n: int, dtype: Any, without: tuple[str, ...] = ()) -> tuple[list[str], np.ndarray]:
    """Names and scores, in rows."""
    table = {name: row for name, row in rows(n, dtype).items() if name not in without}
    return list(table), np.stack(list(table.values()))


def masks(shape: tuple[int, ...]) -> np.ndarray:
    """A mask for each row, in pairs of entries; the first two stay, but in the last row nothing."""
    mask = np.random.default_rng(5).random(shape) < 0.7
    mask[..., :2] = True
    mask.reshape(-1, shape[-1])[-1] = False
    return mask
