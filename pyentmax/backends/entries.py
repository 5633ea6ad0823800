"""Who computes within functions of single entries: the compiled kernel of a name, or its body.

Such a function takes what runs its parts as its first argument, which its callers do not see:

    @with_reference
    def entmax_sigmoid(run, z, alpha=1.5):
        return run("entmax_sigmoid", _probability, z, alpha)

``entmax_sigmoid(z)`` runs the kernel if there is one, ``entmax_sigmoid.reference(z)`` the body.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from pyentmax.backends import choice, threads
from pyentmax.calls.lazy import entrywise, is_lazy

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Runner(Protocol):
    """What a part of a function is computed by."""

    def __call__(
        self, name: str, body: Callable[..., Any], z: Any, *operands: Any, results: int = 1
    ) -> Any:
        """The results for arrays that broadcast to z; chunk by chunk of a lazy one."""


class WithReference(Protocol[P, R]):
    """A function that runs kernels where it can; `reference` never does."""

    __name__: str
    __qualname__: str

    @property
    def reference(self) -> Callable[P, R]:
        """The same of the NumPy bodies."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernels, or the bodies."""


def with_reference(function: Callable[Concatenate[Runner, P], R]) -> WithReference[P, R]:
    """Decorator: the function with kernels, which has the one without as its `reference`."""
    signature = inspect.signature(function)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    def running(run: Runner) -> Any:
        @functools.wraps(function)
        def form(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(run, *args, **kwargs)

        form.__signature__ = signature  # type: ignore[attr-defined]
        return form

    public = running(run_kernel)
    public.reference = running(run_body)
    return cast("WithReference[P, R]", public)


def run_kernel(
    name: str, body: Callable[..., Any], z: Any, *operands: Any, results: int = 1
) -> Any:
    """What the kernel of that name gives, on so many threads as pay, or the body.

    On a GPU the body runs.
    """
    if is_lazy(z):
        return entrywise(functools.partial(run_kernel, name, body), (z, *operands), results)
    kernel = choice.kernels().get(name)
    if kernel is None or not isinstance(z, np.ndarray | np.generic):
        return body(z, *operands)
    return threads.run(kernel, (np.asarray(z), *map(np.asarray, operands)))


def run_body(name: str, body: Callable[..., Any], z: Any, *operands: Any, results: int = 1) -> Any:
    """What the body gives, whatever kernels there are."""
    if is_lazy(z):
        return entrywise(body, (z, *operands), results)
    return body(z, *operands)
