"""The settings of a run: what determines its numbers, and where and how it runs."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyentmax.calls.numbers import is_number, store_python_numbers
from pyentmax.training.checkpoint import CheckpointError

SCHEDULES = ("linear", "halve", "inverse_sqrt")
LAST, BEST, SETTINGS = "last.npz", "best.npz", "settings.json"


@dataclass(frozen=True)
class TrainingConfig:
    """What determines the numbers of a run, apart from the model and its data.

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
        Updates until the rate is at its highest; required by the schedule "inverse_sqrt".
    betas : (float, float)
        Decay of Adam's two moments; the papers on Transformers use (0.9, 0.98).
    accumulate : int
        Batches per update. Their losses are averaged, weighted by `BatchSource.count`.
    average, average_every : int, int or None
        Validate, and keep, the mean of the last ``average`` snapshots of the parameters, one taken
        every ``average_every`` updates. Small batches at a high rate push a model about; a mean
        depends less on the last few.
    rate_factors : dict or None
        Part of the names of parameters → factor of their rate, such as ``{"query": 0.2}``. A
        parameter whose name contains several parts gets the product of their factors.
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
        betas: Any = self.betas
        if isinstance(betas, list):  # from a TOML file
            object.__setattr__(self, "betas", tuple(betas))
        store_python_numbers(self)
        required, optional = ("updates", "accumulate", "average"), ("validate_every", "patience")
        for name in (*required, *optional, "warmup", "average_every"):
            value = getattr(self, name)
            if not (type(value) is int and value >= 1 or value is None and name not in required):
                raise ValueError(f"{name}: expected a whole number from 1 up, got {value!r}")
        if not (type(self.seed) is int and self.seed >= 0):
            raise ValueError(f"seed: expected a whole number from 0 up, got {self.seed!r}")
        if not (is_number(self.rate) and 0 < self.rate < math.inf):
            raise ValueError(f"rate: expected a finite number above 0, got {self.rate!r}")
        if not (is_number(self.clip) and self.clip > 0):
            raise ValueError(f"clip: expected a number above 0, got {self.clip!r}")
        if self.schedule not in SCHEDULES:
            known = ", ".join(map(repr, SCHEDULES))
            raise ValueError(f"schedule: expected one of {known}; got {self.schedule!r}")
        for name, value, wanted, where in (
            ("warmup", self.warmup, self.schedule == "inverse_sqrt", "schedule 'inverse_sqrt'"),
            ("average_every", self.average_every, self.average > 1, "average above 1"),
        ):
            if (value is not None) != wanted:
                raise ValueError(f"{name}: expected with {where}, and only there; got {value}")
        betas = self.betas
        right = isinstance(betas, tuple) and all(is_number(b) and 0 <= b < 1 for b in betas)
        if not right or len(betas) != 2:
            raise ValueError(f"betas: expected two numbers in [0, 1), got {betas!r}")
        factors = self.rate_factors
        if factors is not None and not (
            isinstance(factors, dict)
            and all(is_number(x) and 0 <= x < math.inf for x in factors.values())
        ):
            raise ValueError(
                f"rate_factors: expected names with a factor from 0 up for each, got {factors!r}"
            )

    @property
    def extendable(self) -> bool:
        """Whether a longer run makes the same first updates: none depends on their number."""
        return self.schedule != "linear" and self.validate_every is not None


@dataclass(frozen=True)
class RunOptions:
    """Where and how a run is made; its numbers do not depend on these options.

    Parameters
    ----------
    directory : path, optional
        Where ``settings.json``, ``last.npz`` and ``best.npz`` go; without it nothing is written.
        A new run needs an empty folder, or one that does not exist yet.
    resume : bool, default False
        Continue the run in the directory.
    keep : {"best", "last"}
        Which parameters the model has in the end: those of the best validation, or the last ones.
    progress : bool, default True
        Show a bar with examples (or tokens) per second, loss and validation accuracy.
    blas_threads : int, optional
        How many threads BLAS may use. By default 1, or a limit that is already in force.
    pause_after : int, optional
        Stop after this number of updates, as Ctrl-C would; the run can be resumed.
    save_every : float, default 60
        Seconds of updates after which ``last.npz`` is written between validations.
    clock : callable, default `time.perf_counter`
        Measures seconds. `time.process_time` counts only what this process computes.
    demonstration : str, optional
        Name of a demonstration, which may replace its own earlier run in the directory.
    """

    directory: str | Path | None = None
    resume: bool = False
    keep: str = "best"
    progress: bool = True
    blas_threads: int | None = None
    pause_after: int | None = None
    save_every: float = 60.0
    clock: Callable[[], float] = time.perf_counter
    demonstration: str | None = None

    def __post_init__(self) -> None:
        if self.directory is not None:
            object.__setattr__(self, "directory", Path(self.directory))
        if self.keep not in ("best", "last"):
            raise ValueError(f"keep: expected 'best' or 'last', got {self.keep!r}")
        if self.pause_after is not None and self.pause_after < 1:
            raise ValueError(f"pause_after: expected at least 1 update, got {self.pause_after}")
        if self.resume and self.directory is None:
            raise ValueError("resume: expected the directory of the run, got none")

    def check_directory(self) -> None:
        """Raise an error unless the directory is free for a new run, or holds the one to resume.

        Training does so first; a command calls it before it reads large data.

        Raises
        ------
        FileNotFoundError
            If there is no run to resume.
        ValueError
            If a new run would not be alone in the directory.
        """
        if self.directory is None:
            return
        folder = Path(self.directory)
        if self.resume:
            if not (folder / LAST).exists():
                raise FileNotFoundError(f"no run to resume: there is no {folder / LAST}")
            return
        names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        # Hidden files are our lock and those of file browsers; settings alone are those of a run
        # that failed before its first checkpoint.
        others = [name for name in names if name != SETTINGS and not name.startswith(".")]
        if others and not self._replaces(folder):
            raise ValueError(
                f"{folder}: expected an empty folder for a new run, it holds {others[0]}; resume "
                "the run that is there, or give another folder"
            )

    def _replaces(self, folder: Path) -> bool:
        """Whether the folder holds an earlier run of the same demonstration."""
        if self.demonstration is None or not (folder / SETTINGS).exists():
            return False
        return read_settings(folder).get("demonstration") == self.demonstration


def fingerprint(data: Any) -> str:
    """A short text for anything that JSON can hold, such as a list of examples.

    Examples
    --------
    >>> fingerprint([("draw", "drawn")]) == fingerprint([("draw", "drawed")])
    False
    """
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings that a run was started with."""
    path = folder / SETTINGS
    try:
        settings = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: expected settings as JSON ({error})") from error
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path}: expected settings as JSON, got {str(settings)[:60]}")
    return settings
