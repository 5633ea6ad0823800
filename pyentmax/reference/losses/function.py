"""How a loss runs: targets, weights and reductions on top of the one dispatch.

The rule of a loss sees scores of shape batch + (d,) with their maximum at 0, the `Target`, and the
mapping's parameter as the caller gave it. It returns each row's loss, or that and its gradient,
which are weighted and reduced here.

A compiled kernel does the same for integer labels: it takes scores, mask, label and weight of each
row, and gives the row's loss and gradient, both times that weight, and whether the row counts. For
the mean it gets each weight's share in the sum of all weights, so that nothing has to be scaled
afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pyentmax.engine.backends import threads
from pyentmax.engine.backends.function import Call, OfScores, P, is_plain
from pyentmax.engine.calls.dask_arrays import plan_rows
from pyentmax.engine.calls.options import USUAL, Options
from pyentmax.engine.calls.parameters import Parameter
from pyentmax.engine.calls.rows import Rows, all_true, live_entries, masked_scores
from pyentmax.reference.losses.targets import (
    checked_labels,
    labels_like,
    prepare_target,
    row_weights,
    shares,
)


class LossFunction(OfScores[P]):
    """A loss of scores z and targets y; its options are those of `Options`."""

    arrays = ("z", "y")
    results: ClassVar[tuple[str, ...]] = ("number",)
    mapping: Any

    def define(self, mapping: Any, definition: Callable[..., Any]) -> None:
        """Set the rule, which holds for every mapping that has a regularizer."""
        self.mapping, self.__wrapped__ = mapping, definition
        self.body = functools.partial(definition, mapping)

    @property
    def is_defined(self) -> bool:
        """Whether the mapping has a regularizer."""
        return bool(self.mapping.regularizer.is_defined)

    def run_straight(
        self, kernel: Any, arrays: tuple[Any, ...], value: Any, mask: Any, out: Any, options: Any
    ) -> Any:
        """See `Function`: the loss of integer labels."""
        z, y = arrays
        labels = labels_like(y, z.shape[:-1], options)
        if labels is None:
            return NotImplemented
        if mask is None:
            mask = all_true(z.shape[-1])
        elif not is_plain(mask, z):
            return NotImplemented
        if options is USUAL:
            weights = _constant(1 / labels.size, z.dtype)
        else:
            weights = _kernel_weights(labels, z, options)
            if weights is None:
                return NotImplemented
        operands: tuple[Any, ...] = (z, mask, labels, weights)
        parameter: Any = self.parameter  # one that goes straight
        if parameter is not None:
            value = parameter.for_few(value, z)
            if value is None:
                return NotImplemented
            operands += (value,)
        loss, *gradient = _reduced(kernel(*operands), labels, weights, options, z.shape[-1])
        return (loss, gradient[0]) if gradient else loss

    def by_rule(self, call: Call) -> Any:
        """See `Function`."""
        if not self.is_defined:
            self._undefined()
        values = () if self.parameter is None else (call.value,)
        shifted = self.parameter is None or self.parameter.shifted
        y, options = call.operands[1], call.options
        return loss_by_body(self.body, call.rows, y, values, options, shifted=shifted)

    def by_kernel(self, call: Call, kernel: Any) -> Any:
        """See `Function`."""
        rows, options = call.rows, call.options
        labels = labels_like(call.operands[1], rows.batch, options)
        weights = None if labels is None else _kernel_weights(labels, rows.array, options)
        if weights is None:
            return NotImplemented
        operands = (*rows.operands(), labels, weights)
        if self.parameter is not None:
            operands += (self.parameter.kernel_operand(call.checked, rows.array),)
        parts = threads.run(kernel, operands)
        loss, *gradient = _reduced(parts, labels, weights, options, rows.array.shape[-1])
        if loss.dtype != rows.dtype:
            loss = loss.astype(rows.dtype)
        return (loss, rows.finish(gradient[0])) if gradient else loss

    def by_both(self, call: Call) -> Any:
        """See `Function`."""
        rows, options = call.rows, call.options
        labels = labels_like(call.operands[1], rows.batch, options)
        if labels is None:
            return NotImplemented
        unweighted = Options("none", ignore_index=options.ignore_index)
        each = Call(call.arrays, call.value, call.axis, call.mask, None, unweighted)
        each.rows, each.operands, each.checked = rows, (rows.array, labels), call.checked
        parts = super().by_both(each)
        if parts is NotImplemented:
            return NotImplemented
        losses, gradient = parts if isinstance(parts, tuple) else (parts, None)
        weights = row_weights(rows.array, labels, options)
        counts = live_entries(rows.array, rows.mask).any(axis=-1) & (weights != 0)
        weights = shares(np.where(counts, weights, 0), losses.dtype, options)
        return weighted(losses, gradient, counts[..., None], weights, rows, options)

    def finish(self, call: Call, result: Any) -> Any:
        """See `Function`: rule and kernel have reduced."""
        return result

    def plan(self, named: dict[str, Any], options: Any) -> Any:
        """See `Function`."""
        named = {**named, **options._asdict(), "mask": named["mask"]}
        return plan_loss(self, self.parameter, named, self.results)

    def gpu_options(self, call: Call) -> tuple[Any, ...]:
        """See `Function`."""
        return tuple(call.options._replace(mask=call.mask))


@np.errstate(under="ignore")
def loss_by_body(
    body: Callable[..., Any],
    rows: Rows,
    y: Any,
    values: tuple[Any, ...],
    options: Options,
    *,
    shifted: bool = True,
) -> Any:
    """The reduced loss and, if the body gives one, the gradient in the caller's form.

    Parameters
    ----------
    body : callable
        ``body(scores, target, *values)``, the rule of a loss
    rows : Rows
        of scores
    """
    scores, top = masked_scores(rows.array, rows.mask, shifted=shifted)
    target, weights = prepare_target(scores, top, y, rows, options)
    result = body(scores, target, *values)
    losses, *parts = result if isinstance(result, tuple) else (result,)
    broken = ~np.isfinite(top)
    losses = np.where(broken[..., 0], np.nan, losses)
    gradient = np.where(broken, np.nan, parts[0]) if parts else None
    return weighted(losses, gradient, (weights != 0)[..., None], weights, rows, options)


def weighted(
    losses: Any, gradient: Any, counts: Any, weights: Any, rows: Rows, options: Options
) -> Any:
    """The reduced loss of rows and their gradient, if any, which is 0 where `counts` is False."""
    # A NaN row stays NaN unless its weight is 0: no 0 · NaN or 0 · ∞ in the sum.
    losses = np.where(weights != 0, losses, 0)
    if options.reduction == "mean":
        total = np.sum(weights)
        weights = weights / np.where(total == 0, 1, total)
    losses = losses * weights
    reduced = losses if options.reduction == "none" else np.sum(losses)
    reduced = reduced.astype(rows.dtype, copy=False)[()]
    if gradient is None:
        return reduced
    return reduced, rows.finish(np.where(counts, gradient * weights[..., None], 0))


def _kernel_weights(labels: Any, z: Any, options: Options) -> Any:
    """The kernel's weight of each row, or None where rounding would lose a weight."""
    weight = row_weights(z, labels, options)
    if type(weight) is float or not weight.ndim:  # the same for all rows: of a mean its sign counts
        if options.reduction == "mean":
            weight = (weight > 0) / max(labels.size, 1)
        return _constant(float(weight), z.dtype)
    rounded = shares(weight, z.dtype, options)
    # A weight that underflows beside a larger one matters if the larger row is fully masked.
    if options.weight is not None and np.count_nonzero(rounded) < np.count_nonzero(weight):
        return None
    if options.reduction == "mean":
        each = max(labels.size // max(rounded.size, 1), 1)  # labels that share a weight
        rounded = rounded / (_total(rounded) * each)
    return rounded


@functools.lru_cache(maxsize=256)
def _constant(value: float, dtype: Any) -> Any:
    return np.array(value, dtype)


def _reduced(
    parts: tuple[Any, ...], labels: Any, weights: Any, options: Options, d: int
) -> list[Any]:
    """The reduced loss and, if the kernel gave one, the gradient in rows of d scores."""
    losses, counts, *gradient = parts
    # A sum of one takes longer than all else here.
    total = losses.reshape(-1)[0] if losses.size == 1 else np.add.reduce(losses, axis=None)
    if total != total:  # a NaN is what the kernel gives for a label that is out of range
        checked_labels(labels, counts, d)
    all_count = counts.item() if counts.size == 1 else np.logical_and.reduce(counts, axis=None)
    if options.reduction == "mean" and not all_count and np.any(~counts & (weights != 0)):
        weights = np.broadcast_to(weights, counts.shape)
        # Rows without any score had their share in the sum of weights, and should not have.
        share = _total(weights) / _total(np.where(counts, weights, 0))
        total, gradient = total * share, [part * share for part in gradient]
    return [losses if options.reduction == "none" else total, *gradient]


def _total(weight: Any) -> Any:
    """The sum of the weights; 1 where none counts, and the mean is 0."""
    total = np.add.reduce(weight, axis=None)
    return total or total + 1


def plan_loss(
    function: Callable[..., Any],
    parameter: Parameter | None,
    kwargs: dict[str, Any],
    results: Sequence[str] = ("number",),
    **others: Any,
) -> Any:
    """A loss of Dask arrays, of each row or summed: see `plan_rows`.

    `kwargs` are its arguments by name, options among them; `others` go to the function as well.
    """
    reduction = kwargs.pop("reduction")
    if reduction == "mean":
        raise TypeError(
            'the mean loss of a Dask array is not planned; pass reduction="none" or "sum", and '
            "divide by the weights that count"
        )
    for name in ("ignore_index", "label_smoothing"):
        others[name] = kwargs.pop(name)
    per_row = {"weight"} | ({"y"} if np.ndim(kwargs["y"]) < np.ndim(kwargs["z"]) else set())
    planned = plan_rows(function, parameter, kwargs, results, per_row, reduction="none", **others)
    if reduction == "none":
        return planned
    return (planned[0].sum(), planned[1]) if isinstance(planned, tuple) else planned.sum()
