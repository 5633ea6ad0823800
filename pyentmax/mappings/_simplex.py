"""The Jacobian that all mappings with a separable Ω share: diag(s) − s sᵀ / Σs.

For Ω(p) = Σ g(p_i) the optimality condition on the support is g'(p_i) = z_i − τ. Moving z moves
p_i by s_i (dz_i − dτ) with s_i = 1/g''(p_i), and Σ dp = 0 fixes dτ = (s·dz)/Σs (Peters et al.
2019, Prop. 2). Off the support s = 0. J is symmetric, so its product with v serves as JVP and
as VJP.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def normalized(p: Any, s: Any) -> Any:
    """p with unit sum, rounding's excess taken off as a threshold that moves would: dp = −s dτ.

    In a long row the rounding of τ alone, shared by thousands of small entries, can add up to
    1e-3 in float32. Scaling would charge that to the largest entry; s charges it where it arose.
    """
    excess = np.sum(p, axis=-1, keepdims=True) - 1
    p = np.maximum(p - s * (excess / np.sum(s, axis=-1, keepdims=True)), 0)
    return p / np.sum(p, axis=-1, keepdims=True)


def product(s: Any, v: Any) -> Any:
    """J v = s ∘ (v − (s·v)/Σs), rows along the last axis; zero for a row without support."""
    v = np.where(s != 0, v, 0)  # off the support v may hold anything, a NaN too
    total = np.sum(s, axis=-1, keepdims=True)
    mean = np.sum(s * v, axis=-1, keepdims=True) / np.where(total == 0, 1, total)
    return s * (v - mean)


def dense(s: Any) -> Any:
    """J itself, of shape batch + (d, d)."""
    total = np.sum(s, axis=-1, keepdims=True)
    r = s / np.sqrt(np.where(total == 0, 1, total))  # r rᵀ is symmetric to the last bit
    identity = np.eye(s.shape[-1], dtype=s.dtype)
    return s[..., :, None] * identity - r[..., :, None] * r[..., None, :]
