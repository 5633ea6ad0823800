"""Where an array lives, on the host or on a GPU, and the ways between the two.

An array on a GPU (CuPy's) is computed with by its own module and never moved silently:
`on_device_of` refuses to mix host and device, and what crosses goes through `to_host` or through
the module's ``asarray``, by name.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np

DEVICES = ("cpu", "cuda")


def array_module(array: Any) -> ModuleType:
    """The module that an array belongs to (numpy, cupy), found without importing any."""
    module = sys.modules[type(array).__module__.partition(".")[0]]
    return module if hasattr(module, "tanh") else np


def on_device(array: Any) -> bool:
    """Whether an array lies in a GPU's memory."""
    # The interface alone does not tell: JAX's arrays have it on the host, too, where it raises.
    return hasattr(type(array), "__cuda_array_interface__") and hasattr(type(array), "get")


def is_dask(array: Any) -> bool:
    """Whether an array is one of Dask's."""
    return type(array).__module__.partition(".")[0] == "dask"


def to_host(array: Any) -> np.ndarray:
    """The array as NumPy's; one on a GPU is copied, which waits for the GPU.

    >>> to_host([1, 2])
    array([1, 2])
    """
    return array.get() if on_device(array) else np.asarray(array)


def on_device_of(array: Any, other: Any, name: str) -> Any:
    """An argument in the memory of another array; a TypeError where that takes a copy.

    A single number follows freely: it goes to a GPU as an argument of the kernel that writes it.
    """
    if type(array) is type(other) or on_device(array) == on_device(other):
        return array
    if isinstance(array, np.ndarray) and not array.ndim:
        # CuPy's full_like takes an empty shape for none given.
        return np.full_like(other, array, dtype=array.dtype, shape=(1,))[0]
    if on_device(other):
        there, here, move = "on the GPU", "on the host", f"cupy.asarray({name})"
    else:
        there, here, move = "on the host", "on a GPU", f"{name}.get()"
    raise TypeError(
        f"{name} must lie {there} like the array that it goes with, and it lies {here}: pass {move}"
    )


def device_module(device: str) -> ModuleType:
    """The array module of a device: numpy for "cpu", cupy for "cuda".

    Parameters
    ----------
    device : {"cpu", "cuda"}

    Raises
    ------
    ImportError
        If CuPy is not installed.
    ValueError
        If there is no such device, or CuPy finds no GPU on which a kernel gives the right result.

    Examples
    --------
    >>> device_module("cpu").__name__
    'numpy'
    """
    if device not in DEVICES:
        raise ValueError(f"device: expected one of {', '.join(DEVICES)}, got {device!r}")
    if device == "cpu":
        return np
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise ImportError(
            f"device 'cuda' needs CuPy, which cannot be imported ({error}): "
            "pip install 'pyentmax[cuda12]', or [cuda13], after the CUDA version of the driver"
        ) from error
    try:
        # Compiles a kernel and runs it: a driver that answers is not yet one that computes.
        squares = (cupy.arange(5) ** 2).get()
    except Exception as error:  # missing driver, compiler, headers or memory: each its own type
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"device 'cuda' is not usable: CuPy {cupy.__version__} is installed, but a first "
            f"kernel failed ({reason}); is there a GPU, and a driver for it?"
        ) from error
    if squares.tolist() != [0, 1, 4, 9, 16]:
        raise ValueError(f"device 'cuda' is not usable: it computes {squares.tolist()} as squares")
    return cupy
