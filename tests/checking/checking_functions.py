"""Functions that are hard on finite differences, with their derivatives, drawn at random.

They cancel digits, compute in float32 inside, are rounded, bend at kinks nearby, or have no
derivative at all. Where a derivative exists, the right one must not fail, and 2% more must not
pass; where there is none, nothing may pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Array]


class Drawn(NamedTuple):
    """A function that is summed over the entries of z, its derivative by entry, and z."""

    function: Function
    slope: Function
    z: Array

    def loss(self, z: Array) -> Any:
        return np.sum(self.function(z))

    def gradient(self, z: Array) -> Array:
        return self.slope(z) * np.ones_like(z)


def log_uniform(rng: np.random.Generator, low: float, high: float, size: Any = None) -> Any:
    return 10 ** rng.uniform(low, high, size)


def size(rng: np.random.Generator) -> int:
    return int(rng.choice([1, 1, 2, 3, 5]))


def single(x: Any) -> Any:
    return np.asarray(x, np.float32)


# --- that lose digits, compute in a short dtype, or bend sharply ----------------------------------
def signs(rng: np.random.Generator, n: int) -> Array:
    return rng.choice([-1, 1], n)


def exponential_without_its_tangent(rng: np.random.Generator) -> Drawn:
    z = log_uniform(rng, -8, 0) * rng.standard_normal(size(rng))
    return Drawn(lambda x: np.exp(x) - 1 - x, np.expm1, z)


def cosine_over_square(rng: np.random.Generator) -> Drawn:
    z = log_uniform(rng, -2, 0.5) * signs(rng, size(rng))
    return Drawn(lambda x: (1 - np.cos(x)) / x**2,
                 lambda x: np.sin(x) / x**2 - 4 * np.sin(x / 2) ** 2 / x**3, z)  # fmt: skip


def difference_of_squares(rng: np.random.Generator, short: bool = False) -> Drawn:
    to, least, most = (single, -2, 2) if short else (np.asarray, -3, 6)
    c = float(to(log_uniform(rng, least, most)))
    z = log_uniform(rng, least, 2 if short else 3) * rng.standard_normal(size(rng))
    return Drawn(lambda x: (to(x) + to(c)) ** 2 - to(x) ** 2 - to(c) ** 2,
                 lambda x: 2 * c + 0 * x, z)  # fmt: skip


def float32_inside_float64(rng: np.random.Generator) -> Drawn:
    return Drawn(lambda x: np.sin(single(x)).astype(float) * x,
                 lambda x: np.sin(x) + x * np.cos(x), rng.uniform(-3, 3, size(rng)))  # fmt: skip


def rounded_to_digits(rng: np.random.Generator) -> Drawn:
    digits = int(rng.integers(5, 10))
    return Drawn(lambda x: np.round(np.sin(x), digits), np.cos, rng.standard_normal(size(rng)))


def kink_nearby(rng: np.random.Generator) -> Drawn:
    k, a = rng.choice([0, rng.uniform(-5, 5)]), rng.standard_normal()
    d, s = size(rng), log_uniform(rng, -2, 1)
    z = k + log_uniform(rng, -7, -1, d) * signs(rng, d)
    return Drawn(lambda x: s * np.abs(x - k) + a * x, lambda x: s * np.sign(x - k) + a, z)


def power_above_1(rng: np.random.Generator) -> Drawn:
    e, k, a = rng.uniform(1.3, 3), rng.choice([0, rng.uniform(-5, 5)]), rng.standard_normal()
    return Drawn(lambda x: np.abs(x - k) ** e + a * x,
                 lambda x: a + e * np.abs(x - k) ** (e - 1) * np.sign(x - k),
                 np.full(size(rng), k))  # fmt: skip


def bump(rng: np.random.Generator) -> Drawn:
    width, c = log_uniform(rng, -6, 0), rng.choice([0, rng.uniform(-5, 5)])
    function = lambda x: np.exp(-(((x - c) / width) ** 2))  # noqa: E731
    z = c + width * rng.standard_normal(size(rng))
    return Drawn(function, lambda x: -2 * (x - c) / width**2 * function(x), z)


DIFFERENTIABLE = (
    exponential_without_its_tangent, cosine_over_square, difference_of_squares,
    partial(difference_of_squares, short=True), float32_inside_float64, rounded_to_digits,
    kink_nearby, power_above_1, bump,
)  # fmt: skip


# --- that have no derivative at the first score ---------------------------------------------------


def kinked(
    function: Callable[[Array, float], Array],
    slope: Callable[[Array, float], Array],
    largest: float = 6,
) -> Callable[[np.random.Generator], Drawn]:
    """A maker of functions s·function(z − k, exponent) + a·z at a first score of k."""

    def make(rng: np.random.Generator) -> Drawn:
        k = float(rng.choice([0, rng.uniform(-5, 5), log_uniform(rng, 0, largest)]))
        a, s, e = rng.standard_normal(), log_uniform(rng, -2, 1), rng.uniform(0.3, 0.9)
        z = np.full(size(rng), k)
        z[1:] += rng.standard_normal(len(z) - 1)
        return Drawn(lambda x: s * function(x - k, e) + a * x, lambda x: s * slope(x - k, e) + a, z)

    return make


def not_0(x: Array) -> Array:
    return np.where(x == 0, 1, x)


NOT_DIFFERENTIABLE = {
    "kink": kinked(lambda x, e: np.abs(x), lambda x, e: np.sign(x)),
    "cusp": kinked(
        lambda x, e: np.abs(x) ** e, lambda x, e: e * np.abs(not_0(x)) ** (e - 1) * np.sign(x)
    ),
    "jump": kinked(lambda x, e: (x > 0) * 1.0, lambda x, e: 0 * x),
    "value that is not the limit": kinked(lambda x, e: (x == 0) * 1.0, lambda x, e: 0 * x),
    "oscillation": kinked(
        lambda x, e: x * np.sin(1 / not_0(x)),
        lambda x, e: (x != 0) * (np.sin(1 / not_0(x)) - np.cos(1 / not_0(x)) / not_0(x)),
        largest=0,  # far from 0 the rounding of scores hides it
    ),
}
