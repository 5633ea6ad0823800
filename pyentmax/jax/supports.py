"""Where mappings give probability, whether or not a float can show it, as bool arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pyentmax.jax.keep import top_k
from pyentmax.jax.mappings import entmax, entmax15, sparsemax, topk_sparsemax
from pyentmax.jax.rows import Rows


def _scored(select: Callable[[Rows], jax.Array], z: Any, axis: Any, mask: Any) -> jax.Array:
    """What `select` chooses of the unmasked scores in rows that are valid."""
    rows = Rows(jax.lax.stop_gradient(z), axis, mask)
    chosen = select(rows) & (rows.unshifted > -jnp.inf) & ~rows.invalid
    return rows.restored(chosen) != 0


def softmax_support(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Every unmasked score above −∞.

    Examples
    --------
    >>> print(softmax_support([0.0, -1e6, -jax.numpy.inf]))
    [ True  True False]
    """
    return _scored(lambda rows: ~rows.empty, z, axis, mask)


def sparsemax_support(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where `sparsemax` gives probability.

    Examples
    --------
    >>> print(sparsemax_support([1.0, 0.5, -2.0]))
    [ True  True False]
    """
    return sparsemax(z, axis, mask=mask) > 0


def entmax15_support(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where `entmax15` gives probability.

    Examples
    --------
    >>> print(entmax15_support([1.0, 0.5, -2.0]))
    [ True  True False]
    """
    return entmax15(z, axis, mask=mask) > 0


def entmax_support(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where `entmax` gives probability, of which much underflows near α = 1.

    With x the scores less their largest, (α − 1) x_i + (max p)^{α−1} is above 0 on the support.

    Examples
    --------
    >>> print(entmax_support([0.0, -900.0, -1100.0], 1.001))
    [ True  True False]
    """
    p = entmax(z, alpha, axis, mask=mask)

    def underflowing(rows: Rows) -> jax.Array:
        beta = rows.alpha(alpha) - 1
        top = rows.arranged(p).astype(beta.dtype).max(axis=-1, keepdims=True)
        # From β = 1/4 on, what is above the threshold by one rounding does not underflow.
        return (beta < 0.25) & ((beta <= 0) | (-beta * rows.scores < top**beta)) & ~rows.empty

    return (p > 0) | _scored(underflowing, z, axis, mask)


def topk_softmax_support(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """The k largest scores, and those that tie with the k-th.

    Examples
    --------
    >>> print(topk_softmax_support([0.0, -1e6, -2e6], 2))
    [ True  True False]
    """
    return top_k(z, k, axis, mask=mask) & softmax_support(z, axis, mask=mask)


def topk_sparsemax_support(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where `topk_sparsemax` gives probability.

    Examples
    --------
    >>> print(topk_sparsemax_support([1.0, 0.8, 0.9, -1.0], 2))
    [ True False  True False]
    """
    return topk_sparsemax(z, k, axis, mask=mask) > 0
