"""Tensors as arrays: the array functions called on a tensor's own memory.

A tensor on the host lends its memory to NumPy, and so to the compiled kernels; one on a CUDA device
lends it to CuPy, if that is installed, and so to the CUDA kernels. Nothing is copied in either
direction.
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
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from pyentmax.torch.composed import HALF


def has_kernels(tensor: Tensor) -> bool:
    """Whether the array functions take arrays on the tensor's device."""
    return tensor.is_cpu or tensor.is_cuda and _cupy() is not None


def on_arrays(function: Callable[..., Any], *args: Any, dtype: Any = None, **options: Any) -> Any:
    """Call an array function with tensors and return its array, or arrays, as tensors.

    Parameters
    ----------
    function : callable
    *args, **options
        tensors, the first argument being one, and anything else
    dtype : torch.dtype, optional
        of the results with a floating dtype, the first argument's by default
    """
    first: Tensor = args[0]
    dtype = first.dtype if dtype is None else dtype
    if first.is_cpu:
        arrays = list(args)
        for i, x in enumerate(args):
            if isinstance(x, Tensor):
                arrays[i] = lent(x)
        for name, value in options.items():
            if isinstance(value, Tensor):
                options[name] = lent(value)
        return _as_tensors(function(*arrays, **options), dtype)
    with _in_stream(first.device):
        named = {name: _device(value) for name, value in options.items()}
        return _as_tensors(function(*map(_device, args), **named), dtype)


def lent(value: Tensor) -> Any:
    """A tensor on the host as an array, which is not to be written to."""
    if value.dtype in HALF:  # NumPy has no bfloat16
        value = value.float()
    if value.requires_grad:
        value = value.detach()
    lender = _Lender()
    lender.tensor = value.resolve_neg() if value.is_neg() else value
    return np.from_dlpack(lender)


class _Lender:
    """Lends a tensor on the host to NumPy; its own ``numpy()`` would forbid it to be resized."""

    __slots__ = ("tensor",)  # and no `__init__`, for speed
    tensor: Tensor

    def __dlpack__(self, **unused: Any) -> Any:
        return to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the host


def _device(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    cupy = _cupy()
    assert cupy is not None
    value = value.detach()
    if value.dtype == torch.bool:  # older DLPacks have no bools
        return cupy.from_dlpack(value.view(torch.uint8)).view(bool)
    return cupy.from_dlpack(value.float() if value.dtype in HALF else value)


def _as_tensors(result: Any, dtype: torch.dtype) -> Any:
    tensors = []
    for array in result if isinstance(result, tuple) else (result,):
        if type(array) is np.ndarray:
            tensor = torch.from_numpy(array)
        elif hasattr(array, "__cuda_array_interface__"):
            tensor = torch.from_dlpack(array)
        else:  # a NumPy scalar
            tensor = torch.as_tensor(array, device="cpu")
        if tensor.dtype != dtype and tensor.is_floating_point():
            tensor = tensor.to(dtype)
        # The operations promise contiguous results; arrays are laid out as the scores were.
        tensors.append(tensor.contiguous())
    return tuple(tensors) if isinstance(result, tuple) else tensors[0]


@functools.cache
def _cupy() -> ModuleType | None:
    try:
        return importlib.import_module("cupy")
    except ImportError:
        return None


def _in_stream(device: torch.device) -> AbstractContextManager[Any]:
    # On the tensor's device, in the stream in which PyTorch has queued what computes it.
    cupy = _cupy()
    assert cupy is not None
    stack = ExitStack()
    stream = torch.cuda.current_stream(device)
    stack.enter_context(cupy.cuda.Device(stream.device_index))
    if hasattr(stream, "__cuda_stream__") and hasattr(cupy.cuda.Stream, "from_external"):
        stack.enter_context(cupy.cuda.Stream.from_external(stream))
    else:  # deprecated from CuPy 14 on
        stack.enter_context(cupy.cuda.ExternalStream(stream.cuda_stream, stream.device_index))
    return stack
