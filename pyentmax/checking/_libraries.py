"""Arrays of NumPy, PyTorch, JAX, TensorFlow and CuPy, and their float types; nothing is imported.

A library is recognised by what a function returns, or takes, among those that the caller has
imported.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._differences import Array

Function = Callable[..., Any]
# Of each float type, the spacing at 1 and the smallest normal number; bfloat16 is PyTorch's too.
SPACINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


class Library(NamedTuple):
    """How to convert to and from a library's arrays, and its vector-Jacobian product if any."""

    array: Callable[[Array, str], Any]
    numbers: Callable[[Any], Array]
    stack: Callable[[list[Any]], Any]
    vjp: Callable[[Function, Any, Array], Any] | None = None


def _numpy() -> Library:
    return Library(
        lambda x, dtype: np.array(x, dtype), lambda p: np.array(p).astype(np.float64), np.stack
    )


def _torch() -> Library:
    torch: Any = sys.modules["torch"]

    def vjp(fn: Function, z: Any, v: Array) -> Any:
        p = fn(z.requires_grad_() * 1)  # which fn may overwrite
        return torch.autograd.grad(p, z, torch.tensor(v, dtype=p.dtype, device=p.device))[0]

    return Library(
        lambda x, dtype: torch.tensor(x, dtype=getattr(torch, dtype)),
        lambda p: p.detach().cpu().double().numpy(),
        torch.stack,
        vjp,
    )


def _jax() -> Library:
    jax: Any = sys.modules["jax"]

    def vjp(fn: Function, z: Any, v: Array) -> Any:
        p, product = jax.vjp(fn, z)
        return product(jax.numpy.asarray(v, p.dtype))[0]

    return Library(
        jax.numpy.array, lambda p: np.asarray(p).astype(np.float64), jax.numpy.stack, vjp
    )


def _tensorflow() -> Library:
    tf: Any = sys.modules["tensorflow"]

    def vjp(fn: Function, z: Any, v: Array) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(z)
            p = fn(z)
        return tape.gradient(p, z, output_gradients=tf.constant(v, p.dtype))

    return Library(tf.constant, lambda p: p.numpy().astype(np.float64), tf.stack, vjp)


def _cupy() -> Library:
    cupy: Any = sys.modules["cupy"]
    return Library(cupy.array, lambda p: p.get().astype(np.float64), cupy.stack)


LIBRARIES = {
    "numpy": _numpy, "torch": _torch, "jax": _jax, "tensorflow": _tensorflow, "cupy": _cupy,
}  # fmt: skip
"""Name of the module → `Library`; NumPy first, since others' functions may take its arrays."""


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


def parameter_names(fn: Function) -> set[str] | None:
    """The names of fn's parameters; None if it has no signature."""
    try:
        return {*inspect.signature(fn).parameters}
    except (TypeError, ValueError):
        return None
