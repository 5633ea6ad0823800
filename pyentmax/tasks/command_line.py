"""What the tasks' commands share: how they are added to the command line, and common options.

A task's ``add_commands(commands)`` adds its commands by their full names:

    parser = commands.add("train seq2seq", run=train, help="a recurrent model of inflection")
    parser.add_argument(…)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Formatter(argparse.HelpFormatter):
    """Help that shows the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        quiet = action.default in (None, False, [], argparse.SUPPRESS)
        return action.help if quiet else f"{action.help} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """A parser that drops one ``--``, the first that stands alone: all others are values.

    The one of Python 3.12 and earlier drops one of each argument's values, and ``--out=--`` was an
    empty list.

    Examples
    --------
    >>> parser = Parser()
    >>> _ = parser.add_argument("--out")
    >>> _ = parser.add_argument("words", nargs="*")
    >>> parser.parse_args(["--out=--", "--", "a", "--"])
    Namespace(out='--', words=['a', '--'])
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of `argparse`, with what is a value in another form until it is one."""
        given = list(sys.argv[1:] if args is None else args)
        after = given.index("--") + 1 if "--" in given else len(given)
        given[after:] = [_DASHES if value == "--" else value for value in given[after:]]
        found, left = super().parse_known_args(given, namespace)
        return found, ["--" if value == _DASHES else value for value in left]

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and arg_strings == ["--"]:
            arg_strings = [_DASHES]
        return super()._get_values(action, arg_strings)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        return super()._get_value(action, "--" if arg_string == _DASHES else arg_string)


_DASHES = "--\0"  # that no argument of a process can be


# First words that several commands share → their help, and what the second word names: the
# attribute of the parsed arguments.
GROUPS = {
    "train": ("train a model", "model"),
    "data": ("fetch a data set", "dataset"),
    "reproduce": ("an experiment of the papers", "experiment"),
}


class Commands:
    """The commands of ``python -m pyentmax``, to which each task adds its own.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser of the whole command line.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
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
        writes_text: bool = False,
    ) -> argparse.ArgumentParser:
        """Add a command; returns its parser, to which the task adds the options.

        Parameters
        ----------
        name : str
            One word, or two of which the first is one of `GROUPS`.
        run : callable
            What the command does: takes the parsed arguments and returns the exit code.
        help, description : str
            What it is, in the list of commands and in its own help text.
        computes : bool, default True
            Whether it trains or decodes. Such a command has the option ``--blas-threads`` and runs
            within that limit.
        writes_text : bool, default False
            Whether standard output is a text to go on with, translations say. What computes it is
            then said on standard error.
        """
        *group, word = name.split()
        subparsers = self._group(*group) if group else self._first
        parser = subparsers.add_parser(
            word, help=help, description=description, formatter_class=Formatter
        )
        parser.set_defaults(run=run, writes_text=writes_text)
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
            help, of = GROUPS[name]
            parser = self._first.add_parser(name, help=help)
            self._second[name] = parser.add_subparsers(dest=of, required=True, metavar=of.upper())
        return self._second[name]


DEFAULT_BUDGET = 1000
"""The most prefixes that exact search expands unless ``--budget`` says otherwise."""


DEFAULT_BEAM = 5
"""The open prefixes that beam search keeps at each step unless ``--beam`` says otherwise."""


def refuse_idle_of_search(args: argparse.Namespace) -> None:
    """Raise a ValueError for a ``--budget`` or ``--beam`` that is of the other kind of search."""
    if args.search == "exact":
        refuse_together(args, "search", "beam")
    elif args.budget is not None:
        raise ValueError("--budget: expected --search exact with it")


def refuse_together(args: argparse.Namespace, chosen: str, *others: str) -> None:
    """Raise a ValueError for an option that has no effect beside the chosen one.

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
    >>> option("pause_after")
    '--pause-after'
    """
    return "--" + name.replace("_", "-")


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument ``models``: one checkpoint, or several for an ensemble."""
    parser.add_argument(
        "models",
        nargs="+",
        type=Path,
        metavar="MODEL",
        help="best.npz, or the folder of a run; the probabilities of several are averaged",
    )
