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
from pyentmax.jax.row_mappings import ROWS, name_for
from pyentmax.jax.rows import Rows, promoted
from pyentmax.reference.composed import losses
from pyentmax.reference.composed.mappings import ALPHAS


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
) -> jax.Array:
    """The loss of a mapping by its name."""
    name = name_for(alpha) if name == "entmax" else name
    traced = isinstance(label_smoothing, jax.core.Tracer)
    if not traced and not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing: expected a share in [0, 1], got {label_smoothing}")
    if ignore_index is not None and not _is_whole(ignore_index):
        raise TypeError(f"ignore_index: expected a whole number or None, got {ignore_index!r}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction: expected mean, sum or none, got {reduction!r}")
    rows, y = Rows(z, axis, mask), jnp.asarray(y)
    x = rows.scores
    q, counts, right = _targets(rows, y, ignore_index)
    weights = _weights(rows, q, counts, weight)
    smooth = traced or label_smoothing
    if smooth:
        share = jnp.asarray(label_smoothing, x.dtype)
        share = jnp.where((share >= 0) & (share <= 1), share, jnp.nan)
        right = right & ~jnp.isnan(share)
        q = losses.smoothed(xp, q, x, share)
    counts = counts & (weights != 0)[..., None]  # a row of weight 0 may contain anything
    alpha, counts = rows.parameter("alpha", alpha), counts[..., 0]
    x, right = jnp.where(rows.invalid, rows.unshifted, x), right & ~rows.invalid[..., 0]
    # An invalid row is NaN in all scores and in α, and so are then its derivatives.
    wrong = ~(right[..., None] & (alpha > 0) & (alpha < jnp.inf))
    wrong = jnp.where(wrong, jnp.nan, jnp.zeros_like(alpha))
    live = counts[..., None]
    x, alpha = jnp.where(live, x + wrong, 0), jnp.where(live, alpha + wrong, 2)
    label = not smooth and y.shape != rows.shape
    each = _row_loss(name, label)(x, q, alpha)
    share = losses.shares(xp, weights, reduction)
    return losses.reduced(xp, each, share, reduction).astype(rows.dtype)


def _is_whole(number: Any) -> bool:
    """Whether it is one integer; a traced one says so by its dtype."""
    is_array = isinstance(number, jax.Array)
    return jnp.issubdtype(number.dtype, jnp.integer) if is_array else hasattr(number, "__index__")


def _weights(rows: Rows, q: jax.Array, counts: jax.Array, weight: Any) -> jax.Array:
    """The weight of each row; NaN where it is negative."""
    weights = counts.any(axis=-1).astype(q.dtype)
    if weight is not None:
        weight = rows.parameter("weight", weight)[..., 0]
        weights = weights * jnp.where(weight >= 0, weight, jnp.nan)
    return weights


def _targets(
    rows: Rows, y: jax.Array, ignore_index: int | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Targets in rows, which rows count, and which rows have a valid target."""
    labels = jnp.issubdtype(y.dtype, jnp.integer) and y.shape == rows.batch
    if not labels and y.shape != rows.shape:
        raise ValueError(
            f"y: expected integer labels of shape {rows.batch} or distributions of shape "
            f"{rows.shape}, got {y.dtype} of shape {y.shape}"
        )
    if not labels and ignore_index is not None:
        raise ValueError("ignore_index: expected with labels, y holds distributions; use weight=0")
    if labels:
        y = promoted(y, jnp.int32)[..., None]  # to a uint8, −100 is 156
    else:
        y = rows.arranged(y).astype(rows.scores.dtype)
    return losses.targets(
        xp,
        rows.scores,
        y,
        ~rows.empty,
        labels=labels,
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
