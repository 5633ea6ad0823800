"""Tsallis' q-exponential: α-entmax's exp, which reaches 0."""

from __future__ import annotations

from typing import Any

import numpy as np


def log_tsallis_exp(t: Any, beta: Any) -> Any:
    """log p = log1p(βt)/β of p = [1 + βt]₊^{1/β}: t itself at β = 0, −∞ from t = −1/β down.

    Accurate for every β ≥ 0, however small, and where p itself underflows.

    Examples
    --------
    >>> print(log_tsallis_exp(np.array([-3.0, -900.0, 0.0]), np.array([1e-3])).round(4))
    [   -3.0045 -2302.5851     0.    ]
    """
    t = np.maximum(t, np.finfo(t.dtype).min)  # −∞ times β = 0 would be a NaN
    limit, x = beta == 0, np.maximum(beta * t, -1)
    with np.errstate(divide="ignore", over="ignore"):  # log1p(−1) = −∞ is meant: p = 0
        return np.where(limit, t, np.log1p(x) / np.where(limit, 1, beta))


def tsallis_exp(t: Any, beta: Any) -> tuple[Any, Any]:
    """p = [1 + βt]₊^{1/β}, which is exp(t) at β = 0, and its slope dp/dt = s = p^{1−β}.

    Tsallis' q-exponential for q = 1 − β, as the exponential of `log_tsallis_exp`; the slope is
    p/(1 + βt).

    Examples
    --------
    >>> p, s = tsallis_exp(np.array([-3.0, -1.0, 0.0]), np.array([0.5]))
    >>> print(np.round(p, 6), np.round(s, 6))
    [0.   0.25 1.  ] [0.  0.5 1. ]
    """
    p = np.exp(log_tsallis_exp(t, beta))
    x = np.maximum(beta * np.maximum(t, np.finfo(t.dtype).min), -1)
    return p, p / np.where(x > -1, 1 + x, 1)


def in_support(y: Any, c: Any, beta: Any) -> Any:
    """The support u = 1 + β(y − c) > 0, read where no float underflows: all of y > −∞ at β = 0."""
    lowest = np.finfo(y.dtype).min
    return (beta * np.maximum(y - c, lowest) > -1) & (y > -np.inf)
