"""A function of any library's arrays, called with float64 on the host, and what it should give."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from itertools import product
from typing import Any

import numpy as np

from pyentmax.calls.record import Mapping
from pyentmax.checking._differences import Array
from pyentmax.checking._grades import CallError
from pyentmax.checking._libraries import (
    LIBRARIES,
    SMALLEST,
    SPACINGS,
    Function,
    Library,
    Subject,
    blaming,
    dtype_name,
    library_of,
    parameter_names,
)
from pyentmax.checking._truths import JACOBIANS, slack

LENGTHS = (3, 5, 40, 100)  # of rows; the first that fn takes is the length of rows in batches
FIXED = (2, 4, 6, 8, 10, 12, 16, 20, 32, 50, 64)  # of functions that take one length only


def once(method: Callable[..., Array]) -> Callable[..., Array]:
    """A method of `Claim` that computes a result once for the same scores."""

    @wraps(method)
    def remembered(self: Claim, z: Array, axis: int = -1) -> Array:
        key = method, z.shape, z.tobytes(), axis
        if key not in self.results:
            self.results[key] = method(self, z, *([] if axis == -1 else [axis]))
        return self.results[key]

    return remembered


def claims_of(
    fn: Function, record: Mapping, parameters: dict[str, Any], vjp: Function | None
) -> list[Claim]:
    """The claim in every float type that fn takes; a TypeError if it takes no scores at all."""
    if inspect.isclass(fn):
        raise TypeError(f"fn is the class {fn.__name__}; pass an instance, {fn.__name__}(…)")
    names = parameter_names(fn)
    passed = {name: value for name, value in parameters.items() if name in (names or ())}
    axis_names = (
        ("axis", "dim", None) if names is None else (*sorted({"axis", "dim"} & names), None)
    )
    errors: dict[str, Exception] = {}
    for library in (name for name in LIBRARIES if name in sys.modules):
        for axis_name, rank, length in product(axis_names, (1, 2), LENGTHS + FIXED):
            claim = Claim(fn, record, parameters, passed, library, axis_name, rank, length, vjp)
            try:
                p = claim.call_native(claim.array(claim.probe))
                if isinstance(p, (tuple, list)):
                    raise TypeError(
                        f"fn returns {len(p)} values; pass lambda z: fn(z)[0], or whichever of "
                        "them are the probabilities"
                    )
            except Exception as error:  # libraries have errors of their own
                if isinstance(errors.setdefault(library, error), RecursionError):
                    break
                continue
            claim = replace(claim, library=library_of(p))
            claim = replace(claim, one_vector=rank == 1 and claim.takes_one_vector())
            in_types = [replace(claim, dtype=dtype) for dtype in SPACINGS]
            return [one for one in in_types if one.is_possible()]
    each = "; ".join(
        f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]:.150}"
        for name, error in errors.items()
    )
    device = any(word in each for word in ("cuda", "CUDA", "device", "gpu", "GPU"))
    hint = (
        "; if fn computes on a device, pass lambda z: fn(z.cuda()).cpu()" if device else
        "; for a library that is missing here, import it first; for rows of one length, see "
        "whether fn takes 3, 5, 40, 100 or 2 to 64 scores"
    )  # fmt: skip
    raise TypeError(
        "fn must map an array of scores to probabilities; no array of the libraries that are "
        f"imported fits: {each}{hint}"
    ) from next(iter(errors.values()))


@dataclass(frozen=True, eq=False)
class Claim(Subject):
    """A function, the mapping that it claims to be, and the float type at hand.

    Scores and results are float64 on the host; the scores have values that the float type can hold.
    """

    fn: Function
    record: Mapping
    parameters: dict[str, Any]
    passed: dict[str, Any]  # those of the parameters that fn takes
    library: str
    axis_name: str | None
    rank: int  # of the array that one row is passed as
    length: int  # of rows in batches
    own_vjp: Function | None
    dtype: str = "float32"
    one_vector: bool = False  # fn takes no batches, and is called row by row
    results: dict[Any, Array] = field(default_factory=dict, init=False)

    @cached_property
    def functions(self) -> Library:
        """How to use arrays of the library."""
        return LIBRARIES[self.library]()

    def array(self, z: Array) -> Any:
        """Scores as the library's array, a single row as fn wants it."""
        return self.functions.array(z[None] if z.ndim < self.rank else z, self.dtype)

    @property
    def probe(self) -> Array:
        """Ordinary scores, of a length that fn takes."""
        return np.arange(self.length) / 2

    def takes(self, length: int) -> bool:
        """Whether fn takes rows of that length."""
        try:
            return self(np.arange(length) / 2).size == length
        except CallError:
            return False

    def call_native(self, z: Any, axis: int = -1) -> Any:
        """What fn returns for an array of its library."""
        if self.one_vector and z.ndim > 1:
            rows = [self.call_native(row) for row in z.reshape(-1, z.shape[-1])]
            return self.functions.stack(rows).reshape(z.shape) if rows else z
        return self.fn(z, **self.passed, **({self.axis_name: axis} if self.axis_name else {}))

    def takes_one_vector(self) -> bool:
        """Whether fn takes one row, and no batch of rows."""
        try:
            batch = self.array(np.stack([self.probe, self.probe]))
            return bool(np.shape(self.call_native(batch)) != np.shape(batch))
        except Exception:  # libraries have errors of their own
            return True

    def is_possible(self) -> bool:
        """Whether the library has the float type, and fn takes it."""
        try:
            z = self.array(self.probe)
            self.call_native(z)
        except Exception:  # libraries have errors of their own
            return False
        return dtype_name(z) == self.dtype

    def rounded(self, z: Any) -> Array:
        """The scores that the float type can hold."""
        return self.functions.numbers(self.functions.array(np.asarray(z, float), self.dtype))

    def call(self, z: Array) -> tuple[Any, Any]:
        """The scores after the call, and what fn gave, both arrays of its library."""
        with blaming(z):
            array = self.array(z)
            return array, self.call_native(array)

    @once
    def __call__(self, z: Array, axis: int = -1) -> Array:
        """What fn gives."""
        with blaming(z):
            array = self.array(z)
            p = self.functions.numbers(self.call_native(array, axis))
            if p.shape != tuple(array.shape):
                raise ValueError(f"expected the shape {tuple(array.shape)}, got {p.shape}")
            return p.reshape(z.shape)

    def vjp(self, z: Array, v: Array, axis: int = -1) -> Array | None:
        """Jᵀv by the function handed in, or by the library's own; None if there is neither."""
        with blaming(z):
            array = self.array(z)
            if self.own_vjp is not None:
                names = (
                    {"axis", "dim"} & (parameter_names(self.own_vjp) or set())
                    if axis != -1
                    else set()
                )
                if axis != -1 and not names:
                    return None
                p, more = (
                    self.call_native(array, axis),
                    dict.fromkeys(names if axis != -1 else (), axis),
                )
                gradient = self.own_vjp(p, self.array(v), **more)
            elif self.functions.vjp is not None:
                along = partial(self.call_native, axis=axis)
                gradient = self.functions.vjp(along, array, v.reshape(array.shape))
            else:
                return None
            return self.functions.numbers(gradient).reshape(z.shape)

    # --- what is right ----------------------------------------------------------------------------

    @once
    def exact(self, z: Array, axis: int = -1) -> Array:
        """The mapping's own answer, in double precision."""
        p: Array = self.record.forward(z, *self.parameters.values(), axis=axis)
        return p

    @once
    def jacobian(self, z: Array) -> Array:
        """The exact J of one row, or of each row of a batch."""
        if self.record.name in JACOBIANS:
            return JACOBIANS[self.record.name](z)
        jacobian: Array = self.record.jacobian(self.exact(z), *self.parameters.values())
        return jacobian

    @once
    def allowed(self, z: Array) -> Array:
        """The contract of accuracy for a row: p may be off by so much.

        4ε p of rounding, and what p changes by if scores move by 8ε max(1, their range over the
        support): to first order, and by each score's own move of twice as much, for an entry that
        is just entering the support. Equal scores move together.
        """
        p = self.exact(z)
        y = z - np.max(z) if self.record.shift_invariant else z
        on = p > 0
        reach = max(1.0, float(np.ptp(y[on]))) if on.any() else 1.0
        move = 8 * self.epsilon * reach
        first_order = move * np.sum(np.abs(self.jacobian(z)), axis=-1)
        if z.size <= LENGTHS[-1]:  # no entry of longer rows that are tried is near the threshold
            equal = y == y[:, None]
            moved = self.exact(np.concatenate([y + 2 * move * equal, y - 2 * move * equal]))
            own = (moved - self.exact(y)).reshape(2, len(z), -1)
            first_order += np.abs(np.diagonal(own, 0, 1, 2)).max(0)
        first_order += slack(self.record, z)
        return np.maximum(4 * self.epsilon * p + first_order, SMALLEST[self.dtype])
