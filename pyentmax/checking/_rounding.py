"""How far the values of a function are off by rounding, as the function itself shows.

It may compute in float32 or float16, add up what cancels, or subtract 1 from what is nearly 1. So
the rounding is measured by how far the values at neighbouring points lie off a smooth curve (after
Moré and Wild 2011), around each step from z that differences are taken at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

EPSILON, SINGLE_EPSILON = 2.0**-52, 2.0**-23
# Points around a step, in units of which it has so many. They are no simple fractions of one
# another: at such points a difference of large numbers rounds alike.
UNITS = 2000
NODES = np.array([-62, -57, -43, -40, -21, -7, 2, 13, 24, 41, 50, 63])
DEGREE = 5  # of the smooth curve
LASTING = 5  # a noise lasts over so many steps, each a quarter of the last
CERTAIN = 3  # root mean squares that a value may be off by
# Stairs are looked for down to this step, by few points along some ways.
LEAST_STAIRS, FEW, WAYS = 2.0**-14, 8, 4
# Shares of a score: by the first float32 hardly ever steps to its next stair, by the other seldom.
SHIFT, LARGER_SHIFT = 2.0**-32, 2.0**-26


def measured_rounding(
    fn: Callable[[Array], Array],
    z: Array,
    base: Array,
    uneven: list[Array],
    steps: list[float],
    epsilon: float,
) -> tuple[Array, Array]:
    """How far values of fn may be off, for each step: by rounding, and as the values there show.

    ``base`` is fn(z), ``uneven`` what :func:`at_uneven_scores` gives.

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
    near = [
        np.stack([fn(point) for point in _points_near(z, u, h)[0]])
        for u, h in zip(ways, steps, strict=True)
    ]
    seen = _noise(near)
    moving = 1 + max((k for k, x in enumerate(near) if np.any(x != x[0])), default=-1)
    lasting = _lasting(seen[:moving])
    # Parts of a sum may cancel at z, and along ways whose own entries do, but not where all move.
    sizes = [np.max(np.abs(x), initial=0, where=np.isfinite(x)) for x in (*near, *uneven)]
    short = _lasting(seen[:moving], 16 * SINGLE_EPSILON * float(np.max(sizes)))
    if np.any(short > lasting):
        k = int(np.flatnonzero(short > lasting)[-3:][0])  # near, but with several stairs in sight
        if _is_rounding(fn, z, ways[k], steps[k], seen[k]):
            lasting = short
    lasting = np.append(lasting, np.zeros(len(steps) - moving))
    rounding = np.maximum(least, np.maximum.accumulate(lasting))
    # What a smaller step sees, a larger one has within its reach.
    there = np.maximum(rounding, np.maximum(seen, np.append(seen[1:], 0)))
    return CERTAIN * rounding, CERTAIN * there


def _points_near(z: Array, u: Array, h: float) -> tuple[list[Array], float]:
    """A dozen points around a step from z along u, exactly spaced as NODES are, and their unit."""
    grain = 2 * power_of_2_above(max(float(np.max(np.abs(z))) * EPSILON, 2.0**-72))
    unit = (2 * int(h / UNITS / grain) + 1) * grain  # an odd number: no power of 2 at all steps
    return [z + (h + i * unit) * u for i in NODES], unit


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


def _lasting(noise: Array, short: float = 0.0) -> Array:
    """The noise that is rounding, and 0 where it is none.

    It stays the same over many steps, while that of a bend or a kink falls with the step. At one or
    two of five it may be small, because the points happen to suit the stairs, or large, because
    there is a kink. What is smooth further in has just been seen from too far away, as
    sin(10⁶ z) has, unless it is no more than a short dtype may be off by.

    >>> stairs, kinks = np.array([3.0, 4, 0, 3, 2, 4, 3, 3]), 4.0 ** -np.arange(8)
    >>> print(_lasting(stairs)[:3], _lasting(kinks).any())
    [3. 4. 0.] False
    """
    lasting = np.zeros(len(noise))
    for k in range(len(noise) - LASTING + 1):
        _, _, low, high, _ = np.sort(noise[k : k + LASTING])
        further_in = np.sort(noise[k:])[1 + (len(noise) - k) // 4]
        if max(noise[k], high) <= 8 * low and noise[k] <= max(8 * further_in, short):
            lasting[k] = noise[k]
    return lasting


def _is_rounding(fn: Callable[[Array], Array], z: Array, u: Array, h: float, noise: float) -> bool:
    """Whether this noise, of values a step from z, is that of stairs of float32, or of finer ones.

    Between two stairs the function goes on smoothly, and across them nearby points have all of the
    noise. Not so what is no rounding, but a ripple or a table with a kink at every entry: its
    slopes vary as its values do.
    """
    points, unit = _points_near(z, u, h)
    scores = points[0].ravel()  # those of z may be 0
    some = np.flatnonzero(np.abs(scores) >= np.max(np.abs(scores)) / 4)
    some = np.random.default_rng(2).permutation(some)[:FEW]

    def way_of(part_of_scores: float, those: Array) -> Array:
        way = np.zeros(z.size)
        way[those] = scores[those] * part_of_scores
        return way.reshape(z.shape)

    def changes(way: Array) -> tuple[float, float, float]:
        """How much changes vary along the way, before and behind, and how much slopes would."""
        vary = [_varying(fn, points, sign * way) for sign in (1, -1)]
        return min(vary), max(vary), noise * float(np.linalg.norm(way) / np.linalg.norm(u) / span)

    span = 128 * unit
    ulp = EPSILON * float(np.max(np.abs(fn(points[0])), initial=0))
    hidden = max(2 * ulp, 3 * _rounding_of_double(fn, points, way_of(SHIFT / 2, some)))
    least, most, slopes = changes(way_of(SHIFT, some))
    if most > noise / 8:
        return True
    if least > max(slopes / 8, hidden):
        return False
    if slopes > 8 * hidden:
        return True
    # Beside something large more has to be moved, and rather one score: a point may step then.
    ripples = 0
    for one in some:
        least, most, slopes = changes(way_of(LARGER_SHIFT, np.array([one])))
        ripples += max(slopes / 8, hidden) < least <= most <= noise / 8
    return 2 * ripples <= len(some)


def _rounding_of_double(fn: Callable[[Array], Array], points: list[Array], way: Array) -> float:
    """What float64 leaves of second differences that are 0, where no more than a quarter step."""
    left = [np.nanmax(np.abs(fn(x + way) - 2 * fn(x) + fn(x - way)), initial=0) for x in points]
    return float(np.sort(left)[-1 - len(points) // 4])


def _varying(fn: Callable[[Array], Array], points: list[Array], way: Array) -> float:
    """How far the change of a value along a way is not the same, or linear, at a dozen points.

    A point may lie just before a stair, hence medians: of neighbours, and of three groups.
    """
    values = np.stack([np.ravel(fn(x + way) - fn(x)) for x in points])
    low, middle, high = (np.median(part, axis=0) for part in np.split(values, 3))
    gaps = np.diff([np.median(nodes) for nodes in np.split(NODES, 3)])
    bent = np.abs((middle - low) - (high - middle) * gaps[0] / gaps[1])
    level = values - np.multiply.outer(NODES, (high - low) / gaps.sum())
    close = np.median(np.abs(np.diff(level, axis=0)), axis=0)
    return float(np.nanmax([close, bent], initial=0))


def unseen_slope(
    fn: Callable[[Array], Array], z: Array, steps: list[float], rounding: Array, finest: float
) -> Array | float:
    """For each output, a slope that steps down to the finest do not see: that of a staircase.

    What rounds coarsely inside, to float16 or to multiples of 2⁻⁵² before its logarithm is taken,
    rests between two stairs. There the slopes of the points do not add up to the way that the
    function climbs from the first to the last, and what is missing is much the same at three steps
    near each other. At a kink they nearly do, and jumps are met at one step and not at
    another.
    """
    rng = np.random.default_rng(1)
    signs = rng.choice([-1, 1], z.size)
    found: list[Array] = []
    # What scores hide could cancel along one way or another, but hardly along all.
    for _ in range(min(z.size, WAYS)):
        u = (signs * rng.integers(8, 17, z.size) / 16).reshape(z.shape)
        signs = signs * rng.permutation(np.resize([1, -1], z.size))
        levels = []
        for h, off in [(4 * steps[0], rounding[0]), *zip(steps, rounding, strict=True)]:
            if h < max(64 * finest, LEAST_STAIRS):
                break
            where = np.sort(h * (0.5 + rng.random(FEW)))
            levels.append(_missing(fn, z, u, where, finest, off))
        found += [_lasting_gap(levels[k : k + LASTING]) for k in range(len(levels) - 2)]
    return 2 * np.max(found, axis=0) if found else 0.0


class Missing(NamedTuple):
    """How much of the mean slope along a way the slopes at some points leave out."""

    gap: Array
    uncertain: Array
    rests: Array  # where these slopes are 0 in the mean


def _missing(
    fn: Callable[[Array], Array], z: Array, u: Array, where: Array, nearby: float, off: float
) -> Missing:
    """What is missing of the slope along u from the first of some points to the last."""
    ahead = np.stack([fn(z + (t + nearby / 2) * u) for t in where])
    behind = np.stack([fn(z + (t - nearby / 2) * u) for t in where])
    slopes = (ahead - behind) / nearby
    first, way = where[0] - nearby / 2, where[-1] - where[0] + nearby
    secant = (ahead[-1] - behind[0]) / way
    means = []
    for degree in (3, 5):
        matrix = np.polynomial.legendre.legvander(2 * (where - first) / way - 1, degree)
        fitted = np.linalg.pinv(matrix) @ slopes.reshape(len(slopes), -1)
        means.append(fitted[0].reshape(secant.shape))  # the mean of all other terms is 0
        left = slopes - (matrix @ fitted).reshape(slopes.shape)
    scatter = np.sqrt(np.sum(left**2, axis=0) / (FEW - DEGREE - 1))
    uncertain = np.abs(means[1] - means[0]) + scatter + off / nearby
    return Missing(secant - means[1], 8 * uncertain + 1e-6 * np.abs(secant), means[1] == 0)


def _lasting_gap(levels: Sequence[Missing]) -> Array:
    """What is missing at three of some steps, the first among them, if it is much the same.

    At those between, a point may lie on a stair: what is missing there is too uncertain to differ.
    """
    found = np.zeros(levels[0].gap.shape)
    for j, k in combinations(range(1, len(levels)), 2):
        three = [levels[i] for i in (0, j, k)]
        gaps = np.stack([one.gap for one in three])
        least, most = np.min(gaps, axis=0), np.max(gaps, axis=0)
        # Where there is nothing but stairs, less will do.
        unlike = np.where(np.all([one.rests for one in three], axis=0), 0.7, 0.3)
        alike = (most - least) <= unlike * np.maximum(np.abs(least), np.abs(most))
        for one in three:
            alike &= np.abs(one.gap) > one.uncertain
        for one in (levels[i] for i in range(1, k) if i != j):
            alike &= np.abs(one.gap - most) <= one.uncertain
        found = np.where(alike, np.maximum(found, np.abs(gaps).max(axis=0)), found)
    return found


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
    >>> print(epsilon_of_values(np.array([0.5, np.float32(0.3), np.float32(0.7)])))
    1.1920928955078125e-07
    """
    values = np.concatenate([np.ravel(x) for x in outputs])
    values = values[~np.isnan(values)]  # near z there may be a place where fn is not defined
    mantissas = np.frexp(values)[0]
    long = values[mantissas * 2**11 != np.rint(mantissas * 2**11)]
    # One number alone may fit by chance, as 10¹⁰ does. Of a constant there is but one.
    enough = len(np.unique(long)) >= min(2, len(np.unique(values)))
    return SINGLE_EPSILON if enough and np.all(long == long.astype(np.float32)) else EPSILON


def power_of_2_above(x: float) -> float:
    """The least power of 2 that x does not exceed, for x > 0.

    >>> power_of_2_above(5), power_of_2_above(4)
    (8.0, 4.0)
    """
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1, exponent - (mantissa == 0.5))
