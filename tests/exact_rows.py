"""α-entmax: of one row in 70 digits, and of many rows in the widest floats that NumPy has.

Nothing here is shared with the library. What the solver in many digits returns is verified by what
it must satisfy (unit sum to 40 digits), so its way there does not matter.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath
import numpy as np

DIGITS = 70
Exact = tuple[list[mpmath.mpf], list[mpmath.mpf]]


def exact_row(z: np.ndarray, alpha: Any) -> Exact:
    """The probabilities and their slopes s = p^{2−α} (0 off the support), 0 < α < ∞."""
    # Long rows are many megabytes of digits: too many to keep.
    solve = _exact if z.size <= 1000 else _exact.__wrapped__
    with mpmath.workdps(DIGITS):
        return solve(tuple(float(score) for score in z), mpmath.mpf(alpha) - 1)


@cache
def _exact(z: tuple[float, ...], beta: mpmath.mpf) -> Exact:
    """The normaliser c of Σ [1 + β(y − c)]₊^{1/β} = 1, or of Σ e^{y − c} = 1 at β = 0."""
    top, zero = mpmath.mpf(max(z)), mpmath.mpf(0)
    y = [mpmath.mpf(score) - top for score in z]
    c = mpmath.mpf(_double_normaliser(np.array([float(gap) for gap in y]), float(beta)))
    for _ in range(12):
        if beta == 0:
            p = s = [mpmath.exp(gap - c) for gap in y]
        else:
            u = [1 + beta * (gap - c) for gap in y]
            p = [base ** (1 / beta) if base > 0 else zero for base in u]
            s = [x / base if base > 0 else zero for x, base in zip(p, u, strict=True)]
        total = mpmath.fsum(p)
        if abs(total - 1) < mpmath.mpf(10) ** -40:
            return p, s
        c += mpmath.log(total) * total / mpmath.fsum(s)  # Newton on log Σ
    raise AssertionError("the oracle itself must be right")


def _double_normaliser(y: np.ndarray, beta: float) -> float:
    low, high = 0.0, float(np.log(y.size)) + 1 if beta >= 0 else y.size**-beta / -beta
    for _ in range(60):
        middle = (low + high) / 2
        u = 1 + beta * (y - middle)
        p = np.exp(y - middle) if beta == 0 else np.exp(np.log(u[u > 0]) / beta)
        low, high = (middle, high) if p.sum() >= 1 else (low, middle)
    return low


@np.errstate(divide="ignore", invalid="ignore")
def exact_entmax(scores: np.ndarray, alpha: Any) -> np.ndarray:
    """α-entmax of many rows, 0 < α ≤ 2, α a number or a column.

    The normaliser c of Σ [1 + β(z − c)]₊^{1/β} = 1 by bisection in doubles, then by Newton's steps
    in the type of the scores. Σ is convex in c, so these come from below and pass over nothing.
    """
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    spoilt, nothing = ~(top < np.inf), top == -np.inf
    y = np.where(spoilt | nothing, 0, scores - np.where(nothing, 0, top))
    beta = np.reshape(alpha, (-1, 1)).astype(y.dtype) - 1

    def powers(c: np.ndarray, y: Any, beta: Any) -> tuple[np.ndarray, np.ndarray]:
        x = np.maximum(beta * (y - c), -1)
        p = np.exp(np.where(beta == 0, y - c, np.log1p(x) / np.where(beta == 0, 1, beta)))
        return p, np.where(x > -1, p / np.where(x > -1, 1 + x, 1), 0)

    d, heavy = scores.shape[-1], np.minimum(beta, 0).astype(float)  # below 0: c may be far
    most = np.where(heavy < 0, (d**-heavy - 1) / np.where(heavy < 0, -heavy, 1), np.log(d) + 1)
    low, high = np.zeros(top.shape), np.broadcast_to(most, top.shape)
    for _ in range(16):
        middle = (low + high) / 2
        rough = powers(middle, y.astype(float), beta.astype(float))[0]
        much = rough.sum(axis=-1, keepdims=True) >= 1
        low, high = np.where(much, middle, low), np.where(much, high, middle)
    c = low.astype(y.dtype)
    for _ in range(60):
        p, s = powers(c, y, beta)
        total = p.sum(axis=-1, keepdims=True)
        step = (total - 1) / s.sum(axis=-1, keepdims=True)
        if (np.abs(step) <= 8 * np.finfo(y.dtype).eps * (1 + c)).all():
            break
        c = c + step
    else:
        raise AssertionError("the definition has not been solved")
    return np.where(spoilt, np.nan, np.where(nothing, 0, p / total))


def error_in_contracts(p: np.ndarray, exact: Exact, z: np.ndarray, alpha: float) -> float:
    """Largest |p − p*| over 4ε p* + 16ε s* max(1, max_S |z − max z|): at most 1 is promised.

    For α < 1 it is 4ε p* |log p*| more.

    Off the support p* = s* = 0, but an entry within rounding of the threshold may get what the
    same move of the scores gives it there: p^{α−1} ≤ 16ε max(1, …).
    """
    best, slope = (np.array([float(value) for value in values]) for values in exact)
    # What rounding the many digits to doubles leaves, so that the difference keeps its digits.
    rest = np.array([float(v - b) for v, b in zip(exact[0], best.tolist(), strict=True)])
    on = np.array([value > 0 for value in exact[0]])
    p64, z = p.astype(np.float64), z.astype(np.float64)
    room = 16 * float(np.finfo(p.dtype).eps) * max(1.0, float(z.max() - z[on].min()))
    digits = 1 - (np.log(best, where=best > 0, out=np.zeros_like(best)) if alpha < 1 else 0)
    allowed = float(np.finfo(p.dtype).eps) * 4 * best * digits + slope * room
    error = np.abs((p64 - best) - rest) / np.maximum(allowed, np.finfo(p.dtype).tiny)
    beyond = p64[~on] ** (alpha - 1) / room
    return float(max(error[on].max(), beyond.max(initial=0) if alpha > 1 else 0))
