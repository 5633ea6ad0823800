"""α-entmax of many rows in the widest floats that NumPy has; nothing is shared with the library."""

from __future__ import annotations

from typing import Any

import numpy as np


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
