"""Below which score a key gets nothing: thresholds of rows of scores of which some are not known.

A threshold only rises as scores join, for they take probability from the others. So what lies below
that of some scores of a row lies below that of all, and has weight 0.

    α-entmax            τ of Σ_i ((α−1)(z_i − τ))₊^{1/(α−1)} = 1
    the k largest       the k-th largest score

α-entmax's is read from its largest weight p, since p^{α−1} = (α−1)(max z − τ).

Which scores are above it should not depend on how many are known that are below. Rounding may, so
near the threshold an exact criterion decides, in which only larger scores occur: z_j is above τ if
and only if

    Σ_{z_i > z_j} ((α−1)(z_i − z_j))^{1/(α−1)} < 1,

for the left side falls in z_j, and is 1 at τ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pyentmax.mappings.entmax import ENTMAX
from pyentmax.mappings.entmax15 import ENTMAX15
from pyentmax.mappings.sparsemax import SPARSEMAX
from pyentmax.sparse_attention.arguments import RowMapping

# Around a threshold, in units of ε and of the largest gap to it: what rounding can do, many times.
MARGIN = 64


@dataclass(frozen=True)
class Found:
    """Thresholds of rows of scores, off by so much at most.

    Attributes
    ----------
    least : array
        for each row a score below which nothing gets weight, be there further scores or not
    most : array
        what lies above gets weight if there are no further scores; between the two rounding decides
    """

    least: Any
    most: Any


class Threshold(Protocol):
    """A rule for rows of scores (r, n), of a number of rows that is fixed."""

    def find(self, scores: Any) -> Found:
        """The thresholds."""

    def above(self, scores: Any, found: Found) -> Any:
        """Which scores may get weight, given that the rest of each row lies below `found.least`."""


def threshold(mapping: RowMapping) -> Threshold | None:
    """The rule of a mapping with its parameters; None where there is none."""
    record = mapping.record
    if record is ENTMAX:
        alpha = np.asarray(mapping.values[0], np.float64)
        return None if (alpha == 1).all() else EntmaxThreshold(alpha)
    if record is ENTMAX15 or record is SPARSEMAX:
        return EntmaxThreshold(np.float64(1.5 if record is ENTMAX15 else 2))
    if record.parameters == ("k",):  # keeps the k largest scores
        return LargestScores(mapping.values[0])
    return None


@dataclass(frozen=True)
class EntmaxThreshold:
    """Of α-entmax, an α for each row or for all; α = 1, softmax, gives all scores weight."""

    alpha: Any

    def find(self, scores: Any) -> Found:
        """As in `Threshold`."""
        eps = float(np.finfo(scores.dtype).eps)
        p = ENTMAX.forward(scores, self.alpha).max(axis=-1).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gap = p ** (self.alpha - 1) / (self.alpha - 1)
            margin = MARGIN * eps * np.maximum(1, 1 / (self.alpha - 1))
            tau = scores.max(axis=-1) - gap
            return Found(tau - margin, np.where(np.isinf(tau), tau, tau + margin))

    def above(self, scores: Any, found: Found) -> Any:
        """As in `Threshold`."""
        above = scores > found.most[:, None]
        doubtful = ~above & (scores >= found.least[:, None]) & (scores > -np.inf)
        for row, column in zip(*np.nonzero(doubtful), strict=True):
            z = scores[row].astype(np.float64)
            larger = z[z > z[column]] - z[column]
            scale = np.broadcast_to(self.alpha, found.least.shape)[row] - 1
            with np.errstate(over="ignore"):
                above[row, column] = np.sum((scale * larger) ** (1 / scale)) < 1
        return above


@dataclass(frozen=True)
class LargestScores:
    """The k largest, a k for each row or for all, and what ties with them."""

    k: Any

    def find(self, scores: Any) -> Found:
        """As in `Threshold`."""
        n = scores.shape[-1]
        k = np.broadcast_to(self.k, scores.shape[:-1])
        places = np.maximum(n - k, 0).astype(np.intp)
        parted = np.partition(scores, np.unique(places), axis=-1)
        least = np.take_along_axis(parted, places[:, None], axis=-1)[:, 0].astype(np.float64)
        least[k > n] = -np.inf
        return Found(least, least)

    def above(self, scores: Any, found: Found) -> Any:
        """As in `Threshold`."""
        return (scores >= found.least[:, None]) & (scores > -np.inf)
