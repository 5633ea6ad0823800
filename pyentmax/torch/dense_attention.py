"""Attention by products of whole matrices, with every weight, zeros included.

It is faster than sums over the support for few scores, on a GPU for all that fit its memory, and
takes what changes scores or weights on their way: additive scores, a softcap, dropout. Its
derivatives are those of its operations.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.functional import scaled_dot_product_attention

from pyentmax import MAPPINGS
from pyentmax.torch.arguments import autocast_dtype
from pyentmax.torch.attention_problem import TensorProblem
from pyentmax.torch.attention_weights import AttentionWeights
from pyentmax.torch.calls import apply_to_rows
from pyentmax.torch.composed import HALF
from pyentmax.torch.operations import per_score


def softmax_attention(problem: TensorProblem) -> Tensor:
    """Attention by softmax, as PyTorch's own function computes it."""
    query, key, value = problem[:3]
    options = {"scale": problem.scale, "dropout_p": problem.dropout}
    if query.shape[-3] != key.shape[-3]:
        options["enable_gqa"] = True
    if problem.causal and problem.mask is None and problem.bias is None and not problem.offset:
        return scaled_dot_product_attention(query, key, value, is_causal=True, **options)
    mask = problem.attention_mask()
    if (bias := problem.added()) is not None:
        bias = bias.to(query.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return scaled_dot_product_attention(query, key, value, mask, **options)


def dense_attention(problem: TensorProblem) -> tuple[Tensor, AttentionWeights | None]:
    """The output in the dtype of the query, and the weights if they are asked for."""
    query, key, value = problem[:3]
    dtype = query.dtype
    if dtype in HALF:
        query, key, value = query.float(), key.float(), value.float()
    if autocast_dtype(query.device) is not None:  # it would round the scores
        with torch.autocast(query.device.type, enabled=False):
            output, weights = dense_attention(problem._replace(query=query, key=key, value=value))
            return output.to(dtype), weights
    product = torch.matmul if query.shape[:-2] == key.shape[:-2] == value.shape[:-2] else _product
    scores = product(query * problem.scale, key.mT)
    if problem.softcap is not None:
        scores = problem.softcap * torch.tanh(scores / problem.softcap)
    if problem.bias is not None:
        bias: Any = problem.added()
        scores = scores + bias.to(scores.dtype)
    weights, sink = scores, None
    if problem.sink is not None or not statically_known_true(scores.size(-1) == 0):
        weights = _weights(scores, problem)  # mappings need an entry
    if problem.sink is not None:
        weights, sink = weights[..., :-1], weights[..., -1]
    if problem.dropout:
        weights = torch.dropout(weights, problem.dropout, train=True)
    output = product(weights, value).to(dtype)
    if not problem.return_weights:
        return output, None
    return output, AttentionWeights(tuple(weights.shape), sink=sink, dense=weights)


def _weights(scores: Tensor, problem: TensorProblem) -> Tensor:
    """The weights of scores, and of sinks, if there are any, behind them."""
    mapping, sink, mask = problem.mapping, problem.sink, problem.mask
    parameter: Any = problem.number if problem.parameter is None else problem.parameter
    if problem.causal or problem.cu_queries is not None:
        mask = problem.attention_mask()
    if isinstance(parameter, Tensor) and not per_score(mapping):
        parameter = parameter.unsqueeze(-1)  # the same for all queries of a head
    if sink is None:
        return apply_to_rows(mapping, scores, parameter, mask)
    of_largest = MAPPINGS[mapping].of_largest
    if of_largest is not None:  # a sink takes none of the k places
        mask = apply_to_rows(mapping, scores.detach(), parameter, mask) != 0
        mapping, parameter = of_largest, None
    last = sink[..., None, None].to(scores.dtype).expand(*scores.shape[:-1], 1)
    if mask is not None:
        mask = torch.cat([mask.expand(scores.shape), torch.ones_like(last, dtype=torch.bool)], -1)
    return apply_to_rows(mapping, torch.cat([scores, last], -1), parameter, mask)


def is_finite(output: Tensor, query: Tensor, key: Tensor) -> bool:
    """Whether no product of a weight of 0 with a NaN or infinity is in the output or in a gradient.

    Where a mask hides a key, it and its value may hold anything. Where no value can be read, as in
    a graph and under vmap, the answer is False.
    """
    if torch.compiler.is_compiling():
        return False
    try:
        if query.requires_grad and not math.isfinite(key.detach().sum()):
            return False
        return math.isfinite(output.detach().sum())
    except RuntimeError:  # no values to look at, as under vmap
        return False


def _product(rows: Tensor, matrices: Tensor) -> Tensor:
    """``rows @ matrices``, where neighbouring heads of rows may share a matrix."""
    if rows.ndim < 3 or matrices.ndim < 3 or not 0 < matrices.size(-3) < rows.size(-3):
        return rows @ matrices
    groups, size = (matrices.size(-3), rows.size(-3) // matrices.size(-3)), rows.size(-2)
    product = rows.unflatten(-3, groups).flatten(-3, -2) @ matrices
    return product.unflatten(-2, (groups[1], size)).flatten(-4, -3)
