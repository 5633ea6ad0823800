"""α-entmax: the whole family, from softmax (α = 1) over sparsemax (2) to argmax (∞).

Problem: argmax over the simplex of p·z + H_α(p), H_α Tsallis' entropy. The optimality
conditions are p_i = [(α−1) z_i − τ]₊^{1/(α−1)}: the larger α, the sparser. Given p, everything
about the derivatives follows from s = p^{2−α} on the support, as Ω''(p) = p^{α−2}.

Below 1 the power is negative: no p_i is 0, and a score that falls far behind gets
p_i ≈ |(1−α) z_i|^{−1/(1−α)}, a heavier tail than softmax's e^{z_i}.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.engine.calls.parameters import Alpha
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.entropies import tsallis_entropy
from pyentmax.reference.log_probabilities import log_sum_exp, logarithms, refine_large
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.thresholds.bisection import bisect_p_max
from pyentmax.reference.thresholds.newton import newton, remainder
from pyentmax.reference.thresholds.proof import doubtful
from pyentmax.reference.thresholds.tsallis import (
    in_support,
    log_tsallis_exp,
    tsallis_base,
    tsallis_exp,
)

__all__ = ["entmax"]


def textbook(z: Any, alpha: float = 1.5) -> np.ndarray:
    """p = [(α−1) z − τ]₊^{1/(α−1)}, α > 0, α ≠ 1, for one vector (Peters et al. 2019, Alg. 1).

    With x = (α−1) z and its value x* at the largest score, the largest p is 1 at τ = x* − 1, so
    that Σp ≥ 1, and 1/d at τ = x* − d^{1−α}, so that Σp ≤ 1: halve that bracket, and renormalise
    in the end. Above α = 1, Σp falls as τ rises. Below, x* is the smallest x, and Σp falls as τ
    falls.

    >>> textbook([2.0, 1.6, -1.0], 1.5).round(6)
    array([0.64, 0.36, 0.  ])
    >>> textbook([2.0, 1.6, -1.0], 0.5).round(4)
    array([0.4991, 0.3832, 0.1177])
    """
    z = np.asarray(z, float)
    x, top = (alpha - 1) * z, (alpha - 1) * z.max()
    more, less = top - 1, top - len(z) ** (1 - alpha)
    for _ in range(60):
        tau = (more + less) / 2
        p = np.maximum(x - tau, 0) ** (1 / (alpha - 1))
        more, less = (tau, less) if p.sum() >= 1 else (more, tau)
    return p / p.sum()


def textbook_jacobian(p: Any, alpha: float = 1.5) -> np.ndarray:
    """J = diag(s) − s sᵀ/Σs, s = p^{2−α} on the support (Peters et al. 2019, Prop. 1).

    >>> textbook_jacobian([0.75, 0.25, 0.0], 2)
    array([[ 0.5, -0.5,  0. ],
           [-0.5,  0.5,  0. ],
           [ 0. ,  0. ,  0. ]])
    """
    p = np.asarray(p, float)
    s = np.where(p > 0, np.where(p > 0, p, 1) ** (2 - alpha), 0)
    return np.diag(s) - np.outer(s, s) / s.sum()


def textbook_loss(z: Any, y: int, alpha: float = 1.5) -> float:
    """L = (p − e_y)·z + H_α(p), H_α(p) = Σ (p − p^α)/(α(α−1)) (Peters et al. 2019, Eq. 9, 11).

    >>> round(float(textbook_loss([0.0, 0.0], 0, 2)), 6)
    0.25
    """
    p, z = textbook(z, alpha), np.asarray(z, float)
    return p @ z - z[y] + np.sum(p - p**alpha) / (alpha * (alpha - 1))


def textbook_grad_alpha(p: Any, alpha: float = 1.5) -> np.ndarray:
    """∂p/∂α = (p − p̃)/(α−1)² + (h − p̃ Σh)/(α−1), α ≠ 1 (Correia et al. 2019, Prop. 1).

    p̃ = s/Σs with s = p^{2−α} on the support, and h_i = −p_i log p_i.

    >>> textbook_grad_alpha([0.64, 0.36, 0.0], 1.5).round(4)
    array([ 0.0988, -0.0988,  0.    ])
    """
    p = np.asarray(p, float)
    positive = np.where(p > 0, p, 1)
    s = np.where(p > 0, positive ** (2 - alpha), 0)
    tilde, h = s / s.sum(), -p * np.log(positive)
    return (p - tilde) / (alpha - 1) ** 2 + (h - tilde * h.sum()) / (alpha - 1)


# What follows is right for every input. Near α = 1 all thresholds approach max x − 1, the powers
# overflow, and the two terms of ∂p/∂α cancel: `newton` and `_grad_alpha` use variables that have a
# limit at α = 1. Above α = 2 p is ill-conditioned at the threshold: `bisect_p_max`. And s may
# overflow where p nears 0, but its share of Σs does not.

ALPHA = Alpha("alpha", least=0, strict=True, kernel_least=1)


@mapping(ALPHA, omega_at_vertices=0.0)
def entmax(
    z: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Sparse probabilities p = [(α−1) z − τ]₊^{1/(α−1)} (Peters et al. 2019, Eq. 10 and App. C).

    Maximises p·z + H_α(p) over the simplex, H_α Tsallis' entropy. Newton's method for α ≤ 2 and
    bisection above, where p is ill-conditioned at the threshold
    (`pyentmax.reference.thresholds.newton`, `pyentmax.reference.thresholds.bisect_p_max`): O(d) per
    pass.

    `entmax.loss` (Peters et al. 2019, §3.2) is 0 from a margin of 1/(α−1) on if α > 1. It is the
    cross-entropy at α = 1, the sparsemax loss at 2, and max z − z_y (the perceptron's) at ∞, convex
    for every α; below 1 no margin is enough.

    Parameters
    ----------
    z : array of scores
    alpha : float or array that broadcasts against the batch shape (z's without the axis)
        above 0. 1 is softmax, 2 sparsemax, ``inf`` uniform over the largest scores. Below 1 all
        scores get probability, and low ones more than from softmax: p ~ |z|^{−1/(1−α)}
    axis, mask, out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros where α > 1

    Raises
    ------
    ValueError
        if some alpha is not above 0 or does not fit the batch; else as in `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Notes
    -----
    For 1 ≤ α ≤ 2, p is within 4ε p + 16ε p^{2−α} max(1, max z − min z) of the exact probabilities,
    ε the rounding unit of the dtype and min z that of the support. For α < 1 it is within
    4ε p |log p| more, what rounding the power 1/(α−1) costs where p is tiny.

    There is no kernel for α < 1: if some alpha is below 1, NumPy computes its rows. On a GPU, whose
    values are not looked at, an alpha on the device that is below 1 makes its row NaN.

    Examples
    --------
    >>> print(entmax([1.0, 0.5, -2.0], 2).round(6))
    [0.75 0.25 0.  ]
    >>> scores = np.array([[2.0, 1.6, -1.0]] * 3)
    >>> print(entmax(scores, [1, 1.5, np.inf]).round(6))
    [[0.581359 0.389697 0.028944]
     [0.64     0.36     0.      ]
     [1.       0.       0.      ]]
    >>> print(entmax([0.0, -900.0], 1.001)[1], entmax.support([0.0, -900.0], 1.001))
    0.0 [ True  True]
    >>> print(entmax.log([0.0, -900.0, -1100.0], 1.001).round(4))
    [    0.     -2302.5851       -inf]
    >>> print(entmax.jvp([0.25, 0.25, 0.25, 0.25, 0.0], [-1.0, 0.0, 0.0, 0.0, 9.0]))
    [-0.375  0.125  0.125  0.125  0.   ]
    >>> p = entmax([2.0, 1.6, -1.0], 1.5)
    >>> grad_z, grad_alpha = entmax.vjps(p, [1.0, 0.0, 0.0], 1.5)
    >>> print(grad_z.round(4), round(float(grad_alpha), 4), entmax.parameter_slope(p).round(4))
    [ 0.3429 -0.3429  0.    ] 0.0988 [ 0.0988 -0.0988  0.    ]
    >>> loss, grad = entmax.loss_and_grad([0.0, 0.0], 0, 2)
    >>> print(loss, grad, entmax.loss([1.0, 0.0], 1, float("inf")))
    0.25 [-0.5  0.5] 1.0
    """
    return z, alpha, axis, mask, out


@entmax.rule
def _forward(y: Any, alpha: Any) -> Any:
    p, _ = _solve(y, _beta(alpha, y))
    return p


def _beta(alpha: Any, like: Any) -> Any:
    # β = α − 1 in the working dtype, subtracted before α is rounded to it; beyond that it is ∞.
    with np.errstate(over="ignore"):
        return (alpha - 1).astype(like.dtype)


def _solve(y: Any, beta: Any) -> tuple[Any, Any]:
    """Probabilities and their support, of y = z − max z."""
    on_host = isinstance(beta, np.ndarray)
    if on_host and (beta <= 1).all():
        return _solve_low(y, beta)
    if on_host and (beta > 1).all():
        return _solve_high(y, beta)
    p_low, support_low = _solve_low(y, np.minimum(beta, 1))
    p_high, support_high = _solve_high(y, np.maximum(beta, 1))
    low = beta <= 1
    return np.where(low, p_low, p_high), np.where(low, support_low, support_high)


def _solve_low(y: Any, beta: Any) -> tuple[Any, Any]:
    c, rest = _normalizer(y, beta)
    return _simplex.normalized(*tsallis_exp(y - c, beta, rest)), in_support(y, c, beta, rest)


def _normalizer(y: Any, beta: Any) -> tuple[Any, Any]:
    c = newton(y, beta).c
    return c, remainder(tsallis_base(y - c, beta), beta)


def _solve_high(y: Any, beta: Any) -> tuple[Any, Any]:
    p = bisect_p_max(y, beta).p
    return p, p > 0


@entmax.support.rule
def _support(y: Any, alpha: Any) -> Any:
    """Where probability is given, even if it underflows to 0 as α nears 1."""
    _, support = _solve(y, _beta(alpha, y))
    return support


@entmax.log.rule
def _log(y: Any, alpha: Any) -> Any:
    """log p = log1p((α−1)(z − max z − c))/(α−1) with the normaliser c of `newton`, up to α = 2."""
    beta = _beta(alpha, y)
    low = np.minimum(beta, 1)
    c, rest = _normalizer(y, low)
    log_p = np.where(in_support(y, c, low, rest), log_tsallis_exp(y - c, low, rest), -np.inf)
    log_p = refine_large(log_p, np.exp(log_p))
    if isinstance(beta, np.ndarray) and (beta <= 1).all():
        return log_p
    return np.where(beta <= 1, log_p, logarithms(bisect_p_max(y, np.maximum(beta, 1)).p))


@entmax.jvp.rule
def _product(p: Any, v: Any, alpha: Any) -> Any:
    """J v = s ∘ (v − (s·v)/Σs), s = p^{2−α} on the support (Peters et al. 2019, Prop. 1)."""
    beta = _beta(alpha, p)
    s, log_s = _curvature(p, beta), _log_curvature(p, beta)
    return _simplex.product(s, v, _share(p, beta), log_s)


def _curvature(p: Any, beta: Any) -> Any:
    """s = 1/Ω''(p) = p^{1−β} on the support, 0 off it, and at β = ∞, where p only ever jumps."""
    nowhere = (p == 0) | np.isinf(beta)
    with np.errstate(over="ignore"):  # s may overflow to ∞; `_share`, its part of Σs, does not
        s = np.where(nowhere, 0, np.where(nowhere, 1, p) ** _power(np.where(nowhere, 1, beta)))
    return np.where(np.isnan(p), p, s)  # NaN⁰ is 1, but must stay a NaN


def _log_curvature(p: Any, beta: Any) -> Any:
    """log s, −∞ off the support, and 0 on it where β is ∞."""
    power = _power(np.where(np.isinf(beta), 1, beta))
    return np.where(p == 0, -np.inf, power * np.log(np.where(p == 0, 1, p)))


def _power(beta: Any) -> Any:
    # 1 − β, but never so large that times log p it would overflow.
    return 1 - np.minimum(beta, np.finfo(beta.dtype).max / 1e4)


def _share(p: Any, beta: Any) -> Any:
    """s/Σs for s = p^{1−β}: a softmax of (1−β) log p over the support, which never overflows."""
    r = _log_curvature(p, beta)
    top = np.max(r, axis=-1, keepdims=True)
    share = np.exp(r - np.where(top == -np.inf, 0, top))
    total = np.sum(share, axis=-1, keepdims=True)
    return share / np.where(total == 0, 1, total)


@entmax.jacobian.rule
def _jacobian(p: Any, alpha: Any) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = p^{2−α}."""
    beta = _beta(alpha, p)
    s = _curvature(p, beta)
    total = s.sum(axis=-1, keepdims=True)
    finite = np.isfinite(total)
    if isinstance(p, np.ndarray) and finite.all():
        return _simplex.dense(s)
    with np.errstate(invalid="ignore"):
        share = np.where(finite, _simplex.share_of_sum(s), _share(p, beta))
    return _simplex.dense(s, share, _log_curvature(p, beta))


@entmax.parameter_slope.rule
def _grad_alpha(p: Any, alpha: Any) -> Any:
    """∂p/∂α, exact for every α > 0 (0 at α = ∞).

    The published form (Correia et al. 2019, Prop. 1) is, with β = α − 1, s = p^{1−β}, p̃ = s/Σs,

        g = (p − p̃)/β² + (h − p̃ Σh)/β,    h = −p log p,

    and a separate form at β = 0; the two terms cancel as β → 0 (no digit is right at β = 1e−8).
    Writing p^{−β} = 1 + x + β²a with x = −βl, l = log p, that is a = l² φ(x),
    φ(x) = (eˣ − 1 − x)/x², and collecting powers of β gives for all β at once

        g = p/Σs ∘ [Q − a − β (Q l + H a)],    Q = Σ p a,  H = −Σ p l.

    Since Σp = 1, differences to the largest entry may replace a and l; so the gradient of a uniform
    row is exactly 0. Above β = 1, where s may overflow and nothing cancels badly, the published
    form is used, with the same differences; in rows with a denormal p, where a would overflow, it
    is already used from β = 0.77 on.
    """
    beta = _beta(alpha, p)
    log_p = np.log(np.where(p == 0, 1, p))
    steepest = np.max(-log_p, axis=-1, keepdims=True)
    most = np.log(np.finfo(log_p.dtype).max) - 9  # room for factors of e⁹
    small = (beta <= 1) & ~(np.minimum(beta, 1) * steepest > most)
    if isinstance(small, np.ndarray) and small.all():
        return _grad_alpha_small(p, beta)
    if isinstance(small, np.ndarray) and not small.any():
        return _grad_alpha_large(p, beta)
    small_form = _grad_alpha_small(p, np.where(small, beta, 0))
    return np.where(small, small_form, _grad_alpha_large(p, np.where(small, 1, beta)))


def _grad_alpha_small(p: Any, beta: Any) -> Any:
    log_p = np.log(np.where(p == 0, 1, p))
    x = -beta * log_p
    a = log_p * log_p * _phi(x)
    da, dl = _differences(p, a, log_p)
    a_top, l_top = a - da, log_p - dl
    q, h = _dot(p, da), -_dot(p, dl)
    bracket = q - da - beta * (q * log_p + h * a + a_top * dl - l_top * da)
    total = np.sum(_curvature(p, beta), axis=-1, keepdims=True)
    # 0 in a row that is all masked. Not p/Σs first: a denormal p would lose its digits.
    return p * (bracket / np.where(total == 0, 1, total))


def _phi(x: Any) -> Any:
    """(eˣ − 1 − x)/x², by its Taylor series Σ xᵏ/(k+2)! near 0, where it cancels."""
    near = np.abs(x) < 0.3
    small, series = np.where(near, x, 0), np.zeros_like(x)
    for k in range(13, 1, -1):  # 0.3¹²/14! is 1e−17 of the first term
        series = (series + 1) * small / k if k > 2 else (series + 1) / 2
    large = np.where(near, 1, x)
    return np.where(near, series, (np.expm1(large) - large) / (large * large))


def _grad_alpha_large(p: Any, beta: Any) -> Any:
    log_p = np.log(np.where(p == 0, 1, p))
    finite = np.where(np.isinf(beta), 1, beta)
    (dl,) = _differences(p, log_p)
    share = _share(p, finite)
    gap = p - share
    g = gap / finite / finite - (p * dl - share * _dot(p, dl) + (log_p - dl) * gap) / finite
    return np.where(np.isinf(beta), np.where(np.isnan(p), p, 0), g)


def _differences(p: Any, *values: Any) -> tuple[Any, ...]:
    # Each value minus that at the row's largest p.
    place = np.argmax(p, axis=-1, keepdims=True)
    return tuple(v - _simplex.entry_of_row(v, place) for v in values)


def _dot(a: Any, b: Any) -> Any:
    return np.sum(a * b, axis=-1, keepdims=True)


@entmax.parameter_vjp.rule
def _vjp_alpha(p: Any, g: Any, alpha: Any) -> Any:
    if isinstance(p, np.ndarray):
        slope = _grad_alpha(p, alpha)
    else:  # a GPU has a kernel for the slope, but none for this sum
        slope = entmax.parameter_slope(p, alpha[:, 0])
    if isinstance(slope, np.ndarray) and isinstance(g, np.ndarray):
        with np.errstate(invalid="ignore"):
            total = np.sum(slope * g, axis=-1)
        if np.isfinite(total).all():
            return total
    # g is unused where p is 0, even if it is NaN there.
    return np.sum(slope * np.where(p != 0, g, 0), axis=-1)


@entmax.vjps.rule
def _vjps(p: Any, g: Any, alpha: Any) -> tuple[Any, Any]:
    """Jᵀ g and Σ g ∘ ∂p/∂α.

    With b = ∂∇Ω(p)/∂α, ∂p/∂α is −J b: as α grows, p moves as if the scores had moved by −b. So the
    gradient in α is −Σ b ∘ J g, one more sum over the gradient in z, and the compiled kernel takes
    both from the same logarithms of p.
    """
    per_row = np.broadcast_to(alpha[:, 0], p.shape[:1])  # so that gradients of rows are not summed
    return entmax.vjp(p, g, per_row), entmax.parameter_vjp(p, g, per_row)


@entmax.regularizer.rule
def _omega(p: Any, alpha: Any) -> Any:
    """Ω(p) = Σ (p^α − p) / (α (α−1)), the negative of Tsallis' entropy."""
    return 0 - tsallis_entropy(p, alpha[:, 0])


def _conjugate(z: Any, p: Any, alpha: Any) -> Any:
    # At α = 1 it is log Σ exp z, and p·z + H(p) would cancel where p is nearly certain. Below 1,
    # where p^α = p (1 + β(z − c)) gives H_α(p) = Σ p (c − z)/α, it is (c − |β| p·z)/α, a sum of
    # positive terms; c is (1 − p_max^β)/β.
    alpha, _ = as_floating(alpha, "alpha")
    below = alpha < 1
    mean = np.sum(p * np.where(p == 0, 0, z), axis=-1)
    otherwise = mean + tsallis_entropy(p, np.where(below, 1, alpha))
    otherwise = np.where(alpha == 1, log_sum_exp(z)[..., 0], otherwise)
    if isinstance(alpha, np.ndarray) and not np.any(below):
        return otherwise
    beta = np.where(below, alpha - 1, -0.5)[()]  # a scalar is one on a device, too
    c = -np.expm1(beta * np.max(logarithms(p), axis=-1)) / beta
    return np.where(below, (c + beta * mean) / np.where(below, alpha, 1)[()], otherwise)


def _doubtful(z: Any, on: Any, alpha: float) -> Any:
    # Up to α = 1 no score is off the support, and at ∞ all below the largest are: no rounding.
    return None if alpha <= 1 or alpha == np.inf else doubtful(z, on, 1 / (alpha - 1), alpha - 1)


entmax.conjugate, entmax.doubtful = _conjugate, _doubtful
entmax.textbook, entmax.jacobian.textbook = textbook, textbook_jacobian
entmax.loss.textbook, entmax.parameter_slope.textbook = textbook_loss, textbook_grad_alpha
