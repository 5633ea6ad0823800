"""Which source each row of a decoder reads, and the memory of these sources.

A beam has several prefixes for each source. The source's keys and values are stored once, and its
prefixes attend to them side by side, as the queries of one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.seq2seq.models.protocol import IntArray


class Readers:
    """Rows that read encoded sources.

    Parameters
    ----------
    source_index : (rows,) int array
        The source of each row, on the host.
    encoded : sequence of arrays
        What was encoded, with an entry for each source.
    before : Readers, optional
        Readers of the same sources, whose ``memory`` holds all that these rows read.

    Attributes
    ----------
    memory : tuple of arrays
        ``encoded`` without most sources that no row reads.
    queries : int
        The most rows that one source has.

    Examples
    --------
    >>> readers = Readers(np.array([0, 1, 0]), [np.array([[5.0], [6.0]])])
    >>> queries = readers.by_source(as_tensor(np.array([[1.0], [2.0], [3.0]])))
    >>> queries.data.tolist()
    [[[1.0], [3.0]], [[2.0], [0.0]]]
    >>> readers.by_row(queries).data.tolist()
    [[1.0], [2.0], [3.0]]
    >>> readers.select(np.array([1])).memory[0].tolist()
    [[6.0]]
    """

    def __init__(
        self, source_index: IntArray, encoded: Sequence[Array], before: Readers | None = None
    ) -> None:
        self.source_index, self.encoded = source_index, encoded
        self.numbers, self.memory = np.arange(len(encoded[0])), tuple(encoded)
        if before is not None:
            self.numbers, self.memory = before.numbers, before.memory
        self._counts = np.bincount(source_index, minlength=len(encoded[0]))
        self.queries: int = int(self._counts.max(initial=0))
        read = np.flatnonzero(self._counts)
        if 4 * len(read) <= 3 * len(self.numbers):  # a copy costs less than idle sources
            self.numbers, index = read, np.asarray(read)
            self.memory = tuple(part[index] for part in encoded)

    @cached_property
    def _places(self) -> Array:
        """The places of each row's source and of its query: (2, rows)."""
        sources = self.source_index
        order = np.argsort(sources, kind="stable")
        rank = np.empty_like(sources)
        starts = np.cumsum(self._counts) - self._counts
        rank[order] = np.arange(len(order)) - starts[sources[order]]
        place = np.searchsorted(self.numbers, sources)
        return np.stack([place, place * self.queries + rank])

    @property
    def place(self) -> Array:
        """The place of each row's source in ``memory``."""
        return self._places[0]

    def select(self, rows: IntArray) -> Readers:
        """The readers in the given rows; a row may be repeated."""
        return Readers(self.source_index[rows], self.encoded, self)

    @staticmethod
    def join(readers: Sequence[Readers]) -> Readers:
        """The rows of several readers of the same sources, one after the other."""
        index = np.concatenate([part.source_index for part in readers])
        return Readers(index, readers[0].encoded)

    def by_source(self, x: Tensor) -> Tensor:
        """(rows, n) → (sources, queries, n), zeros where a source has fewer."""
        sources, n = len(self.numbers), x.shape[-1]
        filled = np.zeros((sources * self.queries, n), x.dtype)
        filled[self._places[1]] = x.data
        return as_tensor(filled.reshape(sources, self.queries, n))

    def by_row(self, y: Tensor) -> Tensor:
        """(sources, queries, n) → (rows, n)."""
        return as_tensor(y.data.reshape(-1, y.shape[-1])[self._places[1]])


def distinct(ids: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """The different ids, all below ``size``, and the place of each of ``ids`` among these.

    As ``np.unique(ids, return_inverse=True)`` without sorting, in a quarter of the time.

    Examples
    --------
    >>> unique, place = distinct(np.array([7, 2, 7]), 9)
    >>> unique.tolist(), place.tolist()
    ([2, 7], [1, 0, 1])
    """
    present = np.zeros(size, dtype=bool)
    present[ids] = True
    unique = np.flatnonzero(present)
    place = np.empty(size, dtype=np.int64)
    place[unique] = np.arange(len(unique))
    return unique, place[ids]
