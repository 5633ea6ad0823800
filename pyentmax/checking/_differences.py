"""Directional derivatives by central differences, with an estimate of the error of each.

A large step h has a large error where f bends or has a kink within its reach; a small step divides
the rounding of f by h. The best step is not known beforehand, so all of 1/16, 1/64, … are tried:

1. **Noise.** The rounding σ of f near each step is what a dozen neighbouring values leave beside a
   quintic (after Moré and Wild 2011). It counts for all smaller steps if several steps show it
   alike: rounding lasts from step to step, while what a bend or a kink leaves shrinks with h.
2. **Truncation.** Richardson's extrapolation to h → 0 gives each step a value and an interval: the
   change by the last extrapolation, plus 3σ/h (Ridders 1982).
3. **Choice of the step.** The answer is the narrowest interval that meets the intervals of *all*
   smaller steps (Lepski's method; intersecting confidence intervals, Goldenshluger and Nemirovski
   1997). Two large steps that agree because f is flat there contradict the smaller ones.
4. **Kinks.** z is on a kink or a jump if the slopes ahead and behind do not approach each other as
   h falls.

References
----------
A. Goldenshluger and A. Nemirovski, On spatially adaptive estimation of nonparametric regression,
Mathematical Methods of Statistics 6 (1997). J. J. Moré and S. M. Wild, Estimating computational
noise, SIAM Journal on Scientific Computing 33 (2011). C. J. F. Ridders, Accurate computation of
F'(x) and F'(x)F''(x), Advances in Engineering Software 4 (1982).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[[Array], Array]

EPSILON = 2.0**-52  # the spacing of float64 at 1
STEPS = 4.0 ** -np.arange(2, 16)  # from 1/16 down to 2⁻³⁰
FEWEST_STEPS = 6
FINE = 1e-7  # of the largest slope: a smaller step whose noise exceeds this is not needed
CERTAIN = 3  # standard deviations of the noise that a value may be off by
LUCK = 8  # times less than others a derivative may seem to change by chance
ROUNDED = 2  # spacings of floats that an output may change by although fn is constant
VISIBLE = 4  # spacings of floats at z that a step must span
# Points around a step, as fractions of 1/30 of it. Irregular, because at regular points differences
# of large numbers are all rounded in the same way.
NODES = np.array([-62, -57, -43, -40, -21, -7, 2, 13, 24, 41, 50, 63]) / 64
DEGREE = 5


class Derivatives(NamedTuple):
    """Directional derivatives, arrays of shape (directions, …), and what they can be judged by."""

    value: Array  # NaN where fn is not defined, or no step is visible
    error: Array  # the estimate of it
    gap: Array  # |slope ahead − slope behind| for h → 0: 0 unless z is on a kink or a jump
    constant: Array  # whether no step changed the output by more than rounding does
    visible: Array  # whether the steps are larger than the spacing of floats at z
    size: float  # the largest |fn(z)|
    slopes: float  # the largest one-sided slope, over the largest step that shows any

    def rearranged(self, change: Callable[[Array], Array]) -> Derivatives:
        """The same derivatives with ``change`` applied to each array."""
        arrays: Any = {name: change(getattr(self, name)) for name in self._fields[:5]}
        return self._replace(**arrays)


class Level(NamedTuple):
    """Derivatives at one step, their errors, and the part of these that noise explains."""

    value: Array
    error: Array
    noise: Array | float


@np.errstate(all="ignore")  # the points, and so what fn warns of there, are chosen here
def derivatives(
    fn: Function, z: Array, directions: Array, epsilon: float = EPSILON, alike: bool = False
) -> Derivatives:
    """d fn(z + tu)/dt at t = 0 for each direction u, stacked along the first axis.

    ``epsilon`` is the spacing of floats at 1 in the dtype in which fn computes. Entries of u should
    be powers of 2, so that z + hu has little rounding. Directions that are ``alike``, such as
    random ones, have errors of much the same size.

    Examples
    --------
    >>> found = derivatives(np.sin, np.zeros(2), np.eye(2))
    >>> print(found.value.round(9), found.gap.any())
    [[1. 0.]
     [0. 1.]] False
    """
    base = fn(z)
    fn = _nan_where_undefined(fn, base.shape)
    size = _largest(base)
    spacing = np.array([np.max(np.abs(z[u != 0])) for u in directions]) * epsilon
    spacing = spacing.reshape(-1, *[1] * base.ndim)
    visible = VISIBLE * spacing <= STEPS[0]
    steps = STEPS[STEPS >= VISIBLE * np.max(spacing, initial=0, where=visible)]
    least = epsilon / 4 * size * (1 + np.sqrt(z.size))  # that of a sum of d terms grows like √d
    slopes: list[Level] = []
    bends: list[Level] = []  # slope ahead − slope behind
    extrapolated: list[Array] = []
    central: list[Array] = []
    constant = np.ones((len(directions), *base.shape), bool)
    largest, first = 0.0, 0.0
    for h, sigma in zip(steps, _rounding(fn, z, steps, least), strict=True):
        ahead = np.stack([fn(z + h * u) for u in directions]) - base
        behind = base - np.stack([fn(z - h * u) for u in directions])
        moved = np.maximum(np.abs(ahead), np.abs(behind))
        constant &= moved <= ROUNDED * epsilon * size
        first = first or _largest(moved) / h
        slope, bend = (ahead + behind) / (2 * h), (ahead - behind) / h
        largest = max(largest, _largest(slope))
        off = (CERTAIN * sigma + spacing * np.abs(bend)) / h
        value, truncation, extrapolated = _richardson(slope, extrapolated, alike)
        change = np.full_like(bend, np.inf)
        if slopes:
            # Beyond a kink a step may repeat the value before by chance, but not twice.
            before = slopes[-1].error - slopes[-1].noise / 2
            truncation = np.maximum(truncation, np.where(np.isfinite(before), before / 256, 0))
            change = np.abs(bend - bends[-1].value)
        slopes.append(Level(value, truncation + off, 2 * off))
        bends.append(Level(bend, 4 * (_without_luck(change, alike) + off), 4 * off))
        central.append(np.abs(slope))
        growing = _growth(bends, central)
        learning = (growing > 0) | (truncation > off) | np.isnan(slope)
        enough = len(slopes) >= FEWEST_STEPS and CERTAIN * sigma > FINE * h * largest
        if enough and not np.any(learning):
            break
    value, error = _narrowest(slopes)
    bend, uncertainty = _narrowest(bends)
    gap = np.fmax(np.fmax(np.abs(bend) - uncertainty, growing), 0)
    value, error = np.where(visible, value, np.nan), np.where(visible, error, np.inf)
    return Derivatives(
        value, error, gap, constant, np.broadcast_to(visible, value.shape), size, first
    )


def _nan_where_undefined(fn: Function, shape: tuple[int, ...]) -> Function:
    """fn with NaN where it is infinite or raises an error, as math.log does below 0."""

    def defined(z: Array) -> Array:
        try:
            values = fn(z)
        except Exception:  # libraries have errors of their own
            values = np.full(shape, np.nan)
        return np.where(np.isinf(values), np.nan, values)

    return defined


def _largest(x: Array) -> float:
    return float(np.max(np.abs(x), initial=0, where=np.isfinite(x)))


def _rounding(fn: Function, z: Array, steps: Array, least: float) -> list[float]:
    """The standard deviation of fn's rounding for each step, at least ``least``."""
    sigmas = [_noise_near(fn, z, h) for h in steps]
    noise, lasting = [], least
    for k, sigma in enumerate(sigmas):
        near = np.sort(sigmas[k : k + 5])
        # One of the five may be small because its points suit the rounding, or large for a kink.
        if len(near) == 5 and max(sigma, near[3]) <= 8 * near[1]:
            lasting = max(lasting, sigma)
        noise.append(lasting)
    return noise


def _noise_near(fn: Function, z: Array, h: float) -> float:
    """The root mean square of what a quintic leaves of fn's values around a step from z."""
    u = np.random.default_rng(0).permutation(np.resize([1, -0.5, 0.5, -1], z.size))
    values = np.stack([np.ravel(fn(z + h * (1 + t / 30) * u.reshape(z.shape))) for t in NODES])
    values = np.where(np.isfinite(values).all(axis=0), values - values[0], 0)
    basis = np.linalg.qr(np.vander(NODES, DEGREE + 1))[0]
    rest = values - basis @ (basis.T @ values)
    scale = _largest(rest) or 1.0  # so that no square overflows
    squares = np.sum((rest / scale) ** 2, axis=0)
    return scale * float(np.sqrt(np.max(squares, initial=0) / (len(NODES) - DEGREE - 1)))


def _richardson(slope: Array, before: list[Array], alike: bool) -> tuple[Array, Array, list[Array]]:
    """The extrapolation to h → 0 that changed least, its change, and the row of the tableau.

    The error of central differences is a series in h², and each h is a quarter of the last.
    """
    row = [slope]
    value, change = slope, np.full_like(slope, np.inf)
    for k, coarser in enumerate(before):
        row.append(row[k] + (row[k] - coarser) / (16.0 ** (k + 1) - 1))  # cancels h²⁽ᵏ⁺¹⁾
        new = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - coarser))
        new = _without_luck(new, alike)
        value, change = np.where(new < change, row[-1], value), np.where(new < change, new, change)
    return value, change, row[:5]


def _without_luck(change: Array, alike: bool) -> Array:
    """Changes along each direction, none much less than the largest of all outputs.

    Of many outputs some change little by chance where others show that the step is wrong.
    """
    others = tuple(range(not alike, change.ndim))
    return np.maximum(change, np.fmax.reduce(change, axis=others, keepdims=True) / LUCK)


def _narrowest(levels: list[Level]) -> tuple[Array, Array]:
    """Value and error of the narrowest interval that meets those of all smaller steps.

    Truncation falls with the step, so smaller steps may differ by their noise only.

    >>> rough = Level(np.array(3.0), np.array(1.0), 0.0)
    >>> flat, fine = rough._replace(value=np.array(0.0), error=0.0), Level(np.array(2.7), 2.0, 1.0)
    >>> _narrowest([flat, rough, fine])
    (array(3.), array(1.))
    """
    value, error, noise = levels[-1]
    low, high, confirmed = value - noise, value + noise, ~np.isnan(value)
    for level in reversed(levels[:-1]):
        confirmed &= (level.value - level.error <= high) & (level.value + level.error >= low)
        low = np.where(confirmed, np.maximum(low, level.value - level.noise), low)
        high = np.where(confirmed, np.minimum(high, level.value + level.noise), high)
        better = confirmed & (level.error < error)
        value, error = np.where(better, level.value, value), np.where(better, level.error, error)
    return value, error


def _growth(bends: list[Level], central: list[Array]) -> Array:
    """|slope ahead − slope behind|, or |slope| across a jump, where they do not fall with h.

    For smooth f the first is h f'' and falls to a quarter with each step. It grows like 1/h if f(z)
    is not the limit of f, and varies for ever if f oscillates, as z sin(1/z) does at 0.
    """
    if len(bends) < 3:
        return np.zeros_like(central[0])
    sizes, noise = np.abs([level.value for level in bends]), bends[-1].noise
    n = min(4, len(sizes) // 2)
    now, before = np.fmax.reduce(sizes[-n:]), np.fmax.reduce(sizes[-2 * n : -n])
    stays = (now > before / 4) & (np.fmax.reduce(sizes[-2:]) > now / 4) & (now > 2 * noise)
    a, b, c = central[-3:]
    jumps = (c > 3 * b) & (b > 3 * a) & (c > 4 * noise)
    return np.maximum(np.where(stays, now, 0), np.where(jumps, c, 0))
