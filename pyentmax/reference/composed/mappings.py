r"""The α-entmax family and its derivatives.

The Jacobian of p = α-entmax(z) is diag(s) − s sᵀ/Σs with s = p^{2−α} on the support (Peters et al.
2019, Prop. 1), and ∂p/∂α is an elementwise function of p (Correia et al. 2019, Prop. 1). Both are
written in p, whose own derivatives are these again: second derivatives come by applying them twice.
"""

from __future__ import annotations

import math
from typing import Any

from pyentmax.reference.composed.powers import NEAR, curvature, exponential, power

# The α whose entmax has the mapping's Jacobian on the support of p. α-entmax has its own.
ALPHAS = {
    "softmax": 1.0,
    "topk_softmax": 1.0,
    "entmax15": 1.5,
    "sparsemax": 2.0,
    "topk_sparsemax": 2.0,
}
NAMES = (*ALPHAS, "entmax")

LARGE = 0.75  # at most one probability of a row is above


# --- p = π(z) -------------------------------------------------------------------------------------


def mapping(xp: Any, z: Any, name: str, value: Any = None) -> Any:
    """Probabilities of rows: zeros where all scores are −∞, NaN for a row with NaN, +∞, or an
    invalid parameter.
    """
    kept = None if value is None or name == "entmax" else k_largest(xp, z, value, name)
    x, empty, invalid = shifted(xp, z)
    if name == "entmax":
        invalid = invalid | ~(value > 0)
        p = entmax(xp, x, xp.where(value > 0, value, 2))
    else:
        if kept is not None:  # among them is the maximum, so x needs no new shift
            x = xp.where(kept, x, -xp.inf)
            invalid = invalid | (value < 1) | (value != xp.floor(value))
        p = _SOLVERS[ALPHAS[name]](xp, x)
    return xp.where(empty, 0, xp.where(invalid, xp.nan, p))


def shifted(xp: Any, z: Any) -> tuple[Any, Any, Any]:
    """Rows with their maximum at 0, and columns that say which have nothing left and which contain
    NaN or +∞: both of these are zeros.
    """
    # Adding the same number to all scores changes nothing, so the maximum needs no derivative.
    top = xp.detach(xp.amax(z, axis=-1, keepdims=True))
    empty, invalid = top == -xp.inf, ~(top < xp.inf)
    unusable = empty | invalid
    return xp.where(unusable, 0, z - xp.where(unusable, 0, top)), empty, invalid


def k_largest(xp: Any, z: Any, k: Any, name: str) -> Any:
    """Where the k largest are: with all that tie with the k-th, in sparsemax the first of them."""
    falling = xp.falling(z)
    place = xp.as_index(xp.clip(xp.where(k >= 1, k, 1), max=2**30)) - 1
    last = xp.take_along_axis(falling, place, axis=-1)  # or the least of all
    if name == "topk_softmax":
        return z >= last
    above, tied = z > last, z == last
    places_left = k - xp.sum(xp.indicator(above, z), axis=-1, keepdims=True)
    return above | (tied & (xp.cumsum(xp.indicator(tied, z), axis=-1) <= places_left))


def sparsemax(xp: Any, x: Any) -> Any:
    """p = [x − τ]₊ by Newton's method on Σ [x − τ]₊, convex in τ (Michelot 1986)."""

    def step(tau: Any) -> tuple[Any, Any, Any, Any]:
        u = xp.clip(x - tau, min=0)
        on = xp.indicator(u > 0, u)
        total, size = xp.row_sums(u, on)
        return (total - 1) / size, size, u, on

    def unfinished(up: Any, size: Any, size_before: Any) -> Any:
        return size != size_before

    up, _, u, on = step(xp.newton(step, unfinished, x, lambda: sorted_sparsemax(xp, x)))
    # The differences are exact near the threshold, so that a correction has more digits than τ.
    return on * xp.clip(u - up, min=0)


def entmax15(xp: Any, x: Any) -> Any:
    """p = [x/2 − τ]₊² by Newton's method on the norm √Σ [x/2 − τ]₊², convex in τ."""
    x = x / 2

    def step(tau: Any) -> tuple[Any, Any, Any]:
        u = xp.clip(x - tau, min=0)
        squares, total = xp.row_sums(u * u, u)
        norm = xp.sqrt(squares)
        return (norm - 1) * norm / total, total, u

    def unfinished(up: Any, total: Any, total_before: Any) -> Any:
        return up > 4 * xp.finfo(x.dtype).eps

    up, _, u = step(xp.newton(step, unfinished, x, lambda: sorted_entmax15(xp, x)))
    u = xp.where(u > 0, xp.clip(u - up, min=0), 0)
    return u * u


def sorted_sparsemax(xp: Any, x: Any) -> Any:
    """τ of sparsemax from sorted scores (Held et al. 1974), up to the rounding of long sums."""
    falling, rank = _falling(xp, x)
    sums = xp.cumsum(falling, axis=-1)
    size = xp.sum(1 + rank * falling > sums, axis=-1, keepdims=True)
    return (xp.take_along_axis(sums, size - 1, axis=-1) - 1) / size


def sorted_entmax15(xp: Any, x: Any) -> Any:
    """τ of 1.5-entmax from sorted scores x/2 (Peters et al. 2019, Alg. 2)."""
    falling, rank = _falling(xp, x)
    sums = xp.cumsum(falling, axis=-1)
    mean = sums / rank
    spread = xp.cumsum(falling * falling, axis=-1) - sums * mean
    tau = mean - xp.sqrt(xp.clip(1 - spread, min=0) / rank)
    # τ(ρ) increases with ρ up to the size of the support.
    size = xp.sum(tau <= falling, axis=-1, keepdims=True)
    return xp.take_along_axis(tau, size - 1, axis=-1)


def _falling(xp: Any, x: Any) -> tuple[Any, Any]:
    """Sorted scores and 1, 2, … None is below −2: τ is −1 or more, so that they stay outside."""
    return xp.clip(xp.falling(x), min=-2), xp.places(x, x.dtype, start=1)


def entmax(xp: Any, x: Any, alpha: Any) -> Any:
    """p = [1 + β (x − c)]₊^{1/β} with β = α − 1: at β = 0 this is exp(x − c), and c = log Σ exp x.

    c lies between 0 and the c of constant scores, (1 − d^{−β}) / β. That is large for β < 0, where
    the level log(1 − βc)/(−β), which lies between 0 and log d, is looked for instead.
    """
    finite = alpha < xp.inf
    beta = xp.where(finite, alpha - 1, 1)
    log_d = xp.log(xp.sum(xp.ones_like(x), axis=-1, keepdims=True))  # d may be symbolic
    near = beta * log_d < 1e-6
    high = xp.where(near, log_d, -xp.expm1(-beta * log_d) / xp.where(near, 1, beta))

    def c_from(level: Any) -> Any:
        below = beta < -1e-6
        slope = xp.where(below, -beta, 1)
        return xp.where(below, xp.expm1(xp.where(below, slope * level, 0)) / slope, level)

    def p_at(level: Any) -> Any:
        return exponential(xp, x - c_from(level), beta)

    def step(level: Any, p: Any, mass: Any) -> Any:
        """Newton's: on (Σp)^β, a norm of 1 + β (x − c) and so convex, up to β = 1, else on Σp."""
        u = xp.where(p > 0, 1 + beta * (x - c_from(level)), 1)
        by_c = xp.sum(p / u, axis=-1, keepdims=True)  # p^{1−β}, p being u^{1/β}
        by_level = by_c * xp.exp(xp.where(beta < -1e-6, -beta * level, 0))
        is_norm = (beta > 1e-6) & (beta <= 1)
        safe = xp.where(is_norm, beta, 1)
        by_norm = -mass * xp.expm1(-safe * xp.log(mass)) / safe
        return xp.where(is_norm, by_norm, mass - 1) / by_level

    p = p_at(xp.level_of_sum_1(p_at, step, xp.zeros_like(high), high))
    # The missing mass is distributed as Newton's next step would.
    s = power(xp, p, 1 - beta)
    lacking = 1 - xp.sum(p, axis=-1, keepdims=True)
    share = s / xp.sum(s, axis=-1, keepdims=True)
    p = xp.where(p > 0, xp.clip(p + lacking * share, min=0, max=1), 0)
    top = xp.indicator(x == 0, x)
    return xp.where(finite, p, top / xp.sum(top, axis=-1, keepdims=True))


_SOLVERS = {1.0: lambda xp, x: xp.softmax(x), 1.5: entmax15, 2.0: sparsemax}


def support(xp: Any, z: Any, p: Any, name: str, value: Any = None) -> Any:
    """Where a mapping gives probability, by the scores, since p underflows near α = 1.

    With x the scores less their largest, β x_i + (max p)^β is above 0 on the support.
    """
    x, empty, invalid = shifted(xp, z)
    if ALPHAS.get(name) == 1:
        chosen = ~empty if value is None else k_largest(xp, z, value, name)
    elif name == "entmax":
        beta, top = value - 1, xp.amax(p, axis=-1, keepdims=True)
        # From β = 1/4 on, what is above the threshold by one rounding does not underflow.
        power_of_top = xp.exp(xp.where(top > 0, beta, 0) * xp.log(xp.where(top > 0, top, 1)))
        chosen = (beta < 0.25) & (value > 0) & ((beta <= 0) | (-beta * x < power_of_top))
    else:
        return p > 0
    return (p > 0) | (chosen & (z > -xp.inf) & ~(empty | invalid))


# --- derivatives ----------------------------------------------------------------------------------


def slope(xp: Any, p: Any, alpha: Any) -> Any:
    """s = p^{2−α} on the support, 0 for an infinite α."""
    if isinstance(alpha, float):
        if alpha == 1:
            return p
        if alpha == math.inf:
            return 0 * p
        if alpha not in (1.5, 2):
            return power(xp, p, 2 - alpha)
        on = p > 0
        s = 1 if alpha == 2 else xp.sqrt(xp.where(on, p, 1))
        return xp.where(on, s, xp.detach(p))  # which is 0, or NaN
    finite = alpha < xp.inf
    return xp.where(finite, power(xp, p, 2 - xp.where(finite, alpha, 2)), 0 * p)


def product(xp: Any, p: Any, v: Any, alpha: Any) -> Any:
    """J v = s ∘ (v − Σ s v / Σ s).

    Taken relative to the v of the largest s, or its mean where several are, which changes nothing.
    For a large α that s can exceed all others by more than a float's digits, and the difference it
    multiplies would round away: instead it is multiplied by 0, and left with the others' sum. It
    may even be infinite, but not up to α = 2, where it is at most 1.
    """
    s = slope(xp, p, alpha)
    if isinstance(alpha, float) and alpha <= 2:
        moved = s * xp.where(s != 0, v - xp.at_largest(v, s), 0)
        total, total_moved = xp.row_sums(s, moved)
        return moved - s * (total_moved / xp.where(total > 0, total, 1))
    most = xp.detach(xp.amax(s, axis=-1, keepdims=True))  # which scales numerator and denominator
    top, finite = s == most, xp.isfinite(most)
    one_at_top = xp.indicator(top, s)
    share = xp.where(finite, s / xp.where(finite & (most > 0), most, 1), one_at_top)
    count = xp.sum(one_at_top, axis=-1, keepdims=True)
    reference = xp.sum(xp.where(top, v, 0), axis=-1, keepdims=True) / count
    moved = xp.where(top & ~finite, 0, s) * xp.where(s != 0, v - reference, 0)
    total = xp.sum(share, axis=-1, keepdims=True)
    total_moved = xp.sum(moved, axis=-1, keepdims=True)
    return moved - share * (total_moved / xp.where(most > 0, total, 1))


def grad_alpha(xp: Any, p: Any, alpha: Any) -> Any:
    r"""∂p/∂α on the support, for every α above 0.

    With ℓ = −log p and ρ = (e^{βℓ} − 1 − βℓ)/β², Proposition 1 of Correia et al. becomes

        p [E ρ − ρ + β (ℓ E ρ − ρ E ℓ)] / E e^{βℓ},    E over p,

    which has no division by β: at α = 1 it is p (E ℓ² − ℓ²)/2. For α > 2 p e^{βℓ} = p^{2−α} may
    exceed all floats, so numerator and denominator are divided by its largest.
    """
    finite = alpha < xp.inf
    on = (p > 0) & finite
    beta = xp.where(finite, alpha - 1, 1)
    inside = xp.where(on, p, 0)
    ell = -xp.log(xp.where(on, p, 1))
    log_s = xp.where(on, (beta - 1) * ell, -xp.inf)
    most = xp.detach(xp.amax(log_s, axis=-1, keepdims=True))
    most = xp.where(most > -xp.inf, most, 0)
    scaled, unit = xp.where(on, xp.exp(log_s - most), 0), xp.exp(-most)
    near = xp.abs(beta * ell) < NEAR
    few, many = xp.where(near, beta * ell, 0), xp.where(near, 1, beta)
    rho = xp.where(  # p ρ, divided by the largest
        near,
        unit * inside * ell * ell * curvature(xp, few),
        (scaled - unit * inside * (1 + beta * ell)) / (many * many),
    )
    mean_rho = xp.sum(rho, axis=-1, keepdims=True)
    mean_ell = xp.sum(inside * ell, axis=-1, keepdims=True)
    moved = inside * mean_rho - rho + beta * (inside * ell * mean_rho - rho * mean_ell)
    total = xp.sum(scaled, axis=-1, keepdims=True)
    return xp.where(on, moved / xp.where(total == 0, 1, total), 0 * p)


# --- log p ----------------------------------------------------------------------------------------


def log_mapping(xp: Any, z: Any, name: str, value: Any = None) -> Any:
    """Logarithms of probabilities, a large one from the others of its row; −∞ off the support."""
    if ALPHAS.get(name) == 1 and value is None:
        x, empty, invalid = shifted(xp, z)
        log_p = x - xp.log(xp.sum(xp.exp(x), axis=-1, keepdims=True))
        return xp.where(empty, -xp.inf, xp.where(invalid, xp.nan, log_p))
    p = mapping(xp, z, name, value)
    large = p > LARGE
    others = xp.sum(xp.where(large, 0, p), axis=-1, keepdims=True)
    return xp.where(large, xp.log1p(-xp.clip(others, max=1 - LARGE)), xp.log(p))


def log_vjp(xp: Any, log_p: Any, g: Any, alpha: Any) -> Any:
    """The gradient of the scores for g, that of log p.

    On the support ∂log p_i/∂z_j = r_i (δ_ij − s_j/Σs) with r = p^{1−α} and s = p^{2−α}, so that
    the gradient is r ∘ g − s (r·g)/Σs. Off it there is none.
    """
    on, r, share = _log_jacobian(xp, log_p, alpha)
    moved = xp.where(on, r * xp.where(on, g, 0), 0)
    moved = moved - share * xp.sum(moved, axis=-1, keepdims=True)
    return xp.where(xp.isnan(log_p), log_p, moved)


def log_jvp(xp: Any, log_p: Any, v: Any, alpha: Any) -> Any:
    """The change of log p in the direction v of the scores: r ∘ (v − s·v/Σs), in those terms."""
    on, r, share = _log_jacobian(xp, log_p, alpha)
    moved = r * (v - xp.sum(share * xp.where(on, v, 0), axis=-1, keepdims=True))
    return xp.where(xp.isnan(log_p), log_p, xp.where(on, moved, 0))


def _log_jacobian(xp: Any, log_p: Any, alpha: Any) -> tuple[Any, Any, Any]:
    finite = alpha < xp.inf
    on = (log_p > -xp.inf) & finite
    ell, beta = xp.where(on, log_p, 0), xp.where(finite, alpha - 1, 1)
    log_s = xp.where(on, (1 - beta) * ell, -xp.inf)
    most = xp.detach(xp.amax(log_s, axis=-1, keepdims=True))
    share = xp.where(on, xp.exp(log_s - xp.where(most > -xp.inf, most, 0)), 0)
    total = xp.sum(share, axis=-1, keepdims=True)
    return on, xp.exp(-beta * ell), share / xp.where(total == 0, 1, total)


def log_grad_alpha(xp: Any, log_p: Any, alpha: Any) -> Any:
    """∂log p/∂α on the support, where p does not underflow."""
    p = xp.exp(log_p)
    return xp.where(p > 0, grad_alpha(xp, p, alpha) / xp.where(p > 0, p, 1), 0)
