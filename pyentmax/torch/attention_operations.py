"""The operations of attention with sparse weights, and their derivatives.

    attention               the output
    attention_with_weights  the output, and the weights without their zeros: all of them, or what
                            the derivatives need
    attention_gradients     gradients of the operands, α, sink and bias

Their arguments are the fields of a `TensorProblem`. Eager calls that learn keep the weights for the
derivative. Graphs, whose sizes are known before, compute them again there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyentmax.sparse_attention import AttentionWeights
from pyentmax.torch.arrays import on_arrays
from pyentmax.torch.attention_problem import FIELDS, SCHEMA, TensorProblem, problem_of
from pyentmax.torch.registry import (
    Rule,
    is_plain,
    is_unwatched,
    not_differentiable,
    one_by_one,
    registered,
)

WEIGHTS = "Tensor data, Tensor indices, Tensor indptr, Tensor sinks, Tensor dense_heads"
NO_GRADIENTS = TensorProblem._make([None] * FIELDS)


def _attention(*operands: Any) -> Any:
    return on_arrays(lambda *arrays: problem_of(arrays).forward()[0], *operands)


def output_like(*operands: Any) -> Tensor:
    """An empty output, of a problem of that many operands, or of these and more."""
    problem = TensorProblem._make(operands[:FIELDS])
    return problem.query.new_empty((*problem.shape[:-1], problem.value.shape[-1]))


def save_problem(ctx: Any, inputs: Any, output: Any) -> None:
    """Keep a problem for its derivatives, and the outputs after the first."""
    saved, ctx.settings = list(inputs[:FIELDS]), list(inputs[:FIELDS])
    for i, x in enumerate(ctx.settings):
        if isinstance(x, Tensor):
            ctx.settings[i] = None
        else:
            saved[i] = None
    ctx.save_for_backward(*saved, *(output[1:] if isinstance(output, tuple) else ()))


def saved_problem(ctx: Any) -> tuple[TensorProblem, list[Any]]:
    """The problem, and the further outputs."""
    operands, saved = list(ctx.settings), ctx.saved_tensors
    for i, x in enumerate(saved[:FIELDS]):
        if x is not None:
            operands[i] = x
    return TensorProblem._make(operands), saved[FIELDS:]


def gradients_of(needed: TensorProblem, gradients: Any) -> tuple[Any, ...]:
    """Gradients of query, key, value, parameter, sink and bias, in the order of the operands."""
    named = zip(("query", "key", "value", "parameter", "sink", "bias"), gradients, strict=True)
    own = {}
    for name, x in named:
        if getattr(needed, name):
            own[name] = x
    return tuple(NO_GRADIENTS._replace(**own))


def _save_attention(ctx: Any, inputs: Any, output: Any) -> None:
    save_problem(ctx, inputs, output)
    if isinstance(output, tuple):
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)  # zeros for the weights


def _attention_backward(
    ctx: Any, g: Tensor | None, g_data: Tensor | None = None, *_: Any
) -> tuple[Any, ...]:
    if g is None and g_data is None:
        return tuple(NO_GRADIENTS)
    problem, weights = saved_problem(ctx)
    needed = TensorProblem._make(ctx.needs_input_grad)
    if g is None:
        g = output_like(*problem).zero_()
    if needed.parameter and problem.mapping != "entmax":
        raise NotImplementedError(
            f"attention by {problem.mapping} has no derivative in its parameter: detach() it"
        )
    # Weights are saved only for tensors neither wrapped nor dual, so call the operator itself.
    run = torch.ops.pyentmax.attention_gradients.default if weights else attention_gradients
    gradients = run(g, *problem, needed.parameter, needed.bias, g_data, *(weights or (None,) * 5))
    return gradients_of(needed, gradients)


_attention_operation: Rule = registered(
    "attention",
    f"({SCHEMA}) -> Tensor",
    compute=_attention,
    fake=output_like,
    setup_context=_save_attention,
    backward=_attention_backward,
    vmap=one_by_one,
)


def _with_weights(*operands: Any) -> Any:
    dtype = operands[0].dtype
    wide = torch.promote_types(dtype, torch.float32)
    output, *weights = on_arrays(_with_weights_of_arrays, *operands, dtype=wide)
    return output.to(dtype), *weights


def _with_weights_of_arrays(*arrays: Any) -> tuple[Any, ...]:
    weights: Any
    output, weights = problem_of(arrays).forward(return_weights=True, whole=arrays[-1])
    sinks = np.empty_like(weights.data, shape=0) if weights.sink is None else weights.sink
    dense_heads = np.zeros(0, bool) if weights.dense_heads is None else weights.dense_heads
    return output, weights.data, weights.indices, weights.indptr, sinks, dense_heads


def _with_weights_fake(*operands: Any) -> Any:
    size, problem = torch.library.get_ctx().new_dynamic_size, TensorProblem._make(operands)
    output, entries, query = output_like(*operands), size(), problem.query
    rows, wide = output.shape[:-1], torch.promote_types(query.dtype, torch.float32)
    return (
        output,
        query.new_empty(entries, dtype=wide),
        query.new_empty(entries, dtype=torch.int32),
        query.new_empty(math.prod(rows) + 1, dtype=torch.int64),
        query.new_empty(0 if problem.sink is None else rows, dtype=wide),
        query.new_empty(0 if problem.return_weights else size(), dtype=torch.bool),
    )


attention_with_weights: Rule = registered(
    "attention_with_weights",
    f"({SCHEMA}) -> (Tensor, {WEIGHTS})",
    compute=_with_weights,
    fake=_with_weights_fake,
    setup_context=_save_attention,
    backward=_attention_backward,
    vmap=one_by_one,
)


def sparse_operation(problem: TensorProblem) -> Any:
    """The output and data, columns, rows and sinks of the weights, or None instead of these.

    A call that learns keeps its weights for the derivative.
    """
    direct = is_unwatched(problem)
    keep = problem.return_weights or problem.learns and (direct or is_plain(problem))
    operation = attention_with_weights if keep else _attention_operation
    if direct:
        operation = operation.directly  # type: ignore[attr-defined]
    if not keep:
        return operation(*problem), None
    output, *weights, _ = operation(*problem)
    return output, weights if problem.return_weights else None


def _attention_gradients(g: Tensor, *operands: Any) -> Any:
    """Gradients of query, key, value, α, sink and bias; empty where there is none."""
    *own, sinks, dense_heads = operands
    problem = TensorProblem._make(own[:FIELDS])
    sinks = None if problem.sink is None else sinks
    dense_heads = dense_heads if dense_heads is not None and dense_heads.numel() else None
    more = g.to(problem.query.dtype), sinks, dense_heads
    gradients = list(on_arrays(_gradients_of_arrays, *own, *more))
    for i, like in enumerate((problem.parameter, problem.sink, problem.bias), 3):
        if like is not None:
            gradients[i] = gradients[i].to(like.dtype)
    return tuple(gradients)


def _gradients_of_arrays(*arrays: Any) -> tuple[Any, ...]:
    problem = problem_of(arrays)
    by_alpha, by_bias, g_data, data, indices, indptr, g, sinks, dense_heads = arrays[FIELDS:]
    weights: Any
    if data is None:
        _, weights = problem.forward(return_weights=True, whole=g_data is not None)
    else:
        shape = problem.outer_shape
        weights = AttentionWeights(shape, data, indices, indptr, sinks, dense_heads)
    in_arrays = problem.vjp(weights, g, with_bias=by_bias, g_weights=g_data)
    none = np.empty_like(g, shape=0)
    in_alpha = problem.vjp_alpha(weights, g, g_data) if by_alpha else none
    in_sink = none if problem.sink is None else in_arrays[3]
    return *in_arrays[:3], in_alpha, in_sink, in_arrays[-1] if by_bias else none


def _attention_gradients_fake(g: Tensor, *operands: Any) -> tuple[Tensor, ...]:
    problem, (by_alpha, by_bias) = TensorProblem._make(operands[:FIELDS]), operands[FIELDS:][:2]
    learned = problem.parameter, problem.sink, problem.bias
    needed = by_alpha, problem.sink is not None, by_bias
    return *(x.new_empty(x.shape) for x in problem[:3]), *(
        (problem.query if x is None else x).new_empty(x.shape if some else 0)
        for x, some in zip(learned, needed, strict=True)
    )


attention_gradients: Rule = registered(
    "attention_gradients",
    f"(Tensor g, {SCHEMA}, bool by_alpha, bool by_bias, Tensor? g_data, "
    f"{WEIGHTS.replace('Tensor', 'Tensor?')})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    compute=_attention_gradients,
    fake=_attention_gradients_fake,
    vmap=one_by_one,
    **not_differentiable(
        "attention has no second derivatives: multiply queries by keys, values by pt.entmax of that"
    ),
)
