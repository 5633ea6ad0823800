"""α-sigmoid and its losses, as α-entmax of each score and 0, which gives all their derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pyentmax.jax.losses import checked_weight, class_weights, entmax_loss, reduced
from pyentmax.jax.mappings import entmax
from pyentmax.jax.rows import as_mask, broadcast, checked_axes, one_hot, promoted


def entmax_sigmoid(z: Any, alpha: Any = 1.5, *, mask: Any = None) -> jax.Array:
    """α-sigmoid of each score, as :func:`pyentmax.entmax_sigmoid`: [z, 0] by α-entmax, its first.

    Parameters
    ----------
    z : array
        Scores, of any shape.
    alpha : number or array
        Broadcastable to z; differentiable. A value not above 0 makes NaN.
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
    live = _live(z, mask)
    return jnp.where(live, entmax(_pairs(z, live), alpha)[..., 0], 0)


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
    z, y = jnp.asarray(z), jnp.asarray(y)
    if y.shape != z.shape:
        raise ValueError(f"y: expected targets of shape {z.shape}, got shape {y.shape}")
    live = _live(z, mask)
    pairs = _pairs(z, live)
    y = jnp.where(live, y.astype(pairs.dtype), 0)
    both = jnp.stack([y, 1 - y], axis=-1)
    counts = live.astype(pairs.dtype)
    if weight is not None:
        counts = counts * broadcast("weight", jnp.asarray(weight, pairs.dtype), z.shape)
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
    class_weight : array of shape (d,), optional
        The weight of each class, for labels.
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
    weight, mask = options.pop("weight", None), options.pop("mask", None)
    z, y = _floating(z), jnp.asarray(y)
    dtype = z.dtype
    z = promoted(z, jnp.float32)  # sums may be beyond float16
    axes, target = checked_axes(z.shape, axis), None
    if y.ndim == z.ndim - 1 and jnp.issubdtype(y.dtype, jnp.integer):
        target = one_hot(promoted(y, jnp.int32), z.shape, axis)
        y = jnp.where(target.any(axis=axis, keepdims=True), target.astype(z.dtype), jnp.nan)
    classes = options.pop("class_weight", None)
    counts = jnp.ones([n for i, n in enumerate(z.shape) if i not in axes], z.dtype)
    if weight is not None:
        weight = broadcast("weight", jnp.asarray(weight, z.dtype), counts.shape)
        counts = checked_weight(weight)
    if classes is not None:
        if target is None:
            raise ValueError("class_weight: expected with integer labels, y holds targets")
        classes = class_weights(classes, z.shape[axis], z.dtype)
        of_rows = jnp.moveaxis(target, axis, -1).astype(z.dtype) @ classes
        counts = counts * checked_weight(jnp.where(target.any(axis=axis), of_rows, 1))
    # A row of weight 0 may contain anything.
    live = _live(z, mask) & jnp.expand_dims(counts != 0, axes)
    each = entmax_sigmoid_loss(z, y, alpha, reduction="none", mask=live, **options).sum(axis)
    return reduced(each, jnp.where(live.any(axis), counts, 0), reduction).astype(dtype)


def _floating(z: Any) -> jax.Array:
    z = jnp.asarray(z)
    return z if jnp.issubdtype(z.dtype, jnp.floating) else z.astype(float)


def _live(z: jax.Array, mask: Any) -> jax.Array:
    """The mask in the shape of the scores."""
    return broadcast("mask", as_mask(True if mask is None else mask), z.shape)


def _pairs(z: jax.Array, live: jax.Array) -> jax.Array:
    """Each score next to a 0, shifted so that the larger is 0; 0 where it does not count."""
    z = jnp.where(live, _floating(z), 0)
    return jnp.minimum(jnp.stack([z, -z], axis=-1), 0)  # at most 0, +∞ too
