"""How far the values of a function are off by rounding, as the function itself shows.

It may compute in float32 or float16, add up what cancels, or subtract 1 from what is nearly 1. So
the rounding is measured by how far the values at neighbouring points lie off a smooth curve (after
Moré and Wild 2011), around each step from z that differences are taken at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

EPSILON, SINGLE_EPSILON = 2.0**-52, 2.0**-23
# Where a step is seen at, in units of which a step has 2,000. No simple fractions of one another:
# at such points a difference of large numbers rounds alike.
NODES = np.array([-62, -57, -43, -40, -21, -7, 2, 13, 24, 41, 50, 63])
DEGREE = 5  # of the smooth curve
LASTING = 5  # a noise lasts over so many steps, each a quarter of the last
CERTAIN = 3  # root mean squares that a value may be off by
WIDEST = 2.0**-4  # spacing of points at which stairs are looked for
STAIRS_FINER = 16  # points between two of those at which a staircase was seen to climb


def measured_rounding(
    fn: Callable[[Array], Array], z: Array, base: Array, steps: list[float], epsilon: float
) -> tuple[Array, Array]:
    """How far values of fn may be off, for each step: by rounding, and as the values there show.

    What rounds in stairs of its own (to float32 inside, or to multiples of 2⁻⁵² before 1 is
    subtracted) looks exact from nearby. Therefore the noise seen at one step counts for all smaller
    ones. But it has to be noise: bends, kinks and swings look alike, and count for their
    own step only.
    """
    # What is normalised carries the rounding of its sum, which grows as a root does.
    largest = float(np.max(np.abs(base), initial=0)) or 1.0
    length = np.linalg.norm(np.atleast_1d(base) / largest, axis=-1)  # no square overflows
    least = epsilon / 2 * largest * float(np.max(length, initial=0))
    rng = np.random.default_rng(0)
    # Not all of one value: mappings do not see a shift.
    ways = [rng.permutation(np.resize([1, -0.5, 0.5, -1], z.size)).reshape(z.shape) for _ in steps]
    ways = [u * (-1) ** k for k, u in enumerate(ways)]
    near = [_values_near(fn, z, u, h) for u, h in zip(ways, steps, strict=True)]
    seen = _noise(near)
    rounding = np.maximum(least, np.maximum.accumulate(_lasting(seen, near)))
    furthest = _furthest(float(np.max(np.abs(z))), epsilon)
    nearest = [values for values, h in zip(near, steps, strict=True) if h / 100 <= furthest]
    if not any(map(_moves, nearest)):
        rounding = np.maximum(rounding, max(_stairs(fn, z, u, base, epsilon) for u in ways[:4]))
    # What a smaller step sees, a larger one has within its reach.
    there = np.maximum(rounding, np.maximum(seen, np.append(seen[1:], 0)))
    return CERTAIN * rounding, CERTAIN * there


def _values_near(fn: Callable[[Array], Array], z: Array, u: Array, h: float) -> Array:
    """Values at a dozen points around a step from z along u, exactly spaced as NODES are."""
    grain = 2 * power_of_2_above(max(float(np.max(np.abs(z))) * EPSILON, 2.0**-72))
    unit = (2 * int(h / 2000 / grain) + 1) * grain  # an odd number: no power of 2 at all steps
    return np.stack([fn(z + (h + i * unit) * u) for i in NODES])


def _noise(near: list[Array]) -> Array:
    """For each step, the root mean square of what the smooth curve leaves of an output."""
    basis = np.linalg.qr(np.polynomial.legendre.legvander(NODES / 64, DEGREE))[0]
    noise = []
    for values in near:
        rows = values.reshape(len(values), -1) - values[0].reshape(1, -1)
        rows = np.where(np.isfinite(rows).all(axis=0), rows, 0)
        left = rows - basis @ (basis.T @ rows)
        scale = float(np.max(np.abs(left), initial=0)) or 1.0  # no square overflows
        mean = np.sum((left / scale) ** 2, axis=0) / (len(NODES) - DEGREE - 1)
        noise.append(scale * float(np.sqrt(np.max(mean, initial=0))))
    return np.array(noise)


def _lasting(noise: Array, near: list[Array]) -> Array:
    """The noise that is rounding, and 0 where it is none.

    It stays the same over many steps, while that of a bend or a kink falls with the step. At one or
    two of five it may be small, because the points happen to suit the stairs, or large, because
    there is a kink. What is smooth further in has just been seen from too far away, as
    sin(10⁶ z) has, unless it is no more than float32 may be off by.

    >>> values = [np.arange(12.0)] * 8
    >>> stairs, kinks = np.array([3.0, 4, 0, 3, 2, 4, 3, 3]), 4.0 ** -np.arange(8)
    >>> print(_lasting(stairs, values)[:3], _lasting(kinks, values).any())
    [3. 4. 0.] False
    """
    sizes = [np.max(np.abs(x), initial=0, where=np.isfinite(x)) for x in near]
    in_float32 = 16 * SINGLE_EPSILON * float(np.max(sizes))
    moving = 1 + max((k for k, x in enumerate(near) if np.any(x != x[0])), default=-1)
    lasting = np.zeros(len(noise))
    for k in range(moving - LASTING + 1):
        _, _, low, high, _ = np.sort(noise[k : k + LASTING])
        further_in = np.sort(noise[k:moving])[1 + (moving - k) // 4]
        if max(noise[k], high) <= 8 * low and noise[k] <= max(8 * further_in, in_float32):
            lasting[k] = noise[k]
    return lasting


def _moves(values: Array) -> bool:
    """Whether half of the steps from point to point change an output."""
    changes = np.sum(np.diff(values, axis=0) != 0, axis=0)
    return bool(np.max(changes, initial=0) >= len(values) // 2)


def _furthest(reach: float, epsilon: float) -> float:
    """The widest spacing of points at which a change of the values is still no more than noise."""
    return 8 * max(epsilon * max(1.0, reach), SINGLE_EPSILON * min(max(1.0, reach), 1e2))


def _stairs(fn: Callable[[Array], Array], z: Array, u: Array, base: Array, epsilon: float) -> float:
    """The highest stair of a function that is flat near z, and 0 if what it climbs is no staircase.

    A function that rounds coarsely inside, to float16, say, is flat between two of its stairs. That
    is no slope of 0, and no floats that it returns tell of it. What is truly flat here and moves
    further out, as sparsemax does behind a kink, moves in all points there, or in a jump or two.
    """
    spacing = 8 * power_of_2_above(_furthest(float(np.max(np.abs(z))), epsilon))
    while spacing <= WIDEST and not _climbs(fn, z, u, base, spacing):
        spacing *= 4
    if spacing > WIDEST:
        return 0.0
    heights = []
    for wide in (spacing, 4 * spacing):  # the first may have too few stairs to tell
        ways = np.arange(7 * STAIRS_FINER + 1) * (wide / STAIRS_FINER)
        heights.append(_highest_stair(np.stack([fn(z + t * u) for t in ways]), epsilon))
    return max(heights)


def _climbs(fn: Callable[[Array], Array], z: Array, u: Array, base: Array, spacing: float) -> bool:
    """Whether, of seven points along u, half of the steps change an output."""
    if not np.any(fn(z + 3 * spacing * u) != base):
        return False
    # Not from z itself, which may sit on a jump.
    return _moves(np.stack([fn(z + i * spacing * u) for i in range(1, 8)]))


def _highest_stair(values: Array, epsilon: float = EPSILON) -> float:
    """The largest change of an output along the first axis, if it rests at least four times.

    A few ε up or down are a rest too: the sum of flat outputs need not round alike everywhere.

    >>> smooth = np.linspace(0, 1, 50) ** 2
    >>> print(_highest_stair(smooth), _highest_stair(np.floor(4 * smooth) / 4))
    0.0 0.25
    >>> rests, then_climbs = np.resize([3, 3, 3 + 4e-16], 20), 3 + smooth
    >>> print(_highest_stair(np.append(rests, then_climbs)))
    0.0
    """
    changes = np.abs(np.diff(values, axis=0))
    least = 16 * epsilon * np.max(np.abs(values), axis=0)
    rests = np.maximum(changes[:-1], changes[1:]) <= least
    begins = np.sum(rests[1:] & ~rests[:-1], axis=0) + rests[0]
    heights = np.where(begins >= 4, np.max(changes, axis=0), 0)
    return float(np.nan_to_num(np.max(heights, initial=0), posinf=0))


def at_uneven_scores(fn: Callable[[Array], Array], z: Array) -> list[Array]:
    """Values of fn near z, at scores with as many digits as float64 has.

    At z the values may be short because the scores are: squares of whole numbers are whole.
    """
    part = np.random.default_rng(0).random(z.shape) / 32
    return [fn(z - part * z), fn(z + part)]  # the first stays on z's side of 0, the second leaves 0


def epsilon_of_values(*outputs: Array) -> float:
    """The spacing of floats at 1 in which the values were computed, as far as they tell.

    All of them fit into float32, and not because they are short.

    >>> epsilon_of_values(np.array([0.5, 0.3])) == EPSILON
    True
    >>> print(epsilon_of_values(np.array([0.5, np.float32(0.3)])))
    1.1920928955078125e-07
    """
    values = np.concatenate([np.ravel(x) for x in outputs])
    values = values[~np.isnan(values)]  # near z there may be a place where fn is not defined
    mantissas = np.frexp(values)[0]
    short = mantissas * 2**11 == np.rint(mantissas * 2**11)
    if np.all(values == values.astype(np.float32)) and not np.all(short):
        return SINGLE_EPSILON
    return EPSILON


def power_of_2_above(x: float) -> float:
    """The least power of 2 that x does not exceed, for x > 0.

    >>> power_of_2_above(5), power_of_2_above(4)
    (8.0, 4.0)
    """
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1, exponent - (mantissa == 0.5))
