"""Common parts of the mappings with an upper bound on each probability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import is_dask, on_device_of
from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.engine.calls.offsets import call_by_offsets
from pyentmax.engine.calls.parameters import digits
from pyentmax.engine.calls.rows import Rows, broadcasts, to_rows

# How often scores are shifted again: each time removes the full entries of one more scale. A scale
# is as wide as a significand, so that float64 has 2 · 2098/53 of them at most, and float32 fewer.
# On a device, where testing for another would synchronise, more than a few are not worth the time.
_MAX_SHIFTS, _DEVICE_SHIFTS = 80, 3


def full_entries(p: Any, upper: Any) -> Any:
    """Where p is at its bound; False in masked entries and in rows that are all masked."""
    return (p >= upper) & np.any(p > 0, axis=-1, keepdims=True)


def solve_shifted(z: Any, upper: Any, solve: Callable[[Any], Any]) -> Any:
    """p = solve(y), where y is z minus the largest score whose p is below its bound.

    If all entries with higher scores are full, an entry gets probability however low its score is.
    Relative to a full entry the score would lose digits, or overflow. Which entries are full only p
    shows. So the first solve is relative to the largest score with a bound above 0, and it is
    repeated as long as that entry is full and more than 1 above all that are not full. (A smaller
    gap costs no digits that p could show.) Masked entries have a bound of 0 and the score 0.
    """
    allowed = upper > 0
    z = np.where(allowed, z, 0)

    def solved(shift: Any) -> Any:
        with np.errstate(over="ignore"):
            most = np.finfo(z.dtype).max
            return solve(np.where(allowed, np.clip(z - shift, -most, most), 0))

    shift = np.max(np.where(allowed, z, -np.inf), axis=-1, keepdims=True)
    shift = np.where(shift > -np.inf, shift, 0)
    p = solved(shift)
    for _ in range(_MAX_SHIFTS if isinstance(z, np.ndarray) else _DEVICE_SHIFTS):
        open_top = np.max(np.where(allowed & (p < upper), z, -np.inf), axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            lower = (open_top > -np.inf) & (shift - open_top > 1)
        if isinstance(z, np.ndarray) and not lower.any():
            break
        shift = np.where(lower, open_top, shift)
        p = solved(shift)
    return p


def gradient_in_bounds(p: Any, g: Any, s: Any, active: Any) -> Any:
    """The gradient of Σ g ∘ p in the bounds.

    Where a bound is active, p moves with it one to one, and the free entries compensate in
    proportion to s, their share of a change of the threshold: g_i minus the mean of g under s.
    """
    total = np.sum(s, axis=-1, keepdims=True)
    weighted = np.sum(s * np.where(s != 0, g, 0), axis=-1, keepdims=True)  # g is unused elsewhere
    mean = weighted / np.where(total == 0, 1, total)
    return np.where(np.isnan(p), p, np.where(active, g - mean, 0))


def call_within(
    bounds: tuple[Any, Any], within: Callable[..., Any], function: Any, *values: Any
) -> Any:
    """What a declared function gives within bounds (lower, upper).

    `values` are those of its `dispatch`, which computes with the bounds 0 and 1. With others
    `within` is called, with the function and then all by their names.
    """
    if all(type(x) is int for x in bounds) and bounds == (0, 1):
        return function.dispatch(*values)
    if is_dask(values[0]):
        raise TypeError("lower and upper must be 0 and 1 for Dask arrays")
    given = dict(zip(function.arguments, values, strict=False))
    offsets = given.pop("offsets", None)
    given["lower"], given["upper"] = bounds
    if offsets is None:
        return within(function, **given)

    def call(*values: Any) -> Any:
        return within(function, **dict(zip(given, values, strict=True)))

    how = function.parameter, function.results, offsets
    return call_by_offsets(call, tuple(given), *how, *given.values())


def bounds_in_rows(rows: Rows, lower: Any, upper: Any) -> tuple[Any, Any]:
    """Bounds on each entry of a call, checked, and rounded as its results are."""
    arranged = []
    for name, value in (("lower", lower), ("upper", upper)):
        bound = on_device_of(as_floating(value, name)[0], rows.array, name)
        if not broadcasts(bound.shape, rows.shape):
            raise ValueError(
                f"{name} of shape {bound.shape} does not broadcast to {rows.shape}, the shape of "
                "the scores"
            )
        bound = to_rows(np.broadcast_to(bound, rows.shape), rows.axes)
        bound = bound.astype(rows.array.dtype).astype(rows.dtype).astype(rows.array.dtype)
        arranged.append(bound if rows.mask is None else np.where(rows.mask, bound, 0))
    low, high = arranged
    if isinstance(low, np.ndarray):
        if not (low >= 0).all():
            raise ValueError(f"lower must be at least 0, got {low[~(low >= 0)][0]:g}")
        if not (low <= high).all():
            i = tuple(np.argwhere(~(low <= high))[0])
            raise ValueError(
                f"upper must be at least lower, got {digits(high[i], low[i])} where lower is "
                f"{digits(low[i], high[i])}"
            )
    return low, high
