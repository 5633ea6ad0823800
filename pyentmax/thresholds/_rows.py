"""What the threshold functions return, and what they do to rows first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Threshold(NamedTuple):
    """A threshold per row, shape batch + (1,), how many scores exceed it, and the passes taken.

    A pass is one look through the row, a sort of it counts as one; of several rows, the most.
    """

    tau: Any
    size: Any
    passes: int


def clipped(x: Any) -> tuple[Any, Any]:
    """The largest score, and scores relative to it; −1 for all that can never be in the support."""
    top = np.max(x, axis=-1, keepdims=True)
    return top, np.maximum(x - top, -1)


def count(above: Any) -> Any:
    """How many are True, per row."""
    return np.sum(above, axis=-1, keepdims=True)
