"""Checks and argument handling shared by all mappings and losses of tensors.

`apply`, `apply_support` and `apply_loss` take the name of a mapping, like the operations that they
call; the objects of `mappings` are one line each on top of these.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from pyentmax import MAPPINGS
from pyentmax.torch import composed, operations
from pyentmax.torch.arguments import (
    as_input,
    as_number,
    check_broadcast,
    check_dim,
    check_known,
    check_mask,
    check_options,
    check_scores,
    check_tensor,
    is_overridden,
    scores_of_loss,
)
from pyentmax.torch.operations import PARAMETERS
from pyentmax.torch.registry import in_transform, is_unwatched

MISSING = inspect.Parameter.empty
DEFAULTS = {
    name: inspect.signature(MAPPINGS[name]).parameters[parameter].default
    for name, parameter in PARAMETERS.items()
    if parameter is not None and name in MAPPINGS
}


class ModuleOptions(TypedDict, total=False):
    """The options of a loss that do not change with each call, which its module has."""

    reduction: Literal["mean", "sum", "none"]
    ignore_index: int | None
    label_smoothing: float
    weight: Tensor | None


class LossOptions(ModuleOptions, total=False):
    """The options of a loss; `Loss` of `mappings` explains them."""

    row_weight: Tensor | None
    mask: Tensor | None


LOSS_OPTIONS = tuple(LossOptions.__annotations__)


def apply(
    name: str,
    z: Tensor,
    value: Any,
    dim: int,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """A mapping, or log p, by its name along a dimension; `value` is its parameter, or None."""
    if dim == -1 and isinstance(z, Tensor) and is_unwatched((z, value, mask)):
        z = z if dtype is None else z.to(dtype)
        check_scores(z, "z")
        parameter, number = split(name, value)
        if mask is None and not (z.requires_grad and torch.is_grad_enabled()):
            p = operations.mapping_of_few(z, name, parameter, number)
            if p is not None:
                return p
        check_mask(mask, z)
        mapping: Any = operations.mapping
        result: Tensor = mapping.directly(z, name, parameter, number, mask)
        return result
    if is_overridden(z):
        return handle_torch_function(apply, (z,), name, z, value, dim, mask=mask, dtype=dtype)
    z = _checked(z, mask, dtype)
    if dim in (-1, z.ndim - 1):
        return apply_to_rows(name, z, value, mask)
    p = apply_to_rows(name, *_dim_last(name, z, value, mask, dim))
    return p.movedim(-1, dim).contiguous()  # as softmax: whoever calls view() needs it


def apply_support(
    name: str,
    z: Tensor,
    value: Any,
    dim: int,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Where a mapping gives probability, as for `apply`."""
    if is_overridden(z):
        options = {"mask": mask, "dtype": dtype}
        return handle_torch_function(apply_support, (z,), name, z, value, dim, **options)
    z = _checked(z, mask, dtype).detach()
    z, value, mask = _dim_last(name, z, value, mask, dim)
    result: Tensor = operations.support(z, name, *split(name, value), mask)
    return result.movedim(-1, dim).contiguous()


def _checked(z: Tensor, mask: Tensor | None, dtype: torch.dtype | None) -> Tensor:
    """Scores, converted if asked for."""
    if dtype is not None:
        check_tensor(z, "z")
        z = z.to(dtype)
    check_scores(z, "z")
    check_mask(mask, z)
    return z


def apply_to_rows(name: str, z: Tensor, value: Any, mask: Tensor | None) -> Tensor:
    """A mapping along the last dimension, of arguments that are checked."""
    if torch.compiler.is_compiling():
        if in_onnx_export():
            return composed.mapping(z, name, value, mask)
        value = as_input(value, z)
    if name in composed.DIFFERENTIABLE and in_transform():
        return operations.differentiable(z, name, value, mask)
    result: Tensor = operations.mapping(z, name, *split(name, value), mask)
    return result


def in_onnx_export() -> bool:
    """Whether a graph is traced for ONNX, which knows PyTorch's own operations only."""
    return torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()


def apply_loss(
    name: str,
    z: Tensor,
    y: Tensor,
    value: Any,
    dim: int,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    row_weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The loss of a mapping by its name."""
    if is_overridden(z, y):
        options = {"reduction": reduction, "weight": weight, "row_weight": row_weight, "mask": mask}
        options |= {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
        return handle_torch_function(apply_loss, (z, y), name, z, y, value, dim, **options)
    z = checked_loss(z, y, mask, reduction, weight, row_weight, ignore_index, label_smoothing)
    if isinstance(value, Tensor) and value.requires_grad:
        raise TypeError(
            f"{name}.loss has no gradient in {PARAMETERS[name]}: pass a number, or detach() the "
            "tensor"
        )
    if y.requires_grad and name not in composed.NAMES:
        raise TypeError(f"{name}.loss has no gradient in y: detach() the targets")
    smoothing = None
    if label_smoothing:
        smoothing = torch.ones((), dtype=composed.wide(z).dtype) * label_smoothing
    if torch.compiler.is_compiling():
        value = as_input(value, z)
    if dim not in (-1, z.ndim - 1):
        y = y.movedim(dim, -1) if y.ndim == z.ndim else y
        z, value, mask = _dim_last(name, z, value, mask, dim)
    if weight is not None:
        row_weight = weights_of_rows(weight, row_weight, y, z.shape)
    parameter, number = split(name, value)
    setting = (z, y, name, parameter, number)
    if name in composed.NAMES and in_transform():
        graph: tuple[Any, ...] = (row_weight, mask, reduction, ignore_index, smoothing)
        graph += (operations.differentiable,)
        return composed.loss_and_gradient(z, y, name, value, *graph)[0].to(z.dtype)
    learned = row_weight is not None and row_weight.requires_grad
    if not learned and z.dtype not in composed.HALF:
        return operations.loss(*setting, row_weight, mask, reduction, ignore_index, smoothing)
    # The operation reduces by weights that are constant. It keeps p − q in the scores' type, which
    # shares and the upstream gradient multiply later, so that float16 does not lose what is small.
    scale = 2.0**15 if z.dtype == torch.float16 else 1.0
    positive = None if scale == 1 else z.new_full((), scale, dtype=torch.float32)
    if row_weight is not None:
        positive = torch.where(row_weight != 0, scale, 0.0)
    each = operations.loss(*setting, positive, mask, "none", ignore_index, smoothing)
    live = z.detach() if mask is None else z.detach().masked_fill(~mask, -torch.inf)
    counts = live.amax(-1) != -torch.inf
    if ignore_index is not None and y.ndim < z.ndim:
        counts = counts & (y != ignore_index)
    share = composed.shares(counts, row_weight, reduction, each) / scale
    return composed.reduced(each, share, reduction).to(z.dtype)


def checked_loss(z: Tensor, y: Tensor, mask: Tensor | None, *options: Any) -> Tensor:
    """The scores of a loss, whose arguments have the right types."""
    check_scores(z, "z")
    check_tensor(y, "y")
    check_mask(mask, z)
    check_options(*options)
    return scores_of_loss(z)


def weights_of_rows(
    weight: Tensor, row_weight: Tensor | None, y: Tensor, shape: tuple[int, ...]
) -> Tensor:
    """The weight of each row: that of its label's class, times its own."""
    if weight.shape != shape[-1:]:
        raise ValueError(
            f"weight must have the shape ({shape[-1]},), one weight for each class, got shape "
            f"{tuple(weight.shape)}; row_weight= has one for each row"
        )
    if y.shape == shape or y.is_floating_point():
        raise ValueError("weight is for integer labels; for distributions pass row_weight=")
    of_labels = weight[y.long().clamp(0, shape[-1] - 1)]  # other labels are ignored, or wrong
    return of_labels if row_weight is None else of_labels * row_weight


# --- parameters and dimensions --------------------------------------------------------------------


def name_of(mapping: Any) -> str:
    """The name of a mapping of `pyentmax.MAPPINGS`, given as such or as an object."""
    name = getattr(mapping, "name", mapping)
    ours = name is mapping or mapping.__module__.startswith("pyentmax.")
    if not ours or name not in MAPPINGS:
        raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
    return name


def chosen(
    call: str, mapping: Any, named: dict[str, Any], known: Iterable[str] = ()
) -> tuple[str, Any]:
    """A mapping's name, and the value of its parameter, taken out of `named`, or its default."""
    name = name_of(mapping)
    parameter = PARAMETERS[name]
    value = None if parameter is None else named.pop(parameter, DEFAULTS[name])
    check_known(call, named, known)
    if value is MISSING:
        raise TypeError(f"{call} missing a required argument: {parameter!r}")
    return name, value


def split(mapping: str, value: Any) -> tuple[Tensor | None, float | None]:
    """The parameter as a tensor or as a number."""
    name = PARAMETERS[mapping]
    if name is None:
        return None, None
    if isinstance(value, Tensor):
        return value, None
    return None, value if isinstance(value, (int, float)) else as_number(value, name)


def _dim_last(
    name: str, z: Tensor, value: Any, mask: Tensor | None, dim: int
) -> tuple[Tensor, Any, Tensor | None]:
    """Scores with the dimension last, and what belongs to each of them."""
    check_dim(dim)
    if isinstance(value, Tensor) and operations.per_score(name):
        check_broadcast(value, z.shape, str(PARAMETERS[name]), "z")
        value = value.expand(z.shape).movedim(dim, -1)
    if mask is not None:
        mask = mask.expand(z.shape).movedim(dim, -1)
    if z.requires_grad and z.is_contiguous():
        z = z.reshape(-1).view(z.shape)  # whose derivative makes the gradient contiguous, too
    return z.movedim(dim, -1), value, mask
