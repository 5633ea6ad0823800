"""Array libraries: arrays of a float type, numbers of them, and vector-Jacobian products.

Everything that goes in and comes out is float64 on the host, with values that the float type can
hold. A library is recognised by what a function returns, or takes, among those that the caller has
imported; none is imported here.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._differences import Array

Function = Callable[..., Any]
# Of each float type, the spacing at 1 and the smallest normal number; bfloat16 is PyTorch's too.
SPACINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
HALF = ("float16", "bfloat16")


class NoGradients(Exception):
    """Why a function has no gradients, which is no fault."""


class Library(NamedTuple):
    """Conversions to and from a library's arrays, and its vector-Jacobian product if any.

    ``vjp(fn, arrays, g, how)`` gives what fn gives, and the gradients in the arrays of its product
    with g, which arrives as ``how`` says: ``"expanded"`` from one number, ``"strided"``, or after
    another backward pass (``"again"``).
    """

    array: Callable[[Array, str, Any], Any]
    numbers: Callable[[Any], Array]
    stack: Callable[[list[Any]], Any]
    vjp: Callable[[Function, list[Any], Array, str], tuple[Any, Sequence[Any]]] | None = None


def _numpy() -> Library:
    return Library(lambda x, dtype, device: np.array(x, dtype, order="C"),
                   lambda p: np.array(p).astype(np.float64), np.stack)  # fmt: skip


def _torch() -> Library:
    torch: Any = sys.modules["torch"]

    def upstream(v: Array, p: Any, how: str) -> Any:
        def tensor(x: Any) -> Any:
            return torch.tensor(x, dtype=p.dtype, device=p.device)

        if how == "expanded" or (v.size and np.ptp(v) == 0):  # as p.sum().backward() passes it
            return tensor(float(v.flat[0])).expand(p.shape)
        v = v.reshape(p.shape)
        if how != "strided" or v.ndim == 0:
            return tensor(v)
        if v.ndim == 1:
            return tensor(np.stack([v, v], -1))[:, 0]
        axes = (-2, -3) if v.ndim > 2 else (-1, -2)  # as models pass it behind a transpose
        return tensor(np.ascontiguousarray(np.swapaxes(v, *axes))).transpose(*axes)

    def backward(p: Any, leaves: list[Any], g: Any) -> Sequence[Any]:
        try:
            found: Any = torch.autograd.grad(p, leaves, g, allow_unused=True, retain_graph=True)
        except RuntimeError as error:
            if "checkpoint" not in str(error):
                raise
            for x in leaves:
                x.grad = None
            torch.autograd.backward(p, g, retain_graph=True)  # reentrant checkpoints want it so
            found = [x.grad for x in leaves]
        return list(found)

    def vjp(fn: Function, arrays: list[Any], v: Array, how: str) -> tuple[Any, Sequence[Any]]:
        leaves = [x.detach().requires_grad_() for x in arrays]
        try:  # fn may overwrite what it gets; views keep their strides
            p = fn(*(x * 1 if x.is_contiguous() else x for x in leaves))
        except RuntimeError as error:
            if "numpy() on Tensor" in str(error):
                raise NoGradients("the function takes arrays") from error
            raise
        if not p.requires_grad:
            raise NoGradients("the result has no gradient")
        for _ in range(2 if how == "again" else 1):
            grads = backward(p, leaves, upstream(v, p, how))
        pairs = zip(grads, leaves, strict=True)
        return p, [torch.zeros_like(x) if one is None else one for one, x in pairs]

    return Library(
        lambda x, dtype, device: torch.tensor(x, dtype=getattr(torch, dtype), device=device),
        lambda p: p.detach().cpu().double().numpy(), torch.stack, vjp,
    )  # fmt: skip


def _jax() -> Library:
    jax: Any = sys.modules["jax"]

    def vjp(fn: Function, arrays: list[Any], v: Array, how: str) -> tuple[Any, Sequence[Any]]:
        p, product = jax.vjp(fn, *arrays)
        return p, product(jax.numpy.asarray(v.reshape(p.shape), p.dtype))

    return Library(
        lambda x, dtype, device: jax.device_put(jax.numpy.array(x, dtype), device),
        lambda p: np.asarray(p).astype(np.float64), jax.numpy.stack, vjp,
    )  # fmt: skip


def _tensorflow() -> Library:
    tf: Any = sys.modules["tensorflow"]

    def vjp(fn: Function, arrays: list[Any], v: Array, how: str) -> tuple[Any, Sequence[Any]]:
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            p = fn(*arrays)
        grads = tape.gradient(p, arrays, output_gradients=tf.constant(v.reshape(p.shape), p.dtype))
        pairs = zip(grads, arrays, strict=True)
        return p, [tf.zeros_like(x) if one is None else one for one, x in pairs]

    return Library(lambda x, dtype, device: tf.constant(x, dtype),
                   lambda p: p.numpy().astype(np.float64), tf.stack, vjp)  # fmt: skip


def _cupy() -> Library:
    cupy: Any = sys.modules["cupy"]
    return Library(lambda x, dtype, device: cupy.array(x, dtype),
                   lambda p: p.get().astype(np.float64), cupy.stack)  # fmt: skip


LIBRARIES = {
    "numpy": _numpy, "torch": _torch, "jax": _jax, "tensorflow": _tensorflow, "cupy": _cupy,
}  # fmt: skip
"""Name of the module → `Library`; NumPy first, since others' functions may take its arrays."""

# Layout → what the contiguous memory holds, and the view of it that has the entries asked for.
LAYOUTS: dict[str, tuple[Callable[[Array], Array], Callable[[Any], Any]]] = {
    "heads inside": (lambda x: np.swapaxes(x, -2, -3), lambda a: a.swapaxes(-2, -3)),
    "transposed": (lambda x: np.swapaxes(x, -1, -2), lambda a: a.swapaxes(-1, -2)),
    "every second": (lambda x: np.stack([x, 7 + 0 * x], -1).reshape(*x.shape[:-1], -1),
                     lambda a: a[..., ::2]),
    "part of a wider array": (lambda x: np.concatenate([x, 7 + 0 * x], -1),
                              lambda a: a[..., : a.shape[-1] // 2]),
    "reversed": (lambda x: x[..., ::-1], lambda a: a[..., ::-1]),
    "read-only": (lambda x: x, lambda a: a.setflags(write=False) or a),
}  # fmt: skip
NUMPY_ONLY = ("reversed", "read-only")


def in_memory_order(x: Array, layout: str) -> Array:
    """The entries read by a function that takes a view's memory for a contiguous array's."""
    if layout in ("", "reversed"):  # whose memory ends where it begins
        return x
    return np.ravel(LAYOUTS[layout][0](x))[: x.size].reshape(x.shape)


def library_of(array: Any) -> str:
    """The name of the library that an array belongs to; NumPy's if it is not a known one."""
    name = type(array).__module__.partition(".")[0].replace("jaxlib", "jax")
    return name if name in LIBRARIES else "numpy"


def dtype_name(array: Any) -> str:
    """The name of an array's dtype, such as ``"float32"``, in any library."""
    dtype = getattr(array, "dtype", None)
    return str(getattr(dtype, "name", str(dtype).rpartition(".")[2]))


def to_numbers(array: Any) -> Array:
    """An array of any library, or a number, as float64 on the host."""
    return LIBRARIES[library_of(array)]().numbers(array)


def parameters_of(fn: Function) -> dict[str, inspect.Parameter] | None:
    """fn's parameters, those of a module's ``forward``; None if it has no signature."""
    try:
        return dict(inspect.signature(getattr(fn, "forward", fn)).parameters)
    except (TypeError, ValueError):
        return None
