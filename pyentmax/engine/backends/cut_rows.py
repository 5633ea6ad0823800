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
from pyentmax.engine.calls.parameters import Alpha, Parameter, PerRow, Strength, TopK
from pyentmax.engine.calls.rows import arrange_probabilities, arrange_scores, reduce_to


def run_in_place(
    name: str,
    parameter: Parameter | None,
    results: Sequence[str],
    direction: str | None,
    offsets: Any,
    given: dict[str, Any],
) -> Any:
    """What a kernel gives for a call with offsets; NotImplemented where none runs.

    Parameters
    ----------
    name : str
        of the kernel
    parameter, results : as of `pyentmax.engine.backends.declare`
    direction : str, optional
        the name of what follows the probabilities of a derivative, perhaps ""; None for scores
    offsets : array of integers
    given : dict
        the arguments by their names, the array first
    """
    first = next(iter(given))
    array, axis, mask, out = given[first], given["axis"], given["mask"], given.get("out")
    if not _may_run(array, parameter) or (first == "p" and given["z"] is not None):
        return NotImplemented
    cut = CutAxis(offsets, array.shape, axis, first)
    if direction is None:
        rows = arrange_scores(array, axis, mask, out)
        operands = rows.operands()
    else:
        v = given[direction] if direction else None
        rows, v = arrange_probabilities(array, v, axis, mask, direction)
        operands = (rows.array, v) if direction else (rows.array,)
    number: Any = None if parameter is None else _number(parameter, given, cut, rows.array)
    kernel = choice.kernel_for(rows.array, name, parameter, number)
    if kernel is None:
        return NotImplemented
    if parameter is not None and (direction is None or parameter.in_product):
        operands += (np.moveaxis(np.broadcast_to(number, cut.batch), cut.axis, -1),)
    outputs = run(kernel, operands, cut, given["workers"])
    for i, result in enumerate(results):
        if result == "entries":
            outputs[i] = rows.finish(outputs[i], out)
        else:
            assert parameter is not None
            each = np.moveaxis(outputs[i], -1, cut.axis)
            outputs[i] = reduce_to(each, np.shape(given[parameter.name])).astype(rows.dtype)
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


def _may_run(array: Any, parameter: Parameter | None) -> bool:
    """Whether a kernel may take rows of this array where they lie."""
    plain = parameter is None or type(parameter) in (PerRow, Alpha, Strength, TopK)
    has_run_rows = hasattr(sys.modules.get("pyentmax._cpu"), "run_rows")
    return type(array) is np.ndarray and plain and array.size > 0 and has_run_rows


def _number(parameter: Parameter, given: dict[str, Any], cut: CutAxis, like: Any) -> Any:
    """The parameter of each row."""
    assert isinstance(parameter, PerRow)
    cut.check_per_row(given[parameter.name], parameter.name)
    value = parameter.checked(given[parameter.name], like, cut.batch)
    if parameter.whole:
        lengths = np.expand_dims(cut.lengths, tuple(range(1, len(cut.batch) - cut.axis)))
        value = np.minimum(value, np.maximum(lengths, 1))
    return value
