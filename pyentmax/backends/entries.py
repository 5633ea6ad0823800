"""Who computes within functions of single entries: the compiled kernel of a name, or its body.

Such a function takes what runs its parts as its first argument, which its callers do not see:

    @entrywise(ALPHA)
    def entmax_sigmoid(run, z, alpha=1.5):
        return run("entmax_sigmoid", _probability, z, alpha)

``entmax_sigmoid(z)`` runs the kernel if there is one, ``entmax_sigmoid.reference(z)`` the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from pyentmax.backends import choice, threads
from pyentmax.calls.dask_arrays import plan_rows
from pyentmax.calls.devices import is_dask
from pyentmax.calls.parameters import Parameter
from pyentmax.calls.signatures import parameter_names, with_signature

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

Run = Callable[..., Any]
"""``run(name, body, z, *operands)``: the results for arrays that broadcast to z."""


class WithReference(Protocol[P, R]):
    """A function that runs kernels where it can; `reference` never does."""

    __name__: str
    __qualname__: str

    @property
    def reference(self) -> Callable[P, R]:
        """The same of the NumPy bodies."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernels, or the bodies."""


def entrywise(
    parameter: Parameter | None,
    *,
    results: Sequence[str] = ("number",),
    keywords: dict[str, Any] | None = None,
    plan: Callable[..., Any] = plan_rows,
) -> Callable[[Callable[Concatenate[Run, P], R]], WithReference[P, R]]:
    """A function with kernels, which has the one without as its `reference`.

    Parameters
    ----------
    parameter : Parameter
    results : sequence of str
        what it gives for each entry, as of `plan_rows`
    keywords : dict, optional
        keywords that stand for its ``**options``, with their defaults
    plan : callable, optional
        of the function, the parameter, arguments by name, and results: plans calls of Dask arrays
    """

    def decorate(function: Callable[..., R]) -> WithReference[P, R]:
        names = parameter_names(function)[1:]

        def arrange(run: Run, this: Callable[[], Any]) -> Any:
            def call(*values: Any) -> Any:
                given = dict(zip(every, values, strict=True))
                if is_dask(given["z"]):
                    return plan(this(), parameter, given, results)
                return function(run, **given)

            every = (*names, *(keywords or {}))
            return with_signature(function, call, every, keywords, skip=1)

        public = arrange(run_kernel, lambda: public)
        public.reference = arrange(run_body, lambda: public.reference)
        return cast("WithReference[P, R]", public)

    return decorate


def run_kernel(name: str, body: Callable[..., Any], z: Any, *operands: Any) -> Any:
    """What the kernel of that name gives, on as many threads as pay, or the body."""
    kernel = choice.kernels().get(name)
    if kernel is None or not isinstance(z, np.ndarray | np.generic):
        return body(z, *operands)
    return threads.run(kernel, (np.asarray(z), *map(np.asarray, operands)))


def run_body(name: str, body: Callable[..., Any], z: Any, *operands: Any) -> Any:
    """What the body gives."""
    return body(z, *operands)
