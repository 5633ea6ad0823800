"""Declarations of functions of single entries: each score or probability is a problem of its own.

    @entries.mapping(ALPHA)
    def entmax_sigmoid(z, alpha=1.5, *, mask=None, out=None):
        ...

The function is called with arrays of any shape. Its body gets them in the dtype to compute in, and
β = α − 1 in the place of α: subtracted before α is rounded to that dtype, and ∞ beyond it. The
compiled kernel of a mapping's name takes the same; `reference` is the body.
Losses of entries are declared by `pyentmax.reference.losses.declare`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.backends.declare import Accelerated, Declare, accelerated
from pyentmax.engine.calls.dask_arrays import plan_rows
from pyentmax.engine.calls.devices import is_dask
from pyentmax.engine.calls.dtypes import runs_kernels
from pyentmax.engine.calls.entries import arrange_entries, finish_entries
from pyentmax.engine.calls.parameters import PerEntry
from pyentmax.engine.calls.rows import in_one_dtype, reduce_to

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


def mapping(parameter: PerEntry) -> Declare:
    """Probabilities of scores: ``f(z, alpha, *, mask=None, out=None)``."""

    def decorate(body: Callable[P, R]) -> Accelerated[P, R]:
        def arrange(use_kernels: bool) -> Callable[..., Any]:
            def call(z: Any, value: Any, mask: Any, out: Any, workers: Any) -> Any:
                if is_dask(z):
                    kwargs = {"z": z, parameter.name: value, "mask": mask, "out": out}
                    this = public if use_kernels else public.reference
                    return plan_rows(this, parameter, kwargs, ("number",))
                z, mask, dtype = arrange_entries(z, mask, out)
                beta = beta_like(parameter.checked(value, z, z.shape), z)
                p = run(use_kernels, workers, body.__name__, body, z, beta)
                return finish_entries(p, mask, dtype, out)

            return call

        roles = ("z", parameter.name, "mask", "out", "workers")
        public: Any = accelerated(body, parameter, arrange, roles)
        return cast("Accelerated[P, R]", public)

    return cast("Declare", decorate)


def derivative(parameter: PerEntry, direction: str = "", *, gradient: bool = False) -> Declare:
    """A derivative at p: ``f(p[, v], alpha, *, mask=None)``, the name of v being `direction`.

    With `gradient` the body returns what each entry gives, and the caller gets their sums in the
    shape of the parameter.
    """

    def decorate(body: Callable[P, R]) -> Accelerated[P, R]:
        def call(p: Any, v: Any, value: Any, mask: Any) -> Any:
            if is_dask(p):
                kwargs = {"p": p, direction: v, parameter.name: value, "mask": mask}
                return plan_rows(public, parameter, kwargs, ("gradient" if gradient else "number",))
            p, mask, dtype = arrange_entries(p, mask, name="p")
            directions: tuple[Any, ...] = ()
            if direction:
                p, v, dtype = in_one_dtype(p, v, direction, dtype)
                directions = (v,)
            beta = beta_like(parameter.checked(value, p, p.shape), p)
            each: Any = cast("Any", body)(p, *directions, beta)
            if not gradient:
                return finish_entries(each, mask, dtype)
            each = each if mask is None else np.where(mask, each, 0)
            return reduce_to(each, np.shape(value)).astype(dtype, copy=False)[()]

        roles = ("p", direction, parameter.name, "mask")
        public: Any = accelerated(body, parameter, lambda _: call, roles, kernels=False)
        return cast("Accelerated[P, R]", public)

    return cast("Declare", decorate)


def beta_like(alpha: Any, z: Any) -> Any:
    """β = α − 1 in the dtype of z."""
    with np.errstate(over="ignore"):
        return (alpha - 1).astype(z.dtype)


def run(
    use_kernels: bool, workers: Any, name: str, body: Callable[..., Any], z: Any, *operands: Any
) -> Any:
    """What the kernel of that name or the body gives for arrays that broadcast to z, β last."""
    if workers is not None:
        workers = threads.counted(workers)
    kernel = choice.kernels().get(name) if use_kernels else None
    z = np.asarray(z) if isinstance(z, np.generic) else z
    if kernel is None or not runs_kernels(z) or np.any(operands[-1] < 0):
        return body(z, *operands)  # kernels take no β below 0
    return threads.run(kernel, (z, *map(np.asarray, operands)), None, workers)
