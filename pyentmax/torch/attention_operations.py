"""The operations of attention with sparse weights, and their derivatives.

    attention               the output
    attention_with_weights  the output, and the weights without their zeros: all of them, or what
                            the derivatives need
    attention_gradients     gradients of the operands, α, sink and bias

Eager calls that learn keep the weights for the derivative. Graphs, whose sizes are known before,
compute them again there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyentmax.sparse_attention import AttentionWeights, DistanceBias
from pyentmax.sparse_attention.arguments import batch_shapes
from pyentmax.sparse_attention.problem import AttentionProblem
from pyentmax.torch.arrays import on_arrays
from pyentmax.torch.operations import PARAMETERS
from pyentmax.torch.registry import (
    NO_FORWARD_MODE,
    PARAMETER,
    Rule,
    is_plain,
    not_differentiable,
    one_by_one,
    refused,
    registered,
)

SETTING = (
    f"str name, {PARAMETER}, Tensor? mask, bool causal, int offset, float? scale, Tensor? sink, "
    "Tensor? cu_query, Tensor? cu_key, Tensor? offsets, Tensor? bias, bool alibi"
)
SINK = 7  # its place in a setting
ARRAYS = "Tensor query, Tensor key, Tensor value"
WEIGHTS = "Tensor data, Tensor indices, Tensor indptr, Tensor sinks, Tensor dense_heads"


def _on_problem(run: Any, setting: tuple[Any, ...], *tensors: Any, dtype: Any = None) -> Any:
    """What a function of an `AttentionProblem` and further arrays returns, as tensors.

    The first three tensors are query, key and value.
    """
    name, parameter, number, mask, causal, offset, scale, sink, *packed, bias, alibi = setting

    def ask(
        query: Any, key: Any, value: Any, value_of: Any, mask: Any, sink: Any, bias: Any,
        cu_query: Any, cu_key: Any, offsets: Any, *more: Any,
    ) -> Any:  # fmt: skip
        own: dict[str, Any] = {}
        if (called := PARAMETERS[name]) is not None:
            own[called] = value_of
        alpha = own.pop("alpha", 1.0)
        if bias is not None:
            bias = DistanceBias(slopes=bias) if alibi else DistanceBias(bias)
        problem = AttentionProblem(
            query, key, value, alpha, mapping=name, mask=mask, causal=causal, scale=scale,
            sink=sink, bias=bias, offset=offset if offsets is None else offsets,
            cu_seqlens=None if cu_query is None else (cu_query, cu_key), **own,
        )  # fmt: skip
        return run(problem, *more)

    value_of = number if parameter is None else parameter
    first, more = tensors[:3], tensors[3:]
    return on_arrays(ask, *first, value_of, mask, sink, bias, *packed, *more, dtype=dtype)


def _attention(query: Tensor, key: Tensor, value: Tensor, *setting: Any) -> Any:
    return _on_problem(lambda problem: problem.forward()[0], setting, query, key, value)


def _attention_fake(query: Tensor, key: Tensor, value: Tensor, *setting: Any) -> Tensor:
    batch, _ = batch_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    return query.new_empty((*batch, query.shape[-2], value.shape[-1]))


def _keep_attention(ctx: Any, inputs: Any, output: Any) -> None:
    (
        *arrays, name, parameter, number, mask, causal, offset, scale, sink, q, k, offsets, bias,
        alibi,
    ) = inputs[: 16]  # fmt: skip
    ctx.fixed = name, number, causal, offset, scale, alibi
    weights: Any = ()
    if isinstance(output, tuple):
        weights = output[1:]
        ctx.mark_non_differentiable(*weights[1:])
        ctx.set_materialize_grads(False)  # zeros for the weights
    ctx.save_for_backward(*arrays, parameter, mask, sink, q, k, offsets, bias, *weights)


def _attention_backward(
    ctx: Any, g: Tensor | None, g_data: Tensor | None = None, *_: Any
) -> tuple[Any, ...]:
    query, key, value, parameter, mask, sink, q, k, offsets, bias, *weights = ctx.saved_tensors
    name, number, causal, offset, scale, alibi = ctx.fixed
    if g is None and g_data is None:
        return (None,) * len(ctx.needs_input_grad)
    if g is None:
        g = _attention_fake(query, key, value).zero_()
    by_alpha, by_sink, by_bias = (ctx.needs_input_grad[i] for i in (4, 10, 14))
    if by_alpha and name != "entmax":
        raise NotImplementedError(
            f"attention by {name} has no derivative in its parameter: detach() it"
        )
    setting = name, parameter, number, mask, causal, offset, scale, sink, q, k, offsets, bias, alibi
    # Weights are kept of tensors that are neither wrapped nor dual: nothing is left to look for.
    run = torch.ops.pyentmax.attention_gradients.default if weights else attention_gradients
    *operands, in_alpha, in_sink, in_bias = run(
        g, query, key, value, *setting, by_alpha, by_bias, g_data, *(weights or (None,) * 5)
    )
    return (
        *operands, None, in_alpha if by_alpha else None, *(None,) * 5,
        in_sink if by_sink else None, *(None,) * 3, in_bias if by_bias else None, None,
        *(None,) * (len(ctx.needs_input_grad) - 16),
    )  # fmt: skip


_attention_operation: Rule = registered(
    "attention",
    f"({ARRAYS}, {SETTING}) -> Tensor",
    compute=_attention,
    fake=_attention_fake,
    setup_context=_keep_attention,
    backward=_attention_backward,
    jvp=refused(NO_FORWARD_MODE.format("attention")),
    vmap=one_by_one,
)


def _with_weights(query: Tensor, key: Tensor, value: Tensor, *setting: Any) -> Any:
    *setting, whole = setting  # type: ignore[assignment]

    def forward(problem: Any) -> Any:
        output, weights = problem.forward(return_weights=True, whole=whole)
        sinks = np.empty_like(weights.data, shape=0) if weights.sink is None else weights.sink
        marks = weights.dense_heads
        dense_heads = np.zeros(0, bool) if marks is None else marks
        return output, weights.data, weights.indices, weights.indptr, sinks, dense_heads

    wide = torch.promote_types(query.dtype, torch.float32)
    output, *weights = _on_problem(forward, tuple(setting), query, key, value, dtype=wide)
    return output.to(query.dtype), *weights


def _with_weights_fake(query: Tensor, key: Tensor, value: Tensor, *setting: Any) -> Any:
    size = torch.library.get_ctx().new_dynamic_size
    output, entries, whole = _attention_fake(query, key, value), size(), setting[-1]
    rows, wide = output.shape[:-1], torch.promote_types(query.dtype, torch.float32)
    return (
        output,
        query.new_empty(entries, dtype=wide),
        query.new_empty(entries, dtype=torch.int32),
        query.new_empty(math.prod(rows) + 1, dtype=torch.int64),
        query.new_empty(0 if setting[SINK] is None else rows, dtype=wide),
        query.new_empty(0 if whole else size(), dtype=torch.bool),
    )


attention_with_weights: Rule = registered(
    "attention_with_weights",
    f"({ARRAYS}, {SETTING}, bool whole) -> (Tensor, {WEIGHTS})",
    compute=_with_weights,
    fake=_with_weights_fake,
    setup_context=_keep_attention,
    backward=_attention_backward,
    jvp=refused(NO_FORWARD_MODE.format("attention")),
    vmap=one_by_one,
)


def sparse_operation(*args: Any, return_weights: bool = False) -> Any:
    """The output and data, columns, rows and sinks of the weights, or None instead of these.

    A call that learns keeps its weights for the derivative.
    """
    tensors = [x for x in args if isinstance(x, Tensor)]
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if return_weights or (learns and is_plain(tensors)):
        output, *weights, _ = attention_with_weights(*args, return_weights)
        return output, weights if return_weights else None
    return _attention_operation(*args), None


def _attention_gradients(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, *setting: Any
) -> Any:
    """Gradients of query, key, value, α, sink and bias; empty where there is none."""
    (by_alpha, by_bias, g_data, *weights), setting = setting[13:], setting[:13]
    parameter, sink, bias = setting[1], setting[SINK], setting[11]

    def gradients(problem: Any, g: Any, g_data: Any, *parts: Any) -> tuple[Any, ...]:
        if parts[0] is None:
            _, weights = problem.forward(return_weights=True, whole=g_data is not None)
        else:
            data, indices, indptr, sinks, dense_heads = parts
            sinks = None if sink is None else sinks
            shape = (*g.shape[:-1], key.shape[-2])
            dense_heads = dense_heads if dense_heads.size else None
            weights = AttentionWeights(shape, data, indices, indptr, sinks, dense_heads)
        in_arrays = problem.vjp(weights, g, with_bias=by_bias, g_weights=g_data)
        none = np.empty_like(g, shape=0)
        in_alpha = problem.vjp_alpha(weights, g, g_data) if by_alpha else none
        in_sink = none if sink is None else in_arrays[3]
        return *in_arrays[:3], in_alpha, in_sink, in_arrays[-1] if by_bias else none

    tensors = query, key, value, g.to(query.dtype), g_data, *weights
    *operands, in_alpha, in_sink, in_bias = _on_problem(gradients, setting, *tensors)
    if parameter is not None:
        in_alpha = in_alpha.to(parameter.dtype)
    if sink is not None:
        in_sink = in_sink.to(sink.dtype)
    if bias is not None:
        in_bias = in_bias.to(bias.dtype)
    return *operands, in_alpha, in_sink, in_bias


def _attention_gradients_fake(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, *setting: Any
) -> tuple[Tensor, ...]:
    parameter, sink, bias, by_alpha, by_bias = (setting[i] for i in (1, SINK, 11, 13, 14))
    pairs = (by_alpha, parameter), (sink is not None, sink), (by_bias, bias)
    return *(x.new_empty(x.shape) for x in (query, key, value)), *(
        (query if x is None else x).new_empty(x.shape if needed else 0) for needed, x in pairs
    )


attention_gradients: Rule = registered(
    "attention_gradients",
    f"(Tensor g, {ARRAYS}, {SETTING}, bool by_alpha, bool by_bias, Tensor? g_data, "
    f"{WEIGHTS.replace('Tensor', 'Tensor?')})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    compute=_attention_gradients,
    fake=_attention_gradients_fake,
    vmap=one_by_one,
    **not_differentiable(
        "attention has no second derivatives: multiply queries by keys, values by pt.entmax of that"
    ),
)
