"""Thresholds that the notebooks show and no function of the package calls.

`halley` is the method of notebook 3; `newton_sparsemax` and `prune_chunks` are what the compiled
kernels of notebook 10 do, with the same variable names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.reference.thresholds.threshold import (
    Threshold,
    as_scores,
    beta_per_row,
    clipped_gaps,
    row_sums,
    support_size,
)

MAX_PASSES = 128
"""Limit on the passes of the kernels' searches and of `newton_sparsemax`; no row comes near it."""


def halley(x: Any, alpha: Any) -> Threshold:
    """τ of α-entmax, any α > 1, x = (α−1) z, by Halley's method on f, safeguarded by bisection.

    With b = 1/(α−1) and u = [x − τ]₊, one pass gives f = Σu^b − 1, f' = −bΣu^{b−1} and
    f'' = b(b−1)Σu^{b−2}, and Halley's step is τ ← τ − 2ff'/(2f'² − ff''), of third order where f
    is smooth (Gonçalves et al. 2025). f' jumps where an entry enters the support (and is infinite
    there for α > 2). So bisection replaces a step that leaves the bracket, and one after two steps
    that did not halve it: at most three passes per bit. A step below the rounding of τ is
    lengthened to pass the root, so that the bracket closes from both sides.

    Not the mappings' default: up to α = 2 `newton` needs no safeguard. Above, one ulp of τ can
    change a small p by more than p itself, so `bisect_p_max` computes p instead of τ. α as in
    `bisection`.

    Examples
    --------
    >>> tau, size, passes = halley(np.array([1.0, 0.5, -2.0]), 3)
    >>> print(np.round(tau, 6), size)
    [0.4375] [2]
    """
    x = as_scores(x)
    b = 1 / beta_per_row(alpha, x)
    top = np.max(x, axis=-1, keepdims=True)
    y, epsilon = x - top, np.finfo(x.dtype).eps
    low, high = np.full_like(top, -1), np.full_like(top, 0) - y.shape[-1] ** (-1 / b)
    widths, tau = [high - low] * 2, (low + high) / 2
    for passes in range(1, 3 * (np.finfo(x.dtype).nmant + 2)):  # noqa: B007
        u = np.maximum(y - tau, 0)
        safe = np.where(u > 0, u, 1)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            f, slope, bend = (
                np.sum(np.where(u > 0, safe**power, 0), axis=-1, keepdims=True)
                for power in (b, b - 1, b - 2)
            )
            f, slope, bend = f - 1, b * slope, b * (b - 1) * bend
            step = 2 * f * slope / (2 * slope * slope - f * bend)
        low, high = np.where(f >= 0, tau, low), np.where(f >= 0, high, tau)
        if isinstance(x, np.ndarray) and bool((high - low <= 2 * epsilon).all()):
            break
        step = np.where(np.abs(step) < 2 * epsilon, np.copysign(2 * epsilon, f), step)
        stalls = high - low > widths[-2] / 2
        good = (tau + step > low) & (tau + step < high) & ~stalls
        tau = np.where(good, tau + step, low + (high - low) / 2)
        widths.append(high - low)
    return Threshold(low + top, support_size(y > low), passes)


def newton_sparsemax(x: Any, t: Any = 1) -> Threshold:
    """τ of sparsemax (α = 2) by Newton's method from above, as in the kernels.

    With gaps x ← x − max x ≤ 0 and t = −τ, which falls from 1 or any start above the root,
    f(t) = Σ [x_i + t]₊ = 1 is convex and piecewise linear: the root of its tangent,

        t ← t + (1 − f(t))/n,   n the number of positive x_i + t,

    is at or above the root. Supports are nested in t: if two passes count the same n, they have the
    same support, and t is the root. `rest` holds the digits that do not fit into t, since many
    scores may be that close to the threshold. These are `michelot`'s steps, but from a start that
    excludes x ≤ max x − 1: at most log₂d + ½log₂(1/ε) of them, for every row.

    Examples
    --------
    >>> print(newton_sparsemax(np.array([1.0, 0.5, -2.0])))
    Threshold(tau=array([0.25]), size=array([2]), passes=2)
    >>> newton_sparsemax(-(1000.0 ** np.arange(12))).passes
    2
    """
    top, x = clipped_gaps(x)
    t, rest = np.ones_like(top) * t, np.zeros_like(top)
    size_before, close = np.zeros_like(top), 4 * np.finfo(x.dtype).eps
    for passes in range(1, MAX_PASSES + 1):  # noqa: B007
        u = np.maximum((x + t) + rest, 0)
        total, size = row_sums(u, (u > 0).astype(u.dtype))
        missing = 1 - total
        rounded = (missing > 0) & (missing <= close)  # from above a sum is never below 1
        moving = (size != size_before) & ~rounded
        if not moving.any():
            break
        before, rest = t, np.where(moving, rest + missing / size, rest)
        t = before + rest
        rest = rest - (t - before)
        size_before = size
    rest = rest + missing / size
    return Threshold(top - (t + rest), support_size((x + t) + rest > 0), passes)


def prune_chunks(
    x: Any, solve: Callable[..., Threshold], chunk: int = 256, lanes: int = 16
) -> Threshold:
    """τ by solving for the largest scores of a long row, then for those above that τ.

    This is how the CPU kernels read a long row only once, for any mapping. In f(τ) = Σ g(x_i − τ)
    = 1 with g ≥ 0, leaving scores out lowers f, so the τ of a part of the row is at or below the
    row's. First τ is computed from the maxima of the chunks alone, 16 per chunk. A chunk is skipped
    if none of its maxima exceeds this τ, as in most of a long row. Then τ is computed from the
    scores above it.

    Parameters
    ----------
    x : array of scores
    solve : function of x and t
        gives the `Threshold` of gaps x, with −t = τ a bound to begin with, as `newton_sparsemax`
    chunk, lanes : int
        number of scores that are skipped together, and number of their maxima

    Returns
    -------
    Threshold
        its passes are those over the remaining scores

    Examples
    --------
    >>> x = -np.arange(1000.0) / 2
    >>> print(prune_chunks(x, newton_sparsemax))
    Threshold(tau=array([-0.75]), size=array([2]), passes=2)
    """
    x = as_scores(x)
    top = np.max(x, axis=-1, keepdims=True)
    x = x - top
    maxima = chunk_maxima(x, chunk, lanes)
    t = -solve(np.maximum(maxima, -2), 1).tau
    live = np.repeat((maxima > -t).reshape(*maxima.shape[:-1], -1, lanes).any(-1), chunk, -1)
    # A kernel moves these scores to the front; here the others become −2, below every threshold.
    remaining = np.where(live[..., : x.shape[-1]] & (x > -t), x, -2)
    tau, size, passes = solve(remaining, t)
    return Threshold(tau + top, size, passes)


def chunk_maxima(x: Any, chunk: int, lanes: int) -> Any:
    """`lanes` maxima of each chunk: the i-th over its scores i, i + lanes, i + 2·lanes, ….

    Examples
    --------
    >>> print(chunk_maxima(np.array([1.0, 5, 2, 3, 4, 0]), 4, 2))
    [2. 5. 4. 0.]
    """
    fill = np.full_like(x, -np.inf, shape=(*x.shape[:-1], -x.shape[-1] % chunk))
    x = np.concatenate([x, fill], axis=-1)
    return np.max(x.reshape(*x.shape[:-1], -1, chunk // lanes, lanes), axis=-2).reshape(
        *x.shape[:-1], -1
    )
