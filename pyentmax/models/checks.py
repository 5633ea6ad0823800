"""What is checked of a model that comes from a file, before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import fields
from typing import Any, TypeVar, cast, get_args, get_type_hints

import numpy as np

from pyentmax.nn.initializers import Parameters
from pyentmax.system.memory import machine_memory

Config = TypeVar("Config")


def read_configuration(shape: type[Config], found: Any) -> Config:
    """The configuration with these fields; a ValueError or TypeError says what is wrong.

    A text may be a number, as mappings are, and the configuration itself checks all choices. Fields
    must be there but those that the class names as ``ADDED_LATER``: early files lack them.
    """
    if not isinstance(found, dict):
        raise ValueError(f"config: expected its fields, got {str(found)[:60]}")
    later = getattr(shape, "ADDED_LATER", ())
    wanted = [field.name for field in fields(cast(Any, shape)) if field.name not in later]
    if missing := [name for name in wanted if name not in found]:
        raise ValueError(f"config: expected all its fields, {', '.join(missing)} missing")
    for name, hint in get_type_hints(shape).items():
        allowed = get_args(hint) or (hint,)
        if name not in found:
            continue
        if str in allowed:
            allowed += (float,)
        if float in allowed:
            allowed += (int,)
        if type(found[name]) not in allowed:
            kinds = " or ".join(kind.__name__ for kind in allowed)
            raise ValueError(f"{name}: expected {kinds}, got {str(found[name])[:60]!r}")
    return shape(**found)


def check_sizes(config: Any, source: Sized, target: Sized) -> None:
    """Raise a ValueError unless the vocabularies have the sizes that the configuration says."""
    for name, vocabulary in (("source", source), ("target", target)):
        size = getattr(config, f"{name}_size")
        if len(vocabulary) != size:
            raise ValueError(f"{name} vocabulary: expected {size} tokens, got {len(vocabulary)}")


def check_memory(fewest: int, dtype: Any) -> None:
    """Raise a MemoryError where so many parameters exceed the machine's memory.

    Making them would take until it is full: a layer is small, and there may be many.
    """
    memory, size = machine_memory(), fewest * np.dtype(dtype).itemsize
    if memory is not None and size > memory:
        raise MemoryError(
            f"at least {fewest:,} parameters need {size:,} bytes, and this machine has {memory:,}"
        )


def check_parameters(
    params: Parameters, fewest: int, initialize: Callable[[np.dtype[Any]], Parameters]
) -> None:
    """Raise a ValueError unless the parameters fit a configuration and are finite.

    Parameters
    ----------
    params : dict of arrays
    fewest : int
        A lower bound on how many numbers they must have, known without making any: a damaged
        configuration may ask for more than any memory holds.
    initialize : callable
        Given a floating dtype, makes parameters whose names and shapes are right.
    """
    size = sum(x.size for x in params.values())
    if fewest > 2 * size:  # if nearly all are there, the one that is missing is named below
        raise ValueError(
            f"config: expected at least {fewest:,} numbers for its sizes, got {size:,}"
        )
    floating = [x.dtype for x in params.values() if x.dtype.kind == "f"]
    dtype = floating[0] if floating else np.dtype(np.float32)
    if dtype.itemsize > np.dtype(np.float64).itemsize:
        raise ValueError(f"parameters: expected float32 or float64, got {dtype}")
    expected = initialize(dtype)
    for name in sorted(expected.keys() | params.keys()):
        shapes = [p[name].shape if name in p else "none" for p in (expected, params)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"parameter {name}: expected shape {shapes[0]}, got {shapes[1]}")
        if params[name].dtype != dtype:
            raise ValueError(f"parameter {name}: expected {dtype}, got {params[name].dtype}")
        if not np.isfinite(params[name]).all():
            raise ValueError(f"parameter {name}: expected finite numbers, got NaN or infinity")
