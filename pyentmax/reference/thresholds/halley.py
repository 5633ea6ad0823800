"""Thresholds by Halley's method, for any α above 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.reference.thresholds.threshold import (
    Threshold,
    as_scores,
    beta_per_row,
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
