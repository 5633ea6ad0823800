"""How to train: the settings of a run."""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass
from typing import Any

from pyentmax.calls.numbers import is_number, keep_plain

SCHEDULES = ("linear", "halve", "inverse_sqrt")
MOST = 10**12  # updates: years of the smallest model's, and far within all arithmetic
MAY_BE_NONE = ("validate_every", "patience", "warmup", "average_every")
LATER_SETTINGS = {
    "warmup": None,
    "betas": (0.9, 0.999),
    "accumulate": 1,
    "average": 1,
    "average_every": None,
    "rate_factors": None,
}


@dataclass(frozen=True)
class TrainingConfig:
    """How to train, whatever the model and its data.

    Parameters
    ----------
    updates : int
        Number of steps of the optimiser.
    rate : float
        Adam's step size at the start.
    schedule : {"linear", "halve", "inverse_sqrt"}
        Decay to zero over ``updates``; halve whenever the validation loss has risen; or rise over
        the first ``warmup`` updates to ``rate`` and fall with the square root of their number.
    clip : float
        Largest global norm of the gradient.
    validate_every : int or None
        Updates between validations; None for ten in all.
    patience : int or None
        Stop after this many validations without a better accuracy; None never stops early.
    seed : int
        Fixes the order of the batches and the dropout masks.
    warmup : int or None
        Updates until the rate is at its highest; for the schedule "inverse_sqrt", which needs it.
    betas : (float, float)
        Decay of Adam's two moments; the papers on Transformers take (0.9, 0.98).
    accumulate : int
        Batches per update. Their losses are averaged, each with the weight of what its source
        counts in it (`BatchSource.count`), tokens or examples.
    average : int
        Validate, and keep, the mean of the parameters at the last so many validations.
    average_every : int or None
        Take the mean of parameters so many updates apart instead, the last ones at such a number
        of updates. Small batches at a high rate push a model about: with batches of one length,
        the last ten of them decide how long its translations are, and a mean does not hang on them.
    rate_factors : dict or None
        Part of the names of parameters → factor of their rate, such as ``{"query": 0.2}``. A
        parameter whose name has several of the parts gets the product of their factors.
    """

    updates: int = 3000
    rate: float = 3e-3
    schedule: str = "linear"
    clip: float = 5.0
    validate_every: int | None = None
    patience: int | None = None
    seed: int = 0
    warmup: int | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    accumulate: int = 1
    average: int = 1
    average_every: int | None = None
    rate_factors: dict[str, float] | None = None

    def __post_init__(self) -> None:
        try:  # a tuple that came through a file is a list
            object.__setattr__(self, "betas", tuple(self.betas))
        except TypeError:
            raise ValueError(f"betas: expected two numbers in [0, 1), got {self.betas!r}") from None
        keep_plain(self)
        for name in ("updates", "accumulate", "average", *MAY_BE_NONE):
            if name in MAY_BE_NONE and getattr(self, name) is None:
                continue
            value = self._whole(name)
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
            if value > MOST:
                raise ValueError(f"{name}: expected at most {MOST:,}, got {value}")
        if self.average_every is not None and self.average == 1:
            raise ValueError(
                "average_every: expected with an average of several, got "
                f"{self.average_every} with an average of 1"
            )
        for name in ("rate", "clip"):
            value = getattr(self, name)
            if not (is_number(value) and value > 0):
                raise ValueError(f"{name}: expected a positive number, got {value!r}")
        if math.isinf(self.rate):
            raise ValueError(f"rate: expected a finite number, got {self.rate}")
        if self._whole("seed") < 0:
            raise ValueError(f"seed: expected a number from 0 up, got {self.seed}")
        if self.schedule not in SCHEDULES:
            known = ", ".join(map(repr, SCHEDULES))
            raise ValueError(f"schedule: expected one of {known}; got {self.schedule!r}")
        if (self.warmup is None) == (self.schedule == "inverse_sqrt"):
            raise ValueError(
                "warmup: expected with the schedule 'inverse_sqrt', and with no other; got "
                f"{self.warmup} with {self.schedule!r}"
            )
        right = all(is_number(beta) and 0 <= beta < 1 for beta in self.betas)
        if len(self.betas) != 2 or not right:
            raise ValueError(f"betas: expected two numbers in [0, 1), got {self.betas}")
        factors = self.rate_factors
        if factors is not None:
            if not isinstance(factors, dict) or not all(
                isinstance(part, str) and is_number(x) and 0 <= x < math.inf
                for part, x in factors.items()
            ):
                raise ValueError(
                    "rate_factors: expected parts of names with a factor from 0 up for each, got "
                    f"{factors}"
                )

    def _whole(self, name: str) -> int:
        """The value of a setting that counts."""
        value = getattr(self, name)
        try:
            if isinstance(value, bool):
                raise TypeError
            whole = operator.index(value)
        except TypeError:
            raise ValueError(f"{name}: expected a whole number, got {value!r}") from None
        object.__setattr__(self, name, whole)
        return whole

    def identity(self) -> dict[str, Any]:
        """The settings, in the form in which a run is compared with the one that it goes on from.

        Those that early runs lack are left out where they have no effect, and so is the number of
        updates where it says nothing but when to stop: such a run can be made longer.
        """
        settings = asdict(self)
        for name, unused in LATER_SETTINGS.items():
            if settings[name] == unused:
                del settings[name]
        if self.can_be_longer:
            del settings["updates"]
        return settings

    @staticmethod
    def spelled_out(settings: dict[str, Any]) -> dict[str, Any]:
        """The same settings with those that were left out, to say how two differ."""
        return LATER_SETTINGS | settings

    @property
    def can_be_longer(self) -> bool:
        """Whether nothing that is learned until then depends on the number of updates."""
        return self.schedule != "linear" and self.validate_every is not None
