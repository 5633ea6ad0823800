"""Learning rates as functions of the number of updates, never of seconds."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Schedule(ABC):
    """A rate for each update; by default it depends on nothing else and has no state."""

    @abstractmethod
    def rate(self, update: int) -> float:
        """The rate of update number ``update``, counted from 0."""

    def on_validation(self, loss: float) -> None:  # noqa: B027
        """Take note of a validation loss."""

    def state(self) -> dict[str, float]:
        """What a checkpoint saves; the caller counts the updates."""
        return {}

    def load(self, state: dict[str, float]) -> None:  # noqa: B027
        """Restore what :meth:`state` returned."""


class LinearDecay(Schedule):
    """From ``rate`` down to zero over ``total`` updates, in equal steps.

    Examples
    --------
    >>> schedule = LinearDecay(0.4, total=4)
    >>> [round(schedule.rate(update), 6) for update in (0, 1, 4)]
    [0.4, 0.3, 0.0]
    """

    def __init__(self, rate: float, total: int) -> None:
        self.base = rate
        self.total = total

    def rate(self, update: int) -> float:
        """The rate of update number ``update``, counted from 0."""
        return self.base * max(0.0, 1 - update / self.total)


class HalveOnPlateau(Schedule):
    """``rate``, halved each time the validation loss rises (Peters et al. 2019, §4).

    Examples
    --------
    >>> schedule = HalveOnPlateau(0.4)
    >>> for loss in (2.0, 1.0, 1.5):
    ...     schedule.on_validation(loss)
    >>> schedule.rate(100)
    0.2
    """

    def __init__(self, rate: float) -> None:
        self.current = rate
        self.last_loss = float("inf")

    def rate(self, update: int) -> float:
        """The current rate, whatever the number of the update."""
        return self.current

    def on_validation(self, loss: float) -> None:
        """Halve the rate if the validation loss is higher than the last one."""
        if loss > self.last_loss:
            self.current /= 2
        self.last_loss = loss

    def state(self) -> dict[str, float]:
        """The current rate and the last loss."""
        return {"current": self.current, "last_loss": self.last_loss}

    def load(self, state: dict[str, float]) -> None:
        """Restore what :meth:`state` returned."""
        self.current, self.last_loss = state["current"], state["last_loss"]


class InverseSquareRoot(Schedule):
    """Up to ``rate`` in ``warmup`` equal steps, then down with the square root of the updates.

        rate · min((t + 1) / warmup, √(warmup / (t + 1)))        (Vaswani et al. 2017, Eq. 3)

    with the peak as the parameter; theirs is n^−½ · warmup^−½, n being the width of the model.

    Examples
    --------
    >>> schedule = InverseSquareRoot(0.4, warmup=4)
    >>> [round(schedule.rate(update), 6) for update in (0, 1, 3, 15)]
    [0.1, 0.2, 0.4, 0.2]
    """

    def __init__(self, rate: float, warmup: int) -> None:
        self.peak = rate
        self.warmup = warmup

    def rate(self, update: int) -> float:
        """The rate of update number ``update``, counted from 0."""
        t = update + 1
        return self.peak * min(t / self.warmup, (self.warmup / t) ** 0.5)
