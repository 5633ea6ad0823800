"""The weights of attention without their zeros."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import array_module, on_device
from pyentmax.reference.sparse_output import INT32_MAX, scipy_sparse


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of all queries as one matrix in compressed sparse rows.

    The rows of all heads follow each other: query t of the head with flat index h is row h T + t.
    Its weights are ``data[indptr[row]:indptr[row + 1]]``, for the keys in the same slice of
    `indices`, which rise.

    A query that sees no key has an empty row. One with a NaN among its scores has a NaN for every
    key that it may see. A row sums to 1; with a sink, to 1 minus the sink's weight.

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
    sink : array of shape batch + (T,), or None
        the weight of each query's sink; None without one

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
    sink: Any = None
    dense_heads: Any = None  # within a derivative: heads whose weights are not stored

    @classmethod
    def from_dense(cls, dense: Any, sink: Any = None) -> AttentionWeights:
        """Keep what is not zero of an array of shape batch + (T, S)."""
        rows = dense.reshape(math.prod(dense.shape[:-1]), dense.shape[-1])
        row, column = np.nonzero(rows)
        indptr = indptr_of(np.sum(rows != 0, axis=-1))
        return cls(dense.shape, rows[row, column], column.astype(np.int32), indptr, sink)

    @classmethod
    def joined(
        cls, shape: tuple[int, ...], parts: list[AttentionWeights], order: Any = None
    ) -> AttentionWeights:
        """Weights of all rows from those of some rows after the other, at least one.

        `order` says where each row is among those, unless they are in order.
        """
        data = np.concatenate(list(map(attrgetter("data"), parts)))
        indices = np.concatenate(list(map(attrgetter("indices"), parts)))
        counts = np.concatenate(list(map(np.diff, map(attrgetter("indptr"), parts))))
        sink = parts[0].sink
        if sink is not None:
            sink = np.concatenate([part.sink.ravel() for part in parts])
        if order is not None:
            xp = array_module(counts)
            order = xp.asarray(order)
            starts = (np.cumsum(counts) - counts)[order]
            counts, sink = counts[order], None if sink is None else sink[order]
            moved = cls(shape, data, indices, indptr_of(counts))
            places = (starts - moved.indptr[:-1])[moved.rows]
            places += xp.arange(len(data))
            data, indices = data[places], indices[places]
        sink = None if sink is None else sink.reshape(shape[:-1])
        return cls(shape, data, indices, indptr_of(counts), sink)

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch shape, including the heads."""
        return self.shape[:-2]

    @property
    def support_sizes(self) -> Any:
        """The number of keys with weight of each query, of shape batch + (T,)."""
        check_parts(self)
        return np.diff(self.indptr).reshape(self.shape[:-1])

    @property
    def density(self) -> float:
        """The share of weights that are not zero; 0 if there are no weights."""
        return self.data.size / max(1, math.prod(self.shape))

    @property
    def rows(self) -> Any:
        """The row of each weight; CuPy's repeat does not take an array of counts."""
        if isinstance(self.indptr, np.ndarray):
            return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        entries = np.cumsum(np.ones_like(self.data, dtype=np.int64)) - 1
        return np.searchsorted(self.indptr, entries, side="right") - 1

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        arrays = self.data, self.indices, self.indptr, self.sink
        return sum(int(array.nbytes) for array in arrays if array is not None)

    def to_dense(self) -> Any:
        """All weights, zeros included, as an array of shape batch + (T, S)."""
        check_parts(self)
        check_places(self.indptr, self.indices, self.shape[-1])
        dense = np.zeros_like(self.data, shape=(len(self.indptr) - 1, self.shape[-1]))
        dense[self.rows, self.indices] = self.data
        return dense.reshape(self.shape)

    def csr(self, *head: int) -> Any:
        """One head's weights as a `scipy.sparse` CSR array of shape (T, S).

        It shares `data` and `indices`, without a copy. For weights on a GPU it is one of
        `cupyx.scipy.sparse`.

        Parameters
        ----------
        *head : int
            the index of the head in the batch shape; nothing if that is ()

        Raises
        ------
        IndexError
            if there is no such head
        ImportError
            if SciPy is not installed
        TypeError, ValueError
            if the parts were replaced by arrays that are not those of compressed rows

        Examples
        --------
        >>> from pyentmax import attention
        >>> x = np.eye(3)[None] * 9
        >>> _, weights = attention(x, x, x, return_weights=True)
        >>> print(weights.csr(0).nnz)
        3
        """
        check_parts(self)
        flat = flat_head(head, self.batch)
        t, s = self.shape[-2:]
        ends = self.indptr[flat * t : (flat + 1) * t + 1]
        if on_device(self.data):
            sparse = importlib.import_module("cupyx.scipy.sparse")
            entries = slice(int(ends[0]), int(ends[-1]))
            parts = self.data[entries], self.indices[entries], ends - ends[0]
            return sparse.csr_matrix(parts, shape=(t, s))
        if not 0 <= ends[0] <= ends[-1] <= len(self.data):
            raise ValueError(OUTSIDE)
        entries, ends = slice(ends[0], ends[-1]), ends - ends[0]
        check_places(ends, self.indices[entries], s)  # SciPy would write wherever they say
        if ends[-1] <= INT32_MAX:
            ends = ends.astype(np.int32)  # the dtype of the indices, or SciPy would copy those
        matrix = scipy_sparse().csr_array((t, s), dtype=self.data.dtype)
        # Its constructor would copy a slice of less than half of another array.
        matrix.data, matrix.indices, matrix.indptr = self.data[entries], self.indices[entries], ends
        return matrix


OUTSIDE = "compressed rows: a row or a column lies outside of the matrix"


def flat_head(head: tuple[int, ...], batch: tuple[int, ...]) -> int:
    """The flat index of a head in the batch shape."""
    if len(head) != len(batch) or not all(-n <= i < n for n, i in zip(batch, head, strict=True)):
        raise IndexError(
            f"no head {head} in the batch shape {tuple(batch)}: expected the index of a head, "
            f"{len(batch)} numbers"
        )
    flat = 0
    for n, i in zip(batch, head, strict=True):
        flat = flat * n + i % n
    return flat


def check_weights(weights: Any, shape: tuple[int, ...]) -> None:
    """Raise an error unless they are weights of that shape with the parts of compressed rows."""
    if not isinstance(weights, AttentionWeights):
        raise TypeError(
            "weights must be the AttentionWeights that attention returns with "
            f"return_weights=True, got {type(weights).__name__}"
        )
    if weights.shape != shape:
        raise ValueError(
            f"weights of shape {weights.shape} do not belong to query, key and value, whose "
            f"weights have shape {shape}"
        )
    check_parts(weights)
    if weights.indices.dtype != np.int32:  # those of int32 are checked where they are used
        check_places(weights.indptr, weights.indices, shape[-1])


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
            f"weights of shape {weights.shape} must have {rows + 1:,} places in indptr and the "
            f"same number of indices and data, got {len(weights.indptr):,}, "
            f"{len(weights.indices):,} and {entries:,}"
        )


def check_places(indptr: Any, indices: Any, columns: int) -> None:
    """Raise a ValueError unless the rows and keys of arrays on the host lie within the matrix."""
    if on_device(indices):
        return
    entries = len(indices)
    rising = indptr[0] == 0 and indptr[-1] == entries and not (indptr[1:] < indptr[:-1]).any()
    if not rising or (entries and not (indices.min() >= 0 and indices.max() < columns)):
        raise ValueError(OUTSIDE)


def indptr_of(counts: Any) -> Any:
    """Starts of rows with these numbers of entries."""
    indptr = np.zeros_like(counts, shape=(len(counts) + 1,), dtype=np.int64)
    indptr[1:] = np.cumsum(counts)
    return indptr
