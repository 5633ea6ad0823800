"""α-sigmoid and its losses, as α-entmax of each score and 0, which gives all their derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pyentmax.jax.losses import checked_weight, entmax_loss, reduced, widened
from pyentmax.jax.mappings import entmax

_REDUCTIONS = ("mean", "sum", "none")


def entmax_sigmoid(z: Any, alpha: Any = 1.5, *, mask: Any = None) -> jax.Array:
    """α-sigmoid of each score, as :func:`pyentmax.entmax_sigmoid`: [z, 0] by α-entmax, its first.

    Parameters
    ----------
    z : array
        Scores, of any shape.
    alpha : number or array
        Broadcastable to z; differentiable. A value below 1 makes NaN.
    mask : bool array, optional
        Broadcastable to z; 0 stands where it is False.

    Returns
    -------
    array of z's shape

    Examples
    --------
    >>> print(entmax_sigmoid([-3.0, 0.0, 1.0], 2))
    [0.  0.5 1. ]
    """
    z = jnp.asarray(z)
    p = entmax(_pairs(z, mask), alpha)[..., 0]
    return p if mask is None else jnp.where(jnp.asarray(mask), p, 0)


def entmax_sigmoid_loss(
    z: Any,
    y: Any,
    alpha: Any = 1.5,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    label_smoothing: float = 0.0,
) -> jax.Array:
    """The loss of `entmax_sigmoid`, as :func:`pyentmax.entmax_sigmoid_loss`.

    Parameters
    ----------
    z, y : arrays of one shape
        Scores, and for each 0, 1, a bool, or a probability. A loss with another target is NaN.
    alpha : number or array
        Broadcastable to z; differentiable.
    reduction : {"mean", "sum", "none"}
        The mean is weighted, and over the scores that count.
    weight, mask : arrays, optional
        The weight of each score; True where a score counts.
    label_smoothing : float, default 0
        The share of the target that is spread over 0 and 1.

    Returns
    -------
    scalar, or array of z's shape for "none"

    Examples
    --------
    >>> print(entmax_sigmoid_loss([2.0, 0.0], [1, 1], 2, reduction="none"))
    [0.   0.25]
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction: expected one of {_REDUCTIONS}, got {reduction!r}")
    z, y = jnp.asarray(z), jnp.asarray(y)
    if y.shape != z.shape:
        raise ValueError(f"y: expected targets of shape {z.shape}, got shape {y.shape}")
    live = jnp.ones(z.shape, bool) if mask is None else jnp.broadcast_to(jnp.asarray(mask), z.shape)
    pairs = _pairs(z, live)
    y = jnp.where(live, y.astype(pairs.dtype), 0)
    both = jnp.stack([y, 1 - y], axis=-1)
    counts = live.astype(pairs.dtype) * (1 if weight is None else jnp.asarray(weight))
    options = {"weight": counts, "label_smoothing": label_smoothing}
    return entmax_loss(pairs, both, alpha, reduction=reduction, **options)


def one_vs_all_loss(
    z: Any, y: Any, alpha: Any = 1.5, axis: int = -1, *, reduction: str = "mean", **options: Any
) -> jax.Array:
    """Σ over the classes of `entmax_sigmoid_loss`, as :func:`pyentmax.one_vs_all_loss`.

    Parameters
    ----------
    z : array
        Scores.
    y : int array of z's shape without the axis, or array of z's shape
        Labels, or for each class 0, 1, a bool, or a probability.
    alpha : number or array
        Broadcastable to z; differentiable.
    axis : int
        Of the classes.
    reduction : {"mean", "sum", "none"}
        Over the rows; the mean is weighted, and over the rows that count.
    weight : array, optional
        The weight of each row, of z's shape without the axis.
    mask, label_smoothing
        As in `entmax_sigmoid_loss`; a row without a score that counts has no weight.

    Returns
    -------
    scalar, or array of z's shape without the axis for "none"

    Examples
    --------
    Of three labels the first and the last are right:

    >>> print(one_vs_all_loss([[2.0, -2.0, 0.0]], [[1, 0, 1]], 2))
    0.25
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction: expected one of {_REDUCTIONS}, got {reduction!r}")
    weight, mask = options.pop("weight", None), options.pop("mask", None)
    z, y = _floating(z), jnp.asarray(y)
    dtype = z.dtype
    z = z.astype(jnp.promote_types(dtype, jnp.float32))  # sums may be beyond float16
    if y.ndim == z.ndim - 1 and jnp.issubdtype(y.dtype, jnp.integer):
        y = widened(y)
        right = (y >= 0) & (y < z.shape[axis])
        y = jax.nn.one_hot(y, z.shape[axis], axis=axis)
        y = jnp.where(jnp.expand_dims(right, axis), y, jnp.nan)
    if weight is not None:  # a row of weight 0 may contain anything
        weight = checked_weight(jnp.asarray(weight))
        counted = jnp.broadcast_to(weight != 0, z.sum(axis).shape)
        counted = counted.reshape(z.sum(axis, keepdims=True).shape)
        mask = counted & (True if mask is None else jnp.asarray(mask))
    each = entmax_sigmoid_loss(z, y, alpha, reduction="none", mask=mask, **options).sum(axis)
    live = True if mask is None else jnp.broadcast_to(jnp.asarray(mask), z.shape).any(axis)
    counts = jnp.broadcast_to(live, each.shape).astype(each.dtype)
    if weight is not None:
        counts = counts * weight
    return reduced(each, counts, reduction).astype(dtype)


def _floating(z: Any) -> jax.Array:
    z = jnp.asarray(z)
    return z if jnp.issubdtype(z.dtype, jnp.floating) else z.astype(float)


def _pairs(z: jax.Array, live: Any) -> jax.Array:
    """Each score next to a 0, shifted so that the larger is 0; 0 where it does not count."""
    z = _floating(z)
    z = z if live is None else jnp.where(jnp.asarray(live), z, 0)
    return jnp.minimum(jnp.stack([z, -z], axis=-1), 0)  # at most 0, +∞ too
