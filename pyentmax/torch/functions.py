"""The mappings, losses and attention as functions of tensors, named as in `pyentmax`.

They are made from `pyentmax.MAPPINGS`: for a mapping ``NAME``, ``NAME(z, …, dim=-1, *, mask=None)``
and, where it has an Ω, ``NAME_loss(z, y, …, dim=-1, *, reduction="mean", …)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from pyentmax.calls.record import Mapping
from pyentmax.mappings import MAPPINGS
from pyentmax.torch import attention_operations, loss_operations, mapping_operations
from pyentmax.torch.arguments import (
    as_number,
    check_broadcast,
    check_dim,
    check_options,
    check_scores,
    check_tensor,
)
from pyentmax.torch.registry import is_bound

MISSING = inspect.Parameter.empty
KEYWORD = inspect.Parameter.KEYWORD_ONLY
POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _mapping_function(record: Mapping) -> Callable[..., Tensor]:
    name, parameter, default = record.name, *_parameter(record)

    def without(z: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
        return apply(name, z, None, dim, mask)

    def with_parameter(
        z: Tensor, value: Any = MISSING, dim: int = -1, *, mask: Tensor | None = None, **named: Any
    ) -> Tensor:
        return apply(name, z, _chosen(name, parameter, value, named, default), dim, mask)

    function: Callable[..., Tensor] = without if parameter is None else with_parameter
    function.__doc__ = f"""p = {name}(z) along ``dim``, with its derivatives.

    Parameters
    ----------
    z : Tensor of scores
{_described(parameter)}    dim : int, default -1
    mask : bool Tensor that broadcasts to z, optional
        True where a score may get probability

    Returns
    -------
    Tensor of z's shape and dtype; zeros in a row with nothing left

    See `pyentmax.{name}` for what it computes.
    """
    return _named(function, name, _signature(["z"], parameter, default, {"mask": None}))


def _loss_function(record: Mapping) -> Callable[..., Tensor]:
    name, parameter, default = record.name, *_parameter(record)

    def without(z: Tensor, y: Tensor, dim: int = -1, **options: Any) -> Tensor:
        return apply_loss(name, z, y, None, dim, **options)

    def with_parameter(
        z: Tensor, y: Tensor, value: Any = MISSING, dim: int = -1, **options: Any
    ) -> Tensor:
        value = _chosen(name, parameter, value, options, default, strict=False)
        return apply_loss(name, z, y, value, dim, **options)

    function: Callable[..., Tensor] = without if parameter is None else with_parameter
    function.__doc__ = f"""The Fenchel-Young loss of `pyentmax.{name}`, with its derivative in z.

    Parameters
    ----------
    z : Tensor of scores
    y : Tensor of integer labels, of z's shape without ``dim``, or of distributions like z
{_described(parameter)}    dim : int, default -1
    reduction, weight, mask, ignore_index, label_smoothing
        as in `pyentmax.fenchel_young_loss`

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each row
    """
    signature = _signature(["z", "y"], parameter, default, OPTIONS)
    return _named(function, f"{name}_loss", signature)


OPTIONS = {
    "reduction": "mean",
    "weight": None,
    "mask": None,
    "ignore_index": None,
    "label_smoothing": 0.0,
}


def apply(name: str, z: Tensor, value: Any, dim: int, mask: Tensor | None) -> Tensor:
    """A mapping of that name along a dimension, its parameter a number, a tensor or None."""
    check_scores(z, "z")
    check_dim(dim)
    if mask is not None:
        check_tensor(mask, "mask")
    last = dim in (-1, z.ndim - 1)
    if not last:
        z = z.movedim(dim, -1)
    parameter, number = _split(value, name, z, None if last else dim)
    p = mapping_operations.mapping(
        z, name, parameter, number, _moved(mask, "mask", z, None if last else dim)
    )
    return p if last else p.movedim(-1, dim)


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
) -> Tensor:
    """The loss of a mapping of that name."""
    check_scores(z, "z")
    check_tensor(y, "y")
    check_dim(dim)
    if mask is not None:
        check_tensor(mask, "mask")
    check_options(weight, ignore_index, label_smoothing)
    moved = None if dim in (-1, z.ndim - 1) else dim
    if moved is not None:
        y = y.movedim(dim, -1) if y.ndim == z.ndim else y
        z = z.movedim(dim, -1)
    parameter, number = _split(value, name, z, moved)
    if parameter is not None and parameter.requires_grad:
        raise TypeError(
            f"{name}_loss has no gradient in {MAPPINGS[name].parameters[0]}: pass a number, or "
            "detach() the tensor"
        )
    mask = _moved(mask, "mask", z, moved)
    options = (weight, mask, reduction, ignore_index, float(label_smoothing))
    loss, _ = loss_operations.loss(z, y, name, parameter, number, *options)
    return loss


def fenchel_young_loss(
    z: Tensor, y: Tensor, mapping: str = "entmax15", dim: int = -1, **options: Any
) -> Tensor:
    """The Fenchel-Young loss of any mapping in `pyentmax.MAPPINGS` that has an Ω.

    Parameters
    ----------
    z, y, dim : as in `entmax15_loss`
    mapping : str
    **options
        those of the losses, and the mapping's parameter by its name
    """
    if mapping not in MAPPINGS:
        raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
    parameter, default = _parameter(MAPPINGS[mapping])
    value = None
    if parameter is not None:
        value = _chosen(mapping, parameter, MISSING, options, default, strict=False)
    return apply_loss(mapping, z, y, value, dim, **options)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor = 1.5,
    *,
    mapping: str = "entmax",
    mask: Tensor | None = None,
    causal: bool = False,
    offset: int = 0,
    scale: float | None = None,
    **parameters: Any,
) -> Tensor:
    """Attention with sparse weights, whose time and memory follow the support.

    Parameters
    ----------
    query, key, value : Tensors of shape (…, T, d), (…, S, d), (…, S, dᵥ)
    alpha : float or Tensor that broadcasts against the batch shape
        of shape (H,) it is one for each head of (B, H, T, d), and gets a gradient
    mapping, mask, causal, offset, scale, **parameters
        as in `pyentmax.attention`, the mapping by its name

    Returns
    -------
    Tensor of shape (…, T, dᵥ); zeros for a query that sees no key
    """
    if mapping not in MAPPINGS:
        raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
    for array, its_name in ((query, "query"), (key, "key"), (value, "value")):
        check_scores(array, its_name)
    if mask is not None:
        check_tensor(mask, "mask")
    name, default = _parameter(MAPPINGS[mapping])
    chosen: Any = None
    if name == "alpha":
        chosen = alpha
    elif name is not None:
        chosen = _chosen(mapping, name, MISSING, parameters, default)
    elif parameters:
        raise TypeError(f"{mapping} takes no parameter, got {', '.join(parameters)}")
    tensor = chosen if isinstance(chosen, Tensor) else None
    number = None if tensor is not None or name is None else as_number(chosen, name)
    return attention_operations.attention(
        query, key, value, mapping, tensor, number, mask, causal, offset, scale
    )


# --- parameters and dimensions --------------------------------------------------------------------


def _parameter(record: Mapping) -> tuple[str | None, Any]:
    """The name of a mapping's parameter, and its default."""
    if not record.parameters:
        return None, MISSING
    (name,) = record.parameters
    return name, inspect.signature(record.forward).parameters[name].default


def _chosen(
    name: str, parameter: Any, value: Any, named: dict[str, Any], default: Any, strict: bool = True
) -> Any:
    """The parameter's value, by position or by its name, which is taken out of `named`."""
    if parameter in named:
        if value is not MISSING:
            raise TypeError(f"{name}() got two values for {parameter}")
        value = named.pop(parameter)
    if strict and named:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(named))!r}")
    if value is MISSING:
        value = default
    if value is MISSING:
        raise TypeError(f"{name}() missing a required argument: {parameter!r}")
    return value


def _split(value: Any, name: str, z: Tensor, dim: int | None) -> tuple[Tensor | None, Any]:
    """The parameter as a tensor or as a number, of rows that have come to lie along the end."""
    if not MAPPINGS[name].parameters:
        return None, None
    if not isinstance(value, Tensor):
        return None, as_number(value, MAPPINGS[name].parameters[0])
    if dim is not None and is_bound(name):
        value = _moved(value, MAPPINGS[name].parameters[0], z, dim)
    return value, None


def _moved(tensor: Tensor | None, name: str, z: Tensor, dim: int | None) -> Tensor | None:
    """What broadcasts against the scores as they were, moved as they have been."""
    if tensor is None or dim is None:
        return tensor
    shape = z.movedim(-1, dim).shape
    check_broadcast(tensor, shape, name, "z")
    return tensor.expand(shape).movedim(dim, -1)


# --- names ----------------------------------------------------------------------------------------


def _described(parameter: str | None) -> str:
    if parameter is None:
        return ""
    return f"    {parameter} : float or Tensor, as in the function of `pyentmax`\n"


def _signature(
    arrays: list[str], parameter: str | None, default: Any, options: dict[str, Any]
) -> inspect.Signature:
    own = [] if parameter is None else [inspect.Parameter(parameter, POSITIONAL, default=default)]
    return inspect.Signature(
        [
            *(inspect.Parameter(name, POSITIONAL) for name in arrays),
            *own,
            inspect.Parameter("dim", POSITIONAL, default=-1),
            *(inspect.Parameter(name, KEYWORD, default=value) for name, value in options.items()),
        ]
    )


def _named(
    function: Callable[..., Tensor], name: str, signature: inspect.Signature
) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


MAPPING_FUNCTIONS = {name: _mapping_function(record) for name, record in MAPPINGS.items()}
LOSS_FUNCTIONS = {
    f"{name}_loss": _loss_function(record)
    for name, record in MAPPINGS.items()
    if record.omega is not None
}
