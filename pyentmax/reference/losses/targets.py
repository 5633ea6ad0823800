"""Targets of a loss in rows, as labels or distributions, and what each row counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import on_device_of
from pyentmax.engine.calls.dtypes import as_array, as_floating, largest
from pyentmax.engine.calls.options import Options
from pyentmax.engine.calls.parameters import WEIGHT, parts_of_largest
from pyentmax.engine.calls.rows import Rows, to_rows

SUM_TOLERANCE = 4e-3  # bfloat16 rounds probabilities by up to 2⁻⁸ of themselves, and so their sum


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
            return np.where(places(p) == self.label, p - 1, p)
        return p - self.dense

    def omega(self, omega: Callable[[Any], Any], at_vertices: float | None, like: Any) -> Any:
        """Ω(q), given that of the vertices where it is the same for all."""
        if self.dense is not None:
            return omega(self.dense)
        if at_vertices is not None:
            return at_vertices
        return omega((places(like) == self.label).astype(like.dtype))


def labels_like(y: Any, batch: tuple[int, ...], options: Options) -> Any:
    """y as int64 labels of the batch's shape, or None if it is not that or they are smoothed."""
    if options.label_smoothing:
        return None
    if type(y) is not np.ndarray:
        y = as_array(y, "y")
    if type(y) is not np.ndarray or y.dtype.kind not in "iu" or y.shape != batch:
        return None
    return y if y.dtype == np.int64 else y.astype(np.int64)


def row_weights(like: Any, labels: Any, options: Options) -> Any:
    """The weight of each row of `like`, 0 for ignored labels."""
    weight: Any = 1.0
    if options.weight is not None:
        weight = checked_weight(options.weight, like, options.reduction)
    if options.ignore_index is not None:
        weight = np.where(labels == options.ignore_index, 0, weight)
    return weight


def shares(weight: Any, dtype: Any, options: Options) -> Any:
    """Weights in the dtype of the scores; of a mean, relative to the largest."""
    if options.reduction == "mean" and options.weight is not None:
        weight = parts_of_largest(weight)
    return weight.astype(dtype, copy=False)


def prepare_target(
    scores: Any,
    top: Any,
    y: Any,
    rows: Rows,
    options: Options,
) -> tuple[Target, Any]:
    """The targets and each row's weight, 0 for rows that count nothing.

    `scores` and `top` are as `masked_scores` returns them. On a GPU, where looking would wait for
    it, a row whose target is wrong weighs NaN.
    """
    y, is_label = labels_or(y, "distributions", rows)
    refuse_ignored_distributions(is_label, options)
    weight = row_weights(scores, y, options)
    counts = (top != -np.inf)[..., 0] & (weight != 0)
    label: Any = None
    dense: Any = None
    if is_label:
        label, right = checked_labels(y, counts, scores.shape[-1])
        label = label[..., None]
        if options.label_smoothing:
            dense = (places(scores) == label).astype(scores.dtype)
    else:
        dense, right = _checked_distributions(to_rows(y, rows.axes), scores, rows.mask, counts)
    if options.label_smoothing:
        allowed = (scores > -np.inf).astype(scores.dtype)
        uniform = allowed / np.sum(allowed, axis=-1, keepdims=True)
        dense = (1 - options.label_smoothing) * dense + options.label_smoothing * uniform
    weights = shares(np.where(counts, weight, 0), scores.dtype, options)
    if not isinstance(scores, np.ndarray):
        weights = np.where(right, weights, np.nan)
    return Target(label if dense is None else None, dense), weights


def prepare_entries(y: Any, rows: Rows, options: Options) -> tuple[Any, Any, Any]:
    """The targets of entries, each from 0 to 1, which entries count, and each row's weight."""
    z, ignored = rows.array, options.ignore_index
    y, is_label = labels_or(y, "targets", rows)
    live = np.ones_like(z, bool) if rows.mask is None else np.broadcast_to(rows.mask, z.shape)
    if not is_label and ignored is not None:
        live, options = live & to_rows(y != ignored, rows.axes), options._replace(ignore_index=None)
    weight = row_weights(z, y, options)
    counts = np.any(live, axis=-1) & (weight != 0)
    if type(weight) is not float:  # rows may weigh nothing
        live = live & counts[..., None]
    if is_label:
        label, right = checked_labels(y, counts, z.shape[-1])
        q = (places(z) == label[..., None]).astype(z.dtype)
    else:
        q = to_rows(as_floating(y, "y")[0], rows.axes)
        within = ~live | ((q >= 0) & (q <= 1))
        right = np.all(within, axis=-1)
        if isinstance(q, np.ndarray) and not right.all():
            raise ValueError(f"targets y must be in [0, 1], got {q[~within].flat[0]:g}")
        q = np.where(live & within, q, 0).astype(z.dtype)
    if options.label_smoothing:
        q = (1 - options.label_smoothing) * q + options.label_smoothing / 2
    weights = shares(np.where(counts, weight, 0), z.dtype, options)
    return q, live, weights if isinstance(z, np.ndarray) else np.where(right, weights, np.nan)


def labels_or(y: Any, targets: str, rows: Rows) -> tuple[Any, bool]:
    """y as an array, and whether it holds labels, not targets of entries."""
    y = on_device_of(as_array(y, "y"), rows.array, "y")
    is_label = y.dtype.kind in "iu" and y.shape == rows.batch
    if not is_label and y.shape != rows.shape:
        fits = [
            i for i, _ in enumerate(rows.shape) if y.shape == rows.shape[:i] + rows.shape[i + 1 :]
        ]
        other = fits and rows.axes != (fits[0],)
        hint = f"; are the classes along axis={fits[0]} (of tensors dim)?" if other else ""
        raise ValueError(
            f"y must be integer labels of shape {rows.batch} or {targets} of shape {rows.shape}, "
            f"got dtype {y.dtype} and shape {y.shape}{hint}"
        )
    return y, is_label


def refuse_ignored_distributions(is_label: bool, options: Options) -> None:
    """Raise a ValueError for an ignore_index that distributions cannot hold."""
    if options.ignore_index is not None and not is_label:
        raise ValueError(
            "ignore_index is for integer labels, and y holds distributions; leave rows out with "
            "weight=0"
        )


def places(like: Any) -> Any:
    """0 … d − 1, to compare labels with: put_along_axis is not in every CuPy."""
    return np.arange(like.shape[-1], like=like)


def checked_weight(weight: Any, like: Any, reduction: str) -> Any:
    """The weight of each row of `like`: finite and not negative.

    A mean needs the weights' ratios only; else they multiply, in the dtype of the scores.
    """
    weight = WEIGHT.checked(weight, like)
    dtype = weight.dtype if reduction == "mean" else like.dtype
    if not isinstance(weight, np.ndarray):
        return np.where(weight > largest(dtype), np.nan, weight)
    most = np.maximum.reduce(weight, axis=None, initial=0)
    if most > largest(dtype):
        raise ValueError(f"weight must be finite in {dtype}, got {most:g}")
    return weight


def checked_labels(y: Any, counts: Any, d: int) -> tuple[Any, Any]:
    """The labels, any label where they do not count or are wrong, and where they are right."""
    right = ~counts | ((y >= 0) & (y < d))
    if isinstance(y, np.ndarray) and not right.all():
        raise ValueError(
            f"labels must be in 0 … {d - 1}, got {y[~right].flat[0]}; rows to leave out are marked "
            "with ignore_index"
        )
    return np.where(counts & right, y, 0), right


def _checked_distributions(y: Any, scores: Any, mask: Any, counts: Any) -> tuple[Any, Any]:
    """y, zeros where masked and in rows that do not count; and which rows are valid."""
    y = as_floating(y, "y")[0].astype(scores.dtype, copy=False)
    y = np.where(counts[..., None] if mask is None else counts[..., None] & mask, y, 0)
    total = np.sum(y, axis=-1)
    right = np.all(y >= 0, axis=-1) & ~(counts & (np.abs(total - 1) > SUM_TOLERANCE))
    if isinstance(y, np.ndarray) and not right.all():
        total = total[counts]
        raise ValueError(
            f"distributions y must be ≥ 0 and sum to 1 within {SUM_TOLERANCE} over the unmasked "
            f"entries, got a smallest entry of {y.min():g} and sums from {total.min():g} to "
            f"{total.max():g}"
        )
    return y, right
