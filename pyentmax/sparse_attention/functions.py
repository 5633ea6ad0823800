"""Attention and its derivatives, as they are called."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.calls.record import Mapping
from pyentmax.calls.rows import reduce_to
from pyentmax.mappings.entmax import ENTMAX
from pyentmax.sparse_attention import dense, device, lazy, tiles
from pyentmax.sparse_attention.arguments import Inputs, Setting
from pyentmax.sparse_attention.weights import AttentionWeights


def attention(
    query: Any,
    key: Any,
    value: Any,
    alpha: Any = 1.5,
    *,
    mapping: str | Mapping | None = None,
    mask: Any = None,
    causal: bool = False,
    offset: int = 0,
    scale: float | None = None,
    return_weights: bool = False,
    workers: int | None = None,
    **parameters: Any,
) -> Any:
    """Output O = π(scale · Q Kᵀ) V of attention with sparse weights π, α-entmax unless named.

    Batch shapes broadcast. If there are fewer key heads than query heads, along the last batch
    axis, neighbouring query heads share one.

    Parameters
    ----------
    query : array of shape (…, T, d)
    key : array of shape (…, S, d)
    value : array of shape (…, S, dᵥ)
    alpha : float or array that broadcasts against the batch shape
        of α-entmax: one for all, or of shape (H,) one for each head of (B, H, T, d). 1 is softmax
        and leaves no zeros, 2 sparsemax. Other mappings without a parameter of that name ignore it
    mapping : name of a row of `pyentmax.MAPPINGS` or a `Mapping`, optional
        what takes the place of α-entmax
    mask : bool array that broadcasts to (…, T, S), optional
        True where a query may see a key. What the other keys hold does not matter
    causal : bool, default False
        query t sees the keys 0 … t + offset only
    offset : int, default 0
        by how many keys the queries are late: for new queries behind a cache, its length
    scale : float, optional
        of the scores, 1/√d if not given
    return_weights : bool, default False
        also return the weights, which the derivatives take
    workers : int, optional
        threads, as in `pyentmax.set_workers`; the result does not depend on it
    **parameters
        those of the mapping, such as ``k``; per head as `alpha`, bounds as `mask`

    Returns
    -------
    array of shape (…, T, dᵥ), or that and `AttentionWeights`
        zeros for a query that sees no key, NaN for one with a NaN among its scores

    Raises
    ------
    ValueError
        if shapes do not fit, or a parameter is out of its range
    TypeError
        if an array is not of real numbers, or a parameter is missing or unknown

    Examples
    --------
    >>> query, key = np.array([[2.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> value = np.array([[1.0], [2.0], [4.0]])
    >>> print(attention(query, key, value).round(4))
    [[1.7738]]
    >>> output, weights = attention(query, key, value, 2, return_weights=True)
    >>> print(output.round(4), weights.to_dense().round(4))
    [[1.4393]] [[0.8536 0.     0.1464]]
    """
    inputs = Inputs(query, key, value)
    setting = Setting(inputs, alpha, mapping, parameters, mask, causal, offset, scale, workers)
    way = _way(inputs)
    if way is not None:
        output, kept = way.forward(inputs, setting, return_weights)
        output = inputs.output(output)
        if isinstance(kept, AttentionWeights):
            kept = inputs.outer_weights(kept)
        return output if kept is None else (output, kept)
    output, weights = dense.attention(
        inputs.query, inputs.key, inputs.value, setting.mapping, setting.mask, setting.scale
    )
    output = inputs.output(output)
    if not return_weights:
        return output
    kept = AttentionWeights.from_dense(np.broadcast_to(weights, inputs.shape))
    return output, inputs.outer_weights(kept)


def attention_vjp(
    weights: AttentionWeights,
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    alpha: Any = 1.5,
    *,
    mapping: str | Mapping | None = None,
    mask: Any = None,
    causal: bool = False,
    offset: int = 0,
    scale: float | None = None,
    workers: int | None = None,
    **parameters: Any,
) -> tuple[Any, Any, Any]:
    """Gradients of query, key and value, for the gradient g of `attention`'s output.

    Parameters
    ----------
    weights : AttentionWeights
        that `attention` returned for these arrays
    g : array of the output's shape
    query, key, value, alpha, mapping, scale, workers, **parameters : as in `attention`
    mask, causal, offset : as in `attention`
        where they were given there. Only mappings whose derivative depends on the mask look at
        them, such as fusedmax, to which keys on two sides of a masked one are not neighbours

    Returns
    -------
    three arrays of the shapes of query, key and value

    Raises
    ------
    ValueError, TypeError
        as in `attention`, or if weights or g do not belong to the arrays

    Examples
    --------
    >>> query, key = np.array([[2.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> output, weights = attention(query, key, key, 2, return_weights=True)
    >>> g_query, g_key, g_value = attention_vjp(weights, query, key, key, [[1.0, 0.0]], 2)
    >>> print(g_query.round(4), g_value[:, 0].round(4))
    [[ 0.0884 -0.1768]] [0.8536 0.     0.1464]
    """
    inputs = Inputs(query, key, value)
    weights = _checked(weights, inputs)
    g = inputs.of_output(g, "g")
    setting = Setting(inputs, alpha, mapping, parameters, mask, causal, offset, scale, workers)
    way = _way(inputs)
    if way is not None:
        found = way.backward(inputs, setting, weights, g)
        g_query, g_key, g_value = (inputs.gradient(x, i) for i, x in enumerate(found))
        return g_query, g_key, g_value
    gradients = dense.attention_vjp(
        weights.to_dense(),
        inputs.query,
        inputs.key,
        inputs.value,
        g,
        setting.mapping,
        setting.mask,
        setting.scale,
    )
    g_query, g_key, g_value = (inputs.gradient(x, i) for i, x in enumerate(gradients))
    return g_query, g_key, g_value


def attention_jvp(
    weights: AttentionWeights,
    query: Any,
    key: Any,
    value: Any,
    d_query: Any,
    d_key: Any,
    d_value: Any,
    alpha: Any = 1.5,
    *,
    mapping: str | Mapping | None = None,
    mask: Any = None,
    causal: bool = False,
    offset: int = 0,
    scale: float | None = None,
    workers: int | None = None,
    **parameters: Any,
) -> Any:
    """How `attention`'s output changes when query, key and value move in a direction.

    Parameters
    ----------
    d_query, d_key, d_value : arrays of the shapes of query, key and value, or None
        the direction; None stands for zeros
    weights, query, key, value, alpha, mapping, mask, causal, offset, scale, workers, **parameters :
        as in `attention_vjp`

    Returns
    -------
    array of the output's shape

    Raises
    ------
    ValueError, TypeError
        as in `attention_vjp`

    Examples
    --------
    >>> query, key = np.array([[2.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> output, weights = attention(query, key, key, 2, return_weights=True)
    >>> print(attention_jvp(weights, query, key, key, [[1.0, 0.0]], None, None, 2).round(4))
    [[ 0.0884 -0.1768]]
    """
    inputs = Inputs(query, key, value)
    weights = _checked(weights, inputs)
    tangents = inputs.tangent(d_query, 0), inputs.tangent(d_key, 1), inputs.tangent(d_value, 2)
    setting = Setting(inputs, alpha, mapping, parameters, mask, causal, offset, scale, workers)
    way = _way(inputs)
    if way is not None:
        return inputs.output(way.along(inputs, setting, weights, tangents))
    output = dense.attention_jvp(
        weights.to_dense(),
        inputs.query,
        inputs.key,
        inputs.value,
        tangents,
        setting.mapping,
        setting.mask,
        setting.scale,
    )
    return inputs.output(output)


def attention_vjp_alpha(
    weights: AttentionWeights, value: Any, g: Any, alpha: Any = 1.5, *, workers: int | None = None
) -> Any:
    """The gradient of α, for the gradient g of the output of `attention` with α-entmax.

    Parameters
    ----------
    weights : AttentionWeights
        that `attention` returned
    value : array of shape (…, S, dᵥ)
    g : array of the output's shape
    alpha, workers : as in `attention`

    Returns
    -------
    float or array of alpha's shape

    Raises
    ------
    ValueError, TypeError
        as in `attention_vjp`

    Examples
    --------
    >>> query, key = np.array([[2.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> output, weights = attention(query, key, key, 1.5, return_weights=True)
    >>> print(attention_vjp_alpha(weights, key, [[1.0, 0.0]], 1.5).round(4))
    0.0882
    """
    like = np.broadcast_to(np.zeros_like(g, shape=(1,)), (*weights.shape[:-1], 1))
    key = np.broadcast_to(np.zeros_like(value, shape=(1,)), (*np.shape(value)[:-1], 1))
    inputs = Inputs(like, key, value)
    weights = _checked(weights, inputs)
    g = inputs.of_output(g, "g")
    setting = Setting(inputs, alpha, ENTMAX, {}, workers=workers)
    way = _way(inputs)
    if way is not None:
        each = way.of_alpha(inputs, setting, weights, g)
        gradient = reduce_to(each.reshape(inputs.outer), setting.alpha_shape)
        return gradient.astype(inputs.answer, copy=False)[()]
    gradient = dense.attention_vjp_alpha(
        weights.to_dense(), inputs.value, g, setting.mapping, setting.mask
    )
    return gradient.reshape(setting.alpha_shape).astype(inputs.answer, copy=False)[()]


BY_BLOCKS = lazy.ByBlocks(attention, attention_vjp, attention_jvp, attention_vjp_alpha)


def _way(inputs: Inputs) -> Any:
    """The module that goes tile by tile where these arrays lie, or None."""
    return next((way for way in (tiles, device, BY_BLOCKS) if way.takes(inputs)), None)


def _checked(weights: Any, inputs: Inputs) -> Any:
    """The weights that a caller passes, if they are of such inputs."""
    if BY_BLOCKS.takes(inputs):
        return lazy.check_weights(weights, inputs)
    return inputs.check_weights(weights)
