"""oscarmax: sparse probabilities that entries with similar scores share, wherever they are.

Problem (Niculae & Blondel 2017): argmax over the simplex of p·z − ½‖p‖² − λ Σ_{i<j} max(p_i, p_j).
As max(a, b) = ½(a + b) + ½|a − b|, the last term is (λ/2) Σ_{i<j} |p_i − p_j| plus (d−1)λ/2, a
constant on the simplex: all pairs are joined by an edge of weight λ/2. Two steps solve it
(`pyentmax.reference.mappings._fused` proves it): u = argmin ½‖u − z‖² + (λ/2) Σ_{i<j} |u_i − u_j|,
then p = sparsemax(u).

For the first step sort: u is in the order of z, and for vectors that fall along it
Σ_{i<j} |u_i − u_j| = Σ_i (d−1−2i) u_i, i = 0, 1, …, since u_i exceeds d−1−i others and i others
exceed it. That is linear, so u is the falling sequence nearest to y_i = z_i + λ (i − (d−1)/2): an
isotonic regression, which pools what rises into means.

The published form takes the prox of the OSCAR norm Σ_{i<j} max(|p_i|, |p_j|) as the first step.
That is the same only for scores so high that the prox is positive: absolute values depend on where
zero is. The pairs above do not: u(z + c) = u(z) + c, and no shift is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _fused, _simplex
from pyentmax.reference.mappings import sparsemax as _sparsemax
from pyentmax.reference.mappings._fused import STRENGTH
from pyentmax.reference.mappings.sparsemax import sparsemax

__all__ = ["oscarmax"]


def textbook(z: Any, strength: float = 1.0) -> np.ndarray:
    """sparsemax(u), u the prox of (λ/2) Σ_{i<j} |u_i − u_j| (Niculae & Blondel 2017).

    In falling order of z, y_i = z_i + λ (i − (d−1)/2), i = 0, 1, …; what rises is pooled to means.

    >>> textbook([1.0, -1.0, 0.9, 0.2, 1.1], 0.1).round(4)
    array([0.3333, 0.    , 0.3333, 0.    , 0.3333])
    """
    z = np.asarray(z, float)
    order, d = np.argsort(-z), len(z)
    blocks: list[list[float]] = []
    for value in z[order] + strength * (np.arange(d) - (d - 1) / 2):
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-1]) > np.mean(blocks[-2]):
            last = blocks.pop()
            blocks[-1] += last
    u = np.empty(d)
    u[order] = [np.mean(block) for block in blocks for _ in block]
    return _sparsemax.textbook(u)


def textbook_jacobian(p: Any, strength: float = 1.0) -> np.ndarray:
    """J = J_sparsemax · M at p = oscarmax(z), M_ij = 1/|G| if i and j are in one group G.

    >>> textbook_jacobian([0.3, 0.4, 0.3, 0.0], 0.1).round(4)
    array([[ 0.1667, -0.3333,  0.1667,  0.    ],
           [-0.3333,  0.6667, -0.3333,  0.    ],
           [ 0.1667, -0.3333,  0.1667,  0.    ],
           [ 0.    ,  0.    ,  0.    ,  0.    ]])
    """
    p = np.asarray(p, float)
    return _sparsemax.textbook_jacobian(p) @ _fused.averaging(p[:, None] == p)


def textbook_loss(z: Any, y: int, strength: float = 1.0) -> float:
    """L = p·z − Ω(p) + Ω(e_y) − z_y, Ω(p) = ½‖p‖² + λ Σ_{i<j} max(p_i, p_j).

    >>> round(float(textbook_loss([0.0, 0.0], 0)), 6)
    0.75
    """
    p, z = textbook(z, strength), np.asarray(z, float)

    def omega(p: np.ndarray) -> float:
        return p @ p / 2 + strength * np.sum(np.triu(np.maximum(p[:, None], p), 1))

    return p @ z - omega(p) + omega(np.eye(len(p))[y]) - z[y]


# What follows is right for every input: all rows are pooled at once, and scores far below the rest
# and huge strengths cost no digits.


@mapping(STRENGTH)
def oscarmax(
    z: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Sparse probabilities, equal over groups of entries anywhere (Niculae & Blondel 2017).

    Maximises p·z − ½‖p‖² − λ Σ_{i<j} max(p_i, p_j) over the simplex, λ the strength: sparsemax at
    0, and uniform from some λ on. A sort, O(d log d), and passes of O(d) that each pool all that
    rises: few for typical scores, d at worst. The compiled kernel is O(d).

    Parameters
    ----------
    z : array of scores
    strength : float or array that broadcasts against the batch shape (z's without the axis)
        λ ≥ 0
    axis : as in `pyentmax.softmax`
    mask : as in `pyentmax.softmax`
        masked entries are left out
    out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros, and exactly equal where entries are fused

    Raises
    ------
    ValueError
        if some strength is below 0 or does not fit the batch; else as in `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> z = [1.0, -1.0, 0.9, 0.2, 1.1]
    >>> print(oscarmax(z, 0.1).round(4))
    [0.3333 0.     0.3333 0.     0.3333]
    >>> print(oscarmax(z, 0).round(4))
    [0.3333 0.     0.2333 0.     0.4333]
    >>> print(oscarmax.support(z, 0.1), oscarmax.regularizer([0.5, 0.5, 0.0]))
    [ True False  True False  True] 1.75
    >>> print(oscarmax.jvp([0.3, 0.4, 0.3, 0.0], [-1.0, 0.0, 0.0, 9.0], 0.1).round(4))
    [-0.1667  0.3333 -0.1667  0.    ]
    >>> p = oscarmax([1.0, 0.0, 0.8], 0.05)
    >>> print(oscarmax.parameter_vjp(p, [0.0, 0.0, 1.0], 0.05).round(4))
    0.5
    """
    return z, strength, axis, mask, out


@oscarmax.rule
def _forward(y: Any, strength: Any) -> Any:
    return _fused.project(_pooled(y, strength))


def _pooled(z: Any, strength: Any) -> Any:
    """u of rows, minus its largest; masked scores, −∞, stay so.

    λ is limited to the range of z, from which on y rises throughout.
    """
    d = z.shape[-1]
    scale = _fused.headroom(d)
    x = _fused.relative(z, scale)
    allowed = x > -np.inf
    order = _descending_order(x)
    weight = np.minimum(
        _fused.rounded(strength, z.dtype) / scale,
        -np.min(np.where(allowed, x, 0), axis=-1, keepdims=True),
    )
    y = np.take_along_axis(x, order, axis=-1) + weight * _places(x)
    _, mean = _fused.pooled(lambda start: _fused.run_means(y, start), y)
    return _fused.scaled_up(_in_old_order(mean, order), allowed, scale, z.dtype)


def _descending_order(x: Any) -> Any:
    return np.argsort(-x, axis=-1, kind="stable")


def _in_old_order(values: Any, order: Any) -> Any:
    return np.take_along_axis(values, np.argsort(order, axis=-1), axis=-1)


def _places(x: Any) -> Any:
    """0, 1, …, d − 1 along each row."""
    return np.cumsum(np.ones_like(x), axis=-1) - 1


@oscarmax.support.rule
def _support(y: Any, strength: Any) -> Any:
    """Where u > τ."""
    return _fused.support(_pooled(y, strength))


@oscarmax.jvp.rule
def _product(p: Any, v: Any, strength: Any) -> Any:
    """J v: v's mean over each group, less that over the support.

    The groups are read from p, as entries with equal p > 0. That is all of them, as long as p is
    not rounded: p in half precision may tie more. For scores in float16 compute
    p = oscarmax(z.astype(np.float32)), keep that p for the derivatives, and round only what goes
    on. Without strength nothing is fused.
    """
    averaged = _group_means(p, _fused.on_support(p, v), strength)
    return sparsemax.jvp.body(p, averaged)


def _group_means(p: Any, v: Any, strength: Any) -> Any:
    """Mean of v over the entries with equal p; v itself where the strength is 0."""
    order = _descending_order(p)
    sorted_p, sorted_v = (np.take_along_axis(a, order, axis=-1) for a in (p, v))
    start = np.ones_like(p, dtype=bool)
    start[..., 1:] = (sorted_p[..., 1:] != sorted_p[..., :-1]) | (strength == 0)
    return _in_old_order(_fused.run_means(sorted_v, start), order)


@oscarmax.jacobian.rule
def _jacobian(p: Any, strength: Any) -> Any:
    """J: 1/|G| within a group G, less 1/|S| on the support S."""
    itself = _simplex.identity(p) != 0
    equal = p[..., :, None] == p[..., None, :]
    return _fused.dense(p, itself | (equal & (strength > 0)[..., None]))


@oscarmax.parameter_vjp.rule
def _vjp_strength(p: Any, g: Any, strength: Any) -> Any:
    """Σ g ∘ ∂p/∂λ, the gradient in the strength; where λ = 0 the derivative to the right.

    A group's u is the mean of z_i + λ (i − (d−1)/2) over its places i in descending order, hence
    moves with its mean place, which p shows. What is the same for all entries, sparsemax removes.
    """
    place = np.argsort(_descending_order(p), axis=-1).astype(p.dtype)
    pull = _group_means(p, place, np.ones_like(strength))
    return _fused.vjp_strength(p, g, pull)


@oscarmax.regularizer.rule
def _omega(p: Any, strength: Any) -> Any:
    """Ω(p) = ½‖p‖² + λ Σ_{i<j} max(p_i, p_j), λ finite; the i-th largest leads in d − i pairs."""
    _fused.check_finite(strength)
    rising = np.sort(p, axis=-1)
    pairs = np.sum(rising * _places(rising), axis=-1)
    return np.sum(p**2, axis=-1) / 2 + strength[:, 0] * pairs


oscarmax.textbook, oscarmax.jacobian.textbook = textbook, textbook_jacobian
oscarmax.loss.textbook = textbook_loss
