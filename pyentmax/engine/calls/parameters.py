"""Parameters of mappings: each is declared once, and checked here alone.

A declaration says which values are valid and how they go with the rows. NumPy bodies, compiled
kernels and CUDA kernels all ask it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pyentmax.engine.calls.devices import on_device, on_device_of
from pyentmax.engine.calls.dtypes import as_floating, epsilon
from pyentmax.engine.calls.rows import (
    Rows,
    broadcasts,
    check_one_axis,
    live_entries,
    reduce_to,
    to_rows,
)


@dataclass(frozen=True)
class PerRow:
    """A number for each row, or one for all: α, say.

    The values come in float64, to be rounded to the dtype of the scores no sooner than needed.

    Attributes
    ----------
    name : str
    least : float
        the smallest valid value, or with `strict` the largest that is too small
    most : float
        the largest valid value
    whole : bool
        only whole numbers are valid
    in_product : bool
        whether the kernel of the Jacobian's product takes it, or p tells all
    shifted : bool
        bodies see each row's largest score at 0. Not where bounds may keep it from mattering, or
        where rounded gaps may tie different scores
    one_axis : bool
        rows have an order, which the entries of several axes lack
    kernel_least : float
        the smallest value that kernels take. Where one is smaller, the body computes all rows; on
        a device, where looking would synchronise, the kernel makes its row NaN
    """

    name: str
    least: float
    strict: bool = False
    whole: bool = False
    in_product: bool = True
    shifted: bool = True
    one_axis: bool = False
    kernel_least: float = -math.inf
    most: float = math.inf
    goes_straight: ClassVar[bool] = True
    """Whether `for_few` may do: the value needs no look at the rows."""

    def for_scores(self, value: Any, rows: Rows) -> Any:
        """The values for scores, of a shape that broadcasts to the batch."""
        if self.one_axis:
            check_one_axis(rows.axes)
        return self.checked(value, rows.array)

    def for_probabilities(self, value: Any, rows: Rows, original: Any) -> Any:
        """The values for the probabilities of a derivative, that came as `original`."""
        return PerRow.for_scores(self, value, rows)

    def checked(self, value: Any, like: Any, batch: tuple[int, ...] | None = None) -> Any:
        """A value for the rows `like` in float64, valid and of a shape that fits their batch.

        On a device, where looking would synchronise, NaN stands for invalid values.
        """
        if type(value) is int or (type(value) is float and not self.whole):
            self.check_number(value)
            value = np.array(value, np.float64)
        else:
            if type(value) is not np.ndarray or value.dtype != np.float64:
                value = as_floating(value, self.name)[0].astype(np.float64, copy=False)
            self._check_shape(value, like.shape[:-1] if batch is None else batch)
            if not isinstance(value, np.ndarray):
                whole = value == np.floor(value) if self.whole else True
                value = np.where(self._in_range(value) & whole, value, np.nan)
            elif value.size == 1:
                self.check_number(value.item())
            elif not np.logical_and.reduce(self._in_range(value), axis=None):
                raise self._out_of_range(value[~self._in_range(value)].flat[0])
            elif self.whole and (value != np.floor(value)).any():
                self.check_number(value[value != np.floor(value)].flat[0])
        return (
            value
            if type(value) is type(like) is np.ndarray
            else on_device_of(value, like, self.name)
        )

    def for_few(self, value: Any, rows: Any) -> Any:
        """The kernel's operand for a few rows of scores or probabilities, in one look.

        None where the value has to be converted, arranged or refused, or no kernel takes it.
        """
        if type(value) is float or type(value) is int:
            if not (self._in_range(value) and value >= self.kernel_least):
                return None
            if not self.whole:
                return _number(float(value))
            return None if value % 1 > 0 else _whole_number(min(value, rows.shape[-1]))
        if type(value) is not np.ndarray or value.dtype != np.float64 or self.whole:
            return None
        if value.ndim and value.shape != rows.shape[:-1]:
            return None
        if value.size == 1:
            number = value.item()
            return value if self._in_range(number) and number >= self.kernel_least else None
        valid = self._in_range(value) & (value >= self.kernel_least)
        return value if np.logical_and.reduce(valid, axis=None) else None

    def check_number(self, value: float) -> None:
        """Raise a ValueError unless a number is valid."""
        if not self._in_range(value):
            raise self._out_of_range(value)
        if self.whole and value % 1 > 0:  # ∞ is whole
            raise ValueError(
                f"{self.name} must be a whole number, got {digits(value, round(value))}"
            )

    def _in_range(self, value: Any) -> Any:
        above = value > self.least if self.strict else value >= self.least
        return above if self.most == math.inf else above & (value <= self.most)

    def _out_of_range(self, value: Any) -> ValueError:
        expected = f"{'above' if self.strict else 'at least'} {self.least:g}"
        expected += "" if self.most == math.inf else f" and at most {self.most:g}"
        limit = self.most if value > self.most else self.least
        return ValueError(f"{self.name} must be {expected}, got {digits(value, limit)}")

    def fits_kernel(self, value: Any) -> bool:
        """Whether kernels take the values: of a number or array, on a device without looking."""
        if type(value) is np.ndarray and value.size == 1:
            return not value.item() < self.kernel_least
        if self.kernel_least == -math.inf or on_device(value):
            return True
        value = np.asarray(value, float)
        return not np.minimum.reduce(value, axis=None, initial=np.inf) < self.kernel_least

    def kernel_operand(self, value: Any, rows: Any) -> Any:
        """The value as a kernel takes it, for rows of scores or probabilities."""
        if self.whole:
            value = np.minimum(value, rows.shape[-1]).astype(np.int64)
        return value

    def body_operand(self, value: Any, batch: tuple[int, ...]) -> Any:
        """The value for a body: of shape (n, 1), or (1, 1) if there is one value for all rows."""
        if value.size == 1:
            return value.reshape(1, 1)
        return np.broadcast_to(value, batch).reshape(math.prod(batch), 1)

    def invalid_rows(self, value: Any) -> Any:
        """The rows whose value, on a device, is invalid."""
        return np.isnan(value)

    def gradient(self, each: Any, shape: tuple[int, ...], rows: Rows) -> Any:
        """The sum of what each row gives, in the shape of the value: its derivative."""
        each = reduce_to(each.reshape(rows.batch), shape)
        return each if each.dtype == rows.dtype else each.astype(rows.dtype)

    def on_device(self, value: Any, array: Any, batch: tuple[int, ...]) -> Any:
        """The value for a CUDA kernel: a float, or float64 per row on the device.

        A single number is checked here; on the device, a kernel makes the row of a wrong one NaN.
        """
        if not on_device(value):
            host = self.checked(value, np.empty(0), batch)
            if host.ndim:
                on_device_of(host, array, self.name)  # a TypeError that says what to do
            return float(host)
        value = as_floating(value, self.name)[0].astype(np.float64, copy=False)
        self._check_shape(value, batch)
        return np.broadcast_to(value, batch)

    def _check_shape(self, value: Any, batch: tuple[int, ...]) -> None:
        if value.ndim and not broadcasts(value.shape, batch):
            raise ValueError(
                f"{self.name} of shape {value.shape} does not broadcast against the batch shape "
                f"{batch}, the scores' shape without the axis"
            )


class Alpha(PerRow):
    """α of a family of mappings. Type checkers tell losses apart by the class of the parameter."""


class Strength(PerRow):
    """λ, the weight of a penalty."""


class TopK(PerRow):
    """k, the number of scores that are kept."""


@dataclass(frozen=True)
class Budget(PerRow):
    """A number for each row that is at most that of the row's unmasked entries."""

    shifted: bool = False
    goes_straight: ClassVar[bool] = False  # unmasked entries have to be counted first

    def for_scores(self, value: Any, rows: Rows) -> Any:
        """The budgets per row, in the dtype of the scores."""
        z = rows.array
        budget = self.checked(value, z)
        entries = live_entries(z, rows.mask).sum(axis=-1)
        fits = (budget <= entries) | (entries == 0)
        if not isinstance(z, np.ndarray):  # values are not read on a GPU: its row becomes NaN
            return np.where(fits, budget, np.nan).astype(z.dtype)
        if not fits.all():
            wrong = ~np.broadcast_to(fits, z.shape[:-1])
            requested, most = (
                np.broadcast_to(a, wrong.shape)[wrong].flat[0] for a in (budget, entries)
            )
            raise ValueError(
                f"{self.name} must be at most the number of a row's unmasked entries, {most}, "
                f"got {digits(requested, most)}"
            )
        return budget.astype(z.dtype)


@dataclass(frozen=True)
class UpperBounds:
    """A bound on each probability. It belongs to its entry, and broadcasts against the scores.

    The mask rules a bound out with its entry, whatever it holds there. A score of −∞ does the same.
    """

    name: str
    in_product: bool = True
    shifted: bool = False
    goes_straight: ClassVar[bool] = False  # bounds have to be added up first

    def for_scores(self, value: Any, rows: Rows) -> Any:
        """Bounds like z in the dtype to compute in: 0 where an entry is ruled out, at most 2."""
        z = rows.array
        live = live_entries(z, rows.mask)
        upper, precision = self._arranged(value, rows, "z")
        if not isinstance(z, np.ndarray) or not live.all():
            upper = np.where(live, upper, 0)
        least = self._check_values(upper)
        bounds = _at_most(NO_BOUND, upper).astype(z.dtype, copy=False)
        if least * z.shape[-1] >= 1:  # as of equal bounds: no row is short
            return bounds
        total = bounds.sum(axis=-1)
        feasible = total >= least_sum(z.dtype, precision, z.shape[-1])
        if isinstance(z, np.ndarray) and feasible.all():
            return bounds
        feasible = feasible | ~live.any(axis=-1)
        if not isinstance(z, np.ndarray):
            feasible = feasible & np.all(upper >= 0, axis=-1)
            return np.where(feasible[..., None], bounds, np.nan)
        if feasible.all():
            return bounds
        least = np.min(np.where(feasible, np.inf, total))
        raise ValueError(
            f"{self.name} is infeasible: in each row the bounds on unmasked entries must sum "
            f"to at least 1, got a sum of {digits(least, 1)}; raise some of them"
        )

    def for_probabilities(self, value: Any, rows: Rows, original: Any) -> Any:
        """Bounds rounded as p was, `original`, so that they equal an entry that is at its bound."""
        p = rows.array
        upper, _ = self._arranged(value, rows, "p")
        if rows.mask is not None:
            upper = np.where(rows.mask, upper, NO_BOUND)
        if not isinstance(upper, np.ndarray) or not (upper >= 0).all():
            # Where a score is −∞ the bound may be anything, and p = 0 is all that is seen of it.
            upper = np.where((p == 0) & ~(upper >= 0), NO_BOUND, upper)
            self._check_values(upper)
        upper = _at_most(NO_BOUND, upper)
        _, dtype = as_floating(original, "p")
        computed = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
        for rounded in (computed, dtype, p.dtype):
            upper = upper.astype(rounded, copy=False)
        return upper

    def fits_kernel(self, value: Any) -> bool:
        """Whether kernels take the bounds."""
        return True

    def kernel_operand(self, value: Any, rows: Any) -> Any:
        """The bounds as a kernel takes them."""
        return value

    def body_operand(self, value: Any, batch: tuple[int, ...]) -> Any:
        """The bounds for a body: of shape (n, d)."""
        return value.reshape(-1, value.shape[-1])

    def invalid_rows(self, value: Any) -> Any:
        """The rows whose bounds, on a device, are invalid."""
        return np.isnan(value[..., 0])

    def gradient(self, each: Any, shape: tuple[int, ...], rows: Rows) -> Any:
        """The gradient of each entry, summed over the axes along which the bounds broadcast."""
        # In the dtype computed in, for sums that the caller's would not hold.
        each = rows.finish(each, dtype=each.dtype)
        return reduce_to(each, shape).astype(rows.dtype, copy=False)

    def on_device(self, value: Any, array: Any, like: str) -> Any:
        """Bounds as the CUDA kernels take them: of the call's shape, in the dtype to compute in."""
        upper = on_device_of(as_floating(value, self.name)[0], array, self.name)
        upper = upper.astype(np.float64 if array.dtype == np.float64 else np.float32, copy=False)
        return self._fitted(upper, array.shape, like)

    def _arranged(self, value: Any, rows: Rows, like: str) -> tuple[Any, Any]:
        """The bounds in rows, and the dtype that they came in."""
        upper, precision = as_floating(value, self.name)
        upper = self._fitted(on_device_of(upper, rows.array, self.name), rows.shape, like)
        return to_rows(upper, rows.axes), precision

    def _fitted(self, upper: Any, shape: tuple[int, ...], like: str) -> Any:
        if not broadcasts(upper.shape, shape):
            raise ValueError(
                f"{self.name} of shape {upper.shape} does not broadcast to {like}, of shape {shape}"
            )
        return upper if upper.shape == shape else np.broadcast_to(upper, shape)

    def _check_values(self, upper: Any) -> Any:
        """The least bound; 0 on a device, where nothing is looked at."""
        least = upper.min(initial=NO_BOUND) if isinstance(upper, np.ndarray) else 0
        if not least >= 0:
            wrong = upper[~(upper >= 0)].flat[0]
            raise ValueError(f"{self.name} must be at least 0, got {wrong:g}")
        return least


Parameter = PerRow | UpperBounds


@functools.lru_cache(maxsize=256)
def _number(value: float) -> Any:
    return np.array(value, np.float64)


@functools.lru_cache(maxsize=256)
def _whole_number(value: float) -> Any:
    return np.array(value, np.int64)


def digits(number: float, limit: float) -> str:
    """A number in nine digits, or in all where nine would read as the limit that it misses.

    >>> digits(0.3 * 3, 1), digits(1 / 6 * 6 - 1e-12, 1)
    ('0.9', '0.999999999999')
    """
    short = f"{number:.9g}"
    return short if number == limit or short != f"{limit:.9g}" else str(float(number))


# No probability exceeds 1: all bounds above are alike, and 2 fits every dtype.
NO_BOUND = 2


def _at_most(bound: float, values: Any) -> Any:
    """Values, and the bound for those above it; no copy of a NumPy array without such."""
    within = isinstance(values, np.ndarray) and values.max(initial=0) <= bound
    return values if within else np.minimum(values, bound)


def least_sum(dtype: Any, precision: Any, d: int) -> Any:
    """The least sum that d bounds must have: 1, less a margin for rounding."""
    return 1 - 8 * max(epsilon(dtype), epsilon(precision)) * d**0.5


WEIGHT = PerRow("weight", 0)  # weight of each row in a loss


def parts_of_largest(weights: Any) -> Any:
    """Weights of a mean, for which only their ratios count, so that no sum of them overflows.

    None that matters is lost either once they are rounded to the dtype of the scores.
    """
    if not weights.size:
        return weights
    largest = weights.max()
    return weights / (largest + (largest == 0))
