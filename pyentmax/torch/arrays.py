"""Tensors as arrays: who computes for a tensor's device, and how its memory gets there.

A tensor on the host lends its memory to NumPy, and so to the compiled kernels; one on a CUDA device
lends it to CuPy, if that is installed, and so to the CUDA kernels. Nothing is copied, there or
back. On any other device a tensor is put into a `TensorArray`, which answers NumPy's functions with
PyTorch's: what runs then is the NumPy body of the function, in torch operations.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import ModuleType
from typing import Any

import numpy as np
import torch

from pyentmax.torch.tensor_array import TensorArray

SMALL = (torch.uint8, torch.int8, torch.int16)  # of labels; PyTorch takes no indices of these
HALF = (torch.float16, torch.bfloat16)  # computed in float32, of which NumPy knows no bfloat16


def on_arrays(function: Callable[..., Any], *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """Call a function of arrays with tensors; give its array, or arrays, as tensors.

    Parameters
    ----------
    function : callable
    *args, **kwargs
        tensors, the first argument being one, and anything else
    dtype : torch.dtype, optional
        of the results, where it is not the first argument's
    """
    first = args[0]
    dtype = first.dtype if dtype is None else dtype
    if first.is_cpu:
        return _returned(function(*map(_host, args), **_each(_host, kwargs)), dtype)
    library = _cupy() if first.is_cuda else None
    if library is None:
        return _returned(function(*map(_torch, args), **_each(_torch, kwargs)), dtype)
    with _beside(library, first.device):
        return _returned(function(*map(_device, args), **_each(_device, kwargs)), dtype)


def _each(lend: Callable[[Any], Any], options: dict[str, Any]) -> dict[str, Any]:
    return {name: lend(value) for name, value in options.items()}


def _host(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.float() if value.dtype in HALF else value
    return value.numpy(force=True)  # which copies nothing on the host


def _torch(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.dtype in SMALL:
        return TensorArray(value.long())
    return TensorArray(value.float() if value.dtype in HALF else value)


def _device(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    cupy = _cupy()
    assert cupy is not None
    value = value.detach()
    if value.dtype == torch.bool:  # older DLPacks have no bools
        return cupy.from_dlpack(value.view(torch.uint8)).view(bool)
    return cupy.from_dlpack(value.float() if value.dtype in HALF else value)


def _returned(result: Any, dtype: torch.dtype) -> Any:
    if type(result) is np.ndarray:
        tensor = torch.from_numpy(result)
    elif isinstance(result, tuple):
        return tuple(_returned(part, dtype) for part in result)
    elif isinstance(result, TensorArray):
        tensor = result.tensor
    elif hasattr(result, "__cuda_array_interface__"):
        tensor = torch.from_dlpack(result)
    else:  # NumPy's scalar
        tensor = torch.as_tensor(result)
    # PyTorch has been told that results are contiguous; they are unless the scores were not.
    return tensor.to(dtype).contiguous()


@functools.cache
def _cupy() -> ModuleType | None:
    try:
        return importlib.import_module("cupy")
    except ImportError:
        return None


def _beside(cupy: ModuleType, device: torch.device) -> AbstractContextManager[Any]:
    # On the tensor's device, and in the stream in which PyTorch has queued what computes it.
    stack = ExitStack()
    stream = torch.cuda.current_stream(device)
    stack.enter_context(cupy.cuda.Device(stream.device_index))
    stack.enter_context(cupy.cuda.ExternalStream(stream.cuda_stream, stream.device_index))
    return stack
