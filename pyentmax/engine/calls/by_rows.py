"""Rows of different lengths for any function of rows, by a call for each length.

The rows of one length are a dense array. They are moved as items of that many bytes, which NumPy
does several times as fast as entry by entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import array_module, is_dask, to_host
from pyentmax.engine.calls.dtypes import as_array


def by_rows(
    function: Callable[..., Any], entries: Sequence[Any], offsets: Any, per_row: Sequence[Any] = ()
) -> Any:
    """Results of a function for rows that lie one after the other in flat arrays.

    Each row's result has the bits that the function gives for the row alone; a mean over rows is
    left to the caller. Rows of equal length go together, so that a call is made for each length.

    Parameters
    ----------
    function : callable
        of arrays of shape (rows, d), one for each of `entries`, then of what is `per_row`. It
        returns an array of that shape, or of shape (rows,), or a tuple of these: a mapping,
        ``entmax.jvp``, ``partial(entmax15.loss, reduction="none")``, ``lambda z, mask: …``
    entries : tuple of arrays of shape (n,)
        the rows' scores, or probabilities and a direction, a mask, bounds
    offsets : int32 or int64 array of shape (rows + 1,)
        row r has the entries from offsets[r] to offsets[r + 1] and may be empty; they rise from 0
        to n, as SciPy's indptr and PyG's ptr
    per_row : tuple of arrays of shape (rows,), or of numbers for all
        labels, α

    Returns
    -------
    array of shape (n,), or of shape (rows,) where a row gives a number, 0 for an empty row; or a
    tuple of these

    Raises
    ------
    ValueError
        if the arrays or offsets do not fit, or the function returns anything else; else as the
        function
    TypeError
        if offsets are not int32 or int64, or an array is one of Dask's

    Examples
    --------
    >>> import pyentmax as pe
    >>> z, offsets = np.array([1.0, 0.5, -2.0, 0.0, 0.0]), [0, 3, 3, 5]
    >>> print(by_rows(pe.sparsemax, (z,), offsets))
    [0.75 0.25 0.   0.5  0.5 ]
    >>> print(by_rows(pe.entmax, (z,), offsets, (np.array([2.0, 1.5, 1.5]),)))
    [0.75 0.25 0.   0.5  0.5 ]
    """
    arrays = [_flat(x, f"entries[{i}]") for i, x in enumerate(entries)]
    if not arrays or any(x.shape != arrays[0].shape for x in arrays):
        raise ValueError(f"entries must be of one shape (n,), got {[x.shape for x in arrays]}")
    offsets = checked_offsets(offsets, len(arrays[0]))
    starts, lengths = offsets[:-1], np.diff(offsets)
    numbers = [_per_row(x, f"per_row[{i}]", len(starts)) for i, x in enumerate(per_row)]
    results: list[Any] = []
    parts: Any = ()
    for rows, d in groups(lengths):
        values = [x[_on_device_like(rows, x)] if _is_array(x) else x for x in numbers]
        parts = function(*(_gather_rows(x, starts[rows], d) for x in arrays), *values)
        several = isinstance(parts, tuple)
        for i, part in enumerate(parts if several else (parts,)):
            if part.shape not in ((len(rows), d), (len(rows),)):
                raise ValueError(
                    f"function must return an entry for each score, shape {(len(rows), d)}, or a "
                    f'number for each row (of a loss with reduction="none"), got shape {part.shape}'
                )
            if len(results) <= i:
                shape = arrays[0].shape if part.ndim == 2 else starts.shape
                results.append(np.zeros_like(arrays[0], dtype=part.dtype, shape=shape))
            _put(results[i], part, rows, starts[rows], d)
    return tuple(results) if isinstance(parts, tuple) else results[0]


def groups(lengths: Any) -> list[tuple[Any, int]]:
    """The rows of each length; no rows of length 1 if all are empty, for the dtype of results."""
    short = lengths.max(initial=0) < 1 << 16  # which NumPy sorts by digits
    order = np.argsort(lengths.astype(np.uint16) if short else lengths, kind="stable")
    order = order[np.searchsorted(lengths[order], 1) :]
    if not len(order):
        return [(order, 1)]
    edges = np.flatnonzero(np.diff(lengths[order])) + 1
    return [(rows, int(lengths[rows[0]])) for rows in np.split(order, edges)]


def _gather_rows(array: Any, starts: Any, d: int) -> Any:
    """The entries of rows of d entries, of shape (rows, d)."""
    items = _windows(array, d)
    if items is None:
        return array[_on_device_like(starts[:, None] + np.arange(d), array)]
    return items[starts].view(array.dtype).reshape(-1, d)


def _put(result: Any, part: Any, rows: Any, starts: Any, d: int) -> None:
    """Write what a group of rows gives to its place."""
    if part.ndim == 1:
        result[_on_device_like(rows, result)] = part
        return
    items = _windows(result, d)
    if items is None:
        result[_on_device_like(starts[:, None] + np.arange(d), result)] = part
    else:
        items[starts] = np.ascontiguousarray(part).view(items.dtype)[:, 0]


def _windows(array: Any, d: int) -> Any:
    """Every window of d entries as one item, without a copy; None on a device."""
    if type(array) is not np.ndarray or len(array) < d:
        return None
    item = _item(d * array.itemsize)
    return np.ndarray((len(array) - d + 1,), item, array, 0, array.strides)


@functools.lru_cache(maxsize=1024)
def _item(size: int) -> Any:
    return np.dtype((np.void, size))


def _on_device_like(index: Any, array: Any) -> Any:
    return index if isinstance(array, np.ndarray) else array_module(array).asarray(index)


def _flat(array: Any, name: str) -> Any:
    if is_dask(array):
        raise TypeError(f"{name} is a Dask array: pass arrays in memory")
    array = as_array(array, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must have the shape (n,), got {array.shape}")
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array


def _is_array(value: Any) -> bool:
    return getattr(value, "ndim", 0) > 0


def _per_row(value: Any, name: str, rows: int) -> Any:
    value = as_array(value, name) if isinstance(value, list | tuple) else value
    if _is_array(value) and value.shape != (rows,):
        raise ValueError(
            f"{name} must have the shape ({rows},), one for each row, got {value.shape}"
        )
    return value


def checked_offsets(offsets: Any, length: int) -> Any:
    """Offsets as int64 on the host: the rows' lengths say which calls are made."""
    offsets = to_host(as_array(offsets, "offsets"))
    if offsets.dtype.kind not in "iu" or offsets.dtype.itemsize < 4:
        raise TypeError(f"offsets must be int32 or int64, got {offsets.dtype}")
    if offsets.ndim != 1 or not len(offsets):
        raise ValueError(
            f"offsets must have the shape (rows + 1,), one axis, got shape {offsets.shape}"
        )
    if offsets[0] != 0 or offsets[-1] != length:
        raise ValueError(
            f"offsets must go from 0 to {length}, the number of entries, got {offsets[0]} to "
            f"{offsets[-1]}"
        )
    if (offsets[1:] < offsets[:-1]).any():
        i = int(np.argmax(offsets[1:] < offsets[:-1]))
        raise ValueError(f"offsets must not fall, got {offsets[i]} and then {offsets[i + 1]}")
    return offsets.astype(np.int64, copy=False)
