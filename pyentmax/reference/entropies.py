"""Entropies H, whose negatives are the regularisers Ω.

The sign convention, once: H(p) ≥ 0 is concave and 0 at the corners of the simplex; the mappings
and losses use Ω = −H, which is convex. All functions reduce ``axis`` as NumPy's sums do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.engine.calls.dask_arrays import plan_rows
from pyentmax.engine.calls.devices import is_dask, on_device_of
from pyentmax.engine.calls.dtypes import as_floating


@np.errstate(under="ignore")
def shannon_entropy(p: Any, axis: Any = -1) -> Any:
    """Shannon's entropy −Σ p log p in nats, with 0 log 0 = 0. Ω of softmax is its negative.

    Parameters
    ----------
    p : array of probabilities
    axis : int, tuple of int or None

    Returns
    -------
    array of p's shape without the axis

    Examples
    --------
    >>> print(round(float(shannon_entropy([0.5, 0.5])), 6))
    0.693147
    """
    if is_dask(p):
        return _plan(shannon_entropy, p, axis)
    p, dtype = as_floating(p, "p")
    return _sum(-p * _log(p), axis, dtype)


@np.errstate(under="ignore")
def gini_entropy(p: Any, axis: Any = -1) -> Any:
    """Gini's entropy ½ Σ p (1 − p). Ω of sparsemax is its negative.

    Up to a constant on the simplex, −½‖p‖², so that sparsemax is the Euclidean projection.

    Parameters
    ----------
    p : array of probabilities
    axis : int, tuple of int or None

    Returns
    -------
    array of p's shape without the axis

    Examples
    --------
    >>> print(gini_entropy([0.5, 0.5]))
    0.25
    """
    if is_dask(p):
        return _plan(gini_entropy, p, axis)
    p, dtype = as_floating(p, "p")
    return _sum(p * (1 - p) / 2, axis, dtype)


@np.errstate(under="ignore")
def tsallis_entropy(p: Any, alpha: Any = 1.5, axis: Any = -1) -> Any:
    """Tsallis' α-entropy Σ (p − p^α) / (α (α−1)). Ω of α-entmax is its negative.

    Shannon's at α = 1 (the limit), Gini's at α = 2, and 0 at α = ∞ (Peters et al. 2019, §3.2).

    Parameters
    ----------
    p : array of probabilities
    alpha : float or array that broadcasts against p's shape without the axis
        the shape, above 0
    axis : int, tuple of int or None

    Returns
    -------
    array of p's shape without the axis

    Raises
    ------
    ValueError
        if some alpha is not above 0, or alpha does not broadcast; on a device, where values are
        not validated, the row of such an alpha is NaN instead
    TypeError
        if p or alpha is not of real numbers

    Examples
    --------
    >>> p = np.array([0.5, 0.5])
    >>> print(np.round([tsallis_entropy(p, a) for a in (1, 1.5, 2)], 6))
    [0.693147 0.390524 0.25    ]
    """
    if is_dask(p):
        return _plan(tsallis_entropy, p, axis, alpha)
    p, dtype = as_floating(p, "p")
    alpha, _ = as_floating(alpha, "alpha")
    alpha = _validated(alpha, alpha > 0, "above 0")
    per_row = _per_row(on_device_of(alpha, p, "alpha"), p, axis)
    with np.errstate(over="ignore"):  # beyond p's dtype α is ∞
        alpha, beta = per_row.astype(p.dtype), (per_row - 1).astype(p.dtype)
    log_p, shannon, infinite = _log(p), beta == 0, np.isinf(beta)
    alpha, beta = np.where(infinite, 2, alpha), np.where(shannon | infinite, 1, beta)
    with np.errstate(over="ignore"):
        # p^α − p = p expm1(β log p) does not cancel where α is near 1. Where p^β is large, or even
        # overflows, as for small α, p^α − p does not cancel either.
        exponent = beta * log_p
        large, small = (np.exp(alpha * log_p) - p) / beta, p * (np.expm1(exponent) / beta)
    h = np.where(shannon, -p * log_p, -np.where(exponent > 1, large, small) / alpha)
    at_infinity = np.where(np.isnan(p), p, 0)
    return _sum(np.where(infinite, at_infinity, h), axis, dtype)


@np.errstate(under="ignore")
def norm_entropy(p: Any, alpha: Any = 2.0, axis: Any = -1) -> Any:
    """The norm entropy 1 − ‖p‖_α. Ω of normmax is, up to the 1, its negative.

    Not a sum over the entries, unlike the others (Blondel, Martins & Niculae 2020, §4.3).

    Parameters
    ----------
    p : array of probabilities
    alpha : float or array that broadcasts against p's shape without the axis
        the norm's order, from 1 (entropy 0) to ∞ (1 − max p)
    axis : int, tuple of int or None

    Returns
    -------
    array of p's shape without the axis

    Raises
    ------
    ValueError
        if some alpha is below 1, alpha does not broadcast, or the axis is empty; on a device, where
        values are not validated, the row of such an alpha is NaN instead
    TypeError
        if p or alpha is not of real numbers

    Examples
    --------
    >>> p = np.array([0.5, 0.5])
    >>> print(np.round([norm_entropy(p, a) for a in (1, 2, np.inf)], 6))
    [0.       0.292893 0.5     ]
    """
    if is_dask(p):
        return _plan(norm_entropy, p, axis, alpha)
    norm, dtype = _norm(p, alpha, axis)
    return (1 - norm).astype(dtype, copy=False)


@np.errstate(under="ignore")
def alpha_norm(p: Any, alpha: Any = 2.0, axis: Any = -1) -> Any:
    """‖p‖_α = (Σ p^α)^{1/α} of p ≥ 0, relative to the largest entry so that no power underflows.

    Parameters
    ----------
    p, alpha, axis : as in `norm_entropy`

    Returns
    -------
    as in `norm_entropy`

    Raises
    ------
    ValueError, TypeError
        as in `norm_entropy`

    Examples
    --------
    >>> print(alpha_norm([3e-200, 4e-200]))
    5e-200
    """
    if is_dask(p):
        return _plan(alpha_norm, p, axis, alpha)
    norm, dtype = _norm(p, alpha, axis)
    return norm.astype(dtype, copy=False)


def _norm(p: Any, alpha: Any, axis: Any) -> tuple[Any, np.dtype[Any]]:
    # ‖p‖_α in the computing dtype, and the dtype of the result.
    p, dtype = as_floating(p, "p")
    alpha, _ = as_floating(alpha, "alpha")
    alpha = _validated(alpha, alpha >= 1, "at least 1")
    with np.errstate(over="ignore"):
        alpha = _per_row(on_device_of(alpha, p, "alpha"), p, axis).astype(p.dtype)
    if not p.size and np.sum(p, axis=axis).size:
        raise ValueError(
            f"p of shape {p.shape} has no entry along axis {axis}; at least one is expected"
        )
    top = np.max(p, axis=axis, keepdims=True)
    ratio = p / np.where(top == 0, 1, top)
    terms = np.where(np.isnan(alpha), alpha, ratio**alpha)  # 1 to any power is 1
    powers = np.sum(terms, axis=axis, keepdims=True)
    return np.sum(top * powers ** (1 / alpha), axis=axis), dtype


def _plan(entropy: Callable[..., Any], p: Any, axis: Any, alpha: Any = None) -> Any:
    # For Dask arrays, a call for each chunk.
    return plan_rows(entropy, None, {"p": p, "axis": axis, "alpha": alpha}, ("number",), ("alpha",))


def _validated(alpha: Any, valid: Any, expected: str) -> Any:
    # An invalid alpha on a device becomes NaN, since an error would need a synchronisation.
    if not isinstance(alpha, np.ndarray):
        return np.where(valid, alpha, np.nan).astype(alpha.dtype, copy=False)
    if not valid.all():
        raise ValueError(f"alpha must be {expected}, got {alpha[~valid].flat[0]:g}")
    return alpha


def _per_row(alpha: Any, p: Any, axis: Any) -> Any:
    # An alpha for each row, with p's number of dimensions.
    if not alpha.ndim:
        return alpha
    axes = tuple(range(p.ndim)) if axis is None else axis
    batch = np.sum(p, axis=axis).shape
    try:
        return np.expand_dims(np.broadcast_to(alpha, batch), axes)
    except ValueError:
        raise ValueError(
            f"alpha of shape {alpha.shape} does not broadcast against {batch}, p's shape without "
            "the axis"
        ) from None


def _log(p: Any) -> Any:
    # log p where p > 0, else 0 (p log p is 0 there); a NaN stays one.
    return np.log(np.where(p == 0, 1, p))


def _sum(h: Any, axis: Any, dtype: np.dtype[Any]) -> Any:
    return np.sum(h, axis=axis).astype(dtype, copy=False)
