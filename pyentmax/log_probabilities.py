"""Logarithms of probabilities, for decoding: −∞ off the support, and no digit lost elsewhere.

A product of many probabilities underflows, so decoders add up logarithms. Taken from the
probabilities themselves they would be −∞ where those underflow (softmax, α-entmax near α = 1), and
hold few digits where one is near 1, or none; so they come from the scores, and

    log p_i = log1p(−Σ_{j≠i} p_j)

where p_i is large. There are no derivatives here: the losses have theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.backends.choice import accelerated
from pyentmax.calls.rows import Rows
from pyentmax.mappings.entmax import _beta, _Rows
from pyentmax.mappings.entmax15 import entmax15
from pyentmax.mappings.sparsemax import sparsemax
from pyentmax.thresholds import bisect_largest, inside, log_exp_beta, newton

SURE = 0.75  # at most one probability of a row is above


@accelerated(Rows)
def log_softmax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """log p = z − log Σ exp z, of p = softmax(z): finite for every finite score.

    Parameters
    ----------
    z : array of scores
    axis, mask, out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape; −∞ where p is 0, as in all of a row with nothing left, and NaN where p is

    Raises
    ------
    ValueError, TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(log_softmax([0.0, -1000.0, -np.inf]))
    [    0. -1000.   -inf]
    """
    rows = Rows(z, axis, mask=mask, out=out)
    x = rows.scores()
    return rows.restore(x - log_sum_exp(x), dead=-np.inf)


@accelerated(Rows)
def log_sparsemax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """log p of p = sparsemax(z), −∞ off its support. Parameters and errors as in `log_softmax`.

    Examples
    --------
    >>> print(log_sparsemax([0.5, 0.5, -1.0]).round(6))
    [-0.693147 -0.693147      -inf]
    """
    rows = Rows(z, axis, mask=mask, out=out)
    return rows.restore(_logs(sparsemax.reference(rows.scores())), dead=-np.inf)


@accelerated(Rows)
def log_entmax15(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """log p of p = entmax15(z), −∞ off its support. Parameters and errors as in `log_softmax`.

    Examples
    --------
    >>> print(log_entmax15([2.0, 1.6, -1.0]).round(6))
    [-0.446287 -1.021651      -inf]
    """
    rows = Rows(z, axis, mask=mask, out=out)
    return rows.restore(_logs(entmax15.reference(rows.scores())), dead=-np.inf)


@accelerated(_Rows)
def log_entmax(
    z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> Any:
    """log p of p = entmax(z, alpha), −∞ off its support. Errors as in `pyentmax.entmax`.

    Up to α = 2, log p = log1p((α−1)(z − max z − c))/(α−1) with the normaliser c of
    `pyentmax.thresholds.newton`, so that it is finite wherever p is not 0 but underflows.

    Parameters
    ----------
    z, alpha, axis, mask, out : as in `pyentmax.entmax`

    Returns
    -------
    array of z's shape

    Examples
    --------
    >>> print(log_entmax([0.0, -900.0, -1100.0], 1.001).round(4))
    [    0.     -2302.5851       -inf]
    """
    rows = _Rows(z, alpha, axis, mask=mask, out=out)
    x, beta = rows.scores(), _beta(rows.alpha, rows.z)
    low = np.minimum(beta, 1)
    c = newton(x, low).c
    log_p = np.where(inside(x, c, low), log_exp_beta(x - c, low), -np.inf)
    log_p = _sure(log_p, np.exp(log_p))
    if not (isinstance(beta, np.ndarray) and (beta <= 1).all()):
        high = _logs(bisect_largest(x, np.maximum(beta, 1)).p)
        log_p = np.where(beta <= 1, log_p, high)
    return rows.restore(log_p, dead=-np.inf)


LOGARITHMS: dict[str, Callable[..., Any]] = {
    "softmax": log_softmax,
    "sparsemax": log_sparsemax,
    "entmax15": log_entmax15,
    "entmax": log_entmax,
}
"""Name of a mapping → its logarithm, for those that have one."""


def log_sum_exp(x: Any) -> Any:
    """log Σ exp x of rows whose largest is 0, and counts 1: small sums of the rest keep digits."""
    largest = x == 0
    rest = np.sum(np.where(largest, 0, np.exp(x)), axis=-1, keepdims=True)
    ties = np.sum(largest, axis=-1, keepdims=True, dtype=x.dtype) - 1
    return np.log1p(ties + rest)


def _logs(p: Any) -> Any:
    """log p of probabilities in rows that do not underflow."""
    return _sure(np.where(p == 0, -np.inf, np.log(np.where(p == 0, 1, p))), p)


def _sure(log_p: Any, p: Any) -> Any:
    """log p, with that of a large p from the others."""
    others = np.sum(np.where(p > SURE, 0, p), axis=-1, keepdims=True)
    return np.where(p > SURE, np.log1p(0 - np.minimum(others, 1 - SURE)), log_p)
