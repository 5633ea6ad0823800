"""``analyse``: one command for the models of every task.

The kind of a checkpoint decides what is measured. A task gives an `Analysis` for its kind, and the
command line gathers them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from pyentmax.seq2seq.plotting._figures import require_matplotlib
from pyentmax.seq2seq.tasks.command_line import Commands, option, user_path
from pyentmax.seq2seq.tasks.model_files import best_of
from pyentmax.seq2seq.training import CheckpointError, checkpoint_kind


class Analysis:
    """How the models of a task are analysed.

    Attributes
    ----------
    kind : str
        What their checkpoints are called.
    description : str
        What is measured, for the help text.
    """

    kind: ClassVar[str]
    description: ClassVar[str]

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that only this task has, in a group of their own."""
        raise NotImplementedError

    def measure(self, args: argparse.Namespace) -> tuple[str, Callable[[Path], list[Path]]]:
        """What was found, as text, and a function that writes numbers and pictures to a folder.

        ``args`` has the task's options, and ``models``, ``examples`` (paths), ``first`` and
        ``quiet``.
        """
        raise NotImplementedError

    def check_unused(self, args: argparse.Namespace, kind: str) -> None:
        """Raise a ValueError if an option of this analysis is given for models of another kind."""
        parser = argparse.ArgumentParser(add_help=False)
        self.add_options(parser)
        for name, default in vars(parser.parse_args([])).items():
            if getattr(args, name) != default:
                raise ValueError(
                    f"{option(name)}: has no effect on {kind!r}, only on {self.kind!r}"
                )


def add_analyse(commands: Commands, analyses: Sequence[Analysis]) -> None:
    """Add the `analyse` command for these kinds of checkpoints."""
    parser = commands.add(
        "analyse",
        run=lambda args: _analyse(args, {analysis.kind: analysis for analysis in analyses}),
        help="what trained models do: how sparse they are, what their heads look at",
        description=" ".join(analysis.description for analysis in analyses),
    )
    parser.add_models("after the last one DATA, unless --examples has it")
    add = parser.add_argument
    add(
        "--examples",
        nargs="+",
        type=user_path,
        metavar="DATA",
        help="what to measure on, as for train",
    )
    add(
        "--first",
        "--limit",
        type=int,
        metavar="N",
        help="number of examples, with --multilingual of each language; all if not given",
    )
    add(
        "--out",
        type=user_path,
        metavar="DIR",
        help="write numbers there, and of translators pictures",
    )
    parser.add_quiet()
    for analysis in analyses:
        analysis.add_options(parser)


def _analyse(args: argparse.Namespace, analyses: dict[str, Analysis]) -> None:
    if args.examples is None:
        *args.models, data = args.models
        if not args.models:
            raise ValueError(f"expected MODEL and DATA, got {data} alone")
        args.examples = [data]
    if args.first is not None and args.first < 1:
        raise ValueError(f"--first: expected at least 1, got {args.first}")
    kinds = {path: checkpoint_kind(best_of(path)) for path in args.models}
    for path, kind in kinds.items():
        if kind not in analyses or kind != kinds[args.models[0]]:
            raise CheckpointError(
                f"{path}: expected models of one kind, {' or '.join(map(repr, analyses))}; the "
                f"file holds {kind!r} (DATA of several files stand after --examples)"
            )
    kind = kinds[args.models[0]]
    for other in analyses.keys() - {kind}:
        analyses[other].check_unused(args, kind)
    if args.out is not None:
        require_matplotlib()  # an error now, not after all the work
    text, write = analyses[kind].measure(args)
    print(text)
    if args.out is not None:
        print(*(f"written: {path}" for path in write(args.out)), sep="\n")
