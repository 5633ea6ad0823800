"""A function that claims to be a mapping, and what it should give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._grades import CallError
from pyentmax.checking._subjects import SMALLEST, Subject, blaming, parameter_names, to_numbers
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Claim(Subject):
    """A function and the mapping that it claims to be."""

    axis_name: str | None
    rank: int  # of the array that one row is passed as
    length: int  # of rows in batches
    one_vector: bool = False  # fn takes no batches, and is called row by row
    results: dict[Any, Array] = field(default_factory=dict, init=False)

    @property
    def ordinary(self) -> Array:
        """Ordinary scores, of a length that fn takes."""
        return np.arange(self.length) / 2

    def array(self, x: Any) -> Any:
        """Scores as the library's array, a single row as fn wants it."""
        return super().array(x[None] if np.ndim(x) == 1 < self.rank else x)

    def tried(self) -> Any:
        """What fn gives for ordinary scores."""
        p = self.call_native(self.array(self.ordinary))
        if isinstance(p, (tuple, list)):
            raise TypeError(
                f"fn returns {len(p)} values; pass lambda z: fn(z)[0], or whichever of them are "
                "the probabilities"
            )
        return p

    def settled(self, out: Any) -> Claim:
        """Whether fn takes one row, and no batch of rows."""
        try:
            batch = self.array(np.stack([self.ordinary, self.ordinary]))
            one = np.shape(self.call_native(batch)) != np.shape(batch)
        except Exception:  # libraries have errors of their own
            one = True
        return replace(self, one_vector=self.rank == 1 and bool(one))

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
            p = to_numbers(self.call_native(array, axis))
            if p.shape != tuple(array.shape):
                raise ValueError(f"expected the shape {tuple(array.shape)}, got {p.shape}")
            return p.reshape(z.shape)

    def vjp(self, z: Array, v: Array, axis: int = -1) -> Array | None:
        """Jᵀv by the function handed in, or by the library's own; None if there is neither."""
        with blaming(z):
            array, along = self.array(z), partial(self.call_native, axis=axis)
            if self.own_vjp is not None:
                names = {"axis", "dim"} & (parameter_names(self.own_vjp) or set())
                if axis != -1 and not names:
                    return None
                more = {} if axis == -1 else dict.fromkeys(names, axis)
                product = self.own_vjp(along(array), self.array(v), **more)
            elif self.functions.vjp is not None:
                product = self.functions.vjp(along, array, v.reshape(array.shape))
            else:
                return None
            return to_numbers(product).reshape(z.shape)

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
