"""From a call on CuPy arrays to the launch of a kernel, and back: one factory for each family.

What it makes takes the declarations of a function's parameters, and a call's arguments in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.engine.backends.cuda.launch import TYPES, Kernel, launch, launch_rows, rescale
from pyentmax.engine.calls.devices import on_device, on_device_of
from pyentmax.engine.calls.dtypes import as_floating, is_masked
from pyentmax.engine.calls.options import Options, checked_options
from pyentmax.engine.calls.parameters import WEIGHT, UpperBounds, least_sum, parts_of_largest
from pyentmax.engine.calls.rows import Rows, check_axis, check_mask, check_out, from_rows, to_rows

Run = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]

LONGEST_FUSED = 4096  # entries of a row that a single thread goes along


def arrange(array: Any, axis: Any, mask: Any, out: Any, name: str) -> Rows:
    """The rows of a call. Half types are not converted: the kernels read and write them."""
    array = _as_stored(array, name)
    axes = check_axis(array.shape, axis, name)
    if mask is not None:
        mask = to_rows(np.broadcast_to(check_mask(mask, array, name), array.shape), axes)
    check_out(out, array, array.dtype)
    return Rows(to_rows(array, axes), mask, array.shape, axes, array.dtype)


def written(rows: Rows, out: Any, run: Callable[[Any], None], *inputs: Any) -> Any:
    """Have `run` write the result's rows; to `out` itself where that gives the same."""
    if len(rows.axes) == 1:
        target = np.empty_like(rows.array, shape=rows.shape, order="C") if out is None else out
        direct = to_rows(target, rows.axes)
        if target.dtype == rows.dtype and not any(_would_overwrite(direct, x) for x in inputs):
            run(direct)
            return target
    result = np.empty_like(rows.array, shape=rows.array.shape, order="C")
    run(result)
    return rows.finish(result, out)


def _would_overwrite(out: Any, operand: Any) -> bool:
    """Whether writing to `out` changes an operand before it is read."""
    return operand is not None and _overlap(out, operand) and not _same(out, operand)


def forward(kernel: Kernel) -> Run:
    """Calls of a mapping whose kernel is in the family of forward.cuh."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        z, *numbers, axis, mask, out = values
        rows = arrange(z, axis, mask, out, "z")
        number, scores = _number(parameters, numbers, rows), rows.array

        def run_rows(p: Any) -> None:
            launch(kernel, scores, (scores, rows.mask, p), (number,))

        return written(rows, out, run_rows, scores)

    return run


def bounded(kernel: Kernel) -> Run:
    """Calls of a mapping with upper bounds, or a budget and bounds of 1: bounded.cuh."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        z, numbers, axis, mask, out = values
        (parameter,) = parameters
        rows = arrange(z, axis, mask, out, "z")
        scores = rows.array
        if isinstance(parameter, UpperBounds):
            like = from_rows(scores, rows.shape, rows.axes)
            bounds = to_rows(parameter.on_device(numbers, like, "z"), rows.axes)
            precision = getattr(numbers, "dtype", np.dtype(np.float64))
            precision = precision if precision.kind == "f" else np.dtype(np.float64)
            number = float(least_sum(compute_type(scores), precision, scores.shape[-1]))
        else:
            bounds, number = None, parameter.on_device(numbers, scores, rows.batch)

        def run_rows(p: Any) -> None:
            launch(kernel, scores, (scores, rows.mask, bounds, p), (number,))

        return written(rows, out, run_rows, scores, bounds)

    return run


def product(kernel: Kernel, upper: float | None = None) -> Run:
    """Products with a Jacobian: derivatives.cuh; `upper` is a bound on all probabilities."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        p, v, *numbers, axis, mask = values
        p, v = _pair(p, v)
        rows = arrange(p, axis, mask, None, "p")
        bounds = None if upper is None else UpperBounds("upper").on_device(upper, p, "p")
        if parameters and isinstance(parameters[0], UpperBounds):
            number, bounds = 0.0, parameters[0].on_device(numbers[0], p, "p")
        else:
            number = _number(parameters, numbers, rows)
        operands = rows.array, to_rows(v, rows.axes)
        bounds = None if bounds is None else to_rows(bounds, rows.axes)
        return written(
            rows,
            None,
            lambda out: launch(kernel, rows.array, (*operands, bounds, rows.mask, out), (number,)),
        )

    return run


def elementwise_gradient(kernel: Kernel) -> Run:
    """Derivatives of each entry, from p alone: derivatives.cuh."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        p, *numbers, axis = values
        rows = arrange(p, axis, None, None, "p")
        number, p = _number(parameters, numbers, rows), rows.array
        return written(
            rows, None, lambda out: launch(kernel, p, (p, None, None, None, out), (number,))
        )

    return run


def fused(sparsemax: Kernel, smoothed: Callable[..., Any]) -> Run:
    """sparsemax of what `smoothed` makes of the rows, for rows that are not too long."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        z, *numbers, axis, mask, out = values
        rows = arrange(z, axis, mask, out, "z")
        if smoothed is smoothed_neighbours and len(rows.axes) > 1:
            return NotImplemented  # the body says why not
        number = _number(parameters, numbers, rows)
        if rows.array.shape[-1] > LONGEST_FUSED:
            return NotImplemented

        def map_rows(p: Any) -> None:
            u = smoothed(rows.array, rows.mask, number)
            direct = p if u.dtype == p.dtype else np.empty_like(u)
            launch(sparsemax, u, (u, None, direct), (0.0,))
            if direct is not p:
                p[...] = direct

        return written(rows, out, map_rows)

    return run


def smoothed_neighbours(rows: Any, masks: Any, strength: Any) -> Any:
    """The first step of fusedmax."""
    u = np.empty_like(rows, dtype=compute_type(rows), order="C", shape=rows.shape)
    launch_rows("smooth", rows, (rows, masks, u), (strength,))
    return u


def pooled_scores(rows: Any, masks: Any, strength: Any) -> Any:
    """The first step of oscarmax; CuPy sorts."""
    x = rows if masks is None else np.where(masks, rows, -np.inf)
    x = x.astype(compute_type(rows), copy=False)
    order = np.argsort(-x, axis=-1)
    x = np.take_along_axis(x, order, axis=-1)
    u = np.empty_like(x)
    sums, sizes = np.empty_like(x, dtype=np.float64), np.empty_like(x, dtype=np.uint32)
    launch_rows("pool", x, (x, u, sums, sizes), (strength,))
    return np.take_along_axis(u, np.argsort(order, axis=-1), axis=-1)


def fused_product(*, anywhere: bool) -> Run:
    """J v of fusedmax, or of oscarmax, whose equal entries make a group anywhere."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        p, v, *numbers, axis, mask = values
        p, v = _pair(p, v)
        rows = arrange(p, axis, mask, None, "p")
        if not anywhere and len(rows.axes) > 1:
            return NotImplemented  # the body says why not
        number = _number(parameters, numbers, rows)
        p, v = rows.array, to_rows(v, rows.axes)
        if p.shape[-1] > LONGEST_FUSED:
            return NotImplemented
        if mask is not None:
            p = np.where(rows.mask, p, 0).astype(rows.dtype, copy=False)
        order = None
        if anywhere:
            order = np.argsort(-p, axis=-1)
            p, v = (np.take_along_axis(a, order, axis=-1) for a in (p, v))

        def multiply(out: Any) -> None:
            launch_rows("run_products", p, (p, v, out), (number,))
            if order is not None:
                out[...] = np.take_along_axis(out, np.argsort(order, axis=-1), axis=-1)

        return written(rows, None, multiply)

    return run


def loss(kernel: Kernel, *, with_gradient: bool) -> Run:
    """Losses of plain labels: losses.cuh; NotImplemented for other targets."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        z, y, *numbers = values
        numbers, (axis, *options) = numbers[: len(parameters)], numbers[len(parameters) :]
        return _loss(
            kernel, z, y, parameters, numbers, axis, checked_options(*options), with_gradient
        )

    return run


def _loss(
    kernel: Kernel,
    z: Any,
    y: Any,
    parameters: tuple[Any, ...],
    numbers: list[Any],
    axis: Any,
    options: Options,
    with_gradient: bool,
) -> Any:
    arranged = arrange(z, axis, options.mask, None, "z")
    rows, masks = arranged.array, arranged.mask
    if is_masked(y):
        return NotImplemented
    y = y if on_device(y) else on_device_of(np.asarray(y), rows, "y")
    if options.label_smoothing or y.dtype.kind not in "iu" or y.shape != arranged.batch:
        return NotImplemented
    number = _number(parameters, numbers, arranged)
    weights = _weights(arranged, y, options)
    share: Any = 1.0
    if options.reduction == "mean":
        if options.weight is not None:  # rows that are fully masked must not set the scale
            weights = np.where(_any_score(rows, masks) | np.isnan(weights), weights, 0)
        weights = parts_of_largest(weights)
        total = np.sum(weights)
        share = np.where(total == 0, 1.0, 1 / total)
    each, counted = np.empty_like(weights), np.empty_like(weights)

    def run(gradient: Any) -> None:
        per_row = [a[..., None] for a in (y.astype(np.int64, copy=False), each, counted)]
        operands = (rows, masks, per_row[0], gradient, *per_row[1:])
        launch(kernel, rows, operands, (number, weights * share))
        if options.reduction == "mean" and gradient is not None:
            rescale(gradient, _without_empty_rows(weights * share, counted))

    gradient = None
    if with_gradient:
        gradient = written(arranged, None, run)
    else:
        run(None)
    if options.reduction == "mean":
        each = each * _without_empty_rows(weights * share, counted)
    reduced = each if options.reduction == "none" else np.sum(each)
    reduced = reduced.astype(arranged.dtype)
    return (reduced, gradient) if with_gradient else reduced


def _number(parameters: tuple[Any, ...], numbers: list[Any], rows: Rows) -> Any:
    """The only parameter of a kernel, or None."""
    if not parameters:
        return 0.0
    return parameters[0].on_device(numbers[0], rows.array, rows.batch)


def _weights(rows: Rows, y: Any, options: Options) -> Any:
    """The weight of each row, in float64 on the device; NaN for an invalid one."""
    weight: Any = 1.0
    if options.weight is not None:
        weight = WEIGHT.on_device(options.weight, rows.array, rows.batch)
    weights = np.full_like(y, 1.0, dtype=np.float64, shape=y.shape or (1,)).reshape(y.shape)
    weights = weights * weight
    weights = np.where((weights >= 0) & (weights < np.inf), weights, np.nan)
    return (
        weights if options.ignore_index is None else np.where(y == options.ignore_index, 0, weights)
    )


def _any_score(rows: Any, masks: Any) -> Any:
    """A mask of the rows that have a score other than −∞."""
    there = rows != -np.inf
    return np.any(there if masks is None else there & masks, axis=-1)


def _without_empty_rows(weights: Any, counted: Any) -> Any:
    """By how much the mean rises because rows without any score had a share in it: mostly 1."""
    total = np.sum(counted)
    return np.where(total == 0, 1.0, np.sum(weights) / np.where(total == 0, 1.0, total))


def _as_stored(array: Any, name: str) -> Any:
    """The array in the type that the kernels read and write: its own if they know it."""
    if on_device(array) and array.dtype.name in TYPES:
        return array
    return as_floating(array, name)[0]


def _pair(p: Any, v: Any) -> tuple[Any, Any]:
    """p and v in one type."""
    p = _as_stored(p, "p")
    v = on_device_of(_as_stored(v, "v"), p, "v")
    if p.shape != v.shape:
        raise ValueError(f"v must have the shape of p, {p.shape}, got {v.shape}")
    dtype = np.promote_types(p.dtype, v.dtype)
    return p.astype(dtype, copy=False), v.astype(dtype, copy=False)


def _same(a: Any, b: Any) -> bool:
    return _bounds(a) == _bounds(b) and a.strides == b.strides and a.dtype == b.dtype


def _overlap(a: Any, b: Any) -> bool:
    (first_a, last_a), (first_b, last_b) = _bounds(a), _bounds(b)
    return first_a < last_b and first_b < last_a


def _bounds(array: Any) -> tuple[int, int]:
    """The first byte of an array, and the one behind its last."""
    first = last = array.__cuda_array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        first, last = first + min(0, (size - 1) * stride), last + max(0, (size - 1) * stride)
    return first, last + array.itemsize


def compute_type(array: Any) -> np.dtype[Any]:
    return np.dtype(np.float64 if array.dtype == np.float64 else np.float32)
