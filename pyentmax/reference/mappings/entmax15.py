"""1.5-entmax: half way between softmax and sparsemax, with an exact solution of its own.

Problem: argmax over the simplex of p·z + H(p), H Tsallis' entropy of order 1.5, that is
H(p) = (4/3) Σ (p − p^{3/2}). The optimality conditions are p_i = [z_i/2 − τ]₊²: sparse as
sparsemax, but p leaves zero smoothly. Given the support, τ solves a quadratic. The Jacobian has
s = √p.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.entropies import tsallis_entropy
from pyentmax.reference.log_probabilities import logarithms
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex
from pyentmax.reference.thresholds.proof import doubtful
from pyentmax.reference.thresholds.sorting import sort_entmax15

__all__ = ["entmax15"]


def textbook(z: Any) -> np.ndarray:
    """p = [z/2 − τ]₊² by a sort and a quadratic (Peters et al. 2019, Alg. 2), for one vector.

    For x = z/2 with x₍₁₎ ≥ x₍₂₎ ≥ …, M(ρ) the mean of the ρ largest and V(ρ) = Σ_{j≤ρ} (x₍ⱼ₎ − M)²,
    τ(ρ) = M − sqrt((1 − V)/ρ); of these the one with x₍ρ+1₎ ≤ τ(ρ) ≤ x₍ρ₎.

    >>> textbook([2.0, 1.6, -1.0]).round(6)
    array([0.64, 0.36, 0.  ])
    """
    x = np.asarray(z, float) / 2
    falling = np.sort(x)[::-1]
    rho = np.arange(1, len(x) + 1)
    mean = np.cumsum(falling) / rho
    v = np.cumsum(falling**2) - rho * mean**2
    tau = mean - np.sqrt(np.maximum(1 - v, 0) / rho)  # beyond V = 1 none is asked for
    best = np.sum(tau <= falling)
    return np.maximum(x - tau[best - 1], 0) ** 2


def textbook_jacobian(p: Any) -> np.ndarray:
    """J = diag(s) − s sᵀ/Σs, s = √p, at p = entmax15(z) (Peters et al. 2019, Prop. 1).

    >>> textbook_jacobian([0.25, 0.25, 0.25, 0.25])[0]
    array([ 0.375, -0.125, -0.125, -0.125])
    """
    s = np.sqrt(p)
    return np.diag(s) - np.outer(s, s) / s.sum()


def textbook_loss(z: Any, y: int) -> float:
    """L = (p − e_y)·z + H(p), H(p) = (4/3) Σ (p − p^{3/2}) (Peters et al. 2019, Eq. 9 and 11).

    >>> round(float(textbook_loss([0.0, 0.0], 0)), 6)
    0.390524
    """
    p, z = textbook(z), np.asarray(z, float)
    return p @ z - z[y] + 4 / 3 * np.sum(p - p**1.5)


# What follows is right for every input: V(ρ) cancels for scores far from 0, so the largest is
# shifted to 0, sums run in double, and Newton's steps inside `sort_entmax15` correct the last
# digits.


@mapping(omega_at_vertices=0.0, support_alpha=1.5)
def entmax15(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None
) -> Arguments:
    """Sparse probabilities p = [z/2 − τ]₊²: α-entmax at α = 1.5 (Peters et al. 2019, Alg. 2).

    Maximises p·z + H(p) over the simplex, H Tsallis' 1.5-entropy; τ by a sort
    (`pyentmax.reference.thresholds.sort_entmax15`). O(d log d).

    `entmax15.loss` (Peters et al. 2019, §3.2) is 0 from a margin of 2 on. For a label it is
    p·z − z_y + H(p).

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
    >>> print(entmax15([2.0, 1.6, -1.0]).round(6), entmax15.support([2.0, 1.6, -1.0]))
    [0.64 0.36 0.  ] [ True  True False]
    >>> print(entmax15.log([2.0, 1.6, -1.0]).round(6))
    [-0.446287 -1.021651      -inf]
    >>> p = [0.25, 0.25, 0.25, 0.25, 0.0]
    >>> print(entmax15.jvp(p, [-1.0, 0.0, 0.0, 0.0, 9.0]), entmax15.jacobian(p)[4])
    [-0.375  0.125  0.125  0.125  0.   ] [0. 0. 0. 0. 0.]
    >>> loss, grad = entmax15.loss_and_grad([0.0, 0.0], 0)
    >>> print(round(float(loss), 6), grad, entmax15.loss([2.0, 0.0], 0))
    0.390524 [-0.5  0.5] 0.0
    """
    return z, None, axis, mask, out


@entmax15.rule
def _forward(y: Any) -> Any:
    x = y / 2
    u = np.maximum(x - sort_entmax15(x).tau, 0)
    return _simplex.normalized(u * u, u)


@entmax15.support.rule
def _support(y: Any) -> Any:
    """Where z/2 > τ."""
    x = y / 2
    return x > sort_entmax15(x).tau


@entmax15.log.rule
def _log(y: Any) -> Any:
    return logarithms(_forward(y))


@entmax15.jvp.rule
def _product(p: Any, v: Any) -> Any:
    """J v = s ∘ (v − (s·v)/Σs), s = √p (Peters et al. 2019, Prop. 1)."""
    return _simplex.product(np.sqrt(p), v)


@entmax15.jacobian.rule
def _jacobian(p: Any) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = √p."""
    return _simplex.dense(np.sqrt(p))


@entmax15.regularizer.rule
def _omega(p: Any) -> Any:
    """Ω(p) = (4/3) Σ (p^{3/2} − p), the negative of Tsallis' 1.5-entropy."""
    return 0 - tsallis_entropy(p, 1.5)


def _doubtful(z: Any, on: Any) -> Any:
    return doubtful(z, on, power=2, beta=0.5)


entmax15.doubtful = _doubtful
entmax15.textbook, entmax15.jacobian.textbook = textbook, textbook_jacobian
entmax15.loss.textbook = textbook_loss
