"""sparsemax: the Euclidean projection onto the simplex, α = 2.

Problem: argmin over the simplex of ½‖p − z‖², equally argmax of p·z + H(p), H Gini's entropy.
The optimality conditions are p_i = z_i − τ where that is positive, else 0, with τ such that p sums
to 1. So a score at or below τ gets exactly 0. Moving z moves p one to one on the
support, less the mean: s = 1 on the support, 0 off it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.entropies import gini_entropy
from pyentmax.reference.log_probabilities import logarithms
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.thresholds.newton import remainder
from pyentmax.reference.thresholds.proof import doubtful
from pyentmax.reference.thresholds.sorting import sort_sparsemax

__all__ = ["sparsemax"]


def textbook(z: Any) -> np.ndarray:
    """argmin_{p ∈ Δ} ‖p − z‖² (Peters et al. 2019, Eq. 5), for one vector.

    p = [z − τ]₊ with τ(ρ) = (Σ_{j≤ρ} z₍ⱼ₎ − 1)/ρ of the largest ρ with z₍ρ₎ > τ(ρ), for scores
    z₍₁₎ ≥ z₍₂₎ ≥ … (Martins & Astudillo 2016, Alg. 1).

    >>> textbook([1.0, 0.5, -2.0])
    array([0.75, 0.25, 0.  ])
    """
    z = np.asarray(z, float)
    falling = np.sort(z)[::-1]
    rho = np.arange(1, len(z) + 1)
    tau = (np.cumsum(falling) - 1) / rho
    best = np.sum(falling > tau)
    return np.maximum(z - tau[best - 1], 0)


def textbook_jacobian(p: Any) -> np.ndarray:
    """J = diag(s) − s sᵀ/|S| at p = sparsemax(z), s = 1 on the support S, 0 off it.

    >>> textbook_jacobian([0.75, 0.25])
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    s = np.sign(p)
    return np.diag(s) - np.outer(s, s) / s.sum()


def textbook_loss(z: Any, y: int) -> float:
    """L = ½ (‖e_y − z‖² − ‖p − z‖²), p = sparsemax(z) (Peters et al. 2019, Eq. 6).

    >>> float(textbook_loss([0.0, 0.0], 0))
    0.25
    """
    p, q = textbook(z), np.eye(len(np.asarray(z)))[y]
    return (np.sum((q - z) ** 2) - np.sum((p - z) ** 2)) / 2


# What follows is right for every input: running sums over thousands of scores lose digits, which
# Newton's steps inside `sort_sparsemax` and `_simplex.normalized` recover; the loss as a
# difference of squares would cancel for large scores, and Ω*(z) + Ω(q) − q·z does not.


@mapping(omega_at_vertices=0.0, support_alpha=2.0)
def sparsemax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None
) -> Arguments:
    """Sparse probabilities: the point of the simplex nearest to z (Martins & Astudillo 2016).

    p = [z − τ]₊, τ by a sort (`pyentmax.reference.thresholds.sort_sparsemax`). O(d log d).

    `sparsemax.loss` is ½ (‖q − z‖² − ‖p − z‖²): 0 from a margin of 1 on.

    Parameters
    ----------
    z, axis, mask, out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros

    Raises
    ------
    ValueError, TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(sparsemax([1.0, 0.5, -2.0]), sparsemax.support([1.0, 0.5, -2.0]))
    [0.75 0.25 0.  ] [ True  True False]
    >>> print(sparsemax.log([0.5, 0.5, -1.0]).round(6), sparsemax.regularizer([0.5, 0.5]))
    [-0.693147 -0.693147      -inf] -0.25
    >>> print(sparsemax.jvp([0.75, 0.25, 0.0], [1.0, 0.0, 9.0]))
    [ 0.5 -0.5  0. ]
    >>> loss, grad = sparsemax.loss_and_grad([0.0, 0.0], 0)
    >>> print(loss, grad, sparsemax.loss([2.0, 1.0], 0))
    0.25 [-0.5  0.5] 0.0
    """
    return z, None, axis, mask, out


@sparsemax.rule
def _forward(y: Any) -> Any:
    p = np.maximum(above_threshold(y), 0)
    return _simplex.normalized(p, _curvature(p))


def above_threshold(z: Any) -> Any:
    """z − τ, including the digits that do not fit into τ."""
    u = z - sort_sparsemax(z).tau
    return u - remainder(u, np.ones_like(u[..., :1]))


@sparsemax.support.rule
def _support(y: Any) -> Any:
    """Where z > τ."""
    return above_threshold(y) > 0


@sparsemax.log.rule
def _log(y: Any) -> Any:
    return logarithms(_forward(y))


@sparsemax.jvp.rule
def _product(p: Any, v: Any) -> Any:
    """J v: v less its mean on the support, 0 off it."""
    return _simplex.product(_curvature(p), v)


@sparsemax.jacobian.rule
def _jacobian(p: Any) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = 1 on the support, 0 off it."""
    return _simplex.dense(_curvature(p))


def _curvature(p: Any) -> Any:
    # 1 on the support, written so that a NaN stays a NaN.
    return np.where(p > 0, 1, p)


@sparsemax.regularizer.rule
def _omega(p: Any) -> Any:
    """Ω(p) = −½ Σ p (1 − p), the negative of Gini's entropy."""
    return 0 - gini_entropy(p)


def _doubtful(z: Any, on: Any) -> Any:
    return doubtful(z, on, power=1)


sparsemax.doubtful = _doubtful
sparsemax.textbook, sparsemax.jacobian.textbook = textbook, textbook_jacobian
sparsemax.loss.textbook = textbook_loss
