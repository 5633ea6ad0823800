"""What the rows of a decoder attend to: the memory of each source once, whatever reads it.

A beam has several prefixes for each source. Their keys and values are the source's, and stand once;
the queries of all prefixes of a source stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyentmax.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.calls.devices import array_module
from pyentmax.models.protocol import BoolArray, IntArray


class Readers:
    """Rows that read the same source, side by side as its queries.

    Parameters
    ----------
    place : (rows,) int array
        The place of each row's source.

    Examples
    --------
    >>> readers = Readers(np.array([0, 1, 0]))
    >>> beside = readers.beside(as_tensor(np.array([[[1.0]], [[2.0]], [[3.0]]])))
    >>> beside.data.tolist()
    [[[1.0], [3.0]], [[2.0], [0.0]]]
    >>> readers.rows(beside).data.tolist()
    [[[1.0]], [[2.0]], [[3.0]]]
    """

    def __init__(self, place: IntArray) -> None:
        self.place = place
        counts = np.bincount(place)
        self.most = int(counts.max())
        # Unless there are many more places for queries than queries.
        self.shared = self.most * len(counts) <= 2 * len(place)
        self.ordered = self.most * len(counts) == len(place) and bool((np.diff(place) >= 0).all())
        if self.shared and not self.ordered:
            order = np.argsort(place, kind="stable")
            in_order = place[order]
            self.rank = np.empty_like(place)
            self.rank[order] = np.arange(len(place)) - np.searchsorted(in_order, in_order)

    def sources(self, memory: Array) -> Array:
        """Of an array with an entry per source, what :meth:`beside` is to attend to."""
        if self.shared:
            return memory[: int(self.place.max()) + 1]
        return self.each(memory)

    def each(self, memory: Array) -> Array:
        """Of an array with an entry per source, that of each row's source."""
        xp = array_module(memory)
        if self.ordered:
            there = memory[: int(self.place.max()) + 1]
            return there if self.most == 1 else xp.repeat(there, self.most, axis=0)
        return memory[xp.asarray(self.place)]

    def beside(self, x: Tensor) -> Tensor:
        """(rows, 1, n) → (sources, queries, n), zeros where a source has fewer."""
        if not self.shared:
            return x
        if self.ordered:
            return x.reshape(-1, self.most, x.shape[-1])
        xp = x.xp
        filled = xp.zeros((int(self.place.max()) + 1, self.most, x.shape[-1]), x.dtype)
        filled[xp.asarray(self.place), xp.asarray(self.rank)] = x.data[:, 0]
        return as_tensor(filled)

    def rows(self, y: Tensor) -> Tensor:
        """(sources, queries, n) → (rows, 1, n)."""
        if not self.shared:
            return y
        if self.ordered:
            return y.reshape(-1, 1, y.shape[-1])
        xp = y.xp
        return as_tensor(y.data[xp.asarray(self.place), xp.asarray(self.rank)][:, None])


def still_read(memory_index: IntArray, source_index: IntArray) -> BoolArray | None:
    """Which of the sources in memory some row reads; None where it does not pay to drop the others.

    Sources that no row reads cost time at each step, and copies of those that stay cost some, too.
    """
    asked = np.zeros(memory_index.max(initial=-1) + 1, dtype=bool)
    asked[source_index] = True
    read: BoolArray = asked[memory_index]
    return read if 4 * np.count_nonzero(read) <= 3 * len(read) else None


def distinct(ids: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Which of 0, …, size − 1 there are, and the place of each of ``ids`` among these.

    What ``np.unique(ids, return_inverse=True)`` finds by sorting, in a quarter of the time.

    Examples
    --------
    >>> found, place = distinct(np.array([7, 2, 7]), 9)
    >>> found.tolist(), place.tolist()
    ([2, 7], [1, 0, 1])
    """
    there = np.zeros(size, dtype=bool)
    there[ids] = True
    found = np.flatnonzero(there)
    place = np.empty(size, dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[ids]


def joined_sources(
    indices: Sequence[IntArray], memories: Sequence[tuple[Array, ...]]
) -> tuple[IntArray, tuple[Array, ...]]:
    """The sources of several memories of one encoding, each once, and their arrays.

    Examples
    --------
    >>> index, (mask,) = joined_sources(
    ...     [np.array([0, 2]), np.array([1, 2])], [(np.array([5, 7]),), (np.array([6, 7]),)]
    ... )
    >>> index.tolist(), mask.tolist()
    ([0, 1, 2], [5, 6, 7])
    """
    most = max(range(len(indices)), key=lambda i: len(indices[i]))
    if all(np.isin(index, indices[most]).all() for index in indices):
        return indices[most], memories[most]  # as it is where nothing has ended yet
    index, places = np.unique(np.concatenate(indices), return_index=True)
    xp = array_module(memories[0][0])
    places = xp.asarray(places)
    joined = tuple(xp.concatenate(arrays)[places] for arrays in zip(*memories, strict=True))
    return index, joined
