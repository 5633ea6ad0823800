"""Calls as rows: the axes, the dtype and the mask of every function here."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pyentmax.jax import namespace as xp
from pyentmax.reference.composed.mappings import shifted


class Rows:
    """The scores of a call as rows (…, d), in float32 at least, each with its maximum at 0.

    Parameters
    ----------
    z : array
        Scores; integers and bools become the default float.
    axis : int, tuple of int or None
        The axes that a distribution lies along.
    mask : bool array, optional
        Broadcastable to z, True where an entry may get probability.

    Attributes
    ----------
    scores : (…, d) array
        Masked scores are −∞. Rows with nothing left, and invalid ones, hold zeros.
    unshifted : (…, d) array
        The same without the shift, by whose rounding different scores may tie.
    mask : (…, d) bool array, or None
    batch : tuple of int
        z's shape without the axes.
    empty, invalid : (…, 1) bool arrays
        Rows with nothing left, and rows with NaN or +∞.
    """

    def __init__(self, z: Any, axis: Any, mask: Any) -> None:
        z = jnp.asarray(z)
        if jnp.issubdtype(z.dtype, jnp.complexfloating):
            raise TypeError(f"z: expected real scores, got {z.dtype}")
        if not jnp.issubdtype(z.dtype, jnp.floating):
            z = z.astype(jnp.result_type(float))
        self.shape: tuple[int, ...] = z.shape
        self.dtype: Any = z.dtype
        self._axes = checked_axes(z.shape, axis)
        self._order = [i for i in range(z.ndim) if i not in self._axes] + list(self._axes)
        self.batch: tuple[int, ...] = tuple(n for i, n in enumerate(z.shape) if i not in self._axes)
        self.length: int = math.prod(z.shape[i] for i in self._axes)
        scores = promoted(self.arranged(z), jnp.float32)
        self.mask: jax.Array | None = None
        if mask is not None:
            self.mask = self.arranged(broadcast("mask", as_mask(mask), z.shape))
            scores = jnp.where(self.mask, scores, -jnp.inf)
        self.unshifted = scores

    @cached_property
    def _shifted(self) -> Any:
        return shifted(xp, self.unshifted)

    scores = property(lambda self: self._shifted[0])
    empty = property(lambda self: self._shifted[1])
    invalid = property(lambda self: self._shifted[2])

    def arranged(self, x: jax.Array) -> jax.Array:
        """An array of z's shape as rows."""
        return x.transpose(self._order).reshape(*self.batch, self.length)

    def parameter(self, name: str, x: Any) -> jax.Array:
        """A parameter for each row, (…, 1)."""
        if isinstance(x, str):  # which JAX would parse
            raise TypeError(f"{name} must be a number or an array, got {x!r}")
        return broadcast(name, jnp.asarray(x, dtype=self.unshifted.dtype), self.batch)[..., None]

    def restored(self, p: jax.Array) -> jax.Array:
        """Rows of a result in z's shape and dtype."""
        shape = (*self.batch, *(self.shape[i] for i in self._axes))
        return p.astype(self.dtype).reshape(shape).transpose(np.argsort(self._order))


def promoted(x: jax.Array, least: Any) -> jax.Array:
    """The array in a dtype that holds its own and another; explicit, for strict promotion."""
    return x.astype(jax.dtypes.canonicalize_dtype(np.promote_types(x.dtype, least)))


def places(shape: tuple[int, ...], dtype: Any, axis: int = -1) -> jax.Array:
    """0, 1, … along an axis, as an array of a shape, which may be symbolic."""
    return jax.lax.broadcasted_iota(dtype, shape, axis % len(shape))


def as_mask(mask: Any) -> jax.Array:
    """A mask as an array, which has to be of bools."""
    mask = jnp.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask: expected a bool array, got {mask.dtype}; convert it with mask != 0")
    return mask


def checked_axes(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    if not shape:
        raise ValueError("z is 0-dimensional; a row of at least one score is expected")
    try:
        axes = normalize_axis_tuple(range(len(shape)) if axis is None else axis, len(shape), "axis")
    except TypeError:
        raise TypeError(f"axis must be an int, a tuple of int or None, got {axis!r}") from None
    if 0 in (shape[i] for i in axes):
        raise ValueError(f"z has no scores along axis {axis}; at least one is expected")
    return axes


def broadcast(name: str, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The array in a shape; a ValueError that names it if it does not fit."""
    try:
        return jnp.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(
            f"{name}: expected a shape that broadcasts to {shape}, got {x.shape}"
        ) from None
