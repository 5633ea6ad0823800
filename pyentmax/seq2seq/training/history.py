"""The curves of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Validation(NamedTuple):
    """The result of a validation.

    Attributes
    ----------
    loss : float
        Of the held-out data. The schedule "halve" depends on it.
    accuracy : float
        Or any other figure of merit, the higher the better: it decides which parameters are best.
    """

    loss: float
    accuracy: float


@dataclass
class History:
    """The curves of a run, one entry per validation.

    Attributes
    ----------
    update : list of int
        Updates done.
    loss : list of float
        Mean training loss since the previous validation.
    dev_loss, dev_accuracy : lists of float
        What the validations returned.
    seconds : list of float
        Time spent in updates until then, by the run's clock, without validations.
    count : list of int
        Examples (or tokens) read until then.
    diagnostics : dict of lists
        What the model's ``diagnostics()`` returned, by name, one entry every 20 updates, with the
        number of updates under "update". Empty if the model has no such method.
    interrupted : bool
        Whether the run was stopped before its end.
    """

    update: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    dev_loss: list[float] = field(default_factory=list)
    dev_accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    diagnostics: dict[str, list[Any]] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def best_accuracy(self) -> float:
        """The best validation accuracy, −inf before the first."""
        return max(self.dev_accuracy, default=-math.inf)

    @property
    def since_best(self) -> int:
        """The number of validations since the best one."""
        accuracies = self.dev_accuracy
        return len(accuracies) - 1 - accuracies.index(self.best_accuracy) if accuracies else 0
