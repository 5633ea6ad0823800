"""Segments of one long text: what a language model learns from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyentmax.seq2seq.data.errors import DataError


@dataclass(frozen=True, eq=False)
class Segment:
    """B pieces of a text as arrays.

    Attributes
    ----------
    tokens_in, tokens_out : arrays of shape (B, T)
        What the model reads, and what it is to predict: each token's successor.
    """

    tokens_in: NDArray[np.int64]
    tokens_out: NDArray[np.int64]


class Segments:
    """Batches of pieces of one text, cut at other places in each epoch: a source of batches.

    Parameters
    ----------
    tokens : int array
        The text.
    context : int
        Tokens that a piece reads.
    batch_size : int
        Pieces per batch; what is left over at the end of an epoch is left out.

    Raises
    ------
    DataError
        If a size is out of range, or the text is too short for one batch.

    Examples
    --------
    >>> batches = Segments(np.arange(20), context=4, batch_size=2)
    >>> for batch in batches.epoch(np.random.default_rng(2)):
    ...     print(batch.tokens_in.tolist(), batch.tokens_out[:, -1])
    [[11, 12, 13, 14], [7, 8, 9, 10]] [15 11]
    [[15, 16, 17, 18], [3, 4, 5, 6]] [19  7]
    """

    unit = "tokens"

    def __init__(self, tokens: NDArray[np.int64], context: int, batch_size: int) -> None:
        for name, value in (("context", context), ("batch_size", batch_size)):
            if value < 1:
                raise DataError(f"{name}: expected at least 1, got {value}")
        # Wherever the first piece begins, a whole batch must be left.
        needed = context * (batch_size + 1)
        if len(tokens) < needed:
            raise DataError(
                f"tokens: expected at least {needed:,} for a batch of {batch_size} pieces of "
                f"{context}, got {len(tokens):,}"
            )
        self.tokens, self.context = np.asarray(tokens, dtype=np.int64), context
        self.batch_size = batch_size

    def epoch(self, rng: np.random.Generator) -> Iterator[Segment]:
        """The batches of one epoch, from a place and in an order that *rng* draws."""
        first = int(rng.integers(self.context))
        starts = np.arange(first, len(self.tokens) - self.context, self.context)
        starts = rng.permutation(starts)
        for i in range(0, len(starts) - self.batch_size + 1, self.batch_size):
            yield self.cut(starts[i : i + self.batch_size])

    def cut(self, starts: NDArray[np.int64]) -> Segment:
        """The pieces that begin at some places."""
        return cut(self.tokens, starts, self.context)

    def count(self, batch: Segment) -> int:
        """The number of tokens to predict."""
        return int(batch.tokens_out.size)


def cut(tokens: NDArray[np.int64], starts: NDArray[np.int64], context: int) -> Segment:
    """The pieces of a text that begin at some places.

    Examples
    --------
    >>> cut(np.arange(9), np.array([2, 5]), context=3).tokens_out
    array([[3, 4, 5],
           [6, 7, 8]])
    """
    rows = tokens[starts[:, None] + np.arange(context + 1)]
    return Segment(rows[:, :-1], rows[:, 1:])
