"""Logarithms of probabilities, for decoding: −∞ off the support, and no digit lost elsewhere.

A product of many probabilities underflows, so decoders add up logarithms. Computed from the
probabilities themselves they would be −∞ where those underflow (softmax, α-entmax near α = 1), and
would have few or no correct digits for a probability near 1; so they come from the scores, and

    log p_i = log1p(−Σ_{j≠i} p_j)

where p_i is large. ``softmax.log`` and the others have their rules in the files of their mappings.
They have no derivatives; the losses have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LARGE = 0.75  # at most one probability of a row is above


def log_sum_exp(x: Any) -> Any:
    """log Σ exp x of rows whose largest is 0, by log1p of the rest: small sums keep digits."""
    largest = x == 0
    rest = np.sum(np.where(largest, 0, np.exp(x)), axis=-1, keepdims=True)
    ties = np.sum(largest, axis=-1, keepdims=True, dtype=x.dtype) - 1
    return np.log1p(ties + rest)


def logarithms(p: Any) -> Any:
    """log p of probabilities in rows that do not underflow."""
    return refine_large(np.where(p == 0, -np.inf, np.log(np.where(p == 0, 1, p))), p)


def refine_large(log_p: Any, p: Any) -> Any:
    """log p, where a large p gets its logarithm from the other probabilities of the row."""
    others = np.sum(np.where(p > LARGE, 0, p), axis=-1, keepdims=True)
    return np.where(p > LARGE, np.log1p(0 - np.minimum(others, 1 - LARGE)), log_p)
