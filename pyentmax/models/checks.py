"""Checks of a model that comes from a file, before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import fields
from typing import Any, TypeVar, cast, get_args, get_type_hints

import numpy as np

from pyentmax.nn.initializers import Parameters

Config = TypeVar("Config")


def read_configuration(shape: type[Config], found: Any) -> Config:
    """The configuration with these fields; a ValueError says which is missing or of another type.

    A text may be a number, as mappings are; the configuration itself checks all choices.
    """
    if not isinstance(found, dict):
        raise ValueError(f"config: expected its fields, got {str(found)[:60]}")
    names = [field.name for field in fields(cast(Any, shape))]
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"config: expected all its fields, {', '.join(missing)} missing")
    for name, hint in get_type_hints(shape).items():
        allowed = get_args(hint) or (hint,)
        if str in allowed:
            allowed += (float,)
        if float in allowed:
            allowed += (int,)
        if name in found and type(found[name]) not in allowed:
            kinds = " or ".join(kind.__name__ for kind in allowed)
            raise ValueError(f"{name}: expected {kinds}, got {str(found[name])[:60]!r}")
    return shape(**found)


def check_sizes(config: Any, source: Sized, target: Sized) -> None:
    """Raise a ValueError unless the vocabularies have the sizes in the configuration."""
    for name, vocabulary in (("source", source), ("target", target)):
        size = getattr(config, f"{name}_size")
        if len(vocabulary) != size:
            raise ValueError(f"{name} vocabulary: expected {size} tokens, got {len(vocabulary)}")


def check_parameters(params: Parameters, initialize: Callable[[np.dtype[Any]], Parameters]) -> None:
    """Raise a ValueError unless the parameters fit a configuration and are finite.

    Parameters
    ----------
    params : dict of arrays
    initialize : callable
        Given a floating dtype, makes parameters whose names and shapes are right.
    """
    dtype = next((x.dtype for x in params.values()), np.dtype(np.float32))
    if dtype.kind != "f" or dtype.itemsize > 8:
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
