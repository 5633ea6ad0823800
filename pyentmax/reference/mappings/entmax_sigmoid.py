"""α-sigmoid: the probability of a binary event, by α-entmax of its score and 0.

Problem: argmax over 0 ≤ p ≤ 1 of p z + H_α([p, 1 − p]), H_α Tsallis' entropy: the first entry of
α-entmax([z, 0]). Where 0 < p < 1 the derivative is zero, so that p solves

    (p^{α−1} − (1 − p)^{α−1})/(α − 1) = z,

the logit log p − log(1 − p) = z at α = 1, and p is exactly 0 or 1 from |z| = 1/(α−1) on. Closed
forms: the logistic sigmoid at α = 1; (1 + z)/2 at 2 and (1 + 2z)/2 at 3, clipped to [0, 1]; at
1.5, with t = z/2, √p = (√(2 − t²) + t)/2. It is the binary case of Blondel, Martins & Niculae
(2020), Learning with Fenchel-Young losses, where the scores are [z, 0], and Figure 3 of Peters et
al. (2019).

Its losses are in `pyentmax.reference.losses.one_vs_all`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyentmax.engine.backends import entries
from pyentmax.engine.calls.parameters import PerEntry
from pyentmax.engine.calls.types import Array, ArrayLike
from pyentmax.reference.thresholds.binary import finite_beta, smaller

__all__ = [
    "entmax_sigmoid",
    "entmax_sigmoid_grad_alpha",
    "entmax_sigmoid_jvp",
    "entmax_sigmoid_vjp",
    "entmax_sigmoid_vjp_alpha",
]


def textbook(z: float, alpha: float = 1.5) -> float:
    """p with (p^{α−1} − (1 − p)^{α−1})/(α−1) = z, α > 0, α ≠ 1, for one score: halve [0, 1].

    The left side rises with p, for α > 1 from −1/(α−1) to 1/(α−1).

    >>> round(textbook(1.0, 2), 6), round(textbook(0.8, 1.5), 6)
    (1.0, 0.771293)
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        below = (p ** (alpha - 1) - (1 - p) ** (alpha - 1)) / (alpha - 1) <= z
        low, high = (p, high) if below else (low, p)
    return (low + high) / 2


def textbook_loss(z: float, y: float, alpha: float = 1.5) -> float:
    """L = Ω*(z) + Ω(y) − y z with Ω(p) = −H_α([p, 1 − p]) (Blondel et al. 2020, Def. 2).

    >>> round(textbook_loss(0.0, 1.0, 2), 6)
    0.25
    """

    def omega(p: float) -> float:
        return (p**alpha + (1 - p) ** alpha - 1) / (alpha * (alpha - 1))

    p = textbook(z, alpha)
    return p * z - omega(p) + omega(y) - y * z


# What follows is right for every input, from q, the smaller of p and 1 − p. Bodies get β = α − 1 in
# the place of alpha.

ALPHA = PerEntry("alpha", least=0, strict=True)


def _forward(z: Any, alpha: Any) -> Any:
    q = smaller(np.abs(z), alpha)
    return np.where(z > 0, 1 - q, q)


@entries.mapping(_forward, ALPHA)
def entmax_sigmoid(
    z: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None,
) -> Array:  # fmt: skip
    """α-sigmoid, elementwise: p of the problem max p z + H_α([p, 1 − p]), as α-entmax([z, 0])₁.

    The logistic sigmoid at α = 1; entmoid (Popov et al. 2019) at α = 1.5. Above 1, p is exactly 0
    below z = −1/(α−1), exactly 1 above 1/(α−1), and at α = ∞ a step, ½ at 0.

    Parameters
    ----------
    z : array of scores, of any shape
        −∞ gives 0 and ∞ gives 1
    alpha : float or array that broadcasts to z
        above 0; only above 1 can p be 0 or 1
    mask : bool array that broadcasts to z, optional
        0 stands where it is False
    out : array of z's shape, optional
    workers : int, optional
        how many threads share the entries; by default as `pyentmax.set_workers` says

    Returns
    -------
    array of z's shape and dtype; half precision is computed in float32, integers become float64

    Raises
    ------
    ValueError
        if some alpha is not above 0, or shapes do not fit
    TypeError
        if z is not of real numbers

    Examples
    --------
    >>> print(entmax_sigmoid([-3.0, -1.0, 0.0, 0.5, 2.0]).round(6))
    [0.       0.169281 0.5      0.673993 1.      ]
    >>> print(entmax_sigmoid([-1.0, 0.5, 1.0], 2))
    [0.   0.75 1.  ]
    """
    return entmax_sigmoid.dispatch(z, alpha, mask, out, workers)


def _jvp(p: Any, v: Any, alpha: Any) -> Any:
    return _times(_slope(np.minimum(p, 1 - p), alpha), v)


@entries.derivative(_jvp, ALPHA, "v")
def entmax_sigmoid_jvp(
    p: ArrayLike, v: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None
) -> Array:
    """dp/dz ∘ v at p = entmax_sigmoid(z, alpha): the Jacobian of `entmax_sigmoid` is diagonal.

    From differentiating (p^{α−1} − (1 − p)^{α−1})/(α − 1) = z, dp/dz is
    1/(p^{α−2} + (1 − p)^{α−2}): p (1 − p) at α = 1, ½ inside (0, 1) at α = 2, and 0 where p is 0
    or 1. Near p = 1 a float rounds 1 − p, on which this depends: the derivatives at −z, whose p is
    small, are the same and keep all digits.

    Parameters
    ----------
    p, v : arrays of one shape
        p is what `entmax_sigmoid` gave, v a direction
    alpha : as in `entmax_sigmoid`
    mask : bool array that broadcasts to p, optional
        0 stands where it is False

    Returns
    -------
    array of p's shape

    Raises
    ------
    ValueError, TypeError
        as in `entmax_sigmoid`

    Examples
    --------
    >>> print(entmax_sigmoid_jvp([0.0, 0.5, 0.75], [1.0, 2.0, 2.0], 2))
    [0. 1. 1.]
    """
    return entmax_sigmoid_jvp.dispatch(p, v, alpha, mask)


entmax_sigmoid_vjp = entmax_sigmoid_jvp


def _grad_alpha(p: Any, alpha: Any) -> Any:
    slope = _slope_alpha(np.minimum(p, 1 - p), alpha)
    return np.where(p > 0.5, slope, 0 - slope)


@entries.derivative(_grad_alpha, ALPHA)
def entmax_sigmoid_grad_alpha(
    p: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None
) -> Array:
    """∂p/∂α at p = entmax_sigmoid(z, alpha), elementwise, for every α > 0 (0 at α = ∞).

    With β = α − 1 and q = 1 − p, differentiating (p^β − q^β)/β = z by β gives

        (p^{β−1} + q^{β−1}) ∂p/∂α = ψ(β log q) log² q − ψ(β log p) log² p,

    where ψ(x) = (x eˣ − eˣ + 1)/x² is ½ at x = 0: there is no division by β.

    Parameters
    ----------
    p, alpha, mask : as in `entmax_sigmoid_jvp`

    Returns
    -------
    array of p's shape

    Raises
    ------
    ValueError, TypeError
        as in `entmax_sigmoid`

    Examples
    --------
    >>> print(entmax_sigmoid_grad_alpha(entmax_sigmoid([-1.0, 0.0, 1.0])).round(6))
    [-0.248462  0.        0.248462]
    """
    return entmax_sigmoid_grad_alpha.dispatch(p, None, alpha, mask)


def _vjp_alpha(p: Any, g: Any, alpha: Any) -> Any:
    return _times(entmax_sigmoid_grad_alpha.body(p, alpha), g)


@entries.derivative(_vjp_alpha, ALPHA, "g", gradient=True)
def entmax_sigmoid_vjp_alpha(
    p: ArrayLike, g: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None
) -> Array:
    """Σ g ∘ ∂p/∂α, summed to alpha's shape: the gradient in α of a loss with gradient g in p.

    Parameters
    ----------
    p, g : arrays of one shape
        p is what `entmax_sigmoid` gave, g a loss's gradient in p
    alpha, mask : as in `entmax_sigmoid_jvp`

    Returns
    -------
    array of alpha's shape

    Raises
    ------
    ValueError, TypeError
        as in `entmax_sigmoid`

    Examples
    --------
    >>> p = entmax_sigmoid([-1.0, 1.0])
    >>> print(round(float(entmax_sigmoid_vjp_alpha(p, [0.0, 2.0])), 6))
    0.496923
    """
    return entmax_sigmoid_vjp_alpha.dispatch(p, g, alpha, mask)


def _times(slope: Any, v: Any) -> Any:
    """slope · v, and 0 where the slope is, whatever v holds."""
    return np.where(slope == 0, slope, slope * np.where(slope == 0, 0, v))


# --- derivatives, from q and β ------------------------------------------------------------------


def _slope(q: Any, beta: Any) -> Any:
    """1/(p^{β−1} + q^{β−1}) with the larger of the two taken out, 0 at q = 0 and at β = ∞."""
    ratio, power = q / (1 - q), finite_beta(np.abs(beta - 1))
    with np.errstate(over="ignore", under="ignore"):
        larger = np.where(beta <= 1, q**power, (1 - q) ** -power)
        slope = larger / (1 + ratio**power)
    return np.where((q > 0) & ~np.isinf(beta), slope, np.where(np.isnan(q), q, 0))


def _slope_alpha(q: Any, beta: Any) -> Any:
    """∂p/∂α where p is the larger, and its negative where it is the smaller.

    Where both powers are small, the numerator x eˣ − eˣ + 1 of ψ is nearly 1, and the difference of
    two would be rounding, multiplied by a possibly steep slope. There the 1 is left out, and p^β is
    divided out of the rest and of the slope, so that neither underflows.
    """
    live = (q > 0) & (q < 0.5)
    inside, finite = np.where(live, q, 0.25), finite_beta(np.where(np.isinf(beta), 1, beta))
    with np.errstate(under="ignore"):  # log1p of a subnormal number
        logs = np.log(inside), np.log1p(-inside)
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        parts = [log * log * _psi(finite * log) for log in logs]
        slope = _slope(inside, beta) * (parts[0] - parts[1])
        few, most = (1 - finite * log for log in logs)
        ratio = inside / (1 - inside)
        share = (1 - inside) / (1 + ratio ** (finite - 1))
        slope = np.where(most > 1.3, share * (most - few * ratio**finite) / finite / finite, slope)
    return np.where(live & ~np.isinf(beta), slope, np.where(np.isnan(q), q, 0))


def _psi(x: Any) -> Any:
    """(x eˣ − eˣ + 1)/x², by its Taylor series Σ (k+1) xᵏ/(k+2)! near 0."""
    near = np.abs(x) < 0.3
    small, series = np.where(near, x, 0), np.zeros_like(x)
    for k in range(13, -1, -1):
        series = series * small + (k + 1) / math.factorial(k + 2)
    large = np.where(near, -1, np.maximum(x, -np.sqrt(np.finfo(x.dtype).max) / 2))
    return np.where(near, series, (large * np.exp(large) - np.expm1(large)) / (large * large))
