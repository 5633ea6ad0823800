"""Learning rates as functions of the number of updates done, never of seconds."""

from __future__ import annotations


class LinearDecay:
    """From ``rate`` down to zero over ``total`` updates, in equal steps."""

    def __init__(self, rate: float, total: int) -> None:
        self.base = rate
        self.total = total

    def rate(self, update: int) -> float:
        """The rate of update number ``update``, counted from 0."""
        return self.base * max(0.0, 1 - update / self.total)

    def on_validation(self, loss: float) -> None:
        """Told the validation loss; this schedule does not look at it."""

    def state(self) -> dict[str, float]:
        """Nothing changes but the count of updates, which the caller keeps."""
        return {}

    def load(self, state: dict[str, float]) -> None:
        """Take up a state that :meth:`state` gave."""


class HalveOnPlateau:
    """``rate``, halved each time the validation loss rises (Peters et al., §4)."""

    def __init__(self, rate: float) -> None:
        self.current = rate
        self.last_loss = float("inf")

    def rate(self, update: int) -> float:
        """The rate now, whatever the number of the update."""
        return self.current

    def on_validation(self, loss: float) -> None:
        """Told the validation loss: halve the rate if it is worse than the time before."""
        if loss > self.last_loss:
            self.current /= 2
        self.last_loss = loss

    def state(self) -> dict[str, float]:
        """What to save."""
        return {"current": self.current, "last_loss": self.last_loss}

    def load(self, state: dict[str, float]) -> None:
        """Take up a state that :meth:`state` gave."""
        self.current, self.last_loss = float(state["current"]), float(state["last_loss"])
