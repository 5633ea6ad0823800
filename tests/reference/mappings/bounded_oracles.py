"""Independent answers for the mappings with bounds: by enumeration, and in many digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np


def random_problems(
    count: int, d: int, seed: int, scale: float = 1.5
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores and feasible bounds, some of them 0, some of them 1 or more."""
    rng = np.random.default_rng(seed)
    while count:
        upper = rng.random(d) * rng.choice([0.5, 1.0, 3.0]) * (rng.random(d) < 0.85)
        if upper.sum() >= 1.02:
            count -= 1
            yield rng.standard_normal(d) * scale, upper


def exact_by_bisection(
    parts: Callable[[mpmath.mpf], list[mpmath.mpf]], low: Any, high: Any, total: Any
) -> list[mpmath.mpf]:
    """parts(t), increasing in t, at the t in [low, high] where they sum to total; 50 digits."""
    with mpmath.workdps(50):
        low, high = mpmath.mpf(low), mpmath.mpf(high)
        for _ in range(190):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(parts(middle)) < total else (low, middle)
        return parts(high)


def exact_boxes(z: np.ndarray, upper: np.ndarray, total: float) -> list[mpmath.mpf]:
    """clip(z − τ, 0, u) that sums to total, in 50 digits."""
    scores, bounds = ([mpmath.mpf(float(x)) for x in a] for a in (z, upper))

    def parts(t: mpmath.mpf) -> list[mpmath.mpf]:
        return [min(max(x + t, mpmath.mpf(0)), u) for x, u in zip(scores, bounds, strict=True)]

    return exact_by_bisection(parts, -max(scores), 1 + total - min(scores), mpmath.mpf(total))


def exact_csoftmax(z: np.ndarray, upper: np.ndarray) -> list[mpmath.mpf]:
    """min(u, e^z r) that sums to 1, in 50 digits, by bisection on log r."""
    scores, bounds = ([mpmath.mpf(float(x)) for x in a] for a in (z, upper))

    def parts(t: mpmath.mpf) -> list[mpmath.mpf]:
        return [min(mpmath.exp(x + t), u) for x, u in zip(scores, bounds, strict=True)]

    return exact_by_bisection(parts, -max(scores) - 50, 50 - min(scores), mpmath.mpf(1))
