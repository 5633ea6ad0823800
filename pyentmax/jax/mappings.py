r"""α-entmax and its kin, with rules for derivatives that can themselves be differentiated.

The Jacobian of p = α-entmax(z) is diag(s) − s sᵀ/Σs with s = p^{2−α} on the support (Peters et al.
2019, Proposition 1), and ∂p/∂α is an elementwise function of p (Correia et al. 2019, Proposition
1). Both rules are written in p, whose own derivatives are these rules again: second derivatives
come by applying them twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pyentmax.jax.kernels import with_kernel
from pyentmax.jax.powers import NEAR, curvature, exponential
from pyentmax.jax.rows import Rows, by_rows


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
    if type(alpha) in (int, float) and alpha in _CLOSED:
        return by_rows(_CLOSED[alpha], z, axis, mask)
    rows = Rows(z, axis, mask)
    alpha = rows.parameter("alpha", alpha)
    alpha = alpha * jnp.where(rows.empty | (alpha < jnp.inf), 1, jnp.nan)  # whose gradient is NaN
    return rows.restored(entmax_rows(rows.unshifted, jnp.where(rows.empty, 2, alpha)))


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
    return _topk(_topk_softmax_rows, z, k, axis, mask)


def topk_sparsemax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """The point nearest to z of the simplex with at most k non-zeros.

    sparsemax over the k largest scores (Kyrillidis et al. 2013); of scores that tie for the k-th
    place, those of the lowest indices are kept.

    Parameters
    ----------
    z, k, axis, mask : as for `topk_softmax`

    Examples
    --------
    >>> print(topk_sparsemax([1.0, 0.8, 0.9, -1.0], 2).round(4))
    [0.55 0.   0.45 0.  ]
    """
    return _topk(_topk_sparsemax_rows, z, k, axis, mask)


def _topk(body: Callable[..., jax.Array], z: Any, k: Any, axis: Any, mask: Any) -> jax.Array:
    rows = Rows(z, axis, mask)
    k = rows.parameter("k", k)
    p = body(rows.unshifted, jnp.clip(k, 1, 2**30))
    return rows.restored(jnp.where((k >= 1) & (k == jnp.floor(k)), p, jnp.nan))


# --- rows (…, d) as they come ------------------------------------------------------------------
def _mapping(
    solve: Callable[..., jax.Array],
    slope: Callable[..., jax.Array],
    by_parameter: Callable[..., jax.Array] | None = None,
    select: Callable[..., jax.Array] | None = None,
    kernel: str | None = None,
    serves: Callable[..., jax.Array] | None = None,
) -> Callable[..., jax.Array]:
    """A mapping of rows and perhaps a parameter of each, by the body for a maximum of 0.

    A row with nothing left is zeros, one with NaN or +∞ is NaN, as from the kernels. The derivative
    is that of s = ``slope(p)``, and ``by_parameter(p, …)`` by the parameter. ``select(z, …)`` says
    which scores count, before the shift to a maximum of 0 makes ties, and ``serves(…)`` whether the
    kernel knows all parameters.

    Compiled once per shape and dtype, outside `jax.jit` too: a loop would otherwise be compiled at
    every call, for its functions are new ones.
    """

    def body(z: jax.Array, *parameters: jax.Array) -> jax.Array:
        if select is not None:
            z = jnp.where(select(z, *parameters) | jnp.isnan(z), z, -jnp.inf)
        top = z.max(axis=-1, keepdims=True)
        usable = jnp.isfinite(top)
        p = solve(jnp.where(usable, z - jnp.where(usable, top, 0), 0), *parameters)
        return jnp.where(usable, p, jnp.where(jnp.isneginf(top), 0, jnp.nan))

    forward = jax.custom_jvp(jax.jit(body if kernel is None else with_kernel(body, kernel, serves)))

    @forward.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        z, *parameters = primals
        p = forward(*primals)
        moved = _product(slope(p, *parameters), tangents[0])
        if by_parameter is not None:
            moved = moved + by_parameter(p, *parameters) * tangents[1]
        return p, moved

    return forward


def _softmax(x: jax.Array) -> jax.Array:
    e = jnp.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


def _sparsemax(x: jax.Array) -> jax.Array:
    """p = [x − τ]₊ by Newton's method on Σ [x − τ]₊, convex in τ (Michelot 1986).

    From max x − 1 the steps rise to τ; when the support stays as it is, the last one was exact.
    """

    def sums(tau: jax.Array) -> list[jax.Array]:
        u = jnp.maximum(x - tau, 0)
        return _row_sums(u, (u > 0).astype(x.dtype))

    def step(tau: jax.Array, size_before: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        total, size = sums(tau)
        return (total - 1) / size, size, size != size_before

    tau = _from_below(step, x)
    total, size = sums(tau)
    # The differences are exact near the threshold, so that a correction has more digits than τ.
    return jnp.where(x > tau, jnp.maximum((x - tau) - (total - 1) / size, 0), 0)


def _entmax15(x: jax.Array) -> jax.Array:
    """p = [x/2 − τ]₊² by Newton's method on the norm √Σ [x/2 − τ]₊², convex in τ."""
    x = x / 2
    close = 4 * jnp.finfo(x.dtype).eps

    def tangent(tau: jax.Array) -> jax.Array:
        u = jnp.maximum(x - tau, 0)
        squares, total = _row_sums(u * u, u)
        norm = jnp.sqrt(squares)
        return (norm - 1) * norm / total

    def step(tau: jax.Array, _: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        up = tangent(tau)
        return up, up, up > close

    tau = _from_below(step, x)
    u = jnp.where(x > tau, jnp.maximum((x - tau) - tangent(tau), 0), 0)
    return u * u


def _from_below(step: Callable[..., tuple[jax.Array, jax.Array, jax.Array]], x: jax.Array) -> Any:
    """τ of rows by steps that rise to it from max x − 1 = −1, each row until it moves no more.

    ``step(τ, state)`` gives the step, the state for the next, and whether there is to be one. Each
    step of Newton's method divides the product of excess and slope by 4 or more: from below d² to
    below ε, at most log₂d + ½log₂(1/ε) times.
    """
    most = 33 + jnp.finfo(x.dtype).nmant // 2  # for up to 2³¹ scores

    def unfinished(carry: Any) -> Any:
        return (carry[0] < most) & carry[3].any()

    def next_step(carry: Any) -> Any:
        steps, tau, state, moving = carry
        up, state, more = step(tau, state)
        moving = moving & more
        return steps + 1, jnp.where(moving, tau + up, tau), state, moving

    zero = jnp.zeros_like(x.max(axis=-1, keepdims=True))
    return jax.lax.while_loop(unfinished, next_step, (0, zero - 1, zero, zero == 0))[1]


def _row_sums(*terms: jax.Array) -> list[jax.Array]:
    """Sums over the rows of several arrays, in one pass over what they are computed from."""
    zeros = tuple(jnp.zeros((), x.dtype) for x in terms)

    def add(these: Any, those: Any) -> Any:
        return tuple(a + b for a, b in zip(these, those, strict=True))

    return [x[..., None] for x in jax.lax.reduce(terms, zeros, add, (terms[0].ndim - 1,))]


def _kth_and_above(z: jax.Array, k: jax.Array) -> jax.Array:
    descending = -jnp.sort(-z, axis=-1)
    return z >= jnp.take_along_axis(descending, k.astype(jnp.int32) - 1, axis=-1, mode="clip")


def _first_k(z: jax.Array, k: jax.Array) -> jax.Array:
    return jnp.argsort(jnp.argsort(-z, axis=-1, stable=True), axis=-1).astype(k.dtype) < k


def _entmax(x: jax.Array, alpha: jax.Array) -> jax.Array:
    """p = [1 + β (x − c)]₊^{1/β} with β = α − 1: at β = 0 this is exp(x − c), and c = log Σ exp x.

    c lies between 0 and the c of constant scores, (1 − d^{−β}) / β. Newton's steps start at 0; for
    α ≤ 2 they never pass the solution, since the sum is convex in c. A step that would leave the
    bracket is a bisection instead, and so is every third: after three steps for each bit of the
    dtype, mostly long before, the bracket has closed.
    """
    valid = (alpha > 0) & (alpha < jnp.inf)
    beta = jnp.where(valid, alpha, 2) - 1
    log_d = jnp.log(jnp.ones_like(x).sum(axis=-1, keepdims=True))  # d may be symbolic
    near = jnp.abs(beta) * log_d < 1e-6
    low = jnp.zeros_like(beta + log_d)
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


@jax.jit
def _grad_alpha(p: jax.Array, alpha: jax.Array) -> jax.Array:
    r"""∂p/∂α on the support, for every α above 0.

    With ℓ = −log p and ρ = (e^{βℓ} − 1 − βℓ)/β², Proposition 1 of Correia et al. becomes

        p [E ρ − ρ + β (ℓ E ρ − ρ E ℓ)] / E e^{βℓ},    E over p,

    which has no division by β: at α = 1 it is p (E ℓ² − ℓ²)/2. For α > 2 p e^{βℓ} =
    p^{2−α} may exceed all floats, so numerator and denominator are divided by its largest.
    """
    beta = alpha - 1
    q, support = p, p > 0
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
    return jnp.where(support, inside / scaled.sum(axis=-1, keepdims=True), 0 * q)


def _powers(p: jax.Array, power: jax.Array) -> jax.Array:
    """p to a power on the support, 0 off it, NaN where p is."""
    support = p > 0
    return jnp.where(support, jnp.exp(power * jnp.log(jnp.where(support, p, 1))), 0 * p)


def _roots(p: jax.Array) -> jax.Array:
    support = p > 0
    return jnp.where(support, jnp.sqrt(jnp.where(support, p, 1)), 0 * p)


def _ones(p: jax.Array) -> jax.Array:
    return jnp.where(p > 0, 1, 0 * p)


def _product(s: jax.Array, v: jax.Array) -> jax.Array:
    """J v = s ∘ (v − Σ s v / Σ s).

    Taken relative to the v of the largest s, or its mean where several are, which changes nothing.
    For a large α that s can exceed all others by more than a float's digits, and the difference it
    multiplies would round away: instead it is multiplied by 0, and left with the others' sum. It
    may even be infinite.
    """
    most = s.max(axis=-1, keepdims=True)
    top, finite = s == most, jnp.isfinite(most)
    share = jnp.where(finite, s / jnp.where(finite & (most > 0), most, 1), top.astype(s.dtype))
    count = top.sum(axis=-1, keepdims=True, dtype=s.dtype)
    reference = jnp.where(top, v, 0).sum(axis=-1, keepdims=True) / count
    rest = jnp.where(s != 0, v - reference, 0)
    product = jnp.where(top & ~finite, 0, s) * rest
    shares = share.sum(axis=-1, keepdims=True)
    return product - share * (product.sum(axis=-1, keepdims=True) / jnp.where(most > 0, shares, 1))


softmax_rows = _mapping(_softmax, lambda p: p)
sparsemax_rows = _mapping(_sparsemax, _ones, kernel="sparsemax")
entmax15_rows = _mapping(_entmax15, _roots, kernel="entmax15")
entmax_rows = _mapping(
    _entmax,
    lambda p, alpha: _powers(p, 2 - alpha),
    _grad_alpha,
    kernel="entmax",
    serves=lambda alpha: ~(alpha < 1).any(),
)
_topk_softmax_rows = _mapping(
    lambda x, k: _softmax(x), lambda p, k: p, select=_kth_and_above, kernel="topk_softmax"
)
_topk_sparsemax_rows = _mapping(
    lambda x, k: _sparsemax(x), lambda p, k: _ones(p), select=_first_k, kernel="topk_sparsemax"
)
_CLOSED = {1: softmax_rows, 1.5: entmax15_rows, 2: sparsemax_rows}  # for a known α
