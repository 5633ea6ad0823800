"""Logarithms of probabilities, for decoding: −∞ off the support, and no digit lost elsewhere.

A product of many probabilities underflows, so decoders add up logarithms. Taken from the
probabilities themselves they would be −∞ where those underflow (softmax, α-entmax near α = 1), and
hold few digits where one is near 1, or none; so they come from the scores, and

    log p_i = log1p(−Σ_{j≠i} p_j)

where p_i is large. ``log_softmax`` and its like stand in the files of their mappings. They have no
derivatives: the losses have theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SURE = 0.75  # at most one probability of a row is above


def log_sum_exp(x: Any) -> Any:
    """log Σ exp x of rows whose largest is 0, and counts 1: small sums of the rest keep digits."""
    largest = x == 0
    rest = np.sum(np.where(largest, 0, np.exp(x)), axis=-1, keepdims=True)
    ties = np.sum(largest, axis=-1, keepdims=True, dtype=x.dtype) - 1
    return np.log1p(ties + rest)


def logarithms(p: Any) -> Any:
    """log p of probabilities in rows that do not underflow."""
    return sure(np.where(p == 0, -np.inf, np.log(np.where(p == 0, 1, p))), p)


def sure(log_p: Any, p: Any) -> Any:
    """log p, with that of a large p from the others."""
    others = np.sum(np.where(p > SURE, 0, p), axis=-1, keepdims=True)
    return np.where(p > SURE, np.log1p(0 - np.minimum(others, 1 - SURE)), log_p)
