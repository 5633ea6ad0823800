"""Mappings as operations: probabilities, products with the Jacobian, gradients in a parameter.

    mapping             p = π(z)                         ← product, parameter_gradient
    product             J v at the output p              ← product, and the derivative in p
    parameter_gradient  Σ g ∘ ∂p/∂parameter

(an arrow leads to what the derivative calls). An operation names its mapping, so that these do for
all of `pyentmax.MAPPINGS`. Rows lie along the last axis. The parameter of a mapping is a tensor or
a number: of these two arguments one is None.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyentmax.mappings import MAPPINGS
from pyentmax.torch.arrays import HALF, on_arrays
from pyentmax.torch.registry import (
    PARAMETER,
    aligned,
    batched,
    defined,
    differentiable,
    front,
    is_bound,
    like_first,
    parameter_axes,
    values_of,
)


def _mapping(z: Tensor, name: str, parameter: Any, number: Any, mask: Any) -> Any:
    return on_arrays(MAPPINGS[name].forward, z, *values_of(name, parameter, number), mask=mask)


mapping = defined(
    "mapping", f"(Tensor z, str name, {PARAMETER}, Tensor? mask) -> Tensor", _mapping, like_first
)


def _keep_mapping(ctx: Any, inputs: Any, output: Tensor) -> None:
    z, ctx.name, parameter, ctx.number, mask = inputs
    seen = z if MAPPINGS[ctx.name].parameter_vjp_takes_scores else None
    ctx.save_for_backward(output, seen, parameter, mask)


def _mapping_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    p, z, parameter, mask = ctx.saved_tensors
    in_z = in_parameter = None
    if ctx.needs_input_grad[0]:
        in_z = product(p, g, ctx.name, parameter, ctx.number, mask)
    if ctx.needs_input_grad[2]:
        in_parameter = parameter_gradient(p, g, z, ctx.name, parameter, mask)
    return in_z, None, in_parameter, None, None


def _mapping_batched(info: Any, axes: Any, z: Tensor, name: str, *rest: Any) -> tuple[Tensor, int]:
    parameter, number, mask = rest
    z_axis, _, parameter_axis, _, mask_axis = axes
    z = front(z, z_axis, info.batch_size)
    parameter = aligned(parameter, parameter_axis, parameter_axes(name, z.ndim - 1))
    return mapping(z, name, parameter, number, aligned(mask, mask_axis, z.ndim - 1)), 0


differentiable("mapping", _keep_mapping, _mapping_backward)
batched("mapping", _mapping_batched)


# --- J v ------------------------------------------------------------------------------------------


def _product(p: Tensor, v: Tensor, name: str, parameter: Any, number: Any, mask: Any) -> Any:
    values = (_seen_in(p, name, value) for value in values_of(name, parameter, number))
    return on_arrays(MAPPINGS[name].vjp, p, v.to(p.dtype), *values, mask=mask)


def _seen_in(p: Tensor, name: str, value: Any) -> Any:
    """A bound, rounded as p was: the derivative asks where p is at it. What is no bound stays."""
    if p.dtype not in HALF or not is_bound(name):
        return value
    if isinstance(value, Tensor):
        return value.to(p.dtype)
    return torch.tensor(value, dtype=p.dtype).item()


product = defined(
    "product",
    f"(Tensor p, Tensor v, str name, {PARAMETER}, Tensor? mask) -> Tensor",
    _product,
    like_first,
)


def _keep_product(ctx: Any, inputs: Any, output: Tensor) -> None:
    p, v, ctx.name, parameter, ctx.number, mask = inputs
    ctx.save_for_backward(p, v, parameter, mask)


def _product_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    """J is symmetric. And of Σ g ∘ J v, the derivative in s is (v − m) ∘ (g − n).

    Here m = (s·v)/Σs and n = (s·g)/Σs: both means, and so the sums behind them, drop out.
    """
    p, v, parameter, mask = ctx.saved_tensors
    in_p = in_v = in_parameter = None
    if ctx.needs_input_grad[1]:
        in_v = product(p, g, ctx.name, parameter, ctx.number, mask)
    if ctx.needs_input_grad[0] or ctx.needs_input_grad[3]:
        alpha = _alpha_on_support(ctx.name, parameter, ctx.number)
        on = p > 0
        positive = torch.where(on, p, 1)
        s = torch.where(on, positive ** (2 - alpha), 0)
        v, g = torch.where(on, v, 0), torch.where(on, g, 0)
        total = s.sum(-1, keepdim=True)
        total = torch.where(total == 0, 1, total)
        mean_v, mean_g = ((s * x).sum(-1, keepdim=True) / total for x in (v, g))
        in_s = torch.where(on, (v - mean_v) * (g - mean_g), 0)
        if ctx.needs_input_grad[0]:
            in_p = in_s * (2 - alpha) * positive ** (1 - alpha)
        if ctx.needs_input_grad[3]:
            each = -(in_s * s * positive.log()).sum(-1)
            in_parameter = each.sum_to_size(parameter.shape).to(parameter.dtype)
    return in_p, in_v, None, in_parameter, None, None


def _alpha_on_support(name: str, parameter: Any, number: Any) -> Any:
    """The α whose entmax has the mapping's Jacobian, as a column."""
    record = MAPPINGS[name]
    if record.support_alpha is not None:
        return record.support_alpha
    if record.name != "entmax":
        raise NotImplementedError(
            f"{name} has no second derivatives here: only α-entmax and its top-k relatives have"
        )
    return number if parameter is None else parameter.unsqueeze(-1)


def _product_batched(
    info: Any, axes: Any, p: Tensor, v: Tensor, name: str, *rest: Any
) -> tuple[Tensor, int]:
    parameter, number, mask = rest
    p, v = front(p, axes[0], info.batch_size), front(v, axes[1], info.batch_size)
    parameter = aligned(parameter, axes[3], parameter_axes(name, p.ndim - 1))
    return product(p, v, name, parameter, number, aligned(mask, axes[5], p.ndim - 1)), 0


differentiable("product", _keep_product, _product_backward)
batched("product", _product_batched)


# --- the gradient in a parameter ------------------------------------------------------------------


def _parameter_gradient(
    p: Tensor, g: Tensor, z: Any, name: str, parameter: Tensor, mask: Any
) -> Any:
    vjp = MAPPINGS[name].parameter_vjp
    if vjp is None:
        raise NotImplementedError(
            f"{name} has no derivative in {MAPPINGS[name].parameters[0]}: detach() it"
        )
    scores = () if z is None else (z,)
    dtype = parameter.dtype
    value = _seen_in(p, name, parameter)
    return on_arrays(vjp, p, g.to(p.dtype), value, *scores, mask=mask, dtype=dtype)


parameter_gradient = defined(
    "parameter_gradient",
    "(Tensor p, Tensor g, Tensor? z, str name, Tensor parameter, Tensor? mask) -> Tensor",
    _parameter_gradient,
    lambda p, g, z, name, parameter, mask: parameter.new_empty(parameter.shape),
)


def _keep_parameter_gradient(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.name = inputs[3]


def _parameter_gradient_backward(ctx: Any, g: Tensor) -> Any:
    # Unsaid, PyTorch would go on with zeros.
    raise NotImplementedError(
        f"{ctx.name}'s gradient in {MAPPINGS[ctx.name].parameters[0]} has no derivative: take it "
        "without create_graph, or detach() it"
    )


def _parameter_gradient_batched(
    info: Any, axes: Any, p: Tensor, g: Tensor, z: Any, name: str, parameter: Tensor, mask: Any
) -> tuple[Tensor, int]:
    n = info.batch_size
    p, g = front(p, axes[0], n), front(g, axes[1], n)
    z = None if z is None else front(z, axes[2], n)
    own = parameter.shape if axes[4] is None else parameter.movedim(axes[4], 0).shape[1:]
    # A parameter of its own for each of the batch, so that the gradients are not summed over it.
    parameter = front(parameter, axes[4], n)
    parameter = aligned(parameter, 0, parameter_axes(name, p.ndim - 1))
    gradient = parameter_gradient(p, g, z, name, parameter, aligned(mask, axes[5], p.ndim - 1))
    return gradient.reshape(n, *own), 0


differentiable("parameter_gradient", _keep_parameter_gradient, _parameter_gradient_backward)
batched("parameter_gradient", _parameter_gradient_batched)
