r"""Powers and logarithms of the α-entmax family, smooth in β = α − 1.

With ℓ = −log p, everything that has a factor 1/β in the papers is written with one of two entire
functions, for which a short series takes over near 0. So a value and its derivatives of any order,
in β too, are right at and near α = 1.
"""

from __future__ import annotations

import math
from typing import Any

NEAR = 0.5  # a series is used up to here
_TERMS = 15  # of it; the first one left out is below 1e-17 of the sum


def exponential(xp: Any, t: Any, beta: Any) -> Any:
    """[1 + β t]₊^{1/β}, which is exp t at β = 0."""
    near = xp.abs(beta) < 1e-30
    safe = xp.where(near, 1, beta)
    inside = 1 + safe * t > 0
    power = xp.exp(xp.log1p(xp.where(inside, safe * t, 0)) / safe)
    return xp.where(near, xp.exp(t), xp.where(inside, power, 0))


def power(xp: Any, p: Any, exponent: Any) -> Any:
    """p to a power on the support, p itself off it, which is 0 or NaN."""
    on = p > 0
    return xp.where(on, xp.exp(exponent * xp.log(xp.where(on, p, 1))), xp.detach(p))


def decrease(xp: Any, a: Any) -> Any:
    """(1 − e^{−a}) / a, which is 1 at 0."""
    near = xp.abs(a) < NEAR
    safe = xp.where(near, 1, a)
    return xp.where(near, _series(xp, xp.where(near, -a, 0), 1), -xp.expm1(-safe) / safe)


def curvature(xp: Any, a: Any) -> Any:
    """(eᵃ − 1 − a) / a² for |a| ≤ `NEAR`, which is ½ at 0."""
    return _series(xp, a, 2)


def _series(xp: Any, a: Any, first: int) -> Any:
    """Σ_n aⁿ / (n + first)!."""
    total = xp.zeros_like(a)
    for n in reversed(range(_TERMS)):
        total = total * a + 1 / math.factorial(n + first)
    return total
