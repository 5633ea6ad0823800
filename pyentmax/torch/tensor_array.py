"""A tensor that answers NumPy's functions, so that NumPy bodies run on it as torch operations.

The bodies of this library name NumPy's functions and call them with whatever array they got; by
NumPy's protocols (``__array_ufunc__`` and ``__array_function__``, NEP 13 and 18) the array says
what they do. This one does what they do with PyTorch, on the device where the tensor lies. What a
body does not use is not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_TORCH_DTYPES = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}
_NUMPY_DTYPES = {theirs: ours for ours, theirs in _TORCH_DTYPES.items()}


class TensorArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor as an array of NumPy's manner.

    Attributes
    ----------
    tensor : torch.Tensor
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    # --- what it is -------------------------------------------------------------------------------
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """That there is such a property says that the memory is a device's; nobody may look."""
        raise TypeError("PyTorch alone computes with this array")

    shape = property(lambda self: tuple(self.tensor.shape))
    ndim = property(lambda self: self.tensor.ndim)
    size = property(lambda self: self.tensor.numel())
    itemsize = property(lambda self: self.tensor.element_size())
    dtype = property(lambda self: _NUMPY_DTYPES[self.tensor.dtype])
    flat = property(lambda self: self.ravel())
    T = property(lambda self: TensorArray(self.tensor.permute(*range(self.ndim)[::-1])))
    flags = property(lambda self: _Flags(self.tensor.is_contiguous()))

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one entry to the next, by axis."""
        return tuple(step * self.itemsize for step in self.tensor.stride())

    def __len__(self) -> int:
        return len(self.tensor)

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __int__(self) -> int:
        return int(self.tensor)

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.tensor)

    def item(self) -> Any:
        """The one entry as a Python number."""
        return self.tensor.item()

    def get(self) -> np.ndarray:
        """A copy on the host."""
        copy: np.ndarray = self.tensor.cpu().numpy()
        return copy

    # --- entries ----------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> TensorArray:
        tensor, index = _forwards(self.tensor, index)
        return TensorArray(tensor[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tensor[_index(index)] = _tensor(value, self.tensor)

    # --- NumPy's protocols ------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if method == "at" and name == "add":
            array, index, values = (_tensor(x, self.tensor) for x in inputs)
            array.index_put_((index,), values.expand(index.shape).to(array.dtype), accumulate=True)
            return None
        if method == "reduce" and name in ("maximum", "minimum", "add"):
            reduction = {"maximum": _max, "minimum": _min, "add": _sum}[name]
            return reduction(*inputs, **{"axis": 0, **options})
        if method != "__call__" or options.keys() - {"out"}:
            return NotImplemented
        function = _UFUNCS.get(name) or getattr(torch, name)
        result = function(*_promoted(inputs, self.tensor))
        if "out" not in options:
            return TensorArray(result)
        (out,) = options["out"]  # as in a &= b
        out.tensor.copy_(result)
        return out

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if name in _MADE_BESIDE:  # NumPy keeps ``like=`` for itself: it is this array
            return TensorArray(_MADE_BESIDE[name](*args, **kwargs).to(self.tensor.device))
        ours = _FUNCTIONS.get(name)
        return NotImplemented if ours is None else ours(*args, **kwargs)

    # --- methods ----------------------------------------------------------------------------------
    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> TensorArray:
        """The entries in another dtype; on a device without float64, in float32 instead of that."""
        wanted = _TORCH_DTYPES[np.dtype(dtype)]
        if wanted == torch.float64 and self.tensor.device.type == "mps":
            wanted = torch.float32
        return TensorArray(self.tensor.to(wanted, copy=copy))

    def copy(self, order: str = "C") -> TensorArray:
        """The entries in memory of their own, one row after the other."""
        return TensorArray(self.tensor.clone(memory_format=torch.contiguous_format))

    def reshape(self, *shape: Any) -> TensorArray:
        """The entries in another shape."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return TensorArray(self.tensor.reshape(shape))

    def ravel(self) -> TensorArray:
        """The entries in one axis."""
        return TensorArray(self.tensor.reshape(-1))

    def any(self, axis: Any = None, keepdims: bool = False) -> TensorArray:
        """Whether one entry is not 0."""
        return _any(self, axis, keepdims=keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> TensorArray:
        """Whether no entry is 0."""
        return _all(self, axis, keepdims=keepdims)

    def sum(self, axis: Any = None, keepdims: bool = False) -> TensorArray:
        """The sum of the entries."""
        return _sum(self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> TensorArray:
        """The largest entry."""
        return _max(self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> TensorArray:
        """The smallest entry."""
        return _min(self, axis, keepdims=keepdims)


class _Flags:
    def __init__(self, contiguous: bool) -> None:
        self.c_contiguous = contiguous


# --- operands -------------------------------------------------------------------------------------


def _tensor(value: Any, like: torch.Tensor) -> torch.Tensor:
    if isinstance(value, TensorArray):
        return value.tensor
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"an array on the host does not go with one on {like.device}")
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    if isinstance(value, float) and like.dtype.is_floating_point:
        return torch.tensor(value, dtype=like.dtype, device=like.device)
    return torch.tensor(value, device=like.device)


def _promoted(values: Any, like: torch.Tensor) -> list[torch.Tensor]:
    """Tensors of one dtype, as NumPy promotes them: Python's numbers follow the arrays."""
    arrays = [value.tensor for value in values if isinstance(value, TensorArray)]
    dtype = np.result_type(
        *(_NUMPY_DTYPES[tensor.dtype] for tensor in arrays),
        *(value for value in values if type(value) in (bool, int, float)),
    )
    if len(arrays) == len(values) and all(tensor.dtype == arrays[0].dtype for tensor in arrays):
        return arrays
    wanted = _TORCH_DTYPES[dtype]
    if wanted == torch.float64 and like.device.type == "mps":
        wanted = torch.float32
    one = torch.empty((), dtype=wanted, device=like.device)
    return [_tensor(value, one).to(wanted) for value in values]


def _index(index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    parts = tuple(part.tensor if isinstance(part, TensorArray) else part for part in parts)
    return parts if isinstance(index, tuple) else parts[0]


def _forwards(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """The tensor reversed where a slice goes backwards, which PyTorch's cannot; and the rest."""
    parts = list(index) if isinstance(index, tuple) else [index]
    backwards = slice(None, None, -1)
    if not any(isinstance(part, slice) and part == backwards for part in parts):
        return tensor, _index(index)
    if parts[0] is Ellipsis:
        axes = range(tensor.ndim - len(parts) + 1, tensor.ndim)
        pairs = zip(axes, parts[1:], strict=True)
    else:
        pairs = zip(range(len(parts)), parts, strict=True)
    reversed_axes = [axis for axis, part in pairs if isinstance(part, slice) and part == backwards]
    parts = [
        slice(None) if isinstance(part, slice) and part == backwards else part for part in parts
    ]
    return tensor.flip(reversed_axes), _index(tuple(parts))


# --- elementwise ----------------------------------------------------------------------------------


def _float(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda x: function(x if x.dtype.is_floating_point else x.double())


_UFUNCS: dict[str, Callable[..., torch.Tensor]] = {
    "absolute": torch.abs,
    "invert": lambda x: ~x,
    "power": torch.pow,
    "divide": torch.true_divide,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "arcsinh": torch.asinh,
    "sqrt": _float(torch.sqrt),
    "log": _float(torch.log),
}


# --- functions ------------------------------------------------------------------------------------


def _axes(array: TensorArray, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(array.ndim))
    return tuple(axis) if isinstance(axis, tuple) else (axis,)


def _reduction(function: Callable[..., torch.Tensor]) -> Callable[..., TensorArray]:
    def reduce(a: TensorArray, axis: Any = None, keepdims: bool = False) -> TensorArray:
        return TensorArray(function(a.tensor, _axes(a, axis), keepdim=keepdims))

    return reduce


_max, _min = _reduction(torch.amax), _reduction(torch.amin)
_any, _all = _reduction(torch.any), _reduction(torch.all)


def _sum(
    a: TensorArray, axis: Any = None, dtype: Any = None, keepdims: bool = False
) -> TensorArray:
    a = a if dtype is None else a.astype(dtype, copy=False)
    axes = _axes(a, axis)
    return TensorArray(a.tensor.sum(axes, keepdim=keepdims) if axes else a.tensor.clone())


def _mean(
    a: TensorArray, axis: Any = None, dtype: Any = None, keepdims: bool = False
) -> TensorArray:
    a = a if dtype is None else a.astype(dtype, copy=False)
    return TensorArray(a.tensor.mean(_axes(a, axis), keepdim=keepdims))


def _cumsum(a: TensorArray, axis: Any = None, dtype: Any = None) -> TensorArray:
    a = a if dtype is None else a.astype(dtype, copy=False)
    return TensorArray(a.tensor.reshape(-1).cumsum(0) if axis is None else a.tensor.cumsum(axis))


def _argmax(a: TensorArray, axis: int = -1, keepdims: bool = False) -> TensorArray:
    return TensorArray(a.tensor.argmax(axis, keepdim=keepdims))


def _where(condition: Any, x: Any, y: Any) -> TensorArray:
    like = next(v.tensor for v in (condition, x, y) if isinstance(v, TensorArray))
    chosen = [v for v in (x, y) if isinstance(v, TensorArray)]
    x, y = _promoted((x, y), chosen[0].tensor) if chosen else _promoted_numbers(x, y, like)
    return TensorArray(torch.where(_tensor(condition, like), x, y))


def _promoted_numbers(x: Any, y: Any, like: torch.Tensor) -> list[torch.Tensor]:
    dtype = _TORCH_DTYPES[np.result_type(np.asarray(x), np.asarray(y))]
    if dtype == torch.float64 and like.device.type == "mps":
        dtype = torch.float32
    return [torch.tensor(value, dtype=dtype, device=like.device) for value in (x, y)]


def _clip(a: TensorArray, a_min: Any = None, a_max: Any = None) -> TensorArray:
    for bound, closer in ((a_min, torch.maximum), (a_max, torch.minimum)):
        if bound is not None:
            a = TensorArray(closer(*_promoted((a, bound), a.tensor)))
    return a


def _full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> TensorArray:
    array = TensorArray(a.tensor.new_empty(0)).astype(a.dtype if dtype is None else dtype)
    value = fill_value.item() if hasattr(fill_value, "item") else fill_value
    return TensorArray(array.tensor.new_full(a.shape if shape is None else shape, value))


def _filled_like(value: int) -> Callable[..., TensorArray]:
    def filled(a: TensorArray, dtype: Any = None, shape: Any = None) -> TensorArray:
        return _full_like(a, value, dtype, shape)

    return filled


def _moveaxis(a: TensorArray, source: Any, destination: Any) -> TensorArray:
    axes = (source,) if isinstance(source, int) else tuple(source)
    places = (destination,) if isinstance(destination, int) else tuple(destination)
    return TensorArray(a.tensor.movedim(axes, places))


def _take_along_axis(a: TensorArray, indices: TensorArray, axis: int = -1) -> TensorArray:
    shape = list(np.broadcast_shapes(_without(a.shape, axis), _without(indices.shape, axis)))
    at = axis % a.ndim
    wide = [*shape[:at], a.shape[at], *shape[at:]]
    chosen = [*shape[:at], indices.shape[at], *shape[at:]]
    return TensorArray(a.tensor.expand(wide).gather(at, indices.tensor.expand(chosen)))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    at = axis % len(shape)
    return shape[:at] + shape[at + 1 :]


def _sort(a: TensorArray, axis: int = -1, kind: Any = None) -> TensorArray:
    return TensorArray(a.tensor.sort(dim=axis, stable=True).values)


def _argsort(a: TensorArray, axis: int = -1, kind: Any = None) -> TensorArray:
    return TensorArray(a.tensor.argsort(dim=axis, stable=True))


def _partition(a: TensorArray, kth: Any, axis: int = -1) -> TensorArray:
    return _sort(a, axis)


def _diff(a: TensorArray, axis: int = -1, prepend: Any = None, append: Any = None) -> TensorArray:
    ends = [
        None if end is None else _end(end, a.tensor, axis) for end in (prepend, append)
    ]  # PyTorch's take tensors alone
    return TensorArray(torch.diff(a.tensor, dim=axis, prepend=ends[0], append=ends[1]))


def _end(value: Any, like: torch.Tensor, axis: int) -> torch.Tensor:
    if isinstance(value, TensorArray):
        return value.tensor
    shape = list(like.shape)
    shape[axis] = 1
    return like.new_full(shape, value)


def _concatenate(arrays: Any, axis: int = 0) -> TensorArray:
    return TensorArray(torch.cat([array.tensor for array in arrays], dim=axis))


def _repeat(a: TensorArray, repeats: Any, axis: Any = None) -> TensorArray:
    repeats = repeats.tensor if isinstance(repeats, TensorArray) else repeats
    return TensorArray(a.tensor.repeat_interleave(repeats, dim=axis))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "all": _all,
    "any": _any,
    "argmax": _argmax,
    "argsort": _argsort,
    "broadcast_to": lambda array, shape: TensorArray(array.tensor.expand(shape)),
    "clip": _clip,
    "concatenate": _concatenate,
    "cumsum": _cumsum,
    "diff": _diff,
    "empty_like": _filled_like(0),
    "expand_dims": lambda a, axis: TensorArray(a.tensor.unsqueeze(axis)),
    "flatnonzero": lambda a: TensorArray(a.tensor.reshape(-1).nonzero()[:, 0]),
    "full_like": _full_like,
    "inv": lambda a: TensorArray(torch.linalg.inv(a.tensor)),
    "max": _max,
    "mean": _mean,
    "min": _min,
    "moveaxis": _moveaxis,
    "ndim": lambda a: a.ndim,
    "ones_like": _filled_like(1),
    "partition": _partition,
    "repeat": _repeat,
    "reshape": lambda a, shape: a.reshape(shape),
    "round": lambda a, decimals=0: TensorArray(a.tensor.round(decimals=decimals)),
    "shape": lambda a: a.shape,
    "sort": _sort,
    "sum": _sum,
    "swapaxes": lambda a, axis1, axis2: TensorArray(a.tensor.swapaxes(axis1, axis2)),
    "take_along_axis": _take_along_axis,
    "where": _where,
    "zeros_like": _filled_like(0),
}


def _made(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    return lambda *args, **kwargs: torch.as_tensor(function(*args, **kwargs))


_MADE_BESIDE = {function.__name__: _made(function) for function in (np.arange, np.asarray, np.tri)}
