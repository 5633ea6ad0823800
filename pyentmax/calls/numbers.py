"""What is taken for a number."""

from __future__ import annotations

from numbers import Real
from typing import Any


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
