"""Thresholds of rows of scores, some of which are not known: lower scores get no weight.

A threshold only rises as scores join, for they take probability from the others. So a score below
the threshold of some scores of its row is below that of all, and has weight 0.

    α-entmax            τ of Σ_i ((α−1)(z_i − τ))₊^{1/(α−1)} = 1
    the k largest       the k-th largest score

A sink is one more score of α-entmax; it takes none of the k places.

α-entmax's is read from its largest weight p, since p^{α−1} = (α−1)(max z − τ).

Which scores are above it must not depend on the number of known scores below it. With rounding it
might, so near the threshold an exact criterion decides, which only larger scores enter: z_j is
above τ if and only if

    Σ_{z_i > z_j} ((α−1)(z_i − z_j))^{1/(α−1)} < 1,

for the left side falls in z_j, and is 1 at τ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.mappings.entmax import ENTMAX
from pyentmax.mappings.entmax15 import ENTMAX15
from pyentmax.mappings.sparsemax import SPARSEMAX
from pyentmax.sparse_attention.arguments import RowMapping

# Width of the doubtful interval around a threshold, in units of ε and of the largest gap to it:
# many times the possible rounding error.
MARGIN = 64


def threshold(mapping: RowMapping) -> EntmaxThreshold | LargestScores | None:
    """The rule of a mapping with its parameters; None for mappings that have no such threshold."""
    record = mapping.record
    if record is ENTMAX:
        alpha = np.asarray(mapping.values[0], np.float64)
        return None if (alpha <= 1).all() else EntmaxThreshold(np.maximum(alpha, 1), mapping.sink)
    if record is ENTMAX15 or record is SPARSEMAX:
        return EntmaxThreshold(np.float64(1.5 if record is ENTMAX15 else 2), mapping.sink)
    if record.parameters == ("k",):  # keeps the k largest scores
        return LargestScores(mapping.values[0])
    return None


@dataclass(frozen=True)
class EntmaxThreshold:
    """The rule of α-entmax, with an α for each row or for all; α = 1 keeps all scores.

    `sink` is the score of each row's sink, or None.
    """

    alpha: Any
    sink: Any = None

    def _with_sink(self, scores: Any) -> Any:
        if self.sink is None:
            return scores
        return np.concatenate([scores, self.sink[:, None]], axis=1)

    def find(self, scores: Any) -> tuple[Any, Any]:
        """Bounds of the thresholds of rows of scores (r, n).

        Scores below the first get no weight, even if further scores join. Scores above the second
        get weight if none join; between the two rounding decides.
        """
        scores = self._with_sink(scores)
        eps = float(np.finfo(scores.dtype).eps)
        p = ENTMAX.forward(scores, self.alpha).max(axis=-1).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gap = p ** (self.alpha - 1) / (self.alpha - 1)
            margin = MARGIN * eps * np.maximum(1, 1 / (self.alpha - 1))
            tau = scores.max(axis=-1) - gap
            return tau - margin, np.where(np.isinf(tau), tau, tau + margin)

    def above(self, scores: Any, least: Any, most: Any) -> Any:
        """Which scores get weight, given these bounds, if the other scores are below `least`."""
        above = scores > most[:, None]
        known = self._with_sink(scores)
        doubtful = ~above & (scores >= least[:, None]) & (scores > -np.inf)
        for row, column in zip(*np.nonzero(doubtful), strict=True):
            z = known[row].astype(np.float64)
            larger = z[z > z[column]] - z[column]
            scale = np.broadcast_to(self.alpha, least.shape)[row] - 1
            with np.errstate(over="ignore"):
                above[row, column] = np.sum((scale * larger) ** (1 / scale)) < 1
        return above


@dataclass(frozen=True)
class LargestScores:
    """The rule of the k largest scores and their ties, with a k for each row or for all."""

    k: Any

    def find(self, scores: Any) -> tuple[Any, Any]:
        """Bounds of the thresholds, as of `EntmaxThreshold`; here they are equal."""
        n = scores.shape[-1]
        k = np.broadcast_to(self.k, scores.shape[:-1])
        places = np.maximum(n - k, 0).astype(np.intp)
        parted = np.partition(scores, sorted(set(places.tolist())), axis=-1)
        least = np.take_along_axis(parted, places[:, None], axis=-1)[:, 0].astype(np.float64)
        least[k > n] = -np.inf
        return least, least

    def above(self, scores: Any, least: Any, most: Any) -> Any:
        """Which scores get weight, as of `EntmaxThreshold`."""
        return (scores >= least[:, None]) & (scores > -np.inf)
