"""Settings → run → one line of JSON per result.

    OUT/results.jsonl            a line per finished run: its settings, what was measured, and what
                                 it was made from; written whole or not at all
    OUT/1.5-1.seed-0-3fa9c1d2/   the files of a run: checkpoints, as the trainer writes them
    OUT/1.5-1.seed-0-3fa9c1d2.json   its settings, and the sessions in which it was trained
    OUT/1.5-1.seed-0-3fa9c1d2.lock   held by the process that works on it

A run whose line is there is skipped. One that was cut off, by Ctrl-C or by a killed process, is
resumed from the trainer's last checkpoint by the same command. Several processes can share a
folder: each takes the next run that no other holds. The operating system releases a lock when its
process ends, however it ends. With ``--scheduler`` the runs go to the workers of a Dask cluster,
which see the same folder.

An experiment is an :class:`Experiment`: a script defines one and calls its `main`. Tables and
pictures are functions of the lines, so ``--report`` makes them again from those that are kept in
the repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pyentmax
from experiments.download import FOLDER_VARIABLE
from pyentmax.engine.system.blas import limit_blas
from pyentmax.engine.system.files import locked, replacing
from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.training import History, RunOptions
from pyentmax.seq2seq.training.config import SETTINGS

Settings = dict[str, Any]
"""What makes a run what it is, as JSON can hold it."""
Line = dict[str, Any]
"""``settings``, ``result`` and ``made_from`` of a finished run."""

RESULTS = "results.jsonl"
HOME = Path(__file__).parent


@dataclass(frozen=True)
class Options:
    """How to run, where results do not depend on it."""

    data: Path | None = None  #: folder of data; otherwise PYENTMAX_DATA, or a download
    quiet: bool = False

    def data_folder(self, contents: str) -> Path:
        """The folder of data; a DataError says what it has to hold if none is named."""
        named = self.data or os.environ.get(FOLDER_VARIABLE)
        if not named:
            raise DataError(f"data: expected --data FOLDER, or PYENTMAX_DATA set, with {contents}")
        return Path(named)


Work = Callable[[Settings, Path, Options], dict[str, Any]]
"""Trains or resumes a run in its folder and returns what was measured, as JSON can hold it.

It raises KeyboardInterrupt if it was stopped before its end; `finished` does so for a history.
"""


class Unready(Exception):
    """A run needs the result of another one, which is not there yet."""


# --- lines ----------------------------------------------------------------------------------------
def read_lines(path: Path) -> list[Line]:
    """The lines of a file, none if there is no file; a ValueError names a damaged line."""
    lines = []
    texts = path.read_text("utf-8").splitlines() if path.exists() else []
    for number, text in enumerate(texts, start=1):
        try:
            line = json.loads(text)
            line["settings"], line["result"]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}, line {number}: expected a result, got {error!r}") from None
        lines.append(line)
    return lines


def add_line(path: Path, line: Line) -> None:
    """Add a line to a file, in place of one with the same settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock"), f"writing {path}"):
        others = [one for one in read_lines(path) if one["settings"] != line["settings"]]
        with replacing(path) as file:
            file.write("".join(_text(one) + "\n" for one in (*others, line)).encode())


def _text(value: Any) -> str:
    # NaN and infinities are not JSON: a measurement gives None instead.
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _plain(settings: Settings) -> Settings:
    """Settings as they come back from a file."""
    plain: Settings = json.loads(_text(settings))
    return plain


# --- what a result was made from ------------------------------------------------------------------
def session() -> dict[str, Any]:
    """The commit, machine and libraries of this process, and the date."""
    return {
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": _processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": _blas(),
        "pyentmax": pyentmax.__version__,
    }


def commit() -> str | None:
    """The commit of this clone, with ``+changes`` where files differ from it."""
    describe = ["git", "-C", str(HOME), "describe", "--always", "--abbrev=12", "--exclude=*"]
    with suppress(OSError, subprocess.CalledProcessError):
        output = subprocess.run(
            [*describe, "--dirty=+changes"], check=True, capture_output=True, text=True
        )
        return output.stdout.strip()
    return None


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _blas() -> str:
    """The BLAS, and the processor whose kernels it runs: results depend on both."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return os.environ.get("OPENBLAS_CORETYPE", "unknown")
    # SciPy's wheel has one of its own, which a session has loaded or not.
    libraries = (pool for pool in threadpool_info() if "scipy.libs" not in pool["filepath"])
    names = ("internal_api", "version", "architecture")
    pools = {
        " ".join(str(pool[n]) for n in names if pool.get(n))
        for pool in libraries
        if pool["user_api"] == "blas"
    }
    return ", ".join(sorted(pools)) or "unknown"


# --- runs -----------------------------------------------------------------------------------------
def folder_of(out: Path, settings: Settings, grows: str | None = None) -> Path:
    """The folder of a run: the few settings that tell it from its neighbours, and a hash of all.

    Runs that differ only in the setting ``grows``, the number of updates, share a folder: a longer
    run goes on where a shorter one ended.

    Examples
    --------
    >>> folder_of(Path("out"), {"row": "softmax", "seed": 0, "updates": 400}, "updates").name
    'softmax.seed-0-a985a836'
    """
    fixed = {name: value for name, value in settings.items() if name != grows}
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:8]
    parts = [str(settings[n]) for n in ("row", "loss", "attention") if n in settings]
    name = "-".join(parts).replace(":", "-") or "run"
    seed = f".seed-{settings['seed']}" if "seed" in settings else ""
    return out / f"{name}{seed}-{digest}"


def run_one(
    out: Path, work: Work, options: Options, grows: str | None, settings: Settings
) -> Line | None:
    """Finish a run and add its line; returns the line, None if another process is at the run.

    Raises
    ------
    KeyboardInterrupt
        If it was stopped; the next call goes on.
    ValueError
        If its earlier sessions ran on another BLAS, whose last bits differ.
    """
    settings = _plain(settings)
    folder = folder_of(out, settings, grows)
    if line := _line_of(out, settings):
        return line
    try:
        with locked(folder.with_name(folder.name + ".lock"), folder.name, wait=False):
            if line := _line_of(out, settings):  # finished by another process meanwhile
                return line
            sessions = _opened(folder, settings)
            with limit_blas(1):
                result = work(settings, folder, options)
            line = {"settings": settings, "result": result, "made_from": sessions}
            add_line(out / RESULTS, line)
            return line
    except BlockingIOError:
        return None


def _line_of(out: Path, settings: Settings) -> Line | None:
    lines = (line for line in read_lines(out / RESULTS) if line["settings"] == settings)
    return next(lines, None)


def _opened(folder: Path, settings: Settings) -> list[dict[str, Any]]:
    """Record this session of a run, unless the last one was the same; returns all of them."""
    path = folder.with_name(folder.name + ".json")
    sessions = json.loads(path.read_text("utf-8"))["sessions"] if path.exists() else []
    now = session()
    if sessions and sessions[-1]["blas"] != now["blas"]:
        raise ValueError(
            f"{folder}: the run began with {sessions[-1]['blas']}, whose last bits differ from "
            f"those of {now['blas']}: set OPENBLAS_CORETYPE as it was, or give another --out"
        )
    if not sessions or sessions[-1] != now:
        sessions.append(now)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps({"settings": settings, "sessions": sessions}, indent=1).encode())
    return list(sessions)


def run_options(folder: Path, options: Options, **more: Any) -> RunOptions:
    """Where and how to train: what is in the folder is resumed."""
    resume = (folder / SETTINGS).exists()
    return RunOptions(folder, resume=resume, progress=not options.quiet, **more)


def finished(history: History) -> None:
    """Raise KeyboardInterrupt if a training's history says that it was stopped."""
    if history.interrupted:
        raise KeyboardInterrupt


def speed(history: History) -> dict[str, float]:
    """Seconds of updates, and examples or tokens per second, as a result holds them."""
    seconds, count = history.seconds[-1], history.count[-1]
    return {"train_seconds": round(seconds, 1), "per_second": round(count / seconds, 1)}


class Notes:
    """What a run measures at its validations beyond loss and accuracy, in a file next to it.

    A run that was cut off repeats its last validations to the last bit, so that a note belongs to
    the validation with the same loss, however often it was written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder.with_name(folder.name + ".notes.jsonl")

    def add(self, loss: float, note: dict[str, Any]) -> None:
        """Note what was found at a validation with this loss."""
        with self.path.open("a", encoding="utf-8") as file:
            # The line feed comes first: what a killed process left of a line ends there.
            file.write("\n" + _text({"loss": loss, **note}))

    def curve(self, history: History) -> dict[str, list[Any]]:
        """The validations of a training, column by column, with what was noted of them."""
        notes: dict[float, dict[str, Any]] = {}
        for text in self.path.read_text("utf-8").splitlines() if self.path.exists() else []:
            with suppress(ValueError):
                note = json.loads(text)
                notes[note.pop("loss")] = note
        names = ("update", "loss", "dev_loss", "dev_accuracy", "seconds")
        columns = {name: list(getattr(history, name)) for name in names}
        noted = [notes.get(loss, {}) for loss in history.dev_loss]
        for name in dict.fromkeys(name for note in noted for name in note):
            columns[name] = [note.get(name) for note in noted]
        return columns


def run_all(
    out: Path,
    work: Work,
    runs: Sequence[Settings],
    options: Options = Options(),  # noqa: B008 - frozen
    *,
    grows: str | None = None,
    scheduler: str | None = None,
) -> list[Line]:
    """Finish all runs, here or on a cluster; returns the lines of those that are finished.

    A run that fails with a FloatingPointError (training diverged) or is `Unready` does not stop the
    others, nor does any failure on a cluster.
    """
    task = partial(run_one, out.resolve(), work, options, grows)
    outcomes = _on_cluster(scheduler, task, runs) if scheduler else _here(task, runs)
    lines = []
    for number, (settings, line, problem) in enumerate(outcomes, start=1):
        name = folder_of(out, _plain(settings), grows).name
        print(f"{number} of {len(runs)}: {name}: {problem or 'finished'}", flush=True)
        if line is not None:
            lines.append(line)
    order = [_plain(settings) for settings in runs]
    return sorted(lines, key=lambda line: order.index(line["settings"]))


Outcome = tuple[Settings, Line | None, str]


def _here(task: Callable[[Settings], Line | None], runs: Sequence[Settings]) -> Iterable[Outcome]:
    for settings in runs:
        try:
            line = task(settings)
            yield settings, line, "" if line else "another process is at it"
        except (FloatingPointError, Unready) as error:
            yield settings, None, f"{type(error).__name__}: {error}"


def _on_cluster(
    address: str, task: Callable[[Settings], Line | None], runs: Sequence[Settings]
) -> Iterable[Outcome]:
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise ImportError(
            f"--scheduler needs dask.distributed ({error}): pip install 'pyentmax[distributed]'"
        ) from error
    with Client(address, timeout=10) as client:
        futures = dict(zip(client.map(task, runs), runs, strict=True))
        for future in as_completed(futures):
            failure = future.exception()
            line = None if failure else future.result()
            problem = f"{type(failure).__name__}: {failure}" if failure else ""
            yield futures[future], line, problem or ("" if line else "another process is at it")


# --- a script -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Experiment:
    """A table or figure: what is run, and what is made of the lines.

    Attributes
    ----------
    name : str
        Such as ``"peters2019/table1"``. The lines that are kept in the repository are in
        ``experiments/peters2019/results/table1.jsonl``.
    doc : str
        The docstring of its script.
    runs : callable
        Given the parsed arguments, the stages of the experiment: lists of settings, of which each
        may need the results of those before.
    work : callable
        Finishes one run.
    report : callable
        Given lines, the table in Markdown.
    draw : callable, optional
        Given lines and a folder, draws pictures there and returns their files.
    add_options : callable, optional
        Adds the script's own options to a parser.
    grows : str, optional
        As for `folder_of`.
    """

    name: str
    doc: str
    runs: Callable[[argparse.Namespace], Sequence[Sequence[Settings]]]
    work: Work
    report: Callable[[list[Line]], str]
    draw: Callable[[list[Line], Path], list[Path]] | None = None
    add_options: Callable[[argparse.ArgumentParser], None] | None = None
    grows: str | None = None

    @property
    def recorded(self) -> Path:
        """The lines that are kept in the repository."""
        folder, _, name = self.name.partition("/")
        return HOME / folder / "results" / f"{name}.jsonl"

    def parser(self) -> argparse.ArgumentParser:
        """The options of all scripts, and this one's."""
        parser = argparse.ArgumentParser(
            prog=f"python -m experiments.{self.name.replace('/', '.')}",
            description=self.doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if self.add_options is not None:
            self.add_options(parser)
        add = parser.add_argument
        add("--out", type=Path, metavar="DIR", help=f"of all runs; runs/{self.name} if not given")
        add("--data", type=Path, metavar="DIR", help="folder of data; PYENTMAX_DATA if not given")
        add("--scheduler", metavar="ADDRESS", help="of a Dask cluster: its workers do the runs")
        add("--quiet", action="store_true", help="no progress")
        add(
            "--report",
            action="store_true",
            help="run nothing: the table of the lines in --out, or of those kept in the repository",
        )
        if self.draw is not None:
            add("--pictures", type=Path, metavar="DIR", help="draw the lines there")
        return parser

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run what is missing, then print the table; returns the exit code."""
        args = self.parser().parse_args(argv)
        try:
            code = self._main(args)
        except KeyboardInterrupt:
            print("interrupted; the same command goes on", file=sys.stderr)
            return 130
        except (ValueError, OSError, ImportError) as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            return 1
        return code

    def _main(self, args: argparse.Namespace) -> int:
        missing = 0
        if args.report:
            lines = read_lines(self.recorded if args.out is None else args.out / RESULTS)
        else:
            out = args.out or Path("runs", self.name)
            options = Options(args.data, args.quiet)
            lines = []
            for stage in self.runs(args):
                finished_lines = run_all(
                    out, self.work, stage, options, grows=self.grows, scheduler=args.scheduler
                )
                missing += len(stage) - len(finished_lines)
                lines += finished_lines
        if lines:
            print(f"\n{self.report(lines)}")
            if self.draw is not None and args.pictures is not None:
                args.pictures.mkdir(parents=True, exist_ok=True)
                print("\n".join(f"picture: {path}" for path in self.draw(lines, args.pictures)))
        if missing:
            print(f"\n{missing} runs are not finished; the same command goes on")
        return 1 if missing else 0
