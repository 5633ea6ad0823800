"""Functions with the signature of a body that pass their arguments on, in a fixed order.

Python itself then binds a call's arguments, and its errors name the function that was called. The
code of such a function is one line, ``def f(z, axis=-1, …): return call(z, axis, …)``, which `exec`
compiles from the body's signature. Its frame costs 0.05 µs a call; a wrapper of ``*args, **kwargs``
that binds them by `roles` costs 2 to 3 µs, as much as all else does in a call of a small array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def with_signature(
    body: Callable[..., Any],
    call: Callable[..., Any],
    roles: Sequence[str],
    keywords: dict[str, Any] | None = None,
    skip: int = 0,
    cut: Callable[..., Any] | None = None,
) -> Any:
    """A function that is called as `body` is, and returns what `call` does.

    Parameters
    ----------
    body : function
        whose name, documentation and signature the result has
    call : callable
        of the arguments named by `roles`, by position; None for those that body does not take
    roles : sequence of str
    keywords : dict, optional
        keyword-only arguments that the result takes besides, with their defaults
    skip : int
        number of body's first parameters that the result does not have
    cut : callable, optional
        what takes a call that has ``offsets=``, of these and then the same arguments

    Examples
    --------
    >>> def f(z, k=2, *, mask=None): ...
    >>> g = with_signature(f, lambda *args: args, ("z", "axis", "mask", "k"))
    >>> g("z", mask="m")
    ('z', None, 'm', 2)
    >>> g("z", masks="m")
    Traceback (most recent call last):
        ...
    TypeError: f() got an unexpected keyword argument 'masks'...
    """
    names, count = parameter_names(body), body.__code__.co_argcount
    keywords = {**(body.__kwdefaults__ or {}), **(keywords or {})}
    if cut is not None:
        keywords["offsets"] = None
    code = _forwarding(names[skip:count], tuple(keywords), tuple(roles), cut is not None)
    function = FunctionType(code, {"call": call, "cut": cut}, body.__name__)
    for name in functools.WRAPPER_ASSIGNMENTS:
        setattr(function, name, getattr(body, name))
    function.__wrapped__ = body  # type: ignore[attr-defined]  # whose source is shown
    function.__signature__ = _signature(body, keywords, skip)  # type: ignore[attr-defined]
    function.__defaults__, function.__kwdefaults__ = body.__defaults__, keywords
    return function


def _signature(body: Callable[..., Any], keywords: dict[str, Any], skip: int) -> Signature:
    """That of the function, which has other keywords than its body."""
    own = signature(body)
    parameters = list(own.parameters.values())[skip:]
    positional = [x for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD]
    kept = {x.name: x for x in parameters}
    further = [
        kept.get(name, Parameter(name, Parameter.KEYWORD_ONLY)).replace(default=default)
        for name, default in keywords.items()
    ]
    return own.replace(parameters=positional + further)


def renamed(function: F, name: str) -> F:
    """The same function under another name, which its errors give.

    >>> renamed(parameter_names, "names")()
    Traceback (most recent call last):
        ...
    TypeError: names() missing 1 required positional argument: 'function'
    """
    original: Any = function
    other: Any = FunctionType(original.__code__, original.__globals__, name, original.__defaults__)
    functools.update_wrapper(other, original)
    other.__name__ = other.__qualname__ = name
    other.__kwdefaults__ = original.__kwdefaults__
    if hasattr(original, "reference"):
        same = original.reference is original
        other.reference = other if same else renamed(original.reference, name)
    return cast(F, other)


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters, in order."""
    code = function.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


@functools.cache
def _forwarding(
    positional: tuple[str, ...], keywords: tuple[str, ...], roles: tuple[str, ...], cut: bool
) -> CodeType:
    """The code of a function of these arguments that calls `call` with those in `roles`."""
    parameters = ", ".join((*positional, "*", *keywords) if keywords else positional)
    known = {*positional, *keywords}
    arguments = ", ".join(role if role in known else "None" for role in roles)
    scope: dict[str, Any] = {}
    otherwise = f" if offsets is None else cut(offsets, {arguments})" if cut else ""
    source = f"def f({parameters}): return call({arguments}){otherwise}"
    exec(compile(source, "<signature>", "exec"), scope)
    forwarding: CodeType = scope["f"].__code__
    return forwarding
