"""Learning rates as functions of the number of updates, counted from 0, never of seconds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def linear_decay(rate: float, total: int, update: int) -> float:
    """From ``rate`` down to zero over ``total`` updates, in equal steps.

    Examples
    --------
    >>> [round(linear_decay(0.4, 4, update), 6) for update in (0, 1, 4)]
    [0.4, 0.3, 0.0]
    """
    return rate * max(0.0, 1 - update / total)


def inverse_square_root(rate: float, warmup: int, update: int) -> float:
    """Up to ``rate`` in ``warmup`` equal steps, then down with the square root of the updates.

        rate · min((t + 1) / warmup, √(warmup / (t + 1)))        (Vaswani et al. 2017, Eq. 3)

    with the peak as the parameter; theirs is n^−½ · warmup^−½, n being the width of the model.

    Examples
    --------
    >>> [round(inverse_square_root(0.4, 4, update), 6) for update in (0, 1, 3, 15)]
    [0.1, 0.2, 0.4, 0.2]
    """
    t = update + 1
    return rate * min(t / warmup, (warmup / t) ** 0.5)


def halve_on_plateau(rate: float, losses: Sequence[float]) -> float:
    """``rate``, halved each time that the validation loss has risen (Peters et al. 2019, §4).

    No more than ten times: beyond that nothing is learned, however long the run is.

    Examples
    --------
    >>> halve_on_plateau(0.4, [2.0, 1.0, 1.5])
    0.2
    """
    return rate / 2 ** min(sum(after > before for before, after in pairwise(losses)), 10)
