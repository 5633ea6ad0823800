"""The binary case of α-entmax: the smaller of p and 1 − p for the scores [z, 0], entry by entry.

With a = |z| and β = α − 1, q = min(p, 1 − p) solves

    ((1 − q)^β − q^β)/β = a,

log(1 − q) − log q = a at β = 0, and is 0 from a = 1/β on. `pyentmax.entmax_sigmoid` and its losses
compute all from q: so no digit of a small probability is lost, and p(−z) is 1 − p(z) to the last
bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def smaller(a: Any, beta: Any) -> Any:
    """q, by the closed form for this β if there is one. Entries do not affect each other."""
    nan, centre = np.isnan(a), a == 0
    a = np.where(nan, 0, np.minimum(a, np.finfo(a.dtype).max))
    on_host = isinstance(beta, np.ndarray | np.generic)
    q = np.full_like(a, np.nan)
    with np.errstate(over="ignore", under="ignore"):
        for applies, example, solve in _SOLVERS:
            on = applies(beta)
            if on_host and on.all():
                q = solve(a, beta)
                break
            if not on_host or on.any():
                q = np.where(on, solve(a, np.where(on, beta, example).astype(a.dtype)), q)
    nan = nan | np.isnan(beta)  # on a device, an invalid α is NaN
    return np.where(nan, np.nan, np.where(centre, 0.5, q)).astype(a.dtype, copy=False)


def _logistic(a: Any, beta: Any) -> Any:
    e = np.exp(-a)
    return e / (1 + e)


def _square(a: Any, beta: Any) -> Any:
    # √q = (√(2 − t²) − t)/2 with t = a/2, as the fraction that does not cancel near t = 1.
    t = np.minimum(a / 2, 1)
    root = (1 - t) * (1 + t) / (np.sqrt(2 - t * t) + t)
    return root * root


def _linear(a: Any, beta: Any) -> Any:
    # p² − q² = p − q, since p + q = 1.
    return np.maximum(1 - beta * np.minimum(a, 1), 0) / 2


def _below_2(a: Any, beta: Any) -> Any:
    """For −1 ≤ β < 1, from the ratio r = q/(1 − q).

    With v = (1 − r^β)/β, that is r = [1 − βv]^{1/β}, the equation reads v = a (1 + r)^β. At β = 0
    and 1 a single Newton step solves it. (1 + r)^β is a norm of (1, 1 − βv), of order 1/β ≥ 1 and
    so convex in v: from v = a, where v − a (1 + r)^β ≤ 0, the steps rise to the root. For β < 0 it
    is concave, and they fall to the root. For all a and β, the error is below 1e−14 after four
    steps, and rounding after five.
    """
    within = beta * a < 1
    v = a = np.where(within, a, 0)
    lowest = np.finfo(a.dtype).epsneg - 1  # βv stays below 1 despite rounding: no log of 0
    for _ in range(5):
        x = np.maximum(-beta * v, lowest)
        r = np.exp(np.log1p(x) / beta)
        norm = a * np.exp(beta * np.log1p(r))
        v = v + (norm - v) / (1 + beta * norm * (r / (1 + x)) / (1 + r))
    r = np.exp(np.log1p(np.maximum(-beta * v, lowest)) / beta)
    return np.where(within, r / (1 + r), 0)


def _above_2(a: Any, beta: Any) -> Any:
    """For β > 1, from w = (1 − q)^β.

    The equation reads w − (1 − w^{1/β})^β = βa. With r = q/(1 − q) ≤ 1 the left side has the slope
    1 + r^{β−1}, between 1 and 2 and falling, since r falls where w rises: it is concave. It is 0 at
    2^{−β}, so that the root is not below 2^{−β} + βa/2, nor below βa, and from there Newton's steps
    rise to it. For all a and β, the relative error of w is below 1e−11 after three steps, and
    rounding after four. A rounding of w moves the score by 1/β of one, which the accuracy contract
    allows above α = 2.
    """
    within, beta = a < 1 / beta, finite_beta(beta)
    tiny = np.finfo(a.dtype).tiny
    s = beta * np.where(within, a, 0)
    w = np.maximum(np.maximum(np.exp(-math.log(2) * beta) + s / 2, s), tiny)
    for _ in range(4):
        log = np.log(w) / beta
        p, q = np.exp(log), np.maximum(-np.expm1(log), tiny)
        rest = np.exp(beta * np.log(q))
        w = w + (s - w + rest) / (1 + rest / w * (p / q))
        w = np.minimum(np.maximum(w, tiny), 1)
    return np.where(within, np.minimum(-np.expm1(np.log(w) / beta), 0.5), 0)


# Which β each solver is for, a valid β to call it with for other entries, and the solver.
_SOLVERS = (
    (lambda beta: beta == 0, 0, _logistic),
    (lambda beta: beta == 0.5, 0.5, _square),
    (lambda beta: (beta == 1) | (beta == 2), 1, _linear),
    (lambda beta: (beta < 1) & (beta != 0) & (beta != 0.5), 0.25, _below_2),
    (lambda beta: (beta > 1) & (beta != 2), 3, _above_2),
)


def finite_beta(beta: Any) -> Any:
    # So large that powers are as with ∞, but its product with log 1 is 0 and not NaN.
    return np.minimum(beta, np.finfo(beta.dtype).max / 1e4)
