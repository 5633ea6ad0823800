"""Compiled kernels on rows of different lengths, an axis cut by `offsets=`.

A kernel takes short rows of one length side by side, wherever they lie. `pyentmax._cpu.run_rows`
hands it those of each length by their places, so that nothing is gathered. What has no kernel, or
comes with bounds, goes in groups of one length (`pyentmax.engine.calls.offsets`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.backends.gufuncs import core_dimensions
from pyentmax.engine.calls.offsets import CutAxis
from pyentmax.engine.calls.parameters import Parameter, PerRow
from pyentmax.engine.calls.rows import arrange_probabilities, arrange_scores, reduce_to


def run_on_scores(
    name: str, parameter: Parameter | None, offsets: Any, kwargs: dict[str, Any]
) -> Any:
    """What a kernel of scores gives for a call with offsets; NotImplemented where none runs.

    `kwargs` are the arguments by their names, the array first.
    """
    cut = _axis_of(kwargs, "z", parameter, offsets)
    if cut is None:
        return NotImplemented
    out = kwargs["out"]
    rows = arrange_scores(kwargs["z"], kwargs["axis"], kwargs["mask"], out)
    number = _number(parameter, kwargs, cut, rows.array)
    kernel = choice.kernel_for(rows.array, name, parameter, number)
    if kernel is None:
        return NotImplemented
    numbers = () if parameter is None else (_in_rows(number, cut),)
    (p,) = run(kernel, (*rows.operands(), *numbers), cut, kwargs["workers"])
    return rows.finish(p, out)


def run_on_probabilities(
    name: str,
    parameter: Parameter | None,
    results: Sequence[str],
    direction: str,
    offsets: Any,
    kwargs: dict[str, Any],
) -> Any:
    """The same of a derivative's kernel."""
    cut = _axis_of(kwargs, "p", parameter, offsets)
    if cut is None or kwargs["z"] is not None:
        return NotImplemented
    v = kwargs[direction] if direction else None
    rows, v = arrange_probabilities(kwargs["p"], v, kwargs["axis"], kwargs["mask"], direction)
    number = _number(parameter, kwargs, cut, rows.array)
    kernel = choice.kernel_for(rows.array, name, parameter, number)
    if kernel is None:
        return NotImplemented
    operands = (rows.array, v) if direction else (rows.array,)
    if parameter is not None and parameter.in_product:
        operands += (_in_rows(number, cut),)
    outputs = run(kernel, operands, cut, kwargs["workers"])
    for i, result in enumerate(results):
        if result == "entries":
            outputs[i] = rows.finish(outputs[i])
        else:
            assert parameter is not None
            each = np.moveaxis(outputs[i], -1, cut.axis)
            outputs[i] = reduce_to(each, np.shape(kwargs[parameter.name])).astype(rows.dtype)
    return outputs[0] if len(results) == 1 else tuple(outputs)


def run(kernel: Any, operands: Sequence[Any], cut: CutAxis, workers: Any = None) -> list[Any]:
    """A kernel's results for rows cut from the last axis, which rows share out among threads.

    Parameters
    ----------
    kernel : ufunc
    operands : sequence of arrays
        the first with the axis last; what has an entry for each score broadcasts to that, what has
        a number for each row to the rows in the place of the axis' length
    cut : CutAxis
    workers : int, optional
    """
    first = operands[0]
    batch, lengths = first.shape[:-1], {0: len(cut.starts), 1: first.shape[-1]}
    cores = core_dimensions(kernel)
    types = kernel.types[0 if first.dtype.itemsize == 4 else 1].replace("->", "")
    n = len(operands)
    results = [
        np.empty_like(first) if core else np.zeros((*batch, lengths[0]), dtype)
        for core, dtype in zip(cores[n:], types[n:], strict=True)
    ]
    flat: list[Any] = []
    for x, core, dtype in zip((*operands, *results), cores, types, strict=True):
        x = x.astype(dtype, copy=not x.flags.aligned)
        x = np.broadcast_to(x, (*batch, lengths[core])) if len(flat) < n else x
        flat.append(x.reshape(math.prod(batch), lengths[core]))
    offsets = np.ascontiguousarray(cut.offsets, np.intp)
    run_rows, are_rows = sys.modules["pyentmax._cpu"].run_rows, tuple(map(bool, cores))

    def some(piece: tuple[int, int]) -> None:
        run_rows(kernel, tuple(flat), are_rows, offsets, *piece)

    count = threads.get_workers() if workers is None else threads.counted(workers)
    count = max(1, min(count, first.size // threads.ENTRIES_PER_WORKER))
    places = np.linspace(0, offsets[-1], 4 * count + 1 if count > 1 else 2)
    edges = [0, *np.searchsorted(offsets, places[1:-1]).tolist(), lengths[0]]
    threads.run_pieces(pairwise(edges), lambda: some, count)
    shapes = [x.shape for x in results]
    return [x.reshape(shape) for x, shape in zip(flat[n:], shapes, strict=True)]


def _axis_of(
    kwargs: dict[str, Any], name: str, parameter: Parameter | None, offsets: Any
) -> CutAxis | None:
    """The cut axis, of a call that a kernel may take."""
    array = kwargs[name]
    plain = parameter is None or type(parameter) is PerRow
    if (
        type(array) is not np.ndarray
        or not plain
        or not array.size
        or not hasattr(sys.modules.get("pyentmax._cpu"), "run_rows")
    ):
        return None
    return CutAxis(offsets, array.shape, kwargs["axis"], name)


def _number(parameter: Parameter | None, kwargs: dict[str, Any], cut: CutAxis, like: Any) -> Any:
    """The parameter of each row."""
    if parameter is None:
        return None
    assert isinstance(parameter, PerRow)
    cut.check_per_row(kwargs[parameter.name], parameter.name)
    value = parameter.checked(kwargs[parameter.name], like, cut.batch)
    if parameter.whole:
        lengths = np.expand_dims(cut.lengths, tuple(range(1, len(cut.batch) - cut.axis)))
        value = np.minimum(value, np.maximum(lengths, 1))
    return value


def _in_rows(number: Any, cut: CutAxis) -> Any:
    return np.moveaxis(np.broadcast_to(number, cut.batch), cut.axis, -1)
