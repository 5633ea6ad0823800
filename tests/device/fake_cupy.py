"""A stand-in for CuPy where there is no GPU: NumPy's results behind CuPy's surface, as strict.

What works here is meant to work on CuPy (13.4 or later), so everything that would fail there does:

* there is no way to NumPy but `get`, `item` and the like, and none back but `asarray`;
* a NumPy array among the operands is a TypeError, a 0-d one too; NumPy scalars are welcome;
* only the functions, keywords, methods and ufuncs that CuPy has are here, by the tables below;
* reductions and single entries come as 0-d arrays, never as scalars.

`copies` counts what crosses between host and device, the places included where CuPy waits for the
device to learn a size or a truth value. `test_on_device.py` compares the tables with CuPy itself
where that is installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np


class Copies:
    """How often something went to the device and came back since `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.to_device = self.to_host = 0


copies = Copies()

METHODS = """all any argmax argmin argsort clip cumsum dot flatten max mean min prod ravel repeat
reshape round squeeze std sum swapaxes take trace transpose var view""".split()

ATTRIBUTES = "dtype imag itemsize nbytes ndim real shape size strides T flags".split()

UFUNCS = """abs absolute add arcsinh bitwise_and bitwise_or bitwise_xor ceil copysign cos divide
equal exp expm1 floor floor_divide fmax fmin greater greater_equal invert isfinite isinf isnan
left_shift less less_equal log log1p log2 logical_and logical_not logical_or logical_xor maximum
minimum multiply negative nextafter not_equal positive power remainder right_shift rint sign signbit
sin sinh sqrt square subtract tanh true_divide""".split()

# As CuPy writes them: NumPy's keywords that are not here are not there either.
SIGNATURES = """
all(a, axis=None, out=None, keepdims=False)
amax(a, axis=None, out=None, keepdims=False)
any(a, axis=None, out=None, keepdims=False)
arange(start, stop=None, step=1, dtype=None)
argmax(a, axis=None, dtype=None, out=None, keepdims=False)
argmin(a, axis=None, dtype=None, out=None, keepdims=False)
argsort(a, axis=-1, kind=None)
array_equal(a1, a2, equal_nan=False)
bincount(x, weights=None, minlength=None)
broadcast_to(array, shape)
clip(a, a_min, a_max, out=None)
concatenate(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
count_nonzero(a, axis=None)
cumsum(a, axis=None, dtype=None, out=None)
diff(a, n=1, axis=-1, prepend=None, append=None)
einsum(*operands, **kwargs)
empty(shape, dtype=float, order='C')
empty_like(prototype, dtype=None, order='K', subok=None, shape=None)
expand_dims(a, axis)
eye(N, M=None, k=0, dtype=float, order='C')
flatnonzero(a)
full(shape, fill_value, dtype=None, order='C')
full_like(a, fill_value, dtype=None, order='K', subok=None, shape=None)
linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0)
matmul(x1, x2, /, out=None, **kwargs)
max(a, axis=None, out=None, keepdims=False)
mean(a, axis=None, dtype=None, out=None, keepdims=False)
min(a, axis=None, out=None, keepdims=False)
moveaxis(a, source, destination)
nonzero(a)
ones(shape, dtype=float, order='C')
ones_like(a, dtype=None, order='K', subok=None, shape=None)
partition(a, kth, axis=-1)
ravel(a, order='C')
repeat(a, repeats, axis=None)
reshape(a, newshape, order='C')
roll(a, shift, axis=None)
round(a, decimals=0, out=None)
searchsorted(a, v, side='left', sorter=None)
shape(a)
sort(a, axis=-1, kind=None)
split(ary, indices_or_sections, axis=0)
squeeze(a, axis=None)
stack(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
sum(a, axis=None, dtype=None, out=None, keepdims=False)
swapaxes(a, axis1, axis2)
take_along_axis(a, indices, axis)
transpose(a, axes=None)
where(condition, x=None, y=None)
zeros(shape, dtype=float, order='C')
zeros_like(a, dtype=None, order='K', subok=None, shape=None)
""".strip().splitlines()

SAME_AS_NUMPYS = """bool_ broadcast_shapes can_cast dtype e finfo float16 float32 float64 floating
iinfo inf int8 int32 int64 integer intp nan newaxis pi promote_types uint8 uint32 uint64""".split()

# CuPy waits for the device to know the size of the result.
_WAITING = ("bincount", "flatnonzero", "nonzero")


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):  # noqa: N801
    """An array on the device that is not there."""

    def __init__(self, held: np.ndarray) -> None:
        self._held = held

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise AssertionError("there is no device memory to look at")

    # --- the ways to the host ---------------------------------------------------------------------
    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def get(self) -> np.ndarray:
        copies.to_host += 1
        return self._held.copy()

    def item(self, *args: int) -> Any:
        return self.get().item(*args)

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __index__(self) -> int:
        return int(self.get().__index__())

    def __repr__(self) -> str:
        return repr(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec)

    # --- entries ----------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        return _wrapped(self._held[_index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        if isinstance(value, (list, tuple)):
            raise TypeError(f"Unsupported type {type(value)}")
        self._held[_index(index)] = _unwrapped(value)

    # --- NumPy's protocols ------------------------------------------------------------------------
    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        ours = _SURFACE.get(function.__name__)
        if ours is None or (method != "__call__" and not isinstance(ours, ufunc)):
            return NotImplemented
        if function.__name__ in _COMPARISONS:  # CuPy lets 0-d ones pass here
            inputs = tuple(
                x.item() if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs
            )
        if "out" in options:
            (options["out"],) = options["out"]
        return (ours if method == "__call__" else getattr(ours, method))(*inputs, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ not in _FUNCTIONS:
            return NotImplemented
        return _FUNCTIONS[function.__name__](*args, **kwargs)

    # --- methods ----------------------------------------------------------------------------------
    def astype(self, dtype: Any, order: str = "K", casting: Any = None, copy: bool = True) -> Any:
        result = self._held.astype(dtype, order=order, copy=copy)
        return self if result is self._held else ndarray(result)

    def copy(self, order: str = "C") -> Any:
        return ndarray(self._held.copy(order=order))

    def fill(self, value: Any) -> None:
        self[...] = value

    def __getattr__(self, name: str) -> Any:
        if name in ATTRIBUTES:
            return _wrapped(getattr(self._held, name))
        if name in METHODS:
            return _guarded(getattr(self._held, name), name)
        raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")


class ufunc:  # noqa: N801
    """An elementwise function."""

    def __init__(self, numpys: np.ufunc) -> None:
        self._numpys = numpys

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None) -> Any:
        _refuse_numpy(args)
        options = {} if dtype is None else {"dtype": dtype}
        if out is not None:
            if not isinstance(out, ndarray):
                raise TypeError(f"out must be a cupy.ndarray, got {type(out)}")
            options["out"] = out._held
        with np.errstate(all="ignore"):  # no GPU warns
            result = self._numpys(*_unwrapped(args), **options)
        return _wrapped(result) if out is None else out

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        _refuse_numpy((a, b))
        self._numpys.at(a._held, _index(indices), *([] if b is None else [_unwrapped(b)]))

    def reduceat(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("CuPy's reduceat takes differences of one running sum: not here")


def asarray(obj: Any, dtype: Any = None, order: Any = None) -> Any:
    """The one way to the device; what is there already is not copied."""
    if isinstance(obj, ndarray):
        return obj if dtype is None else obj.astype(dtype, copy=False)
    copies.to_device += 1
    return ndarray(np.array(_unwrapped(obj), dtype=dtype, order=order))


array = asanyarray = ascontiguousarray = asarray


def asnumpy(a: Any) -> np.ndarray:
    """The array on the host."""
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def moved(x: Any) -> Any:
    """Arrays to the device; what is none stays."""
    return asarray(x) if isinstance(x, np.ndarray) else x


def _wrapped(result: Any) -> Any:
    if isinstance(result, (np.ndarray, np.generic)):
        return ndarray(np.asarray(result))
    if isinstance(result, (tuple, list)) and any(isinstance(x, np.ndarray) for x in result):
        return type(result)(map(_wrapped, result))
    return result


def _unwrapped(x: Any) -> Any:
    if isinstance(x, ndarray):
        return x._held
    if isinstance(x, (tuple, list)):
        return type(x)(map(_unwrapped, x))
    return x


def _refuse_numpy(args: Any) -> None:
    for x in args:
        if isinstance(x, np.ndarray):
            raise TypeError(f"Unsupported type {type(x)}")
        if isinstance(x, (list, tuple)):
            _refuse_numpy(x)


def _index(index: Any) -> Any:
    """An index for NumPy: views where CuPy gives views, and copies counted where it copies."""
    parts = index if isinstance(index, tuple) else (index,)
    basic = True
    for part in parts:
        if isinstance(part, (np.ndarray, list)):
            copies.to_device += 1
        if isinstance(part, ndarray) and part.dtype == bool:
            copies.to_host += 1  # how many are True
        basic = basic and (
            part is None or part is Ellipsis or isinstance(part, (int, slice, np.integer))
        )
    parts = tuple(map(_unwrapped, parts))
    return (*parts, Ellipsis) if basic and not any(p is Ellipsis for p in parts) else parts


def _guarded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        # CuPy takes one NumPy array: the value of full_like, if it is a single number.
        filled = name == "full_like" and all(getattr(x, "size", 1) == 1 for x in args[1:2])
        _refuse_numpy(args[2:] if filled else args)
        _refuse_numpy(kwargs.values())
        copies.to_host += name in _WAITING
        options = {key: _unwrapped(value) for key, value in kwargs.items()}
        if name.endswith("_like") and not options.get("shape", True):
            del options["shape"]  # CuPy takes the shape () for none
        return _wrapped(function(*map(_unwrapped, args), **options))

    return call


def _function(declaration: str) -> tuple[str, Callable[..., Any]]:
    """A function of the table, which takes what CuPy's takes and computes as NumPy's does."""
    name = declaration[: declaration.index("(")]
    scope: dict[str, Any] = {}
    exec(f"def {declaration}: ...", {"float": float}, scope)
    signature = inspect.signature(scope[name])
    guarded = _guarded(getattr(np, name), name)

    def call(*args: Any, **kwargs: Any) -> Any:
        signature.bind(*args, **kwargs)  # a TypeError for what CuPy does not take
        return guarded(*args, **{k: v for k, v in kwargs.items() if v is not None})

    return name, call


_COMPARISONS = ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
_FUNCTIONS = {**dict(map(_function, SIGNATURES)), "asarray": asarray}
_FUNCTIONS["inv"] = _guarded(np.linalg.inv, "inv")  # of cupy.linalg
_SURFACE = {
    **_FUNCTIONS,
    **{name: ufunc(getattr(np, name)) for name in UFUNCS},
    **{name: getattr(np, name) for name in SAME_AS_NUMPYS},
}


def __getattr__(name: str) -> Any:  # not globals: `any` and `max` stay Python's in this file
    try:
        return _SURFACE[name]
    except KeyError:
        raise AttributeError(f"module 'cupy' has no attribute {name!r}") from None
