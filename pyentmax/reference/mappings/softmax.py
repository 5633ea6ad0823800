"""softmax: the dense end of the family, α = 1.

Problem: argmax over the simplex of p·z + H(p), H Shannon's entropy. Setting the Lagrangian's
derivative z_i − log p_i − 1 − τ to zero gives p_i ∝ exp(z_i): every score above −∞ keeps some
probability. The Jacobian is that of every separable Ω with s_i = 1/Ω''(p_i) = p_i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.entropies import shannon_entropy
from pyentmax.reference.log_probabilities import log_sum_exp
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _simplex

__all__ = ["softmax"]


def textbook(z: Any) -> np.ndarray:
    """p_i = exp(z_i) / Σ_j exp(z_j) (Peters et al. 2019, Eq. 4), for one vector.

    >>> textbook([-0.3, -1.0, 1.8]).round(2)
    array([0.1 , 0.05, 0.85])
    """
    e = np.exp(np.asarray(z, float))
    return e / e.sum()


def textbook_jacobian(p: Any) -> np.ndarray:
    """J = diag(p) − p pᵀ at p = softmax(z).

    >>> textbook_jacobian([0.5, 0.5])
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    return np.diag(p) - np.outer(p, p)


def textbook_loss(z: Any, y: int) -> float:
    """L = −log softmax(z)_y (Peters et al. 2019, Eq. 3).

    >>> round(float(textbook_loss([2.0, 1.0], 0)), 6)
    0.313262
    """
    return -np.log(textbook(z)[y])


# What follows is right for every input: exp(z) overflows from z = 710 on (89 in float32), and
# relative to the largest score it does not; −log p_y is 0 or infinite where p_y rounds to 1 or 0.


@mapping(sparse=False, omega_at_vertices=0.0, support_alpha=1.0)
def softmax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None
) -> Arguments:
    """Dense probabilities: argmax of p·z + H(p) over the simplex, H Shannon's entropy.

    p_i = exp(z_i) / Σ_j exp(z_j), computed relative to the largest score so that no exponential
    overflows. O(d).

    `softmax.loss` is the cross-entropy: log Σ exp z − z_y for a label, as PyTorch's and
    scikit-learn's log loss, and KL(q‖softmax(z)) for a distribution, which is theirs minus the
    entropy of q, so that its minimum is 0.

    Parameters
    ----------
    z : array of scores
    axis : int, tuple of int or None
        which axes form a row
    mask : bool array that broadcasts to z, optional
        True where a score may get probability; False is the same as a score of −∞
    out : array of z's shape, optional
        where to write the result; may be z itself

    Returns
    -------
    array of z's shape
        rows sum to 1; a row that is all masked or −∞ is zeros, one with a NaN or +∞ is NaN

    Raises
    ------
    ValueError
        if z is 0-dimensional or empty along the axis, or mask or out does not fit
    TypeError
        if z is complex, of objects, or a masked array

    Examples
    --------
    >>> print(softmax([-0.3, -1.0, 1.8]).round(2), softmax.support([0.0, -1e6, -np.inf]))
    [0.1  0.05 0.85] [ True  True False]
    >>> print(softmax.log([0.0, -1000.0, -np.inf]))
    [    0. -1000.   -inf]
    >>> print(softmax.jvp([0.5, 0.5], [1.0, 0.0]), softmax.regularizer([1.0, 0.0]))
    [ 0.25 -0.25] 0.0
    >>> loss, grad = softmax.loss_and_grad([0.0, 0.0], 0)
    >>> print(round(float(loss), 6), grad, softmax.loss([2.0, 1.0], 0).round(6))
    0.693147 [-0.5  0.5] 0.313262
    """
    return z, None, axis, mask, out


@softmax.rule
def _forward(y: Any) -> Any:
    p = np.exp(y)
    return p / np.sum(p, axis=-1, keepdims=True)


@softmax.support.rule
def _support(y: Any) -> Any:
    """Every unmasked score above −∞."""
    return y > -np.inf


@softmax.log.rule
def _log(y: Any) -> Any:
    """log p = z − log Σ exp z."""
    return y - log_sum_exp(y)


@softmax.jvp.rule
def _product(p: Any, v: Any) -> Any:
    """J v = p ∘ (v − p·v)."""
    return _simplex.product(p, v)


@softmax.jacobian.rule
def _jacobian(p: Any) -> Any:
    """J = diag(p) − p pᵀ."""
    return _simplex.dense(p)


@softmax.regularizer.rule
def _omega(p: Any) -> Any:
    """Ω(p) = Σ p log p, the negative of Shannon's entropy."""
    return 0 - shannon_entropy(p)  # not −H: a corner's value is 0, not −0


def _conjugate(z: Any, p: Any) -> Any:
    # log Σ exp z: p·z + H(p) would cancel where p is nearly certain.
    return log_sum_exp(z)[..., 0]


softmax.conjugate = _conjugate
softmax.textbook, softmax.jacobian.textbook = textbook, textbook_jacobian
softmax.loss.textbook = textbook_loss
