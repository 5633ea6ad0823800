"""normmax: sparse probabilities regularised by a norm, most uniform on their support as α → ∞.

Problem: argmax over the simplex of p·z − ‖p‖_α, α > 1 (Blondel, Martins & Niculae 2020, §4.3).

The optimality conditions are (p_i/‖p‖_α)^{α−1} = z_i − τ on the support and z_i ≤ τ off it. So
with q = p/‖p‖_α, a vector of unit norm,

    q_i = [z_i − τ]₊^{1/(α−1)},    Σ q^α = 1,    p = q/Σq.

This Ω is not separable, yet the search for τ is the same as for a separable one: q^α is
[z − τ]₊^{1/β} with β = 1 − 1/α, that is, the (1+β)-entmax of z/β. So 1 < α < ∞ spans what lies
between softmax's and sparsemax's τ; at α = ∞, p is uniform over the support of sparsemax(z).

Derivatives: dq_i = (dz_i − dτ) q_i^{2−α}/(α−1), and Σ q^α = 1 makes Σ q_i (dz_i − dτ) = 0, hence
dτ = p·dz. With dp = (dq − p Σdq)/Σq and Σq = 1/‖p‖_α that is

    J = (I − p1ᵀ) diag(s) (I − 1pᵀ),    s_i = p_i (‖p‖_α/p_i)^{α−1}/(α−1),

symmetric and positive semi-definite. (Prop. 2 of Peters et al. 2019 cannot be applied: a norm is
linear along rays, so its Hessian has no inverse.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.parameters import Alpha
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.entropies import alpha_norm
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.thresholds.newton import most_steps
from pyentmax.reference.thresholds.proof import doubtful

__all__ = ["normmax"]


def textbook(z: Any, alpha: float = 2.0) -> np.ndarray:
    """p = q/Σq, q_i = [z_i − τ]₊^{1/(α−1)}, Σ q^α = 1, for one vector; τ by bisection.

    Σ q^α falls as τ rises: at max z − 1 the largest term alone is 1, at max z − d^{1/α − 1} each of
    d terms is 1/d at most.

    >>> textbook([0.8, 0.6, -1.0], 2).round(6)
    array([0.571429, 0.428571, 0.      ])
    """
    z = np.asarray(z, float)
    low, high = z.max() - 1, z.max() - len(z) ** (1 / alpha - 1)
    for _ in range(60):
        tau = (low + high) / 2
        q = np.maximum(z - tau, 0) ** (1 / (alpha - 1))
        low, high = (tau, high) if np.sum(q**alpha) >= 1 else (low, tau)
    return q / q.sum()


def textbook_jacobian(p: Any, alpha: float = 2.0) -> np.ndarray:
    """J = (I − p1ᵀ) diag(s) (I − 1pᵀ), s_i = p_i (‖p‖_α/p_i)^{α−1}/(α−1) on the support.

    >>> textbook_jacobian([0.5, 0.5], 2).round(6)
    array([[ 0.353553, -0.353553],
           [-0.353553,  0.353553]])
    """
    p = np.asarray(p, float)
    norm, positive = np.sum(p**alpha) ** (1 / alpha), np.where(p > 0, p, 1)
    s = np.where(p > 0, p * (norm / positive) ** (alpha - 1) / (alpha - 1), 0)
    centre = np.eye(len(p)) - np.outer(p, np.ones(len(p)))
    return centre @ np.diag(s) @ centre.T


def textbook_loss(z: Any, y: int, alpha: float = 2.0) -> float:
    """L = p·z − ‖p‖_α + 1 − z_y: Ω of a label is 1.

    >>> round(float(textbook_loss([0.0, 0.0], 0)), 6)
    0.292893
    """
    p, z = textbook(z, alpha), np.asarray(z, float)
    return p @ z - np.sum(p**alpha) ** (1 / alpha) + 1 - z[y]


# What follows is right for every input: as α nears 1 the powers of q overflow or vanish, so they
# are taken as logarithms of a number near 1.

ALPHA = Alpha("alpha", least=1, strict=True)


@mapping(ALPHA, omega_at_vertices=1.0)
def normmax(
    z: ArrayLike, alpha: ArrayLike = 2.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Sparse probabilities p ∝ [z − τ]₊^{1/(α−1)}: argmax over the simplex of p·z − ‖p‖_α.

    Blondel, Martins & Niculae (2020), §4.3. τ by Newton's method, O(d) per pass
    (`pyentmax.reference.thresholds.newton`). Scores more than 1 below the largest get nothing, for
    every α.

    `normmax.loss` is 0 from a margin of 1 on: Ω of a label is 1, not 0, and since Ω*(z) is the
    threshold τ, the loss of a label is τ + 1 − z_y.

    Parameters
    ----------
    z : array of scores
    alpha : float or array that broadcasts against the batch shape (z's without the axis)
        above 1; as it nears 1, p nears argmax, and ``inf`` is uniform over sparsemax's support
    axis, mask, out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros

    Raises
    ------
    ValueError
        if some alpha is not above 1 or does not fit the batch; else as in `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> scores = np.array([[0.8, 0.6, -1.0]] * 3)
    >>> print(normmax(scores, [1.1, 2, np.inf]).round(6))
    [[0.904641 0.095359 0.      ]
     [0.571429 0.428571 0.      ]
     [0.5      0.5      0.      ]]
    >>> print(normmax([0.0, -0.6], 1.001)[1], normmax.support([0.0, -0.6], 1.001))
    0.0 [ True  True]
    >>> print(normmax.jvp([0.5, 0.5, 0.0], [-1.0, 0.0, 9.0]).round(6))
    [-0.353553  0.353553  0.      ]
    >>> loss, grad = normmax.loss_and_grad([0.0, 0.0], 0)
    >>> print(round(float(loss), 6), grad, normmax.regularizer([0.6, 0.8]).round(6))
    0.292893 [-0.5  0.5] 1.0
    """
    return z, alpha, axis, mask, out


@normmax.rule
def _forward(y: Any, alpha: Any) -> Any:
    q = np.exp(_log_q(y, alpha))
    return q / np.sum(q, axis=-1, keepdims=True)


def _log_q(x: Any, alpha: Any) -> Any:
    """log q, −∞ off the support: Newton's method for s = 1 + τ, of scores x whose largest is 0.

    (Σ q^α)^{1−1/α} is a norm of [z − τ]₊ and so a convex function of s: from the left, where the
    sum is at least 1, the iterates rise to where it is 1, in as many steps as `newton` needs.

    For a large α the power of z − τ is nearly a step function, which depends on the difference of s
    and a score even below the rounding of τ. So s is not added to 1: a largest entry contributes
    q^α − 1, and near the threshold 1 + x is exact, and so is its difference to a small s.
    """
    power = (1 / (alpha - 1)).astype(x.dtype)  # taken before α is rounded
    beta = 1 / (1 + power)  # 1 − 1/α, without cancellation
    _, at_largest = _simplex.without_largest(x, np.argmax(x, axis=-1, keepdims=True))
    epsilon = np.finfo(x.dtype).eps
    s = np.zeros_like(x[..., :1])
    # A row stops one step after its first small step, as in `newton`.
    moving = settling = s == 0
    for _ in range(most_steps(x)):
        log_q, base = _log_q_from(x, s, power)
        q = np.exp(log_q)
        top = np.expm1((1 + power) * np.log1p(-s))
        excess = np.sum(np.where(at_largest, top, q * base), axis=-1, keepdims=True)
        gap = -np.expm1(-beta * np.log1p(excess))  # 1 − 1/norm
        step = (1 + excess) * gap / np.sum(q, axis=-1, keepdims=True)
        s = np.where(moving, s + step, s)
        moving, settling = settling, settling & (np.abs(step) > 8 * epsilon * s)
        if isinstance(x, np.ndarray) and not bool(np.any(moving)):
            break
    return _log_q_from(x, s, power)[0]


def _log_q_from(x: Any, s: Any, power: Any) -> tuple[Any, Any]:
    """log q = power · log [1 + x − s]₊, and the base [1 + x − s]₊, without cancellation."""
    low = x < -0.5
    base = np.where(low, (1 + x) - s, 1 + (x - s))
    on = base > 0
    log_base = np.where(
        low, np.log(np.where(on & low, base, 1)), np.log1p(np.where(low | ~on, 0, x - s))
    )
    return np.where(on, power * log_base, -np.inf), np.where(on, base, 0)


@normmax.support.rule
def _support(y: Any, alpha: Any) -> Any:
    """Where probability is given, even if it underflows to 0 as α nears 1."""
    return _log_q(y, alpha) > -np.inf


@normmax.jvp.rule
def _product(p: Any, v: Any, alpha: Any) -> Any:
    """J v = t − p Σt with t = s ∘ (v − p·v), s = p (‖p‖_α/p)^{α−1}/(α−1) on the support."""
    v = np.where(p != 0, v, 0)  # off the support v may hold anything, even NaN
    s, log_scale = _diagonal(p, alpha)
    k = np.argmax(p, axis=-1, keepdims=True)
    # Infinities on the support may give NaN.
    with np.errstate(invalid="ignore", over="ignore"):
        v = np.where(p != 0, v - _simplex.entry_of_row(v, k), 0)  # J1 = 0
        t = s * (v - np.sum(p * v, axis=-1, keepdims=True))
        other_p, at_k = _simplex.without_largest(p, k)
        other_t = np.sum(np.where(at_k, 0, t), axis=-1, keepdims=True)
        at_largest = t * np.sum(other_p, axis=-1, keepdims=True) - p * other_t
        elsewhere = t - p * np.sum(t, axis=-1, keepdims=True)
        moved = _scaled(np.where(at_k, at_largest, elsewhere), log_scale)
        return np.where(p != 0, moved, 0)


def _diagonal(p: Any, alpha: Any) -> tuple[Any, Any]:
    """s_i = p_i (‖p‖_α/p_i)^{α−1}/(α−1) on the support, relative to the largest, and its log."""
    with np.errstate(over="ignore"):  # beyond p's dtype α is ∞
        jumps = np.isinf(alpha.astype(p.dtype))
    power = np.where(jumps, 0, 1 / (alpha - 1)).astype(p.dtype)
    norm = _norm(p, alpha)[..., None]
    on = p != 0
    log_p = np.log(np.where(on, p, 1))
    # The power of α − 1 is a division by 0 at α = ∞, where p only ever jumps: s = 0.
    # By logarithms, since norm/p overflows for a denormal p.
    steepness = np.maximum(np.where(power == 0, 1, power), 1e4 / np.finfo(p.dtype).max)
    log_s = log_p + (np.log(np.where(norm > 0, norm, 1)) - log_p) / steepness
    top = np.max(np.where(on, log_s, -np.inf), axis=-1, keepdims=True)
    s = np.where(on, np.exp(log_s - np.where(top > -np.inf, top, 0)), 0)
    log_power = np.log(np.where(power == 0, 1, power))
    return s, np.where(power == 0, -np.inf, np.where(top > -np.inf, top, 0) + log_power)


def _scaled(x: Any, log_scale: Any) -> Any:
    """x times the largest s: even where that overflows, the product may be finite."""
    with np.errstate(over="ignore"):
        scale = np.exp(log_scale)
        overflows = np.isinf(scale) & (x != 0)
        part = np.sign(x) * np.exp(log_scale + np.log(np.where(overflows, np.abs(x), 1)))
    return np.where(overflows, part, _simplex.times(scale, x))


@normmax.jacobian.rule
def _jacobian(p: Any, alpha: Any) -> Any:
    """J = (I − p1ᵀ) diag(s) (I − 1pᵀ)."""
    s, log_scale = _diagonal(p, alpha)
    # 1 − p_i and Σs − s_i − s_j, without cancellation where one entry is nearly the whole sum.
    other_p, at_largest_p = _simplex.without_largest(p, np.argmax(p, axis=-1, keepdims=True))
    complement = np.where(at_largest_p, np.sum(other_p, axis=-1, keepdims=True), 1 - p)
    other_s, at_largest_s = _simplex.without_largest(s, np.argmax(s, axis=-1, keepdims=True))
    others, all_s = np.sum(other_s, axis=-1, keepdims=True), np.sum(s, axis=-1, keepdims=True)
    own = s * complement**2 + p**2 * np.where(at_largest_s, others, all_s - s)
    with_largest = at_largest_s[..., :, None] | at_largest_s[..., None, :]
    pair = other_s[..., :, None] + other_s[..., None, :]
    rest = np.where(with_largest, others[..., None], all_s[..., None]) - pair
    mixed = (s * complement)[..., :, None] * p[..., None, :]  # added to its transpose: symmetric
    outer = p[..., :, None] * p[..., None, :]
    between = rest * outer - (mixed + np.swapaxes(mixed, -1, -2))
    entries = np.where(_simplex.identity(p) != 0, own[..., :, None], between)
    return _scaled(entries, log_scale[..., None])


@normmax.regularizer.rule
def _omega(p: Any, alpha: Any) -> Any:
    """Ω(p) = ‖p‖_α: 1 at the corners of the simplex, not 0."""
    return _norm(p, alpha)


def _norm(p: Any, alpha: Any) -> Any:
    # Of a number NumPy takes powers by the exponents ½ and 2, of an array it does not.
    return alpha_norm(p, alpha[0, 0] if alpha.size == 1 else alpha[:, 0])


def _doubtful(z: Any, on: Any, alpha: float) -> Any:
    # With q = [z − τ]₊^{1/(α−1)} τ is where Σ q^α = 1, and p = q/Σq ≤ q.
    doubt = doubtful(z, on, power=1 if alpha == np.inf else alpha / (alpha - 1))
    return doubt and doubt._replace(most=doubt.most ** (1 / alpha))


normmax.doubtful = _doubtful
normmax.textbook, normmax.jacobian.textbook = textbook, textbook_jacobian
normmax.loss.textbook = textbook_loss
