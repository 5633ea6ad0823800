"""The mappings and losses as functions of tensors, named as in `pyentmax`.

They are made from `pyentmax.MAPPINGS`: for a mapping ``NAME``, ``NAME(z, …, dim=-1, *, mask=None)``
and, where it has an Ω, ``NAME_loss(z, y, …, dim=-1, *, reduction="mean", …)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from pyentmax import MAPPINGS
from pyentmax.calls.documentation import F
from pyentmax.torch import composed, operations
from pyentmax.torch.arguments import (
    as_input,
    as_number,
    check_broadcast,
    check_dim,
    check_mask,
    check_options,
    check_rows_are_whole,
    check_scores,
    check_tensor,
    is_distributed,
    is_overridden,
    scores_of_loss,
)
from pyentmax.torch.operations import PARAMETERS
from pyentmax.torch.registry import in_transform

MISSING = inspect.Parameter.empty
DEFAULTS = {
    name: inspect.signature(MAPPINGS[name].forward).parameters[parameter].default
    for name, parameter in PARAMETERS.items()
    if parameter is not None and name in MAPPINGS
}


RESULT = "Tensor of z's shape and dtype; zeros in a row with nothing left"


DTYPE = """
    dtype : torch.dtype, optional
        to which z is converted first, as by `torch.softmax`"""


def _mapping_function(name: str, ending: str = "") -> Callable[..., Tensor]:
    """The mapping, or its support."""
    parameter, default = parameter_of(name)
    run, title = apply_support if ending else apply, f"{name}{ending}"
    described = MAPPINGS[name].support if ending else MAPPINGS[name].forward

    def without(z: Tensor, dim: int = -1, **options: Any) -> Tensor:
        return with_parameter(z, MISSING, dim, **options)

    def with_parameter(z: Tensor, value: Any = MISSING, dim: int = -1, **options: Any) -> Tensor:
        known = MAPPING_OPTIONS[: 1 if ending else None]  # a support has no dtype
        value = chosen(f"{title}()", parameter, default, value, options, known)
        return run(name, z, value, dim, **options)

    function: Callable[..., Tensor] = without if parameter is None else with_parameter
    function.__doc__ = f"""{(described.__doc__ or "").partition(chr(10))[0]}

    Along ``dim``{"" if ending else ", with its derivatives"}; `pyentmax.{title}` says more.

    Parameters
    ----------
    z : Tensor of scores
{_described(name, parameter)}    dim : int, default -1
        along which the rows lie
    mask : bool Tensor that broadcasts to z, optional
        True where a score may get probability{"" if ending else DTYPE}

    Returns
    -------
    {"bool Tensor of z's shape" if ending else RESULT}
    """
    return with_tensors(_named(function, title, ["z"], parameter, default, run))


def _loss_function(name: str) -> Callable[..., Tensor]:
    parameter, default = parameter_of(name)

    def without(z: Tensor, y: Tensor, dim: int = -1, **options: Any) -> Tensor:
        return with_parameter(z, y, MISSING, dim, **options)

    def with_parameter(
        z: Tensor, y: Tensor, value: Any = MISSING, dim: int = -1, **options: Any
    ) -> Tensor:
        value = chosen(f"{name}_loss()", parameter, default, value, options, LOSS_OPTIONS)
        return apply_loss(name, z, y, value, dim, **options)

    function: Callable[..., Tensor] = without if parameter is None else with_parameter
    function.__doc__ = f"""The Fenchel-Young loss of `pyentmax.{name}`, with its derivatives.

    Parameters
    ----------
    z : Tensor of scores
    y : Tensor of integer labels, of z's shape without ``dim``, or of distributions like z
{_described(name, parameter)}    dim : int, default -1
        along which the classes lie
    reduction, weight, mask, ignore_index, label_smoothing, class_weight : as in `LossOptions`

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each row
    """
    # The functions above read `name` when they are called.
    title = f"{name}_loss"
    return with_tensors(_named(function, title, ["z", "y"], parameter, default, apply_loss))


def apply(
    name: str,
    z: Tensor,
    value: Any,
    dim: int,
    log: bool = False,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """A mapping by its name along a dimension, its parameter a number, a tensor or None.

    With `log`, the logarithm of that.
    """
    if is_overridden(z):
        return handle_torch_function(apply, (z,), name, z, value, dim, log, mask=mask, dtype=dtype)
    if dtype is not None:
        check_tensor(z, "z")
        z = z.to(dtype)
    check_scores(z, "z")
    check_mask(mask, z)
    value, mask = _whole(name, z, value, mask, dim)
    if dim in (-1, z.ndim - 1):
        return apply_to_rows(name, z, value, mask, log)
    return apply_to_rows(name, *_dim_last(name, z, value, mask, dim), log).movedim(-1, dim)


def apply_support(
    name: str, z: Tensor, value: Any, dim: int, *, mask: Tensor | None = None
) -> Tensor:
    """Where a mapping gives probability, as for `apply`."""
    if is_overridden(z):
        return handle_torch_function(apply_support, (z,), name, z, value, dim, mask=mask)
    check_scores(z, "z")
    check_mask(mask, z)
    value, mask = _whole(name, z, value, mask, dim)
    z, value, mask = _dim_last(name, z.detach(), value, mask, dim)
    result: Tensor = operations.support(z, name, *split(name, value), mask)
    return result.movedim(-1, dim)


def apply_to_rows(
    name: str, z: Tensor, value: Any, mask: Tensor | None, log: bool = False
) -> Tensor:
    """A mapping along the last dimension, of arguments that are checked."""
    if torch.compiler.is_compiling():
        if in_onnx_export():
            return (composed.log_mapping if log else composed.mapping)(z, name, value, mask)
        value = as_input(value, z)
        if name in composed.NAMES and in_transform():
            return operations.differentiable(z, name, value, mask, log=log)
    operation = operations.log_mapping if log else operations.mapping
    return operation(z, name, *split(name, value), mask)


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
) -> Tensor:
    """The loss of a mapping by its name, or the one-vs-all loss."""
    options = {"reduction": reduction, "weight": weight, "mask": mask}
    options |= {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    options["class_weight"] = class_weight
    if is_overridden(z, y):
        return handle_torch_function(apply_loss, (z, y), name, z, y, value, dim, **options)
    check_scores(z, "z")
    check_tensor(y, "y")
    check_mask(mask, z)
    check_options(reduction, weight, ignore_index, label_smoothing)
    z = scores_of_loss(z)
    smoothing = None
    if label_smoothing:
        smoothing = torch.ones((), dtype=composed.wide(z).dtype) * label_smoothing
    if torch.compiler.is_compiling():
        value = as_input(value, z)
    value, mask = _whole(name, z, value, mask, dim)
    if weight is not None and is_distributed(z):
        weight = weight.expand(y.shape if y.ndim < z.ndim else _batch(z, dim))
    if dim not in (-1, z.ndim - 1):
        y = y.movedim(dim, -1) if y.ndim == z.ndim else y
        z, value, mask = _dim_last(name, z, value, mask, dim)
    if class_weight is not None:
        check_tensor(class_weight, "class_weight")
        of_rows = composed.class_weights(z, y, class_weight, mask, soft=name != "one_vs_all")
        weight = of_rows if weight is None else weight * of_rows
    parameter, number = split(name, value)
    if parameter is not None and parameter.requires_grad:
        raise TypeError(
            f"{name}_loss has no gradient in {PARAMETERS[name]}: pass a number, or detach() the "
            "tensor"
        )
    if y.requires_grad and name not in (*composed.NAMES, "one_vs_all"):
        raise TypeError(f"{name}_loss has no gradient in y: detach() the targets")
    setting = (z, y, name, parameter, number)
    if name in (*composed.NAMES, "one_vs_all") and in_transform():
        rest = weight, mask, reduction, ignore_index, smoothing, operations.differentiable
        return composed.loss_and_gradient(z, y, name, value, *rest)[0]
    learned = weight is not None and weight.requires_grad
    if not learned and (reduction == "none" or not is_distributed(z)):
        return operations.loss(*setting, weight, mask, reduction, ignore_index, smoothing)
    if is_distributed(z):  # a loss for each row stays where its row is, and PyTorch adds them up
        each = operations.loss(*setting, weight, mask, "none", ignore_index, smoothing)
        total = composed.wide(each).sum()
        if reduction == "mean":
            count = _counted(z, y, mask, ignore_index, weight).sum()
            total = total / count.where(count > 0, torch.ones_like(count))
        return total.to(z.dtype)
    # The operation reduces by weights that are constant.
    positive = None if weight is None else (weight != 0).to(weight.dtype)
    each = operations.loss(*setting, positive, mask, "none", ignore_index, smoothing)
    each = composed.wide(each)
    _, counts, _ = composed.targets(z, y, name, mask, ignore_index, None)
    counts = counts.any(-1) if name == "one_vs_all" else counts
    share = composed.shares(counts, weight, reduction, each)
    return composed.reduced(each, share, reduction).to(z.dtype)


def _counted(
    z: Tensor, y: Tensor, mask: Tensor | None, ignore_index: int | None, weight: Tensor | None
) -> Tensor:
    """What each row of a DTensor counts in a mean: those with a score left and a label."""
    live = z.detach() != -torch.inf
    live = live if mask is None else live & mask
    if ignore_index is not None and y.ndim == z.ndim and not y.is_floating_point():
        live = live & (y != ignore_index)
    counts = live.any(-1)
    if ignore_index is not None and y.ndim < z.ndim:
        counts = counts & (y != ignore_index)
    counts = composed.wide(counts.to(z.dtype))
    return counts if weight is None else counts * weight


def fenchel_young_loss(
    z: Tensor, y: Tensor, mapping: str = "entmax15", dim: int = -1, **options: Any
) -> Tensor:
    """The Fenchel-Young loss of any mapping in `pyentmax.MAPPINGS` that has an Ω.

    Parameters
    ----------
    z : Tensor of scores
    y : Tensor of integer labels, of z's shape without ``dim``, or of distributions like z
    mapping : str
    dim : int, default -1
        along which the classes lie
    **options
        those of the losses, and the mapping's parameter by its name
    """
    parameter, default = parameter_of(mapping)
    value = chosen("fenchel_young_loss()", parameter, default, MISSING, options, LOSS_OPTIONS)
    return apply_loss(mapping, z, y, value, dim, **options)


# --- parameters and dimensions --------------------------------------------------------------------


def parameter_of(mapping: str) -> tuple[str | None, Any]:
    """The name of a mapping's parameter, and its default; None if it has none."""
    if mapping not in MAPPINGS:
        raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
    name = PARAMETERS[mapping]
    if name is None:
        return None, MISSING
    return name, DEFAULTS[mapping]


def chosen(
    call: str,
    parameter: str | None,
    default: Any,
    value: Any,
    named: dict[str, Any],
    options: Iterable[str] = (),
) -> Any:
    """The parameter's value, by position or by its name, which is taken out of `named`."""
    if parameter in named:
        if value is not MISSING:
            raise TypeError(f"{call} got two values for {parameter}")
        value = named.pop(parameter)
    for name in named:
        if name not in options:
            raise TypeError(f"{call} got an unexpected keyword argument {name!r}")
    if parameter is None:
        return None
    value = default if value is MISSING else value
    if value is MISSING:
        raise TypeError(f"{call} missing a required argument: {parameter!r}")
    return value


def split(mapping: str, value: Any) -> tuple[Tensor | None, float | None]:
    """The parameter as a tensor or as a number."""
    name = PARAMETERS[mapping]
    if name is None:
        return None, None
    return (value, None) if isinstance(value, Tensor) else (None, as_number(value, name))


def _batch(z: Tensor, dim: int) -> tuple[int, ...]:
    dim %= z.ndim
    return (*z.shape[:dim], *z.shape[dim + 1 :])


def _whole(
    name: str, z: Tensor, value: Any, mask: Tensor | None, dim: int
) -> tuple[Any, Tensor | None]:
    """The parameter and the mask in full where z is a DTensor, whose rules go by their shapes."""
    if is_distributed(z):
        check_rows_are_whole(z, dim)
        if isinstance(value, Tensor):
            value = value.expand(z.shape if operations.per_score(name) else _batch(z, dim))
        mask = None if mask is None else mask.expand(z.shape)
    return value, mask


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
    return z.movedim(dim, -1), value, mask


# --- names ----------------------------------------------------------------------------------------


def with_tensors(function: F) -> F:
    """What its docstring says of arrays, said of tensors."""
    text = function.__doc__ or ""
    function.__doc__ = text.replace(" array", " Tensor").replace("the axis", "``dim``")
    return function


def _described(name: str, parameter: str | None) -> str:
    if parameter is None:
        return ""
    return f"    {parameter} : as in `{name}`\n"


def _named(
    function: Callable[..., Tensor],
    name: str,
    arrays: list[str],
    parameter: str | None,
    default: Any,
    run: Callable[..., Tensor],
) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "pyentmax.torch"  # where pickle looks for it
    defaults = [(array, MISSING) for array in arrays]
    if parameter is not None:
        defaults.append((parameter, default))
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter(k, positional, default=x) for k, x in [*defaults, ("dim", -1)]]
    return _signed(function, own, run)


def with_options(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Show the options of losses in the signature, in place of ``**options``."""
    *own, _ = inspect.signature(function).parameters.values()
    return _signed(function, own, apply_loss)


def _signed(
    function: Callable[..., Tensor], own: list[inspect.Parameter], run: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    signature = inspect.Signature([*own, *_options(run)])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _options(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [option for option in parameters if option.kind is option.KEYWORD_ONLY]


MAPPING_OPTIONS = [option.name for option in _options(apply)]
LOSS_OPTIONS = [option.name for option in _options(apply_loss)]
MAPPING_FUNCTIONS = {name: _mapping_function(name) for name in MAPPINGS}
SUPPORT_FUNCTIONS = {f"{name}_support": _mapping_function(name, "_support") for name in MAPPINGS}
LOSS_FUNCTIONS = {
    f"{name}_loss": _loss_function(name)
    for name, record in MAPPINGS.items()
    if record.omega is not None
}
