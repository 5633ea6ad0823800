"""The weights of attention without their zeros."""

from __future__ import annotations

import importlib
import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.calls.devices import on_device
from pyentmax.sparse_output import INT32_MAX, pack, scipy_sparse


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of all queries as one matrix in compressed sparse rows.

    The rows of all heads follow each other: query t of the head with flat index h is row h T + t.
    Its weights are ``data[indptr[row]:indptr[row + 1]]``, for the keys in the same slice of
    `indices`, which rise.

    A query that saw no key has an empty row. One with a NaN among its scores has a NaN for every
    key that it may see.

    Attributes
    ----------
    shape : tuple of int
        batch + (T, S), the shape of `to_dense`
    data : array of the non-zero weights
        in the dtype that attention computed in, float32 for half types
    indices : array of int32
        the key of each
    indptr : array of int64, of length batch · T + 1
        where each row begins

    Examples
    --------
    >>> from pyentmax import attention
    >>> query, key = np.array([[4.0], [0.0]]), np.array([[1.0], [0.5], [-1.0]])
    >>> output, weights = attention(query, key, key, 2, scale=1, return_weights=True)
    >>> print(weights.to_dense().round(4))
    [[1.     0.     0.    ]
     [0.3333 0.3333 0.3333]]
    >>> print(weights.support_sizes, round(weights.density, 4))
    [1 3] 0.6667
    """

    shape: tuple[int, ...]
    data: Any
    indices: Any
    indptr: Any

    @classmethod
    def from_dense(cls, dense: Any) -> AttentionWeights:
        """Keep what is not zero of an array of shape batch + (T, S)."""
        rows = dense.reshape(math.prod(dense.shape[:-1]), dense.shape[-1])
        row, column = np.nonzero(rows)
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.count_nonzero(rows, axis=1), out=indptr[1:])
        return cls(dense.shape, rows[row, column], column.astype(np.int32), indptr)

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch shape, the heads among it."""
        return self.shape[:-2]

    @property
    def support_sizes(self) -> Any:
        """How many keys each query attends to, of shape batch + (T,)."""
        check_parts(self)
        return np.diff(self.indptr).reshape(self.shape[:-1])

    @property
    def density(self) -> float:
        """The share of all weights that are not zero; 0 where there are none at all."""
        return self.data.size / max(1, math.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.data.nbytes + self.indices.nbytes + self.indptr.nbytes)

    def to_dense(self) -> Any:
        """All weights, zeros included, as an array of shape batch + (T, S)."""
        check_parts(self)
        _check_places(self.indptr, self.indices, self.shape[-1])
        dense = np.zeros_like(self.data, shape=(len(self.indptr) - 1, self.shape[-1]))
        dense[places(self.indptr, self.data), self.indices] = self.data
        return dense.reshape(self.shape)

    def csr(self, *head: int) -> Any:
        """One head's weights as a `scipy.sparse` CSR array of shape (T, S).

        It shares `data` and `indices`, without a copy. Of weights on a GPU it is one of
        `cupyx.scipy.sparse`.

        Parameters
        ----------
        *head : int
            the index of the head in the batch shape; nothing, where that is ()

        Raises
        ------
        IndexError
            if there is no such head
        ImportError
            if SciPy is not installed
        TypeError, ValueError
            if parts have been put in that are not those of compressed rows

        Examples
        --------
        >>> from pyentmax import attention
        >>> x = np.eye(3)[None] * 9
        >>> _, weights = attention(x, x, x, return_weights=True)
        >>> print(weights.csr(0).nnz)
        3
        """
        check_parts(self)
        if len(head) != len(self.batch):
            raise IndexError(
                f"one head is wanted, by {len(self.batch)} indices into the batch shape "
                f"{self.batch}, got {len(head)}"
            )
        for n, i in zip(self.batch, head, strict=True):
            if not -n <= i < n:
                raise IndexError(f"no head {head} in the batch shape {self.batch}")
        flat = 0
        for n, i in zip(self.batch, head, strict=True):
            flat = flat * n + i % n
        t, s = self.shape[-2:]
        ends = self.indptr[flat * t : (flat + 1) * t + 1]
        if on_device(self.data):
            sparse = importlib.import_module("cupyx.scipy.sparse")
            entries = slice(int(ends[0]), int(ends[-1]))
            parts = self.data[entries], self.indices[entries], ends - ends[0]
            return sparse.csr_matrix(parts, shape=(t, s))
        if not 0 <= ends[0] <= ends[-1] <= len(self.data):
            raise ValueError("compressed rows: a row or a column lies outside of the matrix")
        entries, ends = slice(ends[0], ends[-1]), ends - ends[0]
        _check_places(ends, self.indices[entries], s)  # SciPy would write wherever they say
        if ends[-1] <= INT32_MAX:
            ends = ends.astype(np.int32)  # as the indices, or SciPy would copy those
        matrix = scipy_sparse().csr_array((t, s), dtype=self.data.dtype)
        # Its constructor would copy what is less than half of another array.
        matrix.data, matrix.indices, matrix.indptr = self.data[entries], self.indices[entries], ends
        return matrix


def check_parts(weights: AttentionWeights) -> None:
    """Raise an error unless types and lengths are those of compressed rows; no value is read."""
    for name, kinds in (("data", "f"), ("indices", "iu"), ("indptr", "iu")):
        array = getattr(weights, name)
        dtype = getattr(array, "dtype", None)
        if getattr(dtype, "kind", "none") not in kinds or array.ndim != 1:
            kind = "real" if kinds == "f" else "whole"
            raise TypeError(
                f"weights.{name} must be an array of {kind} numbers, with one axis, got "
                f"{type(array).__name__} of shape {np.shape(array)}"
            )
    rows, entries = math.prod(weights.shape[:-1]), len(weights.data)
    if len(weights.indptr) != rows + 1 or len(weights.indices) != entries:
        raise ValueError(
            f"weights of shape {weights.shape} must have {rows + 1:,} places in indptr and as many "
            f"indices as data, got {len(weights.indptr):,}, {len(weights.indices):,} and "
            f"{entries:,}"
        )


def _check_places(indptr: Any, indices: Any, columns: int) -> None:
    """Raise a ValueError unless the rows and keys of arrays on the host lie within the matrix."""
    if on_device(indices):
        return
    entries = len(indices)
    rising = indptr[0] == 0 and indptr[-1] == entries and not (indptr[1:] < indptr[:-1]).any()
    if not rising or (entries and not (indices.min() >= 0 and indices.max() < columns)):
        raise ValueError("compressed rows: a row or a column lies outside of the matrix")


def places(indptr: Any, data: Any) -> Any:
    """The row of each of the entries `data`, of rows that begin at `indptr`, on a device too."""
    if isinstance(indptr, np.ndarray):
        return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    entries = np.cumsum(np.ones_like(data, dtype=np.int64)) - 1 + indptr[0]
    return np.searchsorted(indptr, entries, side="right") - 1


class CollectedRows:
    """Compressed rows that come in tiles, from several threads, in about the order of the tiles."""

    def __init__(self, count: int, dtype: Any) -> None:
        self._data, self._indices = np.empty(0, dtype), np.empty(0, np.int32)
        self._indptr = np.zeros(count + 1, np.int64)
        self._count = self._next = 0
        self._share = 0.0
        self._early: dict[int, tuple[Any, ...]] = {}
        self._lock = threading.Lock()

    def add(
        self, number: int, share: float, first: int, data: Any, indices: Any, ends: Any
    ) -> None:
        """Take the rows of the tile of that number, from row `first` on; copies what it keeps.

        `share` is the tile's part of all the work, from which the room is estimated.
        """
        with self._lock:
            if number != self._next:
                self._early[number] = share, first, data.copy(), indices.copy(), ends
                return
            self._append(share, first, data, indices, ends)
            while self._next in self._early:
                self._append(*self._early.pop(self._next))

    def weights(self, shape: tuple[int, ...]) -> AttentionWeights:
        """All rows."""
        for array in (self._data, self._indices):
            array.resize(self._count, refcheck=False)
        return AttentionWeights(shape, self._data, self._indices, self._indptr)

    def _append(self, share: float, first: int, data: Any, indices: Any, ends: Any) -> None:
        self._next += 1
        self._share += share
        start, stop = self._count, self._count + len(data)
        if stop > len(self._data):
            # As if the rest had as many. What is not used costs no memory, only addresses.
            room = max(int(stop / max(self._share, 1e-9) * 1.1), stop + stop // 2)
            self._data, self._indices = (
                _with_room(array, start, room) for array in (self._data, self._indices)
            )
        self._data[start:stop], self._indices[start:stop] = data, indices
        self._indptr[first + 1 : first + 1 + len(ends)] = start + ends
        self._count = stop


def _with_room(array: Any, count: int, room: int) -> Any:
    larger = np.empty(room, array.dtype)
    larger[:count] = array[:count]
    return larger


def pack_rows(dense: Any, values: Any, columns: Any, ends: Any) -> None:
    """Write what is not zero of an array of rows, its columns, and where each row ends."""
    rows = dense.reshape(math.prod(dense.shape[:-1]), dense.shape[-1])
    pack(np.ascontiguousarray(rows), values, columns, ends.reshape(-1), 0)
