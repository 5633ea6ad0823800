"""Fenchel-Young losses as an operation: (loss, ∇L = p − q), reduced as the options say.

The gradient is found with the loss. It is a result, too, so that it can be differentiated: its
derivative is the Jacobian of the mapping.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyentmax import fenchel_young_loss_and_grad
from pyentmax.mappings import MAPPINGS
from pyentmax.torch.arrays import HALF, on_arrays
from pyentmax.torch.mapping_operations import mapping, product
from pyentmax.torch.registry import (
    PARAMETER,
    batched,
    defined,
    differentiable,
    one_by_one,
    values_of,
)

OPTIONS = "Tensor? weight, Tensor? mask, str reduction, int? ignore_index, float label_smoothing"


def _loss(
    z: Tensor,
    y: Tensor,
    name: str,
    parameter: Any,
    number: Any,
    weight: Any,
    mask: Any,
    reduction: str,
    ignore_index: int | None,
    label_smoothing: float,
) -> Any:
    values = values_of(name, parameter, number)
    return on_arrays(
        fenchel_young_loss_and_grad,
        z,
        y,
        name,
        weight=weight,
        mask=mask,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        **dict(zip(MAPPINGS[name].parameters, values, strict=True)),
    )


def _loss_fake(z: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    reduction = rest[-3]
    return z.new_empty(z.shape[:-1] if reduction == "none" else ()), z.new_empty(z.shape)


loss = defined(
    "loss",
    f"(Tensor z, Tensor y, str name, {PARAMETER}, {OPTIONS}) -> (Tensor, Tensor)",
    _loss,
    _loss_fake,
)


def _keep_loss(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    z, y, ctx.name, parameter, ctx.number, weight, mask, reduction, ignore_index, _ = inputs
    ctx.reduction, ctx.ignore_index = reduction, ignore_index
    ctx.save_for_backward(output[1], z, y, parameter, weight, mask)
    ctx.set_materialize_grads(False)


def _loss_backward(ctx: Any, g: Any, g_gradient: Any) -> tuple[Any, ...]:
    gradient, z, y, parameter, weight, mask = ctx.saved_tensors
    in_z = None
    if g is not None:
        in_z = gradient * (g.unsqueeze(-1) if ctx.reduction == "none" else g)
    if g_gradient is not None:  # of a second derivative
        share = _shares(z, y, weight, mask, ctx.reduction, ctx.ignore_index)
        p = mapping(z, ctx.name, parameter, ctx.number, mask)
        moved = product(p, g_gradient, ctx.name, parameter, ctx.number, mask)
        share = share.unsqueeze(-1)
        moved = torch.where(share == 0, 0, share * moved).to(z.dtype)
        in_z = moved if in_z is None else in_z + moved
    return in_z, *(None,) * 9


def _shares(
    z: Tensor, y: Tensor, weight: Any, mask: Any, reduction: str, ignore_index: int | None
) -> Tensor:
    """What each row's loss counts in the whole."""
    live = z > -torch.inf if mask is None else (z > -torch.inf) & mask
    dtype = torch.float32 if z.dtype in HALF else z.dtype  # float16 counts to 65504
    share = z.new_ones(z.shape[:-1]) if weight is None else weight
    share = share.to(dtype)
    share = torch.where(live.any(-1), share, 0)
    if ignore_index is not None:
        share = torch.where(y.long() == ignore_index, 0, share)
    if reduction != "mean":
        return share
    total = share.sum()
    return share / torch.where(total == 0, 1, total)


def _loss_batched(info: Any, axes: Any, *args: Any) -> tuple[Any, tuple[int, int]]:
    # One by one: the mean of each is its own.
    return one_by_one(loss, info.batch_size, axes, args), (0, 0)


differentiable("loss", _keep_loss, _loss_backward)
batched("loss", _loss_batched)
