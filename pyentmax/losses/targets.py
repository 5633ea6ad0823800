"""Targets of a loss in rows, as labels or distributions, and what each row counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.calls.devices import beside
from pyentmax.calls.dtypes import as_array, as_floating, is_masked, kind_of_masked
from pyentmax.calls.lazy import check_known, without_empty_chunks
from pyentmax.calls.options import Options
from pyentmax.calls.parameters import WEIGHT, parts_of_largest
from pyentmax.calls.rows import ScoreRows

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


def arranged_target(rows: ScoreRows, scores: Any, y: Any, options: Options) -> tuple[Target, Any]:
    """The targets and each row's weight, 0 for rows that count nothing.

    On a GPU, where looking would wait for it, a row whose target is wrong weighs NaN.
    """
    y = as_targets(
        y, scores, "labels, with ignore_index for what to leave out, or distributions and mask="
    )
    weight: Any = 1.0
    if options.weight is not None:
        weight = checked_weight(options.weight, scores, options.reduction)
    counts = ~rows.dead() & (weight != 0)
    label: Any = None
    dense: Any = None
    if y.dtype.kind in "iu" and y.shape == rows.batch:
        if options.ignore_index is not None:
            counts = counts & (y != options.ignore_index)
        label, right = checked_labels(y, counts, scores.shape[-1])
        label = label[..., None]
        if options.label_smoothing:
            dense = (places(scores) == label).astype(scores.dtype)
    elif y.shape == rows.shape:
        if options.ignore_index is not None:
            raise ValueError(
                "ignore_index is for integer labels, and y holds distributions; leave rows out "
                "with weight=0"
            )
        dense, right = _checked_distributions(rows, y, counts)
    else:
        raise ValueError(
            f"y must be integer labels of shape {rows.batch} or distributions of shape "
            f"{rows.shape}, got dtype {y.dtype} and shape {y.shape}"
        )
    if options.label_smoothing:
        allowed = (scores > -np.inf).astype(scores.dtype)
        uniform = allowed / np.sum(allowed, axis=-1, keepdims=True)
        dense = (1 - options.label_smoothing) * dense + options.label_smoothing * uniform
    weights = np.where(counts, weight, 0)
    if options.reduction == "mean" and options.weight is not None:
        weights = parts_of_largest(weights)
    weights = weights.astype(scores.dtype, copy=False)
    if not rows.on_host:
        weights = np.where(right, weights, np.nan)
    return Target(label if dense is None else None, dense), weights


def as_targets(y: Any, scores: Any, instead_of_masked: str) -> Any:
    """The targets as an array where the scores are; a TypeError for masked ones."""
    if is_masked(y):
        raise TypeError(f"y is {kind_of_masked(y)}; pass plain {instead_of_masked}")
    y = beside(as_array(y), scores, "y")
    check_known(y, "y")
    return without_empty_chunks(y)


def places(like: Any) -> Any:
    """0 … d − 1, to compare labels with: put_along_axis is not in every CuPy."""
    return np.arange(like.shape[-1], like=like)


def checked_weight(weight: Any, like: Any, reduction: str) -> Any:
    """What each row of `like` counts: finite and not negative.

    A mean needs the weights' ratios only; else they multiply, in the dtype of the scores.
    """
    weight = WEIGHT.checked(weight, like)
    too_large = np.isinf(weight)
    if reduction != "mean":
        too_large = too_large | (weight > np.finfo(like.dtype).max)
    if not isinstance(weight, np.ndarray):
        return np.where(too_large, np.nan, weight)
    if np.isinf(weight).any():
        raise ValueError("weight must be finite, got inf: no mean exists with it")
    if too_large.any():
        raise ValueError(
            f"weight must be finite in {like.dtype}, the dtype of the loss, got {np.max(weight):g}"
        )
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


def _checked_distributions(rows: ScoreRows, y: Any, counts: Any) -> tuple[Any, Any]:
    """y in rows, zeros where masked and in rows that do not count; and which rows are right."""
    y, _ = as_floating(y, "y")
    y = rows.from_caller(y).astype(rows.z.dtype, copy=False)
    y = np.where(counts[..., None] if rows.mask is None else counts[..., None] & rows.mask, y, 0)
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
