"""Lazy arrays (Dask's): plans of arrays, cut into chunks, that are computed chunk by chunk later.

Called with one, a generalised ufunc leaves the call to Dask, by NumPy's protocol, and Dask plans a
task per chunk. So compiled functions take lazy arrays and return lazy arrays. What is here is what
Dask asks for: each row in one chunk, and all operands cut alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.calls.gufuncs import core_dimensions


def is_lazy(array: Any) -> bool:
    """Whether an array is only the plan of one: Dask's, or what is built upon them."""
    graph = getattr(array, "__dask_graph__", None)
    return graph is not None and graph() is not None


def chunk_type(array: Any) -> Any:
    """The array, or an empty array of a lazy one's chunks' type."""
    return getattr(array, "_meta", array) if is_lazy(array) else array


def check_known(array: Any, name: str, axes: tuple[int, ...] | None = None) -> None:
    """Refuse a lazy array whose length along one of the axes (by default all) is unknown.

    Dask does not know it where the array was selected by what has not been computed: it is NaN.

    Raises
    ------
    ValueError
        that says what to do
    """
    if is_lazy(array) and np.isnan([array.shape[a] for a in axes or range(array.ndim)]).any():
        raise ValueError(
            f"{name} is a Dask array with chunks of unknown sizes, of shape {array.shape}; call "
            "its compute_chunk_sizes() before, or map the function over the chunks of whole rows "
            "with dask.array.map_blocks"
        )


def without_empty_chunks(array: Any) -> Any:
    """The array without the chunks of length 0 that selecting rows may leave; no other is touched.

    Dask takes one for a whole axis of length 1, and cannot reshape it.
    """
    if not is_lazy(array):
        return array
    full = [tuple(n for n in chunks if n != 0) or (0,) for chunks in array.chunks]
    fewer = {i: new for i, new in enumerate(full) if len(new) < len(array.chunks[i])}
    if fewer and 0 in array.shape:  # which rechunk leaves as it is
        import dask.array

        return dask.array.empty_like(array, chunks=tuple(full))
    return array.rechunk(fewer) if fewer else array


def reshaped(array: Any, shape: tuple[int, ...]) -> Any:
    """The array in another shape. Dask cannot do that to nothing in several chunks."""
    if not (is_lazy(array) and 0 in shape):
        return array.reshape(shape)
    import dask.array

    return dask.array.empty_like(array, shape=shape)  # one of no entries is like another


def broadcast_to(array: Any, like: Any) -> Any:
    """The array in the shape of another, without a copy; a lazy one also in its chunks.

    Dask would broadcast it in one chunk, and copy what it cuts from that: as much again as `like`.
    """
    if not is_lazy(like):
        return np.broadcast_to(array, like.shape)
    import dask.array

    array = array.rechunk(_chunks(array.shape, list(like.chunks)))
    return dask.array.broadcast_to(array, like.shape, chunks=like.chunks)


def largest(array: Any, axis: Any = -1) -> Any:
    """The largest along an axis or several, which stay with length 1.

    Dask's own maximum of an array that has a chunk without rows, as after selecting some, is an
    error of NumPy's.
    """
    if not is_lazy(array):
        return np.max(array, axis=axis, keepdims=True)
    import dask.array

    return dask.array.reduction(array, np.max, np.max, axis, keepdims=True, dtype=array.dtype)


def cut_alike(kernel: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a kernel's call with the chunks of the first, where they are lazy.

    Raises
    ------
    ValueError
        if a row of the first operand lies in more than one chunk
    """
    if not is_lazy(operands[0]):
        return operands
    if len(row := operands[0].chunks[-1]) > 1:
        raise ValueError(
            f"the rows of a Dask array must lie in one chunk each, here they lie in {len(row)}; "
            "pass array.rechunk({axis: -1}) for the axis along which they go"
        )
    inputs, _ = core_dimensions(kernel)
    if 0 in (shape := operands[0].shape[:-1]):  # to Dask, one entry for no rows does not fit
        operands = tuple(
            np.broadcast_to(x, shape + x.shape[x.ndim - core :])
            for x, core in zip((operands[0].rechunk(-1), *operands[1:]), inputs, strict=True)
        )
    batch = operands[0].chunks[:-1]
    return tuple(
        x.rechunk(_chunks(x.shape, [*batch, row][: len(batch) + core])) if is_lazy(x) else x
        for x, core in zip(operands, inputs, strict=True)
    )


def entrywise(function: Any, operands: tuple[Any, ...], results: int = 1) -> Any:
    """Results of a function that goes entry by entry, planned in a task per chunk.

    Parameters
    ----------
    function : callable
        of arrays that broadcast to the first, returning `results` arrays of its shape and dtype
    operands : tuple
        arrays that broadcast to the first, which is lazy
    """
    import dask.array

    first, *rest = operands
    if 0 in first.shape:  # to Dask, one entry for none does not fit
        rest = [np.broadcast_to(x, first.shape) for x in rest]
    arrays = (dask.array.asarray(x) for x in rest)
    operands = (first, *(x.rechunk(_chunks(x.shape, list(first.chunks))) for x in arrays))
    dtype = first.dtype
    signature = ",".join(["()"] * len(operands)) + "->" + ",".join(["()"] * results)
    dtypes = dtype if results == 1 else (dtype,) * results
    return dask.array.apply_gufunc(function, signature, *operands, output_dtypes=dtypes)


def _chunks(shape: tuple[int, ...], like: list[Any]) -> dict[int, Any]:
    """The chunks to cut each dimension into, aligned with the others from the end."""
    pairs = zip(range(len(shape)), like[len(like) - len(shape) :], strict=True)
    return {i: chunks for i, chunks in pairs if shape[i] == sum(chunks)}
