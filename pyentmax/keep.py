"""Keep-sets: which scores a truncated softmax keeps, as the mask that every function here takes.

Samplers of language models draw from softmax restricted to a set K(z) of scores:

    p_i = e^{z_i} / Σ_{j ∈ K} e^{z_j} for i ∈ K, else 0,

which is ``softmax(z, mask=keep.NAME(z, parameter))``. While K does not change, its Jacobian, loss
and logarithm are softmax's under that mask, and any other mapping can take the same set. A label
outside of K has an infinite loss, as every masked label.

Of each set, the textbook of one vector comes first, then the text of the call and the rule on rows.
What holds for all of them: K depends on the scores alone, so ties are kept or dropped together; at
least one score is kept; masked scores and those of −∞ never are; a row that contains NaN or +∞
keeps all others, so that it is not hidden. Rules get the array functions of a library as their
first argument, so that `pyentmax.torch.keep` and `pyentmax.jax.keep` compute the same sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments, keep_set
from pyentmax.engine.calls.parameters import PerRow
from pyentmax.engine.calls.types import ArrayLike, Axis

__all__ = ["epsilon", "eta", "min_p", "top_k", "top_n_sigma", "top_p", "typical"]

MASS = PerRow("mass", 0, strict=True, most=1)


def _softmax(z: Any) -> Any:
    e = np.exp(z - np.max(z))
    return e / e.sum()


# --- by rank --------------------------------------------------------------------------------------
def textbook_top_k(z: Any, k: int) -> np.ndarray:
    """z_i ≥ t, t the k-th largest score.

    >>> textbook_top_k(np.array([2.0, 1.0, 0.0]), 2)
    array([ True,  True, False])
    """
    return z >= np.sort(z)[-k]


@keep_set(PerRow("k", 1, whole=True, shifted=False))
def top_k(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None
) -> Arguments:
    """Where a score is among the k largest: z_i ≥ t, t the k-th largest.

    Fan, Lewis & Dauphin (2018); for attention Zhao et al. (2019), Eq. 2. Scores that tie with the
    k-th largest are kept, so there may be more than k.

    Parameters
    ----------
    z : array of scores
    k : whole number or array that broadcasts against the batch shape (z's without the axis)
        at least 1; from the number of unmasked scores on, all are kept
    axis : int, tuple of int or None, default -1
        axis, or axes, that a row of scores lies along; None takes all
    mask : bool array that broadcasts to z, optional
        True where a score may be kept

    Returns
    -------
    bool array of z's shape

    Raises
    ------
    ValueError
        if z is 0-dimensional or has no entry along the axis, or the parameter is out of its range
        or does not fit the batch
    TypeError
        if z is complex, of objects, or a masked array, or the mask is not boolean

    Examples
    --------
    >>> print(top_k([2.0, 1.0, 0.0, 1.0], 2))
    [ True  True False  True]
    """
    return z, k, axis, mask, None


@top_k.rule
def _top_k(xp: Any, z: Any, k: Any) -> Any:
    rising = xp.sort(z, axis=-1)
    place = xp.cumsum(xp.ones_like(z), axis=-1)  # 1, …, d
    below = xp.where(place <= z.shape[-1] - k + 1, rising, -xp.inf)  # and the k-th largest
    return z >= xp.amax(below, axis=-1, keepdims=True)


def textbook_top_p(z: Any, mass: float) -> np.ndarray:
    """The fewest largest p with Σ p ≥ mass.

    >>> textbook_top_p(np.log([0.6, 0.3, 0.1]), 0.7)
    array([ True,  True, False])
    """
    p = _softmax(z)
    larger = np.array([p[p > p_i].sum() for p_i in p])
    return larger < mass


@keep_set(MASS)
def top_p(
    z: ArrayLike, mass: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None
) -> Arguments:
    """The nucleus: the fewest largest scores whose softmax has this mass.

    Holtzman et al. (2020). A score is kept if the probabilities above its own sum to less
    than the mass: those from the smallest up to its own then sum to more than 1 − mass, which has
    more digits for a mass near 1. Where the mass is met exactly, rounding decides whether the next
    score is kept, too.

    Parameters
    ----------
    z, axis, mask : as in `top_k`
    mass : number or array that broadcasts against the batch shape
        above 0 and at most 1, which keeps all

    Returns
    -------
    as in `top_k`

    Raises
    ------
    ValueError, TypeError
        as in `top_k`

    Examples
    --------
    >>> print(top_p([2.0, 1.0, 0.0, -1.0], 0.8))
    [ True  True False False]
    """
    return z, mass, axis, mask, None


@top_p.rule
def _top_p(xp: Any, z: Any, mass: Any) -> Any:
    rising = xp.sort(z, axis=-1)
    e = xp.exp(rising)
    tail = xp.cumsum(e, axis=-1) / xp.sum(e, axis=-1, keepdims=True)
    threshold = xp.amin(
        xp.where(tail > 1 - mass, rising, xp.zeros_like(rising)), axis=-1, keepdims=True
    )
    return (z >= threshold) | (mass == 1)


# --- by distance from the largest -----------------------------------------------------------------
def textbook_min_p(z: Any, ratio: float) -> np.ndarray:
    """p_i ≥ ratio · max p.

    >>> textbook_min_p(np.log([0.6, 0.3, 0.1]), 0.4)
    array([ True,  True, False])
    """
    p = _softmax(z)
    return p >= ratio * p.max()


@keep_set(PerRow("ratio", 0, most=1))
def min_p(
    z: ArrayLike, ratio: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None
) -> Arguments:
    """Where softmax gives at least a ratio of its largest probability: z_i ≥ max z + log ratio.

    Nguyen et al. (2024), arXiv 2407.01082. The set does not depend on the other scores.

    Parameters
    ----------
    z, axis, mask : as in `top_k`
    ratio : number or array that broadcasts against the batch shape
        from 0, which keeps all, to 1

    Returns
    -------
    as in `top_k`

    Raises
    ------
    ValueError, TypeError
        as in `top_k`

    Examples
    --------
    >>> print(min_p([2.0, 1.0, 0.0, -1.0], 0.3))
    [ True  True False False]
    """
    return z, ratio, axis, mask, None


@min_p.rule
def _min_p(xp: Any, z: Any, ratio: Any) -> Any:
    return xp.exp(z) >= ratio


def textbook_top_n_sigma(z: Any, n: float) -> np.ndarray:
    """z_i ≥ max z − n·std(z).

    >>> textbook_top_n_sigma(np.array([2.0, 1.0, 0.0]), 1.5)
    array([ True,  True, False])
    """
    return z >= z.max() - n * z.std()


@keep_set(PerRow("n", 0))
def top_n_sigma(
    z: ArrayLike, n: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None
) -> Arguments:
    """Where a score is at most n standard deviations below the largest: z_i ≥ max z − n·std(z).

    Tang et al. (2024), arXiv 2411.07641. The deviation is that of the unmasked scores, whose number
    divides. At every temperature the set is the same.

    Parameters
    ----------
    z, axis, mask : as in `top_k`
    n : number or array that broadcasts against the batch shape
        at least 0

    Returns
    -------
    as in `top_k`

    Raises
    ------
    ValueError, TypeError
        as in `top_k`

    Examples
    --------
    >>> print(top_n_sigma([2.0, 1.0, 0.0, -1.0], 1))
    [ True  True False False]
    """
    return z, n, axis, mask, None


@top_n_sigma.rule
def _top_n_sigma(xp: Any, z: Any, n: Any) -> Any:
    live, zeros = z > -xp.inf, xp.zeros_like(z)
    count = xp.sum(xp.where(live, xp.ones_like(z), zeros), axis=-1, keepdims=True)
    finite = xp.where(live, z, zeros)
    scale = xp.amax(-finite, axis=-1, keepdims=True)  # squares of large scores would overflow
    finite = finite / xp.where(scale > 0, scale, xp.ones_like(scale))
    apart = finite - xp.sum(finite, axis=-1, keepdims=True) / count
    square = xp.where(live, apart * apart, zeros)
    deviation = scale * xp.sqrt(xp.sum(square, axis=-1, keepdims=True) / count)
    return (z >= -n * deviation) | (z == 0)


# --- by probability -------------------------------------------------------------------------------
def textbook_epsilon(z: Any, epsilon: float) -> np.ndarray:
    """p_i ≥ ε, or p_i the largest.

    >>> textbook_epsilon(np.log([0.6, 0.3, 0.1]), 0.2)
    array([ True,  True, False])
    """
    p = _softmax(z)
    return (p >= epsilon) | (p == p.max())


@keep_set(PerRow("epsilon", 0, most=1))
def epsilon(
    z: ArrayLike, epsilon: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None
) -> Arguments:
    """Where softmax gives at least ε, and its largest.

    Hewitt, Manning & Liang (2022), arXiv 2210.15191.

    Parameters
    ----------
    z, axis, mask : as in `top_k`
    epsilon : number or array that broadcasts against the batch shape
        from 0, which keeps all, to 1

    Returns
    -------
    as in `top_k`

    Raises
    ------
    ValueError, TypeError
        as in `top_k`

    Examples
    --------
    >>> print(epsilon([2.0, 1.0, 0.0, -1.0], 0.2))
    [ True  True False False]
    """
    return z, epsilon, axis, mask, None


@epsilon.rule
def _epsilon(xp: Any, z: Any, epsilon: Any) -> Any:
    return (xp.exp(_log_p(xp, z)) >= epsilon) | (z == 0)


def textbook_eta(z: Any, epsilon: float) -> np.ndarray:
    """p_i ≥ min(ε, √ε e^{−H}), H the entropy of p, or p_i the largest.

    >>> textbook_eta(np.log([0.6, 0.3, 0.1]), 0.2)
    array([ True,  True, False])
    """
    p = _softmax(z)
    entropy = -np.sum(p * np.log(p))
    return (p >= min(epsilon, epsilon**0.5 * np.exp(-entropy))) | (p == p.max())


@keep_set(PerRow("epsilon", 0, most=1))
def eta(
    z: ArrayLike, epsilon: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None
) -> Arguments:
    """Where softmax gives at least η = min(ε, √ε e^{−H}), H its entropy, and its largest.

    Hewitt, Manning & Liang (2022), arXiv 2210.15191: a flat distribution keeps more.

    Parameters
    ----------
    z, axis, mask : as in `top_k`
    epsilon : as in `epsilon`

    Returns
    -------
    as in `top_k`

    Raises
    ------
    ValueError, TypeError
        as in `top_k`

    Examples
    --------
    >>> print(eta([2.0, 1.0, 0.0, -1.0], 0.2))
    [ True  True False False]
    """
    return z, epsilon, axis, mask, None


@eta.rule
def _eta(xp: Any, z: Any, epsilon: Any) -> Any:
    log_p = _log_p(xp, z)
    root = epsilon**0.5 * xp.exp(-_entropy(xp, log_p))
    p = xp.exp(log_p)
    return (p >= epsilon) | (p >= root) | (z == 0)


def textbook_typical(z: Any, mass: float) -> np.ndarray:
    """The fewest p with Σ p ≥ mass whose −log p are nearest to the entropy.

    >>> textbook_typical(np.log([0.4, 0.3, 0.3]), 0.3)
    array([False,  True,  True])
    """
    p = _softmax(z)
    distance = abs(np.log(p) - np.sum(p * np.log(p)))
    nearer = np.array([p[distance < d].sum() for d in distance])
    return nearer < mass


@keep_set(MASS)
def typical(
    z: ArrayLike, mass: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None
) -> Arguments:
    """The fewest scores of this mass whose surprise −log p is nearest to the entropy of softmax.

    Locally typical sampling: Meister et al. (2023), arXiv 2202.00666. The largest score may be
    dropped. A mass that is met exactly is met up to rounding, as in `top_p`.

    Parameters
    ----------
    z, axis, mask, mass : as in `top_p`

    Returns
    -------
    as in `top_k`

    Raises
    ------
    ValueError, TypeError
        as in `top_k`

    Examples
    --------
    >>> print(typical([1.0, 0.7, 0.7], 0.3))
    [False  True  True]
    """
    return z, mass, axis, mask, None


@typical.rule
def _typical(xp: Any, z: Any, mass: Any) -> Any:
    log_p = _log_p(xp, z)
    distance = xp.abs(log_p + _entropy(xp, log_p))
    falling = xp.argsort(-distance, axis=-1)
    tail = xp.cumsum(xp.take_along_axis(xp.exp(log_p), falling, axis=-1), axis=-1)
    distances = xp.take_along_axis(distance, falling, axis=-1)
    nearest = xp.amin(distance, axis=-1, keepdims=True)
    enough = xp.where(tail > 1 - mass, distances, nearest)
    return (distance <= xp.amax(enough, axis=-1, keepdims=True)) | (mass == 1)


def _log_p(xp: Any, z: Any) -> Any:
    """log softmax of rows whose largest score is 0."""
    return z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))


def _entropy(xp: Any, log_p: Any) -> Any:
    p = xp.exp(log_p)
    return -xp.sum(p * xp.where(p > 0, log_p, xp.zeros_like(p)), axis=-1, keepdims=True)
