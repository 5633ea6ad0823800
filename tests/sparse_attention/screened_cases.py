"""Queries and rows of eleven kinds, among them those that a screen could get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = (
    "normal",
    "heavy tails",
    "crowd at the threshold",
    "equal rows",
    "one huge row",
    "far from zero",
    "tiny",
    "large",
    "broken rows",
    "wide",
    "large columns",
)


def screened_case(
    kind: str, seed: int, dtype: Any = np.float32, most_rows: int = 4096
) -> tuple[Any, Any, float]:
    """Queries (m, d), rows (n, d) and α."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    m = int(rng.integers(1, 6))
    d = int(rng.integers(1, 700)) if kind == "wide" else int(rng.choice([1, 3, 16, 33, 64]))
    n = int(rng.choice([0, 1, 2, *rng.integers(1, most_rows + 1, 5)]))
    alpha = float(rng.choice([1.05, 1.2, 1.5, 1.5, 1.77, 2]))
    x, rows = rng.standard_normal((m, d)) * rng.choice([0.2, 1, 4]), rng.standard_normal((n, d))
    if kind == "heavy tails":
        rows = rng.standard_t(1.5, (n, d))
    elif kind == "crowd at the threshold" and n:
        # One score of 0 and all others about 1/(α - 1) below it, where a row alone would enter.
        x[:] = 0
        x[:, 0] = 1
        rows[:, 0] = -1 / (alpha - 1) * (1 + rng.standard_normal(n) * 10.0 ** -rng.integers(2, 8))
        rows[0, 0] = 0
    elif kind == "equal rows":
        rows[:] = rows[:1]
    elif kind == "one huge row" and n:
        rows[rng.integers(n)] *= 1e6
    elif kind == "far from zero":
        x[:, 0], rows[:, 0] = 100, 100
    elif kind == "tiny":
        rows *= 10.0 ** -rng.integers(2, 40)
        x *= 10.0 ** rng.integers(0, 12)
    elif kind == "large":
        rows *= 10.0 ** rng.integers(2, 17)
        x *= 10.0 ** -rng.integers(2, 17)
    elif kind == "broken rows" and n:
        values = [0, 1e-45, 1e38, 1e-20, -1e-41, 0]
        for row in rng.integers(n, size=1 + n // 10):
            rows[row] = rng.choice(values)
    elif kind == "large columns":
        few = rng.choice(d, min(d, 5), False)
        rows[:, few] *= 10.0 ** rng.uniform(1, 9, len(few))
        x[:, few[1:]] *= 10.0 ** -rng.uniform(0, 9, len(few) - 1)
    with np.errstate(all="ignore"):
        return x.astype(dtype), rows.astype(dtype), alpha
