"""Thresholds by dropping scores that cannot be in the support: no sort.

On any set of scores that contains the support of sparsemax, (Σx − 1)/n is a lower bound on τ: the
scores outside the support are below τ and only pull the mean down. So scores that do not exceed it
can be dropped. For NumPy arrays only: each pass tests the result of the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.reference.thresholds.threshold import Threshold, as_scores, clipped_gaps, support_size


def michelot(x: Any) -> Threshold:
    """τ of sparsemax (α = 2): drop scores that do not exceed (Σx − 1)/n, until all of them do.

    These are Newton's steps on Σ [x_i − τ]₊ = 1 (Michelot 1986). Few passes on random rows, but
    d of them where each pass drops one score, as for −1, −1000, −10⁶, …; O(d) per pass.

    Examples
    --------
    >>> print(michelot(np.array([1.0, 0.5, -2.0])))
    Threshold(tau=array([0.25]), size=array([2]), passes=2)
    >>> michelot(-(1000.0 ** np.arange(12))).passes
    12
    """
    x = as_scores(x)
    top = np.max(x, axis=-1, keepdims=True)
    with np.errstate(over="ignore"):  # clipped so that the sum is finite
        y = np.maximum(x - top, np.finfo(x.dtype).min / x.shape[-1])
    tau, passes = _rising(y, (np.sum(y, axis=-1, keepdims=True) - 1) / y.shape[-1], 1)
    return Threshold(tau + top, support_size(y > tau), passes)


def condat(x: Any) -> Threshold:
    """τ of sparsemax (α = 2) by Condat's filter: Michelot's bound, updated score by score.

    In the first pass (Condat 2016, Alg. 1) a score that exceeds the bound τ so far joins the set,
    τ ← τ + (x − τ)/n. If τ is then still below x − 1, which is a bound itself, the set restarts
    from x alone. So the first bound is already good, and `michelot`'s passes finish from it. The
    first pass goes score by score, here for all rows at once. In C, the later passes would visit
    only the scores that exceeded the bound.

    Examples
    --------
    >>> print(condat(np.array([1.0, 0.5, -2.0])))
    Threshold(tau=array([0.25]), size=array([2]), passes=2)
    >>> condat(-(1000.0 ** np.arange(12))).passes
    2
    """
    top, y = clipped_gaps(x)
    columns = np.moveaxis(y, -1, 0)
    tau, n = columns[0] - 1, np.ones_like(columns[0])
    for score in columns[1:]:
        joins = score > tau
        raised = tau + (score - tau) / (n + 1)
        alone = joins & (raised <= score - 1)
        n = np.where(alone, 1, n + joins)
        tau = np.where(alone, score - 1, np.where(joins, raised, tau))
    tau, passes = _rising(y, tau[..., None], 1)
    return Threshold(tau + top, support_size(y > tau), passes)


def _rising(y: Any, tau: Any, passes: int) -> tuple[Any, int]:
    """Newton's steps on Σ [y_i − τ]₊ = 1 until τ no longer rises: τ and the total of passes.

    From a τ at or below the solution, τ only rises. The first step may fall: it corrects a start
    that rounding made too high. Each later rise drops a score, so they end.
    """
    first = True
    while True:
        above = y > tau
        n = np.sum(above, axis=-1, keepdims=True, dtype=y.dtype)
        new = (np.sum(np.where(above, y, 0), axis=-1, keepdims=True) - 1) / n
        passes, rises = passes + 1, first | (new > tau)
        tau, first = np.where(rises, new, tau), False
        if not rises.any() or bool(((y > tau) == above).all()):
            return tau, passes
