"""Rows of different lengths: an axis that is cut at ``offsets``, as by `indptr` of compressed rows.

Rows of one length are a dense array. So a call with ``offsets=`` gathers the rows of each length,
calls the function on them as on any other array, and puts what that gives in its place: whatever
holds for a call holds for it, row by row. What is per entry has z's shape; what is per row has z's
shape with the number of rows in the place of the axis' length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pyentmax.engine.calls.devices import array_module, is_dask, on_device_of, to_host
from pyentmax.engine.calls.dtypes import as_array, as_floating
from pyentmax.engine.calls.parameters import Parameter, UpperBounds
from pyentmax.engine.calls.rows import broadcasts, check_out, check_same_shape, reduce_to

SAME_SHAPE = ("z", "p", "v", "g")


class CutAxis:
    """An axis of an array of some shape, cut into rows.

    Attributes
    ----------
    axis : int
        not negative
    offsets : int64 array of shape (rows + 1,)
    starts, lengths : int64 arrays of shape (rows,)
    batch : tuple of int
        the shape of what is per row

    Examples
    --------
    >>> cut = CutAxis([0, 2, 2, 5], (5, 4), axis=0, name="z")
    >>> print(cut.lengths, cut.batch)
    [2 0 3] (3, 4)
    """

    def __init__(self, offsets: Any, shape: tuple[int, ...], axis: Any, name: str) -> None:
        if not isinstance(axis, int | np.integer):
            raise TypeError(f"axis must be one int with offsets, got {axis!r}")
        if not shape:
            raise ValueError(f"{name} is 0-dimensional; offsets cut an axis into rows")
        self.axis, self.shape = normalize_axis_index(int(axis), len(shape)), shape
        offsets = _checked(offsets, shape[self.axis])
        self.offsets, self.starts, self.lengths = offsets, offsets[:-1], np.diff(offsets)
        self.batch = (*shape[: self.axis], len(self.starts), *shape[self.axis + 1 :])

    def groups(self) -> Iterator[tuple[Any, int]]:
        """The rows of each length, and the length.

        Empty rows are left out, unless there are no others: the result of no rows has a dtype.
        """
        order = np.argsort(_smallest(self.lengths), kind="stable")
        lengths = self.lengths[order]
        first = int(np.searchsorted(lengths, 1))
        if first == len(lengths):
            yield np.empty(0, np.int64), 1
            return
        edges = first + 1 + np.flatnonzero(np.diff(lengths[first:]))
        for rows in np.split(order[first:], edges - first):
            yield rows, int(self.lengths[rows[0]])

    def take(self, array: Any, rows: Any, length: int) -> Any:
        """The entries of these rows, of an array whose last axis is cut."""
        starts = self.starts[rows]
        items = _windows(array, length)
        if items is None:
            return array[..., on_device_like(starts[:, None] + np.arange(length), array)]
        taken = np.ascontiguousarray(items[..., starts]).view(array.dtype)
        return taken.reshape(*array.shape[:-1], len(rows), length)

    def put(self, array: Any, rows: Any, length: int, values: Any) -> None:
        """Write them."""
        starts = self.starts[rows]
        items = _windows(array, length)
        if items is None:
            array[..., on_device_like(starts[:, None] + np.arange(length), array)] = values
        else:
            items[..., starts] = np.ascontiguousarray(values).view(items.dtype)[..., 0]

    def any(self, entries: Any) -> Any:
        """Whether any of each row's entries is true."""
        axis, ends = self.axis, self.starts + self.lengths
        none = np.zeros_like(entries, shape=(*self.batch[:axis], 1, *self.batch[axis + 1 :]))
        counts = np.cumsum(np.concatenate([none, entries], axis=axis), axis=axis)
        start, end = (on_device_like(place, entries) for place in (self.starts, ends))
        return counts.take(end, axis=axis) > counts.take(start, axis=axis)

    def refuse_labels_of_empty_rows(self, y: Any, weight: Any) -> None:
        """A ValueError if an empty row has a label and counts."""
        empty = np.flatnonzero(self.lengths == 0)
        if len(empty):
            place = on_device_like(empty, y)
            labels, counts = (x.take(place, axis=self.axis) for x in (y, weight != 0))
            if counts.any():
                raise ValueError(
                    f"the label of an empty row must be ignore_index, got {labels[counts][0]}"
                )

    def run(
        self,
        call: Callable[..., Any],
        named: Sequence[tuple[str, Any]],
        parameter: Parameter | None,
        results: Sequence[str],
    ) -> list[Any]:
        """What a call gives, as if all rows were of one length.

        Parameters
        ----------
        call : callable
            of arguments by position
        named : sequence of (str, object)
            its arguments with their names, an array of the shape first
        parameter : Parameter, optional
        results : sequence of {"entries", "number", "gradient"}
            as of `pyentmax.engine.backends.function`; a gradient comes for each row or entry
        """
        first = named[0][1]
        kinds = [self._kind(name, x, first, parameter, results) for name, x in named]
        outputs: list[Any] = []
        for rows, length in self.groups():
            on_rows, values = on_device_like(rows, first), []
            for kind, value in kinds:
                if kind == "entries":
                    value = self.take(value, rows, length)
                elif kind == "numbers":
                    value = value.take(on_rows, axis=-1)
                values.append(value)
            parts = call(*values)
            parts = parts if len(results) > 1 else (parts,)
            if not outputs:
                outputs = [self._room(part, first) for part in parts]
                wholes = [np.moveaxis(output, self.axis, -1) for output in outputs]
            for whole, part in zip(wholes, parts, strict=True):
                if part.ndim > len(self.shape):
                    self.put(whole, rows, length, part)
                else:
                    whole[..., on_rows] = part
        return outputs

    def _kind(
        self, name: str, value: Any, first: Any, parameter: Parameter | None, results: Sequence[str]
    ) -> tuple[str, Any]:
        """How each group gets its part of an argument, and that with the cut axis last; "" if all
        get it whole.
        """
        if name == "axis":
            return "", -1
        per_entry = isinstance(parameter, UpperBounds)
        named = "" if parameter is None else parameter.name
        if value is None or name not in (*SAME_SHAPE, "mask", "y", "weight", named):
            return "", value
        if type(value) in (int, float) and not (name == named and "gradient" in results):
            return "", value
        value = as_array(value, name)
        if name in SAME_SHAPE:
            check_same_shape(value.shape, name, self.shape)
        each_entry = name in SAME_SHAPE or name == "mask" or (per_entry and name == named)
        if name == "y":
            each_entry = not (value.dtype.kind in "iu" and value.shape == self.batch)
            if each_entry and value.shape != self.shape:
                raise ValueError(
                    f"y must be integer labels of shape {self.batch}, one for each row, or "
                    f"distributions of shape {self.shape}, got {value.dtype} of {value.shape}"
                )
        shape = self.shape if each_entry else self.batch
        _check_broadcasts(value.shape, name, shape, "entry" if each_entry else "row")
        if name == named and "gradient" in results:  # which comes in the shape of the parameter
            value = on_device_of(value, first, name)
        elif not value.ndim:
            return "", value
        value = np.moveaxis(np.broadcast_to(value, shape), self.axis, -1)
        return ("entries" if each_entry else "numbers"), value

    def check_per_row(self, value: Any, name: str) -> None:
        """Raise a ValueError unless a parameter broadcasts to the rows."""
        _check_broadcasts(np.shape(value), name, self.batch, "row")

    def _room(self, part: Any, first: Any) -> Any:
        if part.ndim > len(self.shape):  # every entry is written
            return np.empty_like(first, dtype=part.dtype, shape=self.shape, order="C")
        return np.zeros_like(first, dtype=part.dtype, shape=self.batch, order="C")


def call_by_offsets(
    call: Callable[..., Any],
    roles: Sequence[str],
    parameter: Parameter | None,
    results: Sequence[str],
    offsets: Any,
    *values: Any,
) -> Any:
    """The results of a function of scores or probabilities whose axis is cut into rows.

    Parameters
    ----------
    call, roles, parameter, results : as of `pyentmax.engine.backends.function`
    offsets : array of integers
    *values : the arguments named by roles
    """
    named = list(zip(roles, values, strict=True))
    first, out = array_to_cut(*named[0]), dict(named).get("out")
    _, dtype = as_floating(first.reshape(-1)[:0], roles[0])
    named = [(roles[0], first)] + [(name, None if name == "out" else x) for name, x in named[1:]]
    cut = CutAxis(offsets, first.shape, dict(named)["axis"], roles[0])
    if out is not None:
        check_out(out, first, dtype)
    outputs = cut.run(call, named, parameter, results)
    for i, result in enumerate(results):
        if result == "gradient":
            assert parameter is not None
            shape, dtype = np.shape(dict(named)[parameter.name]), outputs[i].dtype
            each = as_floating(outputs[i], parameter.name)[0]
            outputs[i] = reduce_to(each, shape).astype(dtype, copy=False)
    if out is not None:
        out[...] = outputs[0]
        return out
    return outputs[0] if len(results) == 1 else tuple(outputs)


def cut_into_rows(function: Any) -> Callable[..., Any]:
    """A function of rows with ``offsets=``, for tensors, which have no `by_rows` yet."""
    parameter, n = function.parameter, len(function.arrays)
    roles = (*function.arrays, "" if parameter is None else parameter.name, "axis", "mask")

    def call(*values: Any) -> Any:
        return function.run(values[:n], *values[n:])

    def with_offsets(*args: Any, axis: Any, offsets: Any, mask: Any = None) -> Any:
        values = (*args, *(None,) * (n + 1 - len(args)), axis, mask)
        return call_by_offsets(call, roles, parameter, function.results, offsets, *values)

    return with_offsets


def array_to_cut(name: str, array: Any) -> Any:
    """The array whose axis is cut."""
    if is_dask(array):
        raise TypeError(
            "offsets is not for Dask arrays: pass arrays in memory, or plan a call for each chunk "
            "of whole rows by dask.delayed"
        )
    return as_array(array, name)


def on_device_like(index: Any, other: Any) -> Any:
    """Indices on the host where the other array lies."""
    return index if isinstance(other, np.ndarray) else array_module(other).asarray(index)


def _check_broadcasts(shape: tuple[int, ...], name: str, to: tuple[int, ...], each: str) -> None:
    if not broadcasts(shape, to):
        raise ValueError(
            f"{name} of shape {shape} does not broadcast to {to}, the shape of what is per {each}"
        )


def _windows(array: Any, length: int) -> Any:
    """Windows as long as the rows, each as one item, which NumPy moves ten times as fast as its
    entries; None where they are not contiguous, or on a device.
    """
    places = array.shape[-1] - length + 1
    if type(array) is not np.ndarray or places < 1 or not array.flags.c_contiguous:
        return None
    item = np.dtype((np.void, length * array.itemsize))
    return np.ndarray((*array.shape[:-1], places), item, array, 0, array.strides)


def _smallest(lengths: Any) -> Any:
    """Lengths in a dtype that NumPy sorts by digits, if they fit."""
    return lengths.astype(np.uint16) if lengths.max(initial=0) < 1 << 16 else lengths


def _checked(offsets: Any, length: int) -> Any:
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
            f"offsets must go from 0 to {length}, the length of the axis, got {offsets[0]} to "
            f"{offsets[-1]}"
        )
    if (offsets[1:] < offsets[:-1]).any():
        i = int(np.argmax(offsets[1:] < offsets[:-1]))
        raise ValueError(f"offsets must not fall, got {offsets[i]} and then {offsets[i + 1]}")
    return offsets.astype(np.int64, copy=False)
