"""What a run has found so far."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple

from pyentmax.training.checkpoint import check_number


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
        """Append what a model showed after so many updates; nothing is kept of an empty one.

        A ValueError says what could not be kept: a checkpoint with it could not be read again.
        """
        if not found:
            return
        if "update" in found:
            raise ValueError("watched(): expected other names than update, got it")
        now = {"update": update, **found}
        if self.watched and now.keys() != self.watched.keys():
            raise ValueError(
                f"watched(): expected the same names each time, {', '.join(self.watched)}; got "
                f"{', '.join(map(str, now))}"
            )
        try:
            kept = json.loads(json.dumps(now))
        except (TypeError, ValueError) as error:
            raise ValueError(f"watched(): expected what JSON can hold, got {found}") from error
        if kept.keys() != now.keys():
            raise ValueError(f"watched(): expected texts for names, got {found}")
        for name, value in kept.items():
            self.watched.setdefault(name, []).append(value)

    @property
    def best_accuracy(self) -> float:
        """The best validation accuracy, −inf before the first."""
        return max(self.dev_accuracy, default=-math.inf)


def restored_history(found: Any) -> History:
    """The history that a checkpoint holds; a ValueError if it cannot be one."""
    names = [field.name for field in fields(History)]
    if not isinstance(found, dict) or (found.keys() | {"watched"}) != set(names):
        raise ValueError(f"history: expected {', '.join(names)}")
    history = History(**found)  # of earlier runs nothing was watched
    if history.interrupted is not False:  # no checkpoint says otherwise
        raise ValueError(f"history: expected interrupted: false, got {history.interrupted!r}")
    curves = {name: found[name] for name in ("loss", "dev_loss", "dev_accuracy", "seconds")}
    for name, values in {"update": history.update, **curves}.items():
        if not isinstance(values, list) or len(values) != len(history.update):
            raise ValueError("history: expected lists of one length")
        for value in values:
            check_number(f"history of {name}", value, whole=name == "update")
    if any(later <= update for update, later in pairwise([0, *history.update])):
        raise ValueError("history: expected numbers of updates in order")
    if any(later < before for before, later in pairwise([0, *history.seconds])):
        raise ValueError("history: expected seconds in order")
    watched = history.watched
    lists = isinstance(watched, dict) and all(isinstance(x, list) for x in watched.values())
    if not lists or len({len(entries) for entries in watched.values()}) > 1:
        raise ValueError("history: expected lists of one length of what was watched")
    if watched and "update" not in watched:
        raise ValueError("history: expected the updates at which something was watched")
    for update in watched.get("update", []):
        check_number("history of what was watched", update, whole=True)
    return history
