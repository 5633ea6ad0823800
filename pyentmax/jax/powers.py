r"""Powers and logarithms of the α-entmax family, smooth in β = α − 1.

With ℓ = −log p, everything that has a factor 1/β in the papers is written with one of two entire
functions, for which a short series takes over near 0. So a value and its derivatives of any order,
in β too, are right at and near α = 1.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

_SERIES = 15  # terms; the first one left out is below 1e-17 of the sum where a series is used
NEAR = 0.5  # up to here


def exponential(t: Any, beta: Any) -> Any:
    """[1 + β t]₊^{1/β}, which is exp t at β = 0."""
    near = jnp.abs(beta) < 1e-30
    safe = jnp.where(near, 1, beta)
    base = 1 + safe * t
    inside = base > 0
    power = jnp.exp(_log1p(jnp.where(inside, safe * t, 0)) / safe)
    return jnp.where(near, jnp.exp(t), jnp.where(inside, power, 0))


def decrease(a: Any) -> Any:
    """(1 − e^{−a}) / a, which is 1 at 0."""
    near = jnp.abs(a) < NEAR
    safe = jnp.where(near, 1, a)
    return jnp.where(near, _series(jnp.where(near, -a, 0), 1), -jnp.expm1(-safe) / safe)


def curvature(a: Any) -> Any:
    """(eᵃ − 1 − a) / a² for |a| ≤ `NEAR`, which is ½ at 0."""
    return _series(a, 2)


def _log1p(a: Any) -> Any:
    """log(1 + a), without the two digits that XLA's loses on a processor for a in (−0.42, −0.3)."""
    low = a < -0.25  # where the rounding of 1 + a costs no more than a digit's fraction
    return jnp.where(low, jnp.log(1 + jnp.where(low, a, 0)), jnp.log1p(jnp.where(low, 0, a)))


def _series(a: Any, first: int) -> Any:
    """Σ_n aⁿ / (n + first)!."""
    total = jnp.zeros_like(a)
    for n in reversed(range(_SERIES)):
        total = total * a + 1 / math.factorial(n + first)
    return total
