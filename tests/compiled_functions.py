"""Every public function that has a kernel, and arguments to call it with."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import pyentmax
from pyentmax.engine.backends import choice
from pyentmax.engine.backends.function import Function

# Of two that share a kernel, as the products of softmax and top-k softmax do, the first.
FUNCTIONS: dict[str, Any] = {}
for _mapping in pyentmax.MAPPINGS.values():
    for _function in (_mapping, *vars(_mapping).values()):
        if isinstance(_function, Function) and _function.kernel and _function.is_defined:
            FUNCTIONS.setdefault(_function.kernel, _function)
"""Name of a kernel, such as entmax_jvp → the public function, `entmax.jvp`."""

PARAMETERS = {"alpha": 1.3, "k": 3, "strength": 0.2, "budget": 2.0}


def compiled_functions() -> list[str]:
    """The kernels that functions of scores, or of p, have; not those that want both."""
    kernels = choice.kernels()
    return [name for name, f in FUNCTIONS.items() if name in kernels and not f.with_scores]


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
