r"""Fenchel-Young losses L(z, y) = Ω*(z) + Ω(y) − y·z, whose gradient is p − y.

The conjugate is Ω*(z) = p·z + H(p) at p = entmax(z, α), with Tsallis's entropy H of order α. Its
derivative by z is p, and by α that of H with p held fixed, since p is where the maximum lies. Both
rules are written in p, so that losses can be differentiated again.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from pyentmax.jax import namespace as xp
from pyentmax.jax.mappings import ROWS, name_for
from pyentmax.jax.rows import Rows, broadcast, promoted
from pyentmax.reference.composed import losses
from pyentmax.reference.composed.mappings import ALPHAS


def softmax_loss(z: Any, y: Any, axis: Any = -1, **options: Any) -> jax.Array:
    """Cross-entropy for labels, Kullback-Leibler divergence for distributions.

    Parameters
    ----------
    z : array
        Scores.
    y : int array of z's shape without the axis, or array of z's shape
        Labels, or distributions that sum to 1. A loss with a label out of range is NaN.
    axis : int, tuple of int or None
    reduction : {"mean", "sum", "none"}
        The mean is weighted, and over the rows that count.
    weight : array, optional
        What each row counts, broadcastable to z's shape without the axis. A negative one is NaN.
        `class_weight` has the weights of classes.
    mask : bool array, optional
        Broadcastable to z, True where an entry may get probability. A row without any counts
        nothing.
    ignore_index : int, optional
        Rows with this label count nothing.
    label_smoothing : float, default 0
        The share of the target that is spread over all unmasked entries; it may be traced.
    class_weight : array of shape (d,), optional
        The weight of each class: a row counts by that of its label, before smoothing, or by the
        mean of all under its distribution, times its `weight`.

    Returns
    -------
    scalar, or array of the labels' shape for "none"

    Examples
    --------
    >>> import numpy as np
    >>> each = softmax_loss([[1.0, 0.0], [0.0, 0.0]], [0, 1], reduction="none")
    >>> print(np.round(np.float64(each), 4))
    [0.3133 0.6931]
    """
    return loss_of("softmax", z, y, 1.0, axis, **options)


def sparsemax_loss(z: Any, y: Any, axis: Any = -1, **options: Any) -> jax.Array:
    """The sparsemax loss (Martins & Astudillo 2016): 0 from a margin of 1 on.

    Parameters and result are as for `softmax_loss`.

    Examples
    --------
    >>> print(sparsemax_loss([1.0, 0.0], 0), sparsemax_loss([0.0, 0.0], 0))
    0.0 0.25
    """
    return loss_of("sparsemax", z, y, 2.0, axis, **options)


def entmax15_loss(z: Any, y: Any, axis: Any = -1, **options: Any) -> jax.Array:
    """The 1.5-entmax loss (Peters et al. 2019, §3.2): 0 from a margin of 2 on.

    Parameters and result are as for `softmax_loss`.

    Examples
    --------
    >>> print(entmax15_loss([2.0, 0.0], 0), f"{entmax15_loss([0.0, 0.0], 0):.4f}")
    0.0 0.3905
    """
    return loss_of("entmax15", z, y, 1.5, axis, **options)


def entmax_loss(z: Any, y: Any, alpha: Any = 1.5, axis: Any = -1, **options: Any) -> jax.Array:
    """The α-entmax loss (Peters et al. 2019, §3.2): 0 from a margin of 1/(α − 1) on.

    Parameters
    ----------
    z, y, axis, reduction, weight, mask, ignore_index, label_smoothing, class_weight
        As for `softmax_loss`.
    alpha : number or array
        As for :func:`pyentmax.jax.entmax`; differentiable.

    Examples
    --------
    >>> print(f"{entmax_loss([0.0, 0.0], 0, 1.5):.4f} {entmax_loss([0.0, 0.0], 0, 2):.4f}")
    0.3905 0.2500
    """
    return loss_of("entmax", z, y, alpha, axis, **options)


def loss_of(
    name: str,
    z: Any,
    y: Any,
    alpha: Any,
    axis: Any,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: Any = 0.0,
    class_weight: Any = None,
) -> jax.Array:
    """The loss of a mapping by its name, or of "one_vs_all", whose α broadcasts to z."""
    one_vs_all = name == "one_vs_all"
    name = name_for(alpha) if one_vs_all or name == "entmax" else name
    traced = isinstance(label_smoothing, jax.core.Tracer)
    if not traced and not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing: expected a share in [0, 1], got {label_smoothing}")
    if ignore_index is not None and not _is_whole(ignore_index):
        raise TypeError(f"ignore_index: expected a whole number or None, got {ignore_index!r}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction: expected mean, sum or none, got {reduction!r}")
    rows, y = Rows(z, axis, mask), jnp.asarray(y)
    x = rows.scores
    q, counts, right = _targets(rows, y, ignore_index, class_weight, one_vs_all)
    weights = _weights(rows, q, counts, right, weight, class_weight)
    smooth = traced or label_smoothing
    if smooth:
        share = jnp.asarray(label_smoothing, x.dtype)
        share = jnp.where((share >= 0) & (share <= 1), share, jnp.nan)
        right = right & ~jnp.isnan(share)
        q = losses.smoothed(xp, q, x, share, one_vs_all=one_vs_all)
    counts = counts & (weights != 0)[..., None]  # a row of weight 0 may contain anything
    if one_vs_all:
        alpha = broadcast("alpha", jnp.asarray(alpha, x.dtype), rows.shape)
        alpha, x = rows.arranged(alpha)[..., None], losses.pairs(xp, rows.unshifted, counts)
        q, right = jnp.stack([q, 1 - q], axis=-1), right[..., None]
    else:
        alpha, counts = rows.parameter("alpha", alpha), counts[..., 0]
        x, right = jnp.where(rows.invalid, rows.unshifted, x), right & ~rows.invalid[..., 0]
    # An invalid row is NaN in all scores and in α, and so are then its derivatives.
    wrong = ~(right[..., None] & (alpha > 0) & (alpha < jnp.inf))
    wrong = jnp.where(wrong, jnp.nan, jnp.zeros_like(alpha))
    live = counts[..., None]
    x, alpha = jnp.where(live, x + wrong, 0), jnp.where(live, alpha + wrong, 2)
    label = not smooth and y.shape != rows.shape
    each = _row_loss(name, label)(x, q, alpha)
    each = jnp.where(counts, each, 0).sum(axis=-1) if one_vs_all else each
    share = losses.shares(xp, weights, reduction)
    return losses.reduced(xp, each, share, reduction).astype(rows.dtype)


def _is_whole(number: Any) -> bool:
    """Whether it is one integer; a traced one says so by its dtype."""
    is_array = isinstance(number, jax.Array)
    return jnp.issubdtype(number.dtype, jnp.integer) if is_array else hasattr(number, "__index__")


def _weights(
    rows: Rows, q: jax.Array, counts: jax.Array, right: jax.Array, weight: Any, class_weight: Any
) -> jax.Array:
    """What each row counts; NaN where that is negative."""
    weights = counts.any(axis=-1).astype(q.dtype)
    if class_weight is not None:
        classes, d = jnp.asarray(class_weight, q.dtype), q.shape[-1]
        if classes.shape != (d,):
            raise ValueError(
                f"class_weight: expected one weight for each class, shape ({d},), got "
                f"{classes.shape}; weight= has one for each row"
            )
        of_rows = losses.dot(xp, q, jnp.broadcast_to(classes, q.shape))
        of_rows = jnp.where(right, of_rows, 1)
        weights = weights * jnp.where(of_rows >= 0, of_rows, jnp.nan)
    if weight is not None:
        weight = rows.parameter("weight", weight)[..., 0]
        weights = weights * jnp.where(weight >= 0, weight, jnp.nan)
    return weights


def _targets(
    rows: Rows, y: jax.Array, ignore_index: int | None, class_weight: Any, one_vs_all: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Targets in rows, which rows count, or which scores, and which rows have a valid target."""
    labels = jnp.issubdtype(y.dtype, jnp.integer) and y.shape == rows.batch
    if not labels and y.shape != rows.shape:
        raise ValueError(
            f"y: expected integer labels of shape {rows.batch} or distributions of shape "
            f"{rows.shape}, got {y.dtype} of shape {y.shape}"
        )
    if not labels and one_vs_all and class_weight is not None:
        raise ValueError("class_weight: expected with integer labels, y holds targets")
    if not labels and not one_vs_all and ignore_index is not None:
        raise ValueError("ignore_index: expected with labels, y holds distributions; use weight=0")
    if labels:
        y = promoted(y, jnp.int32)[..., None]  # to a uint8, −100 is 156
    else:
        y = rows.arranged(y).astype(rows.scores.dtype)
    every = jnp.ones_like(rows.scores, bool) if rows.mask is None else rows.mask
    return losses.targets(
        xp,
        rows.scores,
        y,
        every if one_vs_all else ~rows.empty,
        labels=labels,
        one_vs_all=one_vs_all,
        mask=rows.mask,
        ignore_index=None if ignore_index is None else jnp.asarray(ignore_index, y.dtype),
    )


@functools.cache
def _row_loss(name: str, label: bool) -> Any:
    """The loss of each row given scores x, target and α, with the rule for its derivatives.

    That by x is p − q, since p is where the maximum of Ω* lies; by α it is that with p held fixed.
    """
    known = ALPHAS.get(name)

    def probabilities(x: jax.Array, alpha: jax.Array) -> jax.Array:
        return ROWS[name](x, *(() if known else (alpha,)))

    @jax.custom_jvp
    @jax.jit
    def row_loss(x: jax.Array, q: jax.Array, alpha: jax.Array) -> jax.Array:
        p = probabilities(x, alpha)
        return losses.each(xp, p, q, x, known or alpha, label=label)

    def rule(primals: Any, tangents: Any) -> Any:
        (x, q, alpha), (dx, *others) = primals, tangents
        p = probabilities(x, alpha)

        def rest(q: jax.Array, alpha: jax.Array) -> jax.Array:
            at_p = losses.dot(xp, q, x) + losses.omega(xp, p, known or alpha)
            return -at_p if label else losses.omega(xp, q, known or alpha) - at_p

        moved = []  # what is not differentiated is not computed
        if type(dx) is not SymbolicZero:
            moved.append(losses.dot(xp, p - q, dx))
        if any(type(d) is not SymbolicZero for d in others):
            zeros = map(jnp.zeros_like, (q, alpha))
            others = [
                o if type(d) is SymbolicZero else d for d, o in zip(others, zeros, strict=True)
            ]
            moved.append(jax.jvp(rest, (q, alpha), tuple(others))[1])
        value = row_loss(*primals)
        return value, sum(moved[1:], start=moved[0] if moved else jnp.zeros_like(value))

    row_loss.defjvp(rule, symbolic_zeros=True)
    return row_loss
