"""What mappings take besides their scores: each parameter is declared once, and checked here alone.

A declaration says what values are right and how they go with the rows. Everything that needs to
know asks it: the NumPy bodies, the compiled kernels, CUDA kernels and Dask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.calls.devices import beside, on_device
from pyentmax.calls.dtypes import as_floating, epsilon
from pyentmax.calls.gufuncs import in_blocks
from pyentmax.calls.lazy import check_known, reshaped
from pyentmax.calls.rows import (
    KERNEL_DTYPES,
    ProbabilityRows,
    ScoreRows,
    flattened,
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
        the smallest right value, or with `strict` the largest that is too small
    whole : bool
        only whole numbers are right
    in_product : bool
        whether the kernel of the Jacobian's product takes it, or p tells all
    """

    name: str
    least: float
    strict: bool = False
    whole: bool = False
    in_product: bool = True

    def quick(self, value: Any) -> Any:
        """The kernel's operand for ordinary numbers; None where more has to be checked.

        Those are a Python number, or a float32 or float64 array, whose shape is not looked at.
        """
        if type(value) is np.ndarray:
            if self.whole or value.dtype not in KERNEL_DTYPES or not value.size:
                return None
            least = np.minimum.reduce(value, axis=None)
            most = np.maximum.reduce(value, axis=None)  # NaN is neither
        elif type(value) is int or (
            type(value) is float and not (self.whole and value % 1)  # NaN where it is infinite
        ):
            least = most = value
        else:
            return None
        if not self.least <= least <= most < 2**53 or (self.strict and least == self.least):
            return None
        return np.asarray(value, np.int64 if self.whole else np.float64)

    def of_scores(self, value: Any, rows: ScoreRows) -> Any:
        """The values, of a shape that broadcasts against the batch."""
        value = self.checked(value, rows.z)
        if not rows.on_host:
            wrong = np.isnan(value)
            rows.wrong = wrong if rows.wrong is None else rows.wrong | wrong
        return value

    def of_probabilities(self, value: Any, rows: ProbabilityRows) -> Any:
        """The same for a derivative."""
        return self.checked(value, rows.p)

    def checked(self, value: Any, like: Any) -> Any:
        """A value for the rows `like` in float64, right and of a shape that fits their batch.

        On a device, where looking would synchronise, NaN stands for what is wrong.
        """
        value = self._numbers(value)
        batch = like.shape[:-1]
        if value.ndim:
            check_known(value, self.name)
            check_known(like, f"the array that {self.name} goes with")
        try:
            fits = not value.ndim or np.broadcast_shapes(value.shape, batch) == batch
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"{self.name} of shape {value.shape} does not broadcast against the batch shape "
                f"{batch}, the scores' shape without the axis"
            )
        right = value > self.least if self.strict else value >= self.least
        if not isinstance(value, np.ndarray):
            return beside(np.where(right, value, np.nan), like, self.name)
        if not right.all():
            expected = f"{'above' if self.strict else 'at least'} {self.least:g}"
            raise ValueError(f"{self.name} must be {expected}, got {value[~right].flat[0]:g}")
        return beside(value, like, self.name)

    def operand(self, value: Any, rows: Any) -> Any:
        """What a kernel takes for rows of scores or probabilities."""
        if self.whole:
            if not isinstance(value, np.ndarray):  # NaN, for what is wrong, has no integer
                value = np.where(np.isnan(value), self.least, value)
            value = np.minimum(value, rows.shape[-1]).astype(np.int64)
        return in_blocks(value, rows, 0)

    def column(self, value: Any, batch: tuple[int, ...]) -> Any:
        """What a body takes: of shape (n, 1), or (1, 1) where there is one value for all rows."""
        if value.size == 1:
            return value.reshape(1, 1)
        return reshaped(np.broadcast_to(value, batch), (math.prod(batch), 1))

    def gradient(self, each: Any, shape: tuple[int, ...], rows: ProbabilityRows) -> Any:
        """The sum of what each row gives, as often as it used the value: its derivative."""
        return rows.in_callers_dtype(reduce_to(reshaped(each, rows.batch)[()], shape))

    def on_device(self, value: Any, array: Any, batch: tuple[int, ...]) -> Any:
        """What a CUDA kernel takes: a float, or float64 per row on the device.

        A single number is checked here; on the device, a kernel makes the row of a wrong one NaN.
        """
        if not on_device(value):
            host = self.checked(value, np.broadcast_to(np.float64(0), (*batch, 1)))
            if host.ndim:
                beside(host, array, self.name)  # a TypeError that says what to do
            return float(host)
        value = as_floating(value, self.name)[0].astype(np.float64, copy=False)
        try:
            return np.broadcast_to(value, batch)
        except ValueError:
            raise ValueError(
                f"{self.name} of shape {value.shape} does not broadcast against the batch shape "
                f"{batch}, the scores' shape without the axis"
            ) from None

    def _numbers(self, value: Any) -> Any:
        """float64; where nobody may look, NaN for what should be a whole number and is not."""
        value = as_floating(value, self.name)[0].astype(np.float64, copy=False)
        if not self.whole:
            return value
        whole = (value == np.floor(value)) | np.isnan(value)  # NaN is not `least`: asked next
        if not isinstance(value, np.ndarray):
            return np.where(whole, value, np.nan)
        if not whole.all():
            raise ValueError(f"{self.name} must be a whole number, got {value[~whole].flat[0]:g}")
        return value


@dataclass(frozen=True)
class Budget(PerRow):
    """A number for each row that is at most that of the row's unmasked entries."""

    def quick(self, value: Any) -> None:
        """Nothing is so ordinary that the mask need not be looked at."""

    def of_scores(self, value: Any, rows: ScoreRows) -> Any:
        """The budgets per row, in the dtype of the scores."""
        check_known(rows.z, "z")
        budget = super().of_scores(value, rows)
        places = np.sum(rows.live(), axis=-1)
        fits = (budget <= places) | (places == 0)
        if rows.on_host and not np.all(fits):
            wrong = ~np.broadcast_to(fits, rows.batch)
            asked, most = (np.broadcast_to(a, rows.batch)[wrong].flat[0] for a in (budget, places))
            raise self._too_large(asked, most)
        one, d = _one_at_hand(value, self.name, rows), rows.z.shape[-1]
        if one is not None and one > d:
            raise self._too_large(one, d)
        # Where nobody could look, an impossible budget makes its row NaN.
        return np.where(fits & (budget >= self.least), budget, np.nan).astype(rows.z.dtype)

    def _too_large(self, asked: float, most: int) -> ValueError:
        return ValueError(
            f"{self.name} must be at most the number of a row's unmasked entries, {most}, "
            f"got {_apart(asked, most)}"
        )


@dataclass(frozen=True)
class UpperBounds:
    """A bound on each probability. It belongs to its entry, and broadcasts against the scores.

    The mask rules a bound out with its entry, whatever it holds there. A score of −∞ does the same.
    """

    name: str
    in_product: bool = True

    def quick(self, value: Any) -> None:
        """No bounds are so ordinary that they need no check."""

    def of_scores(self, value: Any, rows: ScoreRows) -> Any:
        """Bounds like z in the dtype to compute in: 0 where an entry is ruled out, at most 2."""
        check_known(rows.z, "z")
        live = rows.live()
        upper, precision = as_floating(value, self.name)
        enough = least_sum(rows.z.dtype, precision, rows.z.shape[-1])
        one = _one_at_hand(value, self.name, rows)
        if one is not None:
            self._check_values(np.asarray(one))
            if one * rows.z.shape[-1] < enough:
                raise self._infeasible(one * rows.z.shape[-1])
        upper = beside(upper, rows.z, self.name)
        upper = self._fitted(upper, rows.shape, "z")
        upper = np.where(live, to_rows(upper, rows.axes), 0)
        self._check_values(upper)
        bounds = np.minimum(upper, NO_BOUND).astype(rows.z.dtype)
        total = np.sum(bounds, axis=-1)
        feasible = total >= enough
        feasible = (feasible & np.all(upper >= 0, axis=-1)) | ~np.any(live, axis=-1)
        if not rows.on_host:
            rows.wrong = ~feasible
        elif not np.all(feasible):
            raise self._infeasible(np.min(np.where(feasible, np.inf, total)))
        return bounds

    def of_probabilities(self, value: Any, rows: ProbabilityRows) -> Any:
        """Bounds like p, rounded as p was, so that they equal what is at its bound."""
        check_known(rows.p, "p")
        upper, _ = as_floating(value, self.name)
        upper = self._fitted(beside(upper, rows.p, self.name), rows.shape, "p")
        upper = to_rows(upper, rows.axes)
        if rows.mask is not None:
            upper = np.where(rows.mask, upper, NO_BOUND)
        if not isinstance(upper, np.ndarray) or not (upper >= 0).all():
            # Where a score is −∞ the bound may be anything, and p = 0 is all that is seen of it.
            upper = np.where((rows.p == 0) & ~(upper >= 0), NO_BOUND, upper)
            self._check_values(upper)
        upper = np.minimum(upper, NO_BOUND)
        computed = np.dtype(np.float32 if rows.precision.itemsize == 2 else rows.precision)
        for dtype in (computed, rows.precision, rows.p.dtype):
            upper = upper.astype(dtype, copy=False)
        return upper

    def operand(self, value: Any, rows: Any) -> Any:
        """What a kernel takes."""
        return value

    def column(self, value: Any, batch: tuple[int, ...]) -> Any:
        """What a body takes: of shape (n, d)."""
        return flattened(value)

    def gradient(self, each: Any, shape: tuple[int, ...], rows: ProbabilityRows) -> Any:
        """What each entry gives, summed as often as a bound was used: its derivative."""
        return rows.in_callers_dtype(reduce_to(rows.in_callers_shape(each), shape))

    def on_device(self, value: Any, array: Any, kind: str) -> Any:
        """Bounds as the CUDA kernels take them: of the call's shape, in the dtype to compute in."""
        upper = beside(as_floating(value, self.name)[0], array, self.name)
        upper = upper.astype(np.float64 if array.dtype == np.float64 else np.float32, copy=False)
        return self._fitted(upper, array.shape, kind)

    def _fitted(self, upper: Any, shape: tuple[int, ...], kind: str) -> Any:
        try:
            return np.broadcast_to(upper, shape)
        except ValueError:
            raise ValueError(
                f"{self.name} of shape {upper.shape} does not broadcast to {kind}, of shape {shape}"
            ) from None

    def _infeasible(self, total: float) -> ValueError:
        return ValueError(
            f"{self.name} is infeasible: in each row the bounds on unmasked entries must sum "
            f"to at least 1, got a sum of {_apart(total, 1)}; raise some of them"
        )

    def _check_values(self, upper: Any) -> None:
        if isinstance(upper, np.ndarray) and not (upper >= 0).all():
            wrong = upper[~(upper >= 0)].flat[0]
            raise ValueError(f"{self.name} must be at least 0, got {wrong:g}")


def _apart(number: float, limit: float) -> str:
    """A number in nine digits, and in all where nine would read as the limit that it misses.

    >>> _apart(0.3 * 3, 1), _apart(1 / 6 * 6 - 1e-12, 1)
    ('0.9', '0.999999999999')
    """
    short = f"{number:.9g}"
    return short if float(short) != limit else str(float(number))


def _one_at_hand(value: Any, name: str, rows: ScoreRows) -> float | None:
    """A number for all rows that nobody may look at: it can be wrong whatever they hold."""
    value = as_floating(value, name)[0]
    if rows.on_host or not rows.z.size or not isinstance(value, np.ndarray) or value.ndim:
        return None
    return float(value)


# No probability exceeds 1: all bounds above are alike, and 2 fits every dtype.
NO_BOUND = 2


def least_sum(dtype: Any, precision: Any, d: int) -> Any:
    """What d bounds have to sum to at least: 1, their rounding and that of the sum allowed for."""
    return 1 - 8 * max(epsilon(dtype), epsilon(precision)) * d**0.5


WEIGHT = PerRow("weight", 0)  # what a row counts in a loss


def parts_of_largest(weights: Any) -> Any:
    """Weights of a mean, for which only their ratios count, so that no sum of them overflows.

    None that matters is lost either once they are rounded to the dtype of the scores.
    """
    largest = np.max(weights) if weights.size else 1
    return weights / np.where(largest == 0, 1, largest)
