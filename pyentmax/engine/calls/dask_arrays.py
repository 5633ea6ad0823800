"""Dask arrays: every function plans one call of itself for each chunk of whole rows.

A Dask array is a plan of an array that is cut into chunks. `dask.array.apply_gufunc` aligns the
chunks of all operands, and raises an error where a row lies in more than one. A chunk is computed
as an array in memory is, so that values are checked, and errors about them raised, only then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import is_dask
from pyentmax.engine.calls.parameters import Parameter, UpperBounds
from pyentmax.engine.calls.rows import broadcasts, check_axis, check_same_shape, reduce_to

SAME_SHAPE = ("v", "g", "z", "y")  # arrays that do not broadcast to the first


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

    _check_lengths(*arrays)
    operands = [da.asarray(array) for array in arrays]
    names = [x.split(",") if x else [] for x in re.findall(r"\((.*?)\)", signature.split("->")[0])]
    pairs, samples = [], []
    for array, core in zip(operands, names, strict=True):
        batch = array.ndim - len(core)
        pairs += [array, (*range(-batch, 0), *core)]  # batch axes are aligned at their end
        shape = (0, *(1 if n != n else n for n in array.shape[batch:]))  # NaN: unknown to Dask
        samples.append(np.empty_like(array._meta, shape=shape))
    _, operands = da.core.unify_chunks(*pairs)
    for operand, core in zip(operands, names, strict=True):
        for chunks in operand.chunks[operand.ndim - len(core) :]:
            if len(chunks) > 1:
                raise ValueError(
                    f"expected whole rows in a chunk, got an axis of {sum(chunks)} entries in "
                    f"{len(chunks)} chunks; array.rechunk({{axis: -1}}) puts them into one"
                )
    result = function(*samples)
    dtypes = [part.dtype for part in result] if isinstance(result, tuple) else result.dtype
    return da.apply_gufunc(function, signature, *operands, output_dtypes=dtypes, output_sizes=sizes)


def plan_rows(
    function: Callable[..., Any],
    parameter: Parameter | None,
    kwargs: Mapping[str, Any],
    results: Sequence[str] = ("entries",),
    per_row: Collection[str] = (),
    **options: Any,
) -> Any:
    """The results of ``function(**kwargs, **options)`` as Dask arrays.

    Parameters
    ----------
    function : callable
    parameter : Parameter or None
        whose value is among the arguments
    kwargs : dict
        arrays by name, the first of the shape of the call, others or None; and the ``axis``, unless
        each entry is a row of its own
    results : sequence of {"entries", "number", "matrix", "gradient"}
        what the function gives for each row
    per_row : collection of str
        names of arrays with a number for each row, as a parameter that is not a bound
    **options
        other arguments
    """
    import dask.array as da

    _check_lengths(*(array for name, array in kwargs.items() if name != "axis"))
    (name, first), *others = kwargs.items()
    axes = check_axis(first.shape, kwargs["axis"], name) if "axis" in kwargs else ()
    last = tuple(range(-len(axes), 0))
    if axes:
        options["axis"] = last if len(last) > 1 else -1
    batch = tuple(n for i, n in enumerate(first.shape) if i not in axes)
    bounds, named = isinstance(parameter, UpperBounds), "" if parameter is None else parameter.name
    rows, numbers = {name: first}, {}
    for name, array in others:
        if array is None or name == "axis":
            continue
        is_number = not (np.ndim(array) or is_dask(array))
        if is_number and not (name == named and "gradient" in results):
            options[name] = array
        elif name in per_row or (name == named and not bounds):
            numbers[name] = _broadcast(array, batch, name)
        elif name in SAME_SHAPE:
            check_same_shape(np.shape(array), name, first.shape)
            rows[name] = da.asarray(array)
        else:
            rows[name] = _broadcast(array, first.shape, name)
    names = [*rows, *numbers]

    def chunk(*blocks: Any) -> Any:
        return function(**dict(zip(names, blocks, strict=True)), **options)

    core = ",".join(f"i{axis}" for axis in axes)
    forms = {"entries": f"({core})", "number": "()", "matrix": "(u,w)"}
    forms["gradient"] = forms["entries" if bounds else "number"]
    inputs = [forms["entries"]] * len(rows) + ["()"] * len(numbers)
    length = math.prod(first.shape[axis] for axis in axes)
    planned = plan(
        chunk,
        f"{','.join(inputs)}->{','.join(forms[result] for result in results)}",
        *(np.moveaxis(array, axes, last) for array in rows.values()),
        *numbers.values(),
        sizes={"u": length, "w": length} if "matrix" in results else None,
    )
    parts = []
    for result, part in zip(results, planned if len(results) > 1 else (planned,), strict=True):
        if forms[result] == forms["entries"]:
            part = np.moveaxis(part, last, axes)
        parts.append(reduce_to(part, np.shape(kwargs[named])) if result == "gradient" else part)
    return parts[0] if len(parts) == 1 else tuple(parts)


def _broadcast(array: Any, shape: tuple[int, ...], name: str) -> Any:
    import dask.array as da

    if not broadcasts(np.shape(array), shape):
        raise ValueError(f"{name} of shape {np.shape(array)} does not broadcast to shape {shape}")
    return da.broadcast_to(da.asarray(array), shape)


def _check_lengths(*arrays: Any) -> None:
    shapes = [np.shape(array) for array in arrays if np.ndim(array)]
    if len(shapes) > 1 and any(n != n for shape in shapes for n in shape):
        raise ValueError(
            f"cannot align shapes {', '.join(map(str, shapes))}: Dask does not know the lengths "
            "that are nan; call .compute_chunk_sizes() of the arrays first"
        )
