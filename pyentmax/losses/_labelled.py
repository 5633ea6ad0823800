"""How the losses of integer labels are arranged for the compiled kernels.

A kernel takes scores, mask, label and weight of each row, and gives its loss and gradient, both
times that weight: for the mean it gets each weight's share in the sum of all that count, so that
nothing has to be scaled afterwards. Distributions and smoothing are left to the NumPy body.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.calls.options import Options
from pyentmax.calls.rows import Rows
from pyentmax.losses._targets import checked_labels, checked_weight


class LabelledRows:
    """Scores, labels and weights of one call of a loss."""

    def __init__(
        self,
        z: Any,
        y: Any,
        axis: Any = -1,
        *,
        reduction: str = "mean",
        weight: Any = None,
        mask: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        self._options = Options(reduction, weight, mask, ignore_index, label_smoothing)
        self._rows = Rows(z, axis, mask=mask)
        self._label: Any = None
        self._weight: Any = None
        # Reducing a lazy array's losses would compute them.
        self.kernel_ready = self._rows.on_host and self._rows.kernel_ready and self._takes(y)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that its labels need no check."""

    def _takes(self, y: Any) -> bool:
        """Whether y holds labels that a kernel can be given; keeps them and their weights."""
        options, rows = self._options, self._rows
        if options.smoothing or isinstance(y, np.ma.MaskedArray):
            return False
        y = y if hasattr(y, "__array_function__") else np.asarray(y)
        if type(y) is not np.ndarray or y.dtype.kind not in "iu" or y.shape != rows.batch:
            return False
        weight: Any = 1.0
        if options.weight is not None:
            weight = checked_weight(options.weight, rows.z)
        if options.ignore_index is not None:
            weight = np.where(y == options.ignore_index, 0, weight)
        self._label = y
        self._weight = np.broadcast_to(weight, rows.batch).astype(rows.z.dtype)
        return True

    def operands(self) -> tuple[Any, ...]:
        """Scores, mask, labels, and weights or, for the mean, their shares."""
        weight = self._weight
        if self._options.reduction == "mean":
            weight = weight / _total(weight)
        return (*self._rows.operands(), self._label.astype(np.int64), weight)

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
        loss = self._rows.reduced(each if self._options.reduction == "none" else np.sum(each))
        if not gradient:
            return loss
        return loss, self._rows.in_callers_form(gradient[0])


class EntmaxLabelledRows(LabelledRows):
    """The same, and α."""

    def __init__(self, z: Any, y: Any, alpha: Any = 1.5, axis: Any = -1, **options: Any) -> None:
        super().__init__(z, y, axis, **options)
        self._alpha = self._rows.parameter(alpha, "alpha", 1)

    def operands(self) -> tuple[Any, ...]:
        """Scores, mask, labels, weights or shares, and α per row or one for all."""
        return (*super().operands(), self._alpha)


def _total(weight: Any) -> Any:
    """The sum of the weights; 1 where none counts, and the mean is 0."""
    total = np.sum(weight)
    return total if total else np.ones_like(total)
