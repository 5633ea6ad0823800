"""Attention and its derivatives: the public functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.calls.dask_arrays import plan
from pyentmax.engine.calls.devices import is_dask
from pyentmax.reference.mapping import AnyMapping as Mapping
from pyentmax.sparse_attention.arguments import BOUNDS
from pyentmax.sparse_attention.bias import DistanceBias, array_of
from pyentmax.sparse_attention.few_queries import short_call
from pyentmax.sparse_attention.key_sets import key_sets
from pyentmax.sparse_attention.problem import AttentionProblem
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
    scale: Any = None,
    sink: Any = None,
    bias: Any = None,
    cu_seqlens: Any = None,
    return_weights: bool = False,
    **parameters: Any,
) -> Any:
    """Output O = π(scale · Q Kᵀ + bias) V of attention with sparse weights, α-entmax by default.

    With a sink, π sees one more score in each row, whose weight goes to no value.

    Batch shapes broadcast. If the last batch axis has fewer key heads than query heads,
    neighbouring query heads share one.

    Parameters
    ----------
    query : array of shape (…, T, d)
    key : array of shape (…, S, d)
    value : array of shape (…, S, dᵥ)
        all three in memory, or Dask arrays with whole heads in a chunk
    alpha : float or array that broadcasts against the batch shape
        of α-entmax: one for all, or of shape (H,) one for each head of (B, H, T, d). 1 is softmax
        and gives no zeros, 2 sparsemax. Mappings without a parameter of that name ignore it
    mapping : name of a row of `pyentmax.MAPPINGS` or a `Mapping`, optional
        replaces α-entmax
    mask : bool array that broadcasts to (…, T, S), or a set of keys, optional
        True where a query may see a key. The other keys may hold anything, even NaN. Or the keys
        that each query sees, for α-entmax with α ≥ 1 at a cost that follows their number: a boolean
        `scipy.sparse` CSR array (T, S), integers (…, T, k) with −1 for none, or the
        `AttentionWeights` of another call
    causal : bool, default False
        query t sees only the keys 0 … t + offset
    offset : int, default 0
        number of keys before the first query: for new queries behind a cache, its length. Distances
        count from there
    scale : float or array that broadcasts against (…, T), optional
        of the scores, 1/√d if not given: of shape (H, 1) one for each head, of shape (T,) one for
        each query
    sink : float or array that broadcasts against the batch shape, optional
        the score of a sink, for α-entmax and top-k mappings: of shape (H,) one for each head. It
        takes none of the k places. Softmax with sink 0 is e^{z_i}/(1 + Σ_j e^{z_j})
    bias : array that broadcasts to (…, T, S), or DistanceBias, optional
        added to the scores. `DistanceBias` has a number for each distance, as ALiBi, so that no
        array of T × S numbers is made. With a set of keys, a number for each of its entries, in the
        shape of the CSR array's data, (…, entries), or of the integers
    cu_seqlens : array of int, or a pair of them, optional
        where packed sequences begin, and the last one ends: integers that rise from 0 to T, or a
        pair for queries and keys. Each sequence sees its own keys only, as in a call of its own
        with the same arguments; `offset` may be one for each
    return_weights : bool, default False
        also return the weights, which the derivatives take
    **parameters
        of the mapping, such as ``k``; per head as `alpha`, bounds as `mask`

    Returns
    -------
    array of shape (…, T, dᵥ), or that and `AttentionWeights`
        zeros for a query that sees no key, NaN for one with a NaN among its scores. The weights are
        those of the keys, which sum to 1 minus their `sink`

    Raises
    ------
    ValueError
        if shapes do not fit, a parameter is out of its range, or the mapping takes no sink
    TypeError
        if an array is not of real numbers, a parameter is missing or unknown, or the weights of
        Dask arrays are requested

    Examples
    --------
    >>> query, key = np.array([[2.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> value = np.array([[1.0], [2.0], [4.0]])
    >>> print(attention(query, key, value).round(4))
    [[1.7738]]
    >>> output, weights = attention(query, key, value, 2, return_weights=True)
    >>> print(output.round(4), weights.to_dense().round(4))
    [[1.4393]] [[0.8536 0.     0.1464]]
    >>> output, weights = attention(query, key, value, 2, sink=2.5, return_weights=True)
    >>> print(output.round(4), weights.to_dense().round(4), weights.sink.round(4))
    [[0.6642]] [[0.6642 0.     0.    ]] [0.3358]
    """
    if (
        mapping is mask is scale is sink is bias is cu_seqlens is None
        and causal is return_weights is False
        and type(offset) is int and not (offset or parameters)
    ):  # fmt: skip
        output = short_call(query, key, value, alpha)
        if output is not None:
            return output
    if any(map(is_dask, (query, key, value))):
        if key_sets(mask, query.shape[-2], key.shape[-2]) is not None:
            raise TypeError("a set of keys as mask: expected arrays in memory, got Dask arrays")
        if return_weights:
            raise TypeError(
                "return_weights=True: expected arrays in memory, got Dask arrays, whose weights "
                "have no size before they are computed; call attention on computed blocks"
            )
        options = {"causal": causal, "offset": offset, "cu_seqlens": cu_seqlens}
        operands = {"mask": mask, "alpha": alpha, "scale": scale, "sink": sink, **parameters}
        operands["bias"] = bias
        return _plan(query, key, value, operands, mapping=mapping, **options)
    with np.errstate(under="ignore"):
        problem = AttentionProblem(
            query, key, value, alpha, mapping=mapping, mask=mask, causal=causal, offset=offset,
            scale=scale, sink=sink, bias=bias, cu_seqlens=cu_seqlens, **parameters,
        )  # fmt: skip
        output, weights = problem.forward(return_weights)
    return (output, weights) if return_weights else output


def route(
    query: Any, key: Any, value: Any, alpha: Any = 1.5, *, return_weights: bool = False,
    **options: Any,
) -> str:  # fmt: skip
    """How `attention` with these arguments is computed, as ``attention.route(…)``.

    Returns
    -------
    str
        "short call" straight to the kernels; "given keys" over a set of keys; "few queries", a
        kernel over the keys as they lie; or "tiles", which go over the support, or where few
        weights are zero multiply whole matrices

    Examples
    --------
    >>> x = np.ones((4, 300, 8))
    >>> attention.route(x, x, x)
    'tiles'
    """
    unset = attention.__kwdefaults__ or {}
    if (
        all(type(x) is type(unset.get(k, ...)) and x == unset[k] for k, x in options.items())
        and not return_weights
        and short_call(query, key, value, alpha) is not None
    ):
        return "short call"
    return AttentionProblem(query, key, value, alpha, **options).route(return_weights)


attention.route = route  # type: ignore[attr-defined]


@np.errstate(under="ignore")
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
    scale: Any = None,
    sink: Any = None,
    bias: Any = None,
    cu_seqlens: Any = None,
    **parameters: Any,
) -> tuple[Any, ...]:
    """Gradients of query, key and value, for the gradient g of `attention`'s output.

    Those of scale, sink and bias follow if these are arrays.

    Parameters
    ----------
    weights : AttentionWeights
        as `attention` returned for these arrays
    g : array of the output's shape
    query, key, value, alpha, mapping, scale, sink, bias, cu_seqlens, **parameters
        as in `attention`
    mask, causal, offset : as in `attention`
        these three are needed if they were passed there and the mapping's derivative depends on
        the mask, as that of fusedmax, for which keys on two sides of a masked one are not
        neighbours

    Returns
    -------
    arrays of the shapes of query, key and value
        and of scale, if that is an array, of sink, if that is one, and of bias, or of its numbers
        or slopes

    Raises
    ------
    ValueError
        if weights or g do not fit the arrays; else as in `attention`
    TypeError
        as in `attention`

    Examples
    --------
    >>> query, key = np.array([[2.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> output, weights = attention(query, key, key, 2, return_weights=True)
    >>> g_query, g_key, g_value = attention_vjp(weights, query, key, key, [[1.0, 0.0]], 2)
    >>> print(g_query.round(4), g_value[:, 0].round(4))
    [[ 0.0884 -0.1768]] [0.8536 0.     0.1464]
    >>> scale, sink = np.array(0.5), np.array(1.5)
    >>> output, weights = attention(query, key, key, 2, scale=scale, sink=sink, return_weights=True)
    >>> options = {"scale": scale, "sink": sink}
    >>> *_, g_scale, g_sink = attention_vjp(weights, query, key, key, [[1.0, 0.0]], 2, **options)
    >>> print(g_scale.round(4), g_sink.round(4))
    4.3333 -1.1667
    """
    problem = AttentionProblem(
        query, key, value, alpha, mapping=mapping, mask=mask, causal=causal, offset=offset,
        scale=scale, sink=sink, bias=bias, cu_seqlens=cu_seqlens, **parameters,
    )  # fmt: skip
    return problem.vjp(weights, g)


@np.errstate(under="ignore")
def attention_vjp_alpha(weights: AttentionWeights, value: Any, g: Any, alpha: Any = 1.5) -> Any:
    """The gradient of α, for the gradient g of the output of `attention` with α-entmax.

    Parameters
    ----------
    weights : AttentionWeights
        as `attention` returned
    value : array of shape (…, S, dᵥ)
    g : array of the output's shape
    alpha : as in `attention`

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
    return AttentionProblem(like, key, value, alpha).vjp_alpha(weights, g)


def _plan(query: Any, key: Any, value: Any, operands: dict[str, Any], **options: Any) -> Any:
    """The output for Dask arrays: one call for each chunk of the batch."""
    t, s = query.shape[-2], key.shape[-2]
    arrays, signature = [query], "(t,d),(s,d),(s,v)"
    for array in (key, value):
        if query.ndim > 2 and array.ndim > 2 and 1 < array.shape[-3] < query.shape[-3]:
            array = np.repeat(array, query.shape[-3] // array.shape[-3], axis=-3)
        arrays.append(array)
    names = []
    cores = {"scale": "t", **dict.fromkeys(("mask", "bias", *BOUNDS), "ts")}
    bias, sizes = operands["bias"], {"t": t, "s": s, "u": t + s - 1}
    if isinstance(bias, DistanceBias):
        cores["bias"] = "" if bias.is_alibi else "u"
    for name, operand in operands.items():
        operand = array_of(operand)
        if not np.ndim(operand):
            options[name] = operands[name]
            continue
        core = cores.get(name, "")
        shape = tuple(sizes[axis] for axis in core)
        operand = np.broadcast_to(operand, np.broadcast_shapes(np.shape(operand), shape))
        signature += f",({','.join(core)})"
        names.append(name)
        arrays.append(operand)

    def chunk(query: Any, key: Any, value: Any, *blocks: Any) -> Any:
        each = dict(zip(names, blocks, strict=True))
        if isinstance(bias, DistanceBias) and "bias" in each:
            each["bias"] = bias.with_array(each["bias"])
        return attention(query, key, value, **options, **each)

    return plan(chunk, f"{signature}->(t,v)", *arrays)
