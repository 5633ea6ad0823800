"""Attention with any mapping of `pyentmax.jax`, its weights as one dense array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pyentmax.jax.mappings import (
    entmax,
    entmax15,
    softmax,
    sparsemax,
    topk_softmax,
    topk_sparsemax,
)
from pyentmax.jax.rows import as_mask, places, promoted
from pyentmax.sparse_attention import AttentionWeights
from pyentmax.sparse_attention.arguments import check_shapes

_MAPPINGS: dict[str, Callable[..., jax.Array]] = {
    "entmax": entmax,
    "entmax15": entmax15,
    "softmax": softmax,
    "sparsemax": sparsemax,
    "topk_softmax": topk_softmax,
    "topk_sparsemax": topk_sparsemax,
}


def attention(
    query: Any,
    key: Any,
    value: Any,
    alpha: Any = 1.5,
    *,
    mapping: Any = None,
    mask: Any = None,
    causal: bool = False,
    offset: Any = 0,
    scale: Any = None,
    return_weights: bool = False,
    **parameters: Any,
) -> Any:
    """Output O = π(scale · Q Kᵀ) V of attention, α-entmax by default.

    The arguments are those of :func:`pyentmax.attention`. All T × S weights are computed, as in
    `jax.nn.dot_product_attention`, whose arrays have the heads in another place: (…, T, H, d).
    Everything is differentiable but `mask` and `offset`.

    Parameters
    ----------
    query : array of shape (…, T, d)
    key : array of shape (…, S, d)
    value : array of shape (…, S, dᵥ)
        Batch shapes broadcast. If the last batch axis has fewer key heads than query heads,
        neighbouring query heads share one.
    alpha : number or array that broadcasts against the batch shape
        Of α-entmax: one for all, or of shape (H,) one for each head of (B, H, T, d). Other mappings
        ignore it.
    mapping : {"entmax", "entmax15", "softmax", "sparsemax", "topk_softmax", "topk_sparsemax"}
        Replaces α-entmax; by its name, or the object.
    mask : bool array, optional
        Broadcastable to (…, T, S), True where a query may see a key. A key that no query may see
        may hold anything, even NaN, and its value, too.
    causal : bool, default False
        Query t sees only the keys 0 … t + offset.
    offset : int, default 0
        Number of keys before the first query: for new queries behind a cache, its length.
    scale : number or array that broadcasts against the batch shape, optional
        Of the scores, 1/√d if not given.
    return_weights : bool, default False
        Also return the weights, (…, T, S).
    **parameters
        Of the mapping: ``k``, one for all or per head as `alpha`.

    Returns
    -------
    array of shape (…, T, dᵥ), or that and the weights
        Zeros for a query that sees no key.

    Raises
    ------
    ValueError
        If shapes do not fit, or there is no such mapping.
    TypeError
        If a parameter is missing or unknown, or the mask is not of bools: a set of keys is for
        `pyentmax.attention` and `pyentmax.torch.attention`.

    Examples
    --------
    >>> query = jnp.array([[2.0, 0.0]])
    >>> key = jnp.array([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> value = jnp.array([[1.0], [2.0], [4.0]])
    >>> output, weights = attention(query, key, value, 2, return_weights=True)
    >>> print(f"{output.item():.4f}", weights > 0)
    1.4393 [[ True False  True]]
    """
    chosen = getattr(mapping, "name", mapping) or "entmax"
    if chosen not in _MAPPINGS:
        raise ValueError(f"mapping: expected one of {', '.join(_MAPPINGS)}, got {mapping!r}")
    query, key, value = _arranged(query, key, value)
    scale = max(query.shape[-1], 1) ** -0.5 if scale is None else scale
    shape = (query.shape[-2], key.shape[-2])
    mask = None if mask is None else _ranked(_checked_mask(mask), query.ndim)
    if causal:
        earlier = places(shape, jnp.int32) <= places(shape, jnp.int32, 0) + offset
        earlier = _ranked(earlier, query.ndim)
        mask = earlier if mask is None else mask & earlier
    if mask is not None:  # a weight or gradient of 0 times infinity would make NaN
        of_any = mask.any(axis=-2, keepdims=True).swapaxes(-1, -2)
        key, value = jnp.where(of_any, key, 0), jnp.where(of_any, value, 0)
    at_least_single = promoted(query, jnp.float32).dtype
    scores = jnp.matmul(query, key.swapaxes(-1, -2), preferred_element_type=at_least_single)
    if chosen == "entmax":
        parameters["alpha"] = alpha
    parameters = {name: _per_row(number) for name, number in parameters.items()}
    scale = jnp.asarray(scale, scores.dtype)
    scale = _ranked(scale[..., None, None] if scale.ndim else scale, query.ndim)
    weights = _MAPPINGS[chosen](scores * scale, mask=mask, **parameters).astype(value.dtype)
    output = weights @ value
    return (output, weights) if return_weights else output


def _checked_mask(mask: Any) -> jax.Array:
    """A mask of bools; a TypeError for a set of keys, which NumPy arrays and tensors take."""
    if not (isinstance(mask, AttentionWeights) or hasattr(mask, "tocsr")):
        array = jnp.asarray(mask)
        if not jnp.issubdtype(array.dtype, jnp.integer):
            return as_mask(array)
    raise TypeError(
        f"mask: a set of keys ({type(mask).__name__}) is not for JAX: pass a mask of bools, or "
        "call pyentmax.attention or pyentmax.torch.attention"
    )


def _arranged(*arrays: Any) -> list[jax.Array]:
    """Query, key and value of one dtype and rank, keys and values repeated for the query heads."""
    arrays = tuple(map(jnp.asarray, arrays))
    batch, groups = check_shapes(*(x.shape for x in arrays))
    dtype = jnp.result_type(*arrays)
    dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
    arranged = [_ranked(x, len(batch) + 2).astype(dtype) for x in arrays]
    return [
        jnp.repeat(x, batch[-1] // groups, axis=-3) if groups and x.shape[-3] == groups else x
        for x in arranged
    ]


def _ranked(x: jax.Array, ndim: int) -> jax.Array:
    """The array with axes of length 1 in front, for strict promotion of ranks."""
    return x.reshape((1,) * (ndim - x.ndim) + x.shape)


def _per_row(number: Any) -> Any:
    """A parameter of each batch entry as one of each of its queries."""
    return number if jnp.ndim(number) == 0 else jnp.asarray(number)[..., None]
