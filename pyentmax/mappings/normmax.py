"""normmax: sparse probabilities regularised by a norm, most uniform on their support as α → ∞.

Problem: argmax over the simplex of p·z − ‖p‖_α, α > 1 (Blondel, Martins & Niculae 2020, §4.3).

The optimality conditions are (p_i/‖p‖_α)^{α−1} = z_i − τ on the support and z_i ≤ τ off it. So
with q = p/‖p‖_α, a vector of unit norm,

    q_i = [z_i − τ]₊^{1/(α−1)},    Σ q^α = 1,    p = q/Σq.

This Ω is not separable, yet the search for τ is one that the separable ones have solved: q^α is
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

from pyentmax.backends.choice import accelerated
from pyentmax.calls.rows import Rows, Tangent, check_parameter
from pyentmax.entropies import alpha_norm
from pyentmax.mappings import _simplex
from pyentmax.mappings._record import Mapping
from pyentmax.thresholds import newton


class _Rows(Rows):
    """The scores of one call, and α."""

    __slots__ = ("alpha",)

    def __init__(
        self, z: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None, out: Any = None
    ) -> None:
        super().__init__(z, axis, mask=mask, out=out)
        self.alpha = self.parameter(alpha, "alpha", 1, strict=True)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that α needs no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: scores, mask, and α per row or one for all."""
        return (*super().operands(), self.alpha)

    def logarithms(self) -> Any:
        """log q, −∞ off the support."""
        y, power = self.scores(), _power(self.alpha, self.z)
        beta = 1 / (1 + power)  # 1 − 1/α, without cancellation
        with np.errstate(over="ignore"):
            scaled = y / beta
        x = y - beta * newton(scaled, beta).c  # z − τ − 1, accurate where z − τ is near 1
        on = x > -1
        return np.where(on, power * np.log1p(np.where(on, x, 0)), -np.inf)


class _Tangent(Tangent):
    """Probabilities, a direction, and α."""

    __slots__ = ("alpha",)

    def __init__(
        self, p: Any, v: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None
    ) -> None:
        super().__init__(p, v, axis, mask=mask)
        self.alpha = check_parameter(alpha, "alpha", self.p, 1, strict=True)

    @property
    def s(self) -> Any:
        """The diagonal s."""
        power = _power(self.alpha, self.p)
        norm = alpha_norm(self.p, self.alpha)[..., None]
        on = self.p != 0
        # The power of α − 1 is a division by 0 at α = ∞, where p only ever jumps: s = 0.
        # By logarithms, since norm/p overflows for a denormal p.
        steep = np.exp(
            (np.log(np.where(norm > 0, norm, 1)) - np.log(np.where(on, self.p, 1)))
            / np.where(power == 0, 1, power)
        )
        return np.where(on, power * self.p * steep, 0)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that α needs no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: p, v, and α per row or one for all."""
        return (*super().operands(), self.alpha)


@accelerated(_Rows)
def normmax(z: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """Sparse probabilities p ∝ [z − τ]₊^{1/(α−1)}: argmax over the simplex of p·z − ‖p‖_α.

    Blondel, Martins & Niculae (2020), §4.3. τ by Newton's method, O(d) per pass
    (`pyentmax.thresholds.newton`). Scores more than 1 below the largest get nothing, for every α.

    Parameters
    ----------
    z : array of scores
    alpha : float or array that broadcasts against the batch shape (z's without the axis)
        above 1; as it nears 1, p nears argmax, and ``inf`` is uniform over sparsemax's support
    axis, mask, out, workers : as in `pyentmax.softmax`

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
    """
    rows = _Rows(z, alpha, axis, mask=mask, out=out)
    q = np.exp(rows.logarithms())
    return rows.restore(q / np.sum(q, axis=-1, keepdims=True))


def normmax_support(z: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where normmax gives probability, though a float underflow to 0 as α nears 1.

    Examples
    --------
    >>> print(normmax([0.0, -0.6], 1.001)[1], normmax_support([0.0, -0.6], 1.001))
    0.0 [ True  True]
    """
    rows = _Rows(z, alpha, axis, mask=mask)
    return rows.restore_support(rows.logarithms() > -np.inf)


@accelerated(_Tangent)
def normmax_jvp(p: Any, v: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v = t − p Σt with t = s ∘ (v − p·v), s = p (‖p‖_α/p)^{α−1}/(α−1) on the support.

    Parameters
    ----------
    p, v : arrays of one shape, p = normmax(z, alpha)
    alpha, axis, mask : as in `normmax`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> print(normmax_jvp([0.5, 0.5, 0.0], [-1.0, 0.0, 9.0]).round(6))
    [-0.353553  0.353553  0.      ]
    """
    rows = _Tangent(p, v, alpha, axis, mask=mask)
    v = np.where(rows.p != 0, rows.v, 0)  # off the support v may hold anything, a NaN too
    t = rows.s * (v - np.sum(rows.p * v, axis=-1, keepdims=True))
    return rows.restore(t - rows.p * np.sum(t, axis=-1, keepdims=True))


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
normmax_vjp = normmax_jvp


def normmax_jacobian(p: Any, alpha: Any = 2.0, axis: Any = -1) -> Any:
    """J = (I − p1ᵀ) diag(s) (I − 1pᵀ) at p = normmax(z, alpha); of shape batch + (d, d).

    Examples
    --------
    >>> print(normmax_jacobian([0.5, 0.5, 0.0]).round(6))
    [[ 0.353553 -0.353553  0.      ]
     [-0.353553  0.353553  0.      ]
     [ 0.        0.        0.      ]]
    """
    rows = _Tangent(p, p, alpha, axis)
    p, s = rows.p, rows.s
    identity = _simplex.identity(p)
    mixed = s[..., :, None] * p[..., None, :]  # added to its transpose: symmetric to the last bit
    total = np.sum(s, axis=-1)[..., None, None]
    outer = p[..., :, None] * p[..., None, :]
    return s[..., :, None] * identity - (mixed + np.swapaxes(mixed, -1, -2)) + total * outer


def normmax_omega(p: Any, alpha: Any = 2.0, axis: Any = -1) -> Any:
    """Ω(p) = ‖p‖_α: 1 at the corners of the simplex, not 0.

    Examples
    --------
    >>> print(normmax_omega([0.6, 0.8]).round(6))
    1.0
    """
    return alpha_norm(p, alpha, axis)


def _power(alpha: Any, like: Any) -> Any:
    # 1/(α − 1) in the working dtype, taken before α is rounded to it; one per row, or one.
    power = 1 / (alpha - 1)
    fill = power[..., None] if power.ndim else power
    return np.full_like(like[..., :1], fill, shape=(*power.shape, 1))


MAPPING = Mapping(
    name="normmax",
    forward=normmax,
    support=normmax_support,
    jvp=normmax_jvp,
    vjp=normmax_vjp,
    jacobian=normmax_jacobian,
    omega=normmax_omega,
    parameters=("alpha",),
    omega_vertices=1.0,
)
