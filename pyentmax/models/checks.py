"""Checks of a model that comes from a file, before it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.nn.initializers import Parameters


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
