"""The settings of a run: what determines its numbers, and where and how it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyentmax.calls.numbers import is_number, store_python_numbers
from pyentmax.training.settings import SETTINGS, read_settings

SCHEDULES = ("linear", "halve", "inverse_sqrt")
LAST, BEST = "last.npz", "best.npz"


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
        store_python_numbers(self)
        betas: Any = self.betas
        if isinstance(betas, list):  # from a file
            object.__setattr__(self, "betas", tuple(betas))
        for name in ("updates", "accumulate", "average"):
            self._require(name, _is_count, "a whole number from 1 up")
        for name in ("validate_every", "patience", "warmup", "average_every"):
            self._require(name, lambda x: x is None or _is_count(x), "a whole number from 1 up")
        self._require("seed", lambda x: type(x) is int and x >= 0, "a whole number from 0 up")
        self._require(
            "rate", lambda x: is_number(x) and 0 < x < math.inf, "a finite number above 0"
        )
        self._require("clip", lambda x: is_number(x) and x > 0, "a number above 0")
        self._require("schedule", lambda x: x in SCHEDULES, f"one of {', '.join(SCHEDULES)}")
        self._require(
            "warmup",
            lambda x: (x is not None) == (self.schedule == "inverse_sqrt"),
            "a number with the schedule 'inverse_sqrt', and only there",
        )
        self._require(
            "average_every",
            lambda x: (x is not None) == (self.average > 1),
            "a number with an average above 1, and only there",
        )
        self._require("betas", _are_betas, "two numbers in [0, 1)")
        self._require("rate_factors", _are_factors, "names with a factor from 0 up each")

    def _require(self, name: str, is_right: Callable[[Any], bool], expected: str) -> None:
        value = getattr(self, name)
        if not is_right(value):
            raise ValueError(f"{name}: expected {expected}, got {value!r}")

    @property
    def extendable(self) -> bool:
        """Whether a longer run makes the same first updates: none depends on their number."""
        return self.schedule != "linear" and self.validate_every is not None


def _is_count(x: Any) -> bool:
    return type(x) is int and x >= 1


def _are_betas(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and all(is_number(b) and 0 <= b < 1 for b in x)


def _are_factors(x: Any) -> bool:
    if x is None:
        return True
    return isinstance(x, dict) and all(is_number(f) and 0 <= f < math.inf for f in x.values())


@dataclass(frozen=True)
class RunOptions:
    """Where and how a run is made; its numbers do not depend on these options.

    Parameters
    ----------
    directory : path, optional
        Where ``settings.json``, ``last.npz`` and ``best.npz`` go; without it nothing is written.
        A new run needs an empty folder, or one that does not exist yet.
    resume : bool, default False
        Continue the run in the directory. One that was killed before its first checkpoint begins
        anew.
    keep : {"best", "last"}
        Which parameters the model has in the end: those of the best validation, or the last ones.
    progress : bool, default True
        Show a bar with examples (or tokens) per second, loss and validation accuracy.
    blas_threads : int, optional
        How many threads BLAS may use. By default 1, or a limit that is already in force.
    save_every : float, default 60
        Seconds of updates after which ``last.npz`` is written between validations.
    clock : callable, default `time.perf_counter`
        Measures seconds. `time.process_time` counts only what this process computes.
    demonstration : str, optional
        Name of a demonstration, which may replace its own earlier run in the directory.
    """

    directory: Path | None = None
    resume: bool = False
    keep: str = "best"
    progress: bool = True
    blas_threads: int | None = None
    save_every: float = 60.0
    clock: Callable[[], float] = time.perf_counter
    demonstration: str | None = None

    def __post_init__(self) -> None:
        if self.directory is not None:
            object.__setattr__(self, "directory", Path(self.directory))
        if self.keep not in ("best", "last"):
            raise ValueError(f"keep: expected 'best' or 'last', got {self.keep!r}")
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
        folder = self.directory
        if folder is None or (not self.resume and not folder.exists()):
            return
        if self.resume:
            if not (folder / SETTINGS).exists():
                raise FileNotFoundError(f"no run to resume: there is no {folder / SETTINGS}")
            return
        # Hidden files are our lock and those of file browsers; settings alone are those of a run
        # that failed before its first checkpoint.
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if names in ([], [SETTINGS]):
            return
        mark = read_settings(folder).get("demonstration") if SETTINGS in names else None
        if mark is None or mark != self.demonstration:
            raise ValueError(
                f"{folder}: expected an empty folder for a new run, it holds {names[0]}; resume "
                "the run that is there, or give another folder"
            )
