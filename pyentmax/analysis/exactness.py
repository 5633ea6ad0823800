"""How certain a model is: what the certificates of many searches say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..decoding import BeamResult, Decodable

__all__ = ["ExactnessStatistics", "empty_string_probability", "exactness_statistics"]

State = TypeVar("State")


@dataclass(frozen=True)
class ExactnessStatistics:
    """How certain a model is over a number of sources (Peters et al. 2019, §4.1).

    Attributes
    ----------
    count : int
        Number of sources.
    single : float
        Share of the sources for which one sequence is proved to hold all the probability.
    exact : float
        Share for which the search is proved complete.
    mean_hypotheses : float
        Mean number of finished hypotheses.
    mean_mass : float
        Mean total probability of the finished hypotheses.
    """

    count: int
    single: float
    exact: float
    mean_hypotheses: float
    mean_mass: float

    def __str__(self) -> str:
        return (
            f"{self.count} sources: {self.single:.1%} with one possible sequence, "
            f"{self.exact:.1%} decoded exactly, "
            f"{self.mean_hypotheses:.2f} hypotheses of mass {self.mean_mass:.4f} on average"
        )


def exactness_statistics(results: Sequence[BeamResult]) -> ExactnessStatistics:
    """Summary of the certificates of many beam searches.

    Raises
    ------
    ValueError
        If there is no result.

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.1.

    Examples
    --------
    >>> from pyentmax.decoding import BeamResult, Hypothesis
    >>> sure = BeamResult((Hypothesis((4,), 0.0),), exact=True, mass=1.0, reason="")
    >>> cut = BeamResult((Hypothesis((4,), -0.5),), exact=False, mass=0.6065, reason="")
    >>> statistics = exactness_statistics([sure, sure, sure, cut])
    >>> statistics.single, statistics.exact
    (0.75, 0.75)
    """
    if not results:
        raise ValueError("exactness statistics need at least one result, but the list is empty")
    finished = [sum(h.finished for h in result.hypotheses) for result in results]
    single = [result.exact and n == 1 for result, n in zip(results, finished, strict=True)]
    return ExactnessStatistics(
        count=len(results),
        single=float(np.mean(single)),
        exact=float(np.mean([result.exact for result in results])),
        mean_hypotheses=float(np.mean(finished)),
        mean_mass=float(np.mean([result.mass for result in results])),
    )


def empty_string_probability(
    model: Decodable[State], source: NDArray[np.integer[Any]], source_mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Probability that a model answers each source with the empty string.

    Stahlberg and Byrne found that for most sentences a dense translation model thinks no string
    more probable than the empty one, and that only the errors of beam search hide this. Compare it
    with the best string that `exact_search` proves. A sparse model can rule it out: exactly 0.

    Parameters
    ----------
    model : Decodable
    source, source_mask : (B, S) int array, (B, S) bool array
        Token ids and True where they are real.

    Returns
    -------
    (B,) float array

    References
    ----------
    Stahlberg and Byrne (2019), On NMT Search Errors and Model Errors: Cat Got Your Tongue?, §3.

    Examples
    --------
    >>> from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
    >>> config = RNNSeq2SeqConfig(source_size=9, target_size=7, hidden=8, output="1")
    >>> model = RNNSeq2Seq.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    >>> source = np.array([[3, 4, 5]])
    >>> empty_string_probability(model, source, source > 0).round(1)
    array([0.1])
    """
    state = model.encode(source, source_mask)
    step, _ = model.step(state, np.full(len(source), model.bos))
    possible = step.support[:, model.eos]
    probability: NDArray[np.float64] = np.exp(step.log_prob[:, model.eos].astype(np.float64))
    return np.where(possible, probability, 0.0)
