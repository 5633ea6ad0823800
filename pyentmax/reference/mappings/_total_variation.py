"""The first step of fusedmax in one pass over a row, as the GPU kernel takes it.

u = argmin ½‖u − y‖² + λ Σ_j |u_{j+1} − u_j| by Condat's (2013) direct algorithm. A finished run is
final, so a thread needs no memory but its row's. `pyentmax.reference.mappings.fusedmax` and the CPU
kernel run Johnson's dynamic program instead, which takes O(d) steps for every row; here it is O(d²)
in the worst case.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def condat_tv(y: Any, strength: float) -> np.ndarray:
    """argmin ½‖u − y‖² + λ Σ_j |u_{j+1} − u_j| of one vector, λ the strength (Condat 2013).

    The run that begins at `start` may so far have any value from `low` to `high`. The slope of the
    next |u_{j+1} − u_j| that it passes on to the entry after `at` is then `out_low` or `out_high`,
    between −λ and λ. If even the lowest value passes on too little, the run must end with a fall at
    `low_end`, where `low` was last binding; likewise with a rise at `high_end`. A finished run gets
    the mean of its scores, moved by λ/n towards each neighbour: this is exact despite the rounding
    of the search.

    >>> print(condat_tv([1.0, 0.9, 1.1, -1.0, 0.8], 0.1).round(4))
    [ 0.9667  0.9667  0.9667 -0.8     0.7   ]
    """
    y = np.asarray(y, float)
    u, last = np.empty_like(y), len(y) - 1
    start = at = low_end = high_end = before = 0
    low, high = y[0] - strength, y[0] + strength
    out_low, out_high = strength, -strength

    def write(end: int, behind: int) -> int:
        """Write the run `start` to `end`, before a fall (−1) or a rise (1); the next start."""
        u[start : end + 1] = np.mean(y[start : end + 1]) + (
            strength * (before + behind) / (end + 1 - start)
        )
        return end + 1

    while True:
        if at == last:  # nothing is passed on after the last entry
            if out_low < 0:
                start, before = write(low_end, -1), 1
                at = low_end = start
                low, out_low = y[at], strength
                out_high = y[at] + strength - high
            elif out_high > 0:
                start, before = write(high_end, 1), -1
                at = high_end = start
                high, out_high = y[at], -strength
                out_low = y[at] - strength - low
            else:
                write(last, 0)
                return u
        elif y[at + 1] + out_low < low - strength:  # a fall
            start, before = write(low_end, -1), 1
            at = low_end = high_end = start
            low, high = y[at], y[at] + 2 * strength
            out_low, out_high = strength, -strength
        elif y[at + 1] + out_high > high + strength:  # a rise
            start, before = write(high_end, 1), -1
            at = low_end = high_end = start
            low, high = y[at] - 2 * strength, y[at]
            out_low, out_high = strength, -strength
        else:
            at += 1
            out_low, out_high = out_low + y[at] - low, out_high + y[at] - high
            if out_low >= strength:
                low += (out_low - strength) / (at - start + 1)
                out_low, low_end = strength, at
            if out_high <= -strength:
                high += (out_high + strength) / (at - start + 1)
                out_high, high_end = -strength, at
