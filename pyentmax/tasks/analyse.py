"""``analyse``: one command for the models of every task.

What a checkpoint holds decides what is measured. A task gives an `Analysis` for its kind of
checkpoint, and the command line gathers them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pyentmax.tasks.command_line import Commands, option
from pyentmax.tasks.model_files import best_of
from pyentmax.training import CheckpointError, checkpoint_kind


class Analysis(Protocol):
    """How the models of a task are analysed.

    Attributes
    ----------
    description : str
        What is measured, for the help text.
    """

    description: str

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that only this task has, in a group of their own."""

    def run(self, args: argparse.Namespace) -> int:
        """Measure, print and draw; returns the exit code.

        ``args`` has the task's options, and ``models``, ``examples`` (paths), ``first``, ``out``
        and ``quiet``.
        """


def add_analyse(commands: Commands, analyses: Mapping[str, Analysis]) -> None:
    """Add the `analyse` command for these kinds of checkpoints."""
    parser = commands.add(
        "analyse",
        run=lambda args: _analyse(args, analyses),
        help="what trained models do: how sparse they are, what their heads look at",
        description=" ".join(analysis.description for analysis in analyses.values()),
    )
    add = parser.add_argument
    add(
        "models",
        nargs="+",
        type=Path,
        metavar="MODEL",
        help="best.npz, or the folder of a run; behind the last one DATA, unless --examples has it",
    )
    add("--examples", nargs="+", type=Path, metavar="DATA", help="what to measure on, as for train")
    add(
        "--first",
        "--limit",
        type=int,
        metavar="N",
        help="so many examples, with --multilingual of each language; all if not given",
    )
    add("--out", type=Path, metavar="DIR", help="write numbers and pictures there")
    add("--quiet", action="store_true", help="no progress")
    for analysis in analyses.values():
        analysis.add_options(parser)


def _analyse(args: argparse.Namespace, analyses: Mapping[str, Analysis]) -> int:
    behind = args.examples is None
    if behind:
        *args.models, data = args.models
        if not args.models:
            raise ValueError(f"expected MODEL and DATA, got {data} alone")
        args.examples = [data]
    if args.first is not None and args.first < 1:
        raise ValueError(f"first: expected at least 1, got {args.first}")
    try:
        kind = _kind(args.models, analyses)
    except CheckpointError as error:
        if not (behind and args.models[1:]):
            raise
        raise CheckpointError(f"{error}; DATA of several files stand behind --examples") from error
    for other in analyses.keys() - {kind}:
        _refuse_options(args, analyses[other], f"has no effect on {kind!r}, only on {other!r}")
    return analyses[kind].run(args)


def _refuse_options(args: argparse.Namespace, analysis: Analysis, why: str) -> None:
    """Raise a ValueError if an option of this analysis was given."""
    parser = argparse.ArgumentParser(add_help=False)
    analysis.add_options(parser)
    for name, default in vars(parser.parse_args([])).items():
        if getattr(args, name) != default:
            raise ValueError(f"{option(name)}: {why}")


def _kind(models: Sequence[Path], known: Mapping[str, Analysis]) -> str:
    """The kind of all these models, which has to be one."""
    kinds = {path: checkpoint_kind(best_of(path)) for path in models}
    for path, kind in kinds.items():
        if kind not in known:
            raise CheckpointError(
                f"{path}: expected a checkpoint of {' or '.join(map(repr, known))}, the file holds "
                f"{kind!r}"
            )
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{path} holds {kind!r}" for path, kind in kinds.items())
        raise CheckpointError(f"expected models of one kind: {told}")
    return next(iter(kinds.values()))
