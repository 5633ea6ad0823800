"""From a call on CuPy arrays to the launch of a kernel, and back: one factory for each family.

What it makes takes the declarations of a function's parameters, and a call's arguments in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.backends.cuda.launch import TYPES, Kernel, launch, launch_rows, rescale
from pyentmax.calls.devices import on_device, on_device_of
from pyentmax.calls.dtypes import as_floating, is_masked
from pyentmax.calls.options import Options, checked_options
from pyentmax.calls.parameters import WEIGHT, UpperBounds, least_sum, parts_of_largest
from pyentmax.calls.rows import check_axis, check_mask, check_out, to_rows

Run = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]

LONGEST_FUSED = 4096  # entries of a row that a single thread goes along


class Call:
    """The arrays of one call with an axis, and its result.

    Half types are not converted here: the kernels read and write them.
    """

    def __init__(self, array: Any, axis: Any, mask: Any, out: Any, name: str) -> None:
        self.array: Any = _as_stored(array, name)
        self.axes: tuple[int, ...] = check_axis(self.array.shape, axis, name)
        self.mask: Any = None
        if mask is not None:
            self.mask = np.broadcast_to(check_mask(mask, self.array, name), self.array.shape)
        check_out(out, self.array, self.array.dtype)
        self._out = out

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape without the axes."""
        return tuple(size for axis, size in enumerate(self.array.shape) if axis not in self.axes)

    def rows(self, array: Any) -> Any:
        """An array of the call's shape, or none, in rows along the last axis."""
        return None if array is None else to_rows(array, self.axes)

    def write_result(self, run: Callable[[Any], None], *inputs: Any) -> Any:
        """Have `run` write the rows of the result; to `out` itself where that gives the same."""
        shape, dtype = self.array.shape, self.array.dtype
        out = self._out
        direct = (
            out is not None
            and out.dtype == dtype
            and len(self.axes) == 1
            and all(_same(out, a) or not _overlap(out, a) for a in inputs if a is not None)
        )
        target = out if direct else np.empty_like(self.array, shape=shape, dtype=dtype, order="C")
        if len(self.axes) == 1:
            run(self.rows(target))
        else:
            rows = np.empty_like(target, shape=self.rows(target).shape, order="C")
            run(rows)
            count = len(self.batch)
            moved = rows.reshape(self.batch + tuple(shape[a] for a in self.axes))
            target[...] = np.moveaxis(moved, range(count, len(shape)), self.axes)
        if out is None or direct:
            return target
        out[...] = target
        return out


def forward(kernel: Kernel) -> Run:
    """Calls of a mapping whose kernel is in the family of forward.cuh."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        z, *given, axis, mask, out = values
        call = Call(z, axis, mask, out, "z")
        number = _number(parameters, given, call)
        rows, masks = call.rows(call.array), call.rows(call.mask)
        return call.write_result(
            lambda p: launch(kernel, rows, (rows, masks, p), (number,)), call.array
        )

    return run


def bounded(kernel: Kernel) -> Run:
    """Calls of a mapping with upper bounds, or a budget and bounds of 1: bounded.cuh."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        z, given, axis, mask, out = values
        (parameter,) = parameters
        call = Call(z, axis, mask, out, "z")
        if isinstance(parameter, UpperBounds):
            upper = parameter.on_device(given, call.array, "z")
            n = math.prod(call.array.shape[axis] for axis in call.axes)
            precision = getattr(given, "dtype", np.dtype(np.float64))
            precision = precision if precision.kind == "f" else np.dtype(np.float64)
            number = float(least_sum(compute_type(call.array), precision, n))
        else:
            upper, number = None, parameter.on_device(given, call.array, call.batch)
        rows, masks, bounds = call.rows(call.array), call.rows(call.mask), call.rows(upper)
        return call.write_result(
            lambda p: launch(kernel, rows, (rows, masks, bounds, p), (number,)), call.array, upper
        )

    return run


def product(kernel: Kernel, upper: float | None = None) -> Run:
    """Products with a Jacobian: derivatives.cuh; `upper` is a bound on all probabilities."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        p, v, *given, axis, mask = values
        p, v = _pair(p, v)
        call = Call(p, axis, mask, None, "p")
        bounds = None if upper is None else UpperBounds("upper").on_device(upper, p, "p")
        if parameters and isinstance(parameters[0], UpperBounds):
            number, bounds = 0.0, parameters[0].on_device(given[0], p, "p")
        else:
            number = _number(parameters, given, call)
        rows, along, bounds, masks = map(call.rows, (p, v, bounds, call.mask))
        return call.write_result(
            lambda out: launch(kernel, rows, (rows, along, bounds, masks, out), (number,))
        )

    return run


def elementwise_gradient(kernel: Kernel) -> Run:
    """Derivatives of each entry, from p alone: derivatives.cuh."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        p, *given, axis = values
        call = Call(p, axis, None, None, "p")
        number, rows = _number(parameters, given, call), call.rows(call.array)
        return call.write_result(
            lambda out: launch(kernel, rows, (rows, None, None, None, out), (number,))
        )

    return run


def fused(sparsemax: Kernel, smoothed: Callable[..., Any]) -> Run:
    """sparsemax of what `smoothed` makes of the rows, for rows that are not too long."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        z, *given, axis, mask, out = values
        call = Call(z, axis, mask, out, "z")
        if smoothed is smoothed_neighbours and len(call.axes) > 1:
            return NotImplemented  # the body says why not
        number = _number(parameters, given, call)
        rows, masks = call.rows(call.array), call.rows(call.mask)
        if rows.shape[-1] > LONGEST_FUSED:
            return NotImplemented

        def map_rows(p: Any) -> None:
            u = smoothed(rows, masks, number)
            direct = p if u.dtype == p.dtype else np.empty_like(u)
            launch(sparsemax, u, (u, None, direct), (0.0,))
            if direct is not p:
                p[...] = direct

        return call.write_result(map_rows)

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
        p, v, *given, axis, mask = values
        p, v = _pair(p, v)
        call = Call(p, axis, mask, None, "p")
        if not anywhere and len(call.axes) > 1:
            return NotImplemented  # the body says why not
        number = _number(parameters, given, call)
        rows, along = call.rows(p), call.rows(v)
        if rows.shape[-1] > LONGEST_FUSED:
            return NotImplemented
        if mask is not None:
            rows = np.where(call.rows(call.mask), rows, 0).astype(p.dtype, copy=False)
        order = None
        if anywhere:
            order = np.argsort(-rows, axis=-1)
            rows, along = (np.take_along_axis(a, order, axis=-1) for a in (rows, along))

        def multiply(out: Any) -> None:
            launch_rows("run_products", rows, (rows, along, out), (number,))
            if order is not None:
                out[...] = np.take_along_axis(out, np.argsort(order, axis=-1), axis=-1)

        return call.write_result(multiply)

    return run


def loss(kernel: Kernel, *, with_gradient: bool) -> Run:
    """Losses of plain labels: losses.cuh; NotImplemented for other targets."""

    def run(parameters: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        z, y, *given = values
        given, (axis, *options) = given[: len(parameters)], given[len(parameters) :]
        return _loss(
            kernel, z, y, parameters, given, axis, checked_options(*options), with_gradient
        )

    return run


def _loss(
    kernel: Kernel,
    z: Any,
    y: Any,
    parameters: tuple[Any, ...],
    given: list[Any],
    axis: Any,
    options: Options,
    with_gradient: bool,
) -> Any:
    call = Call(z, axis, options.mask, None, "z")
    if is_masked(y):
        return NotImplemented
    y = y if on_device(y) else on_device_of(np.asarray(y), call.array, "y")
    if options.label_smoothing or y.dtype.kind not in "iu" or y.shape != call.batch:
        return NotImplemented
    number = _number(parameters, given, call)
    weights = _weights(call, y, options)
    share: Any = 1.0
    rows, masks = call.rows(call.array), call.rows(call.mask)
    if options.reduction == "mean":
        if (
            options.weight is not None
        ):  # compared with that of a row without any score, all others are 0
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
        gradient = call.write_result(run)
    else:
        run(None)
    if options.reduction == "mean":
        each = each * _without_empty_rows(weights * share, counted)
    reduced = each if options.reduction == "none" else np.sum(each)
    reduced = reduced.astype(call.array.dtype)
    return (reduced, gradient) if with_gradient else reduced


def _number(parameters: tuple[Any, ...], given: list[Any], call: Call) -> Any:
    """The parameter of a kernel, of which there is one at most."""
    if not parameters:
        return 0.0
    return parameters[0].on_device(given[0], call.array, call.batch)


def _weights(call: Call, y: Any, options: Options) -> Any:
    """What each row counts, in float64 on the device; NaN for a wrong one."""
    weight: Any = 1.0
    if options.weight is not None:
        weight = WEIGHT.on_device(options.weight, call.array, call.batch)
    weights = np.full_like(y, 1.0, dtype=np.float64, shape=y.shape or (1,)).reshape(y.shape)
    weights = weights * weight
    weights = np.where((weights >= 0) & (weights < np.inf), weights, np.nan)
    return (
        weights if options.ignore_index is None else np.where(y == options.ignore_index, 0, weights)
    )


def _any_score(rows: Any, masks: Any) -> Any:
    """Which rows have a score that is not −∞."""
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
