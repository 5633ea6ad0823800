"""Calls of what launches a CUDA kernel, with the arguments of the public function."""

from __future__ import annotations

from typing import Any
from unittest import mock

from compiled_functions import FUNCTIONS

from pyentmax.engine.backends import choice
from pyentmax.engine.backends.cuda.functions import KERNELS


class _Reached(Exception):
    """The dispatch has come to the kernel."""


def call_kernel(name: str, *args: Any, **kwargs: Any) -> Any:
    """The kernel's answer; NotImplemented where a call falls back to the body."""
    function = FUNCTIONS[name]
    reached = mock.Mock(side_effect=_Reached)
    with mock.patch.object(choice, "run_on_gpu", reached):
        try:
            function(*args, **kwargs)
        except _Reached:
            _, parameter, _, arguments = reached.call_args.args
    return KERNELS[name](() if parameter is None else (parameter,), arguments)
