r"""Fenchel-Young losses L(z, y) = Ω*(z) + Ω(y) − y·z, whose gradient is p − y.

The conjugate is Ω*(z) = p·z + H(p) at p = entmax(z, α), with Tsallis's entropy H of order α. Its
derivative by z is p, and by α that of H with p held fixed, since p is where the maximum lies. Both
rules are written in p, so that losses can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pyentmax.jax.mappings import entmax15_rows, entmax_rows, softmax_rows, sparsemax_rows
from pyentmax.jax.powers import decrease
from pyentmax.jax.rows import Rows, one_hot, promoted

_LARGE = 2.0**60  # weights beyond it, or below its inverse, are scaled by it
_NEARLY_ALL = 0.75  # at most one probability of a row is above
_SUM_TOLERANCE = 4e-3  # of distributions: bfloat16 rounds them by up to 2⁻⁸ of themselves


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
    return _loss(_conjugate(softmax_rows), z, y, 1.0, axis, **options)


def sparsemax_loss(z: Any, y: Any, axis: Any = -1, **options: Any) -> jax.Array:
    """The sparsemax loss (Martins & Astudillo 2016): 0 from a margin of 1 on.

    Parameters and result are as for `softmax_loss`.

    Examples
    --------
    >>> print(sparsemax_loss([1.0, 0.0], 0), sparsemax_loss([0.0, 0.0], 0))
    0.0 0.25
    """
    return _loss(_conjugate(sparsemax_rows), z, y, 2.0, axis, **options)


def entmax15_loss(z: Any, y: Any, axis: Any = -1, **options: Any) -> jax.Array:
    """The 1.5-entmax loss (Peters et al. 2019, §3.2): 0 from a margin of 2 on.

    Parameters and result are as for `softmax_loss`.

    Examples
    --------
    >>> print(entmax15_loss([2.0, 0.0], 0), f"{entmax15_loss([0.0, 0.0], 0):.4f}")
    0.0 0.3905
    """
    return _loss(_conjugate(entmax15_rows), z, y, 1.5, axis, **options)


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
    return _loss(_conjugate(entmax_rows, learned=True), z, y, alpha, axis, **options)


def _loss(
    conjugate: Callable[..., jax.Array],
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
    traced = isinstance(label_smoothing, jax.core.Tracer)
    if not traced and not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing: expected a share in [0, 1], got {label_smoothing}")
    if ignore_index is not None and not _is_whole(ignore_index):
        raise TypeError(f"ignore_index: expected a whole number or None, got {ignore_index!r}")
    rows = Rows(z, axis, mask)
    x, alpha = rows.scores, rows.alpha(alpha)
    y, counts, right = _targets(rows, jnp.asarray(y), ignore_index)
    if class_weight is not None:
        classes = class_weights(class_weight, x.shape[-1], x.dtype)
        of_rows = jnp.where(y == 0, 0, y * classes).sum(axis=-1)
        counts = counts * checked_weight(jnp.where(right, of_rows, 1))
    if weight is not None:
        weight = rows.parameter("weight", weight)[..., 0]
        counts = counts * checked_weight(weight)
    alpha = jnp.where(counts[..., None] != 0, alpha, 2)  # a row of weight 0 may contain anything
    if traced or label_smoothing:
        share = jnp.asarray(label_smoothing, x.dtype)
        share = jnp.where((share >= 0) & (share <= 1), share, jnp.nan)
        allowed = (x > -jnp.inf).astype(x.dtype)
        spread = allowed / allowed.sum(axis=-1, keepdims=True)
        y = (1 - share) * y + share * spread
        right = right & ~jnp.isnan(share)
    dot = jnp.where(y > 0, y * jnp.where(y > 0, x, 0), 0).sum(axis=-1)
    each = conjugate(x, alpha) - dot - _tsallis(y, alpha)
    # Below 0 is rounding; a derivative must not end there, so the value alone is lifted.
    each = each + jax.lax.stop_gradient(jnp.where(each < 0, -each, 0))
    wrong = (rows.invalid[..., 0] | ~right) & (counts != 0)
    each = jnp.where(wrong, rows.nan_rows(wrong[..., None], alpha).sum(axis=-1), each)
    return reduced(each, counts, reduction).astype(rows.dtype)


def _is_whole(number: Any) -> bool:
    """Whether it is one integer; a traced one says so by its dtype."""
    is_array = isinstance(number, jax.Array)
    return jnp.issubdtype(number.dtype, jnp.integer) if is_array else hasattr(number, "__index__")


def class_weights(weight: Any, d: int, dtype: Any) -> jax.Array:
    """The weight of each class; a ValueError unless there are d."""
    weight = jnp.asarray(weight, dtype)
    if weight.shape != (d,):
        raise ValueError(
            f"class_weight: expected one weight for each class, shape ({d},), got {weight.shape}; "
            "weight= has one for each row"
        )
    return weight


def checked_weight(weight: jax.Array) -> jax.Array:
    """NaN where a weight is negative."""
    return jnp.where(weight >= 0, weight, jnp.nan)


def reduced(each: jax.Array, counts: jax.Array, reduction: str) -> jax.Array:
    """Losses times their weights, reduced; those of weight 0 may be anything."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction: expected mean, sum or none, got {reduction!r}")
    if reduction == "mean":  # for which only the ratios count: no sum of them overflows
        largest = jnp.max(counts, initial=0)
        # Not divided by the largest, whose reciprocal XLA may take, and flush to 0 if it is tiny.
        scale = jnp.where(largest > _LARGE, 1 / _LARGE, jnp.where(largest < 1 / _LARGE, _LARGE, 1))
        counts = counts * scale
    each = jnp.where(counts != 0, each * counts, 0)
    if reduction == "mean":
        total = counts.sum()
        return each.sum() / jnp.where(total == 0, 1, total)
    return each.sum() if reduction == "sum" else each


def _targets(
    rows: Rows, y: jax.Array, ignore_index: int | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Distributions in rows, 1 for each row that counts, and whether its target is right."""
    dtype = rows.scores.dtype
    counts = ~rows.empty[..., 0]
    if jnp.issubdtype(y.dtype, jnp.integer) and y.shape == rows.batch:
        y = promoted(y, jnp.int32)  # to a uint8, −100 is 156
        if ignore_index is not None:
            counts = counts & (y != jnp.asarray(ignore_index, y.dtype))
        target = one_hot(y, rows.scores.shape)
        return target.astype(dtype), counts.astype(dtype), target.any(axis=-1)
    if y.shape != rows.shape:
        raise ValueError(
            f"y: expected integer labels of shape {rows.batch} or distributions of shape "
            f"{rows.shape}, got {y.dtype} of shape {y.shape}"
        )
    if ignore_index is not None:
        raise ValueError("ignore_index: expected with labels, y holds distributions; use weight=0")
    y = rows.arranged(y).astype(dtype)
    y = y if rows.mask is None else jnp.where(rows.mask, y, 0)
    right = (y >= 0).all(axis=-1) & (jnp.abs(y.sum(axis=-1) - 1) <= _SUM_TOLERANCE)
    return y, counts.astype(dtype), right


@jax.jit
def _tsallis(p: jax.Array, alpha: jax.Array) -> jax.Array:
    """Tsallis's entropy Σ (p − p^α) / (α (α − 1)), Shannon's at α = 1."""
    inside = p > 0
    ell = -jnp.log(jnp.where(inside, p, 1))
    large = p > _NEARLY_ALL  # whose logarithm the others give, though p may round to 1
    others = jnp.minimum(jnp.where(large, 0, p).sum(axis=-1, keepdims=True), 1 - _NEARLY_ALL)
    ell = ell + jax.lax.stop_gradient(jnp.where(large, -jnp.log1p(-others) - ell, 0))
    terms = jnp.where(inside, p, 0) * ell * decrease((alpha - 1) * ell)
    return (terms / alpha).sum(axis=-1)


def _conjugate(
    mapping: Callable[..., jax.Array], *, learned: bool = False
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Ω*(x) for rows whose maximum is 0, given their α, with the rule for its derivatives."""

    def probabilities(x: jax.Array, alpha: jax.Array) -> jax.Array:
        return mapping(x, alpha) if learned else mapping(x)

    @jax.custom_jvp
    def conjugate(x: jax.Array, alpha: jax.Array) -> jax.Array:
        p = probabilities(x, alpha)
        inside = p > 0
        return jnp.where(inside, p * jnp.where(inside, x, 0), 0).sum(axis=-1) + _tsallis(p, alpha)

    @conjugate.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, alpha), (dx, dalpha) = primals, tangents
        p = probabilities(x, alpha)
        inside = p > 0
        by_x = jnp.where(inside, p * jnp.where(inside, dx, 0), 0).sum(axis=-1)
        _, by_alpha = jax.jvp(partial(_tsallis, p), (alpha,), (dalpha,))
        return conjugate(x, alpha), by_x + by_alpha

    return conjugate
