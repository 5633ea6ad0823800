"""What the rows of a decoder attend to: the memory of each source once, whoever reads it.

A beam has several prefixes for each source. The source's keys and values are stored once, and the
queries of its prefixes are put side by side.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from pyentmax.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.calls.devices import array_module
from pyentmax.models.protocol import IntArray


class Readers:
    """Rows that read the same source, side by side as its queries.

    Parameters
    ----------
    source_index : (rows,) int array
        The source of each row.
    sources : int
        Number of sources in memory; some may have no rows any more.
    xp : module
        The array module of what the rows read.

    Examples
    --------
    >>> readers = Readers(np.array([0, 1, 0]), sources=2)
    >>> beside = readers.beside(as_tensor(np.array([[[1.0]], [[2.0]], [[3.0]]])))
    >>> beside.data.tolist()
    [[[1.0], [3.0]], [[2.0], [0.0]]]
    >>> readers.rows(beside).data.tolist()
    [[[1.0]], [[2.0]], [[3.0]]]
    """

    def __init__(self, source_index: IntArray, sources: int, xp: ModuleType = np) -> None:
        counts = np.bincount(source_index, minlength=sources)
        self.read, place = None, source_index
        if 4 * np.count_nonzero(counts) <= 3 * sources:  # a copy costs less than idle sources
            self.read, place = np.unique(source_index, return_inverse=True)
        self.shape = (sources if self.read is None else len(self.read), int(counts.max()))
        order = np.argsort(source_index, kind="stable")
        ordered = source_index[order]
        rank = np.empty_like(source_index)
        rank[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        self.place, self.rank = xp.asarray(place), xp.asarray(rank)

    def sources(self, memory: Array) -> Array:
        """The entries of the sources that are read, of an array with an entry per source."""
        return memory if self.read is None else memory[array_module(memory).asarray(self.read)]

    def beside(self, x: Tensor) -> Tensor:
        """(rows, 1, n) → (sources, queries, n), zeros where a source has fewer."""
        xp = x.xp
        filled = xp.zeros((*self.shape, x.shape[-1]), x.dtype)
        filled[self.place, self.rank] = x.data[:, 0]
        return as_tensor(filled)

    def rows(self, y: Tensor) -> Tensor:
        """(sources, queries, n) → (rows, 1, n)."""
        return as_tensor(y.data[self.place, self.rank][:, None])
