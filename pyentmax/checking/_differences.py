"""Directional derivatives by central differences with Richardson's extrapolation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

STEPS = 2.0**-4 * 4.0 ** -np.arange(9)  # from 0.06 to 1e-6, where rounding costs 1e-10


class Slopes(NamedTuple):
    """Numeric derivatives, their error estimates and smallest steps, and whether on a kink."""

    values: Array
    estimates: Array
    steps: Array
    kink: bool

    def rearranged(self, change: Callable[[Array], Array]) -> Slopes:
        """The same with its arrays in another shape."""
        return Slopes(change(self.values), change(self.estimates), change(self.steps), self.kink)


def slopes(fn: Callable[[Array], Array], z: Array, directions: Any) -> Slopes:
    """d fn(z + tu)/dt at t = 0 for each direction u, stacked along the first axis.

    Examples
    --------
    >>> found = slopes(np.sin, np.zeros(2), np.eye(2))
    >>> print(found.values.round(9), found.kink)
    [[1. 0.]
     [0. 1.]] False
    """
    base = fn(z)
    each = [_along(fn, z, u, base) for u in directions]
    values, estimates, steps, bends = (np.stack([s[k] for s in each]) for k in range(4))
    kink = bool(np.any(bends > 1e-3 * np.max(np.abs(values))))
    return Slopes(values, estimates, steps, kink)


def _along(
    fn: Callable[[Array], Array], z: Array, u: Array, base: Array
) -> tuple[Array, Array, Array, Array]:
    """The derivative along u, its error estimate, its smallest step, and the bend at z."""
    scale = max(1.0, float(np.max(np.abs(z * u), initial=0)))
    previous: list[Array] = []
    best = error = used = np.array(0.0)
    for k, h in enumerate(STEPS * scale):
        up, down = fn(z + h * u), fn(z - h * u)
        row = [(up - down) / (2 * h)]
        # Without it, two noisy values that agree by chance would win.
        rounding = np.finfo(np.float64).eps * np.maximum(np.abs(up), np.abs(down)) / h
        if k == 0:
            best, error, used = row[0], np.full_like(row[0], np.inf), np.full_like(row[0], h)
        for j, before in enumerate(previous):
            # The error is a series in h², and h falls by 4: cancel its (j+1)-th term.
            row.append(row[j] + (row[j] - before) / (16.0 ** (j + 1) - 1))
            change = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - before)) + rounding
            better = change < error
            best = np.where(better, row[-1], best)
            used = np.where(better, h, used)
            error = np.where(better, change, error)
        previous = row
    # The slopes on the two sides differ by h f'' where f is smooth, at a kink by what h leaves
    # alone. `up`, `down`, `h` and `rounding` are those of the smallest step.
    bend = np.maximum(np.abs((up - base) - (base - down)) / h - 100 * rounding, 0)
    return best, error, used, bend
