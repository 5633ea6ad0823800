"""User-defined mappings: any strictly convex regulariser Ω, solved and differentiated generically.

Problem: argmax over the simplex of p·z − Ω(p). Where Ω(p) = Σ g(p_i) is separable, the optimality
conditions read g'(p_i) = z_i − τ on the support and g'(0) ≥ z_i − τ off it, that is

    p_i = (g')⁻¹(z_i − τ), and 0 where z_i − τ ≤ g'(0);

g' increases, so their sum falls as τ rises, and τ is found by bisection. The Jacobian follows from
g'' alone (Peters et al. 2019, Prop. 2). Softmax, sparsemax and α-entmax are the special cases
g = p log p, p²/2 and p^α / (α(α−1)); for them, their own files are faster and more accurate.

A mapping in three lines, and the proof that it is right: g = p³/3, so g' = p², g'' = 2p.

>>> from pyentmax import check_jacobian
>>> cubic = separable_mapping("cubic", lambda p: p**3 / 3, np.sqrt, lambda p: 2 * p)
>>> print(cubic([1.0, 0.9, 0.1]).round(6))
[0.55 0.45 0.  ]
>>> check_jacobian(cubic, [1.0, 0.9, 0.1], cubic.jacobian).passed
True
>>> from pyentmax import fenchel_young_loss
>>> print(fenchel_young_loss([[3.0, 1.0, 0.0]], [0], cubic))
0.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.rows import (
    apply_to_scores,
    arrange_probabilities,
    arrange_scores,
)
from pyentmax.reference.mapping import AnyMapping as Mapping
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.thresholds.threshold import between

__all__ = [
    "hessian_jacobian",
    "regularized_argmax",
    "separable_jacobian",
    "separable_jvp",
    "separable_mapping",
    "separable_vjp",
]

Elementwise = Callable[[Any], Any]


def textbook(z: Any, omega_grad_inverse: Elementwise) -> np.ndarray:
    """argmax_{p ∈ Δ} p·z − Σ g(p_i) (Peters et al. 2019, Def. 1), for one vector, given (g')⁻¹.

    p_i = (g')⁻¹(z_i − τ) in [0, 1], where Σp falls as τ rises: halve a bracket of it.

    >>> textbook([1.0, 0.5, -2.0], lambda t: t).round(6)
    array([0.75, 0.25, 0.  ])
    """
    z = np.asarray(z, float)
    low, high = z.min() - 1e3, z.max() + 1e3
    for _ in range(60):
        tau = (low + high) / 2
        p = np.clip(omega_grad_inverse(z - tau), 0, 1)
        low, high = (tau, high) if p.sum() >= 1 else (low, tau)
    return p / p.sum()


def textbook_jacobian(p: Any, omega_second_derivative: Elementwise) -> np.ndarray:
    """J = diag(s) − s sᵀ/Σs, s = 1/g''(p) on the support (Peters et al. 2019, Prop. 2).

    >>> textbook_jacobian([0.5, 0.5], lambda p: 1 / p)
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    p = np.asarray(p, float)
    s = np.where(p > 0, 1 / omega_second_derivative(np.where(p > 0, p, 1)), 0)
    return np.diag(s) - np.outer(s, s) / s.sum()


def textbook_loss(z: Any, y: int, omega: Elementwise, omega_grad_inverse: Elementwise) -> float:
    """L = p·z − Σ g(p_i) + Ω(e_y) − z_y (Peters et al. 2019, Def. 2).

    >>> float(textbook_loss([0.0, 0.0], 0, lambda p: p**2 / 2, lambda t: t))
    0.25
    """
    z, q = np.asarray(z, float), np.eye(len(np.asarray(z)))[y]
    p = textbook(z, omega_grad_inverse)
    return p @ z - np.sum(omega(p)) + np.sum(omega(q)) - z[y]


# What follows is right for every input: Ω of any scale, so that the bracket has to be found first;
# a (g')⁻¹ that is steep, or undefined below g'(0); and rows that hold a NaN.

# Candidates for the ends of the bracket: ±2ᵏ and 0, so that scales of Ω from 1e-9 to 1e9 work.
_POWERS = tuple(2.0**k for k in range(-30, 31))
_LADDER = (*(-t for t in reversed(_POWERS)), 0.0, *_POWERS)


def regularized_argmax(
    z: Any, omega_grad_inverse: Elementwise, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> Any:
    """The p on the simplex that maximises p·z − Σ g(p_i), for any strictly convex g.

    Only (g')⁻¹ is needed. With t = max z − τ and y = z − max z, the conditions are
    p_i = (g')⁻¹(t + y_i), clipped to [0, 1], and Σp rises with t. At a t where the largest entry is
    1 the sum is at least 1, and where it is 1/d at most 1: both are found by trying ±2ᵏ, and
    halved until no float lies between. The two ends' probabilities are then mixed such that they
    sum to 1, so that p is exact for scores moved by a few ε, however steep (g')⁻¹ may be.
    O(d) per pass, about 60 passes in float64.

    Parameters
    ----------
    z : array of scores
    omega_grad_inverse : function of an array, elementwise
        (g')⁻¹. Increasing where it lies in [0, 1]; for arguments below g'(0) it may return
        anything up to 0, or NaN; for those above g'(1) anything from 1 on
    axis, mask, out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape

    Raises
    ------
    ValueError
        if omega_grad_inverse does not rise from 0 to 1 between −2³⁰ and 2³⁰ (dividing Ω and z by
        one number brings it there, and leaves p as it is); else as in `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    With g = p²/2, whose g' is its own inverse, this is sparsemax; g = cosh p has g' = sinh p.

    >>> print(regularized_argmax([1.0, 0.5, -2.0], lambda t: t))
    [0.75 0.25 0.  ]
    >>> print(regularized_argmax([1.0, 0.5, -2.0], np.arcsinh).round(6))
    [0.719928 0.280072 0.      ]
    """
    rows = arrange_scores(z, axis, mask, out)

    def body(y: Any) -> Any:
        # Of the batch's shape, since omega_grad_inverse may have a parameter per row.
        return _argmax(y.reshape(rows.array.shape), omega_grad_inverse)

    return rows.finish(apply_to_scores(body, rows), out)


def _argmax(y: Any, omega_grad_inverse: Elementwise) -> Any:
    def p_at(t: Any) -> Any:
        return _clipped(omega_grad_inverse, t, y)

    low, high = _bracket(omega_grad_inverse, y)
    # Enough to halve a bracket of 2³¹ down to the rounding of 2⁻³⁰; the host may stop earlier.
    for _ in range(np.finfo(y.dtype).nmant + 62):
        middle = low + (high - low) / 2
        if isinstance(y, np.ndarray) and bool(((middle <= low) | (middle >= high)).all()):
            break
        enough = np.sum(p_at(middle), axis=-1, keepdims=True) >= 1
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    p = between(p_at(low), p_at(high))
    return p / np.sum(p, axis=-1, keepdims=True)


def separable_jvp(
    p: Any, v: Any, omega_second_derivative: Elementwise, axis: Any = -1, *, mask: Any = None
) -> Any:
    """J v = s ∘ (v − (s·v)/Σs) with s = 1/g''(p) on the support (Peters et al. 2019, Prop. 2).

    Parameters
    ----------
    p, v : arrays of one shape, p the mapping's output
    omega_second_derivative : function of an array, elementwise
        g'', positive on (0, 1]
    axis, mask : as in `pyentmax.softmax`

    Returns
    -------
    array of p's shape

    Raises
    ------
    ValueError, TypeError
        as in `pyentmax.softmax.jvp`

    Examples
    --------
    >>> print(separable_jvp([0.75, 0.25, 0.0], [1.0, -1.0, 9.0], np.ones_like))
    [ 1. -1.  0.]
    """
    rows, v = arrange_probabilities(p, v, axis, mask, "v")
    return rows.finish(_simplex.product(_curvature(rows.array, omega_second_derivative), v))


# J is symmetric, being the Hessian of the conjugate Ω*: Jᵀ v is J v.
separable_vjp = separable_jvp


def separable_jacobian(p: Any, omega_second_derivative: Elementwise, axis: Any = -1) -> Any:
    """J = diag(s) − s sᵀ/Σs with s = 1/g''(p) on the support; of shape batch + (d, d).

    Parameters
    ----------
    p, omega_second_derivative, axis : as in `separable_jvp`

    Returns
    -------
    array of shape batch + (d, d)

    Raises
    ------
    ValueError, TypeError
        as in `pyentmax.softmax.jacobian`

    Examples
    --------
    With g = p log p, g'' = 1/p, this is softmax's.

    >>> print(separable_jacobian([0.5, 0.5], lambda p: 1 / p))
    [[ 0.25 -0.25]
     [-0.25  0.25]]
    """
    rows, _ = arrange_probabilities(p, None, axis)
    jacobian = _simplex.dense(_curvature(rows.array, omega_second_derivative))
    return jacobian.astype(rows.dtype, copy=False)


def hessian_jacobian(p: Any, omega_hessian: Callable[[Any], Any], axis: Any = -1) -> Any:
    """The Jacobian where Ω is not separable (Peters et al. 2019, Prop. 2, general form).

    On the support S, ∇Ω(p)_S = z_S − τ1 gives H dp = dz − dτ 1 with H the Hessian's rows and
    columns in S, and 1·dp = 0 fixes dτ:

        J_S = H⁻¹ − H⁻¹ 1 1ᵀ H⁻¹ / (1ᵀ H⁻¹ 1),   zero elsewhere.

    H must be invertible on S: the norm ‖p‖ for one is not strictly convex (H p = 0). O(d³).

    Parameters
    ----------
    p : array of probabilities
        a row with a NaN gives NaN
    omega_hessian : function of p with the rows on its last axis
        returns the Hessian of Ω, of shape batch + (d, d) or one that broadcasts to it; its entries
        off the support are unused, and it is inverted in float64 at most
    axis : as in `pyentmax.softmax`

    Returns
    -------
    array of shape batch + (d, d)

    Raises
    ------
    ValueError
        if the Hessian's shape does not fit; else as in `pyentmax.softmax.jacobian`
    numpy.linalg.LinAlgError
        if it is singular on the support

    Examples
    --------
    Ω = ½ pᵀQp has the Hessian Q.

    >>> q = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    >>> print(hessian_jacobian([0.5, 0.5, 0.0], lambda p: q))
    [[ 0.5 -0.5  0. ]
     [-0.5  0.5  0. ]
     [ 0.   0.   0. ]]
    """
    rows, _ = arrange_probabilities(p, None, axis)
    p, dtype = rows.array, rows.dtype
    hessian = _array(omega_hessian(p))
    shape = (*p.shape, p.shape[-1])
    try:
        hessian = np.broadcast_to(hessian, shape)
    except ValueError:
        raise ValueError(
            f"omega_hessian must return shape {shape}, or one that broadcasts to it, got "
            f"{hessian.shape}"
        ) from None
    # A NaN could make the inverse fail: its row is replaced here, and set to NaN at the end.
    broken = np.any(np.isnan(p), axis=-1, keepdims=True)
    on = ((p != 0) & ~broken).astype(p.dtype)
    both = on[..., :, None] * on[..., None, :]
    identity = _simplex.identity(p)
    # Off the support there is an identity block, which inverts to itself and is then removed.
    padded = np.where(both != 0, hessian, identity)
    if padded.dtype.itemsize > 8:  # which np.linalg does not support
        padded = padded.astype(np.float64)
    inverse = np.linalg.inv(padded) * both
    column = np.sum(inverse, axis=-1, keepdims=True)
    row = np.sum(inverse, axis=-2, keepdims=True)
    total = np.sum(column, axis=-2, keepdims=True)
    jacobian = inverse - column * row / np.where(total == 0, 1, total)
    return np.where(broken[..., None], np.nan, jacobian).astype(dtype, copy=False)


def separable_mapping(
    name: str,
    omega: Elementwise,
    omega_grad_inverse: Elementwise,
    omega_second_derivative: Elementwise,
    *,
    sparse: bool = True,
) -> Mapping:
    """The mapping of Ω(p) = Σ g(p_i), usable wherever those of `pyentmax.MAPPINGS` are.

    Parameters
    ----------
    name : str
    omega, omega_grad_inverse, omega_second_derivative : functions of an array, elementwise
        g, finite on [0, 1]; (g')⁻¹, of which `regularized_argmax` says what it may return; and g'',
        positive on (0, 1]
    sparse : bool
        whether g'(0) is finite, so that the mapping gives exact zeros; if it is not, every
        unmasked score is in the support, even if p underflows

    Returns
    -------
    Mapping

    Examples
    --------
    The temperature of `sparsemax`, by hand: g = 2 · p²/2, g' = 2p.

    >>> warm = separable_mapping("warm", lambda p: p**2, lambda t: t / 2, lambda p: 2 + 0 * p)
    >>> print(warm([1.0, 0.5, -2.0]))
    [0.625 0.375 0.   ]
    """

    def text(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Arguments:
        """Argmax over the simplex of p·z − Σ g(p_i), as `regularized_argmax`."""
        return z, None, axis, mask, out

    text.__name__ = name
    at_zero, at_one = (float(omega(np.array(end))) for end in (0.0, 1.0))
    own = mapping(sparse=sparse, omega_at_vertices=at_one if at_zero == 0 else None)(text)
    own.rule(lambda y: _argmax(y, omega_grad_inverse))
    own.support.rule(lambda y: _argmax(y, omega_grad_inverse) > 0 if sparse else y > -np.inf)
    own.jvp.rule(lambda p, v: _simplex.product(_curvature(p, omega_second_derivative), v))
    own.jacobian.rule(lambda p: _simplex.dense(_curvature(p, omega_second_derivative)))
    own.regularizer.rule(lambda p: np.sum(_array(omega(p)), axis=-1))
    return own


def _array(values: Any) -> Any:
    """The result of a caller's function as an array; a device array stays as it is."""
    return values if hasattr(values, "__array_function__") else np.asarray(values)


def _clipped(inverse: Elementwise, t: Any, y: Any) -> Any:
    # NaN and values not above 0 count as 0: the argument is below g'(0).
    with np.errstate(all="ignore"):
        p = _array(inverse(t + y))
    return np.where(p > 0, np.minimum(p, 1), 0).astype(y.dtype, copy=False)


def _bracket(inverse: Elementwise, y: Any) -> tuple[Any, Any]:
    """Levels t of the largest score at which the sum is at most, and at least, 1."""
    least = 1 / y.shape[-1]
    # A leading axis for the ladder, so that a parameter per row inside the function broadcasts.
    t = np.asarray(_LADDER, dtype=y.dtype, like=y).reshape(-1, *(1,) * y.ndim)
    p = _clipped(inverse, t, np.zeros_like(t))
    row = np.zeros_like(y[..., :1])
    high = np.min(np.where(p >= 1, t, np.inf), axis=0) + row
    low = np.max(np.where((p <= least) & (t <= high), t, -np.inf), axis=0) + row
    if isinstance(y, np.ndarray):
        for end, goal in ((high, "1"), (low, f"1/d = {least:g}")):
            if np.isinf(end).any():
                raise ValueError(
                    "omega_grad_inverse must rise from 0 to 1 within [-2**30, 2**30], but is "
                    f"{goal} for no argument tried there; if it is farther out, divide Ω and z by "
                    "one large number, which leaves p as it is; else, is Ω strictly convex, and "
                    "is this the inverse of its derivative?"
                )
    return low, high


def _curvature(p: Any, omega_second_derivative: Elementwise) -> Any:
    """s = 1/g''(p) on the support, 0 off it, where g'' may be infinite or undefined.

    A NaN stays a NaN, whatever g'' makes of it.
    """
    on = p != 0
    with np.errstate(all="ignore"):
        second = _array(omega_second_derivative(np.where(on, p, 1)))
        s = np.where(on, 1 / second, 0).astype(p.dtype, copy=False)
    return np.where(np.isnan(p), p, s)
