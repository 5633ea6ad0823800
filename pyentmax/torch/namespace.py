"""PyTorch's functions as `pyentmax.reference.composed` and the bodies of `pyentmax.keep` call them.

Most are those of `torch`, which take `axis` and `keepdims` as NumPy's do; the rest is what
frameworks do differently. Nothing waits for a value on a device, so that loops have a fixed length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

abs, all, amin, any, argsort = torch.abs, torch.all, torch.amin, torch.any, torch.argsort
clip, cumsum, exp, expm1 = torch.clip, torch.cumsum, torch.exp, torch.expm1
finfo, floor, inf, isfinite = torch.finfo, torch.floor, torch.inf, torch.isfinite
isnan, log, log1p, minimum, nan = torch.isnan, torch.log, torch.log1p, torch.minimum, torch.nan
ones_like, sqrt, stack, sum = torch.ones_like, torch.sqrt, torch.stack, torch.sum
where, zeros_like = torch.where, torch.zeros_like


def amax(x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
    """The largest, NaN where there is one, which ONNX Runtime's ReduceMax loses."""
    top = torch.amax(x, axis, keepdims)
    if torch.onnx.is_in_onnx_export():
        top = where(torch.isnan(x).any(axis, keepdims), torch.nan, top)
    return top


def sort(x: Tensor, axis: int = -1) -> Tensor:
    return torch.sort(x, dim=axis).values


def falling(x: Tensor) -> Tensor:
    """Rows sorted to fall."""
    return torch.sort(x, descending=True).values


def take_along_axis(x: Tensor, index: Tensor, axis: int = -1) -> Tensor:
    """x at places along its last axis, of which those beyond the last are the last."""
    index = index.expand(*x.shape[:axis], index.shape[axis])
    return x.gather(axis, index.clamp(max=x.shape[axis] - 1))


def as_index(x: Tensor) -> Tensor:
    """Whole numbers as places."""
    return x.long()


def places(x: Tensor, dtype: torch.dtype, start: int = 0) -> Tensor:
    """0, 1, … along the last axis, to be broadcast to x; or from another start."""
    return torch.arange(start, start + x.shape[-1], dtype=dtype, device=x.device)


def indicator(condition: Tensor, like: Tensor) -> Tensor:
    """1 where the condition holds, and 0 elsewhere."""
    return condition.to(like.dtype)


def softmax(x: Tensor) -> Tensor:
    """Softmax of rows with their maximum at 0."""
    return torch.softmax(x, -1)


def at_largest(x: Tensor, by: Tensor) -> Tensor:
    """The entry of each row of x where another array has its largest."""
    return x.gather(-1, by.detach().argmax(-1, keepdim=True))


def detach(x: Tensor) -> Tensor:
    """Without its derivative."""
    return x.detach()


def largest(x: Tensor) -> Tensor:
    """The largest of all, 0 of none, without its derivative."""
    return x.detach().amax() if x.numel() else x.new_zeros(())


def row_sums(*terms: Tensor) -> list[Tensor]:
    """Sums of arrays over their rows."""
    return [x.sum(-1, keepdim=True) for x in terms]


def newton(step: Callable[..., Any], unfinished: Any, x: Tensor, start: Any) -> Tensor:
    """τ of rows, here one of Newton's steps after the start, which is τ but for rounding.

    ONNX's sort takes seven times as long as the steps from max x − 1 = −1 instead, which are enough
    for a million scores that tie.
    """
    if not torch.onnx.is_in_onnx_export():
        tau: Tensor = start()
        return tau + step(tau)[0]
    tau = torch.full_like(x[..., :1], -1)
    for _ in range(16):
        tau = tau + step(tau)[0]
    return tau


def level_of_sum_1(
    p_at: Callable[[Tensor], Tensor], step: Any, low: Tensor, high: Tensor
) -> Tensor:
    """Where the rows of p_at(level), which falls, sum to 1, between two levels; here by halving."""
    for _ in range(math.ceil(-math.log2(torch.finfo(low.dtype).eps)) + 4):
        middle = low + (high - low) / 2
        above = p_at(middle).sum(-1, keepdim=True) >= 1
        low, high = where(above, middle, low), where(above, high, middle)
    return low


def level_by_newton(
    p_at: Callable[[Tensor], Tensor], step: Callable[..., Tensor], low: Tensor, high: Tensor
) -> Tensor:
    """The same for 1 < α ≤ 2 by Newton's steps, which rise to it.

    Rows of 3,000 normal scores took 9 at most, of 200,000 scores 13, the one that follows included.
    """
    level = low
    for _ in range(12):
        p = p_at(level)
        level = torch.minimum(level + step(level, p, p.sum(-1, keepdim=True)), high)
    return level
