"""Thresholds by Halley's method, for any α above 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.reference.thresholds.threshold import (
    MAX_PASSES,
    Threshold,
    as_scores,
    beta_per_row,
    clipped_gaps,
    row_sums,
    support_size,
)


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


def halley_norm(x: Any, alpha: Any, t: Any = 1) -> Threshold:
    """τ of α-entmax, 1 < α ≤ 2, x = (α−1) z, by Halley's method on a norm, as in the kernels.

    With β = α − 1, b = 1/β, gaps x ← x − max x ≤ 0 and t = −τ, let w_i = [1 + x_i/t]₊. Then

        p_i = t^b w_i^b,   N(t) = t (Σ w^b)^β = 1,   d^{−β} ≤ t ≤ 1,

    N being the norm of [x + t]₊ of order b ≥ 1: convex, and close to a straight line. One pass
    gives h = (N − 1)/N, a = tN'/N = Σw^{b−1}/Σw^b and v = t²N''/N = (b − 1)(Σw^{b−2}/Σw^b − a²).
    Newton's step reduces t by the fraction h/a and ends at or above the root; Halley's, of third
    order, by 2ha/(2a² − hv). Halley's step is taken if it stays above all t known to be below the
    root. From the ninth pass on only Newton's steps are taken, which always converge: at most
    10 + log₂d + ½log₂(1/ε) passes. Unlike `halley` it needs no bracket, because every tangent of N
    gives a bound.

    t may be any starting value. For long rows the kernel starts from the root for a sixteenth of
    the entries, each counted 16 times.

    Examples
    --------
    >>> tau, size, passes = halley_norm(np.array([1.0, 0.5, -2.0]), 1.75)
    >>> print(np.round(tau, 6), size, passes)
    [0.173712] [2] 4
    """
    top, x = clipped_gaps(x)
    beta = beta_per_row(alpha, x, 2)
    b, rounding = 1 / beta, 16 * np.finfo(x.dtype).eps
    steepness = np.ones_like(top) / t  # 1/t
    beyond = x.shape[-1] ** beta * (1 + rounding)  # the smallest 1/t known to be too large
    for passes in range(1, MAX_PASSES + 1):
        w = np.maximum(1 + x * steepness, 0)
        on = np.where(w > 0, w, 1)
        p = np.where(w > 0, np.exp(b * np.log1p(np.where(w > 0, x * steepness, 0))), 0)
        power, slope, bend = row_sums(p, p / on, p / on / on)
        a = slope / power
        h, v = 1 - steepness * power**-beta, (b - 1) * (bend / power - a * a)
        denominator = 2 * a * a - h * v
        tangent, halley = h / a, 2 * h * a / np.where(denominator > 0, denominator, 1)
        beyond = np.where(h < 0, np.minimum(steepness, beyond), beyond)
        trust = (denominator > 0) & (steepness < beyond * (1 - halley)) & (passes <= 8)
        part = np.where(trust, halley, tangent)
        moving = np.abs(part) > rounding
        if not moving.any():
            break
        # Rounding may take a tangent past the root, where many scores tied at it drop out.
        aimed, just_below = steepness / (1 - part), beyond * (1 - rounding / 16)
        aimed = np.where(steepness < beyond, np.minimum(aimed, just_below), aimed)
        steepness = np.where(moving, np.maximum(aimed, 1), steepness)
    t = (1 - tangent) / steepness
    return Threshold(top - t, support_size(x + t > 0), passes)
