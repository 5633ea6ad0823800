"""How an operation is registered with PyTorch: ``torch.ops.pyentmax``.

An operation has a schema, a function that computes it on any device, and one that says what its
results look like; most have a derivative, and a rule for a batched axis. They all are opaque to
`torch.compile` and `torch.export`, in whose graphs they stand by name.

PyTorch's way from a call to that function, and back to its derivative, takes ten times as long as a
short row. So where nothing but the derivative is to be seen of it, with plain tensors on the host
and no transformation, graph, mode or profiler under way, the function is called at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad
from torch.library import Library, register_autograd, register_fake, register_vmap

from pyentmax.calls.parameters import UpperBounds
from pyentmax.mappings import MAPPINGS

LIBRARY = Library("pyentmax", "DEF")
PARAMETER = "Tensor? parameter, float? number"


def defined(
    name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]
) -> Callable[..., Any]:
    """Register an operation: what it computes on any device, and what its results look like."""
    LIBRARY.define(f"{name}{schema}")
    LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    register_fake(f"pyentmax::{name}", fake, lib=LIBRARY)
    operation: Callable[..., Any] = getattr(torch.ops.pyentmax, name).default

    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return operation(*args)
        if forward_ad._current_level >= 0 and any(map(_has_tangent, args)):
            # Unsaid, PyTorch would go on without the tangents, as if they were zeros.
            raise NotImplementedError(
                f"{name} has no derivative in forward mode: take it in reverse, as by "
                "torch.func.vjp, jacrev, or autograd.functional.jacobian"
            )
        if is_plain(args):
            if not torch.is_grad_enabled() or not any(map(_requires_grad, args)):
                return compute(*args)
            if name in _AT_ONCE:
                return _AT_ONCE[name].apply(*args)
        if name in _FUNCTIONS and _in_a_gradient():
            return _FUNCTIONS[name].apply(*args)
        return operation(*args)

    _COMPUTES[name] = compute
    return call


_COMPUTES: dict[str, Callable[..., Any]] = {}

# `torch.func.grad` takes no derivative that an operation was registered with. It takes an
# `autograd.Function`, which is the operation with the same derivative and the rule for batches.
_FUNCTIONS: dict[str, type[torch.autograd.Function]] = {}

# The same of what an operation computes, which no transformation gets to see.
_AT_ONCE: dict[str, type[torch.autograd.Function]] = {}


def differentiable(name: str, keep: Callable[..., None], backward: Callable[..., Any]) -> None:
    """Give an operation its derivative, and say what to keep for that."""
    register_autograd(f"pyentmax::{name}", backward, setup_context=keep, lib=LIBRARY)
    operation, compute = getattr(torch.ops.pyentmax, name).default, _COMPUTES[name]

    def forward(ctx: Any, *args: Any) -> Any:
        result = compute(*args)
        keep(ctx, args, result)
        return result

    # With `setup_context`, each call would look the signature of `forward` up.
    _FUNCTIONS[name] = _function(name, forward=operation, setup_context=keep, backward=backward)
    _AT_ONCE[name] = _function(name, forward=forward, backward=backward)


def _function(name: str, **methods: Callable[..., Any]) -> type[torch.autograd.Function]:
    static = {key: staticmethod(method) for key, method in methods.items()}
    return type(f"Pyentmax_{name}", (torch.autograd.Function,), static)


def batched(name: str, rule: Callable[..., Any]) -> None:
    """Tell `torch.vmap` what to do: ``rule(info, axes, *arguments)`` -> results, their axes."""
    register_vmap(f"pyentmax::{name}", rule, lib=LIBRARY)
    if name in _FUNCTIONS:
        _FUNCTIONS[name].vmap = staticmethod(rule)


_DIFFERENTIATES = (_functorch.TransformType.Grad, _functorch.TransformType.Jvp)


def _in_a_gradient() -> bool:
    """Whether some transformation of `torch.func` that is under way differentiates."""
    under_way = _functorch.get_interpreter_stack() or ()
    return any(transformation.key() in _DIFFERENTIATES for transformation in under_way)


_PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
# What PyTorch would have to see to with a tensor; batched ones, for example, have further keys.
_PLAIN_KEYS = torch._C._dispatch_keys(torch.empty(0, device="cpu")).raw_repr()


def is_plain(args: tuple[Any, ...]) -> bool:
    """Whether all tensors are the host's and PyTorch's own, and nobody watches or transforms."""
    for arg in args:
        if isinstance(arg, Tensor) and not (
            type(arg) in _PLAIN_TENSORS and torch._C._dispatch_keys(arg).raw_repr() == _PLAIN_KEYS
        ):
            return False
    return not (
        torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._get_tracing_state()
        or torch.autograd._profiler_enabled()  # which shows operations by name
    )


def _has_tangent(arg: Any) -> bool:
    return isinstance(arg, Tensor) and forward_ad.unpack_dual(arg).tangent is not None


def _requires_grad(arg: Any) -> bool:
    return isinstance(arg, Tensor) and arg.requires_grad


def like_first(first: Tensor, *rest: Any) -> Tensor:
    """A result of the first argument's shape and dtype, contiguous."""
    return first.new_empty(first.shape)


def values_of(name: str, parameter: Any, number: Any) -> tuple[Any, ...]:
    """What follows the arrays in the calls of a mapping of that name: its parameter, if any."""
    if not MAPPINGS[name].parameters:
        return ()
    return (number if parameter is None else parameter,)


def front(tensor: Tensor, axis: int | None, size: int) -> Tensor:
    """The batched axis first, made if there is none."""
    if axis is None:
        return tensor.unsqueeze(0).expand(size, *tensor.shape)
    return tensor.movedim(axis, 0)


def aligned(tensor: Any, axis: int | None, ndim: int) -> Any:
    """The batched axis first in what broadcasts against ndim axes, itself not counted."""
    if tensor is None or axis is None:
        return tensor
    tensor = tensor.movedim(axis, 0)
    missing = ndim - (tensor.ndim - 1)
    return tensor.reshape(tensor.shape[0], *(1,) * missing, *tensor.shape[1:])


def parameter_axes(name: str, ndim: int) -> int:
    """How many axes a mapping's parameter broadcasts against: the rows', or a bound's, all."""
    return ndim if is_bound(name) else ndim - 1


def is_bound(name: str) -> bool:
    """Whether a mapping's parameter belongs to each score, and not to each row."""
    declared = getattr(getattr(MAPPINGS[name].forward, "kind", None), "parameters", ())
    return any(isinstance(parameter, UpperBounds) for parameter in declared)


def one_by_one(operation: Callable[..., Any], n: int, axes: Any, args: Any) -> Any:
    """The results of n calls, stacked along a new first axis."""
    found = [
        operation(
            *(x if axis is None else x.select(axis, i) for x, axis in zip(args, axes, strict=True))
        )
        for i in range(n)
    ]
    if isinstance(found[0], Tensor):
        return torch.stack(found)
    return tuple(map(torch.stack, zip(*found, strict=True)))
