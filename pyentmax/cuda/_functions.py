"""The functions of `pyentmax` that have a CUDA kernel, with their signatures, for CuPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax._devices import beside, on_device
from pyentmax._dispatch import as_floating
from pyentmax.cuda._launch import TYPES, launch
from pyentmax.mappings._rows import check_axis, check_mask, check_out, check_parameter, to_rows

# Blocks of more than 16 warps leave a thread 64 registers: not enough for doubles, or for pairs.
MOST_WARPS = 32
FEW_WARPS = 16


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


def _forward(mapping: str, file: str, *, gathers: bool = False) -> Callable[..., Any]:
    """The function that runs a mapping of forward.cuh; the rest of its arguments are the rows'."""
    kernel = f"forward_{{}}<{mapping}, "

    def run(z: Any, axis: Any, mask: Any, out: Any, parameter: Any = None) -> Any:
        call = _Call(z, axis, mask, out, "z")
        number = 0.0 if parameter is None else parameter(call)
        rows = call.rows(call.array)

        def write(p: Any) -> None:
            launch(
                kernel, file, rows, (rows, call.rows(call.mask), p), (number,),
                most_warps=FEW_WARPS if rows.dtype.itemsize == 8 else MOST_WARPS, gathers=gathers,
            )  # fmt: skip

        return call.answer(write, call.array)

    return run


def _derivative(rule: str, file: str, *, paired: bool = True) -> Callable[..., Any]:
    """The function that runs a rule of derivatives.cuh."""
    kernel = f"derivative_{{}}<{rule}, "

    def run(p: Any, v: Any, axis: Any, mask: Any, parameter: Any = None) -> Any:
        p = _as_stored(p, "p")
        if paired:
            p, v = _promoted(p, beside(_as_stored(v, "v"), p, "v"))
            if p.shape != v.shape:
                raise ValueError(f"v must have the shape of p, {p.shape}, got {v.shape}")
        call = _Call(p, axis, mask, None, "p")
        number = 0.0 if parameter is None else parameter(call)
        rows = call.rows(call.array)
        directions = call.rows(v) if paired else None

        def write(out: Any) -> None:
            operands = (rows, directions, None, call.rows(call.mask), out)
            launch(kernel, file, rows, operands, (number,), most_warps=FEW_WARPS)

        return call.answer(write)

    return run


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


_softmax = _forward("Softmax", "softmax.cu")
_sparsemax = _forward("Sparsemax", "sparsemax.cu")
_entmax15 = _forward("Entmax15", "entmax15.cu")
_entmax = _forward("Entmax", "entmax.cu", gathers=True)
_softmax_jvp = _derivative("SoftmaxJvp", "softmax.cu")
_sparsemax_jvp = _derivative("SparsemaxJvp", "sparsemax.cu")
_entmax15_jvp = _derivative("Entmax15Jvp", "entmax15.cu")
_entmax_jvp = _derivative("EntmaxJvp", "entmax.cu")


def softmax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.softmax`."""
    return _softmax(z, axis, mask, out)


def sparsemax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.sparsemax`."""
    return _sparsemax(z, axis, mask, out)


def entmax15(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.entmax15`."""
    return _entmax15(z, axis, mask, out)


def entmax(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.entmax`."""
    return _entmax(z, axis, mask, out, lambda call: call.parameter(alpha, "alpha", 1))


def softmax_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.softmax_jvp`."""
    return _softmax_jvp(p, v, axis, mask)


def sparsemax_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.sparsemax_jvp`."""
    return _sparsemax_jvp(p, v, axis, mask)


def entmax15_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.entmax15_jvp`."""
    return _entmax15_jvp(p, v, axis, mask)


def entmax_jvp(p: Any, v: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.entmax_jvp`."""
    return _entmax_jvp(p, v, axis, mask, lambda call: call.parameter(alpha, "alpha", 1))


KERNELS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        softmax,
        sparsemax,
        entmax15,
        entmax,
        softmax_jvp,
        sparsemax_jvp,
        entmax15_jvp,
        entmax_jvp,
    )
}
