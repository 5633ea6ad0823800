"""The result of the threshold functions, and their common first steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.calls.devices import on_device_of
from pyentmax.engine.calls.dtypes import as_floating


class Threshold(NamedTuple):
    """A threshold per row, shape batch + (1,), the number of scores above it, and the passes taken.

    A pass reads the row once; a sort counts as one. For several rows it is the maximum.
    """

    tau: Any
    size: Any
    passes: int


def as_scores(x: Any) -> Any:
    """x as an array of floats; lists and integer arrays are converted."""
    x, _ = as_floating(x, "x")
    if not (x.ndim and x.shape[-1]):
        raise ValueError(f"x must hold rows of at least one score, got shape {x.shape}")
    return x


def beta_per_row(alpha: Any, x: Any, most: float = np.inf) -> Any:
    """β = α − 1 of each row, of shape batch + (1,) and x's dtype, for 1 < α ≤ `most`, α finite.

    α is a number or broadcasts against the batch shape (x's without the last axis).
    """
    alpha, _ = as_floating(alpha, "alpha")
    if isinstance(alpha, np.ndarray):
        valid = (alpha > 1) & (alpha <= most) & (alpha < np.inf)
        if not valid.all():
            limit = "finite" if most == np.inf else f"at most {most:g}"
            raise ValueError(f"alpha must be above 1 and {limit}, got {alpha[~valid].flat[0]:g}")
    alpha = on_device_of(alpha, x, "alpha")
    batch = x.shape[:-1]
    try:
        alpha = np.broadcast_to(alpha, batch)
    except ValueError:
        raise ValueError(
            f"alpha of shape {alpha.shape} does not broadcast against the batch shape {batch}, "
            "that of x without the last axis"
        ) from None
    return (alpha - 1)[..., None].astype(x.dtype, copy=False)


def clipped_gaps(x: Any) -> tuple[Any, Any]:
    """The largest score, and scores relative to it; −1 for all that can never be in the support."""
    x = as_scores(x)
    top = np.max(x, axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        return top, np.maximum(x - top, -1)


def support_size(above: Any) -> Any:
    """The number of scores above the threshold per row, for `above` True where one is."""
    return np.sum(above, axis=-1, keepdims=True)


def row_sums(*terms: Any) -> tuple[Any, ...]:
    """The sum of each array over its rows."""
    return tuple(np.sum(term, axis=-1, keepdims=True) for term in terms)


def between(p_low: Any, p_high: Any, total: Any = 1) -> Any:
    """The point of the line from p_low to p_high whose rows have the sum `total`.

    That is how a bracket ends: one float wide, its ends may sum to less and more than that.
    """
    sum_low, sum_high = row_sums(p_low, p_high)
    gap = sum_high - sum_low
    share = np.clip((total - sum_low) / np.where(gap > 0, gap, 1), 0, 1)
    return p_low + share * (p_high - p_low)
