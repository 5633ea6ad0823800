"""Thresholds by sorting, whole or in part: exact but for rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.reference.thresholds.threshold import Threshold, clipped_gaps, support_size


def sort_sparsemax(x: Any) -> Threshold:
    """τ of sparsemax (α = 2) by sorting: O(d log d).

    For scores x₍₁₎ ≥ x₍₂₎ ≥ … the threshold of a support of size ρ is
    τ(ρ) = (Σ_{j≤ρ} x₍ⱼ₎ − 1)/ρ, and ρ* is the largest ρ with x₍ρ₎ > τ(ρ)
    (Martins & Astudillo 2016).

    Examples
    --------
    >>> tau, size, _ = sort_sparsemax(np.array([1.0, 0.5, -2.0]))
    >>> print(tau, size)
    [0.25] [2]
    """
    top, x = clipped_gaps(x)
    tau, _ = _sorted_sparsemax(_descending(x))
    tau = _polish_sparsemax(x, tau)
    return Threshold(tau + top, support_size(x > tau), 1)


def sort_entmax15(x: Any) -> Threshold:
    """τ of 1.5-entmax by sorting, x = z/2: O(d log d).

    Given the support's size ρ, Σ_{j≤ρ} (x₍ⱼ₎ − τ)² = 1 is a quadratic with the smaller root
    τ(ρ) = M − sqrt((1 − ρV)/ρ), M and V the mean and variance of the ρ largest; ρ* is the largest
    ρ with τ(ρ) ≤ x₍ρ₎ (Peters et al. 2019, Alg. 2).

    Examples
    --------
    >>> tau, size, _ = sort_entmax15(np.array([0.0, 0.0, -5.0]))
    >>> print(np.round(tau, 6), size)
    [-0.707107] [2]
    """
    top, x = clipped_gaps(x)
    tau, _ = _sorted_entmax15(_descending(x))
    tau = _polish_entmax15(x, tau)
    return Threshold(tau + top, support_size(x > tau), 1)


def partial_sort_sparsemax(x: Any, k: int = 16) -> Threshold:
    """τ of sparsemax (α = 2) from the k largest scores, with k doubled until it is enough.

    If fewer than k of the k largest scores are in their own support, no smaller score is in the
    row's: ρ* is the largest ρ with x₍ρ₎ > τ(ρ), and the condition fails from ρ* + 1 on. So only
    rows with all k in it go on with 2k. O(d + k log k) per pass and no sort of the whole row. For
    NumPy arrays only, since each pass tests the result of the one before.

    Examples
    --------
    >>> print(partial_sort_sparsemax(np.zeros(100)))
    Threshold(tau=array([-0.01]), size=array([100]), passes=4)
    """
    return _partial_sort(x, k, _sorted_sparsemax, _polish_sparsemax)


def partial_sort_entmax15(x: Any, k: int = 16) -> Threshold:
    """τ of 1.5-entmax, x = z/2, from the k largest scores, with k doubled until it is enough.

    As `partial_sort_sparsemax`: once the condition τ(ρ) ≤ x₍ρ₎ fails, it fails for all larger ρ.

    Examples
    --------
    >>> print(partial_sort_entmax15(np.array([0.0, 0.0, -5.0])).passes)
    1
    """
    return _partial_sort(x, k, _sorted_entmax15, _polish_entmax15)


def _partial_sort(
    x: Any,
    k: int,
    solve_sorted: Callable[[Any], tuple[Any, Any]],
    polish: Callable[[Any, Any], Any],
) -> Threshold:
    if not isinstance(k, (int, np.integer)):
        raise TypeError(f"k must be an int, got {type(k).__name__}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    top, x = clipped_gaps(x)
    d = x.shape[-1]
    rows = x.reshape(-1, d)
    tau, passes = np.zeros_like(rows[:, :1]), 0
    todo = np.flatnonzero(rows[:, 0] <= 0)  # all rows
    while todo.size:
        passes, k = passes + 1, min(k, d)
        largest = np.partition(rows[todo], d - k, axis=-1)[:, d - k :]
        tau[todo], size = solve_sorted(_descending(largest))
        todo = todo[(size[:, 0] == k) & (k < d)]
        k *= 2
    tau = polish(x, tau.reshape(top.shape))
    return Threshold(tau + top, support_size(x > tau), passes)


def _descending(x: Any) -> Any:
    # In double: a running sum of d terms is off by up to dε, too much in float32.
    return -np.sort(-x, axis=-1).astype(np.promote_types(x.dtype, np.float64), copy=False)


def _sorted_sparsemax(u: Any) -> tuple[Any, Any]:
    tau = (np.cumsum(u, axis=-1) - 1) / _ranks(u)
    size = np.maximum(support_size(u > tau), 1)
    return np.take_along_axis(tau, size - 1, axis=-1), size


def _polish_sparsemax(x: Any, tau: Any) -> Any:
    # Running sums are off by some ε in double too. Newton's steps on f with NumPy's pairwise sums
    # correct that, and a support that is wrong near τ, since f is convex.
    tau = tau.astype(x.dtype, copy=False)
    for _ in range(2):
        above = x > tau
        excess = np.sum(np.where(above, x - tau, 0), axis=-1, keepdims=True) - 1
        tau = tau + excess / np.sum(above, axis=-1, keepdims=True, dtype=x.dtype)
    return tau


def _sorted_entmax15(u: Any) -> tuple[Any, Any]:
    rho = _ranks(u)
    mean = np.cumsum(u, axis=-1) / rho
    spread = np.cumsum(u * u, axis=-1) - rho * mean * mean
    tau = mean - np.sqrt(np.maximum(1 - spread, 0) / rho)
    size = np.maximum(support_size(tau <= u), 1)
    # Rounding may put τ above every score: −1/√d is the bound.
    return np.minimum(np.take_along_axis(tau, size - 1, axis=-1), -(u.shape[-1] ** -0.5)), size


def _polish_entmax15(x: Any, tau: Any) -> Any:
    tau = tau.astype(x.dtype, copy=False)
    for _ in range(2):  # Newton, as in _polish_sparsemax; f' = −2 Σ [x − τ]₊
        above = np.maximum(x - tau, 0)
        excess = np.sum(above * above, axis=-1, keepdims=True) - 1
        tau = tau + excess / (2 * np.sum(above, axis=-1, keepdims=True))
    return tau


def _ranks(x: Any) -> Any:
    return np.cumsum(np.ones_like(x), axis=-1)
