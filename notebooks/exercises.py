"""The exercises' checks: they say what is still to do, and fail on what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["exercise"]


@contextmanager
def exercise(number: int) -> Iterator[None]:
    """Check the code of an exercise; a stub is reported, so that the rest of the notebook runs."""
    try:
        yield
    except NotImplementedError:
        print(f"Exercise {number}: to do. Write the function above, then run this cell again.")
    else:
        print(f"Exercise {number}: right.")
