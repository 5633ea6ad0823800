"""The functions of `pyentmax` that have a CUDA kernel, with their signatures, for CuPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax._devices import beside, on_device
from pyentmax._dispatch import as_floating
from pyentmax.cuda._launch import TYPES, Kernel, launch
from pyentmax.mappings._rows import check_axis, check_mask, check_out, check_parameter, to_rows


class _Call:
    """The arrays of one call with an axis, and the answer to it.

    Half types are not converted here: the kernels read and write them.
    """

    def __init__(self, array: Any, axis: Any, mask: Any, out: Any, name: str) -> None:
        self.array = _as_stored(array, name)
        self.axes = check_axis(self.array.shape, axis, name)
        self.mask = None if mask is None else check_mask(mask, self.array, name)
        self._out = check_out(out, self.array, self.array.dtype)

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape without the axes."""
        return tuple(size for axis, size in enumerate(self.array.shape) if axis not in self.axes)

    def rows(self, array: Any) -> Any:
        """An array of the call's shape, or none, in rows along the last axis."""
        return None if array is None else to_rows(array, self.axes)

    def answer(self, run: Callable[[Any], None], *inputs: Any) -> Any:
        """Have `run` write the rows of the answer; to `out` itself where nothing is lost by it."""
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

    def bounds(self, upper: Any, name: str) -> Any:
        """Bounds as the kernels take them: of the call's shape, in the type to compute in."""
        upper = beside(as_floating(upper, "upper")[0], self.array, "upper")
        upper = upper.astype(_compute_type(self.array), copy=False)
        try:
            return np.broadcast_to(upper, self.array.shape)
        except ValueError:
            raise ValueError(
                f"upper of shape {upper.shape} does not broadcast to {name}, of shape "
                f"{self.array.shape}"
            ) from None

    def parameter(self, value: Any, name: str, least: float, *, strict: bool = False) -> Any:
        """A parameter as the kernels take it: a float, or float64 per row on the device.

        A single number is checked here; on the device, a kernel makes the row of a wrong one NaN.
        """
        if not on_device(value):
            host = np.asarray(value)
            if host.ndim:
                beside(host, self.array, name)  # a TypeError that says what to do
            like = np.broadcast_to(np.float64(0), (*self.batch, 1))
            return float(check_parameter(host, name, like, least, strict=strict))
        value = as_floating(value, name)[0].astype(np.float64, copy=False)
        try:
            return np.broadcast_to(value, self.batch)
        except ValueError:
            raise ValueError(
                f"{name} of shape {value.shape} does not broadcast against the batch shape "
                f"{self.batch}, the scores' shape without the axis"
            ) from None


def _forward(kernel: Kernel, z: Any, axis: Any, mask: Any, out: Any, parameter: Any = None) -> Any:
    """Run a kernel of forward.cuh; `parameter` takes the call and returns its parameter."""
    call = _Call(z, axis, mask, out, "z")
    number = 0.0 if parameter is None else parameter(call)
    rows, masks = call.rows(call.array), call.rows(call.mask)
    return call.answer(lambda p: launch(kernel, rows, (rows, masks, p), (number,)), call.array)


def _bounded(
    kernel: Kernel, z: Any, upper: Any, axis: Any, mask: Any, out: Any, parameter: Any
) -> Any:
    """Run a kernel of bounded.cuh; `upper` is None for 1 throughout."""
    call = _Call(z, axis, mask, out, "z")
    if upper is not None:
        upper = call.bounds(upper, "z")
    number = parameter(call)
    rows, masks, bounds = call.rows(call.array), call.rows(call.mask), call.rows(upper)
    return call.answer(
        lambda p: launch(kernel, rows, (rows, masks, bounds, p), (number,)), call.array, upper
    )


def _derivative(
    kernel: Kernel, p: Any, v: Any, axis: Any, mask: Any, parameter: Any = None, upper: Any = None
) -> Any:
    """Run a kernel of derivatives.cuh; v is None where it takes none."""
    p = _as_stored(p, "p")
    if v is not None:
        p, v = _promoted(p, beside(_as_stored(v, "v"), p, "v"))
        if p.shape != v.shape:
            raise ValueError(f"v must have the shape of p, {p.shape}, got {v.shape}")
    call = _Call(p, axis, mask, None, "p")
    number = 0.0 if parameter is None else parameter(call)
    if upper is not None:
        upper = call.bounds(upper, "p")
    rows, along, bounds, masks = map(call.rows, (p, v, upper, call.mask))
    return call.answer(
        lambda out: launch(kernel, rows, (rows, along, bounds, masks, out), (number,))
    )


def _as_stored(array: Any, name: str) -> Any:
    """The array in the type that the kernels read and write: its own if they know it."""
    if on_device(array) and array.dtype.name in TYPES:
        return array
    return as_floating(array, name)[0]


def _promoted(p: Any, v: Any) -> tuple[Any, Any]:
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


def _compute_type(array: Any) -> np.dtype[Any]:
    return np.dtype(np.float64 if array.dtype == np.float64 else np.float32)


SOFTMAX = Kernel("forward", "Softmax", "softmax.cu")
SPARSEMAX = Kernel("forward", "Sparsemax", "sparsemax.cu")
ENTMAX15 = Kernel("forward", "Entmax15", "entmax15.cu")
ENTMAX = Kernel("forward", "Entmax", "entmax.cu", gathers=True)
NORMMAX = Kernel("forward", "Normmax", "normmax.cu", gathers=True)
TOPK_SOFTMAX = Kernel("forward", "TopkSoftmax", "topk_softmax.cu")
CSOFTMAX = Kernel("bounded", "Csoftmax", "bounded.cu")
CSPARSEMAX = Kernel("bounded", "Csparsemax", "bounded.cu")
BUDGET_SPARSEMAX = Kernel("bounded", "BudgetSparsemax", "bounded.cu")
SOFTMAX_JVP = Kernel("derivative", "SoftmaxJvp", "softmax.cu")
SPARSEMAX_JVP = Kernel("derivative", "SparsemaxJvp", "sparsemax.cu")
ENTMAX15_JVP = Kernel("derivative", "Entmax15Jvp", "entmax15.cu")
ENTMAX_JVP = Kernel("derivative", "EntmaxJvp", "entmax.cu")
NORMMAX_JVP = Kernel("derivative", "NormmaxJvp", "normmax.cu")
ENTMAX_GRAD_ALPHA = Kernel("derivative", "EntmaxGradAlpha", "grad_alpha.cu")


def softmax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.softmax`."""
    return _forward(SOFTMAX, z, axis, mask, out)


def sparsemax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.sparsemax`."""
    return _forward(SPARSEMAX, z, axis, mask, out)


def entmax15(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.entmax15`."""
    return _forward(ENTMAX15, z, axis, mask, out)


def entmax(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.entmax`."""
    return _forward(ENTMAX, z, axis, mask, out, lambda call: call.parameter(alpha, "alpha", 1))


def normmax(z: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.normmax`."""
    return _forward(NORMMAX, z, axis, mask, out, _above_1(alpha))


def topk_softmax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.topk_softmax`."""
    return _forward(TOPK_SOFTMAX, z, axis, mask, out, _whole(k))


def csoftmax(z: Any, upper: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.csoftmax`."""
    return _bounded(CSOFTMAX, z, upper, axis, mask, out, _least_sum(upper))


def csparsemax(z: Any, upper: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.csparsemax`."""
    return _bounded(CSPARSEMAX, z, upper, axis, mask, out, _least_sum(upper))


def budget_sparsemax(
    z: Any, budget: Any, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> Any:
    """`pyentmax.budget_sparsemax`."""
    return _bounded(BUDGET_SPARSEMAX, z, None, axis, mask, out, _budget(budget))


def softmax_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.softmax_jvp`."""
    return _derivative(SOFTMAX_JVP, p, v, axis, mask)


def sparsemax_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.sparsemax_jvp`."""
    return _derivative(SPARSEMAX_JVP, p, v, axis, mask)


def entmax15_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.entmax15_jvp`."""
    return _derivative(ENTMAX15_JVP, p, v, axis, mask)


def entmax_jvp(p: Any, v: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.entmax_jvp`."""
    return _derivative(ENTMAX_JVP, p, v, axis, mask, lambda call: call.parameter(alpha, "alpha", 1))


def entmax_grad_alpha(p: Any, alpha: Any = 1.5, axis: Any = -1) -> Any:
    """`pyentmax.entmax_grad_alpha`."""
    return _derivative(
        ENTMAX_GRAD_ALPHA, p, None, axis, None, lambda call: call.parameter(alpha, "alpha", 1)
    )


def normmax_jvp(p: Any, v: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.normmax_jvp`."""
    return _derivative(NORMMAX_JVP, p, v, axis, mask, _above_1(alpha))


def topk_softmax_jvp(p: Any, v: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.topk_softmax_jvp`; k is only checked, as p is 0 wherever a score was dropped."""
    return _derivative(SOFTMAX_JVP, p, v, axis, mask, _whole(k))


def csoftmax_jvp(p: Any, v: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.csoftmax_jvp`."""
    return _derivative(SOFTMAX_JVP, p, v, axis, mask, upper=upper)


def csparsemax_jvp(p: Any, v: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.csparsemax_jvp`."""
    return _derivative(SPARSEMAX_JVP, p, v, axis, mask, upper=upper)


def budget_sparsemax_jvp(p: Any, v: Any, budget: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.budget_sparsemax_jvp`; the budget is only checked, as p tells what is free."""
    return _derivative(SPARSEMAX_JVP, p, v, axis, mask, _budget(budget), upper=1.0)


def _above_1(alpha: Any) -> Callable[[_Call], Any]:
    return lambda call: call.parameter(alpha, "alpha", 1, strict=True)


def _whole(k: Any) -> Callable[[_Call], Any]:
    def parameter(call: _Call) -> Any:
        number = call.parameter(k, "k", 1)
        if isinstance(number, float) and number != np.floor(number):
            raise ValueError(f"k must be a whole number, got {number:g}")
        return number

    return parameter


def _budget(budget: Any) -> Callable[[_Call], Any]:
    return lambda call: call.parameter(budget, "budget", 0, strict=True)


def _least_sum(upper: Any) -> Callable[[_Call], float]:
    """What bounds have to sum to at least: 1, rounding allowed for."""

    def parameter(call: _Call) -> float:
        n = math.prod(call.array.shape[axis] for axis in call.axes)
        given = getattr(upper, "dtype", np.dtype(np.float64))
        precision = given if given.kind == "f" else np.dtype(np.float64)
        epsilon = max(np.finfo(d).eps for d in (_compute_type(call.array), precision))
        return float(1 - 8 * epsilon * n**0.5)

    return parameter


KERNELS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        softmax,
        sparsemax,
        entmax15,
        entmax,
        normmax,
        topk_softmax,
        csoftmax,
        csparsemax,
        budget_sparsemax,
        softmax_jvp,
        sparsemax_jvp,
        entmax15_jvp,
        entmax_jvp,
        entmax_grad_alpha,
        normmax_jvp,
        topk_softmax_jvp,
        csoftmax_jvp,
        csparsemax_jvp,
        budget_sparsemax_jvp,
    )
}
