"""The dtypes that calls accept, compute in and return."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import is_dask, on_device

KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
HINTS = {
    "torch": "pyentmax.torch has this function for tensors; or pass tensor.detach().cpu().numpy()",
    "jax": "pyentmax.jax has this function for JAX's arrays; or pass numpy.asarray(array)",
    "jaxlib": "pyentmax.jax has this function for JAX's arrays; or pass numpy.asarray(array)",
    "sparse": "pass its .todense()",
    "scipy": "pass its .toarray()",
    "pint": "pass array.m_as('dimensionless')",
    "autograd": "make a primitive of the function and its vjp with autograd.extend",
    "pyentmax": "pyentmax.seq2seq.autograd has this function for tensors; or pass tensor.data",
}
MASKED = dict.fromkeys("zpv", "and its mask, inverted, as mask=") | {
    "y": "of labels, with ignore_index for what to leave out, or of distributions, with mask="
}


def as_floating(array: Any, name: str) -> tuple[Any, np.dtype[Any]]:
    """Check an array's type; return it in the dtype to compute in, and the dtype to return.

    float32 and float64 keep theirs, half types are computed in float32, integers and bools
    become float64. Arrays that implement NumPy's functions (CuPy's) stay what they are.

    >>> array, dtype = as_floating(np.zeros(3, np.float16), "z")
    >>> print(array.dtype, dtype)
    float32 float16
    """
    if type(array) is np.ndarray and array.dtype in KERNEL_DTYPES:
        return array, array.dtype
    array = as_array(array, name)
    dtype = array.dtype
    compute: np.dtype[Any]
    result: np.dtype[Any]
    if dtype.kind in "biu":
        compute = result = np.dtype(np.float64)
    elif dtype.kind == "f" and dtype.itemsize > 2:
        compute = result = dtype if dtype.isnative else dtype.newbyteorder("=")
    elif dtype.name in ("float16", "bfloat16"):
        compute, result = np.dtype(np.float32), dtype if dtype.isnative else dtype.newbyteorder("=")
    else:
        raise TypeError(
            f"{name} must hold real numbers, got dtype {dtype}; convert it to int64 or a floating "
            "dtype first"
        )
    return array.astype(compute, copy=False), result


def as_array(array: Any, name: str) -> Any:
    """An argument as an array: NumPy's, unless it implements NumPy's functions itself (CuPy's).

    Raises
    ------
    TypeError
        for a masked array, a lazy one, one on the host that implements NumPy's functions (units),
        and what is neither an array nor a sequence (a dict, a generator)
    ValueError
        for rows of different lengths
    """
    if is_masked(array):
        hint = MASKED.get(name, "(.filled(…))")
        raise TypeError(f"{name} is a numpy.ma array; pass a plain array {hint}")
    if isinstance(array, np.ndarray):  # the product of two np.matrix would be that of algebra
        return np.asarray(array) if isinstance(array, np.matrix) else _numbers(array, array, name)
    library = type(array).__module__.partition(".")[0]
    if is_dask(array) or (library == "xarray" and is_dask(getattr(array, "data", None))):
        raise TypeError(
            f"{name} is lazy, a {type(array).__name__} of Dask, and would be computed whole here; "
            f"pass {name}.compute(), or all arrays as Dask arrays"
        )
    has_functions = hasattr(array, "__array_function__") and hasattr(array, "dtype")
    if has_functions and on_device(array):
        return array
    if has_functions or library in HINTS:
        hint = HINTS.get(library, "pass numpy.asarray(array)")
        raise TypeError(f"{name} is a {library} array; {hint}")
    try:
        converted = np.asarray(array)
    except ValueError as error:
        raise ValueError(
            f"{name} cannot be made an array ({error}); for rows of different lengths call "
            "pyentmax.by_rows(function, (np.concatenate(rows),), offsets)"
        ) from None
    return _numbers(converted, array, name)


def _numbers(converted: np.ndarray, array: Any, name: str) -> np.ndarray:
    """An array, unless it holds an object that NumPy takes for a number, or sequences."""
    if converted.dtype.kind == "O" and not converted.ndim:
        values = f"{name}.values()" if hasattr(array, "values") else name
        hint = f"; pass list({values})" if hasattr(array, "__iter__") else ""
        raise TypeError(f"{name} must hold real numbers, got a {type(array).__name__}{hint}")
    if converted.dtype.kind == "O" and converted.size and np.ndim(converted.flat[0]):
        raise TypeError(f"{name} must hold real numbers, got sequences; pass numpy.stack({name})")
    return converted


@functools.lru_cache
def epsilon(dtype: Any) -> float:
    """The spacing of floats at 1; NumPy does not know that of bfloat16, which ml_dtypes brings."""
    return 2.0**-7 if np.dtype(dtype).name == "bfloat16" else float(np.finfo(dtype).eps)


@functools.lru_cache
def largest(dtype: Any) -> Any:
    """The largest number of a floating dtype that is not infinite."""
    return np.finfo(dtype).max


def runs_kernels(array: Any) -> bool:
    """Whether kernels may compute on an array: NumPy's, of a dtype that they have.

    A subclass whose ``__array_ufunc__`` is its own, as of arrays with units, may not know them.
    """
    if type(array) is not np.ndarray:
        ufunc = getattr(type(array), "__array_ufunc__", None)
        if ufunc is not np.ndarray.__array_ufunc__:
            return False
    return array.dtype in KERNEL_DTYPES


def is_masked(array: Any) -> bool:
    """Whether an array is one of numpy.ma, whose mask neither kernels nor bodies see.

    NumPy imports that module when it is first used. A thread that did so here would hold the lock
    of the import, and a process forked meanwhile would wait for it for ever.
    """
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(array, masked.MaskedArray)
