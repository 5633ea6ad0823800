"""What the tasks' commands share: how they are added to the command line, and common options.

A task's ``add_commands(commands)`` adds its commands by their full names:

    parser = commands.add("train seq2seq", run=train, help="a recurrent model of inflection")
    parser.add_argument(…)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from pyentmax.calls.devices import DEVICES
from pyentmax.training import BEST, LAST, History, RunOptions


class Formatter(argparse.HelpFormatter):
    """Help that shows the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, [], argparse.SUPPRESS)
        return action.help if silent else f"{action.help} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are one line and exit code 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=Formatter, **options)

    def error(self, message: str) -> NoReturn:
        """Print what was wrong with the arguments, and exit."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


# First words that several commands share → their help, and what the second word names: the
# attribute of the parsed arguments.
GROUPS = {
    "train": ("train a model", "model"),
    "data": ("fetch a data set", "dataset"),
}


class Commands:
    """The commands of ``pyentmax``, to which each task adds its own.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser of the whole command line.

    Examples
    --------
    >>> parser = Parser()
    >>> commands = Commands(parser)
    >>> _ = commands.add("train parrot", run=lambda args: 0, help="it repeats")
    >>> parser.parse_args(["train", "parrot"]).model
    'parrot'
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._first = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        self._second: dict[str, Any] = {}

    def add(
        self,
        name: str,
        *,
        run: Callable[[argparse.Namespace], int],
        help: str,
        description: str | None = None,
        computes: bool = True,
    ) -> argparse.ArgumentParser:
        """Add a command; returns its parser, to which the task adds the options.

        Parameters
        ----------
        name : str
            One word, or two words, the first from `GROUPS`.
        run : callable
            What the command does: takes the parsed arguments and returns the exit code.
        help, description : str
            What it is, in the list of commands and in its own help text.
        computes : bool, default True
            Whether it trains or decodes. Such a command has the option ``--blas-threads`` and runs
            within that limit.
        """
        *group, word = name.split()
        subparsers = self._group(*group) if group else self._first
        parser: argparse.ArgumentParser = subparsers.add_parser(
            word, help=help, description=description or f"{help[0].upper()}{help[1:]}."
        )
        parser.set_defaults(run=run)
        if computes:
            parser.add_argument_group("speed").add_argument(
                "--blas-threads",
                type=int,
                default=1,
                metavar="N",
                help="of one matrix product; more than one pays for large models only",
            )
        return parser

    def _group(self, name: str) -> Any:
        if name not in self._second:
            help, what = GROUPS[name]
            parser = self._first.add_parser(name, help=help)
            self._second[name] = parser.add_subparsers(
                dest=what, required=True, metavar=what.upper()
            )
        return self._second[name]


# --- options that several commands have -----------------------------------------------------------
def add_run(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options of every training, with the default folder of its run."""
    add = parser.add_argument
    add("--out", type=Path, default=out, metavar="DIR", help="folder of the run")
    add("--resume", action="store_true", help=f"continue from DIR/{LAST}")
    add_device(parser)
    add_quiet(parser)


def run_options(args: argparse.Namespace) -> RunOptions:
    """The options of a training; a ValueError says if its folder is not free."""
    options = RunOptions(args.out, resume=args.resume, progress=not args.quiet)
    options.check_directory()
    return options


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add ``--device``."""
    parser.add_argument(
        "--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy"
    )


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", action="store_true", help="no progress")


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument ``models``: one checkpoint, or several for an ensemble."""
    parser.add_argument(
        "models",
        nargs="+",
        type=Path,
        metavar="MODEL",
        help=f"{BEST}, or the folder of a run; the probabilities of several are averaged",
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add the options of a search for all results; `search_options` reads them."""
    add = parser.add_argument
    add(
        "--search",
        choices=("beam", "exact"),
        default="beam",
        help="exact: expand the best prefix first, until the result is proved",
    )
    add("--beam", type=int, metavar="N", help="open prefixes kept at each step, 5 if not given")
    add("--best", type=int, metavar="N", help="stop at the N best; all if not given")
    add("--budget", type=int, metavar="N", help="exact: most prefixes to expand, 1000 if not given")


def search_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of a search, as `SequenceDecoder.decode` takes them.

    A ValueError names one that the chosen search does not have.
    """
    if args.search == "exact":
        refuse_together(args, "search", "beam")
    elif args.budget is not None:
        raise ValueError("--budget: expected --search exact with it")
    chosen = {"search": args.search, "beam": args.beam, "n_best": args.best, "budget": args.budget}
    return {name: value for name, value in chosen.items() if value is not None}


def fields_from(args: argparse.Namespace, settings: Any) -> dict[str, Any]:
    """The values of the options that are named like fields of a dataclass."""
    return {
        field.name: getattr(args, field.name) for field in fields(settings) if field.name in args
    }


def refuse_together(args: argparse.Namespace, chosen: str, *others: str) -> None:
    """Raise a ValueError for an option that has no effect with the chosen one.

    All are named as `argparse` names them, and were not given if they are None or False.
    """
    for other in others:
        if getattr(args, other) not in (None, False):
            value = getattr(args, chosen)
            given = option(chosen) + ("" if value is True else f" {value}")
            raise ValueError(f"{option(other)}: expected without {given}, it would have no effect")


def option(name: str) -> str:
    """How the option is written whose attribute has this name.

    Examples
    --------
    >>> option("top_k")
    '--top-k'
    """
    return "--" + name.replace("_", "-")


def report_training(args: argparse.Namespace, history: History, result: str) -> int:
    """Print what came of a training; returns the exit code."""
    if history.interrupted:
        print(f"interrupted; continue with the same command and --resume ({args.out / LAST})")
        return 130
    print(
        f"{history.update[-1]} updates in {history.seconds[-1]:.0f} s; {result}; "
        f"model in {args.out / BEST}"
    )
    return 0
