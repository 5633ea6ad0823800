"""How an operation is registered with PyTorch, as ``torch.ops.pyentmax``.

`torch.compile`, `torch.export` and whatever watches calls see the operation by its name. A
derivative registered with an operation does not reach `torch.func` or forward mode, so that eager
calls which are differentiated go through an `autograd.Function` around it, with the same rules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import Library, register_autograd, register_fake, register_vmap

LIBRARY = Library("pyentmax", "DEF")
PARAMETER = "Tensor? parameter, float? number"  # of a mapping: one of the two, or none

Rule = Callable[..., Any]


def registered(
    name: str,
    schema: str,
    *,
    compute: Rule,
    fake: Rule,
    setup_context: Rule,
    backward: Rule,
    jvp: Rule,
    vmap: Callable[[Rule], Rule],
) -> Rule:
    """Register an operation with its rules, and return the function to call.

    Parameters
    ----------
    name, schema : str
    compute : callable
        the results, on any device
    fake : callable
        empty tensors like the results
    setup_context, backward, jvp : callables
        as the static methods of an `autograd.Function`
    vmap : callable
        returns the rule for `torch.vmap`, given the function to call
    """

    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return operation(*args)
        differentiable, grad_enabled = False, torch.is_grad_enabled()
        for arg in args:
            if isinstance(arg, Tensor):
                primal, tangent = forward_ad.unpack_dual(arg)
                if tangent is not None:
                    primals = [_without_tangent(arg) for arg in args]
                    output = function.apply(*primals)
                    return _linearized(output, setup_context, jvp, primals, args)
                # Where forward mode is on, it may have a tangent of an outer transformation.
                if primal is not arg or grad_enabled and _may_be_differentiated(arg):
                    differentiable = True
        return function.apply(*args) if differentiable else eager(*args)

    # PyTorch calls the rules of `register_autograd` with every operation, whether or not it is
    # differentiated. Eager calls spare that by an overload without them.
    for overload in ("", ".eager"):
        LIBRARY.define(f"{name}{overload}{schema}")
        LIBRARY.impl(f"{name}{overload}", compute, "CompositeExplicitAutograd")
        register_fake(f"pyentmax::{name}{overload}", fake, lib=LIBRARY)
        register_vmap(f"pyentmax::{name}{overload}", vmap(call), lib=LIBRARY)
    register_autograd(f"pyentmax::{name}", backward, setup_context=setup_context, lib=LIBRARY)
    operations = getattr(torch.ops.pyentmax, name)
    operation, eager = operations.default, operations.eager

    # PyTorch binds the arguments of each call to the signature of `forward`, and finds it faster
    # where it is an attribute.
    def forward(*args: Any) -> Any:
        return eager(*args)

    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    rules = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "jvp": jvp,
        "vmap": vmap(call),
    }
    methods = {key: staticmethod(rule) for key, rule in rules.items()}
    function: Any = type(f"Pyentmax_{name}", (torch.autograd.Function,), methods)

    return call


def _may_be_differentiated(tensor: Tensor) -> bool:
    if tensor.requires_grad or type(tensor) not in (Tensor, torch.nn.Parameter):
        return True  # a subclass, such as a fake tensor, may have no memory
    try:
        tensor.data_ptr()
    except RuntimeError:  # `torch.func` has wrapped it, and has not said for what
        return True
    return False


def _without_tangent(arg: Any) -> Any:
    if not isinstance(arg, Tensor):
        return arg
    primal, tangent = forward_ad.unpack_dual(arg)
    return arg if tangent is None else primal


class _Context:
    """What `setup_context` and `jvp` use of an `autograd.Function`'s."""

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors

    save_for_backward = mark_non_differentiable = set_materialize_grads = save_for_forward
    # The tensors of the last call are those for forward mode, which setup_context saves last.


def _linearized(output: Any, setup_context: Rule, jvp: Rule, primals: Any, args: Any) -> Any:
    """The output plus the derivative times args − primals, which is 0 and has their tangents.

    PyTorch switches forward mode off while it runs the `jvp` of a Function, so that one within
    another would lose its tangents. Here the derivative is an ordinary computation.
    """
    context = _Context()
    setup_context(context, primals, output)
    moved = jvp(context, *(None if x is y else x - y for x, y in zip(args, primals, strict=True)))
    if isinstance(output, Tensor):
        return output + moved
    return tuple(x if dx is None else x + dx for x, dx in zip(output, moved, strict=True))


def keep(ctx: Any, *tensors: Tensor | None) -> None:
    """Save tensors for both modes."""
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def no_forward_mode(what: str) -> Rule:
    """A rule for forward mode that refuses."""

    def refuse(*args: Any) -> Any:
        raise NotImplementedError(
            f"{what} has no derivative in forward mode: take it in reverse, as by torch.func.vjp, "
            "jacrev, or autograd.functional.jacobian"
        )

    return refuse


def not_differentiable(message: Callable[..., str]) -> dict[str, Rule]:
    """Rules of an operation without a derivative; PyTorch would go on with zeros in silence.

    Parameters
    ----------
    message : callable
        what to say, of the arguments of the call
    """

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.message = message(*inputs)

    def refuse(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError(ctx.message)

    return {"setup_context": setup_context, "backward": refuse, "jvp": refuse}


def one_by_one(call: Rule) -> Rule:
    """A rule for `torch.vmap` that calls the operation once per example."""

    def rule(info: Any, axes: Any, *args: Any) -> tuple[Any, Any]:
        found = [
            call(*(x if n is None else x.select(n, i) for x, n in zip(args, axes, strict=True)))
            for i in range(info.batch_size)
        ]
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        results = tuple(map(torch.stack, zip(*found, strict=True)))
        return results, (0,) * len(results)

    return rule


def row_by_row(call: Rule, arrays: int, per_score: Callable[[str], bool]) -> Rule:
    """A rule for `torch.vmap` that puts the batched axis before the others.

    Parameters
    ----------
    call : callable
        (*arrays, name, parameter, number, mask) → tensor like the first
    arrays : int
        the number of arrays of rows
    per_score : callable
        whether a mapping's parameter broadcasts against the scores, not the rows
    """

    def rule(info: Any, axes: Any, *args: Any) -> tuple[Tensor, int]:
        rows = [
            x.unsqueeze(0).expand(info.batch_size, *x.shape) if axis is None else x.movedim(axis, 0)
            for x, axis in zip(args[:arrays], axes[:arrays], strict=True)
        ]
        name, parameter, number, mask = args[arrays:]
        ndim = rows[0].ndim
        parameter_ndim = ndim if per_score(name) else ndim - 1
        parameter = _aligned(parameter, axes[arrays + 1], parameter_ndim)
        return call(*rows, name, parameter, number, _aligned(mask, axes[arrays + 3], ndim)), 0

    return rule


def _aligned(tensor: Tensor | None, axis: int | None, ndim: int) -> Tensor | None:
    """The batched axis first of ndim, in a tensor that broadcasts against that many."""
    if tensor is None or axis is None:
        return tensor
    tensor = tensor.movedim(axis, 0)
    missing = ndim - tensor.ndim
    return tensor.reshape(tensor.shape[0], *(1,) * missing, *tensor.shape[1:])
