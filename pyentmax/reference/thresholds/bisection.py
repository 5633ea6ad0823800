"""Thresholds by bisection, for any α above 1."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.thresholds.threshold import (
    Threshold,
    as_scores,
    beta_per_row,
    between,
    support_size,
)


def bisection(x: Any, alpha: Any, passes: int | None = None) -> Threshold:
    """τ of α-entmax, α > 1, x = (α−1) z, by halving the bracket: one bit per pass.

    The plain Algorithm 1 of Peters et al. (2019), for any α and any array. Probabilities computed
    from it need renormalising. `passes` defaults to the significant bits of the dtype. α is a
    number or broadcasts against the batch shape; a ValueError is raised if it does not, or if it is
    not above 1.

    Examples
    --------
    >>> print(np.round(bisection(np.array([1.0, 0.5, -2.0]), 2).tau, 6))
    [0.25]
    """
    x = as_scores(x)
    beta = beta_per_row(alpha, x)
    passes = np.finfo(x.dtype).nmant + 2 if passes is None else passes
    top = np.max(x, axis=-1, keepdims=True)
    low, high = top - 1, top - x.shape[-1] ** -beta
    for _ in range(passes):
        tau = low + (high - low) / 2
        enough = np.sum(np.maximum(x - tau, 0) ** (1 / beta), axis=-1, keepdims=True) >= 1
        low, high = np.where(enough, tau, low), np.where(enough, high, tau)
    return Threshold(low, support_size(x > low), passes)


class MaxProbability(NamedTuple):
    """Bisection's result for α > 2: the probabilities, the largest per row, and the passes."""

    p: Any
    p_max: Any
    passes: int


def bisect_p_max(y: Any, beta: Any) -> MaxProbability:
    """Probabilities of α-entmax for β = α − 1 > 1, by bisection on the largest, q = p_max.

    With y = z − max z, p_i(q) = (q^β + βy_i)₊^{1/β}, each increasing in q, and Σ p_i(q) = 1 for one
    q in [1/d, 1]. For β > 1 the sum is neither convex nor concave in q, and near an entry's
    threshold it is so steep that one ulp of q is too coarse: at β = 49 a probability jumps from
    0 to 0.4 between neighbouring floats. So the probabilities at the two ends of the last bracket
    are mixed such that they sum to 1. Each p_i^β then lies between its values at the two ends,
    which differ by a few ε times q^β: p is exact for scores perturbed by a few ε.

    At β = ∞, p is uniform over the largest scores.

    Examples
    --------
    >>> print(np.round(bisect_p_max(np.array([0.0, -1e-3]), np.array([3.0])).p, 6))
    [0.502 0.498]
    """
    passes = np.finfo(y.dtype).nmant + 2 + math.ceil(math.log2(y.shape[-1]))
    high = np.ones_like(y[..., :1])
    low = high / y.shape[-1]
    for _ in range(passes):
        q = low + (high - low) / 2
        enough = np.sum(below_p_max(y, q, beta), axis=-1, keepdims=True) >= 1
        low, high = np.where(enough, low, q), np.where(enough, q, high)
    p_low, p_high = below_p_max(y, low, beta), below_p_max(y, high, beta)
    return MaxProbability(between(p_low, p_high), high, passes)


def below_p_max(y: Any, q: Any, beta: Any) -> Any:
    """The probabilities p_i(q) of a row whose largest is q."""
    # q (1 + βy/q^β)₊^{1/β}: q^β may underflow, but the largest score, y = 0, always gives q.
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        r = np.where(y == 0, 0, beta * y / q**beta)
        return np.where(r > -1, q * np.exp(np.log1p(np.maximum(r, -1)) / beta), 0)
