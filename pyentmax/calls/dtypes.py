"""Which dtypes are taken, which one a call computes in, and which one it answers in."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.calls.lazy import chunk_type, is_lazy, without_empty_chunks

MASKED_BY_CALLER = ("z", "p", "v")  # the arguments that mask= goes with


def as_floating(array: Any, name: str) -> tuple[Any, np.dtype[Any]]:
    """Check an array's type; return it in the dtype to compute in, and the dtype to answer in.

    float32 and float64 keep theirs, half types are computed in float32, integers and bools
    become float64, and so do Python's ints of any size. Arrays that answer to NumPy's functions
    (CuPy's, say) stay what they are.

    >>> array, answer = as_floating(np.zeros(3, np.float16), "z")
    >>> print(array.dtype, answer)
    float32 float16
    """
    if is_masked(array):
        raise TypeError(
            f"{name} is {kind_of_masked(array)}; pass a plain array "
            + ("and its mask, inverted, as mask=" if name in MASKED_BY_CALLER else "(.filled(…))")
        )
    if not hasattr(array, "__array_function__"):
        if is_lazy(array):
            raise TypeError(
                f"{name} is a lazy {type(array).__name__}, which would be computed whole here; "
                'pass the Dask array in it, or use xarray.apply_ufunc(…, dask="allowed")'
            )
        array = _large_ints_as_floats(np.asarray(array))
    elif isinstance(array, np.matrix):  # its * is a matrix product, and a row of it has two axes
        array = np.asarray(array)
    compute: np.dtype[Any]
    answer: np.dtype[Any]
    dtype = array.dtype
    if dtype.kind in "biu":
        compute = answer = np.dtype(np.float64)
    elif dtype.kind == "f" and dtype.itemsize > 2:
        compute = answer = dtype if dtype.isnative else dtype.newbyteorder("=")
    elif dtype.name in ("float16", "bfloat16"):  # NumPy puts a name together at each question
        compute, answer = np.dtype(np.float32), dtype if dtype.isnative else dtype.newbyteorder("=")
    else:
        came = f" ({_shortened(array)})" if isinstance(array, np.ndarray) else ""
        raise TypeError(
            f"{name} must hold real numbers, got dtype {dtype}{came}; convert it to "
            "int64 or a floating dtype first"
        )
    return without_empty_chunks(array).astype(compute, copy=False), answer


def as_array(x: Any) -> Any:
    """An array of any kind as it is, and all else as NumPy's.

    A matrix, too: its product is no elementwise one, and a row of it has two axes.
    """
    return x if hasattr(x, "__array_function__") and type(x) is not np.matrix else np.asarray(x)


def _large_ints_as_floats(array: Any) -> Any:
    """Python's ints beyond int64, which NumPy takes for objects, as the floats next to them.

    >>> _large_ints_as_floats(np.asarray([2**70, 1]))
    array([1.18059162e+21, 1.00000000e+00])
    """
    if array.dtype == np.object_ and all(type(x) in (int, float) for x in array.flat):
        try:
            return array.astype(np.float64)
        except OverflowError:  # beyond float64 too
            pass
    return array


def epsilon(dtype: Any) -> float:
    """The spacing of floats at 1; NumPy does not know that of bfloat16, which ml_dtypes brings."""
    return 2.0**-7 if np.dtype(dtype).name == "bfloat16" else float(np.finfo(dtype).eps)


def is_masked(array: Any) -> bool:
    """Whether an array is one of numpy.ma, or a lazy one whose chunks will be.

    NumPy's functions and the kernels see the data below such a mask, and not the mask.
    """
    return isinstance(chunk_type(array), np.ma.MaskedArray)


def kind_of_masked(array: Any) -> str:
    """What such an array is called in a message."""
    return "a Dask array of masked chunks" if is_lazy(array) else "a numpy.ma array"


def _shortened(array: Any) -> str:
    text = np.array2string(array, threshold=4, edgeitems=1).replace("\n", " ")
    return text if len(text) <= 40 else text[:39] + "…"
