"""Which values are numbers, their conversion for JSON, and checks of configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, cast

import numpy as np


def is_number(value: Any) -> bool:
    """Whether it is a real number that a float can hold; a bool is not.

    Examples
    --------
    >>> [is_number(x) for x in (1, 0.5, True, "1", 10**400)]
    [True, True, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 1 up, as Python's own."""
    return type(value) is int and value >= 1


def is_positive(value: Any) -> bool:
    """Whether it is a finite number above 0."""
    return is_number(value) and 0 < value < float("inf")


def python_numbers(value: Any) -> Any:
    """A number as Python's own, which JSON can hold, also within tuples and dicts; else unchanged.

    Examples
    --------
    >>> python_numbers({"rates": (np.float32(0.5), np.int64(2)), "name": "a"})
    {'rates': (0.5, 2), 'name': 'a'}
    """
    if isinstance(value, tuple):
        return tuple(python_numbers(x) for x in value)
    if isinstance(value, dict):
        return {key: python_numbers(x) for key, x in value.items()}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, bool) or not is_number(value):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def for_json(value: Any) -> Any:
    """The Python number for a NumPy one: the argument ``default`` of `json.dumps`.

    Examples
    --------
    >>> import json
    >>> json.dumps([np.int64(2), np.float32(0.5)], default=for_json)
    '[2, 0.5]'
    """
    if isinstance(value, np.generic) and isinstance(number := python_numbers(value), (int, float)):
        return number
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def store_python_numbers(config: Any) -> None:
    """Let the fields of a frozen dataclass hold Python's numbers, for `__post_init__`."""
    for field in fields(cast(Any, config)):
        object.__setattr__(config, field.name, python_numbers(getattr(config, field.name)))


def require(config: Any, names: str, is_right: Callable[[Any], bool], expected: str) -> None:
    """Raise a ValueError unless the fields with these names, separated by spaces, are right.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> require(SimpleNamespace(layers=0), "layers", is_count, "a whole number from 1 up")
    Traceback (most recent call last):
    ...
    ValueError: layers: expected a whole number from 1 up, got 0
    """
    for name in names.split():
        value = getattr(config, name)
        if not is_right(value):
            raise ValueError(f"{name}: expected {expected}, got {value!r}")
