"""Arrays as the kernels take them: the structs of ``rows.cuh``, by value, and the rows they cover.

Nothing is copied to make an array's rows: a kernel follows any strides. The axes that are not part
of a row are folded into as few as all arrays of a call allow, and a kernel follows three of them;
in the rare case of more there are several launches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

OPERAND = np.dtype(
    [("at", "u8"), ("outer", "i8"), ("middle", "i8"), ("last", "i8"), ("inner", "i8")]
)
PARAMETER = np.dtype(
    [("at", "u8"), ("outer", "i8"), ("middle", "i8"), ("last", "i8"), ("value", "f8")]
)
BATCH = np.dtype([("rows", "u4"), ("n", "u4"), ("middle", "u4"), ("last", "u4")])

MOST_ROWS = 2**31 - 1  # blocks in a grid
MOST_ENTRIES = 2**31 - 1  # of a row: kernels count them, and steps beyond its end, in 32 bits
AXES = 3  # of a batch, that a kernel follows


def launches(
    shape: tuple[int, ...], operands: Sequence[Any], parameters: Sequence[Any]
) -> Iterator[tuple[int, np.ndarray, list[np.ndarray], list[np.ndarray]]]:
    """The arguments of each launch that the rows of a call need.

    Parameters
    ----------
    shape : tuple of int
        of the scores, rows along the last axis
    operands : sequence of array or None
        that broadcast to the shape
    parameters : sequence of array or float
        that broadcast to the shape without its last axis

    Yields
    ------
    int, array, list of array, list of array
        how many rows; structs Batch, Operand and Parameter
    """
    *batch, n = shape
    if n > MOST_ENTRIES:
        raise ValueError(
            f"a row may have at most {MOST_ENTRIES} entries on a GPU, got {n}; "
            "PYENTMAX_BACKEND=reference runs the NumPy body instead"
        )
    arrays = [np.broadcast_to(a, shape) for a in operands if a is not None]
    arrays += [np.broadcast_to(a, batch) for a in parameters if not isinstance(a, float)]
    strides = [[s // a.itemsize for s in a.strides] for a in arrays]
    starts = [_address(a) for a in arrays]
    axes = _folded(batch, [s[: len(batch)] for s in strides])
    while len(axes) < AXES:
        axes.insert(0, (1, [0] * len(arrays)))
    looped, followed = axes[:-AXES], axes[-AXES:]
    for places in itertools.product(*(range(size) for size, _ in looped)):
        for begins, followed_part in _parts(followed):
            here = [*zip(places, looped, strict=True), *zip(begins, followed, strict=True)]
            moved = [
                start + array.itemsize * sum(i * steps[j] for i, (_, steps) in here)
                for j, (start, array) in enumerate(zip(starts, arrays, strict=True))
            ]
            sizes = [size for size, _ in followed_part]
            rows = sizes[0] * sizes[1] * sizes[2]
            if not rows:
                continue
            steps = [[s[j] for _, s in followed_part] for j in range(len(arrays))]
            structs = iter(zip(moved, steps, strides, strict=True))
            yield (
                rows,
                np.array((rows, n, sizes[1], sizes[2]), BATCH),
                [_operand(None if a is None else next(structs)) for a in operands],
                [_parameter(a if isinstance(a, float) else next(structs)) for a in parameters],
            )


def _address(array: Any) -> int:
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    address: int = interface["data"][0]
    return address


def _operand(struct: Any) -> np.ndarray:
    if struct is None:
        return np.zeros((), OPERAND)
    start, steps, strides = struct
    return np.array((start, *steps, strides[-1]), OPERAND)


def _parameter(struct: Any) -> np.ndarray:
    if isinstance(struct, float):
        return np.array((0, 0, 0, 0, struct), PARAMETER)
    start, steps, _ = struct
    return np.array((start, *steps, 0), PARAMETER)


def _folded(sizes: Sequence[int], strides: list[list[int]]) -> list[tuple[int, list[int]]]:
    """Axes of a size and of each array's step, neighbours made one where all arrays allow it."""
    axes: list[tuple[int, list[int]]] = []
    for axis, size in enumerate(sizes):
        steps = [s[axis] for s in strides]
        if size == 1:
            continue
        if axes and axes[-1][1] == [size * step for step in steps]:
            axes[-1] = (axes[-1][0] * size, steps)
        else:
            axes.append((size, steps))
    return axes


def _parts(
    axes: list[tuple[int, list[int]]],
) -> Iterator[tuple[tuple[int, ...], list[tuple[int, list[int]]]]]:
    """The axes cut such that no part has too many rows: where it begins on each, and its axes."""
    if not axes:
        yield (), []
        return
    (size, steps), *others = axes
    inner = math.prod(other for other, _ in others)
    if inner > MOST_ROWS:  # one after the other, and these cut
        for begin in range(size):
            for begins, part in _parts(others):
                yield (begin, *begins), [(1, steps), *part]
        return
    most = MOST_ROWS // max(1, inner)
    for begin in range(0, size, most):
        yield (begin, *[0] * len(others)), [(min(most, size - begin), steps), *others]
