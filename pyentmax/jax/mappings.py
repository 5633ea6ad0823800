r"""α-entmax and its kin, with rules for derivatives that can themselves be differentiated.

The Jacobian of p = α-entmax(z) is diag(s) − s sᵀ/Σs with s = p^{2−α} on the support (Peters et al.
2019, Proposition 1), and ∂p/∂α is an elementwise function of p (Correia et al. 2019, Proposition
1). Both rules are written in p, whose own derivatives are these rules again: second derivatives
come by applying them twice.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pyentmax.jax.powers import NEAR, curvature, exponential
from pyentmax.jax.rows import Rows, by_rows, places


def softmax(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """exp z / Σ exp z, everywhere above zero.

    Parameters
    ----------
    z : array
        Scores. Half precisions compute in float32 and return their own dtype.
    axis : int, tuple of int or None
    mask : bool array, optional
        Broadcastable to z, True where an entry may get probability.

    Returns
    -------
    array of z's shape and dtype

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(softmax([1.0, 0.5, -2.0])), 3))
    [0.604 0.366 0.03 ]
    """
    return by_rows(softmax_rows, z, axis, mask)


def sparsemax(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """The point of the simplex that is nearest to z (Martins & Astudillo 2016).

    Parameters and result are as for `softmax`.

    Examples
    --------
    >>> print(sparsemax([1.0, 0.5, -2.0]))
    [0.75 0.25 0.  ]
    """
    return by_rows(sparsemax_rows, z, axis, mask)


def entmax15(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """1.5-entmax (Peters et al. 2019, §3.3): between softmax and sparsemax.

    Parameters and result are as for `softmax`.

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(entmax15([1.0, 0.5, -2.0])), 3))
    [0.674 0.326 0.   ]
    """
    return by_rows(entmax15_rows, z, axis, mask)


def entmax(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """α-entmax: softmax at α = 1, sparsemax at 2, and sparser the larger α is; dense below 1.

    Parameters
    ----------
    z, axis, mask : as for `softmax`
    alpha : number or array
        Above 0, finite, broadcastable to z's shape without the axis; differentiable. Where it is
        not above 0 or infinite the result is NaN.

    Returns
    -------
    array of z's shape and dtype

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(entmax([1.0, 0.5, -2.0], 1.5)), 3))
    [0.674 0.326 0.   ]
    >>> by_alpha = jax.jacobian(lambda a: entmax(jnp.array([1.0, 0.5, -2.0]), a))(1.5)
    >>> print(np.round(np.float64(by_alpha), 3))
    [ 0.124 -0.124  0.   ]
    """
    rows = Rows(z, axis, mask)
    alpha = rows.alpha(alpha)
    return rows.restored(entmax_rows(rows.scores, alpha), alpha)


def topk_softmax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """softmax over the k largest scores, and what ties with the k-th; zero elsewhere.

    Explicit Sparse Transformer's selection: its derivative is softmax's over what is kept.

    Parameters
    ----------
    z, axis, mask : as for `softmax`
    k : int or int array
        From 1 up, broadcastable to z's shape without the axis; where it is below 1, or not whole,
        the result is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(topk_softmax([1.0, 0.5, -2.0], 2)), 3))
    [0.622 0.378 0.   ]
    """
    rows = Rows(z, axis, mask)
    k = rows.parameter("k", k)
    place = jnp.clip(k, 1, 2**30).astype(jnp.int32) - 1
    descending = -jnp.sort(-rows.unshifted, axis=-1)
    kept = rows.unshifted >= jnp.take_along_axis(descending, place, axis=-1, mode="clip")
    p = softmax_rows(jnp.where(kept, rows.scores, -jnp.inf))
    return rows.restored(jnp.where((k >= 1) & (k == jnp.floor(k)), p, jnp.nan))


# --- bodies: rows (…, d) with their maximum at 0 ----------------------------------------------
# Compiled once per shape and dtype, outside `jax.jit` too: a loop would otherwise be compiled at
# every call, for its functions are new ones.
@jax.custom_jvp
def softmax_rows(x: jax.Array) -> jax.Array:
    e = jnp.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


@softmax_rows.defjvp
def _softmax_jvp(primals: Any, tangents: Any) -> Any:
    p = softmax_rows(*primals)
    return p, _product(p, tangents[0])


@jax.custom_jvp
@jax.jit
def sparsemax_rows(x: jax.Array) -> jax.Array:
    """p = [x − τ]₊ with the exact τ from sorted scores (Held et al. 1974)."""
    top = -jnp.sort(-x, axis=-1)
    rank = 1 + places(x.shape, x.dtype)
    sums = jnp.cumsum(jnp.where(jnp.isneginf(top), 0, top), axis=-1)
    size = (1 + rank * top > sums).sum(axis=-1, keepdims=True)
    tau = (jnp.take_along_axis(sums, size - 1, axis=-1) - 1) / size.astype(x.dtype)
    for _ in range(2):  # Newton, against the rounding of long running sums
        u = jnp.maximum(x - tau, 0)
        inside = (u > 0).sum(axis=-1, keepdims=True, dtype=x.dtype)
        tau = tau + (u.sum(axis=-1, keepdims=True) - 1) / inside
    return jnp.maximum(x - tau, 0)


@sparsemax_rows.defjvp
def _sparsemax_jvp(primals: Any, tangents: Any) -> Any:
    p = sparsemax_rows(*primals)
    return p, _product((p > 0).astype(p.dtype), tangents[0])


@jax.custom_jvp
@jax.jit
def entmax15_rows(x: jax.Array) -> jax.Array:
    """p = [x/2 − τ]₊² with the exact τ from sorted scores (Peters et al. 2019, Algorithm 2)."""
    x = x / 2
    top = -jnp.sort(-x, axis=-1)
    finite = jnp.where(jnp.isneginf(top), 0, top)
    rank = 1 + places(x.shape, x.dtype)
    mean = jnp.cumsum(finite, axis=-1) / rank
    spread = jnp.cumsum(finite**2, axis=-1) - rank * mean**2
    tau = mean - jnp.sqrt(jnp.maximum(1 - spread, 0) / rank)
    # The thresholds of the first ranks increase until the right one; −∞ is never inside.
    size = (tau <= top).sum(axis=-1, keepdims=True)
    tau = jnp.take_along_axis(tau, size - 1, axis=-1)
    for _ in range(2):  # Newton, against the rounding of long running sums
        u = jnp.maximum(x - tau, 0)
        tau = tau + ((u * u).sum(axis=-1, keepdims=True) - 1) / (2 * u.sum(axis=-1, keepdims=True))
    u = jnp.maximum(x - tau, 0)
    return u * u


@entmax15_rows.defjvp
def _entmax15_jvp(primals: Any, tangents: Any) -> Any:
    p = entmax15_rows(*primals)
    support = p > 0
    s = jnp.where(support, jnp.sqrt(jnp.where(support, p, 1)), 0)
    return p, _product(s, tangents[0])


@jax.custom_jvp
@jax.jit
def entmax_rows(x: jax.Array, alpha: jax.Array) -> jax.Array:
    """p = [1 + β (x − c)]₊^{1/β} with β = α − 1: at β = 0 this is exp(x − c), and c = log Σ exp x.

    c lies between 0 and the c of constant scores, (1 − d^{−β}) / β. Newton's steps start at 0; for
    α ≤ 2 they never pass the solution, since the sum is convex in c. A step that would leave the
    bracket is a bisection instead, and so is every third: after three steps for each bit of the
    dtype, mostly long before, the bracket has closed.
    """
    beta = alpha - 1
    valid = (alpha > 0) & jnp.isfinite(beta)
    beta = jnp.where(valid, beta, 1)
    log_d = jnp.log(jnp.ones_like(x).sum(axis=-1, keepdims=True))  # d may be symbolic
    near = jnp.abs(beta) * log_d < 1e-6
    low = jnp.zeros_like(beta + x[..., :1])
    high = jnp.where(near, log_d, -jnp.expm1(-beta * log_d) / jnp.where(near, 1, beta)) + low
    eps = jnp.finfo(x.dtype).eps

    def unfinished(state: Any) -> Any:
        step, _, _, _, found = state
        return (step < 3 * jnp.finfo(x.dtype).nmant) & ~jnp.all(found)

    def next_step(state: Any) -> Any:
        step, low, high, c, found = state
        p = exponential(x - c, beta)
        mass = p.sum(axis=-1, keepdims=True)
        low, high = jnp.where(mass >= 1, c, low), jnp.where(mass <= 1, c, high)
        right, closed = jnp.abs(mass - 1) <= eps, high - low <= eps * jnp.maximum(high, 1)
        newton = c + (mass - 1) / _powers(p, 1 - beta).sum(axis=-1, keepdims=True)
        good = (newton >= low) & (newton <= high) & (step % 3 != 2)
        better = jnp.where(good, newton, low + (high - low) / 2)
        # At the lower end, all entries of the support are above zero, and share what is too much.
        better = jnp.where(closed, low, better)
        return step + 1, low, high, jnp.where(found | right, c, better), found | right | closed

    _, _, _, c, _ = jax.lax.while_loop(unfinished, next_step, (0, low, high, low, low < 0))
    p = exponential(x - c, beta)
    # What the sum lacks goes to the entries as Newton's next step would send it.
    s = _powers(p, 1 - beta)
    lacking = 1 - p.sum(axis=-1, keepdims=True)
    p = jnp.where(p > 0, jnp.clip(p + lacking * s / s.sum(axis=-1, keepdims=True), 0, 1), 0)
    return jnp.where(valid, p, jnp.nan)


@entmax_rows.defjvp
def _entmax_jvp(primals: Any, tangents: Any) -> Any:
    (x, alpha), (dx, dalpha) = primals, tangents
    p = entmax_rows(x, alpha)
    return p, _product(_powers(p, 2 - alpha), dx) + _grad_alpha(p, alpha) * dalpha


@jax.jit
def _grad_alpha(p: jax.Array, alpha: jax.Array) -> jax.Array:
    r"""∂p/∂α on the support, for every α above 0.

    With ℓ = −log p and ρ = (e^{βℓ} − 1 − βℓ)/β², Proposition 1 of Correia et al. becomes

        p [E ρ − ρ + β (ℓ E ρ − ρ E ℓ)] / E e^{βℓ},    E over p,

    which has no division by β: at α = 1 it is p (E ℓ² − ℓ²)/2. For α > 2 p e^{βℓ} =
    p^{2−α} may exceed all floats, so numerator and denominator are divided by its largest.
    """
    beta = alpha - 1
    support = p > 0
    p = jnp.where(support, p, 0)
    ell = -jnp.log(jnp.where(support, p, 1))
    power = jnp.where(support, (beta - 1) * ell, -jnp.inf)
    largest = jax.lax.stop_gradient(power.max(axis=-1, keepdims=True))
    scaled, unit = jnp.exp(power - largest), jnp.exp(-largest)
    near = jnp.abs(beta * ell) < NEAR
    few = jnp.where(near, beta * ell, 0)
    many = jnp.where(near, 1, beta)
    rho = jnp.where(  # p ρ, divided by the largest
        near, unit * p * ell**2 * curvature(few), (scaled - unit * p * (1 + beta * ell)) / many**2
    )
    mean_rho = rho.sum(axis=-1, keepdims=True)
    mean_ell = (p * ell).sum(axis=-1, keepdims=True)
    inside = p * mean_rho - rho + beta * (p * ell * mean_rho - rho * mean_ell)
    return jnp.where(support, inside / scaled.sum(axis=-1, keepdims=True), 0)


def _powers(p: jax.Array, power: jax.Array) -> jax.Array:
    """p to a power on the support, 0 off it."""
    support = p > 0
    return jnp.where(support, jnp.exp(power * jnp.log(jnp.where(support, p, 1))), 0)


def _product(s: jax.Array, v: jax.Array) -> jax.Array:
    """J v = s ∘ (v − Σ s v / Σ s).

    Taken relative to the v of the largest s, which changes nothing. For a large α that s can exceed
    all others by more than a float's digits, and the difference it multiplies would round away: its
    own entry is minus the sum of the others.
    """
    inside, at = s > 0, jnp.argmax(s, axis=-1, keepdims=True)
    top = places(s.shape, at.dtype) == at
    most = jnp.take_along_axis(s, at, axis=-1)
    share = jnp.where(top, 1, s / jnp.where(most > 0, most, 1))
    share = jnp.where(inside & (jnp.isfinite(most) | top), share, 0)
    there = jnp.where(top, v, 0).sum(axis=-1, keepdims=True)
    rest = jnp.where(inside & ~top, v - there, 0)
    mean = (share * rest).sum(axis=-1, keepdims=True) / share.sum(axis=-1, keepdims=True)
    moved = jnp.where(inside & ~top, jnp.where(inside & ~top, s, 0) * (rest - mean), 0)
    return jnp.where(top, -moved.sum(axis=-1, keepdims=True), moved)
