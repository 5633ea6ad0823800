"""Parts of a decoder's state: the cache of what it has read, and which source each row reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.seq2seq.models.protocol import IntArray, append


class Cache(NamedTuple):
    """Keys and values of each layer, with a row for each prefix; a part of a model's state.

    A step writes them in place, at the end of each row, and the arrays double where they are full.

    Attributes
    ----------
    lengths : (rows,) int array
        How many tokens a row has.
    pairs : tuple of pairs of (rows, room, n) arrays
        Of each layer its keys and its values; zeros behind the tokens of a row.
    """

    lengths: IntArray
    pairs: tuple[tuple[Array, Array], ...]

    @classmethod
    def empty(cls, rows: int, layers: int, width: int, dtype: Any) -> Cache:
        """A cache of rows without tokens."""
        arrays = [np.zeros((rows, 1, width), dtype) for _ in range(2 * layers)]
        pairs = tuple(zip(arrays[::2], arrays[1::2], strict=True))
        return cls(np.zeros(rows, dtype=np.int64), pairs)

    def mask(self) -> Array | None:
        """The mask of keys that each row's next token sees, its own among them; None for all."""
        if (self.lengths == self.lengths[:1]).all():
            return None
        longest = np.arange(self.lengths.max() + 1)
        return np.asarray(longest <= self.lengths[:, None])[:, None, None, :]

    def append(self, longer: list[Any], layer: int, pair: Any) -> Any:
        """The keys and values of a layer with those of each row's next token, (rows, 1, n) both.

        ``longer`` collects the arrays of all layers.
        """
        new = (x.data[:, 0] for x in pair)
        arrays = (append(x, self.lengths, y) for x, y in zip(self.pairs[layer], new, strict=True))
        longer.append(tuple(arrays))
        return tuple(x[:, : self.lengths.max() + 1] for x in longer[layer])


class Queries(NamedTuple):
    """Rows by the sources that they read: those of one source are the queries of one product.

    Attributes
    ----------
    sources : int array or slice
        The sources that are looked at: those that are read, or all.
    size : int
        How many they are.
    place : pair of (rows,) int arrays
        The source of each row among these, and its number among the rows of this source.

    Examples
    --------
    >>> queries = Queries.of(np.array([0, 2, 0]), 9)
    >>> queries.sources
    array([0, 2])
    >>> queries.by_source(np.array([[1.0], [2.0], [3.0]])).data.tolist()
    [[[1.0], [3.0]], [[2.0], [0.0]]]
    """

    sources: Any
    size: int
    place: tuple[IntArray, IntArray]

    @classmethod
    def of(cls, source: IntArray, count: int) -> Queries:
        """Group rows by the sources that they read, of ``count`` sources."""
        read, place = np.unique(source, return_inverse=True)
        order, number = np.argsort(place, kind="stable"), np.empty_like(place)
        number[order] = np.arange(len(place)) - np.searchsorted(place[order], place[order])
        if 4 * len(read) > 3 * count:  # a copy costs more than idle sources
            return cls(slice(None), count, (source, number))
        return cls(read, len(read), (place, number))

    def by_source(self, x: Array) -> Tensor:
        """(rows, n) → (sources, queries, n), zeros where a source has fewer."""
        source, number = self.place
        filled = np.zeros((self.size, number.max() + 1, x.shape[1]), x.dtype)
        filled[self.place] = x
        return as_tensor(filled)

    def by_row(self, y: Tensor) -> Tensor:
        """(sources, queries, n) → (rows, n)."""
        return as_tensor(y.data[self.place])
