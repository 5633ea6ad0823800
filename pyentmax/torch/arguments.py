"""Checks of what functions of tensors are called with, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import has_torch_function

from pyentmax.torch.composed import HALF

FLOATING = frozenset((*HALF, torch.float32, torch.float64))


def is_overridden(*tensors: Any) -> bool:
    """Whether one is tensor-like and takes calls, by PyTorch's protocol, as in symbolic traces."""
    return bool(set(map(type, tensors)) - {Tensor}) and has_torch_function(tensors)


def check_tensor(value: Any, name: str) -> None:
    """Raise a TypeError unless it is a dense tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a Tensor, got {type(value).__name__}; torch.as_tensor makes one"
        )
    if type(value) is not Tensor and type(value).__name__ == "DTensor":  # a class that loads slowly
        raise TypeError(
            f"{name} must be a dense Tensor, got a DTensor; pass {name}.full_tensor(), of a "
            "parameter with grad_placements=[Partial('avg')], or, where each device maps whole "
            f"rows of its own, {name}.to_local()"
        )
    if value.is_nested:
        rows = f"; its rows are {name}.values(), cut at {name}.offsets()"
        raise TypeError(
            f"{name} must be a dense Tensor, got a nested one; pad it with "
            f"{name}.to_padded_tensor(0.0), and hide the padding with a mask"
            + ("" if value.layout is torch.strided else rows)
        )
    if value.layout is not torch.strided:
        raise TypeError(
            f"{name} must be a dense Tensor, got one of layout {value.layout}; convert it with "
            f"{name}.to_dense()"
        )


def check_scores(tensor: Any, name: str) -> None:
    """Raise a TypeError unless it is a tensor of a floating dtype of at least 16 bits."""
    check_tensor(tensor, name)
    if tensor.dtype not in FLOATING:
        convert = f"convert it, for example with {name}.float()"
        if tensor.is_complex():
            convert = f"take {name}.real or {name}.abs()"
        raise TypeError(
            f"{name} must be a tensor of a floating dtype, got {tensor.dtype}; {convert}"
        )


def check_dim(dim: Any) -> None:
    """Raise a TypeError unless it is an integer."""
    if not _is_whole(dim):
        raise TypeError(f"dim must be an int, got {dim!r}")


def check_mask(mask: Any, z: Tensor | None = None) -> None:
    """Raise an error unless it is None or a bool tensor, which broadcasts to the scores, if any."""
    if mask is None:
        return
    check_tensor(mask, "mask")
    if mask.dtype != torch.bool:
        additive = "an additive mask: pass mask == 0, or add it to z"
        raise TypeError(
            f"mask must be boolean, True where a score may get probability, got {mask.dtype}; "
            + (additive if mask.is_floating_point() else "convert it with mask != 0")
        )
    if z is not None:
        check_broadcast(mask, z.shape, "mask", "z")


def check_broadcast(tensor: Tensor, shape: Any, name: str, to: str) -> None:
    """Raise a ValueError unless the tensor broadcasts to the shape."""
    sizes = zip(reversed(tensor.shape), reversed(shape), strict=False)
    # In this order a graph that leaves a size open need not know whether it is 1.
    if tensor.ndim > len(shape) or not all(_is_one(n) or n == whole for n, whole in sizes):
        raise ValueError(
            f"{name} of shape {tuple(tensor.shape)} does not broadcast to {to}, of shape "
            f"{tuple(shape)}"
        )


def _is_one(size: Any) -> bool:
    return statically_known_true(size == 1) if torch.compiler.is_compiling() else size == 1


def check_known(call: str, named: Iterable[str], known: Iterable[str] = ()) -> None:
    """Raise a TypeError unless all keywords are known."""
    for name in named:
        if name not in known:
            hint = "; of tensors it is dim" if name == "axis" else ""
            raise TypeError(f"{call} got an unexpected keyword argument {name!r}{hint}")


def refuse_axis(function: str) -> None:
    """Raise the TypeError for an ``axis``."""
    check_known(f"{function}()", ("axis",))


def check_options(
    reduction: Any, weight: Any, row_weight: Any, ignore_index: Any, label_smoothing: Any
) -> None:
    """Raise an error unless the options of a loss are what is expected."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be one of mean, sum, none, got {reduction!r}")
    for name, tensor in (("weight", weight), ("row_weight", row_weight)):
        if tensor is not None:
            check_tensor(tensor, name)
    if ignore_index is not None and not _is_whole(ignore_index):
        raise TypeError(f"ignore_index must be a whole number or None, got {ignore_index!r}")
    if isinstance(label_smoothing, Tensor) or not _is_real(label_smoothing):
        raise TypeError(f"label_smoothing must be a number in [0, 1], got {label_smoothing!r}")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing}")


# A graph knows the class of a number that it leaves open, not its methods.
def _is_whole(number: Any) -> bool:
    if isinstance(number, (int, torch.SymInt)):
        return True
    return hasattr(number, "__index__") and not isinstance(number, Tensor)


def _is_real(number: Any) -> bool:
    if isinstance(number, (int, float, torch.SymInt, torch.SymFloat)):
        return True
    return hasattr(number, "__float__")


def check_number(number: Any, name: str) -> Any:
    """The number; a TypeError unless it is a real one."""
    if isinstance(number, Tensor) or not _is_real(number):
        raise TypeError(f"{name} must be a number, got {number!r}")
    return number


def as_number(value: Any, name: str) -> float:
    """A parameter that is not a tensor as a float."""
    if not isinstance(value, str):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    raise TypeError(f"{name} must be a number or a Tensor, got {type(value).__name__}")


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype that autocast casts to on a device; None where it is off, or does not exist."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return None


def as_input(number: Any, like: Tensor) -> Any:
    """A float as a 0-dim tensor: a graph would hold the float as a constant."""
    if isinstance(number, float):
        return like.new_ones((), dtype=torch.float64) * number
    return number


def scores_of_loss(z: Tensor) -> Tensor:
    """The scores in float32 under autocast: there losses return float32, as PyTorch's own do."""
    if z.dtype in HALF and autocast_dtype(z.device) is not None:
        return z.float()
    return z
