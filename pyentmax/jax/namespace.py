"""JAX's functions as `pyentmax.reference.composed` and the bodies of `pyentmax.keep` call them.

Most are those of `jax.numpy`; the rest is what frameworks do differently. XLA can look at a value,
so that loops end when nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient as detach

abs, all, amin, any, argsort = jnp.abs, jnp.all, jnp.amin, jnp.any, jnp.argsort
clip, cumsum, exp, expm1, finfo = jnp.clip, jnp.cumsum, jnp.exp, jnp.expm1, jnp.finfo
floor, inf, isfinite, isnan, log = jnp.floor, jnp.inf, jnp.isfinite, jnp.isnan, jnp.log
minimum, nan, ones_like, sort, sqrt = jnp.minimum, jnp.nan, jnp.ones_like, jnp.sort, jnp.sqrt
stack, sum, where, zeros_like = jnp.stack, jnp.sum, jnp.where, jnp.zeros_like


def amax(x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """The largest, and NaN where there is one, which XLA's loses on a processor in some shapes."""
    spoilt = any(isnan(x), axis=axis, keepdims=keepdims)
    return where(spoilt, nan, jnp.amax(x, axis=axis, keepdims=keepdims))


def log1p(a: jax.Array) -> jax.Array:
    """log(1 + a), without the two digits that XLA's loses on a processor for a in (−0.42, −0.3)."""
    low = a < -0.25  # where the rounding of 1 + a costs no more than a digit's fraction
    return where(low, log(1 + where(low, a, 0)), jnp.log1p(where(low, 0, a)))


def falling(x: jax.Array) -> jax.Array:
    """Rows sorted to fall."""
    return -jnp.sort(-x, axis=-1)


def take_along_axis(x: jax.Array, index: jax.Array, axis: int = -1) -> jax.Array:
    """x at these positions, the last one for any beyond it."""
    return jnp.take_along_axis(x, index, axis=axis, mode="clip")


def as_index(x: jax.Array) -> jax.Array:
    """Whole numbers as places."""
    return x.astype(jnp.int32)


def places(x: jax.Array, dtype: Any, start: int = 0) -> jax.Array:
    """0, 1, … along the last axis, in x's shape, which may be symbolic; or from another start."""
    return jax.lax.broadcasted_iota(dtype, x.shape, x.ndim - 1) + start


def indicator(condition: jax.Array, like: jax.Array) -> jax.Array:
    """1 where the condition holds, and 0 elsewhere."""
    return condition.astype(like.dtype)


def softmax(x: jax.Array) -> jax.Array:
    """Softmax of rows with their maximum at 0."""
    e = exp(x)
    return e / sum(e, axis=-1, keepdims=True)


def at_largest(x: jax.Array, by: jax.Array) -> jax.Array:
    """The entries of each row of x where another array has its largest; their mean if several."""
    by = detach(by)
    top = by == amax(by, axis=-1, keepdims=True)
    total, count = row_sums(where(top, x, 0), indicator(top, x))
    return total / count


def largest(x: jax.Array) -> jax.Array:
    """The largest of all, 0 of none, without its derivative."""
    return detach(jnp.max(x, initial=0))


@jax.custom_jvp
def row_sums(*terms: jax.Array) -> list[jax.Array]:
    """Sums over the rows of several arrays, in one pass over what they are computed from."""
    zeros = tuple(jnp.zeros((), x.dtype) for x in terms)

    def add(these: Any, those: Any) -> Any:
        return tuple(a + b for a, b in zip(these, those, strict=True))

    return [x[..., None] for x in jax.lax.reduce(terms, zeros, add, (terms[0].ndim - 1,))]


@row_sums.defjvp
def _row_sums_jvp(terms: Any, tangents: Any) -> Any:
    return row_sums(*terms), [sum(x, axis=-1, keepdims=True) for x in tangents]


def newton(
    step: Callable[[jax.Array], tuple[jax.Array, ...]],
    unfinished: Callable[..., jax.Array],
    x: jax.Array,
    start: Any,
) -> jax.Array:
    """τ of rows by Newton's steps, which rise to it from max x − 1 = −1, not from the start.

    ``step(τ)`` begins with the step and a sum, and ``unfinished(step, sum, sum_before)`` says where
    there is to be another. Each divides the product of excess and slope by 4 or more: from below d²
    to below ε, at most log₂d + ½log₂(1/ε) times.
    """
    most = 33 + jnp.finfo(x.dtype).nmant // 2  # for up to 2³¹ scores

    def any_unfinished(carry: Any) -> Any:
        return (carry[0] < most) & carry[3].any()

    def next_step(carry: Any) -> Any:
        steps, tau, before, moving = carry
        up, total, *_ = step(tau)
        moving = moving & unfinished(up, total, before)
        return steps + 1, where(moving, tau + up, tau), total, moving

    zero = zeros_like(amax(x, axis=-1, keepdims=True))
    return jax.lax.while_loop(any_unfinished, next_step, (0, zero - 1, zero, zero == 0))[1]


def level_of_sum_1(
    p_at: Callable[[jax.Array], jax.Array],
    newton: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    low: jax.Array,
    high: jax.Array,
) -> jax.Array:
    """Where the rows of p_at(level), which falls, sum to 1, between two levels.

    Newton's steps start at the lower; where they are of what is convex they never pass it. A step
    that would leave the bracket is a halving instead, and so is every third: after three steps for
    each bit of the dtype, mostly long before, the bracket has closed.
    """
    most, eps = 3 * jnp.finfo(low.dtype).nmant, jnp.finfo(low.dtype).eps

    def unfinished(state: Any) -> Any:
        step, _, _, _, done = state
        return (step < most) & ~jnp.all(done)

    def next_step(state: Any) -> Any:
        step, low, high, level, done = state
        p = p_at(level)
        mass = sum(p, axis=-1, keepdims=True)
        low, high = where(mass >= 1, level, low), where(mass <= 1, level, high)
        right, closed = abs(mass - 1) <= eps, high - low <= eps * jnp.maximum(high, 1)
        next_level = level + newton(level, p, mass)
        good = (next_level >= low) & (next_level <= high) & (step % 3 != 2)
        better = where(good, next_level, low + (high - low) / 2)
        # At the lower end, all entries of the support are above zero, and share what is too much.
        better = where(closed, low, better)
        return step + 1, low, high, where(done | right, level, better), done | right | closed

    return jax.lax.while_loop(unfinished, next_step, (0, low, high, low, low < 0))[3]
