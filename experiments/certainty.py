"""How certain a model is, from the certificates of many searches, and how sparse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyentmax.seq2seq.decoding import Decodable, ForcedDecoding, SearchResult, forced_decoding


@dataclass(frozen=True)
class ExactnessStatistics:
    """How certain a model is, over a number of sources (Peters et al. 2019, §4.1).

    Attributes
    ----------
    count : int
        Number of sources.
    single : float
        Share of the sources with one sequence that is proved to have all the probability.
    exact : float
        Share of the sources whose search is proved complete.
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


def exactness_statistics(results: Sequence[SearchResult]) -> ExactnessStatistics:
    """Summary of the certificates of one or more searches.

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import SearchResult, Hypothesis
    >>> sure = SearchResult((Hypothesis((4,), 0.0),), exact=True, mass=1.0, reason="")
    >>> cut = SearchResult((Hypothesis((4,), -0.5),), exact=False, mass=0.6065, reason="")
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


def smallest_exact_beam(result: SearchResult) -> int | None:
    """The narrowest beam whose search would also have been exact; None if this one is not.

    Beam search is exact if and only if it never had to prune. So all that matters is the largest
    number of prefixes that were open at once: the maximum, over all lengths, of the number of
    different prefixes of that length in the complete list. A beam at least that wide is exact; a
    narrower one is not.

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import SearchResult, Hypothesis
    >>> strings = [Hypothesis(tokens, -1.0) for tokens in [(4, 5), (4, 6), (4, 7, 8), ()]]
    >>> smallest_exact_beam(SearchResult(tuple(strings), exact=True, mass=1.0, reason=""))
    3
    """
    if not result.exact:
        return None
    strings = [hypothesis.tokens for hypothesis in result.hypotheses]
    prefixes = {tokens[:length] for tokens in strings for length in range(1, len(tokens) + 1)}
    return max(Counter(map(len, prefixes)).values(), default=1)


def exactness_by_beam(
    results: Sequence[SearchResult], beams: Iterable[int] = range(1, 11)
) -> dict[int, float]:
    """Share of the sources for which beam search is exact, for each width of the beam.

    One search with the widest beam is enough for all widths; see `smallest_exact_beam`.

    Parameters
    ----------
    results : sequence of SearchResult, not empty
        From a beam search at least as wide as the widest of ``beams``, or from an exact search that
        lists everything.
    beams : iterable of int

    Returns
    -------
    dict
        Beam width → share, from 0 to 1. Peters et al. (2019, §4.1) give it for beam 5.

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import SearchResult, Hypothesis
    >>> strings = tuple(Hypothesis((token,), -0.7) for token in (4, 5))
    >>> two = SearchResult(strings, exact=True, mass=1.0, reason="")
    >>> cut = SearchResult(strings, exact=False, mass=0.9, reason="")
    >>> exactness_by_beam([two, two, two, cut], beams=[1, 2, 3])
    {1: 0.0, 2: 0.75, 3: 0.75}
    """
    if not results:
        raise ValueError("exactness by beam needs at least one result, but the list is empty")
    needed = [smallest_exact_beam(result) for result in results]
    return {k: sum(n is not None and n <= k for n in needed) / len(needed) for k in beams}


def empty_string_probability(
    model: Decodable, source: NDArray[np.integer[Any]], source_mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """A model's probability of the empty string as the output for each source.

    Stahlberg and Byrne (2019) found that for most sentences the empty string is the most probable
    output of a dense translation model, and that only the errors of beam search hide this. Compare
    it with the best string that `exact_search` proves. A sparse model can rule the empty string
    out, with a probability of exactly 0.

    Parameters
    ----------
    model, source, source_mask : as in `pyentmax.seq2seq.decoding.beam_search`

    Returns
    -------
    (B,) float array

    References
    ----------
    Stahlberg and Byrne (2019), On NMT Search Errors and Model Errors: Cat Got Your Tongue?, §3.

    Examples
    --------
    >>> from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
    >>> config = RNNSeq2SeqConfig(source_size=9, target_size=7, hidden=8, output="1")
    >>> model = RNNSeq2Seq.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    >>> source = np.array([[3, 4, 5]])
    >>> empty_string_probability(model, source, source > 0).round(1)
    array([0.1])
    """
    empty: list[list[int]] = [[] for _ in source]
    return np.array(
        [decoding.probability for decoding in forced_decoding(model, source, source_mask, empty)]
    )


def word_accuracy(predictions: Sequence[object], references: Sequence[object]) -> float:
    """Share of the predictions that equal their reference, from 0 to 1.

    Parameters
    ----------
    predictions, references : sequences of the same length, not empty
        Of strings, tuples of tokens, or anything else that ``==`` compares as a whole.

    Examples
    --------
    >>> word_accuracy(["drawn", "drawed"], ["drawn", "drawn"])
    0.5
    """
    right = [bool(one == other) for one, other in zip(predictions, references, strict=True)]
    if not right:
        raise ValueError("there is nothing to compare: predictions and references are empty")
    return sum(right) / len(right)


@dataclass(frozen=True, eq=False)
class SupportSizes:
    """How many entries of a model's distributions are above zero, one count per target position.

    Attributes
    ----------
    attention : (N,) int array
        Number of source positions with a weight above zero.
    output : (N,) int array
        Number of tokens that are possible next.
    source_lengths : (N,) int array
        Number of source positions.
    vocabulary : int
        Number of tokens in the vocabulary.
    """

    attention: NDArray[np.int64]
    output: NDArray[np.int64]
    source_lengths: NDArray[np.int64]
    vocabulary: int

    @property
    def mean_attention(self) -> float:
        """Mean number of attended source positions."""
        return float(self.attention.mean())

    @property
    def mean_output(self) -> float:
        """Mean number of possible tokens."""
        return float(self.output.mean())

    def __str__(self) -> str:
        return (
            f"{len(self.output)} target positions: {self.mean_attention:.2f} of "
            f"{self.source_lengths.mean():.2f} source positions attended, {self.mean_output:.2f} "
            f"of {self.vocabulary} tokens possible on average"
        )


def support_sizes(decodings: Iterable[ForcedDecoding]) -> SupportSizes:
    """Support sizes of attention and output at every target position (Peters et al., Table 3).

    The positions are those of the given targets, including the end symbol. So forced decoding of
    the references asks all models the same questions. The support of the output is that of its
    mapping; for the attention, the weights that are above zero as floats are counted.

    Parameters
    ----------
    decodings : iterable of ForcedDecoding, not empty
        Read one by one, so that they need not all be in memory.

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.2 and Table 3.

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import ForcedDecoding
    >>> p = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    >>> attention = np.array([[0.25, 0.75], [0.0, 1.0]])
    >>> decoding = ForcedDecoding(np.array([0, 2]), np.log(p + 1e-9), p > 0, attention)
    >>> print(support_sizes([decoding]))
    2 target positions: 1.50 of 2.00 source positions attended, 1.50 of 3 tokens possible on average
    """
    counts = [
        (
            np.count_nonzero(decoding.attention > 0, axis=-1),
            np.count_nonzero(decoding.support, axis=-1),
            np.full(len(decoding.tokens), decoding.attention.shape[1]),
            decoding.support.shape[1],
        )
        for decoding in decodings
    ]
    if not counts:
        raise ValueError("support sizes need at least one decoded target, but there are none")
    attention, output, lengths, vocabulary = zip(*counts, strict=True)
    return SupportSizes(
        np.concatenate(attention), np.concatenate(output), np.concatenate(lengths), max(vocabulary)
    )
