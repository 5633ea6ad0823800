"""The runs of an experiment: a folder for each row of its table and seed.

    OUT/1.5-slow.seed-0/
        last.npz best.npz   the training run
        curve.json          what was found at each validation
        result.json         written last: the run is finished

A run can be stopped at any time, and goes on when it is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyentmax.calls.numbers import is_number
from pyentmax.system.files import locked
from pyentmax.tasks.records import read_json, write_json
from pyentmax.training import LAST, RunOptions, TrainingConfig, load_checkpoint
from pyentmax.training.loop import TRAINING_STATE

RESULT, CURVE, LOCK = "result.json", "curve.json", ".run.lock"

Prepared = TypeVar("Prepared")


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


def asked_for(
    names: Sequence[str], seeds: Sequence[int], updates: int | None, pause_after: int | None
) -> list[Run]:
    """The runs that a command asks for, each row with each seed.

    A ValueError names a number that no training has, before there is anything of it on disk.
    """
    RunOptions(pause_after=pause_after)
    if updates is not None:
        TrainingConfig(updates=updates)
    for seed in seeds:
        if seed < 0:
            raise ValueError(f"seed: expected numbers from 0 up, got {seed}")
    return [Run(name, seed) for seed in seeds for name in names]


def check_recorded(out: Path) -> None:
    """Raise a ValueError if a folder, of which a report is asked for, holds no run.

    An OSError says if it cannot be read.
    """
    # Unlike `glob`, `iterdir` tells of a folder that cannot be read.
    there = out.iterdir() if out.is_dir() else []
    if not any(path.match("*.seed-*") and path.is_dir() for path in there):
        raise ValueError(f"{out}: expected the folder of an experiment, there are no runs in it")


def has_result(out: Path, run: Run, updates: int) -> bool:
    """Whether the result of a run has been written, after so many updates or more."""
    result = read_result(out / run.folder)
    return result is not None and bool(result["updates"] >= updates)


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result in the folder of a run, None if it has none.

    A ValueError names a damaged file, or one of another folder's run.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    result = read_json(path)
    if not isinstance(result, dict) or type(result.get("updates")) is not int:
        raise ValueError(f"{path}: expected the result of a run, got {str(result)[:60]}")
    row, _, seed = folder.name.rpartition(".seed-")
    for name, right in (("row", row), ("seed", seed)):
        if str(result.get(name, right)) != right:
            raise ValueError(
                f"{path}: expected the result of {folder.name}, got {name} {result[name]!r}"
            )
    return result


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """What was found at each validation; a ValueError names a damaged file."""
    path = folder / CURVE
    curve = read_json(path) if path.exists() else []
    if not isinstance(curve, list) or not all(
        isinstance(entry, dict) and type(entry.get("update")) is int for entry in curve
    ):
        raise ValueError(f"{path}: expected the curve of a run, got {str(curve)[:60]}")
    return curve


def recorded_runs(out: Path, rows: Iterable[str], having: str) -> list[Run]:
    """The runs in a folder that have a file of that name, in the order of these rows.

    A ValueError names a folder of another row.
    """
    order, found = list(rows), []
    for path in out.glob(f"*.seed-*/{having}"):
        name, _, seed = path.parent.name.rpartition(".seed-")
        if name not in order or not seed.isdecimal():
            raise ValueError(
                f"{path.parent}: expected the folder of a row and its seed, such as "
                f"{Run(order[0], 0).folder}"
            )
        found.append(Run(name, int(seed)))
    return sorted(found, key=lambda run: (order.index(run.row), run.seed))


def finish(
    out: Path,
    run: Run,
    updates: int,
    prepare: Callable[[], Prepared],
    work: Callable[[Path, Prepared], Mapping[str, Any] | None],
    is_whole: Callable[[Path], bool] = lambda folder: True,
) -> bool:
    """Have a run's result written, unless it is there; False if the run was stopped before.

    Parameters
    ----------
    out : Path
        The folder of the experiment.
    updates : int
        How many the result has to have. A run that is finished can be made longer: then its result
        is replaced.
    prepare : callable
        Reads what the run needs and checks it, before there is anything of the run on disk; also
        where the result is there, which may be one of other data.
    work : callable
        Given the folder of the run and what was prepared, trains or resumes it, measures, and
        returns what the table says of it; None if it was stopped.
    is_whole : callable, optional
        Given the folder of a run with a result, whether it has what else is to be there: if not,
        the run goes on, and its result is replaced in the end.

    Notes
    -----
    If another process is at the run, the call waits.
    """
    prepared, folder = prepare(), out / run.folder

    def is_done() -> bool:
        return has_result(out, run, updates) and is_whole(folder)

    if is_done():
        return True
    with locked(folder / LOCK, f"training {run.folder}"):
        if is_done():
            return True
        result = work(folder, prepared)
        if result is None:
            return False
        write_json(folder / RESULT, {"row": run.row, "seed": run.seed, **result})
    return True


def speed(meta: Mapping[str, Any]) -> float:
    """What a run did per second, by its training state; a ValueError if that has no such numbers.

    Examples
    --------
    >>> speed({"count": 300, "seconds": 1.5})
    200.0
    """
    count, seconds = meta["count"], meta["seconds"]
    if not (is_number(count) and is_number(seconds) and seconds > 0):
        raise ValueError(
            f"{LAST}: expected a count and the seconds that it took, got {count!r} and {seconds!r}"
        )
    return float(count / seconds)


def is_paused(out: Path, run: Run, pause_after: int | None) -> bool:
    """Whether a run that stopped has reached the pause that was asked for; else by Ctrl-C."""
    return pause_after is not None and training_state(out / run.folder)["updates"] >= pause_after


def training_state(folder: Path) -> dict[str, Any]:
    """What a run's ``last.npz`` says beside its arrays: updates, seconds, history.

    A CheckpointError names it if it has no history that a run can have.
    """
    return load_checkpoint(folder / LAST, TRAINING_STATE)[1]


class Curve:
    """What was found at each validation, in a file; a run that is resumed goes on with it."""

    def __init__(self, folder: Path, config: TrainingConfig) -> None:
        self.path, self.config = folder / CURVE, config
        there = (folder / LAST).exists()
        validated = training_state(folder)["history"]["update"] if there else []
        self.entries = [entry for entry in read_curve(folder) if entry["update"] in validated]
        self.last = max(validated, default=0)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Write what the next validation found."""
        every = self.config.validate_every
        assert every is not None
        # A run that was made longer may have been validated at its former end, between two others.
        self.last = min((self.last // every + 1) * every, self.config.updates)
        self.entries.append({"update": self.last, **entry})
        write_json(self.path, self.entries)
