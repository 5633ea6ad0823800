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
3. The rounding of the function is measured around each step, not assumed: it may compute in
   float32, or lose its digits where scores are tiny.

The same rule tells whether the slopes on the two sides of z have the same limit. If their
difference does not fall with the step at all, there is none: the function may swing, or jump at z.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pyentmax.checking._rounding import (
    EPSILON,
    Array,
    at_uneven_scores,
    epsilon_of_values,
    measured_rounding,
    power_of_2_above,
    unseen_slope,
)

FIRST_STEP, LAST_STEP, FEWEST_STEPS = 2.0**-4, 2.0**-40, 6
# Steps fall until rounding costs so much of the largest derivative, a tenth of the usual tolerance.
FINE, FINE_ABSOLUTE = 1e-7, 1e-9
ROUGH = 2.0**-40  # of the values: rounding by so much is that of a shorter dtype inside
CLEAR = 8  # times its noise: then a difference of slopes is one
AT_ONCE = 1 << 18  # entries of all directions computed with at once


class NumericDerivatives(NamedTuple):
    """Numeric derivatives, their error estimates and smallest steps, and breaks at z.

    A break is the least by which the slopes on the two sides differ, as far as steps can tell; for
    a jump it is the slope across.
    """

    values: Array
    estimates: Array
    steps: Array
    breaks: Array
    clear: Array  # the smallest steps at which the slopes differ clearly
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
            clear=change(self.clear),
        )


class Level(NamedTuple):
    """Values at one step, the errors that they may have, and the part of these that is noise."""

    value: Array
    error: Array
    noise: Array | float


def numeric_derivatives(
    fn: Callable[[Array], Array],
    z: Array,
    directions: Array,
    epsilon: float = EPSILON,
    alike: bool = False,
) -> NumericDerivatives:
    """d fn(z + tu)/dt at t = 0 for each direction u, stacked along the first axis.

    Entries of u should be powers of 2: such steps leave no rounding in large scores. ``epsilon`` is
    that of the dtype in which fn computes, if known. Directions that are ``alike``, random ones of
    all scores, have errors of much the same size.

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
        fn = _nan_where_refused(fn, base.shape)
        uneven = at_uneven_scores(fn, z)
        # Where fn is flat at z, only what is further off tells its precision.
        far = [fn(z + sign * 0.7 * FIRST_STEP) for sign in (1, -1)]
        epsilon = max(epsilon, epsilon_of_values(base, *uneven, *far))
        grain = float(np.max(np.abs(z))) * epsilon  # fn sees z to half of it
        steps = _steps(max(grain, LAST_STEP / 2))
        rounding = measured_rounding(fn, z, base, uneven, steps, epsilon)
        at_once = max(1, AT_ONCE // max(1, base.size))
        blocks = [
            _directional_derivatives(
                fn, z, directions[i : i + at_once], base, steps, rounding, grain, epsilon, alike
            )
            for i in range(0, len(directions), at_once)
        ]
        *arrays, finest = zip(*blocks, strict=True)
        values, estimates, used, breaks, clear = map(np.concatenate, arrays)
        unseen = np.nan_to_num(unseen_slope(fn, z, steps, rounding[0], float(np.min(used))))
    size = epsilon * float(np.max(np.abs(base), initial=0))
    return NumericDerivatives(
        values,
        estimates + unseen,
        used,
        breaks,
        clear,
        max(finest),
        epsilon,
        flatness=256 * size / FIRST_STEP,  # noise that was seen, not assumed, is some ε
        # Where nothing moves at all, only 0 is right: a constant tells nothing of its precision.
        hidden=4 * size if np.any(values) else 0.0,
    )


def _nan_where_refused(
    fn: Callable[[Array], Array], shape: tuple[int, ...]
) -> Callable[[Array], Array]:
    """fn with NaN where it is infinite or raises an error, as math.log and others do."""

    def tried(z: Array) -> Array:
        try:
            values = fn(z)
        except MemoryError:
            raise
        except Exception:  # libraries have errors of their own
            return np.full(shape, np.nan)
        if values.shape != shape:
            raise ValueError(
                f"the function must return one shape for all z, got {shape} at z and "
                f"{values.shape} beside it"
            )
        return np.where(np.isinf(values), np.nan, values)

    return tried


def _directional_derivatives(
    fn: Callable[[Array], Array],
    z: Array,
    directions: Array,
    base: Array,
    steps: list[float],
    rounding: tuple[Array, Array],
    grain: float,
    epsilon: float,
    alike: bool,
) -> tuple[Array, Array, Array, Array, Array, float]:
    """The fields of `NumericDerivatives` up to the finest step, for some directions."""
    slopes: list[Level] = []  # for each step, from the largest
    bends: list[Level] = []
    plain: list[Array] = []  # slopes before extrapolation
    previous: list[Array] = []
    largest, apart = 0.0, np.zeros(1)
    short = epsilon > EPSILON or rounding[0][-1] > ROUGH * np.max(np.abs(base), initial=0)
    for h, everywhere, there in zip(steps, *rounding, strict=True):
        up, down, slip = _both_sides(fn, z, directions, h)
        forward, backward = up - base, base - down
        slope, bend = (forward + backward) / (2 * h), (forward - backward) / h
        largest = max(largest, float(np.max(np.abs(slope), initial=0, where=np.isfinite(slope))))
        noise = (everywhere + slip * largest) / h
        noise_there = (there + slip * largest + grain * np.abs(bend)) / h
        value, truncation, previous = _extrapolated(slope, previous)
        if slopes:
            # Past a kink, a single step may hit the value before by chance.
            last = slopes[-1].error - slopes[-1].noise / 2
            truncation = np.maximum(truncation, np.where(np.isfinite(last), last / 256, 0))
        if alike:  # along some of them the errors seem small by chance
            truncation = np.maximum(truncation, np.fmax.reduce(truncation, axis=0) / 4)
        off = noise_there
        if bends and short:
            # Few steps are left, and between them rounding hides a kink. Where two bends are
            # extrapolated to h = 0, h f'' is gone, and a kink is not: half of it is in the slope.
            off = off + np.abs(4 * bend - bends[-1].value) / 6
        slopes.append(Level(value, truncation + off, 2 * off))
        # A smooth function's bend h f'' falls to a quarter with the step. A root falls more slowly.
        change = 4 * np.abs(bend - bends[-1].value) if bends else np.full_like(bend, np.inf)
        # Near 0, a shorter dtype rounds to a share of the step, and of its slope.
        unsure = 4 * noise + 2 * epsilon * largest
        bends.append(Level(bend, change + unsure, unsure))
        plain.append(np.abs(slope))
        if len(slopes) >= FEWEST_STEPS:
            # A peak that is narrower than the step would look like a single point off the curve.
            apart = _apart(apart, bends, steps)
            # Just behind a kink, each smaller step still tells much more, or where fn is defined.
            learning = np.any(np.isfinite(truncation) & (truncation > noise) | np.isnan(slope))
            if noise > FINE * largest + FINE_ABSOLUTE and not np.any(apart) and not learning:
                break
    value, error, used = believed(slopes)
    breaks = _breaks(bends, plain, apart)
    clear = np.full_like(breaks, steps[0])
    for step, level in zip(steps, bends, strict=False):
        clear = np.where(np.abs(level.value) > CLEAR * level.noise, step, clear)
    return value, error, np.asarray(steps)[used], breaks, clear, h


def _both_sides(
    fn: Callable[[Array], Array], z: Array, directions: Array, h: float
) -> tuple[Array, Array, float]:
    """Values a step ahead of z and behind it, and how far the points are off, by rounding."""
    up, down, slip = [], [], 0.0
    for u in directions:
        ahead, behind = z + h * u, z - h * u
        up.append(fn(ahead))
        down.append(fn(behind))
        # Of the distance between the points, and of their middle from z.
        off = np.abs(ahead - behind - 2 * h * u) + np.abs(ahead - z - (z - behind))
        slip = max(slip, float(np.max(off)))
    return np.stack(up), np.stack(down), slip


def _extrapolated(slope: Array, previous: list[Array]) -> tuple[Array, Array, list[Array]]:
    """The best of Richardson's extrapolations, its error, and what the next step is to go on from.

    The error is a series in h², and each h is a quarter of the last. The best one is that which
    changed least.
    """
    row = [slope]
    value, truncation = slope, np.full_like(slope, np.inf)
    for j, before in enumerate(previous):
        row.append(row[j] + (row[j] - before) / (16.0 ** (j + 1) - 1))  # cancels term j + 1
        change = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - before))
        change = _without_luck(change)
        value = np.where(change < truncation, row[-1], value)
        truncation = np.where(change < truncation, change, truncation)
    return value, truncation, row[:5]


def _breaks(bends: list[Level], plain: list[Array], apart: Array) -> Array:
    """By how much the slopes on the two sides of z differ, or the slope across a jump."""
    bend, uncertainty, _ = believed(bends)
    noise = bends[-1].noise
    # The slope across a jump grows like 1/h. Where it settles behind a kink, it may grow once.
    grows = (plain[-1] > 3 * plain[-2]) & (plain[-2] > 3 * plain[-3])
    jump = np.where(grows & (plain[-1] > CLEAR * noise), plain[-1], 0)
    last, before = bends[-1].value, bends[-2].value
    begins_to_fall = np.abs(last - before / 4) < np.abs(before) / 8  # as h f'' does
    swing = np.where((apart > 0) & ~begins_to_fall, np.maximum(np.abs(last), apart), 0)
    return np.maximum.reduce([np.abs(bend) - uncertainty, jump, swing, np.zeros_like(bend)])


def _apart(before: Array, bends: list[Level], steps: list[float]) -> Array:
    """How far the slopes on the two sides of z are apart, and 0 where they seem to meet.

    What was clear at larger steps stays so where rounding hides it, until smaller steps refute it.
    """
    now, goes_on = _does_not_fall(bends, steps)
    return np.where(goes_on, now, np.where(_refuted(before, bends), 0, before))


def _does_not_fall(bends: list[Level], steps: list[float]) -> tuple[Array, Array]:
    """How far apart the slopes on the two sides of z are, and whether that goes on.

    Where a derivative exists, the bend falls to 0 with the step. It grows like 1/h if the value at
    z is not the limit of those around it, which central differences cannot see, and goes up and
    down for ever if the function swings, as x sin(log x) does.
    """
    sizes = np.abs([level.value for level in bends])
    count = min(4, len(sizes) // 2)
    now, before = (np.max(part, axis=0) for part in (sizes[-count:], sizes[-2 * count : -count]))
    # The value at z is no stray one if it fits those further out: near z digits cancel, as those
    # of (1 - cos x)/x² do. One step may fit by chance.
    gaps = np.stack([h * size for h, size in zip(steps, sizes, strict=False)])
    fits = np.sum(gaps[:-count] < np.max(gaps[-count:], axis=0) / 16, axis=0) >= 2
    clear = (now > before / 2) & (now > CLEAR * bends[-1].noise)
    return now, clear & ~fits & ~_refuted(now, bends)


def _refuted(bend: Array, bends: list[Level]) -> Array:
    """Whether the last two levels are smaller beyond doubt: one may be so by chance."""
    most = [np.abs(level.value) + level.noise / 3 for level in bends[-2:]]
    return np.maximum(*most) < bend / 4


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


def _steps(grain: float) -> list[float]:
    """Steps, each a quarter of the last, down to twice the spacing of floats at the largest |z|.

    Apart from its rounding |z| has no influence, because a mapping depends on the differences of
    the scores.
    """
    last = 2 * power_of_2_above(grain)
    first = max(FIRST_STEP, 4.0 ** (FEWEST_STEPS - 1) * last)
    return [first / 4**k for k in range(1 + int(np.log2(first / last) // 2))]
