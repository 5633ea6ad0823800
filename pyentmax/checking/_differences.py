"""Directional derivatives by central differences: which step to believe, and how far.

A large step has a large error where the function bends, saturates or has a kink in its reach; a
small one divides the rounding of the function by the step. Nobody knows the best step beforehand,
so all are taken, from 1/16 down, each a quarter of the last:

1. Richardson extrapolation to h → 0 gives each step a value and an interval of error: what the
   extrapolation changed, plus the rounding divided by the step (Ridders 1982).
2. An interval is believed as long as it meets those of *all* smaller steps: the rule of
   intersecting confidence intervals (Goldenshluger and Nemirovski 1997). Two large steps that agree
   because the function is flat there contradict the smaller ones, and are out. Of the believed
   steps, the one with the narrowest interval is the answer.
3. The rounding of the function is measured, not assumed, by the fourth differences of its values at
   neighbouring points (Moré and Wild 2011): it may compute in float32.

The same rule tells whether the slopes on the two sides of z have the same limit. If their
difference does not fall with the step at all, there is none: the function may swing, or jump at z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FIRST_STEP, LAST_STEP, FEWEST_STEPS = 2.0**-4, 2.0**-40, 6
# Steps fall until rounding costs so much of the largest derivative, a tenth of the usual tolerance.
FINE, FINE_ABSOLUTE = 1e-7, 1e-9
AT_ONCE = 1 << 18  # entries of all directions computed with at once
EPSILON, SINGLE_EPSILON = 2.0**-52, 2.0**-23
STRETCHES = (1, 3, 9, 27)  # odd, so that points stay exact; each tells of other whole numbers
STAIRS_FINER = 16  # points between two of those at which a staircase was seen to climb


class NumericDerivatives(NamedTuple):
    """Numeric derivatives, their error estimates and smallest steps, and breaks at z.

    A break is the least by which the slopes on the two sides differ, as far as steps can tell; for
    a jump it is the slope across.
    """

    values: Array
    estimates: Array
    steps: Array
    breaks: Array
    finest: float  # the smallest step taken at all
    epsilon: float  # of the dtype in which fn computes
    flatness: float  # an error of slopes that this dtype explains where fn seems flat
    hidden: float  # a slope that moves values of this dtype by less than a spacing or so

    def rearranged(self, change: Callable[[Array], Array]) -> NumericDerivatives:
        """The same derivatives, with ``change`` applied to each array."""
        return self._replace(
            values=change(self.values),
            estimates=change(self.estimates),
            steps=change(self.steps),
            breaks=change(self.breaks),
        )


class Level(NamedTuple):
    """Values at one step, the errors that they may have, and the part of these that is noise."""

    value: Array
    error: Array
    noise: Array | float


def numeric_derivatives(
    fn: Callable[[Array], Array], z: Array, directions: Array, epsilon: float = EPSILON
) -> NumericDerivatives:
    """d fn(z + tu)/dt at t = 0 for each direction u, stacked along the first axis.

    Entries of u should be powers of 2: such steps leave no rounding in large scores. ``epsilon`` is
    that of the dtype in which fn computes, if known.

    Examples
    --------
    >>> found = numeric_derivatives(np.sin, np.zeros(2), np.eye(2))
    >>> print(found.values.round(9), found.breaks.any())
    [[1. 0.]
     [0. 1.]] False
    """
    # The points are this module's choice, and so are the warnings of functions not defined there.
    with np.errstate(all="ignore"):
        base = fn(z)
        epsilon = max(epsilon, _epsilon_of_values(base, *_at_uneven_scores(fn, z)))
        rounding = measured_rounding(fn, z, base, epsilon)
        steps = _steps(max(float(np.max(np.abs(z))) * epsilon, LAST_STEP / 2))
        at_once = max(1, AT_ONCE // max(1, base.size))
        blocks = [
            _directional_derivatives(fn, z, directions[i : i + at_once], base, steps, rounding)
            for i in range(0, len(directions), at_once)
        ]
    *arrays, finest = zip(*blocks, strict=True)
    values, estimates, used, breaks = map(np.concatenate, arrays)
    size = epsilon * float(np.max(np.abs(base), initial=0))
    return NumericDerivatives(
        values,
        estimates,
        used,
        breaks,
        max(finest),
        epsilon,
        flatness=32 * size / FIRST_STEP,
        # Where nothing moves at all, only 0 is right: a constant tells nothing of its precision.
        hidden=4 * size if np.any(values) else 0.0,
    )


def _at_uneven_scores(fn: Callable[[Array], Array], z: Array) -> list[Array]:
    """Values of fn near z, at scores with as many digits as float64 has.

    At z the values may be short because the scores are: squares of whole numbers are whole.
    """
    part = np.random.default_rng(0).random(z.shape) / 32
    return [fn(z - part * z), fn(z + part)]  # the first stays on z's side of 0, the second leaves 0


def _grid(outputs: Array) -> float:
    """The largest power of 2 of which all values of an output that moves are multiples.

    What is computed as a difference of larger numbers ends with their digits, however small it is
    itself, and may be off by as much: b z + c near its zero.

    >>> x = np.array([0.1, 0.3, 0.7])
    >>> _grid((x + 50) - 50) == 2.0**-47, _grid(x) < 1e-16
    (True, True)
    """
    values = outputs.reshape(len(outputs), -1)
    values = values[:, np.isfinite(values).all(axis=0) & np.any(values != values[0], axis=0)]
    mantissas, exponents = np.frexp(values)
    digits = np.abs(mantissas * 2.0**53).astype(np.int64)
    last = np.where(digits, np.ldexp((digits & -digits).astype(float), exponents - 53), np.inf)
    least = last.min(axis=0, initial=np.inf)
    return float(np.max(least[np.isfinite(least)], initial=0))


def _epsilon_of_values(*outputs: Array) -> float:
    """The spacing of floats at 1 in which the values were computed, as far as they tell.

    All of them fit into float32, and not because they are short.

    >>> _epsilon_of_values(np.array([0.5, 0.3])) == EPSILON
    True
    >>> print(_epsilon_of_values(np.array([0.5, np.float32(0.3)])))
    1.1920928955078125e-07
    """
    values = np.concatenate([np.ravel(x) for x in outputs])
    values = values[~np.isnan(values)]  # near z there may be a place where fn is not defined
    mantissas = np.frexp(values)[0]
    short = mantissas * 2**11 == np.rint(mantissas * 2**11)
    if np.all(values == values.astype(np.float32)) and not np.all(short):
        return SINGLE_EPSILON
    return EPSILON


def measured_rounding(fn: Callable[[Array], Array], z: Array, base: Array, epsilon: float) -> float:
    """How far the values of fn near z may be off by rounding.

    At equally spaced points a fourth difference is 0 but for the noise, √70 times that of one value
    on average. The spacing is the least that the function can see: one that computes in float32
    does not see what is much smaller than the spacing of float32 at z.
    """
    # What is normalised carries the rounding of its sum, which grows as a root does.
    largest = float(np.max(np.abs(base), initial=0)) or 1.0
    size = np.linalg.norm(np.atleast_1d(base) / largest, axis=-1)  # no square overflows
    rounding = epsilon / 2 * largest * float(np.max(size, initial=0))
    rng = np.random.default_rng(0)
    for stretch in STRETCHES:
        # Not all of one value: mappings do not see a shift.
        u = rng.permutation(np.resize([1, -0.5, 0.5, -1], z.size)).reshape(z.shape)
        values = _seen(fn, z, u, base, epsilon, stretch)
        if values is None:
            rounding = max(rounding, _stairs(fn, z, u, base, epsilon))
        else:
            noise = np.abs(np.diff(values, 4, axis=0)) / 70**0.5
            rounding = max(rounding, float(np.nan_to_num(np.max(noise), posinf=0)))
            rounding = max(rounding, _grid(values.reshape(-1, *base.shape)) / 2)
    return 3 * rounding


def _seen(
    fn: Callable[[Array], Array], z: Array, u: Array, base: Array, epsilon: float, stretch: int
) -> Array | None:
    """Values at two times seven points along u, as near as changes a value by half of the steps.

    The second seven lie four times as far apart: in the first, what moves by a stair at a time
    rounds neighbours alike, and shows too little of its noise. For the same reason the spacing of a
    single score, which has no other directions, is stretched: where b x grows by a whole number of
    ulps, nearly, b x + c looks exact. Not near 0, where there is no such number.

    None where the function is flat as far as the spacing of its floats goes. float32 may hide in
    values of float64, a sum, say; but further out than this a change would be no rounding.
    """
    reach = float(np.max(np.abs(z)))
    spacing = 2 * power_of_2_above(epsilon * max(reach, 2.0**-20))
    if z.size == 1 and reach > 2.0**-20 and spacing * stretch <= _furthest(reach, epsilon):
        spacing *= stretch
    while spacing <= _furthest(reach, epsilon):
        values = _moving(fn, z, u, base, spacing)
        if values is not None:
            wider = [fn(z + i * 4 * spacing * u) for i in range(1, 8)]
            return np.stack([values, wider], axis=1)
        spacing *= 8
    return None


def _furthest(reach: float, epsilon: float) -> float:
    """The widest spacing of points at which a change of the values is still no more than noise."""
    return 8 * max(epsilon * max(1.0, reach), SINGLE_EPSILON * min(max(1.0, reach), 1e2))


def _moving(
    fn: Callable[[Array], Array], z: Array, u: Array, base: Array, spacing: float
) -> Array | None:
    """Values at seven points along u, or None unless half of the steps change one of them."""
    if not np.any(fn(z + 3 * spacing * u) != base):
        return None
    # Not z itself, which may sit on a jump: this would count as noise.
    values = np.stack([fn(z + i * spacing * u) for i in range(1, 8)])
    return values if np.max(np.sum(np.diff(values, axis=0) != 0, axis=0)) >= 3 else None


def _stairs(fn: Callable[[Array], Array], z: Array, u: Array, base: Array, epsilon: float) -> float:
    """The highest stair of a function that is flat near z, and 0 if what it climbs is no staircase.

    A function that rounds coarsely inside, to float16, say, is flat between two of its stairs. That
    is no slope of 0, and no floats that it returns tell of it. What is truly flat here and moves
    further out, as sparsemax does behind a kink, moves in all points there, or in a jump or two.
    """
    spacing = 8 * power_of_2_above(_furthest(float(np.max(np.abs(z))), epsilon))
    while spacing <= FIRST_STEP:
        if _moving(fn, z, u, base, spacing) is not None:
            ways = np.arange(7 * STAIRS_FINER + 1) * (spacing / STAIRS_FINER)
            return _highest_stair(np.stack([fn(z + t * u) for t in ways]), epsilon)
        spacing *= 4
    return 0.0


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


def _directional_derivatives(
    fn: Callable[[Array], Array],
    z: Array,
    directions: Array,
    base: Array,
    steps: list[float],
    rounding: float,
) -> tuple[Array, Array, Array, Array, float]:
    """The fields of `NumericDerivatives` up to the finest step, for some directions."""
    slopes: list[Level] = []  # for each step, from the largest
    bends: list[Level] = []
    plain: list[Array] = []
    previous: list[Array] = []
    largest = 0.0
    for h in steps:
        up, down, slip = [], [], 0.0
        for u in directions:
            ahead, behind = z + h * u, z - h * u
            up.append(fn(ahead))
            down.append(fn(behind))
            # What the distance between the points is off by, and their middle from z.
            slip = max(
                slip, np.max(np.abs(ahead - behind - 2 * h * u) + np.abs(ahead - z - (z - behind)))
            )
        forward, backward = np.stack(up) - base, base - np.stack(down)
        row = [(forward + backward) / (2 * h)]
        finite = np.isfinite(row[0])
        largest = max(largest, float(np.max(np.abs(row[0]), initial=0, where=finite)))
        noise = (rounding + slip * largest) / h
        value, truncation = row[0], np.full_like(row[0], np.inf)
        for j, before in enumerate(previous):
            # The error is a series in h², and each h is a quarter of the last: cancel term j + 1.
            row.append(row[j] + (row[j] - before) / (16.0 ** (j + 1) - 1))
            change = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - before))
            change = _without_luck(change)
            value = np.where(change < truncation, row[-1], value)
            truncation = np.where(change < truncation, change, truncation)
        if slopes:
            # Past a kink, a single step may hit the value before by chance.
            last = slopes[-1].error - slopes[-1].noise / 2
            truncation = np.maximum(truncation, np.where(np.isfinite(last), last / 256, 0))
        previous = row[:5]
        slopes.append(Level(value, truncation + noise, 2 * noise))
        plain.append(np.abs(row[0]))
        bend = (forward - backward) / h
        # A smooth function's bend h f'' falls to a quarter with the step. A root falls more slowly.
        change = 4 * np.abs(bend - bends[-1].value) if bends else np.full_like(bend, np.inf)
        bends.append(Level(bend, change + 4 * noise, 4 * noise))
        if len(slopes) >= FEWEST_STEPS and noise > FINE * largest + FINE_ABSOLUTE:
            # A peak that is narrower than the step would look like a single point off the curve.
            if not np.any(_does_not_fall(bends, steps)):
                break
    value, error, used = believed(slopes)
    bend, uncertainty, _ = believed(bends)
    jump = np.where((plain[-1] > 3 * plain[-3]) & (plain[-1] > 30 * noise), plain[-1], 0)
    breaks = np.maximum(np.maximum(np.abs(bend) - uncertainty, 0), jump)
    last, before = bends[-1].value, bends[-2].value
    begins_to_fall = np.abs(last - before / 4) < np.abs(before) / 8  # as h f'' does
    apart = _does_not_fall(bends, steps) & ~begins_to_fall
    breaks = np.maximum(breaks, np.where(apart, np.abs(last), 0))
    return value, error, np.asarray(steps)[used], breaks, h


def _does_not_fall(bends: list[Level], steps: list[float]) -> Array:
    """Whether the slopes on the two sides of z go on differing, beyond what noise explains.

    Where a derivative exists, the bend falls to 0 with the step. It grows like 1/h if the value at
    z is not the limit of those around it, which central differences cannot see, and goes up and
    down for ever if the function swings, as x sin(1/x) does.
    """
    sizes = np.abs([level.value for level in bends])
    count = min(4, len(sizes) // 2)
    now, before = (np.max(part, axis=0) for part in (sizes[-count:], sizes[-2 * count : -count]))
    # The value at z is no stray one if it fits those further out: near z digits cancel, as those
    # of (1 - cos x)/x² do. One step may fit by chance.
    gaps = np.stack([h * size for h, size in zip(steps, sizes, strict=False)])
    fits = np.sum(gaps[:-count] < np.max(gaps[-count:], axis=0) / 16, axis=0) >= 2
    return (now > before / 2) & (now > 30 * bends[-1].noise) & ~fits


def _without_luck(change: Array) -> Array:
    """Changes of all outputs along each direction, none much less than the largest.

    Among many outputs some change little by chance, where the others show that the step is wrong.
    """
    if change.ndim < 2:
        return change
    return np.maximum(change, np.max(change, axis=-1, keepdims=True) / 16)


def believed(levels: list[Level]) -> tuple[Array, Array, Array]:
    """Value, error and index of the level with the least error that all after it confirm.

    Truncation falls with the step, so the levels after may differ by their noise only.

    >>> rough = Level(np.array(3.0), np.array(1.0), 0.0)
    >>> flat, fine = rough._replace(value=0.0, error=0.0), Level(np.array(2.7), 2.0, 1.0)
    >>> believed([flat, rough, fine])
    (array(3.), array(1.), array(1))
    """
    last = levels[-1]
    value, error, index = last.value, last.error, np.full(last.value.shape, len(levels) - 1)
    low, high = last.value - last.noise, last.value + last.noise
    confirmed = ~np.isnan(value)
    for k in reversed(range(len(levels) - 1)):
        level = levels[k]
        confirmed &= (level.value - level.error <= high) & (level.value + level.error >= low)
        low = np.where(confirmed, np.maximum(low, level.value - level.noise), low)
        high = np.where(confirmed, np.minimum(high, level.value + level.noise), high)
        better = confirmed & (level.error < error)
        value = np.where(better, level.value, value)
        error = np.where(better, level.error, error)
        index = np.where(better, k, index)
    return value, error, index


def power_of_2_above(x: float) -> float:
    """The least power of 2 that x does not exceed, for x > 0.

    >>> power_of_2_above(5), power_of_2_above(4)
    (8.0, 4.0)
    """
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1, exponent - (mantissa == 0.5))


def _steps(grain: float) -> list[float]:
    """Steps, each a quarter of the last, down to twice the spacing of floats at the largest |z|.

    Apart from its rounding |z| has no influence, because a mapping depends on the differences of
    the scores.
    """
    last = 2 * power_of_2_above(grain)
    first = max(FIRST_STEP, 4.0 ** (FEWEST_STEPS - 1) * last)
    return [first / 4**k for k in range(1 + int(np.log2(first / last) // 2))]
