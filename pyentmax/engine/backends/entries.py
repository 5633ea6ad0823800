"""Declarations of functions of single entries: each score or probability is a problem of its own.

    @entries.mapping(_forward, ALPHA)
    def entmax_sigmoid(z, alpha=1.5, *, mask=None, out=None, workers=None):
        return entmax_sigmoid.dispatch(z, alpha, mask, out, workers)

The function is called with arrays of any shape. Its body gets them in the dtype to compute in, and
β = α − 1 in the place of α: subtracted before α is rounded to that dtype, and ∞ beyond it. The
compiled kernel of a mapping's name takes the same; `reference` runs the body.
Losses of entries are declared by `pyentmax.reference.losses.declare`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.backends.declare import (
    NO_KERNEL,
    Accelerated,
    Body,
    Declare,
    accelerated,
    decorator,
)
from pyentmax.engine.calls.dask_arrays import plan_rows
from pyentmax.engine.calls.devices import is_dask
from pyentmax.engine.calls.dtypes import runs_kernels
from pyentmax.engine.calls.entries import arrange_entries, finish_entries
from pyentmax.engine.calls.parameters import PerEntry
from pyentmax.engine.calls.rows import in_one_dtype, reduce_to


def mapping(body: Body, parameter: PerEntry) -> Declare:
    """Probabilities of scores: ``dispatch(z, parameter, mask, out, workers)``."""
    return decorator(_mapping, body, parameter)


def derivative(
    body: Body, parameter: PerEntry, direction: str = "", *, gradient: bool = False
) -> Declare:
    """A derivative at p: ``dispatch(p, v, parameter, mask)``, the name of v being `direction`.

    With `gradient` the body returns what each entry gives, and the caller gets their sums in the
    shape of the parameter.
    """
    return decorator(_derivative, body, parameter, direction, "gradient" if gradient else "number")


def _mapping(body: Body, parameter: PerEntry, function: Any) -> Accelerated[..., Any]:
    def dispatch(z: Any, value: Any, mask: Any, out: Any, workers: Any) -> Any:
        if is_dask(z):
            given = {"z": z, parameter.name: value, "mask": mask, "out": out}
            this = function.reference if workers is NO_KERNEL else function
            return plan_rows(this, parameter, given, ("number",))
        z, mask, dtype = arrange_entries(z, mask, out)
        beta = beta_like(parameter.checked(value, z, z.shape), z)
        p = run(workers, function.__name__, body, z, beta)
        return finish_entries(p, mask, dtype, out)

    arguments = ("z", parameter.name, "mask", "out", "workers")
    return accelerated(function, dispatch, arguments, body, parameter, ("number",))


def _derivative(
    body: Body, parameter: PerEntry, direction: str, result: str, function: Any
) -> Accelerated[..., Any]:
    arguments = ("p", direction, parameter.name, "mask")

    def dispatch(p: Any, v: Any, value: Any, mask: Any) -> Any:
        if is_dask(p):
            given = dict(zip(arguments, (p, v, value, mask), strict=True))
            return plan_rows(function, parameter, given, (result,))
        p, mask, dtype = arrange_entries(p, mask, name="p")
        directions: tuple[Any, ...] = ()
        if direction:
            p, v, dtype = in_one_dtype(p, v, direction, dtype)
            directions = (v,)
        beta = beta_like(parameter.checked(value, p, p.shape), p)
        each: Any = body(p, *directions, beta)
        if result != "gradient":
            return finish_entries(each, mask, dtype)
        each = each if mask is None else np.where(mask, each, 0)
        return reduce_to(each, np.shape(value)).astype(dtype, copy=False)[()]

    return accelerated(function, dispatch, arguments, body, parameter, (result,), kernels=False)


def beta_like(alpha: Any, z: Any) -> Any:
    """β = α − 1 in the dtype of z."""
    with np.errstate(over="ignore"):
        return (alpha - 1).astype(z.dtype)


def run(workers: Any, name: str, body: Body, z: Any, *operands: Any) -> Any:
    """What the kernel of that name or the body gives for arrays that broadcast to z, β last."""
    kernel = None
    if workers is not NO_KERNEL:
        workers = None if workers is None else threads.counted(workers)
        kernel = choice.kernels().get(name)
    z = np.asarray(z) if isinstance(z, np.generic) else z
    if kernel is None or not runs_kernels(z) or np.any(operands[-1] < 0):
        return body(z, *operands)  # kernels take no β below 0
    return threads.run(kernel, (z, *map(np.asarray, operands)), None, workers)
