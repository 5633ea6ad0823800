"""α-entmax: the whole family, from softmax (α = 1) over sparsemax (2) to argmax (∞).

Problem: argmax over the simplex of p·z + H_α(p), H_α Tsallis' entropy. The optimality
conditions are p_i = [(α−1) z_i − τ]₊^{1/(α−1)}: the larger α, the sparser. Given p, everything
about the derivatives follows from s = p^{2−α} on the support, as Ω''(p) = p^{α−2}.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.backends.choice import accelerated
from pyentmax.calls.rows import Rows, Tangent, check_parameter, reduce_to
from pyentmax.entropies import tsallis_entropy
from pyentmax.mappings import _simplex
from pyentmax.mappings._record import Mapping
from pyentmax.thresholds import bisect_largest, exp_beta, inside, newton


class _Rows(Rows):
    """The scores of one call, and α."""

    __slots__ = ("alpha",)

    def __init__(
        self, z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None, out: Any = None
    ) -> None:
        super().__init__(z, axis, mask=mask, out=out)
        self.alpha = self.parameter(alpha, "alpha", 1)

    @staticmethod
    def plain(  # type: ignore[override]  # α comes second
        z: Any, alpha: Any = 1.5, *args: Any, **kwargs: Any
    ) -> tuple[Any, ...] | None:
        """Kernel operands where one α, a Python number, is for all, and nothing needs arranging."""
        scores = Rows.plain(z, *args, **kwargs)
        if scores is None or type(alpha) not in (float, int) or not 1 <= alpha < 2**53:
            return None
        return (*scores, np.array(alpha, np.float64))

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: scores, mask, and α per row or one for all."""
        return (*super().operands(), self.alpha)


class _Tangent(Tangent):
    """Probabilities and a direction of one derivative, and α."""

    __slots__ = ("alpha",)

    def __init__(
        self, p: Any, v: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None
    ) -> None:
        super().__init__(p, v, axis, mask=mask)
        self.alpha = check_parameter(alpha, "alpha", self.p, 1)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that α needs no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: probabilities, direction, and α per row or one for all."""
        return (*super().operands(), self.alpha)


class _Point(_Tangent):
    """Probabilities and α alone."""

    __slots__ = ()

    def __init__(self, p: Any, alpha: Any = 1.5, axis: Any = -1) -> None:
        super().__init__(p, p, alpha, axis)

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: probabilities, and α per row or one for all."""
        return self.p, self.alpha


@accelerated(_Rows)
def entmax(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """Sparse probabilities p = [(α−1) z − τ]₊^{1/(α−1)} (Peters et al. 2019, Eq. 10 and App. C).

    Maximises p·z + H_α(p) over the simplex, H_α Tsallis' entropy. Newton's method for α ≤ 2 and
    bisection above, where p is ill-conditioned at the threshold (`pyentmax.thresholds.newton`,
    `pyentmax.thresholds.bisect_largest`): O(d) per pass.

    Parameters
    ----------
    z : array of scores
    alpha : float or array that broadcasts against the batch shape (z's without the axis)
        1 is softmax, 2 sparsemax, ``inf`` uniform over the largest scores
    axis, mask, out, workers : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros where α > 1

    Raises
    ------
    ValueError
        if some alpha is below 1 or does not fit the batch; else as in `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(entmax([1.0, 0.5, -2.0], 2).round(6))
    [0.75 0.25 0.  ]
    >>> scores = np.array([[2.0, 1.6, -1.0]] * 3)
    >>> print(entmax(scores, [1, 1.5, np.inf]).round(6))
    [[0.581359 0.389697 0.028944]
     [0.64     0.36     0.      ]
     [1.       0.       0.      ]]
    """
    rows = _Rows(z, alpha, axis, mask=mask, out=out)
    p, _ = _solve(rows.scores(), _beta(rows.alpha, rows.z))
    return rows.restore(p)


def entmax_support(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where α-entmax gives probability, though a float underflow to 0 as α nears 1.

    Examples
    --------
    >>> print(entmax([0.0, -900.0], 1.001)[1], entmax_support([0.0, -900.0], 1.001))
    0.0 [ True  True]
    """
    rows = _Rows(z, alpha, axis, mask=mask)
    _, support = _solve(rows.scores(), _beta(rows.alpha, rows.z))
    return rows.restore_support(support)


@accelerated(_Tangent)
def entmax_jvp(p: Any, v: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v = s ∘ (v − (s·v)/Σs), s = p^{2−α} on the support (Peters et al. 2019, Prop. 1).

    Parameters
    ----------
    p, v : arrays of one shape, p = entmax(z, alpha)
    alpha, axis, mask : as in `entmax`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> print(entmax_jvp([0.25, 0.25, 0.25, 0.25, 0.0], [-1.0, 0.0, 0.0, 0.0, 9.0]))
    [-0.375  0.125  0.125  0.125  0.   ]
    """
    rows = _Tangent(p, v, alpha, axis, mask=mask)
    beta = _beta(rows.alpha, rows.p)
    s = _curvature(rows.p, beta)
    return rows.restore(_simplex.product(s, rows.v, _share(rows.p, beta)))


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
entmax_vjp = entmax_jvp


def entmax_jacobian(p: Any, alpha: Any = 1.5, axis: Any = -1) -> Any:
    """J = diag(s) − s sᵀ/Σs at p = entmax(z, alpha), s = p^{2−α}; of shape batch + (d, d).

    Examples
    --------
    >>> print(entmax_jacobian([0.75, 0.25, 0.0], 2))
    [[ 0.5 -0.5  0. ]
     [-0.5  0.5  0. ]
     [ 0.   0.   0. ]]
    """
    rows = _Point(p, alpha, axis)
    beta = _beta(rows.alpha, rows.p)
    return _simplex.dense(_curvature(rows.p, beta), _share(rows.p, beta))


@accelerated(_Point)
def entmax_grad_alpha(p: Any, alpha: Any = 1.5, axis: Any = -1) -> Any:
    """∂p/∂α, elementwise, at p = entmax(z, alpha), exact for every α ≥ 1 (0 at α = ∞).

    The published form (Correia et al. 2019, Prop. 1) is, with β = α − 1, s = p^{1−β}, p̃ = s/Σs,

        g = (p − p̃)/β² + (h − p̃ Σh)/β,    h = −p log p,

    and a form of its own at β = 0; the two halves cancel as β → 0 (wrong in every digit at
    β = 1e−8). Writing p^{−β} = 1 + x + β²a with x = −βl, l = log p, that is a = l² φ(x),
    φ(x) = (eˣ − 1 − x)/x², and collecting powers of β gives for all β at once

        g = p/Σs ∘ [Q − a − β (Q l + H a)],    Q = Σ p a,  H = −Σ p l.

    Since Σp = 1, differences to the largest entry may replace a and l; so the gradient of a uniform
    row is exactly 0. Above β = 1, where s and a may overflow and nothing cancels badly, the
    published form is used, with the same differences.

    Parameters
    ----------
    p : array of probabilities
    alpha, axis : as in `entmax`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> p = entmax([2.0, 1.6, -1.0], 1.5)
    >>> print(entmax_grad_alpha(p, 1.5).round(4))
    [ 0.0988 -0.0988  0.    ]
    """
    rows = _Point(p, alpha, axis)
    p = rows.p
    beta = _beta(rows.alpha, p)
    if isinstance(beta, np.ndarray) and not (beta > 1).any():
        return rows.restore(_grad_alpha_small(p, beta))
    if isinstance(beta, np.ndarray) and (beta > 1).all():
        return rows.restore(_grad_alpha_large(p, beta))
    small = _grad_alpha_small(p, np.minimum(beta, 1))
    return rows.restore(np.where(beta <= 1, small, _grad_alpha_large(p, np.maximum(beta, 1))))


def entmax_vjp_alpha(p: Any, g: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> Any:
    """Σ g ∘ ∂p/∂α, summed to alpha's shape: the gradient in α of a loss with gradient g in p.

    Parameters
    ----------
    p, g : arrays of one shape, p = entmax(z, alpha)
    alpha, axis, mask : as in `entmax`

    Returns
    -------
    array of alpha's shape

    Examples
    --------
    >>> p = entmax([2.0, 1.6, -1.0], 1.5)
    >>> print(round(float(entmax_vjp_alpha(p, [1.0, 0.0, 0.0], 1.5)), 4))
    0.0988
    """
    rows = Tangent(p, g, axis, mask=mask)
    slope = entmax_grad_alpha(rows.p, alpha)
    each = np.sum(slope * np.where(rows.p != 0, rows.v, 0), axis=-1)
    return rows.reduced(reduce_to(each, np.shape(alpha)))


def entmax_omega(p: Any, alpha: Any = 1.5, axis: Any = -1) -> Any:
    """Ω(p) = Σ (p^α − p) / (α (α−1)), the negative of Tsallis' entropy.

    Examples
    --------
    >>> print(entmax_omega([0.5, 0.5], 2))
    -0.25
    """
    return -tsallis_entropy(p, alpha, axis) + 0.0


def _beta(alpha: Any, like: Any) -> Any:
    # β = α − 1 in the working dtype, subtracted before α is rounded to it; one per row, or one.
    beta = alpha - 1
    fill = beta[..., None] if beta.ndim else beta
    return np.full_like(like[..., :1], fill, shape=(*beta.shape, 1))


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
    c = newton(y, beta).c
    return _simplex.normalized(*exp_beta(y - c, beta)), inside(y, c, beta)


def _solve_high(y: Any, beta: Any) -> tuple[Any, Any]:
    p = bisect_largest(y, beta).p
    return p, p > 0


def _curvature(p: Any, beta: Any) -> Any:
    """s = 1/Ω''(p) = p^{1−β} on the support, 0 off it, and at β = ∞, where p only ever jumps."""
    nowhere = (p == 0) | np.isinf(beta)
    with np.errstate(over="ignore"):  # infinite only where it is; `_share` knows its part of Σs
        s = np.where(nowhere, 0, np.where(nowhere, 1, p) ** (1 - np.where(nowhere, 1, beta)))
    return np.where(np.isnan(p), p, s)  # NaN⁰ is 1, but must stay a NaN


def _share(p: Any, beta: Any) -> Any:
    """s/Σs for s = p^{1−β}: a softmax of (1−β) log p over the support, which never overflows."""
    beta = np.where(np.isinf(beta), 1, beta)
    r = np.where(p == 0, -np.inf, (1 - beta) * np.log(np.where(p == 0, 1, p)))
    top = np.max(r, axis=-1, keepdims=True)
    share = np.exp(r - np.where(top == -np.inf, 0, top))
    total = np.sum(share, axis=-1, keepdims=True)
    return share / np.where(total == 0, 1, total)


def _differences(p: Any, *values: Any) -> tuple[Any, ...]:
    # Each value less its own at the row's largest p.
    largest = np.argmax(p, axis=-1, keepdims=True)
    return tuple(v - np.take_along_axis(v, largest, axis=-1) for v in values)


def _dot(a: Any, b: Any) -> Any:
    return np.sum(a * b, axis=-1, keepdims=True)


def _grad_alpha_small(p: Any, beta: Any) -> Any:
    log_p = np.log(np.where(p == 0, 1, p))
    x = -beta * log_p
    a = log_p * log_p * _phi(x)
    da, dl = _differences(p, a, log_p)
    a_top, l_top = a - da, log_p - dl
    q, h = _dot(p, da), -_dot(p, dl)
    bracket = q - da - beta * (q * log_p + h * a + a_top * dl - l_top * da)
    total = np.sum(_curvature(p, beta), axis=-1, keepdims=True)
    return p / np.where(total == 0, 1, total) * bracket  # 0 where a row has nothing left


def _grad_alpha_large(p: Any, beta: Any) -> Any:
    log_p = np.log(np.where(p == 0, 1, p))
    finite = np.where(np.isinf(beta), 1, beta)
    (dl,) = _differences(p, log_p)
    share = _share(p, finite)
    apart = p - share
    g = apart / finite**2 - (p * dl - share * _dot(p, dl) + (log_p - dl) * apart) / finite
    return np.where(np.isinf(beta), 0, g)


def _phi(x: Any) -> Any:
    """(eˣ − 1 − x)/x² for x ≥ 0, by its Taylor series Σ xᵏ/(k+2)! near 0, where it cancels."""
    near = x < 0.3
    small, series = np.where(near, x, 0), np.zeros_like(x)
    for k in range(13, 1, -1):  # 0.3¹²/14! is 1e−17 of the first term
        series = (series + 1) * small / k if k > 2 else (series + 1) / 2
    large = np.where(near, 1, np.minimum(x, np.log(np.finfo(x.dtype).max)))  # a denormal p
    return np.where(near, series, (np.expm1(large) - large) / (large * large))


MAPPING = Mapping(
    name="entmax",
    forward=entmax,
    support=entmax_support,
    jvp=entmax_jvp,
    vjp=entmax_vjp,
    jacobian=entmax_jacobian,
    omega=entmax_omega,
    parameters=("alpha",),
    omega_vertices=0.0,
)
