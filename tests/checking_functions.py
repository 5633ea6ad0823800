"""Functions that are hard on finite differences, with their gradients, drawn at random.

They cancel digits, compute in float32 inside, round in stairs, bend at kinks that are near, or have
no derivative at all. Of the derivatives that exist the right one may be found unresolved, but never
wrong, and 2% more must never pass; where there is none, nothing may pass.
"""

from __future__ import annotations

from collections.abc import Callable
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


def few(rng: np.random.Generator) -> int:
    return int(rng.choice([1, 1, 2, 3, 5]))


def signs(rng: np.random.Generator, size: int) -> Array:
    return rng.choice([-1.0, 1.0], size)


def single(x: Any) -> Any:
    return np.asarray(x, np.float32)


# --- that lose digits -----------------------------------------------------------------------------


def exponential_without_its_tangent(rng: np.random.Generator) -> Drawn:
    z = log_uniform(rng, -10, 0) * rng.standard_normal(few(rng))
    return Drawn(lambda x: np.exp(x) - 1 - x, np.expm1, z)


def cosine_over_square(rng: np.random.Generator) -> Drawn:
    z = log_uniform(rng, -2, 0.5) * signs(rng, few(rng))
    return Drawn(
        lambda x: (1 - np.cos(x)) / x**2,
        lambda x: np.sin(x) / x**2 - 4 * np.sin(x / 2) ** 2 / x**3,
        z,
    )


def difference_of_squares(rng: np.random.Generator) -> Drawn:
    c = log_uniform(rng, -3, 6)
    z = log_uniform(rng, -3, 3) * rng.standard_normal(few(rng))
    return Drawn(lambda x: (x + c) ** 2 - x**2 - c**2, lambda x: 2 * c + 0 * x, z)


def sine_beside_its_zero(rng: np.random.Generator) -> Drawn:
    b, zero = rng.uniform(0.3, 5), rng.uniform(0.3, 9)
    z = zero + log_uniform(rng, -9, -1) * rng.standard_normal(few(rng))
    c = -b * zero
    return Drawn(lambda x: np.sin(b * x + c), lambda x: b * np.cos(b * x + c), z)


# --- that compute in a short dtype ----------------------------------------------------------------


def square_in_float32(rng: np.random.Generator) -> Drawn:
    b, c = (float(single(log_uniform(rng, low, 2))) for low in (-1, -2))
    z = c + log_uniform(rng, -4, 1) * rng.standard_normal(few(rng))
    return Drawn(lambda x: single(b) * (single(x) - single(c)) ** 2, lambda x: 2 * b * (x - c), z)


def squares_in_float32(rng: np.random.Generator) -> Drawn:
    c = float(single(log_uniform(rng, -2, 2)))
    z = log_uniform(rng, -2, 2) * rng.standard_normal(few(rng))
    return Drawn(
        lambda x: (single(x) + single(c)) ** 2 - single(x) ** 2 - single(c) ** 2,
        lambda x: 2 * c + 0 * x,
        z,
    )


def float32_inside_float64(rng: np.random.Generator) -> Drawn:
    z = rng.uniform(-3, 3, few(rng))
    return Drawn(
        lambda x: np.sin(single(x)).astype(float) * x, lambda x: np.sin(x) + x * np.cos(x), z
    )


def sum_of_float32(rng: np.random.Generator) -> Drawn:
    b, c = log_uniform(rng, -1, 1), rng.choice([0, log_uniform(rng, -2, 2)])
    z = log_uniform(rng, -2, 1) * rng.standard_normal(few(rng))
    return Drawn(
        lambda x: np.sin(single(b) * single(x)).astype(float) / 3 + c,
        lambda x: b * np.cos(b * x) / 3,
        z,
    )


def rounded_to_digits(rng: np.random.Generator) -> Drawn:
    digits = int(rng.integers(5, 10))
    return Drawn(lambda x: np.round(np.sin(x), digits), np.cos, rng.standard_normal(few(rng)))


# --- that bend sharply ----------------------------------------------------------------------------


def kink_nearby(rng: np.random.Generator) -> Drawn:
    k, a = rng.choice([0, rng.uniform(-5, 5)]), rng.standard_normal()
    d, s = few(rng), log_uniform(rng, -2, 1)
    z = k + log_uniform(rng, -9, -1, d) * signs(rng, d)
    return Drawn(lambda x: s * np.abs(x - k) + a * x, lambda x: s * np.sign(x - k) + a, z)


def power_above_1(rng: np.random.Generator) -> Drawn:
    e, k, a = rng.uniform(1.3, 3), rng.choice([0, rng.uniform(-5, 5)]), rng.standard_normal()
    z = np.full(few(rng), k)
    return Drawn(
        lambda x: np.abs(x - k) ** e + a * x,
        lambda x: a + e * np.abs(x - k) ** (e - 1) * np.sign(x - k),
        z,
    )


def bump(rng: np.random.Generator) -> Drawn:
    width, c = log_uniform(rng, -6, 0), rng.choice([0, rng.uniform(-5, 5)])

    def function(x: Array) -> Array:
        return np.exp(-(((x - c) / width) ** 2))

    z = c + width * rng.standard_normal(few(rng))
    return Drawn(function, lambda x: -2 * (x - c) / width**2 * function(x), z)


DIFFERENTIABLE = (
    exponential_without_its_tangent,
    cosine_over_square,
    difference_of_squares,
    sine_beside_its_zero,
    square_in_float32,
    squares_in_float32,
    float32_inside_float64,
    sum_of_float32,
    rounded_to_digits,
    kink_nearby,
    power_above_1,
    bump,
)


# --- that have no derivative at the first score ---------------------------------------------------


def on_its_break(rng: np.random.Generator) -> tuple[float, float, Array]:
    k = float(rng.choice([0, rng.uniform(-5, 5), log_uniform(rng, 0, 6)]))
    z = np.full(few(rng), k)
    z[1:] += rng.standard_normal(len(z) - 1)
    return k, float(rng.standard_normal()), z


def kink(rng: np.random.Generator) -> Drawn:
    (k, a, z), s = on_its_break(rng), log_uniform(rng, -2, 1)
    return Drawn(lambda x: s * np.abs(x - k) + a * x, lambda x: s * np.sign(x - k) + a, z)


def cusp(rng: np.random.Generator) -> Drawn:
    (k, a, z), s, e = on_its_break(rng), log_uniform(rng, -2, 1), rng.uniform(0.3, 0.9)

    def slope(x: Array) -> Array:
        way = np.where(x == k, 1, np.abs(x - k))
        return a + s * e * way ** (e - 1) * np.sign(x - k)

    return Drawn(lambda x: s * np.abs(x - k) ** e + a * x, slope, z)


def jump(rng: np.random.Generator) -> Drawn:
    (k, a, z), s = on_its_break(rng), log_uniform(rng, -3, 1)
    return Drawn(lambda x: s * (x > k) + a * x, lambda x: a + 0 * x, z)


def stray_value(rng: np.random.Generator) -> Drawn:
    (k, a, z), s = on_its_break(rng), log_uniform(rng, -3, 1)
    return Drawn(lambda x: s * (x == k) + a * x, lambda x: a + 0 * x, z)


def swing(rng: np.random.Generator) -> Drawn:
    k, s, a = rng.choice([0, rng.uniform(-5, 5)]), log_uniform(rng, -2, 1), rng.standard_normal()

    def function(x: Array) -> Array:
        way = np.where(x == k, 1, x - k)
        return np.where(x == k, 0, s * (x - k) * np.sin(1 / way)) + a * x

    return Drawn(function, lambda x: a + 0 * x, np.array([k]))


BROKEN = (kink, cusp, jump, stray_value, swing)
