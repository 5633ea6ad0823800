"""How the learned α of the heads moved in a training."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class TrajectoryStatistics(NamedTuple):
    """How the learned α of the heads changed during training (Correia et al. 2019, Figure 2).

    Attributes
    ----------
    below_start : float
        Share of the heads whose α is below its start after a tenth of the updates.
    largest_return : float
        The most that the α of a head has risen above its lowest, at the end.
    spread : float
        Standard deviation over the heads at the end.
    """

    below_start: float
    largest_return: float
    spread: float


def trajectory_statistics(updates: ArrayLike, alphas: ArrayLike) -> TrajectoryStatistics:
    """How the α of the heads moved.

    Parameters
    ----------
    updates : (n,) array
        Updates done, ascending from the start.
    alphas : (n, …) array
        The α of each head then.

    Examples
    --------
    >>> trajectory_statistics([0, 10, 20, 100], [[1.5, 1.6], [1.4, 1.7], [1.3, 1.8], [1.9, 1.9]])
    TrajectoryStatistics(below_start=0.5, largest_return=0.6, spread=0.0)
    """
    at = np.asarray(updates)
    path = np.reshape(np.asarray(alphas, dtype=np.float64), (len(at), -1))
    tenth = int(np.searchsorted(at, 0.1 * at[-1]))
    return TrajectoryStatistics(
        float((path[tenth] < path[0]).mean()),
        round(float((path[-1] - path.min(axis=0)).max()), 6),
        round(float(path[-1].std()), 6),
    )
