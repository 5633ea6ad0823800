"""What mappings with an upper bound on each probability share: checking and arranging the bounds.

A bound belongs to its entry: it broadcasts against z, moves with the axis, and the mask rules it
out with its entry, whatever it holds there. A score of −∞ does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.calls.devices import beside
from pyentmax.calls.dtypes import as_floating
from pyentmax.calls.rows import Rows, Tangent, check_mask, reduce_to, to_rows

# No probability exceeds 1: all bounds above are alike, and 2 fits every dtype.
_NO_BOUND = 2

# How often scores are shifted anew: each time takes one more scale of full entries off.
_SHIFTS = 3


class BoundedRows(Rows):
    """The scores of one call, and an upper bound on each probability.

    Attributes
    ----------
    upper : array like z
        in the dtype to compute in, 0 where an entry is ruled out, at most 2
    """

    __slots__ = ("_feasible", "upper")

    def __init__(
        self, z: Any, upper: Any, axis: Any = -1, *, mask: Any = None, out: Any = None
    ) -> None:
        super().__init__(z, axis, mask=mask, out=out)
        live = live_entries(self)
        upper, precision = as_floating(upper, "upper")
        upper = beside(upper, self.z, "upper")
        upper = np.where(live, to_rows(_fitted(upper, self.shape, "z"), self._axes), 0)
        _check_values(upper)
        self.upper = np.minimum(upper, _NO_BOUND).astype(self.z.dtype)
        total = np.sum(self.upper, axis=-1)
        epsilon = max(np.finfo(self.z.dtype).eps, np.finfo(precision).eps)
        enough = total >= 1 - 8 * epsilon * self.z.shape[-1] ** 0.5
        self._feasible = (enough & np.all(upper >= 0, axis=-1)) | ~np.any(live, axis=-1)
        if self.on_host and not np.all(self._feasible):
            least = np.min(np.where(self._feasible, np.inf, total))
            raise ValueError(
                "upper is infeasible: in each row the bounds on unmasked entries must sum to at "
                f"least 1, got a sum of {least:.9g}; raise some of them"
            )

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that its bounds need no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: scores, mask and bounds."""
        return (*super().operands(), self.upper)

    def restore(self, p: Any, dead: float = 0) -> Any:
        """p as the caller expects it; NaN in an infeasible row, if nobody could look at it."""
        if not self.on_host:
            p = np.where(self._feasible[..., None], p, np.nan)
        return super().restore(p, dead)


class BoundedTangent(Tangent):
    """Probabilities p, a direction v and the bounds of one derivative call.

    Attributes
    ----------
    upper : array like p
        rounded as p was
    full : bool array like p
        where p is at its bound; nowhere if masked, or in a row with nothing left
    """

    __slots__ = ("_shape_of_upper", "upper")

    def __init__(self, p: Any, v: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> None:
        super().__init__(p, v, axis, mask=mask)
        p, precision = as_floating(p, "p")
        upper, _ = as_floating(upper, "upper")
        upper = beside(upper, p, "upper")
        self._shape_of_upper = upper.shape
        upper = _fitted(upper, p.shape, "p")
        if mask is not None:
            upper = np.where(check_mask(mask, p, "p"), upper, _NO_BOUND)
        if not isinstance(upper, np.ndarray) or not (upper >= 0).all():
            # Where a score is −∞ the bound may be anything, and p = 0 is all that is seen of it.
            upper = np.where((p == 0) & ~(upper >= 0), _NO_BOUND, upper)
            _check_values(upper)
        # Rounded as p was, first to compute and then to answer: it equals the bound that it is at.
        upper = np.minimum(upper, _NO_BOUND)
        for dtype in (p.dtype, precision, self.p.dtype):
            upper = upper.astype(dtype, copy=False)
        self.upper = to_rows(upper, self._axes)

    @property
    def full(self) -> Any:
        return (self.p >= self.upper) & np.any(self.p > 0, axis=-1, keepdims=True)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that its bounds need no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: p, v and the bounds."""
        return (*super().operands(), self.upper)


class BoundsTangent(BoundedTangent):
    """The same for a derivative in the bounds, which has their shape."""

    __slots__ = ()

    def restore(self, rows: Any) -> Any:
        """The product summed to the shape that the caller gave the bounds in."""
        return reduce_to(super().restore(rows), self._shape_of_upper)

    def product(self, s: Any, active: Any) -> Any:
        """Σ_i v_i ∂p_i/∂u for all bounds u, as the caller expects it.

        Where a bound is active, p moves with it one to one, and the free entries make room in
        proportion to s, their share of a change of the threshold: v_i less v's mean under s.
        """
        v = np.where(s != 0, self.v, 0)  # where p is neither free nor full v may hold anything
        total = np.sum(s, axis=-1, keepdims=True)
        mean = np.sum(s * v, axis=-1, keepdims=True) / np.where(total == 0, 1, total)
        each = np.where(np.isnan(self.p), self.p, np.where(active, self.v - mean, 0))
        return self.restore(each)


def live_entries(rows: Rows) -> Any:
    """Where an entry may get probability: unmasked, and of a score that is not −∞."""
    live = rows.z != -np.inf
    return live if rows.mask is None else live & rows.mask


def solve_shifted(rows: Rows, upper: Any, solve: Callable[[Any], Any]) -> Any:
    """p = solve(y), y = z less the largest score of which p is below its bound.

    Where all that scores more is full, an entry gets probability however low its score. Relative to
    a full entry it would lose its digits, or overflow. Which are full is seen in p: so solve with
    the largest score of a bound above 0 at 0 first, and again as long as that entry turns out to be
    full and far above all that are not. Less than 1 apart no digit is lost that p could show.
    Entries that are ruled out, and rows without a maximum, stand at 0.
    """
    rows.scores()
    there = (upper > 0) & np.isfinite(rows.top())
    z = np.where(there, rows.z, 0)
    z = z if z.flags.c_contiguous else z.copy(order="C")

    def solved(shift: Any) -> Any:
        with np.errstate(over="ignore"):
            most = np.finfo(z.dtype).max
            return solve(np.where(there, np.clip(z - shift, -most, most), 0))

    shift = np.max(np.where(there, z, -np.inf), axis=-1, keepdims=True)
    shift = np.where(shift > -np.inf, shift, 0)
    p = solved(shift)
    for _ in range(_SHIFTS):
        open_top = np.max(np.where(there & (p < upper), z, -np.inf), axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            lower = (open_top > -np.inf) & (shift - open_top > 1)
        if rows.on_host and not lower.any():
            break
        shift = np.where(lower, open_top, shift)
        p = solved(shift)
    return p


def _fitted(upper: Any, shape: tuple[int, ...], name: str) -> Any:
    try:
        return np.broadcast_to(upper, shape)
    except ValueError:
        raise ValueError(
            f"upper of shape {upper.shape} does not broadcast to {name}, of shape {shape}"
        ) from None


def _check_values(upper: Any) -> None:
    if isinstance(upper, np.ndarray) and not (upper >= 0).all():
        wrong = upper[~(upper >= 0)].flat[0]
        raise ValueError(f"upper must be at least 0, got {wrong:g}")
