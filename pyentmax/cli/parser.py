"""The parser of the command line, and how commands are added to it.

parser = commands.add("train seq2seq", run=train, help="a recurrent model of inflection")
parser.add_argument(…)
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, NoReturn


class Formatter(argparse.HelpFormatter):
    """Help that shows the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, [], argparse.SUPPRESS)
        return action.help if silent else f"{action.help} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are one line and exit code 2.

    Where it expects a command and gets no argument it prints the help.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=Formatter, **options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """Parse, but for no arguments, and for options that do not exist."""
        words = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:
            # argparse would first complain that the option which is misspelt is missing.
            for word in takewhile(lambda word: word != "--", words):
                name = word.partition("=")[0]
                if re.fullmatch(r"--\S+", word) and name not in self._option_string_actions:
                    message = f"unrecognized arguments: {word}"
                    self.error(message + suggestion(name, self._option_string_actions))
        elif not words:
            self.print_help()
            self.exit()
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print what was wrong with the arguments, and exit."""
        if wrong := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += suggestion(wrong[1], re.findall(r"[\w-]+", wrong[2]))
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


# First words that several commands share → their help, and what the second word names: the
# attribute of the parsed arguments.
GROUPS = {"train": ("train a model", "model")}


class Commands:
    """The commands of ``pyentmax``.

    Parameters
    ----------
    parser : Parser
        The parser of the whole command line.

    Examples
    --------
    >>> parser = Parser()
    >>> commands = Commands(parser)
    >>> _ = commands.add("train parrot", run=print, help="it repeats")
    >>> parser.parse_args(["train", "parrot"]).model
    'parrot'
    """

    def __init__(self, parser: Parser) -> None:
        self._first = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        self._second: dict[str, Any] = {}

    def add(
        self,
        name: str,
        *,
        run: Callable[[argparse.Namespace], None],
        help: str,
        description: str | None = None,
        computes: bool = True,
    ) -> Parser:
        """Add a command; returns its parser, to which the caller adds the options.

        Parameters
        ----------
        name : str
            One word, or two words, the first from `GROUPS`.
        run : callable
            What the command does, given the parsed arguments.
        help, description : str
            What it is, in the list of commands and in its own help text.
        computes : bool, default True
            Whether it trains or decodes. Such a command has the option ``--blas-threads`` and runs
            within that limit.
        """
        *group, word = name.split()
        subparsers = self._group(*group) if group else self._first
        parser: Parser = subparsers.add_parser(
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


def suggestion(word: str, known: Iterable[str]) -> str:
    """The known word that an unknown one resembles, to end a message; empty if there is none.

    Examples
    --------
    >>> suggestion("trian", ["train", "translate"])
    ' (did you mean train?)'
    """
    return "".join(f" (did you mean {close}?)" for close in get_close_matches(word, known, n=1))
