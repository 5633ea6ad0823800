"""Where mappings give probability, whether or not a float can show it, as bool arrays."""

from __future__ import annotations

from typing import Any

import jax

from pyentmax.jax import namespace as xp
from pyentmax.jax.mappings import ROWS
from pyentmax.jax.rows import Rows
from pyentmax.reference.composed import mappings


def _support(name: str, z: Any, axis: Any, mask: Any, value: Any = None) -> jax.Array:
    rows = Rows(jax.lax.stop_gradient(z), axis, mask)
    parameters = (
        () if value is None else (rows.parameter("alpha" if name == "entmax" else "k", value),)
    )
    p = ROWS[name](rows.unshifted, *parameters)
    return rows.restored(mappings.support(xp, rows.unshifted, p, name, *parameters)) != 0


def softmax_support(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Every unmasked score above −∞.

    Examples
    --------
    >>> print(softmax_support([0.0, -1e6, -jax.numpy.inf]))
    [ True  True False]
    """
    return _support("softmax", z, axis, mask)


def sparsemax_support(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where `sparsemax` gives probability.

    Examples
    --------
    >>> print(sparsemax_support([1.0, 0.5, -2.0]))
    [ True  True False]
    """
    return _support("sparsemax", z, axis, mask)


def entmax15_support(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where `entmax15` gives probability.

    Examples
    --------
    >>> print(entmax15_support([1.0, 0.5, -2.0]))
    [ True  True False]
    """
    return _support("entmax15", z, axis, mask)


def entmax_support(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where `entmax` gives probability, also where it underflows near α = 1.

    Examples
    --------
    >>> print(entmax_support([0.0, -900.0, -1100.0], 1.001))
    [ True  True False]
    """
    return _support("entmax", z, axis, mask, alpha)


def topk_softmax_support(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """The k largest scores, and those that tie with the k-th.

    Examples
    --------
    >>> print(topk_softmax_support([0.0, -1e6, -2e6], 2))
    [ True  True False]
    """
    return _support("topk_softmax", z, axis, mask, k)


def topk_sparsemax_support(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """Where `topk_sparsemax` gives probability.

    Examples
    --------
    >>> print(topk_sparsemax_support([1.0, 0.8, 0.9, -1.0], 2))
    [ True False  True False]
    """
    return _support("topk_sparsemax", z, axis, mask, k)
