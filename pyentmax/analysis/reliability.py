"""Whether probabilities mean what they say: of the strings given 70%, are 70% right?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.decoding import SearchResult

__all__ = ["Calibration", "CalibrationBin", "calibration", "listed_predictions"]


@dataclass(frozen=True)
class CalibrationBin:
    """The claims whose probability lies in (low, high].

    Attributes
    ----------
    low, high : float
    count : int
        At least 1.
    confidence : float
        Mean of what was claimed.
    accuracy : float
        Share of the claims that are right.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """How far claimed probabilities are from the shares that are right.

    Attributes
    ----------
    error : float
        Expected calibration error.
    bins : tuple of CalibrationBin
        Those that hold a claim, from the least probable on.
    """

    error: float
    bins: tuple[CalibrationBin, ...]

    @property
    def count(self) -> int:
        """Number of claims."""
        return sum(one.count for one in self.bins)

    def __str__(self) -> str:
        return f"expected calibration error {self.error:.2%} over {self.count} claims"


def calibration(probabilities: ArrayLike, right: ArrayLike, bins: int = 10) -> Calibration:
    r"""Expected calibration error of claims in bins of equal width.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{right}_b - \bar p_b \right|

    with n_b claims in bin b, the share of them that is right, and their mean probability. Bin b of
    M holds probabilities in ((b−1)/M, b/M]; 0 lies in the first, and what rounding lifts above 1
    in the last. The error depends on M: compare figures of one M only.

    Parameters
    ----------
    probabilities : (n,) array
        Claimed, from 0 to 1.
    right : (n,) bool array
        Whether each claim turned out to be true.
    bins : int
        M.

    Raises
    ------
    ValueError
        If the two differ in length, there is no claim, or a probability is none.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), Obtaining Well Calibrated Probabilities Using Bayesian
    Binning. Guo, Pleiss, Sun and Weinberger (2017), On Calibration of Modern Neural Networks,
    Eq. 3.

    Examples
    --------
    >>> found = calibration([0.75, 0.75, 0.75, 0.75, 1.0], [True, True, True, False, True])
    >>> found.error
    0.0
    >>> print(calibration([0.75, 1.0], [False, True]))
    expected calibration error 37.50% over 2 claims
    """
    p, right = np.asarray(probabilities, dtype=float), np.asarray(right, dtype=bool)
    if p.ndim != 1 or p.shape != right.shape:
        raise ValueError(
            f"probabilities and right must be lists of one length, not of shapes {p.shape} and "
            f"{right.shape}"
        )
    if not p.size:
        raise ValueError("calibration needs at least one claim, but there is none")
    if not ((p >= 0) & (p <= 1 + 1e-4)).all():
        wrong = p[~((p >= 0) & (p <= 1 + 1e-4))][0]
        raise ValueError(f"probabilities must lie between 0 and 1, got {wrong:g}")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    upper = np.arange(1, bins + 1) / bins
    place = np.minimum(np.searchsorted(upper, p), bins - 1)
    found = tuple(
        CalibrationBin(
            b / bins,
            (b + 1) / bins,
            int(np.sum(place == b)),
            float(p[place == b].mean()),
            float(right[place == b].mean()),
        )
        for b in np.unique(place).tolist()
    )
    error = sum(one.count / p.size * abs(one.accuracy - one.confidence) for one in found)
    return Calibration(float(error), found)


def listed_predictions(
    results: Sequence[SearchResult],
    references: Sequence[object],
    spell: Callable[[tuple[int, ...]], object],
    *,
    best_only: bool = False,
) -> tuple[list[float], list[bool]]:
    """What searches claim, for `calibration`: each listed string, to be the one that is wanted.

    A hypothesis claims with its probability to be the reference, and is right if it is. So each
    source brings as many claims as strings were listed, of which at most one is right. One that
    did not end within the length limit claims nothing.

    Parameters
    ----------
    results : sequence of SearchResult
    references : sequence of the same length
        What ``spell`` is compared with.
    spell : callable
        From a hypothesis's tokens, such as `WordDecoder.form`.
    best_only : bool, default False
        Take the most probable string of each source alone.

    Returns
    -------
    probabilities, right : two lists of one length

    Raises
    ------
    ValueError
        If there is not one reference for each result.

    Examples
    --------
    >>> from pyentmax.decoding import SearchResult, Hypothesis
    >>> listed = (Hypothesis((7,), 0.0), Hypothesis((8, 9), -np.inf))
    >>> result = SearchResult(listed, exact=False, mass=1.0, reason="")
    >>> listed_predictions([result], [(8, 9)], tuple)
    ([1.0, 0.0], [False, True])
    """
    if len(results) != len(references):
        raise ValueError(
            f"references must hold one for each of the {len(results)} results, got "
            f"{len(references)}"
        )
    claims = [
        (hypothesis.probability, spell(hypothesis.tokens) == reference)
        for result, reference in zip(results, references, strict=True)
        for hypothesis in result.hypotheses[: 1 if best_only else None]
        if hypothesis.finished
    ]
    return [p for p, _ in claims], [right for _, right in claims]
