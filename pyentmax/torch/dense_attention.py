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

from pyentmax.torch.arguments import autocast_dtype
from pyentmax.torch.composed import HALF
from pyentmax.torch.functions import apply_to_rows
from pyentmax.torch.operations import per_score

# T · S from which sums over the support are faster; with causality it is a quarter of it.
LEAST_SCORES = 1 << 16
# Of a GPU's memory, what an array of all scores may take: products of whole matrices are 1.5 to 10
# times as fast there (docs/results/gpu.md). The gradients need a few such arrays at a time.
SHARE_OF_MEMORY = 1 / 128


def is_short(shape: tuple[int, ...], causal: bool, device: torch.device) -> bool:
    """Whether products of whole matrices are faster, and fit; for one query they always are.

    The shape is that of the scores, (…, T, S).
    """
    *batch, queries, keys = shape
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        few = 4 * math.prod(batch) * queries * keys <= memory * SHARE_OF_MEMORY
    else:
        few = queries * keys < (LEAST_SCORES // 4 if causal else LEAST_SCORES)
    if torch.compiler.is_compiling():  # a graph may leave sizes open
        return any(map(statically_known_true, (queries == 1, few)))
    return queries == 1 or few


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mapping: str,
    parameter: Any,
    mask: Tensor | None,
    causal: bool,
    offset: int,
    scale: float,
    sink: Tensor | None,
    bias: Tensor | None,
    softcap: float | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """The output in the dtype of the query, and the weights.

    The parameter is a number or a tensor; the other arguments are as in `pyentmax.torch.attention`.
    """
    dtype = query.dtype
    if dtype in HALF:
        query, key, value = query.float(), key.float(), value.float()
    if autocast_dtype(query.device) is not None:  # it would round the scores
        with torch.autocast(query.device.type, enabled=False):
            options = mask, causal, offset, scale, sink, bias, softcap, dropout
            output, weights = attention(query, key, value, mapping, parameter, *options)
            return output.to(dtype), weights
    scores = _product(query * scale, key.mT)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril(offset)
        mask = seen if mask is None else seen & mask
    weights = scores
    if scores.size(-1):  # mappings need an entry
        weights = _weights(scores, mapping, parameter, mask, sink)
    if dropout:
        weights = torch.dropout(weights, dropout, train=True)
    output = _product(weights, value)
    return (output.to(dtype) if dtype in HALF else output), weights


def _weights(
    scores: Tensor, mapping: str, parameter: Any, mask: Tensor | None, sink: Tensor | None
) -> Tensor:
    if isinstance(parameter, Tensor) and not per_score(mapping):
        parameter = parameter.unsqueeze(-1)  # the same for all queries of a head
    if sink is None:
        return apply_to_rows(mapping, scores, parameter, mask)
    if mapping.startswith("topk"):  # of which a sink takes no place
        mask = apply_to_rows(mapping, scores.detach(), parameter, mask) != 0
        mapping, parameter = mapping.removeprefix("topk_"), None
    last = sink[..., None, None].to(scores.dtype).expand(*scores.shape[:-1], 1)
    if mask is not None:
        mask = torch.cat([mask.expand(scores.shape), torch.ones_like(last, dtype=torch.bool)], -1)
    return apply_to_rows(mapping, torch.cat([scores, last], -1), parameter, mask)[..., :-1]


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
