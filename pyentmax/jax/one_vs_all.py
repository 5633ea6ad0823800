"""α-sigmoid and its losses, as α-entmax of each score and 0, which gives all their derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pyentmax.jax import namespace as xp
from pyentmax.jax.losses import loss_of
from pyentmax.jax.mappings import entmax
from pyentmax.jax.rows import as_mask, broadcast
from pyentmax.reference.composed import losses


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
    z = z if jnp.issubdtype(z.dtype, jnp.floating) else z.astype(float)
    live = _live(z, mask)
    return jnp.where(live, entmax(losses.pairs(xp, z, live), alpha)[..., 0], 0)


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
    mask = None if mask is None else _live(z, mask)[..., None]
    if jnp.ndim(alpha):
        alpha = broadcast("alpha", jnp.asarray(alpha), z.shape)[..., None]
    options = {"weight": weight, "mask": mask, "label_smoothing": label_smoothing}
    rows = z[..., None], y[..., None], alpha, -1
    return loss_of("one_vs_all", *rows, reduction=reduction, **options)


def one_vs_all_loss(z: Any, y: Any, alpha: Any = 1.5, axis: Any = -1, **options: Any) -> jax.Array:
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
    ignore_index : int, optional
        Rows with this label, or scores with this target, count nothing.

    Returns
    -------
    scalar, or array of z's shape without the axis for "none"

    Examples
    --------
    Of three labels the first and the last are right:

    >>> print(one_vs_all_loss([[2.0, -2.0, 0.0]], [[1, 0, 1]], 2))
    0.25
    """
    return loss_of("one_vs_all", z, y, alpha, axis, **options)


def _live(z: jax.Array, mask: Any) -> jax.Array:
    """The mask in the shape of the scores."""
    return broadcast("mask", as_mask(True if mask is None else mask), z.shape)
