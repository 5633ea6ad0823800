"""Arrays in rows along the last axis: how a call's arguments get there, and its result back.

A mapping's body works on a two-dimensional array, a row of scores or probabilities after the other.
`arrange_scores` checks the scores, axis, mask and ``out`` of a call, and `arrange_probabilities`
what a derivative takes; each returns `Rows`. `apply_to_scores` calls a body on them, and
`Rows.finish` returns the result in the caller's form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pyentmax.engine.calls.devices import on_device_of
from pyentmax.engine.calls.dtypes import as_array, as_floating, is_masked

Axes = tuple[int, ...]


@dataclass(slots=True)  # neither a named tuple nor a frozen class is made as fast
class Rows:
    """Scores or probabilities of a call, checked and with their rows along the last axis."""

    array: Any
    """The entries, of shape batch + (d,), in the dtype to compute in."""
    mask: Any
    """Bools that broadcast to the array, with an entry for each of a row's; or None."""
    shape: tuple[int, ...]
    """The caller's."""
    axes: Axes
    """The caller's axes that form a row."""
    dtype: Any
    """The dtype of results."""

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape without the rows' axis."""
        batch: tuple[int, ...] = self.array.shape[:-1]
        return batch

    def operands(self) -> tuple[Any, ...]:
        """The array and its mask as kernels take them."""
        array, mask = self.array, self.mask
        return array, all_true(array.shape[-1]) if mask is None else mask

    def finish(self, result: Any, out: Any = None, dtype: Any = None) -> Any:
        """A result with an entry for each of the array's in the caller's form, or in ``out``."""
        if result.ndim != self.array.ndim:
            result = result.reshape(self.array.shape)
        axes, shape = self.axes, self.shape
        if axes != (len(shape) - 1,):
            result = from_rows(result, shape, axes)
        if dtype is None:
            dtype = self.dtype
        if result.dtype != dtype:
            with np.errstate(under="ignore"):
                result = result.astype(dtype)
        if out is None:
            return result
        out[...] = result
        return out


def arrange_scores(z: Any, axis: Any, mask: Any = None, out: Any = None) -> Rows:
    """The scores of a call in rows; all arguments are checked."""
    z, dtype = as_floating(z, "z")
    axes = check_axis(z.shape, axis, "z")
    if out is not None:
        check_out(out, z, dtype)
    if mask is not None:
        mask = mask_in_rows(check_mask(mask, z, "z"), z.shape, axes)
    return Rows(to_rows(z, axes), mask, z.shape, axes, dtype)


def arrange_probabilities(
    p: Any, v: Any, axis: Any, mask: Any = None, direction: str = ""
) -> tuple[Rows, Any]:
    """Probabilities p and a direction v in rows, both 0 where masked.

    Off the support v plays no part, so masked entries may hold anything. `direction` is the name of
    v, for errors; without it there is no v.
    """
    p, dtype = as_floating(p, "p")
    shape = p.shape
    axes = check_axis(shape, axis, "p")
    if direction:
        p, v, dtype = in_one_dtype(p, v, direction, dtype)
    if mask is not None:
        mask = mask_in_rows(check_mask(mask, p, "p"), shape, axes)
    p, v = to_rows(p, axes), to_rows(v, axes) if direction else None
    if mask is not None:
        p, v = np.where(mask, p, 0), np.where(mask, v, 0) if direction else None
    return Rows(p, mask, shape, axes, dtype), v


def in_one_dtype(p: Any, v: Any, name: str, dtype: Any) -> tuple[Any, Any, Any]:
    """p and a direction v of its shape in one dtype, and the dtype to return."""
    v, other = as_floating(v, name)
    v = on_device_of(v, p, name)
    check_same_shape(v.shape, name, p.shape)
    if (v.dtype, other) != (p.dtype, dtype):
        dtype, compute = np.promote_types(dtype, other), np.promote_types(p.dtype, v.dtype)
        p, v = p.astype(compute, copy=False), v.astype(compute, copy=False)
    return p, v, dtype


@np.errstate(under="ignore")
def apply_to_scores(
    body: Callable[..., Any],
    rows: Rows,
    parameter: Any = None,
    value: Any = None,
    *,
    empty_value: float = 0,
) -> Any:
    """The result of a body for arranged scores.

    Parameters
    ----------
    body : callable
        of scores of shape (n, d), −∞ where masked, and the parameter as a column
    rows : Rows
    parameter, value : Parameter, optional, and what its `for_scores` returned
    empty_value : float
        the result in a row with nothing left; of a keep-set True, in a row with a NaN or +∞

    On a device, where an invalid value is not an error, its row becomes NaN.
    """
    z = rows.array
    shifted = parameter is None or parameter.shifted
    scores, top = masked_scores(z, rows.mask, shifted=shifted)
    columns = () if parameter is None else (parameter.body_operand(value, rows.batch),)
    p = body(scores.reshape(-1, scores.shape[-1]), *columns).reshape(z.shape)
    if p.dtype == np.bool_:  # a support, or a keep-set
        if not empty_value:
            return p & np.isfinite(top)
        return (p | ~np.isfinite(top)) & live_entries(z, rows.mask)
    if not all_finite(top):
        instead = np.where(top == -np.inf, empty_value, np.nan).astype(p.dtype)
        p = np.where(np.isfinite(top), p, instead)
    if parameter is not None and not isinstance(z, np.ndarray):
        p = np.where(parameter.invalid_rows(value)[..., None], np.nan, p).astype(
            p.dtype, copy=False
        )
    return p


def masked_scores(z: Any, mask: Any, *, shifted: bool = True) -> tuple[Any, Any]:
    """Scores with −∞ where the mask is False, less each row's largest; and the largest.

    A row with nothing left and a row with a NaN or +∞ have no maximum to subtract. They stand as
    zeros here, so that the mathematics needs no special case. Scores that are not `shifted` are as
    they came otherwise.
    """
    if mask is not None:
        z = np.where(mask, z, -np.inf)
    # Sums over the last axis are pairwise, hence accurate, only where it is contiguous.
    z = z if z.flags.c_contiguous else z.copy(order="C")
    top = np.max(z, axis=-1, keepdims=True)
    if all_finite(top):
        if not shifted:
            return z, top
        with np.errstate(over="ignore"):
            return z - top, top
    sound = np.isfinite(top)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(sound, z - np.where(sound & shifted, top, 0), 0), top


def all_finite(top: Any) -> bool:
    """Whether all are finite; False on a device, where asking would synchronise."""
    return isinstance(top, np.ndarray) and bool(np.logical_and.reduce(np.isfinite(top), axis=None))


def live_entries(z: Any, mask: Any) -> Any:
    """Where an entry may get probability: unmasked, and of a score that is not −∞."""
    live = z != -np.inf
    return live if mask is None else live & mask


def writable_rows(out: Any, like: Rows) -> Any:
    """``out`` in rows where a kernel can write its result straight to it, or None."""
    if type(out) is not np.ndarray or not out.dtype == like.dtype == like.array.dtype:
        return None
    rows = to_rows(out, like.axes)
    # Flattening several axes may copy.
    return rows if len(like.axes) == 1 or np.may_share_memory(rows, out) else None


@functools.lru_cache(maxsize=1024)
def all_true(d: int) -> Any:
    """A mask for kernels that lets all entries of a row pass, without memory of its length."""
    return np.broadcast_to(np.True_, (d,))


def check_axis(shape: tuple[int, ...], axis: Any, name: str) -> Axes:
    """The axes that make up a row, non-negative; None means all of them."""
    count = len(shape)
    if type(axis) is int and -count <= axis < count and shape[axis]:
        return (axis % count,)
    if not shape:
        raise ValueError(f"{name} is 0-dimensional; a row of at least one score is expected")
    try:
        axes: Axes = (
            tuple(range(count)) if axis is None else normalize_axis_tuple(axis, count, "axis")
        )
    except TypeError:
        raise TypeError(f"axis must be an int, a tuple of int or None, got {axis!r}") from None
    if not axes or not math.prod(shape[a] for a in axes):
        raise ValueError(
            f"{name} of shape {shape} has no entry along axis {axis}; at least one is expected"
        )
    return axes


def check_same_shape(shape: tuple[int, ...], name: str, expected: tuple[int, ...]) -> None:
    """Refuse an array that does not have the shape of the probabilities p."""
    if shape != expected:
        raise ValueError(f"{name} must have the shape of p, {expected}, got {shape}")


def check_one_axis(axes: Axes) -> None:
    """Refuse the entries of several axes, which have no order."""
    if len(axes) > 1:
        raise ValueError(
            f"axis must be one axis, since the scores of a row need an order here, got {axes}; "
            "move the entries of several axes into one in the order that is meant"
        )


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of the one shape broadcasts to the other.

    >>> broadcasts((3, 1), (2, 3, 4)), broadcasts((2, 3), (3,))
    (True, False)
    """
    if shape == to:
        return True
    return len(shape) <= len(to) and all(
        n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False)
    )


def check_mask(mask: Any, like: Any, name: str) -> Any:
    """A mask that broadcasts to the array `like`, which the caller calls `name`."""
    if type(mask) is not np.ndarray or mask.dtype != np.bool_ or type(like) is not np.ndarray:
        mask = on_device_of(as_mask(mask, "where a score may get probability"), like, "mask")
    if not broadcasts(mask.shape, like.shape):
        raise ValueError(
            f"mask of shape {mask.shape} does not broadcast to {name}, of shape {like.shape}"
        )
    return mask


def as_mask(mask: Any, true: str) -> Any:
    """The mask as a plain bool array; `true` tells the caller what True stands for."""
    if is_masked(mask):
        raise TypeError(f"mask is a numpy.ma array; pass a plain one, True {true}")
    mask = as_array(mask, "mask")
    if mask.dtype != np.bool_:
        raise TypeError(
            f"mask must be boolean, True {true}, got dtype {mask.dtype}; of an additive mask pass "
            "mask == 0, or add it to the scores"
        )
    return mask


def mask_in_rows(mask: Any, shape: tuple[int, ...], axes: Axes) -> Any:
    """A mask that broadcasts to an array of that shape in rows, uncopied; its rows are whole."""
    if axes == (len(shape) - 1,):
        if mask.ndim and mask.shape[-1] == shape[-1]:
            return mask
        return np.broadcast_to(mask, shape)
    return to_rows(mask if mask.shape == shape else np.broadcast_to(mask, shape), axes)


def check_out(out: Any, z: Any, dtype: np.dtype[Any], name: str = "z") -> None:
    """Raise unless ``out`` is None, or a result of z's shape and of that dtype fits into it."""
    if out is None:
        return
    if type(out) is not np.ndarray:
        if not hasattr(out, "__array_function__"):
            raise TypeError(f"out must be an array to write to, got {type(out).__name__}")
        if is_masked(out):
            raise TypeError(
                "out is a numpy.ma array; pass a plain array to write to, such as out.data"
            )
    if out.shape != z.shape:
        raise ValueError(f"out must have the shape of {name}, {z.shape}, got {out.shape}")
    on_device_of(out, z, "out")
    if out.dtype != dtype and not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(f"out of dtype {out.dtype} cannot hold the result, of dtype {dtype}")
    if not getattr(getattr(out, "flags", None), "writeable", True):
        raise ValueError("out is read-only; pass an array that can be written to")


def to_rows(array: Any, axes: Axes) -> Any:
    """Move the axes to the end and flatten them into one; a view where there is one axis."""
    if axes == (array.ndim - 1,):
        return array
    moved = array.transpose(_order(array.ndim, axes))
    if len(axes) == 1:
        return moved
    batch = array.ndim - len(axes)
    return moved.reshape(*moved.shape[:batch], math.prod(moved.shape[batch:]))


def from_rows(rows: Any, shape: tuple[int, ...], axes: Axes) -> Any:
    """Undo `to_rows`."""
    if axes == (len(shape) - 1,):
        return rows
    if len(axes) > 1:
        rows = rows.reshape(rows.shape[:-1] + tuple(shape[a] for a in axes))
    return rows.transpose(_inverse_order(len(shape), axes))


@functools.lru_cache(maxsize=256)
def _order(count: int, axes: Axes) -> tuple[int, ...]:
    return (*(a for a in range(count) if a not in axes), *axes)


@functools.lru_cache(maxsize=256)
def _inverse_order(count: int, axes: Axes) -> tuple[int, ...]:
    order = _order(count, axes)
    return tuple(order.index(a) for a in range(count))


def reduce_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum over what broadcasting from `shape` to the array's shape repeated: its transpose."""
    if not shape:
        return array.sum()
    extra = tuple(range(array.ndim - len(shape)))
    stretched = tuple(
        len(extra) + i for i, n in enumerate(shape) if n == 1 and array.shape[len(extra) + i] != 1
    )
    if extra or stretched:
        array = array.sum(axis=extra + stretched, keepdims=True)
    return array.reshape(shape)
