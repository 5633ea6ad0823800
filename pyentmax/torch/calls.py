"""What holds for every mapping and loss of tensors: checks, dimensions, parameters, options.

`apply`, `apply_support` and `apply_loss` take the name of a mapping, as the operations do that they
call; the functions of `mappings`, `losses` and `log_probabilities` are a line above these.
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
from pyentmax.torch.offsets import Cut, loss_of_rows
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
    class_weight: Tensor | None


class LossOptions(ModuleOptions, total=False):
    """The options of a loss; `softmax_loss` explains them."""

    weight: Tensor | None
    mask: Tensor | None
    offsets: Tensor | None


LOSS_OPTIONS = tuple(LossOptions.__annotations__)


def apply(
    name: str,
    z: Tensor,
    value: Any,
    dim: int,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """A mapping, or log p, by its name along a dimension, which `offsets` may cut into rows.

    The parameter is a number, a tensor or None.
    """
    if dim == -1 and offsets is None and isinstance(z, Tensor) and is_unwatched((z, value, mask)):
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
        options = {"mask": mask, "dtype": dtype, "offsets": offsets}
        return handle_torch_function(apply, (z,), name, z, value, dim, **options)
    if dtype is not None:
        check_tensor(z, "z")
        z = z.to(dtype)
    check_scores(z, "z")
    check_mask(mask, z)
    if offsets is not None:
        return _apply_cut("mapping", name, z, value, dim, mask, offsets)
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
    offsets: Tensor | None = None,
) -> Tensor:
    """Where a mapping gives probability, as for `apply`."""
    if is_overridden(z):
        options = {"mask": mask, "offsets": offsets}
        return handle_torch_function(apply_support, (z,), name, z, value, dim, **options)
    check_scores(z, "z")
    check_mask(mask, z)
    if offsets is not None:
        return _apply_cut("support", name, z.detach(), value, dim, mask, offsets)
    z, value, mask = _dim_last(name, z.detach(), value, mask, dim)
    result: Tensor = operations.support(z, name, *split(name, value), mask)
    return result.movedim(-1, dim).contiguous()


@torch.compiler.disable
def _apply_cut(
    operation: str, name: str, z: Tensor, value: Any, dim: int, mask: Tensor | None, offsets: Tensor
) -> Tensor:
    """An operation on the rows of scores whose dimension is cut."""
    cut = Cut(offsets, z, dim)
    parameter, number = split(name, value)
    per_score = operations.per_score(name)
    if parameter is not None:
        shape, what = (cut.shape, "z") if per_score else (cut.batch, "the rows")
        check_broadcast(parameter, shape, "the parameter", what)

    def call(live: Tensor, z: Tensor, mask: Any, own: Any) -> Tensor:
        live = live if mask is None else live & mask
        if operation == "mapping":
            return apply_to_rows(name, z, own, live)
        result: Tensor = operations.support(z, name, *split(name, own), live)
        return result

    def padded(z: Tensor, parameter: Any) -> Tensor:
        if not z.numel():
            return z.clone() if operation == "mapping" else z.bool()
        value = number if parameter is None else parameter
        entries, numbers = ((z, mask, value), ()) if per_score else ((z, mask), (value,))
        return cut.map_rows(call, entries, numbers)

    if not operations.takes_arrays(z, parameter, mask):
        return padded(z, parameter)
    setting = name, parameter, number, mask, cut
    return operations.mapping_of_cut(operation, padded, z, *setting)


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
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    class_weight: Tensor | None = None,
    offsets: Tensor | None = None,
    **unknown: Any,
) -> Tensor:
    """The loss of a mapping by its name, or the one-vs-all loss."""
    check_known(f"{name}_loss()", unknown)
    options = {"reduction": reduction, "weight": weight, "mask": mask}
    options |= {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    options |= {"class_weight": class_weight, "offsets": offsets}
    if is_overridden(z, y):
        return handle_torch_function(apply_loss, (z, y), name, z, y, value, dim, **options)
    check_scores(z, "z")
    check_tensor(y, "y")
    check_mask(mask, z)
    check_options(reduction, weight, ignore_index, label_smoothing)
    z = scores_of_loss(z)
    if isinstance(value, Tensor) and value.requires_grad:
        raise TypeError(
            f"{name}_loss has no gradient in {PARAMETERS[name]}: pass a number, or detach() the "
            "tensor"
        )
    if y.requires_grad and name not in (*composed.NAMES, "one_vs_all"):
        raise TypeError(f"{name}_loss has no gradient in y: detach() the targets")
    learned = weight is not None and weight.requires_grad
    if offsets is not None:
        if class_weight is not None or name == "one_vs_all":
            raise TypeError("offsets is not for class_weight or one-vs-all losses")
        each = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}

        def rows(z: Tensor, y: Tensor, value: Any, weight: Any, mask: Tensor) -> Tensor:
            options = {"weight": weight, "mask": mask, "reduction": "none", **each}
            return apply_loss(name, z, y, value, -1, **options)

        rest = weight, mask, reduction, ignore_index
        return loss_of_rows(rows, Cut(offsets, z, dim), z, y, value, *rest)
    smoothing = None
    if label_smoothing:
        smoothing = torch.ones((), dtype=composed.wide(z).dtype) * label_smoothing
    if torch.compiler.is_compiling():
        value = as_input(value, z)
    if dim not in (-1, z.ndim - 1):
        y = y.movedim(dim, -1) if y.ndim == z.ndim else y
        z, value, mask = _dim_last(name, z, value, mask, dim)
    if class_weight is not None:
        check_tensor(class_weight, "class_weight")
        of_rows = composed.class_weights(z, y, class_weight, mask, soft=name != "one_vs_all")
        weight = of_rows if weight is None else weight * of_rows
    parameter, number = split(name, value)
    setting = (z, y, name, parameter, number)
    if name in (*composed.NAMES, "one_vs_all") and in_transform():
        graph: tuple[Any, ...] = (weight, mask, reduction, ignore_index, smoothing)
        graph += (operations.differentiable,)
        return composed.loss_and_gradient(z, y, name, value, *graph)[0].to(z.dtype)
    if not learned and z.dtype not in composed.HALF:
        return operations.loss(*setting, weight, mask, reduction, ignore_index, smoothing)
    # The operation reduces by weights that are constant. It keeps p − q in the scores' type, which
    # shares and the upstream gradient multiply later, so that float16 does not lose what is small.
    scale = 2.0**15 if z.dtype == torch.float16 else 1.0
    positive = None if scale == 1 else z.new_full((), scale, dtype=torch.float32)
    if weight is not None:
        positive = torch.where(weight != 0, scale, 0.0)
    each = operations.loss(*setting, positive, mask, "none", ignore_index, smoothing)
    counts = _counted(name, z, y, mask, ignore_index)
    share = composed.shares(counts, weight, reduction, each) / scale
    return composed.reduced(each, share, reduction).to(z.dtype)


def _counted(
    name: str, z: Tensor, y: Tensor, mask: Tensor | None, ignore_index: int | None
) -> Tensor:
    """Which rows count: those with a score left, and a label that is not ignored."""
    if name == "one_vs_all":
        live = torch.ones_like(z, dtype=torch.bool) if mask is None else mask.expand_as(z)
        if ignore_index is not None and y.ndim == z.ndim:
            live = live & (y != ignore_index)
        counts = live.any(-1)
    else:
        z = z.detach() if mask is None else z.detach().masked_fill(~mask, -torch.inf)
        counts = z.amax(-1) != -torch.inf
    if ignore_index is not None and y.ndim < z.ndim:
        counts = counts & (y != ignore_index)
    return counts


# --- parameters and dimensions --------------------------------------------------------------------


def parameter_of(mapping: str) -> str | None:
    """The name of a mapping's parameter; None if it has none."""
    if mapping not in MAPPINGS:
        raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
    return PARAMETERS[mapping]


def chosen(call: str, mapping: str, named: dict[str, Any], known: Iterable[str] = ()) -> Any:
    """The value of a mapping's parameter, which is taken out of `named`, or its default."""
    parameter = parameter_of(mapping)
    value = None if parameter is None else named.pop(parameter, DEFAULTS[mapping])
    check_known(call, named, known)
    if value is MISSING:
        raise TypeError(f"{call} missing a required argument: {parameter!r}")
    return value


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
