"""How to train: the settings of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingConfig:
    """How to train, whatever the model and its data.

    Parameters
    ----------
    updates : int
        Number of steps of the optimiser.
    rate : float
        Adam's step size at the start.
    schedule : {"linear", "halve"}
        Decay to zero over ``updates``, or halve whenever the validation loss has risen.
    clip : float
        Largest global norm of the gradient.
    validate_every : int or None
        Updates between validations; None for ten in all.
    patience : int or None
        Stop after this many validations without a better accuracy; None never stops early.
    seed : int
        Fixes the order of the batches and the dropout masks.
    """

    updates: int = 3000
    rate: float = 3e-3
    schedule: str = "linear"
    clip: float = 5.0
    validate_every: int | None = None
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("updates", "validate_every", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        for name in ("rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected a positive number, got {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"seed: expected a number from 0 up, got {self.seed}")
        if self.schedule not in ("linear", "halve"):
            raise ValueError(f"schedule: expected 'linear' or 'halve', got {self.schedule!r}")
