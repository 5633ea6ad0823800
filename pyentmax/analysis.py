"""Numbers that say how right, how sparse and how certain a model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .decoding import BeamResult, Decodable

__all__ = [
    "ExactnessStatistics",
    "density",
    "empty_string_probability",
    "exactness_statistics",
    "levenshtein",
    "mean_levenshtein",
    "support_size",
    "word_accuracy",
]


State = TypeVar("State")


def word_accuracy(predictions: Sequence[object], references: Sequence[object]) -> float:
    """Share of predictions that equal their reference, from 0 to 1.

    Parameters
    ----------
    predictions, references : sequences of one length
        Of strings, tuples of tokens, or whatever compares with ``==`` as a whole.

    Raises
    ------
    ValueError
        If they differ in length or are empty.

    Examples
    --------
    >>> word_accuracy(["drawn", "drawed"], ["drawn", "drawn"])
    0.5
    """
    pairs = _pairs(predictions, references)
    return sum(bool(one == other) for one, other in pairs) / len(pairs)


def levenshtein(a: Sequence[object], b: Sequence[object]) -> int:
    """Fewest insertions, deletions and substitutions that turn ``a`` into ``b``.

    Parameters
    ----------
    a, b : str or sequences of tokens

    Examples
    --------
    >>> levenshtein("drawed", "drawn")
    2
    """
    # distance[j]: from what was read of a to b[:j]; one row of the usual table at a time.
    distance = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        diagonal, distance[0] = distance[0], i
        for j, y in enumerate(b, start=1):
            best = min(distance[j] + 1, distance[j - 1] + 1, diagonal + (x != y))
            diagonal, distance[j] = distance[j], best
    return distance[-1]


def mean_levenshtein(
    predictions: Sequence[Sequence[object]], references: Sequence[Sequence[object]]
) -> float:
    """Mean `levenshtein` distance of predictions from their references.

    Raises
    ------
    ValueError
        If they differ in length or are empty.

    Examples
    --------
    >>> mean_levenshtein(["drawn", "drawed"], ["drawn", "drawn"])
    1.0
    """
    pairs = _pairs(predictions, references)
    return sum(levenshtein(one, other) for one, other in pairs) / len(pairs)


def _pairs(predictions: Sequence[Any], references: Sequence[Any]) -> list[tuple[Any, Any]]:
    if len(predictions) != len(references):
        raise ValueError(
            "predictions and references must be of one length, "
            f"not {len(predictions)} and {len(references)}"
        )
    if not len(predictions):
        raise ValueError("there is nothing to compare: predictions and references are empty")
    return list(zip(predictions, references, strict=True))


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


def support_size(p: ArrayLike, axis: int = -1) -> NDArray[np.int64]:
    """Number of entries above zero along ``axis``.

    Parameters
    ----------
    p : array
        Probabilities; or, where they may underflow inside the support, the boolean support itself.
    axis : int
        The axis that each distribution lies along.

    Returns
    -------
    int array of p's shape without ``axis``

    Examples
    --------
    >>> support_size([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    array([2, 1])
    """
    counts: NDArray[np.int64] = np.count_nonzero(np.asarray(p) > 0, axis=axis, keepdims=True)
    return np.squeeze(counts, axis=axis)


def density(p: ArrayLike, axis: int = -1, *, mask: ArrayLike | None = None) -> float:
    """Mean share of the allowed entries that are above zero, from 0 to 1.

    Parameters
    ----------
    p : array
        Probabilities such as attention weights, or their boolean support.
    axis : int
        The axis that each distribution lies along.
    mask : bool array, optional
        Broadcastable to ``p``; True where there may be probability. Distributions that are
        allowed nothing do not count.

    Raises
    ------
    ValueError
        If no distribution is allowed anything.

    References
    ----------
    Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §5.

    Examples
    --------
    >>> density([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    0.375
    >>> density([1.0, 0.0, 0.0], mask=[True, True, False])
    0.5
    """
    positive = np.asarray(p) > 0
    allowed = np.broadcast_to(
        True if mask is None else np.asarray(mask, dtype=bool), positive.shape
    )
    available = support_size(allowed, axis)
    counts = available > 0
    if not counts.any():
        raise ValueError(
            f"density needs a distribution with an allowed entry, but there is none in shape "
            f"{positive.shape} with this mask"
        )
    return float(np.mean(support_size(positive & allowed, axis)[counts] / available[counts]))
