r"""Supports as prediction sets (Campos et al. 2025, arXiv 2502.14773).

A label y is in the support of entmax(z / q) exactly if

    Σ_k [(α − 1) (z_k − z_y) / q]₊^{1/(α−1)} < 1,

that is if q is larger than the score s(z, y) = (Σ_k [(α − 1) (z_k − z_y)]₊^{1/(α−1)})^{α−1}: the
temperature that y needs to enter the support. So sets {y : s(z, y) ≤ q} with the quantile q of the
scores of right labels are split conformal prediction, and supports at once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def support_scores(
    z: NDArray[np.float64], alpha: float, rounding: float = 0.0
) -> NDArray[np.float64]:
    """The temperature that each label needs to enter the support, for scores (n, K).

    With a rounding it is a lower bound: that of gaps z_k − z_y smaller by such a share of the row's
    largest score. A temperature beyond floats is infinite.

    Examples
    --------
    >>> support_scores(np.array([[3.0, 2.0, 0.0]]), alpha=2)
    array([[0., 1., 5.]])
    """
    order = np.argsort(-z, axis=1, kind="stable")
    descending = np.take_along_axis(z, order, axis=1) / 2  # halves, whose gaps are floats
    slack = rounding * np.abs(descending).max(axis=1, keepdims=True)
    found = np.empty_like(z)
    for rank in range(z.shape[1]):
        # Powers of shares of the largest gap: gaps may be of any size.
        gaps = descending[:, :rank] - descending[:, rank : rank + 1]
        gaps = np.maximum(gaps - slack, 0)
        largest = gaps.max(axis=1, initial=0, keepdims=True)
        shares = np.divide(gaps, largest, out=np.zeros_like(gaps), where=largest > 0)
        with np.errstate(over="ignore"):
            total = (shares ** (1 / (alpha - 1))).sum(axis=1) ** (alpha - 1)
            needed = largest[:, 0] * total * (alpha - 1) * 2
        found[np.arange(len(z)), order[:, rank]] = needed
    return found


def quantile(ascending: NDArray[np.float64], coverage: float) -> float:
    """The score that a new one exceeds with a probability of at most 1 − coverage.

    It is the ⌈(n + 1) · coverage⌉-th smallest of n, or infinite if n is too small for that.

    Examples
    --------
    >>> quantile(np.arange(1.0, 10.0), 0.8), quantile(np.arange(1.0, 10.0), 0.95)
    (8.0, inf)
    """
    rank = max(math.ceil((len(ascending) + 1) * coverage - 1e-9), 1)
    return float(ascending[rank - 1]) if rank <= len(ascending) else math.inf
