"""Attention as an operation, and its gradients.

The derivative finds the weights again: they are sparse, of a size that nobody knows before, and
cost less than what follows from them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyentmax import attention as array_attention
from pyentmax import attention_vjp, attention_vjp_alpha
from pyentmax.mappings import MAPPINGS
from pyentmax.torch.arrays import on_arrays
from pyentmax.torch.registry import (
    PARAMETER,
    batched,
    defined,
    differentiable,
    one_by_one,
    values_of,
)

SETTING = f"str name, {PARAMETER}, Tensor? mask, bool causal, int offset, float? scale"


def _attention_options(
    query: Tensor, key: Tensor, setting: tuple[Any, ...]
) -> tuple[Tensor | float, dict[str, Any]]:
    """α, or 1 where there is none, and the keywords of `pyentmax.attention`."""
    name, parameter, number, mask, causal, offset, scale = setting
    record = MAPPINGS[name]
    if query.device.type != "cpu":  # where arrays on the host do not go with these
        if causal:
            t, s = query.shape[-2], key.shape[-2]
            seen = torch.ones(t, s, dtype=torch.bool, device=query.device).tril(offset)
            mask, causal, offset = seen if mask is None else seen & mask, False, 0
        if number is not None:
            parameter = torch.tensor(number, device=query.device)
    options = {"mapping": name, "mask": mask, "scale": scale, "causal": causal, "offset": offset}
    values = values_of(name, parameter, number)
    if "alpha" in record.parameters:
        return values[0], options
    return 1.0, {**options, **dict(zip(record.parameters, values, strict=True))}


def _attention(query: Tensor, key: Tensor, value: Tensor, *setting: Any) -> Any:
    alpha, options = _attention_options(query, key, setting)
    return on_arrays(array_attention, query, key, value, alpha, **options)


def _attention_fake(query: Tensor, key: Tensor, value: Tensor, *setting: Any) -> Tensor:
    def outer(shape: Any) -> Any:  # one head of keys may serve several of queries
        return shape[:-2] if len(shape) < 3 else (*shape[:-3], 1)

    batch = torch.broadcast_shapes(*(outer(x.shape) for x in (query, key, value)))
    if batch:
        batch = (*batch[:-1], max(x.shape[-3] for x in (query, key, value) if x.ndim > 2))
    return query.new_empty((*batch, query.shape[-2], value.shape[-1]))


attention = defined(
    "attention",
    f"(Tensor query, Tensor key, Tensor value, {SETTING}) -> Tensor",
    _attention,
    _attention_fake,
)


def _attention_gradients(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, *setting: Any
) -> Any:
    """Gradients of query, key, value and α; the weights are found again, of which few are not 0."""
    name, parameter, *_ = setting
    alpha, options = _attention_options(query, key, setting)
    learned = name == "entmax" and parameter is not None

    def gradients(
        query: Any, key: Any, value: Any, g: Any, alpha: Any, **options: Any
    ) -> tuple[Any, ...]:
        _, weights = array_attention(query, key, value, alpha, return_weights=True, **options)
        found = attention_vjp(weights, query, key, value, g, alpha, **options)
        return (*found, attention_vjp_alpha(weights, value, g, alpha)) if learned else found

    found = on_arrays(gradients, query, key, value, g.to(query.dtype), alpha, **options)
    if learned:
        return (*found[:3], found[3].to(parameter.dtype))
    return (*found, query.new_zeros(0 if parameter is None else parameter.shape))


attention_gradients = defined(
    "attention_gradients",
    f"(Tensor g, Tensor query, Tensor key, Tensor value, {SETTING})"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _attention_gradients,
    lambda g, query, key, value, name, parameter, *setting: (
        *(x.new_empty(x.shape) for x in (query, key, value)),
        (query if parameter is None or name != "entmax" else parameter).new_empty(
            0 if parameter is None else parameter.shape
        ),
    ),
)


def _keep_attention(ctx: Any, inputs: Any, output: Tensor) -> None:
    query, key, value, ctx.name, parameter, ctx.number, mask, *ctx.rest = inputs
    ctx.save_for_backward(query, key, value, parameter, mask)


def _attention_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    query, key, value, parameter, mask = ctx.saved_tensors
    setting = (ctx.name, parameter, ctx.number, mask, *ctx.rest)
    *found, in_parameter = attention_gradients(g, query, key, value, *setting)
    if not ctx.needs_input_grad[4]:
        in_parameter = None
    elif ctx.name != "entmax":
        raise NotImplementedError(
            f"attention by {ctx.name} has no derivative in its parameter: detach() it"
        )
    return *found, None, in_parameter, *(None,) * 5


def _attention_gradients_backward(ctx: Any, *g: Any) -> Any:
    # Unsaid, PyTorch would go on with zeros.
    raise NotImplementedError(
        "attention has no second derivatives: multiply queries by keys, values by pt.entmax of that"
    )


differentiable("attention", _keep_attention, _attention_backward)
differentiable(
    "attention_gradients", lambda ctx, inputs, output: None, _attention_gradients_backward
)
batched(
    "attention",
    lambda info, axes, *args: (one_by_one(attention, info.batch_size, axes, args), 0),
)
batched(
    "attention_gradients",
    lambda info, axes, *args: (
        one_by_one(attention_gradients, info.batch_size, axes, args),
        (0, 0, 0, 0),
    ),
)
