"""Batches: pairs of sequences of similar lengths, padded to rectangles, with masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.seq2seq.data.errors import DataError
from pyentmax.seq2seq.data.vocabulary import BOS, EOS, PAD

Pair = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Source ids and target ids."""


@dataclass(frozen=True, eq=False)
class Batch:
    """B pairs of sequences as arrays.

    Attributes
    ----------
    source, source_mask : arrays of shape (B, S)
        Source ids, padded with `PAD`; and True where they are tokens, not padding. Where a source
        is no text, (B, S, features) numbers stand in place of the ids.
    target_in, target_out, target_mask : arrays of shape (B, T)
        What the decoder reads: `BOS`, then the target, padded. What it is to predict: the target,
        then `EOS`, padded. True where these are tokens.
    index : array of shape (B,)
        The positions of the pairs in the data set.
    """

    source: NDArray[Any]
    source_mask: NDArray[np.bool_]
    target_in: NDArray[np.int64]
    target_out: NDArray[np.int64]
    target_mask: NDArray[np.bool_]
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)


def make_batch(pairs: Sequence[Pair], index: ArrayLike) -> Batch:
    """The pairs at the positions *index*, padded to the longest source and target among them.

    Raises
    ------
    DataError
        If *index* is empty or no list, or a source is empty: there would be nothing to attend to.

    Examples
    --------
    >>> pairs = [(np.array([5, 6]), np.array([7])), (np.array([8]), np.array([9, 4]))]
    >>> batch = make_batch(pairs, [0, 1])
    >>> batch.source
    array([[5, 6],
           [8, 0]])
    >>> batch.target_in
    array([[1, 7, 0],
           [1, 9, 4]])
    >>> batch.target_out
    array([[7, 2, 0],
           [9, 4, 2]])
    """
    places = np.array(index, dtype=np.int64)
    if places.ndim != 1 or not places.size:
        raise DataError(f"index must be a list of positions, got an array of shape {places.shape}")
    chosen = [pairs[i] for i in places]
    for i, (source, _) in zip(places, chosen, strict=True):
        if not len(source):
            raise DataError(f"pair {i} has an empty source; leave it out")
    source, source_mask = _pad([source for source, _ in chosen])
    target_in, target_mask = _pad([[BOS, *target] for _, target in chosen])
    target_out, _ = _pad([[*target, EOS] for _, target in chosen])
    return Batch(source, source_mask, target_in, target_out, target_mask, places)


def bucketed_batches(
    pairs: Sequence[Pair], batch_size: int, rng: np.random.Generator | None = None
) -> list[NDArray[np.int64]]:
    """Cut a data set into batches of pairs of similar lengths.

    Pairs are sorted by source length, then by target length, and cut into runs of *batch_size*, so
    that there is little padding. With *rng*, pairs of equal lengths come in random order, and so
    do the batches: each epoch has different batches.

    Parameters
    ----------
    batch_size : int
        Pairs per batch; the batch of the longest pairs may hold fewer.
    rng : numpy.random.Generator, optional
        By default the order is fixed: by length, then by position.

    Returns
    -------
    list of int64 arrays
        The positions of the pairs of each batch; each pair is in exactly one batch.

    Raises
    ------
    DataError
        If *batch_size* is below 1.

    Examples
    --------
    >>> pairs = [(np.zeros(n, int), np.zeros(2, int)) for n in (4, 2, 3, 2)]
    >>> bucketed_batches(pairs, 2)
    [array([1, 3]), array([2, 0])]
    """
    if batch_size < 1:
        raise DataError(f"batch_size must be at least 1, got {batch_size}")
    source_lengths = np.array([len(source) for source, _ in pairs])
    target_lengths = np.array([len(target) for _, target in pairs])
    ties = np.arange(len(pairs)) if rng is None else rng.permutation(len(pairs))
    order = np.lexsort((ties, target_lengths, source_lengths))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


class BucketedPairs:
    """Batches of a fixed number of pairs of similar lengths: a source of batches for training.

    Each epoch cuts the pairs again, by `bucketed_batches`. Another way to cut them, such as by the
    number of tokens, is another class with the methods and attributes of a
    :class:`pyentmax.seq2seq.training.BatchSource`.

    Raises
    ------
    DataError
        If *batch_size* is below 1, or there is no pair.

    Examples
    --------
    >>> pairs = [(np.array([5] * n), np.array([7])) for n in (2, 1, 2)]
    >>> batches = BucketedPairs(pairs, 2)
    >>> [batch.source.shape for batch in batches.epoch(np.random.default_rng(1))]
    [(2, 2), (1, 2)]
    """

    unit = "examples"

    def __init__(self, pairs: Sequence[Pair], batch_size: int) -> None:
        if batch_size < 1:
            raise DataError(f"batch_size must be at least 1, got {batch_size}")
        if not len(pairs):
            raise DataError("pairs: expected at least one example, got none")
        self.pairs = pairs
        self.batch_size = batch_size

    def epoch(self, rng: np.random.Generator) -> Iterator[Batch]:
        """The batches of one epoch, in an order that *rng* draws."""
        for index in bucketed_batches(self.pairs, self.batch_size, rng):
            yield make_batch(self.pairs, index)

    def count(self, batch: Batch) -> int:
        """The number of pairs."""
        return len(batch)


class TokenBatches:
    """Batches of as many pairs of similar lengths as fit into a number of tokens, padding included.

    A batch of B pairs whose longest source and target, with the end symbol, have S and T tokens
    takes B · max(S, T). So an update sees about as many tokens, and takes about as long, whether
    its sentences are short or long (Vaswani et al. 2017, §5.1). Pairs are sorted by target length,
    then by source length, ties and the order of the batches drawn anew in each epoch.

    Raises
    ------
    DataError
        If there is no pair, or one does not fit into a batch of its own.

    Examples
    --------
    >>> pairs = [(np.array([5] * n), np.array([7])) for n in (2, 1, 6, 2)]
    >>> batches = TokenBatches(pairs, tokens=6)
    >>> [batch.source.shape for batch in batches.epoch(np.random.default_rng(0))]
    [(1, 6), (3, 2)]
    """

    unit = "tokens"

    def __init__(self, pairs: Sequence[Pair], tokens: int) -> None:
        if not len(pairs):
            raise DataError("pairs: expected at least one example, got none")
        self.pairs = pairs
        self.tokens = tokens
        self._source = np.array([len(source) for source, _ in pairs])
        self._target = np.array([len(target) + 1 for _, target in pairs])
        self._size = np.maximum(self._source, self._target)
        if (self._size > tokens).any():
            longest = int(self._size.argmax())
            raise DataError(
                f"tokens: expected at least the length of the longest pair, {self._size[longest]} "
                f"tokens of pair {longest}, got {tokens}; allow more, or leave long pairs out"
            )

    def epoch(self, rng: np.random.Generator) -> Iterator[Batch]:
        """The batches of one epoch, in an order that *rng* draws."""
        batches = self._cut(rng.permutation(len(self.pairs)))
        for i in rng.permutation(len(batches)):
            yield make_batch(self.pairs, batches[i])

    def count(self, batch: Batch) -> int:
        """The number of target tokens, without padding."""
        return int(batch.target_mask.sum())

    def _cut(self, ties: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        order = np.lexsort((ties, self._source, self._target))
        batches, start, widest = [], 0, 0
        for stop, size in enumerate(self._size[order].tolist()):
            if max(widest, size) * (stop + 1 - start) > self.tokens:
                batches.append(order[start:stop])
                start, widest = stop, 0
            widest = max(widest, size)
        return [*batches, order[start:]]


def _pad(
    rows: Sequence[Sequence[int] | NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(mask.shape, PAD, dtype=np.int64)
    # Row by row, mask and concatenation run in the same order.
    padded[mask] = np.concatenate(rows)
    return padded, mask
