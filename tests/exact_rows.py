"""α-entmax of one row in 50 digits: closed forms where there are any, else Newton's steps.

Nothing here is shared with the library. What the general solver returns is verified by what it
must satisfy (unit sum to 40 digits), so its way there does not matter.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np

DIGITS = 50
Exact = tuple[list[mpmath.mpf], list[mpmath.mpf]]


def exact_row(z: np.ndarray, alpha: float) -> Exact:
    """The probabilities and their slopes s = p^{2−α} (0 off the support), 1 ≤ α ≤ 2."""
    y = tuple(Fraction(float(score)) for score in z)
    top = max(y)
    # Long rows are many megabytes of digits: too many to keep.
    solve = _exact if z.size <= 1000 else _exact.__wrapped__
    with mpmath.workdps(DIGITS):
        return solve(tuple(score - top for score in y), alpha)


@cache
def _exact(y: tuple[Fraction, ...], alpha: float) -> Exact:
    if alpha == 1:
        return _softmax(y)
    if alpha == 2:
        return _sparsemax(y)
    if alpha == 1.5:
        return _entmax15(y)
    return _general(y, mpmath.mpf(alpha) - 1)


def _softmax(y: tuple[Fraction, ...]) -> Exact:
    p = [mpmath.exp(_float(score)) for score in y]
    total = mpmath.fsum(p)
    p = [value / total for value in p]
    return p, p


def _sparsemax(y: tuple[Fraction, ...]) -> Exact:
    """Rational throughout: τ(ρ) = (Σ_{j≤ρ} y₍ⱼ₎ − 1)/ρ for the largest ρ with y₍ρ₎ > τ(ρ)."""
    total, tau = Fraction(0), Fraction(0)
    for rank, score in enumerate(sorted(y, reverse=True), 1):
        if rank * score <= total + score - 1:
            break
        total += score
        tau = (total - 1) / rank
    p = [max(score - tau, Fraction(0)) for score in y]
    assert sum(p) == 1
    return [_float(value) for value in p], [mpmath.mpf(value > 0) for value in p]


def _entmax15(y: tuple[Fraction, ...]) -> Exact:
    """Rational sums; τ is the smaller root of ρτ² − 2Aτ + B − 1 = 0, x = y/2."""
    x = [score / 2 for score in y]
    linear, square, tau = Fraction(0), Fraction(0), mpmath.mpf(-1)
    for rank, score in enumerate(sorted(x, reverse=True), 1):
        if score <= -1:
            break
        a, b = linear + score, square + score * score
        inside = a * a - rank * (b - 1)
        if inside < 0:
            break
        candidate = (_float(a) - mpmath.sqrt(_float(inside))) / rank
        if candidate > _float(score):
            break
        linear, square, tau = a, b, candidate
    u = [max(_float(score) - tau, mpmath.mpf(0)) if score > -1 else mpmath.mpf(0) for score in x]
    _check_sum(value * value for value in u)
    return [value * value for value in u], u


def _general(y: tuple[Fraction, ...], beta: mpmath.mpf) -> Exact:
    """Newton on log Σ [1 + β(y − c)]₊^{1/β} = 0 from the solution in doubles."""
    c = mpmath.mpf(_double_normaliser(np.array([float(score) for score in y]), float(beta)))
    exact = [_float(score) for score in y]
    for _ in range(12):
        near = [(i, 1 + beta * (score - c)) for i, score in enumerate(exact)]
        u = [(i, value) for i, value in near if value > 0]
        p = [mpmath.exp(mpmath.log(value) / beta) for _, value in u]
        s = [value / base for value, (_, base) in zip(p, u, strict=True)]
        total = mpmath.fsum(p)
        if abs(total - 1) < mpmath.mpf(10) ** -40:
            break
        c += mpmath.log(total) * total / mpmath.fsum(s)
    _check_sum(p)
    zero = mpmath.mpf(0)
    all_p, all_s = [zero] * len(exact), [zero] * len(exact)
    for (i, _), value, slope in zip(u, p, s, strict=True):
        all_p[i], all_s[i] = value, slope
    return all_p, all_s


def _double_normaliser(y: np.ndarray, beta: float) -> float:
    low, high = 0.0, float(np.log(y.size)) + 1
    for _ in range(60):
        middle = (low + high) / 2
        u = 1 + beta * (y - middle)
        total = np.exp(np.log(u[u > 0]) / beta).sum()
        low, high = (middle, high) if total >= 1 else (low, middle)
    return low


def _float(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def _check_sum(p: Any) -> None:
    assert abs(mpmath.fsum(p) - 1) < mpmath.mpf(10) ** -40, "the oracle itself must be right"


def error_in_contracts(p: np.ndarray, exact: Exact, z: np.ndarray, alpha: float) -> float:
    """Largest |p − p*| over 4ε p* + 16ε s* max(1, max_S |z − max z|): at most 1 is promised.

    Off the support p* = s* = 0, but an entry within rounding of the threshold may get what the
    same move of the scores gives it there: p^{α−1} ≤ 16ε max(1, …).
    """
    best, slope = (np.array([float(value) for value in values]) for values in exact)
    # What rounding the many digits to doubles leaves, so that the difference keeps its digits.
    rest = np.array([float(v - b) for v, b in zip(exact[0], best.tolist(), strict=True)])
    on = np.array([value > 0 for value in exact[0]])
    p64, z = p.astype(np.float64), z.astype(np.float64)
    room = 16 * float(np.finfo(p.dtype).eps) * max(1.0, float(z.max() - z[on].min()))
    allowed = float(np.finfo(p.dtype).eps) * 4 * best + slope * room
    error = np.abs((p64 - best) - rest) / np.maximum(allowed, np.finfo(p.dtype).tiny)
    beyond = p64[~on] ** (alpha - 1) / room
    return float(max(error[on].max(), beyond.max(initial=0) if alpha > 1 else 0))


def exact_entmax(z: Any, alpha: Any, digits: int = 30) -> list[mpmath.mpf]:
    """α-entmax of one row, 1 ≤ α < ∞, by bisection on log p_max in `digits` digits."""
    with mpmath.workdps(digits):
        y = [mpmath.mpf(float(score)) - float(max(z)) for score in z]
        beta = mpmath.mpf(alpha) - 1

        def powers(w: mpmath.mpf) -> list[mpmath.mpf]:
            return [(w + beta * t) ** (1 / beta) if w + beta * t > 0 else mpmath.mpf(0) for t in y]

        if beta == 0:
            p = [mpmath.exp(t) for t in y]
        else:
            low, high = -beta * mpmath.log(len(y)), mpmath.mpf(0)
            for _ in range(int(3.5 * digits)):
                middle = (low + high) / 2
                enough = sum(powers(mpmath.exp(middle))) >= 1
                low, high = (low, middle) if enough else (middle, high)
            p = powers(mpmath.exp(high))
        total = sum(p)
        return [value / total for value in p]
