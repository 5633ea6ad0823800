"""What the rows of a decoder attend to: the memory of each source once, whoever reads it.

A beam has several prefixes for each source. The source's keys and values are stored once, and the
queries of its prefixes are put side by side.
"""

from __future__ import annotations

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

    Examples
    --------
    >>> readers = Readers(np.array([0, 1, 0]), sources=2)
    >>> beside = readers.beside(as_tensor(np.array([[[1.0]], [[2.0]], [[3.0]]])))
    >>> beside.data.tolist()
    [[[1.0], [3.0]], [[2.0], [0.0]]]
    >>> readers.rows(beside).data.tolist()
    [[[1.0]], [[2.0]], [[3.0]]]
    """

    def __init__(self, source_index: IntArray, sources: int) -> None:
        counts = np.bincount(source_index, minlength=sources)
        self.read, self.place = None, source_index
        if 4 * np.count_nonzero(counts) <= 3 * sources:  # a copy costs less than idle sources
            self.read, self.place = np.unique(source_index, return_inverse=True)
        self.shape = (sources if self.read is None else len(self.read), int(counts.max()))
        order = np.argsort(source_index, kind="stable")
        ordered = source_index[order]
        self.rank = np.empty_like(source_index)
        self.rank[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)

    def sources(self, memory: Array) -> Array:
        """The entries of the sources that are read, of an array with an entry per source."""
        return memory if self.read is None else memory[array_module(memory).asarray(self.read)]

    def beside(self, x: Tensor) -> Tensor:
        """(rows, 1, n) → (sources, queries, n), zeros where a source has fewer."""
        xp = x.xp
        filled = xp.zeros((*self.shape, x.shape[-1]), x.dtype)
        filled[xp.asarray(self.place), xp.asarray(self.rank)] = x.data[:, 0]
        return as_tensor(filled)

    def rows(self, y: Tensor) -> Tensor:
        """(sources, queries, n) → (rows, 1, n)."""
        xp = y.xp
        return as_tensor(y.data[xp.asarray(self.place), xp.asarray(self.rank)][:, None])
