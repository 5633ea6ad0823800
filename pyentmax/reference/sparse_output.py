"""Sparse results: the non-zero probabilities of many long rows, as a `scipy.sparse` CSR array.

For an output layer of 100,000 words a sparse mapping leaves a few dozen non-zeros, and the zeros
would take thousands of times the memory. So the rows are mapped a few at a time, in a block that
stays in the processor's cache, and only the non-zeros of each block are stored. Every probability
is equal to that of the dense function to the last bit.

Softmax has no zeros, except where floats underflow: it gains nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends import choice
from pyentmax.engine.calls.dtypes import runs_kernels
from pyentmax.engine.calls.parameters import UpperBounds
from pyentmax.engine.calls.rows import arrange_scores
from pyentmax.reference.fenchel_young import record_and_parameters
from pyentmax.reference.mapping import AnyMapping as Mapping

BLOCK = 1 << 16  # entries mapped at a time: a quarter or half of a megabyte
INT32_MAX = np.iinfo(np.int32).max


def csr(mapping: str | Mapping, z: Any, *, mask: Any = None, **params: Any) -> Any:
    """A mapping of each row of z, as a `scipy.sparse` CSR array of the non-zeros.

    Parameters
    ----------
    mapping : name of a row of `pyentmax.MAPPINGS`, or a user-defined `Mapping`
    z : array of scores, of shape (rows, d), in the host's memory
    mask : as in `pyentmax.softmax`
    **params
        the mapping's own parameters, such as ``alpha``: a number, or one for each row

    Returns
    -------
    scipy.sparse.csr_array of shape (rows, d)
        float64, or float32 where z is float32 or float16 (SciPy has no sparse half floats). Its
        indices are int32 where that is large enough. A NaN row is stored as NaN

    Raises
    ------
    ValueError
        if z is not 2-D; else as in `pyentmax.softmax`
    TypeError
        if z is on a device, or a parameter is missing or unknown; else as in `pyentmax.softmax`
    ImportError
        if SciPy is missing, which the extra ``pyentmax[sparse]`` installs

    Examples
    --------
    >>> p = csr("sparsemax", [[2.0, 1.5, -1.0], [0.0, 9.0, 0.0]])
    >>> print(p.data, p.indices, p.indptr)
    [0.75 0.25 1.  ] [0 1 1] [0 2 3]
    >>> print(csr("entmax", [[1.0, 0.5, -2.0]] * 2, alpha=[1.5, 2]).toarray().round(4))
    [[0.674 0.326 0.   ]
     [0.75  0.25  0.   ]]
    """
    record, parameters = record_and_parameters(mapping, params)
    sparse = scipy_sparse()
    arranged = arrange_scores(z, -1, mask)
    z, mask, shape = arranged.array, arranged.mask, arranged.shape
    if z.ndim != 2:
        raise ValueError(f"z must be 2-D for a sparse result, got shape {shape}")
    if not isinstance(z, np.ndarray):
        raise TypeError(
            f"z is a {type(z).__module__}.{type(z).__name__}, and sparse results are for NumPy "
            "arrays: copy it to the host first"
        )
    parameter: Any = record.parameter
    per_entry = isinstance(parameter, UpperBounds)
    values = [x if parameter is None else parameter.for_scores(x, arranged) for x in parameters]
    values = [np.broadcast_to(x, shape if per_entry else shape[:1]) for x in values]
    mask = None if mask is None else np.broadcast_to(mask, shape)
    at_once = max(1, BLOCK // shape[1])
    block = np.empty((min(at_once, shape[0]), shape[1]), z.dtype)
    nonzeros = _Nonzeros(z.shape, block.dtype)
    for start in range(0, shape[0], at_once):
        some = slice(start, start + at_once)
        rows = (z[some], *(value[some] for value in values))
        rows_mask = None if mask is None else mask[some]
        nonzeros.append(record(*rows, mask=rows_mask, out=block[: len(rows[0])]))
    return sparse.csr_array(nonzeros.arrays(), shape=shape)


class _Nonzeros:
    """The non-zeros of a matrix that comes in blocks of rows: values, columns, and row ends."""

    def __init__(self, shape: tuple[int, int], dtype: Any) -> None:
        self._columns = np.empty(0, np.int32 if shape[1] <= INT32_MAX else np.int64)
        self._values = np.empty(0, dtype)
        self._ends = np.zeros(shape[0] + 1, np.int64)
        self._rows = self._count = 0

    def append(self, block: Any) -> None:
        """Add some rows."""
        room = self._count + block.size
        if room > len(self._values):
            for array in (self._values, self._columns):
                array.resize(max(room, 2 * len(array)), refcheck=False)
        rows = self._rows + len(block)
        ends = self._ends[self._rows + 1 : rows + 1]
        self._count = pack(block, self._values, self._columns, ends, self._count)
        self._rows = rows

    def arrays(self) -> tuple[Any, Any, Any]:
        """The data, indices and indptr of `scipy.sparse.csr_array`."""
        for array in (self._values, self._columns):
            array.resize(self._count, refcheck=False)
        wide = self._count > INT32_MAX or self._columns.dtype == np.int64
        index = np.int64 if wide else np.int32
        return self._values, self._columns.astype(index, copy=False), self._ends.astype(index)


def pack(block: Any, values: Any, columns: Any, ends: Any, count: int) -> int:
    """Append a block's non-zeros to the first `count`, and its row ends; return the new count.

    All arrays are contiguous; `values` and `columns` have room for the whole block.
    """
    compiled = choice.packer()
    if compiled is not None and runs_kernels(block):
        return compiled(block, values, columns, ends, count)
    row, column = np.nonzero(block)
    values[count : count + len(row)] = block[row, column]
    columns[count : count + len(row)] = column
    ends[:] = count + np.cumsum(np.count_nonzero(block, axis=1))
    return count + len(row)


def scipy_sparse() -> Any:
    """`scipy.sparse`, or an ImportError that says how to install it."""
    try:
        import scipy.sparse
    except ImportError as error:
        raise ImportError(
            "sparse results need SciPy, which is not installed; pip install 'pyentmax[sparse]'"
        ) from error
    return scipy.sparse
