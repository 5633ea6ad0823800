"""The operations of `pyentmax.torch`, and their derivatives.

    mapping             p = π(z), or log p
    support             where p is above 0
    product             J v at the output p
    parameter_gradient  Σ g ∘ ∂p/∂parameter
    loss                a Fenchel-Young loss, reduced, and its gradient share ∘ (p − q)

An operation takes the name of a mapping, so that these serve every one of `pyentmax.MAPPINGS`.
Rows lie along the last axis. The parameter of a mapping is a tensor or a number.

A first derivative runs the array functions. Where it may be differentiated again, which PyTorch
says by gradients that are enabled in a backward pass, it is written in PyTorch's own operations
(`composed`) for the mappings that these know, and so is one in forward mode; for the others it
refuses to be.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyentmax import MAPPINGS, fenchel_young_loss_and_grad
from pyentmax.engine.backends.choice import kernels
from pyentmax.torch import composed
from pyentmax.torch.arrays import has_kernels, lent, on_arrays
from pyentmax.torch.composed import HALF, LOGARITHMS
from pyentmax.torch.registry import (
    PARAMETER,
    Rule,
    is_unwatched,
    not_differentiable,
    one_by_one,
    registered,
    row_by_row,
)

FORWARD: dict[str, Rule] = MAPPINGS | {
    name: MAPPINGS[name.removeprefix("log_")].log for name in LOGARITHMS
}

# The parameter of each mapping, and of its logarithm.
PARAMETERS: dict[str, str | None] = {
    name: next(iter(MAPPINGS[name.removeprefix("log_")].parameters), None) for name in FORWARD
}


def per_score(name: str) -> bool:
    """Whether a mapping's parameter belongs to each score, and not to each row."""
    return PARAMETERS[name] == "upper"


def _value(parameter: Any, number: Any) -> Any:
    return number if parameter is None else parameter


# For at most this many scores, the checks of the array function take longer than its kernel. The
# mappings of UNCHECKED need none along the last axis, if α is a number of at least 1.
SMALL_CALL = 1 << 12
UNCHECKED = frozenset(("softmax", "sparsemax", "entmax15", "entmax"))


def _are_few(x: Tensor, name: str, parameter: Any, number: Any) -> bool:
    few = parameter is None and x.is_cpu and x.dtype not in HALF and 0 < x.numel() <= SMALL_CALL
    known = few and name in UNCHECKED and (number is None or number >= 1)
    return known and x.ndim > 0 and name in kernels()


@functools.cache
def _all_true(d: int) -> Any:
    return np.broadcast_to(np.True_, (d,))


def _values(name: str, parameter: Any, number: Any) -> tuple[Any, ...]:
    """Arguments after the arrays in a call of the mapping: its parameter, if it has one."""
    return () if PARAMETERS[name] is None else (_value(parameter, number),)


def _like_first(first: Tensor, *rest: Any) -> Tensor:
    return first.new_empty(first.shape)


# --- p = π(z) -------------------------------------------------------------------------------------


def mapping_of_few(z: Tensor, name: str, parameter: Any, number: Any) -> Tensor | None:
    """p by nothing but the kernel, if there are few scores; else None."""
    if not _are_few(z, name, parameter, number):
        return None
    rows, values = lent(z), () if number is None else (number,)
    p = kernels()[name](rows, _all_true(rows.shape[-1]), *values)
    return torch.from_numpy(p).contiguous()


def _mapping(z: Tensor, name: str, parameter: Any, number: Any, mask: Any) -> Any:
    if mask is None:
        p = mapping_of_few(z, name, parameter, number)
        if p is not None:
            return p
    if not has_kernels(z):
        return composed.mapping(z, name, _value(parameter, number), mask).contiguous()
    return on_arrays(FORWARD[name], z, *_values(name, parameter, number), mask=mask)


def _keep_mapping(ctx: Any, inputs: Any, output: Tensor) -> None:
    z, ctx.name, parameter, ctx.number, mask = inputs
    if ctx.name in LOGARITHMS:
        z = mask = None
    elif not MAPPINGS[ctx.name].parameter_vjp.with_scores:
        z = None
    ctx.save_for_backward(output, z, parameter, mask)


def _mapping_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    p, z, parameter, mask = ctx.saved_tensors
    name, in_z, in_parameter = ctx.name, None, None
    again = name in LOGARITHMS or (torch.is_grad_enabled() and name in composed.NAMES)
    if ctx.needs_input_grad[0]:
        if again:
            alpha = composed.support_alpha(name, _value(parameter, ctx.number))
            vjp = composed.log_vjp if name in LOGARITHMS else composed.product
            in_z = vjp(p, g, alpha)
        else:
            in_z = product(p, g, name, parameter, ctx.number, mask)
    if ctx.needs_input_grad[2]:
        if name == "log_entmax":
            each = torch.where(p > -torch.inf, g, 0) * composed.log_grad_alpha(p, parameter)
        elif name == "entmax" and (again or not has_kernels(p)):
            each = g * composed.grad_alpha(p, parameter)
        else:
            return in_z, None, parameter_gradient(p, g, z, name, parameter, mask), None, None
        in_parameter = each.sum(-1).sum_to_size(parameter.shape).to(parameter.dtype)
    return in_z, None, in_parameter, None, None


mapping: Rule = registered(
    "mapping",
    f"(Tensor z, str name, {PARAMETER}, Tensor? mask) -> Tensor",
    compute=_mapping,
    fake=_like_first,
    setup_context=_keep_mapping,
    backward=_mapping_backward,
    vmap=partial(row_by_row, arrays=1, per_score=per_score),
)


# --- where p is above 0 ---------------------------------------------------------------------------


def _support(z: Tensor, name: str, parameter: Any, number: Any, mask: Any) -> Any:
    if has_kernels(z):
        values = _values(name, parameter, number)
        return on_arrays(MAPPINGS[name].support, z, *values, mask=mask, dtype=torch.bool)
    return composed.support(z, name, _value(parameter, number), mask).contiguous()


support: Rule = registered(
    "support",
    f"(Tensor z, str name, {PARAMETER}, Tensor? mask) -> Tensor",
    compute=_support,
    fake=lambda z, *rest: z.new_empty(z.shape, dtype=torch.bool),
    vmap=partial(row_by_row, arrays=1, per_score=per_score),
    **not_differentiable("a support has no derivative"),
)


def differentiable(z: Tensor, name: str, value: Any, mask: Tensor | None) -> Tensor:
    """A mapping, or log p, in operations that PyTorch can differentiate three times.

    It follows the derivative from the values of z and α to z and α, which are the same, by Heun's
    rule of third order: that has the first three derivatives of what it follows.
    """
    by: Rule = composed.log_jvp if name in LOGARITHMS else composed.product
    slope: Rule = composed.log_grad_alpha if name in LOGARITHMS else composed.grad_alpha
    start, alpha, d_alpha = z.detach(), composed.support_alpha(name, value), None
    number, parameter = (None, value.detach()) if isinstance(value, Tensor) else (value, None)
    if PARAMETERS[name] == "alpha" and parameter is not None:
        alpha, d_alpha = parameter, value - parameter
    change = composed.wide(torch.where(start.isfinite(), z - start, 0))

    def moved(p: Tensor, share: float) -> Tensor:
        if d_alpha is None:
            return by(p, change, alpha)
        now = alpha + share * d_alpha
        return by(p, change, now) + slope(p, now) * d_alpha.unsqueeze(-1)

    p = mapping(composed.wide(start), name, parameter, number, mask)
    first = moved(p, 0)
    second = moved(p + first / 3, 1 / 3)
    return (p + (first + 3 * moved(p + 2 / 3 * second, 2 / 3)) / 4).to(z.dtype)


# --- J v ------------------------------------------------------------------------------------------


def _product(p: Tensor, v: Tensor, name: str, parameter: Any, number: Any, mask: Any) -> Any:
    are_alike = v.shape == p.shape and v.dtype == p.dtype
    if are_alike and _are_few(p, name, parameter, number):
        number = () if number is None else (number,)
        result = kernels()[f"{name}_jvp"](lent(p), lent(v), *number)
        return torch.from_numpy(result).contiguous()
    if not has_kernels(p):
        alpha = composed.support_alpha(name, _value(parameter, number))
        return composed.product(p, v, alpha).contiguous()
    values = (_round_bounds_like(p, name, value) for value in _values(name, parameter, number))
    return on_arrays(MAPPINGS[name].vjp, p, v.to(p.dtype), *values, mask=mask)


def _round_bounds_like(p: Tensor, name: str, value: Any) -> Any:
    """A bound, rounded as p was: the derivative compares p with it."""
    if p.dtype not in HALF or not per_score(name):
        return value
    if isinstance(value, Tensor):
        return value.to(p.dtype)
    return torch.tensor(value, dtype=p.dtype).item()


def _keep_product(ctx: Any, inputs: Any, output: Tensor) -> None:
    p, _, ctx.name, parameter, ctx.number, mask = inputs
    ctx.save_for_backward(p, parameter, mask)


def _product_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    p, parameter, mask = ctx.saved_tensors
    if ctx.needs_input_grad[0] or ctx.needs_input_grad[3]:
        raise NotImplementedError(
            f"{ctx.name} has no second derivatives here: only α-entmax and its top-k relatives have"
        )
    in_v = product(p, g, ctx.name, parameter, ctx.number, mask)  # J is symmetric
    return None, in_v, None, None, None, None


product: Rule = registered(
    "product",
    f"(Tensor p, Tensor v, str name, {PARAMETER}, Tensor? mask) -> Tensor",
    compute=_product,
    fake=_like_first,
    setup_context=_keep_product,
    backward=_product_backward,
    vmap=partial(row_by_row, arrays=2, per_score=per_score),
)


# --- the gradient in a parameter ------------------------------------------------------------------


def _parameter_gradient(
    p: Tensor, g: Tensor, z: Any, name: str, parameter: Tensor, mask: Any
) -> Any:
    vjp, value = MAPPINGS[name].parameter_vjp, _round_bounds_like(p, name, parameter)
    if not vjp.is_defined:
        raise NotImplementedError(f"{name} has no derivative in {PARAMETERS[name]}: detach() it")
    options: Any = {"mask": mask, "dtype": parameter.dtype}
    if z is None:
        return on_arrays(vjp, p, g.to(p.dtype), value, **options)
    return on_arrays(vjp.at_scores, z, p, g.to(p.dtype), value, **options)


parameter_gradient: Rule = registered(
    "parameter_gradient",
    "(Tensor p, Tensor g, Tensor? z, str name, Tensor parameter, Tensor? mask) -> Tensor",
    compute=_parameter_gradient,
    fake=lambda p, g, z, name, parameter, mask: parameter.new_empty(parameter.shape),
    vmap=one_by_one,
    **not_differentiable(
        "the gradient in this mapping's parameter has no derivative: take it without "
        "create_graph, or detach() the parameter"
    ),
)


# --- losses ---------------------------------------------------------------------------------------

OPTIONS = "Tensor? weight, Tensor? mask, str reduction, int? ignore_index, Tensor? label_smoothing"


def _wide(z: Tensor) -> torch.dtype:
    """The type of a loss, which half types are rounded to once it is reduced."""
    return torch.promote_types(z.dtype, torch.float32)


def _loss(z: Tensor, y: Tensor, name: str, parameter: Any, number: Any, *values: Any) -> Any:
    names = ("weight", "mask", "reduction", "ignore_index", "label_smoothing")
    options = dict(zip(names, values, strict=True))
    if not has_kernels(z):
        return composed.loss_and_gradient(z, y, name, _value(parameter, number), **options)
    smoothing = options["label_smoothing"]
    options["label_smoothing"] = 0.0 if smoothing is None else smoothing.item()
    if (own := PARAMETERS[name]) is not None:
        options[own] = _value(parameter, number)
    options["mapping"] = name
    fits = y.shape in (z.shape, z.shape[:-1]) and (parameter is None or not parameter.ndim)
    if z.is_cpu and z.dtype in HALF and z.numel() > BLOCK and fits:
        return _in_blocks(z, y, **options)
    loss, gradient = on_arrays(fenchel_young_loss_and_grad, z, y, dtype=_wide(z), **options)
    return loss, gradient.to(z.dtype)


BLOCK = 1 << 20  # scores of half types that are widened at a time, on a CPU
PIECE = 1 << 15  # the same for one product, which PyTorch then leaves to one thread


def _in_blocks(
    z: Tensor, y: Tensor, weight: Any, mask: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    """Losses of rows and their gradient by blocks, without an array of all scores in float32."""
    shape, d = z.shape, z.shape[-1]
    y = y.reshape(-1, *y.shape[z.ndim - 1 :])
    mask = None if mask is None else mask.expand(shape).reshape(-1, d)
    weight = None if weight is None else weight.expand(shape[:-1]).reshape(-1)
    z = z.reshape(-1, d)
    gradient, losses, rows = torch.empty_like(z), [], max(BLOCK // d, 1)
    for start in range(0, len(z), rows):
        block = slice(start, start + rows)
        options["weight"] = None if weight is None else weight[block]
        options["mask"] = None if mask is None else mask[block]
        pair = z[block], y[block]
        each, gradient[block] = on_arrays(
            fenchel_young_loss_and_grad, *pair, dtype=torch.float32, **options
        )
        losses.append(each)
    return torch.cat(losses).reshape(shape[:-1]), gradient.reshape(shape)


def _loss_fake(z: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    shape = z.shape[:-1] if rest[-3] == "none" else ()
    return z.new_empty(shape, dtype=_wide(z)), z.new_empty(z.shape)


def _keep_loss(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    z, y, ctx.name, parameter, ctx.number, weight, mask, *ctx.options, smoothing = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # zeros of the scores' shape for the second result
    ctx.save_for_backward(output[1], z, y, parameter, weight, mask, smoothing)


def _gradient(ctx: Any) -> tuple[Tensor, Tensor, Tensor]:
    """share ∘ (p − q), which can be differentiated again; q and the shares."""
    _, z, y, parameter, weight, mask, smoothing = ctx.saved_tensors
    reduction, ignore_index = ctx.options
    q, counts, _ = composed.targets(z, y, mask, ignore_index, smoothing)
    share = composed.shares(counts, weight, reduction, q).unsqueeze(-1)
    z = composed.wide(torch.where(share == 0, 0, z))  # which may hold anything, NaN too
    p = mapping(z, ctx.name, parameter, ctx.number, mask)
    return torch.where(share == 0, 0, share * (p - q)), q, share


def _loss_backward(ctx: Any, g: Tensor | None, _: Any) -> tuple[Any, ...]:
    if g is None:
        return (None,) * 10
    gradient, z, y, parameter, _, mask, smoothing = ctx.saved_tensors
    reduction, _ = ctx.options
    g = g.unsqueeze(-1) if reduction == "none" else g
    in_z = in_y = None
    if torch.is_grad_enabled() or ctx.needs_input_grad[1]:
        gradient, q, share = _gradient(ctx)
    if ctx.needs_input_grad[0]:
        in_z = _scaled(gradient, g, z.dtype)
    if ctx.needs_input_grad[1]:
        slope = composed.target_slope(z, q, ctx.name, _value(parameter, ctx.number), mask)
        share = share if smoothing is None else (1 - smoothing) * share
        in_y = torch.where(share == 0, 0, share * slope * g).to(y.dtype)
    return in_z, in_y, *(None,) * 8


def _scaled(gradient: Tensor, g: Tensor, dtype: torch.dtype) -> Tensor:
    """Their product, in float32 at least until it is rounded, without an array of that type."""
    if dtype in HALF and g.ndim and is_unwatched((gradient, g)) and not torch.is_grad_enabled():
        result, rows = torch.empty_like(gradient), max(PIECE // gradient.shape[-1], 1)
        parts = (x.reshape(-1, x.shape[-1]).split(rows) for x in (gradient, g, result))
        for some, by, out in zip(*parts, strict=True):
            torch.mul(some, by, out=out)
        return result
    return (gradient * g).to(dtype)


_loss_operation = registered(
    "loss",
    f"(Tensor z, Tensor y, str name, {PARAMETER}, {OPTIONS}) -> (Tensor, Tensor)",
    compute=_loss,
    fake=_loss_fake,
    setup_context=_keep_loss,
    backward=_loss_backward,
    vmap=one_by_one,  # the mean of each example is its own
)


def loss(*args: Any) -> Tensor:
    """The loss alone."""
    result: Tensor = _loss_operation(*args)[0]
    return result
