"""Directional derivatives by central differences with Richardson extrapolation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FIRST_STEP, LAST_STEP = 2.0**-4, 2.0**-20  # from 0.06 to 1e-6, where rounding costs 1e-10


class NumericDerivatives(NamedTuple):
    """Numeric derivatives, their error estimates and smallest steps, and whether z is on a kink."""

    values: Array
    estimates: Array
    steps: Array
    kink: bool

    def rearranged(self, change: Callable[[Array], Array]) -> NumericDerivatives:
        """The same derivatives, with ``change`` applied to each array."""
        values, estimates, steps = map(change, self[:3])
        return NumericDerivatives(values, estimates, steps, self.kink)


def numeric_derivatives(
    fn: Callable[[Array], Array], z: Array, directions: Any
) -> NumericDerivatives:
    """d fn(z + tu)/dt at t = 0 for each direction u, stacked along the first axis.

    Examples
    --------
    >>> found = numeric_derivatives(np.sin, np.zeros(2), np.eye(2))
    >>> print(found.values.round(9), found.kink)
    [[1. 0.]
     [0. 1.]] False
    """
    base = fn(z)
    each = [_directional_derivative(fn, z, u, base) for u in directions]
    values, estimates, steps, breaks = (np.stack([s[k] for s in each]) for k in range(4))
    kink = bool(np.any(breaks > 1e-3 * np.max(np.abs(values))))
    return NumericDerivatives(values, estimates, steps, kink)


def _directional_derivative(
    fn: Callable[[Array], Array], z: Array, u: Array, base: Array
) -> tuple[Array, Array, Array, Array]:
    """The derivative along u, its error estimate, its smallest step, and its break at z."""
    previous: list[Array] = []
    bends: list[Array] = []
    plain: list[Array] = []
    best = error = used = rounding = np.array(0.0)
    for h in _steps(float(np.max(np.abs(z[u != 0]), initial=0))):
        ahead = z + h * u
        up, down = fn(ahead), fn(z - h * u)
        row = [(up - down) / (2 * h)]
        # Without the rounding, two noisy values that agree by chance would win. If z is large, the
        # actual step differs from the intended one by `slip` (but not along a single axis, since h
        # is a power of 2).
        slip = np.max(np.abs(ahead - z - h * u)) * np.max(np.abs(row[0]), initial=0)
        rounding = (np.finfo(np.float64).eps * np.maximum(np.abs(up), np.abs(down)) + slip) / h
        if not previous:
            best, error, used = row[0], np.full_like(row[0], np.inf), np.full_like(row[0], h)
        for j, before in enumerate(previous):
            # The error is a series in h², and each h is a quarter of the last: cancel term j + 1.
            row.append(row[j] + (row[j] - before) / (16.0 ** (j + 1) - 1))
            change = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - before)) + rounding
            better = change < error
            best = np.where(better, row[-1], best)
            used = np.where(better, h, used)
            error = np.where(better, change, error)
        previous = row
        bends.append(np.abs((up - base) - (base - down)) / h)
        plain.append(np.abs(row[0]))
    # Over two steps, h falls by a factor of 16. If f is smooth, so does the bend, the difference
    # h f'' of the slopes on the two sides. At a kink it stays. If f jumps it grows, or else, where
    # the two sides of the jump cancel in the bend, the slope does.
    bend = np.where(bends[-1] > bends[-3] / 3, bends[-1], 0)
    jump = np.where(plain[-1] > 3 * plain[-3], plain[-1], 0)
    return best, error, used, np.maximum(np.maximum(bend, jump) - 100 * rounding, 0)


def _steps(reach: float) -> list[float]:
    """At least three steps, each a quarter of the last, that survive the rounding of z.

    ``reach`` is the largest |z|. Apart from its rounding it has no influence, because a mapping
    depends on the differences of the scores.
    """
    last = max(LAST_STEP, 2.0 ** np.ceil(np.log2(1e3 * np.finfo(np.float64).eps * reach + 1e-300)))
    first = max(FIRST_STEP, 16 * last)
    return [first / 4**k for k in range(1 + int(np.log2(first / last) // 2))]
