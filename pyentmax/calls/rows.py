"""Arrays in rows along the last axis: how a call's arguments get there, and its result back.

A mapping's body works on a two-dimensional array, a row of scores or probabilities after the other.
`ScoreRows` checks the scores, axis, mask and ``out`` of a call, arranges them like that, and puts
the result back into the caller's shape, dtype and ``out``. `ProbabilityRows` does the same for what
a derivative takes: probabilities p, and a direction v.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pyentmax.calls.devices import beside
from pyentmax.calls.dtypes import as_floating, is_masked, kind_of_masked
from pyentmax.calls.lazy import (
    broadcast_to,
    check_known,
    chunk_type,
    is_lazy,
    reshaped,
    without_empty_chunks,
)

# A mask that lets everything through, at stride 0: a slice of it costs no memory at any length.
EVERYTHING = np.broadcast_to(np.True_, (1 << 40,))
KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


class ScoreRows:
    """Scores z of one call, arranged in rows along the last axis.

    `dead` is what the result has in a row with nothing left.

    Attributes
    ----------
    z : array, shape batch + (d,)
        the scores as they came, in the dtype to compute in
    mask : bool array like z, or None
    batch : tuple of int
        shape of z without the axis; parameters broadcast against it
    shape, axes : tuple of int
        the caller's shape, and which of its axes form a row
    on_host : bool
        a NumPy array, so that looking at values costs no synchronisation
    kernel_ready : bool
        on the host, or going to be, and of a dtype that compiled kernels take
    wrong : bool array of shape batch, or None
        rows whose parameters turn out to be invalid where nobody may look: they become NaN
    """

    __slots__ = (
        "_answer",
        "_dead",
        "_out",
        "_target",
        "_top",
        "axes",
        "batch",
        "kernel_ready",
        "mask",
        "on_host",
        "shape",
        "wrong",
        "z",
    )

    def __init__(
        self, z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None, dead: float = 0
    ) -> None:
        z, self._answer = as_floating(z, "z")
        self.shape, self.axes = z.shape, check_axis(z.shape, axis, "z")
        check_known(z, "z", self.axes if mask is None and len(self.axes) == 1 else None)
        self._out = check_out(out, z, self._answer)
        self.on_host = isinstance(z, np.ndarray)
        self.kernel_ready = isinstance(chunk_type(z), np.ndarray) and z.dtype in KERNEL_DTYPES
        self.z = to_rows(z, self.axes)
        self.batch = self.z.shape[:-1]
        self.mask = None if mask is None else to_rows(check_mask(mask, z, "z"), self.axes)
        self.wrong: Any = None
        self._dead = dead
        self._target: Any = None
        self._top: Any = None

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: the scores and the mask, both uncopied."""
        return self.z, EVERYTHING[: self.z.shape[-1]] if self.mask is None else self.mask

    def target(self) -> Any:
        """``out`` in rows, where a kernel can write the result straight to it; else None."""
        if type(self._out) is np.ndarray and self._out.dtype == self.z.dtype == self._answer:
            rows = to_rows(self._out, self.axes)
            if np.may_share_memory(rows, self._out):  # not where flattening several axes copied
                self._target = rows
        return self._target

    def scores(self, *, shifted: bool = True) -> Any:
        """Scores with −∞ where the mask is False, of shape batch + (d,), less each row's largest.

        A row with nothing left and a row with a NaN or +∞ have no maximum to subtract. They stand
        as zeros here, so that the mathematics needs no special case; `restore` mends them. Scores
        that are not `shifted` are as they came, apart from that.
        """
        if is_lazy(self.z):
            raise TypeError(
                "scores in a lazy Dask array need a function that has a compiled kernel "
                "(pyentmax.show_config() lists them) and a dtype that it takes, here "
                f"{self.z.dtype}; map any other over chunks that hold whole rows, as in "
                "dask.array.map_blocks(function, z, dtype=z.dtype)"
            )
        z = self.z if self.mask is None else np.where(self.mask, self.z, -np.inf)
        # Sums over the last axis are pairwise, hence accurate, only where it is contiguous.
        z = z if z.flags.c_contiguous else z.copy(order="C")
        self._top = np.max(z, axis=-1, keepdims=True)
        with np.errstate(over="ignore", invalid="ignore"):
            if not self._has_broken_rows():
                return z - self._top if shifted else z
            sound = np.isfinite(self._top)
            return np.where(sound, z - np.where(sound & shifted, self._top, 0), 0)

    def live(self) -> Any:
        """Where an entry may get probability: unmasked, and of a score that is not −∞."""
        live = self.z != -np.inf
        return live if self.mask is None else live & self.mask

    def dead(self) -> Any:
        """Rows with nothing left, shape batch; after `scores`."""
        return (self._top == -np.inf)[..., 0]

    def sound(self) -> Any:
        """Rows with a finite largest score, shape batch + (1,); after `scores`."""
        return np.isfinite(self._top)

    def restore(self, p: Any) -> Any:
        """p in the caller's shape, dtype and ``out``; NaN, or `dead`, in rows without a maximum."""
        if p is self._target is not None:
            return self._out
        if p.ndim != self.z.ndim:
            p = p.reshape(self.z.shape)
        if self._top is not None and self._has_broken_rows():
            instead = np.where(self._top == -np.inf, self._dead, np.nan).astype(p.dtype)
            p = np.where(np.isfinite(self._top), p, instead)
        if self.wrong is not None:
            p = np.where(self.wrong[..., None], np.nan, p).astype(p.dtype, copy=False)
        p = self.in_callers_form(p)
        if self._out is None:
            return p
        self._out[...] = p
        return self._out

    def restore_support(self, support: Any) -> Any:
        """A bool array in the caller's shape; False in the rows without maximum."""
        support = support.reshape(self.z.shape) & np.isfinite(self._top)
        return from_rows(support, self.shape, self.axes)

    def in_callers_form(self, rows: Any) -> Any:
        """Rows of scores or of their derivatives in the caller's shape and dtype."""
        return from_rows(rows, self.shape, self.axes).astype(self._answer, copy=False)

    def in_callers_dtype(self, values: Any) -> Any:
        """Values of shape batch, or their sum, in the caller's dtype."""
        return values.astype(self._answer, copy=False)

    def from_caller(self, array: Any) -> Any:
        """An array of the caller's shape (a target distribution, say) arranged like the scores."""
        return to_rows(array, self.axes)

    def _has_broken_rows(self) -> bool:
        # Asking a device array would synchronise: assume the worst there.
        return not (self.on_host and bool(np.isfinite(self._top).all()))


class ProbabilityRows:
    """Probabilities p and a direction v of one call of a derivative, arranged in rows.

    Off the support v plays no part, so masked entries may hold anything. A derivative that takes p
    `alone` has p for v; errors call v what the caller calls it, `direction`.

    Attributes
    ----------
    p, v : arrays of shape batch + (d,), in the dtype to compute in
    mask : bool array like p, or None
    precision : dtype
        that p came in
    batch, shape, axes, kernel_ready : as in `ScoreRows`
    """

    __slots__ = (
        "_answer",
        "axes",
        "batch",
        "kernel_ready",
        "mask",
        "p",
        "precision",
        "shape",
        "v",
    )

    def __init__(
        self,
        p: Any,
        v: Any,
        axis: Any = -1,
        *,
        mask: Any = None,
        alone: bool = False,
        direction: str = "v",
    ) -> None:
        p, self.precision = as_floating(p, "p")
        v, answer = (p, self.precision) if alone else as_floating(v, direction)
        v = beside(v, p, direction)
        self._answer = np.promote_types(self.precision, answer)
        compute = np.promote_types(p.dtype, v.dtype)
        p, v = p.astype(compute, copy=False), v.astype(compute, copy=False)
        self.shape, self.axes = p.shape, check_axis(p.shape, axis, "p")
        everything = not alone or mask is not None or len(self.axes) > 1
        check_known(p, "p", None if everything else self.axes)
        if not alone:
            check_known(v, direction)
            if p.shape != v.shape:
                raise ValueError(f"{direction} must have the shape of p, {p.shape}, got {v.shape}")
        self.kernel_ready = isinstance(chunk_type(p), np.ndarray) and p.dtype in KERNEL_DTYPES
        if mask is not None:
            mask = check_mask(mask, p, "p")
            p, v = np.where(mask, p, 0), np.where(mask, v, 0)
        self.p, self.v = to_rows(p, self.axes), to_rows(v, self.axes)
        self.mask = None if mask is None else to_rows(mask, self.axes)
        self.batch = self.p.shape[:-1]

    def entries(self, rows: Any) -> Any:
        """What a derivative gives for each entry, in the caller's shape and dtype."""
        return self.in_callers_dtype(self.in_callers_shape(rows))

    def in_callers_shape(self, rows: Any) -> Any:
        """The same in the dtype computed in, for sums that the caller's would not hold."""
        return from_rows(unflattened(rows, self.p.shape), self.shape, self.axes)

    def in_callers_dtype(self, values: Any) -> Any:
        """Values of any shape, or their sum, in the caller's dtype."""
        return values.astype(self._answer, copy=False)


def check_axis(shape: tuple[int, ...], axis: Any, name: str) -> tuple[int, ...]:
    """The axes that make up a row, non-negative; None means all of them."""
    if not shape:
        raise ValueError(f"{name} is 0-dimensional; a row of at least one score is expected")
    everything = tuple(range(len(shape)))
    try:
        axes: tuple[int, ...] = normalize_axis_tuple(
            everything if axis is None else axis, len(shape), "axis"
        )
    except TypeError:
        raise TypeError(f"axis must be an int, a tuple of int or None, got {axis!r}") from None
    if not axes or not math.prod(shape[a] for a in axes):
        raise ValueError(
            f"{name} of shape {shape} has no entry along axis {axis}; at least one is expected"
        )
    return axes


def check_mask(mask: Any, z: Any, name: str) -> Any:
    """The mask, broadcast to z without a copy."""
    mask = as_mask(mask, "where a score may get probability")
    mask = beside(mask, z, "mask")
    check_known(mask, "mask")
    try:
        return broadcast_to(without_empty_chunks(mask), z)
    except ValueError:
        raise ValueError(
            f"mask of shape {mask.shape} does not broadcast to {name}, of shape {z.shape}"
        ) from None


def as_mask(mask: Any, true: str) -> Any:
    """The mask as a plain bool array; `true` tells the caller what True stands for."""
    if is_masked(mask):
        raise TypeError(f"mask is {kind_of_masked(mask)}; pass a plain one, True {true}")
    if not hasattr(mask, "__array_function__"):
        mask = np.asarray(mask)
    if mask.dtype != np.bool_:
        raise TypeError(
            f"mask must be boolean, True {true}, got dtype {mask.dtype}; convert it with mask != 0"
        )
    return mask


def check_out(out: Any, z: Any, dtype: np.dtype[Any]) -> Any:
    """``out``, if a result of z's shape and of that dtype can be written to it."""
    if out is None:
        return None
    if is_lazy(z):
        raise TypeError(
            "out must be left out for scores in a lazy Dask array, which is computed later; "
            "dask.array.store writes a result to an array"
        )
    if not hasattr(out, "__array_function__"):
        raise TypeError(f"out must be an array to write to, got {type(out).__name__}")
    if isinstance(out, np.ma.MaskedArray):
        raise TypeError("out is a numpy.ma array; pass a plain array to write to, such as out.data")
    if out.shape != z.shape:
        raise ValueError(f"out must have the shape of z, {z.shape}, got {out.shape}")
    out = beside(out, z, "out")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(f"out of dtype {out.dtype} cannot hold the result, of dtype {dtype}")
    if not getattr(getattr(out, "flags", None), "writeable", True):
        raise ValueError("out is read-only; pass an array that can be written to")
    return out


def to_rows(array: Any, axes: tuple[int, ...]) -> Any:
    """Move the axes to the end and flatten them into one; a view where there is one axis."""
    if axes == (array.ndim - 1,):
        return array
    moved = np.moveaxis(array, axes, range(-len(axes), 0))
    if len(axes) == 1:
        return moved
    batch = moved.shape[: array.ndim - len(axes)]
    return reshaped(moved, batch + (math.prod(moved.shape[len(batch) :]),))


def from_rows(rows: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Undo `to_rows`."""
    if axes == (len(shape) - 1,):
        return rows
    moved = reshaped(rows, rows.shape[:-1] + tuple(shape[a] for a in axes))
    return np.moveaxis(moved, range(-len(axes), 0), axes)


def flattened(rows: Any) -> Any:
    """Rows of shape batch + (d,) as (n, d), in the order in which they lie in memory.

    Rows along an inner axis of the caller's array are not contiguous. They stay so: the copy, where
    one is needed, has the entries of a row as far apart as all rows are many. So the sums of a body
    run as NumPy runs them along such an axis, to the same bits.

    >>> flattened(np.ones((2, 3, 5))).shape
    (6, 5)
    """
    d = rows.shape[-1]
    if rows.ndim == 2:
        return rows
    strides = getattr(rows, "strides", None)
    if strides is None or strides[-1] <= rows.itemsize or d == 1:
        return reshaped(rows, (math.prod(rows.shape[:-1]), d))
    return np.moveaxis(rows, -1, 0).reshape(d, math.prod(rows.shape[:-1])).T


def unflattened(rows: Any, shape: tuple[int, ...]) -> Any:
    """Undo `flattened`."""
    if rows.ndim == len(shape):
        return rows
    d = shape[-1]
    strides = getattr(rows, "strides", None)
    if rows.shape[0] > 1 and strides is not None and strides[-1] > rows.itemsize:
        return np.moveaxis(rows.T.reshape((d, *shape[:-1])), 0, -1)
    return reshaped(rows, shape)


def reduce_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum over what broadcasting from `shape` to the array's shape repeated: its transpose."""
    extra = tuple(range(array.ndim - len(shape)))
    stretched = tuple(
        len(extra) + i for i, n in enumerate(shape) if n == 1 and array.shape[len(extra) + i] != 1
    )
    if extra or stretched:
        array = np.sum(array, axis=extra + stretched, keepdims=True)
    return reshaped(array, shape)
