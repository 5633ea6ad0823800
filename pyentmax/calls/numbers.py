"""What is taken for a number."""

from __future__ import annotations

from dataclasses import fields
from numbers import Integral, Real
from typing import Any, cast

import numpy as np


def is_number(value: Any) -> bool:
    """Whether it is a real number that a float can hold, or infinite, or NaN; a bool is none.

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


def plain(value: Any) -> Any:
    """A number as Python's own, which JSON can hold, also within tuples and dicts; else unchanged.

    Examples
    --------
    >>> plain({"rates": (np.float32(0.5), np.int64(2)), "name": "a"})
    {'rates': (0.5, 2), 'name': 'a'}
    """
    if isinstance(value, tuple):
        return tuple(plain(x) for x in value)
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, bool) or not is_number(value):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def for_json(value: Any) -> Any:
    """Of a value that `json` does not know, Python's number: its argument ``default``.

    Examples
    --------
    >>> import json
    >>> json.dumps([np.int64(2), np.float32(0.5)], default=for_json)
    '[2, 0.5]'
    """
    if isinstance(value, np.generic) and isinstance(number := plain(value), (int, float)):
        return number
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def keep_plain(config: Any) -> None:
    """Let the fields of a frozen dataclass hold Python's numbers, for `__post_init__`."""
    for field in fields(cast(Any, config)):
        object.__setattr__(config, field.name, plain(getattr(config, field.name)))
