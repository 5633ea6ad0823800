"""What a loss is asked for: its options, and its targets as labels or distributions in rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax._dispatch import as_floating
from pyentmax.mappings import Mapping
from pyentmax.mappings._rows import Rows, check_parameter

REDUCTIONS = ("mean", "sum", "none")
SUM_TOLERANCE = 1e-3  # half floats' probabilities sum to 1 no better


@dataclass(frozen=True)
class Options:
    """What all losses can be asked for."""

    reduction: str
    weight: Any
    mask: Any
    ignore_index: int | None
    smoothing: float

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise ValueError(
                f"reduction must be one of {', '.join(REDUCTIONS)}, got {self.reduction!r}"
            )
        if not isinstance(self.smoothing, (int, float, np.integer, np.floating)):
            raise TypeError(
                f"label_smoothing must be a number in [0, 1], got {type(self.smoothing).__name__}"
            )
        if not 0 <= self.smoothing <= 1:
            raise ValueError(f"label_smoothing must be in [0, 1], got {self.smoothing}")


@dataclass(frozen=True)
class Target:
    """The target distributions q in rows: one label each, or dense."""

    label: Any  # integers of shape batch + (1,), or None
    dense: Any  # distributions of shape batch + (d,), or None

    def dot(self, scores: Any) -> Any:
        """q·z, where 0 · (−∞) counts 0."""
        if self.dense is None:
            return np.take_along_axis(scores, self.label, axis=-1)[..., 0]
        return np.sum(self.dense * np.where(self.dense == 0, 0, scores), axis=-1)

    def subtracted_from(self, p: Any) -> Any:
        """p − q."""
        if self.dense is None:
            p = p.copy()
            np.put_along_axis(p, self.label, np.take_along_axis(p, self.label, -1) - 1, axis=-1)
            return p
        return p - self.dense

    def omega(self, record: Mapping, omega: Callable[[Any], Any]) -> Any:
        """Ω(q)."""
        if self.dense is None:
            return record.omega_vertices
        return omega(self.dense)


def arranged_target(rows: Rows, y: Any, options: Options, dense_only: bool) -> tuple[Target, Any]:
    """The targets and each row's weight, 0 for rows that count nothing."""
    if isinstance(y, np.ma.MaskedArray):
        raise TypeError(
            "y is a numpy.ma array; pass plain labels, those to leave out set to ignore_index, or "
            "plain distributions and mask="
        )
    y = y if hasattr(y, "__array_function__") else np.asarray(y)
    scores = rows.scores()
    weight = 1.0
    if options.weight is not None:
        weight = _checked_weight(options.weight, rows.batch)
    counts = ~rows.dead() & (weight != 0)
    label: Any = None
    dense: Any = None
    if y.dtype.kind in "iu" and y.shape == rows.batch:
        if options.ignore_index is not None:
            counts = counts & (y != options.ignore_index)
        label = _checked_labels(rows, np.where(counts, y, 0))[..., None]
        if dense_only or options.smoothing:
            dense = np.zeros_like(scores)
            np.put_along_axis(dense, label, 1, axis=-1)
    elif y.shape == rows.shape:
        if options.ignore_index is not None:
            raise ValueError(
                "ignore_index is for integer labels, and y holds distributions; leave rows out "
                "with weight=0"
            )
        dense = _checked_distributions(rows, y, counts)
    else:
        raise ValueError(
            f"y must be integer labels of shape {rows.batch} or distributions of shape "
            f"{rows.shape}, got dtype {y.dtype} and shape {y.shape}"
        )
    if options.smoothing:
        allowed = (scores > -np.inf).astype(scores.dtype)
        uniform = allowed / np.sum(allowed, axis=-1, keepdims=True)
        dense = (1 - options.smoothing) * dense + options.smoothing * uniform
    weights = np.where(counts, weight, 0).astype(scores.dtype, copy=False)
    return Target(label if dense is None else None, dense), weights


def _checked_weight(weight: Any, batch: tuple[int, ...]) -> Any:
    weight = check_parameter(weight, "weight", batch, 0)
    if isinstance(weight, np.ndarray) and np.isinf(weight).any():
        raise ValueError("weight must be finite, got inf: no mean exists with it")
    return weight


def _checked_labels(rows: Rows, y: Any) -> Any:
    d = rows.z.shape[-1]
    if isinstance(y, np.ndarray) and not ((y >= 0) & (y < d)).all():
        wrong = y[(y < 0) | (y >= d)].flat[0]
        raise ValueError(
            f"labels must be in 0 … {d - 1}, got {wrong}; rows to leave out are marked with "
            "ignore_index"
        )
    return y


def _checked_distributions(rows: Rows, y: Any, counts: Any) -> Any:
    """y in rows, zeros where the mask is False and in the rows that do not count."""
    y, _ = as_floating(y, "y")
    y = rows.from_caller(y).astype(rows.z.dtype, copy=False)
    y = np.where(counts[..., None] if rows.mask is None else counts[..., None] & rows.mask, y, 0)
    if isinstance(y, np.ndarray):
        total = np.sum(y, axis=-1)
        off = counts & (np.abs(total - 1) > SUM_TOLERANCE)
        if not (y >= 0).all() or off.any():
            total = total[counts]
            raise ValueError(
                f"distributions y must be ≥ 0 and sum to 1 within {SUM_TOLERANCE} over the "
                f"unmasked entries, got a smallest entry of {y.min():g} and sums from "
                f"{total.min():g} to {total.max():g}"
            )
    return y
