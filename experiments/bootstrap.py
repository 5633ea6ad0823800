"""How far two models are apart: means over the same sentences, with an interval."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from experiments.analysis import PerSentence


class MeanDifference(NamedTuple):
    """A mean minus another, with the bounds of its 95% interval."""

    difference: Any
    low: Any
    high: Any


def bootstrap_difference(
    first: PerSentence, second: PerSentence, *, samples: int = 1000, seed: int = 0
) -> MeanDifference:
    """The mean of one model minus that of another on the same sentences, by paired bootstrap.

    Sentences are drawn with replacement, the same for both (Koehn 2004).

    Raises
    ------
    ValueError
        If the two are not of the same sentences.

    Examples
    --------
    >>> ones = np.ones(50)
    >>> gap = bootstrap_difference(PerSentence(0.5 * ones, ones), PerSentence(0.2 * ones, ones))
    >>> [round(float(x), 6) for x in gap]
    [0.3, 0.3, 0.3]
    """
    if first.values.shape != second.values.shape or not np.array_equal(first.counts, second.counts):
        raise ValueError(
            "first, second: expected measures of the same sentences, got "
            f"{first.values.shape} and {second.values.shape}, or other counts"
        )
    gap = PerSentence(first.values - second.values, first.counts)
    rng = np.random.default_rng(seed)
    size = len(gap.counts)
    drawn = []
    for _ in range(samples):
        times = np.bincount(rng.integers(size, size=size), minlength=size)
        drawn.append(PerSentence(gap.values, gap.counts * times).mean)
    low, high = np.nanpercentile(drawn, [2.5, 97.5], axis=0)
    return MeanDifference(gap.mean, low, high)
