"""What a run has found so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Validation(NamedTuple):
    """What a validation found.

    Attributes
    ----------
    loss : float
        Of the data held out. The schedule "halve" listens to it.
    accuracy : float
        Or any other figure that is better the larger it is: it decides which parameters are best.
    """

    loss: float
    accuracy: float


@dataclass
class History:
    """What a run has seen so far, one entry per validation.

    Attributes
    ----------
    update : list of int
        Updates done.
    loss : list of float
        Mean training loss since the validation before.
    dev_loss, dev_accuracy : lists of float
        What the validations returned.
    seconds : list of float
        Time spent in updates until then, by the run's clock; validations do not count.
    watched : dict of lists
        What the model's ``watched()`` gave, by name, one entry every 20 updates; ``update`` is how
        many were done. Empty if the model has no such method.
    interrupted : bool
        Whether Ctrl-C ended the run early.
    """

    update: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    dev_loss: list[float] = field(default_factory=list)
    dev_accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    watched: dict[str, list[Any]] = field(default_factory=dict)
    interrupted: bool = False

    def watch(self, update: int, found: dict[str, Any]) -> None:
        """Append what a model showed after so many updates; nothing is kept of an empty one."""
        if found:
            for name, value in {"update": update, **found}.items():
                self.watched.setdefault(name, []).append(value)

    @property
    def best_accuracy(self) -> float:
        """The best validation accuracy, −inf before the first."""
        return max(self.dev_accuracy, default=-math.inf)
