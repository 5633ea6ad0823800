"""Every public function that has a kernel, and arguments to call it with."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import pyentmax
from pyentmax.engine.backends import choice

PARAMETERS = {"alpha": 1.3, "k": 3, "strength": 0.2, "budget": 2.0}


def compiled_functions() -> list[str]:
    """The public functions of rows that have a kernel of their own name."""
    found = {name: getattr(pyentmax, name) for name in pyentmax.__all__ if name in choice.kernels()}
    return [name for name, f in found.items() if "axis" in inspect.signature(f).parameters]


def arguments(function: Any, shape: tuple[int, ...], dtype: Any) -> list[Any]:
    """Arguments for the parameters before `axis`."""
    rng = np.random.default_rng(1)
    z = (3 * rng.standard_normal(shape)).astype(dtype)
    made: list[Any] = []
    for name in inspect.signature(function).parameters:
        if name == "axis":
            return made
        if name == "p":
            made.append(pyentmax.sparsemax(z))
        elif name == "y":
            made.append(rng.integers(0, shape[-1], shape[:-1]))
        else:
            made.append(rng.permuted(np.abs(z) + 1) if name == "upper" else PARAMETERS.get(name, z))
    raise AssertionError(f"{function.__name__} has no axis")


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
