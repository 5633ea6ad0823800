"""The runs of an experiment: a folder for each row of its table and seed.

    OUT/1.5-slow.seed-0/
        last.npz best.npz   the training run
        curve.json          what was found at each validation
        result.json         written last: the run is finished

A run can be stopped at any time, and goes on when it is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyentmax.system.files import locked
from pyentmax.tasks.records import read_json, write_json
from pyentmax.training import LAST, TRAINING_STATE, TrainingConfig, load_checkpoint

RESULT, CURVE, LOCK = "result.json", "curve.json", "lock"


class Run(NamedTuple):
    """A row of the table with its seed."""

    row: str
    seed: int

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.row}.seed-{self.seed}"

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}"


def has_result(out: Path, run: Run, updates: int) -> bool:
    """Whether the result of a run has been written, after so many updates or more."""
    path = out / run.folder / RESULT
    return path.exists() and bool(read_json(path)["updates"] >= updates)


def finish(
    out: Path, run: Run, updates: int, work: Callable[[Path], Mapping[str, Any] | None]
) -> bool:
    """Have a run's result written, unless it is there; False if the run was stopped before.

    Parameters
    ----------
    out : Path
        The folder of the experiment.
    updates : int
        How many the result has to have. A run that is finished can be made longer: then its result
        is replaced.
    work : callable
        Given the folder of the run, trains or resumes it, measures, and returns what the table
        says of it; None if it was stopped.

    Notes
    -----
    If another process is at the run, the call waits.
    """
    folder = out / run.folder
    with locked(folder / LOCK, f"training {run.folder}"):
        if has_result(out, run, updates):
            return True
        result = work(folder)
        if result is None:
            return False
        write_json(folder / RESULT, {"row": run.row, "seed": run.seed, **result})
    return True


def training_state(folder: Path) -> dict[str, Any]:
    """What a run's ``last.npz`` says beside its arrays: updates, seconds, history."""
    _, meta = load_checkpoint(folder / LAST, TRAINING_STATE)
    return meta


class Curve:
    """What was found at each validation, in a file; a run that is resumed goes on with it."""

    def __init__(self, folder: Path, config: TrainingConfig) -> None:
        self.path, self.config = folder / CURVE, config
        there = (folder / LAST).exists()
        validated = training_state(folder)["history"]["update"] if there else []
        entries = read_json(self.path) if self.path.exists() else []
        self.entries = [entry for entry in entries if entry["update"] in validated]
        self.validations = len(validated)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Write what the next validation found."""
        every = self.config.validate_every
        assert every is not None
        self.validations += 1
        update = min(self.validations * every, self.config.updates)
        self.entries.append({"update": update, **entry})
        write_json(self.path, self.entries)
