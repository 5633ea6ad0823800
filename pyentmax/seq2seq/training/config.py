"""The settings of a run: what determines its numbers, and where and how it runs."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyentmax.engine.system.config import (
    is_count,
    is_number,
    is_positive,
    require,
    store_python_numbers,
)
from pyentmax.seq2seq.training.checkpoint import CheckpointError

SCHEDULES = ("linear", "halve", "inverse_sqrt")
LAST, BEST, SETTINGS = "last.npz", "best.npz", "settings.json"


@dataclass(frozen=True)
class TrainingConfig:
    """Settings that determine the numbers of a run, in addition to the model and its data.

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

    def __post_init__(self) -> None:
        store_python_numbers(self)
        betas: Any = self.betas
        if isinstance(betas, list):  # from a file
            object.__setattr__(self, "betas", tuple(betas))
        require(self, "updates accumulate average", is_count, "a whole number from 1 up")
        optional = "validate_every patience warmup average_every"
        require(self, optional, lambda x: x is None or is_count(x), "a whole number from 1 up")
        require(self, "seed", lambda x: type(x) is int and x >= 0, "a whole number from 0 up")
        require(self, "rate", is_positive, "a finite number above 0")
        require(self, "clip", lambda x: is_number(x) and x > 0, "a number above 0")
        require(self, "schedule", SCHEDULES.__contains__, f"one of {', '.join(SCHEDULES)}")
        warms_up, averages = self.schedule == "inverse_sqrt", self.average > 1
        where = "a number with the schedule 'inverse_sqrt', and only there"
        require(self, "warmup", lambda x: (x is not None) == warms_up, where)
        where = "a number with an average above 1, and only there"
        require(self, "average_every", lambda x: (x is not None) == averages, where)
        require(self, "betas", _are_betas, "two numbers in [0, 1)")

    @property
    def extendable(self) -> bool:
        """Whether a run may be made longer: the schedule does not depend on its updates."""
        return self.schedule != "linear"


def _are_betas(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and all(is_number(b) and 0 <= b < 1 for b in x)


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
        if folder is None:
            return
        if self.resume:
            if not (folder / SETTINGS).exists():
                raise FileNotFoundError(f"no run to resume: there is no {folder / SETTINGS}")
            return
        # Hidden files are our lock and those of file browsers; settings alone are those of a run
        # that failed before its first checkpoint.
        paths = folder.iterdir() if folder.exists() else []
        names = sorted(path.name for path in paths if not path.name.startswith("."))
        if names in ([], [SETTINGS]):
            return
        mark = read_settings(folder).get("demonstration") if SETTINGS in names else None
        if mark is None or mark != self.demonstration:
            raise ValueError(
                f"{folder}: expected an empty folder for a new run, it holds {names[0]}; resume "
                "the run that is there, or give another folder"
            )


def fingerprint(data: Any) -> str:
    """A short text for anything that JSON can hold, such as a list of examples.

    Examples
    --------
    >>> fingerprint([("draw", "drawn")]) == fingerprint([("draw", "drawed")])
    False
    """
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


def read_settings(directory: Path) -> dict[str, Any]:
    """The settings of the run in a directory."""
    return dict(json.loads((directory / SETTINGS).read_text("utf-8"), parse_constant=str))


def check_settings(directory: Path, settings: dict[str, Any], *, extends: int | None) -> None:
    """Raise a CheckpointError unless the run in a directory was started with these settings.

    Parameters
    ----------
    extends : int or None
        A run whose number of updates is a multiple of this may be made longer.
    """
    then, now = dict(_flat(read_settings(directory))), dict(_flat(settings))
    updates, requested = then.get("training.updates", 0), now["training.updates"]
    if extends and updates < requested and updates % extends == 0:
        then["training.updates"] = requested
    if different := [
        f"{name} was {then.get(name)!r}, is {now.get(name)!r}"
        for name in now | then
        if then.get(name) != now.get(name)
    ]:
        advice = "resume with the same settings, or start a new run in another folder"
        if [name for name in now | then if then.get(name) != now.get(name)] == ["training.updates"]:
            advice = (
                "a run can be made longer if its number of updates is a multiple of validate_every "
                "and its schedule is not 'linear', whose rate is 0 at the last update"
            )
        raise CheckpointError(
            f"{directory}: belongs to another run ({'; '.join(different[:3])}); {advice}"
        )


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The entries of nested dicts under dotted names."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
