"""Arrays and labels for plots, checked before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def numbers(values: Any, name: str, ndim: int | None = None) -> NDArray[np.float64]:
    """The values as an array of float64; NaN is a gap in a picture, and so is None.

    Examples
    --------
    >>> numbers([[1, None]], "weights", ndim=2)
    array([[ 1., nan]])
    >>> numbers(["a"], "weights")
    Traceback (most recent call last):
    TypeError: weights must be an array of numbers, got ['a']
    """
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an array of numbers, got {values!r:.60}") from None
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {array.shape}")
    return array


def texts(values: Sequence[str], name: str) -> list[str]:
    """Tokens or labels; a string is the sequence of its characters.

    Examples
    --------
    >>> texts("ab", "source")
    ['a', 'b']
    """
    labels = list(values)
    if not all(isinstance(label, str) for label in labels):
        raise TypeError(f"{name} must be a sequence of strings, got {values!r:.60}")
    return labels
