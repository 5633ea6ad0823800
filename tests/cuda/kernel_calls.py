"""Calls of what launches a CUDA kernel, with the arguments of the public function."""

from __future__ import annotations

from typing import Any

import pyentmax
from pyentmax.backends.cuda.functions import KERNELS
from pyentmax.calls.binding import Binder


def call_kernel(name: str, *args: Any, **kwargs: Any) -> Any:
    """The kernel's answer; NotImplemented where a call falls back to the body."""
    function = getattr(pyentmax, name)
    return KERNELS[name](function.kind.parameters, Binder(function.body)(args, kwargs))
