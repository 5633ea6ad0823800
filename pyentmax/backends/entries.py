"""Who computes within functions of single entries: the compiled kernel of a name, or its body.

Such a function takes what runs its parts as its first argument, which its callers do not see:

    @entrywise(ALPHA)
    def entmax_sigmoid(run, z, alpha=1.5):
        return run("entmax_sigmoid", _probability, z, alpha)

``entmax_sigmoid(z)`` runs the kernel if there is one, ``entmax_sigmoid.reference(z)`` the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from pyentmax.backends import choice, threads
from pyentmax.backends.declare import Accelerated, accelerated
from pyentmax.calls.dask_arrays import plan_rows
from pyentmax.calls.devices import is_dask
from pyentmax.calls.parameters import Parameter
from pyentmax.calls.signatures import parameter_names

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

Run = Callable[..., Any]
"""``run(name, body, z, *operands)``: the results for arrays that broadcast to z, β last."""


def entrywise(
    parameter: Parameter | None,
    *,
    results: Sequence[str] = ("number",),
    keywords: dict[str, Any] | None = None,
    plan: Callable[..., Any] = plan_rows,
) -> Callable[[Callable[Concatenate[Run, P], R]], Accelerated[P, R]]:
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

    def decorate(function: Callable[..., R]) -> Accelerated[P, R]:
        names = (*parameter_names(function)[1:], *(keywords or {}))

        def arrange(use_kernels: bool) -> Callable[..., R]:
            def call(*values: Any) -> Any:
                *arguments, workers = values
                given = dict(zip(names, arguments, strict=True))
                if is_dask(given["z"]):
                    this = public if use_kernels else public.reference
                    return plan(this, parameter, given, results)
                return function(partial(_run, use_kernels, workers), **given)

            return call

        roles = (*names, "workers")
        public: Any = accelerated(function, parameter, arrange, roles, keywords, skip=1)
        return cast("Accelerated[P, R]", public)

    return decorate


def _run(
    use_kernels: bool, workers: Any, name: str, body: Callable[..., Any], z: Any, *operands: Any
) -> Any:
    if workers is not None:
        workers = threads.counted(workers)
    kernel = choice.kernels().get(name) if use_kernels else None
    if kernel is None or not isinstance(z, np.ndarray | np.generic) or np.any(operands[-1] < 0):
        return body(z, *operands)  # kernels take no β below 0
    return threads.run(kernel, (np.asarray(z), *map(np.asarray, operands)), None, workers)
