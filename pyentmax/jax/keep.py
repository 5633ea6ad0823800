"""The keep-sets of `pyentmax.keep` for JAX's arrays, as masks: ``softmax(z, mask=…)``.

Arguments are those of the array functions. A parameter that is an array is not checked.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pyentmax import keep
from pyentmax.jax.rows import Rows

__all__ = ["epsilon", "eta", "min_p", "top_k", "top_n_sigma", "top_p", "typical"]


def _keep_mask(keep_set: Any, z: Any, value: Any, axis: Any, mask: Any) -> jax.Array:
    """The set of `pyentmax.keep`, as its body has it."""
    rows, parameter = Rows(z, axis, mask), keep_set.parameter
    if isinstance(value, int | float):
        parameter.check_number(value)
    value = rows.parameter(parameter.name, value)
    scores = jax.lax.stop_gradient(rows.scores if parameter.shifted else rows.unshifted)
    kept = keep_set.body(jnp, scores, value)
    return rows.restored((kept | rows.invalid) & (rows.unshifted != -jnp.inf)) != 0


def top_k(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where a score is among the k largest, ties included: `pyentmax.keep.top_k`.

    Examples
    --------
    >>> print(top_k([2.0, 1.0, 0.0, 1.0], 2))
    [ True  True False  True]
    """
    return _keep_mask(keep.top_k, z, k, axis, mask)


def top_p(z: Any, mass: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """The fewest largest scores whose softmax has this mass: `pyentmax.keep.top_p`.

    Examples
    --------
    >>> print(top_p([2.0, 1.0, 0.0, -1.0], 0.8))
    [ True  True False False]
    """
    return _keep_mask(keep.top_p, z, mass, axis, mask)


def min_p(z: Any, ratio: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where softmax gives at least a ratio of its largest probability: `pyentmax.keep.min_p`.

    Examples
    --------
    >>> print(min_p([2.0, 1.0, 0.0, -1.0], 0.3))
    [ True  True False False]
    """
    return _keep_mask(keep.min_p, z, ratio, axis, mask)


def top_n_sigma(z: Any, n: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where a score is at most n deviations below the largest: `pyentmax.keep.top_n_sigma`.

    Examples
    --------
    >>> print(top_n_sigma([2.0, 1.0, 0.0, -1.0], 1))
    [ True  True False False]
    """
    return _keep_mask(keep.top_n_sigma, z, n, axis, mask)


def epsilon(z: Any, epsilon: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where softmax gives at least ε, and its largest: `pyentmax.keep.epsilon`.

    Examples
    --------
    >>> print(epsilon([2.0, 1.0, 0.0, -1.0], 0.2))
    [ True  True False False]
    """
    return _keep_mask(keep.epsilon, z, epsilon, axis, mask)


def eta(z: Any, epsilon: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where softmax gives at least min(ε, √ε e^{−H}), and its largest: `pyentmax.keep.eta`.

    Examples
    --------
    >>> print(eta([2.0, 1.0, 0.0, -1.0], 0.2))
    [ True  True False False]
    """
    return _keep_mask(keep.eta, z, epsilon, axis, mask)


def typical(z: Any, mass: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """The fewest of this mass with −log p nearest to the entropy: `pyentmax.keep.typical`.

    Examples
    --------
    >>> print(typical([1.0, 0.7, 0.7], 0.3))
    [False  True  True]
    """
    return _keep_mask(keep.typical, z, mass, axis, mask)
