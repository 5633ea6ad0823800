"""The decorator that declares a loss, and how its calls are arranged.

The body of a loss sees rows: scores with their maximum at 0, the `Target` and the mapping's
parameters as they came. It returns each row's loss, or that and its gradient; `LossCall` weighs and
reduces them. A compiled kernel does the same for integer labels: it takes scores, mask, label and
weight of each row, and gives its loss and gradient, both times that weight. For the mean it gets
each weight's share in the sum of all that count, so that nothing has to be scaled afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

from pyentmax.backends import declare
from pyentmax.calls.documentation import LOSS
from pyentmax.calls.kinds import (
    Parameter,
    Plain,
    Values,
    plain_scores,
    with_parameter,
)
from pyentmax.calls.lazy import is_lazy
from pyentmax.calls.options import Options, spelled_out
from pyentmax.calls.parameters import parts_of_largest
from pyentmax.calls.rows import ScoreRows
from pyentmax.losses.targets import arranged_target, checked_labels, checked_weight

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


def loss(
    *parameters: Parameter, shifted: bool = True
) -> Callable[[Callable[P, R]], declare.Accelerated[P, R]]:
    """A loss: ``f(z, y, *parameters, axis=-1, **options)``, of `LossOptions`.

    If not ``shifted``, its body sees the scores as they came, as the mapping's does.
    """

    def decorate(body: Callable[P, R]) -> declare.Accelerated[P, R]:
        return declare.of_kind(OfTargets(parameters, shifted), sections=LOSS)(spelled_out(body))

    return decorate


@dataclass(frozen=True)
class OfTargets:
    """Calls ``f(z, y, *parameters, axis=-1, *, reduction, weight, …)``: see `Kind`."""

    parameters: tuple[Parameter, ...] = ()
    shifted: bool = True

    def plain(self, function: Callable[..., Any]) -> Plain | None:
        """As in `Kind`: labels of a plain array of scores, reduced, without weights or a mask."""
        if not self.parameters:
            return plain_labels
        return with_parameter(plain_labels, 2, self.parameters, function)

    def answer(self, result: tuple[Any, ...], operands: Values) -> Any:
        """As in `Kind`: the sum of the losses and, if the kernel gave one, the gradient.

        A label out of range has the loss NaN, and a row that does not count, though it has a
        weight, changes the mean: either has to be looked at.
        """
        each, counts, *gradient = result
        total = np.add.reduce(each, axis=None)
        if total != total or not (counts.all() or np.all(counts == (operands[3] != 0))):
            return None
        return (total, *gradient) if gradient else total

    def arranged(self, values: tuple[Any, ...]) -> LossCall:
        """One call."""
        z, y, *rest = values
        given, (axis, *options) = rest[: len(self.parameters)], rest[len(self.parameters) :]
        return LossCall(self.parameters, z, y, given, axis, Options(*options), shifted=self.shifted)


def plain_labels(
    z: Any, y: Any, axis: Any = -1, *, reduction: Any = "mean", ignore_index: Any = None
) -> Values | None:
    """Kernel operands where nothing but the labels' range needs checking, else None."""
    if type(y) is not np.ndarray or y.dtype.kind not in "iu" or not y.size:
        return None
    operands = plain_scores(z, axis)
    if operands is None or y.shape != z.shape[:-1] or reduction not in ("mean", "sum"):
        return None
    labels = y.astype(np.int64, copy=False)
    if ignore_index is None:
        weight = 1 / y.size if reduction == "mean" else 1
        return (*operands, labels, np.array(weight, z.dtype))
    keep = y != ignore_index
    count = np.count_nonzero(keep) if type(ignore_index) is int else 0
    if not count:
        return None
    weight = z.dtype.type(1 / count if reduction == "mean" else 1)
    return (*operands, labels, np.asarray(keep * weight))


class LossCall:
    """One call of a loss."""

    def __init__(
        self,
        parameters: tuple[Parameter, ...],
        z: Any,
        y: Any,
        given: Sequence[Any],
        axis: Any,
        options: Options,
        *,
        shifted: bool = True,
    ) -> None:
        self._y, self._given, self._options, self._shifted = y, given, options, shifted
        self._rows = ScoreRows(z, axis, mask=options.mask)
        self._parameters = [
            parameter.operand(parameter.of_scores(value, self._rows), self._rows.z)
            for parameter, value in zip(parameters, given, strict=False)
        ]
        self._label: Any = None
        self._weight: Any = None

    @property
    def axes(self) -> tuple[int, ...]:
        """Which of the caller's axes form a row."""
        return self._rows.axes

    @property
    def kernel_ready(self) -> bool:
        """Whether y holds labels that a kernel can be given; keeps them and their weights."""
        options, rows, y = self._options, self._rows, self._y
        # Reducing a lazy array's losses would compute them.
        if not (rows.on_host and rows.kernel_ready):
            return False
        if options.label_smoothing or isinstance(y, np.ma.MaskedArray):
            return False
        y = y if hasattr(y, "__array_function__") else np.asarray(y)
        if type(y) is not np.ndarray or y.dtype.kind not in "iu" or y.shape != rows.batch:
            return False
        weight: Any = 1.0
        if options.weight is not None:
            weight = checked_weight(options.weight, rows.z, options.reduction)
        if options.ignore_index is not None:
            weight = np.where(y == options.ignore_index, 0, weight)
        weight = np.broadcast_to(weight, rows.batch)
        if options.weight is not None and options.reduction == "mean":
            weight = parts_of_largest(weight)
        self._label = y
        self._weight = weight.astype(rows.z.dtype)
        # What is lost beside another counts if that one has no score left; the body looks first.
        return options.weight is None or bool(np.all((self._weight != 0) == (weight != 0)))

    def operands(self) -> tuple[Any, ...]:
        """Scores, mask, labels, weights or, for the mean, their shares, and parameters."""
        weight = self._weight
        if self._options.reduction == "mean":
            weight = weight / _total(weight)
        return (*self._rows.operands(), self._label.astype(np.int64), weight, *self._parameters)

    def target(self) -> None:
        """Losses have no ``out`` to write to."""

    def restore(self, result: tuple[Any, ...]) -> Any:
        """The reduced loss and, if the kernel gave one, the gradient in the caller's form."""
        each, counts, *gradient = result
        checked_labels(self._label, counts, self._rows.z.shape[-1])
        if self._options.reduction == "mean" and (~counts & (self._weight != 0)).any():
            # Rows without any score had their share in the sum of weights, and should not have.
            share = _total(self._weight) / _total(np.where(counts, self._weight, 0))
            each, gradient = each * share, [part * share for part in gradient]
        return self._reduced(each, *gradient)

    def run(self, body: Callable[..., Any]) -> Any:
        """The reduced loss and, if the body gives one, the gradient in the caller's form."""
        rows = self._rows
        if is_lazy(rows.z):
            raise TypeError(
                "z is a lazy Dask array, and a loss is computed at once; pass z.compute(), or plan "
                "the loss of each row with dask.array.apply_gufunc(functools.partial(loss, "
                'reduction="none"), "(n),()->()", z, labels), labels being cut as the rows are'
            )
        scores = rows.scores(shifted=self._shifted)
        target, weights = arranged_target(rows, scores, self._y, self._options)
        result = body(scores, target, *self._given)
        each, *apart = result if isinstance(result, tuple) else (result,)
        # A NaN row stays NaN unless it counts nothing: no 0 · NaN or 0 · ∞ in the sum.
        broken, counts = ~rows.sound()[..., 0], weights != 0
        if self._options.reduction == "mean":
            total = np.sum(weights)
            weights = weights / np.where(total == 0, 1, total)
        each = np.where(counts, np.where(broken, np.nan, each), 0) * weights
        gradient = [
            np.where(
                counts[..., None],
                np.where(broken[..., None], np.nan, part) * weights[..., None],
                0,
            )
            for part in apart
        ]
        return self._reduced(each, *gradient)

    def _reduced(self, each: Any, *gradient: Any) -> Any:
        rows = self._rows
        loss = rows.in_callers_dtype(each if self._options.reduction == "none" else np.sum(each))
        return (loss, rows.in_callers_form(gradient[0])) if gradient else loss


def _total(weight: Any) -> Any:
    """The sum of the weights; 1 where none counts, and the mean is 0."""
    total = np.sum(weight)
    return total if total else np.ones_like(total)
