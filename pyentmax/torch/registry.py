"""How an operation is registered with PyTorch, as ``torch.ops.pyentmax``.

`torch.compile`, graphs and traces see the operation by its name, with the derivative that is
registered for reverse mode. `torch.func` does not know such derivatives, so that tensors which it
has wrapped go through an `autograd.Function` with the same rules. So do plain tensors in an eager
call on the host, around PyTorch's dispatcher, which takes longer than a small call itself. No
operation has a derivative in forward mode, which would drop tangents without a word: a tensor that
has one is an error. The functions that have such derivatives compose them (`in_transform`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import Library, register_autograd, register_fake, register_vmap

LIBRARY = Library("pyentmax", "DEF")
PARAMETER = "Tensor? parameter, float? number"  # of a mapping: one of the two, or none

NO_FORWARD_MODE = (
    "this {} has no derivative in forward mode, as softmax, sparsemax, entmax15, entmax, the top-k "
    "mappings and their losses have: take it in reverse, as by torch.func.vjp, jacrev, or "
    "autograd.functional.jacobian"
)

Rule = Callable[..., Any]


def registered(
    name: str,
    schema: str,
    *,
    compute: Rule,
    fake: Rule,
    setup_context: Rule,
    backward: Rule,
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
    setup_context, backward : callables
        as the static methods of an `autograd.Function`
    vmap : callable
        returns the rule for `torch.vmap`, given the function to call

    The function to call has `directly`, for arguments of which `is_unwatched` is known to be true.
    """

    refuse_tangents = refused(NO_FORWARD_MODE.format(name))

    def directly(*args: Any) -> Any:
        if torch.is_grad_enabled():
            for arg in args:
                if isinstance(arg, Tensor) and arg.requires_grad:
                    return direct.apply(*args)
        return compute(*args)

    def call(*args: Any) -> Any:
        if is_unwatched(args):  # so that all are on one device
            return directly(*args)
        wrapped, device = False, args[0].device
        for arg in args:
            if isinstance(arg, Tensor):
                if arg.device != device and (arg.ndim or not arg.is_cpu):
                    _refuse_devices(f"{name}{schema}", args)
                if _has_tangent(arg):
                    refuse_tangents()
                wrapped = wrapped or _is_wrapped(arg)
        return function.apply(*args) if wrapped else operation(*args)

    LIBRARY.define(f"{name}{schema}")
    LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    register_fake(f"pyentmax::{name}", fake, lib=LIBRARY)
    register_vmap(f"pyentmax::{name}", vmap(call), lib=LIBRARY)
    register_autograd(f"pyentmax::{name}", backward, setup_context=setup_context, lib=LIBRARY)
    operation = getattr(torch.ops.pyentmax, name).default
    rules = {
        "forward": lambda *args: operation(*args),
        "setup_context": setup_context,
        "backward": backward,
        "jvp": refuse_tangents,
        "vmap": vmap(call),
    }

    def run(ctx: Any, *args: Any) -> Any:
        output = compute(*args)
        setup_context(ctx, args, output)
        return output

    function = _function(name, rules)
    # Of a `setup_context` on its own PyTorch inspects the signature at each call.
    direct = _function(name, {"forward": run, "backward": backward})
    call.directly = directly  # type: ignore[attr-defined]
    return call


def _function(name: str, rules: dict[str, Rule]) -> Any:
    methods = {key: staticmethod(rule) for key, rule in rules.items()}
    return type(f"Pyentmax_{name}", (torch.autograd.Function,), methods)


_PLAIN = Tensor, torch.nn.Parameter
# Modes, such as that of fake tensors, transformations and profilers see PyTorch's operations.
# Without these functions, which are not public, there may always be one.
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_is_traced = getattr(torch._C, "_is_tracing", torch.jit.is_tracing)  # two calls less
_is_transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_is_profiled = getattr(torch.autograd, "_profiler_enabled", lambda: True)


def is_unwatched(args: Iterable[Any]) -> bool:
    """Whether nothing but autograd wants to know of a call, and its tensors are on the host."""
    if torch.compiler.is_compiling() or _is_traced():
        return False
    if _modes() or _is_transformed() or _is_profiled():
        return False
    if getattr(forward_ad, "_current_level", 0) >= 0:  # as `in_forward_mode`
        return False
    try:
        for x in args:
            if isinstance(x, Tensor):
                if type(x) not in _PLAIN or not x.is_cpu:
                    return False
                x.data_ptr()
    except RuntimeError:  # the tensor has no storage, as fake and wrapped ones
        return False
    return True


def in_forward_mode() -> bool:
    """Whether tensors may have tangents; the level is not public, and without it they may."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def _refuse_devices(schema: str, args: tuple[Any, ...]) -> None:
    """Raise a RuntimeError that says where each tensor is: kernels would read others' memory."""
    names = [part.split()[-1] for part in schema[schema.index("(") + 1 :].split(")")[0].split(",")]
    where = [
        f"{name} on {x.device}"
        for name, x in zip(names, args, strict=True)
        if isinstance(x, Tensor)
    ]
    raise RuntimeError(f"expected all tensors on one device, got {', '.join(where)}")


def is_plain(args: Iterable[Any]) -> bool:
    """Whether no tensor is part of a graph, wrapped by `torch.func`, or of another class."""
    if torch.compiler.is_compiling():
        return False
    for x in args:
        if isinstance(x, Tensor) and (type(x) not in _PLAIN or _is_wrapped(x)):
            return False
    return True


def _is_wrapped(tensor: Tensor) -> bool:
    """Whether `torch.func` has wrapped it: then it has no storage, as some subclasses."""
    if torch.compiler.is_compiling() or type(tensor) not in _PLAIN:
        return False
    try:
        tensor.data_ptr()
    except RuntimeError:
        return True
    return False


def _has_tangent(tensor: Tensor) -> bool:
    """Whether it has a derivative in forward mode."""
    try:
        return forward_ad.unpack_dual(tensor).tangent is not None
    except RuntimeError:  # `vmap` has wrapped it: its rule calls again with what is inside
        return False


class _Probe(torch.autograd.Function):
    """A function of the kind that `torch.func` refuses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()


@torch.compiler.assume_constant_result
def _is_refused() -> bool:
    try:
        _Probe.apply(torch.empty(0))
    except RuntimeError:
        return True
    return False


def in_transform() -> bool:
    """Whether a derivative has to be composed of PyTorch's operations: that of forward mode, and
    in a graph those of `torch.func`, which knows no registered derivative, and the graph no
    `autograd.Function` in its place.
    """
    return _is_refused() if torch.compiler.is_compiling() else in_forward_mode()


def refused(message: str) -> Rule:
    """A rule for a derivative that is not implemented: PyTorch would silently use zeros."""

    def refuse(*args: Any) -> Any:
        raise NotImplementedError(message)

    return refuse


def not_differentiable(message: str) -> dict[str, Rule]:
    """The rules of an operation without a derivative."""
    return {
        "setup_context": lambda ctx, inputs, output: None,
        "backward": refused(message),
    }


def one_by_one(call: Rule) -> Rule:
    """A rule for `torch.vmap` that calls the operation once per example."""

    def rule(info: Any, axes: Any, *args: Any) -> tuple[Any, Any]:
        outputs = [
            call(*(x if n is None else x.select(n, i) for x, n in zip(args, axes, strict=True)))
            for i in range(info.batch_size)
        ]
        if isinstance(outputs[0], Tensor):
            return torch.stack(outputs), 0
        results = tuple(map(torch.stack, zip(*outputs, strict=True)))
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
