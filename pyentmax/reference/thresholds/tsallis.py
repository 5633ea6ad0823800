"""Tsallis' q-exponential: α-entmax's exp, which reaches 0 for β > 0 and nowhere for β ≤ 0."""

from __future__ import annotations

from typing import Any

import numpy as np


def log_tsallis_exp(t: Any, beta: Any, rest: Any = 0) -> Any:
    """log p = log(u)/β of p = u^{1/β}, u = [1 + βt − rest]₊: t itself at β = 0, −∞ where u = 0.

    Accurate for every β > −1, however near to 0, and where p itself underflows; for `rest` see
    `remainder`. For β < 0 u rises as t falls, and −∞ is left for t = −∞, a masked score.

    Examples
    --------
    >>> print(log_tsallis_exp(np.array([-3.0, -900.0, 0.0]), np.array([1e-3])).round(4))
    [   -3.0045 -2302.5851     0.    ]
    """
    limit, x = beta == 0, _product(t, beta)
    with np.errstate(divide="ignore", over="ignore"):  # log 0 = −∞ is meant: p = 0
        log_u = _log_base(x, rest) / np.where(limit, 1, beta)
        log_u = np.where((beta < 0) & (t == -np.inf), -np.inf, log_u)
        return np.where(limit, np.maximum(t, np.finfo(t.dtype).min), log_u)


def tsallis_exp(t: Any, beta: Any, rest: Any = 0) -> tuple[Any, Any]:
    """p = [1 + βt − rest]₊^{1/β}, which is exp(t) at β = 0, and its slope dp/dt = s = p^{1−β}.

    Tsallis' q-exponential for q = 1 − β, as the exponential of `log_tsallis_exp`; the slope is
    p/(1 + βt).

    Examples
    --------
    >>> p, s = tsallis_exp(np.array([-3.0, -1.0, 0.0]), np.array([0.5]))
    >>> print(np.round(p, 6), np.round(s, 6))
    [0.   0.25 1.  ] [0.  0.5 1. ]
    """
    p = np.exp(log_tsallis_exp(t, beta, rest))
    u = _base(_product(t, beta), rest)
    return p, p / np.where(u > 0, u, 1)


def in_support(y: Any, c: Any, beta: Any, rest: Any = 0) -> Any:
    """The support 1 + β(y − c) − rest > 0, where no float underflows: all of y > −∞ if β ≤ 0."""
    return (_base(_product(y - c, beta), rest) > 0) & (y > -np.inf)


def tsallis_base(t: Any, beta: Any) -> Any:
    """1 + βt, the base of the power `tsallis_exp`; −1 far below the threshold.

    Examples
    --------
    >>> print(tsallis_base(np.array([0.0, -1.0, -9.0]), np.array([0.5])))
    [ 1.   0.5 -1. ]
    """
    return 1 + _product(t, beta)


def _product(t: Any, beta: Any) -> Any:
    # −∞ times β = 0 would be NaN. Far below the threshold the value makes no difference.
    return np.maximum(beta * np.maximum(t, np.finfo(t.dtype).min), -2)


def _log_base(x: Any, rest: Any) -> Any:
    whole = np.log1p(np.maximum(x, -1))
    if isinstance(rest, int) or (isinstance(rest, np.ndarray) and not rest.any()):
        return whole
    # Where u is small, 1 + x is exact, so subtracting the rest from it loses no digits.
    corrected = np.where(x < -0.5, np.log(_base(x, rest)), np.log1p(np.maximum(x, -0.5) - rest))
    return np.where(rest == 0, whole, corrected)


def _base(x: Any, rest: Any) -> Any:
    return np.maximum((1 + x) - rest, 0)
