"""How sparse distributions are: the size of the support, and its share of the allowed entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.seq2seq.decoding import ForcedDecoding


def support_size(p: ArrayLike, axis: int = -1) -> NDArray[np.int64]:
    """Number of entries above zero along ``axis``, as an int array of p's shape without it.

    Parameters
    ----------
    p : array
        Probabilities or, if they may underflow within the support, the boolean support itself.
    axis : int
        The axis that each distribution lies along.

    Examples
    --------
    >>> support_size([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    array([2, 1])
    """
    return np.asarray(np.count_nonzero(np.asarray(p) > 0, axis=axis))


def density(p: ArrayLike, axis: int = -1, *, mask: ArrayLike | None = None) -> float:
    """Mean share of the allowed entries that are above zero, from 0 to 1.

    Parameters
    ----------
    p, axis : as in `support_size`
    mask : bool array, optional
        Broadcastable to ``p``; True where an entry is allowed. Distributions without an allowed
        entry do not count, but at least one must have one.

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
    allowed = np.broadcast_to(True if mask is None else mask, positive.shape).astype(bool)
    available = support_size(allowed, axis)
    counts = available > 0
    if not counts.any():
        raise ValueError(
            "density needs a distribution with an allowed entry, but this mask leaves none in "
            f"shape {positive.shape}"
        )
    return float(np.mean(support_size(positive & allowed, axis)[counts] / available[counts]))


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
            support_size(decoding.attention),
            support_size(decoding.support),
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
