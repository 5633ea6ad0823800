"""Dask arrays: every function plans one call of itself for each chunk of whole rows.

A Dask array is a plan of an array that is cut into chunks. `dask.array.apply_gufunc` aligns the
chunks of all operands, and raises an error where a row lies in more than one. A chunk is computed
as an array in memory is, so that values are checked, and errors about them raised, only then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def is_dask(array: Any) -> bool:
    """Whether an array is one of Dask's."""
    return type(array).__module__.partition(".")[0] == "dask"


def plan(
    function: Callable[..., Any],
    signature: str,
    *arrays: Any,
    sizes: dict[str, int] | None = None,
) -> Any:
    """The results of ``function(*arrays)`` as Dask arrays, one call for each chunk of the batch.

    Parameters
    ----------
    function : callable
        of arrays in memory whose batch shapes broadcast; it is called once with empty batches, for
        the dtypes of its results
    signature : str
        the core dimensions, as of a generalised ufunc: ``"(t,d),(s,d),(s,v)->(t,v)"``. Each has to
        lie in one chunk
    *arrays : Dask arrays, or what converts to them
    sizes : dict, optional
        the lengths of core dimensions that only results have

    Examples
    --------
    >>> da = __import__("pytest").importorskip("dask.array")
    >>> rows = da.ones((4, 3), chunks=(2, 3))
    >>> plan(lambda z: z.sum(axis=-1), "(n)->()", rows).compute()
    array([3., 3., 3., 3.])
    """
    import dask.array as da

    operands = [da.asarray(array) for array in arrays]
    names = [x.split(",") if x else [] for x in re.findall(r"\((.*?)\)", signature.split("->")[0])]
    pairs, samples = [], []
    for array, core in zip(operands, names, strict=True):
        batch = array.ndim - len(core)
        pairs += [array, (*range(-batch, 0), *core)]  # batch axes are aligned at their end
        shape = (0, *(1 if n != n else n for n in array.shape[batch:]))  # NaN: unknown to Dask
        samples.append(np.empty_like(array._meta, shape=shape))
    _, operands = da.core.unify_chunks(*pairs)
    found = function(*samples)
    dtypes = [part.dtype for part in found] if isinstance(found, tuple) else found.dtype
    return da.apply_gufunc(function, signature, *operands, output_dtypes=dtypes, output_sizes=sizes)


def plan_rows(
    function: Callable[..., Any],
    rows: Mapping[str, Any],
    axes: tuple[int, ...],
    per_row: Mapping[str, Any],
    results: Sequence[str] = ("entries",),
    **options: Any,
) -> Any:
    """The results of ``function(**rows, **per_row, **options, axis=axes)`` as Dask arrays.

    Parameters
    ----------
    function : callable
    rows : dict
        arguments that broadcast to the first, or None
    axes : tuple of int
        of the first array, that form a row
    per_row : dict
        arguments with a number for each row, or one for all
    results : sequence of {"entries", "number", "matrix"}
        what the function gives for a row
    """
    first, *_ = rows.values()
    last = tuple(range(-len(axes), 0))
    core = ",".join(f"i{axis}" for axis in axes)
    length = math.prod(first.shape[axis] for axis in axes)
    operands = {
        name: np.moveaxis(array if array is first else _broadcast(array, first, name), axes, last)
        for name, array in rows.items()
        if array is not None
    }
    count = len(operands)
    options = {**options, "axis": last if len(last) > 1 else -1}
    for name, value in per_row.items():
        (operands if np.ndim(value) else options)[name] = value

    def chunk(*blocks: Any) -> Any:
        return function(**dict(zip(operands, blocks, strict=True)), **options)

    forms = {"entries": f"({core})", "number": "()", "matrix": "(u,w)"}
    inputs = [f"({core})"] * count + ["()"] * (len(operands) - count)
    signature = f"{','.join(inputs)}->{','.join(forms[result] for result in results)}"
    sizes = {"u": length, "w": length} if "matrix" in results else None
    found = plan(chunk, signature, *operands.values(), sizes=sizes)
    found = found if isinstance(found, (tuple, list)) else (found,)
    found = tuple(
        np.moveaxis(part, last, axes) if result == "entries" else part
        for part, result in zip(found, results, strict=True)
    )
    return found if len(found) > 1 else found[0]


def _broadcast(array: Any, like: Any, name: str) -> Any:
    import dask.array as da

    try:
        return da.broadcast_to(da.asarray(array), like.shape)
    except ValueError:
        raise ValueError(
            f"{name} of shape {np.shape(array)} does not broadcast to shape {like.shape}"
        ) from None
