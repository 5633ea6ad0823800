"""Calibration: of the predictions made with a probability of 70%, are 70% correct?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.seq2seq.decoding import SearchResult


@dataclass(frozen=True)
class CalibrationBin:
    """The predictions whose confidence lies in (low, high].

    Attributes
    ----------
    low, high : float
    count : int
        At least 1.
    confidence : float
        Mean probability that the model gave them.
    accuracy : float
        Share of them that are correct.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """How far a model's confidence is from its accuracy.

    Attributes
    ----------
    error : float
        Expected calibration error.
    bins : tuple of CalibrationBin
        Those that are not empty, in order of confidence.
    """

    error: float
    bins: tuple[CalibrationBin, ...]

    @property
    def count(self) -> int:
        """Number of predictions."""
        return sum(b.count for b in self.bins)

    def __str__(self) -> str:
        return f"expected calibration error {self.error:.2%} over {self.count} predictions"


def calibration(confidence: ArrayLike, correct: ArrayLike, bins: int = 10) -> Calibration:
    r"""Expected calibration error of predictions in bins of equal width.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{acc}_b - \mathrm{conf}_b \right|

    with n_b predictions in bin b, their accuracy and their mean confidence. Bin b of M holds
    confidences in ((b−1)/M, b/M]. The first bin also holds 0, and the last also what rounding
    lifts above 1. The error depends on M, so compare only errors with the same M.

    Parameters
    ----------
    confidence : (n,) array
        Probability that the model gave each of n > 0 predictions, from 0 to 1.
    correct : (n,) bool array
        Whether each prediction is correct.
    bins : int
        M.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), Obtaining Well Calibrated Probabilities Using Bayesian
    Binning. Guo, Pleiss, Sun and Weinberger (2017), On Calibration of Modern Neural Networks,
    Eq. 3.

    Examples
    --------
    >>> calibration([0.75, 0.75, 0.75, 0.75, 1.0], [True, True, True, False, True]).error
    0.0
    >>> print(calibration([0.75, 1.0], [False, True]))
    expected calibration error 37.50% over 2 predictions
    """
    p, correct = np.asarray(confidence, dtype=float), np.asarray(correct, dtype=bool)
    if p.ndim != 1 or p.shape != correct.shape:
        raise ValueError(
            "confidence and correct must be lists of the same length, but have the shapes "
            f"{p.shape} and {correct.shape}"
        )
    if not p.size:
        raise ValueError("calibration needs at least one prediction, but there is none")
    valid = (p >= 0) & (p <= 1 + 1e-4)
    if not valid.all():
        raise ValueError(f"confidence must lie between 0 and 1, got {p[~valid][0]:g}")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    upper = np.arange(1, bins + 1) / bins
    place = np.minimum(np.searchsorted(upper, p), bins - 1)
    filled = []
    for i in np.unique(place).tolist():
        inside = place == i
        means = float(p[inside].mean()), float(correct[inside].mean())
        filled.append(CalibrationBin(i / bins, (i + 1) / bins, int(np.sum(inside)), *means))
    error = sum(b.count / p.size * abs(b.accuracy - b.confidence) for b in filled)
    return Calibration(float(error), tuple(filled))


def listed_predictions(
    results: Sequence[SearchResult],
    references: Sequence[object],
    spell: Callable[[tuple[int, ...]], object],
    *,
    best_only: bool = False,
) -> tuple[list[float], list[bool]]:
    """Each listed string as a prediction of the reference, for `calibration`.

    The confidence of a hypothesis is its probability, and it is correct if it equals the reference.
    So a source gives one prediction for each of its listed strings, and at most one is correct.
    A hypothesis that did not end within the length limit is not counted.

    Parameters
    ----------
    results : sequence of SearchResult
    references : sequence of the same length
        What ``spell`` is compared with.
    spell : callable
        From a hypothesis's tokens to what is compared, such as `Inflector.form`.
    best_only : bool, default False
        Whether to take only the most probable string of each source.

    Returns
    -------
    confidence, correct : lists of the same length

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import SearchResult, Hypothesis
    >>> listed = (Hypothesis((7,), 0.0), Hypothesis((8, 9), -np.inf))
    >>> result = SearchResult(listed, exact=False, mass=1.0, reason="")
    >>> listed_predictions([result], [(8, 9)], tuple)
    ([1.0, 0.0], [False, True])
    """
    predictions = [
        (hypothesis.probability, spell(hypothesis.tokens) == reference)
        for result, reference in zip(results, references, strict=True)
        for hypothesis in result.hypotheses[: 1 if best_only else None]
        if hypothesis.finished
    ]
    return [p for p, _ in predictions], [correct for _, correct in predictions]
