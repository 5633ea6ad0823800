"""What the tasks' commands share: how they are added to the command line, and common options.

A task's ``add_commands(commands)`` adds its commands by their full names:

    parser = commands.add("train seq2seq", run=train, help="a recurrent model of inflection")
    parser.add_argument(…)
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from pyentmax.engine.calls.devices import DEVICES
from pyentmax.seq2seq.training import BEST, LAST, History, RunOptions


class Formatter(argparse.HelpFormatter):
    """Help that shows the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, [], argparse.SUPPRESS)
        return action.help if silent else f"{action.help} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are one line and exit code 2.

    Where it expects a command and gets no argument it prints the help. Its methods add options that
    several commands have.
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

    def add_lines(self, formats: Sequence[str]) -> None:
        """Add the options of a command on lines, which `lines.Results` and `lines.Notes` read."""
        add = self.add_argument
        help = "every string found, its probability, and whether that is all: rows, or objects"
        add("--format", choices=formats, help=help)
        add("--strict", action="store_true", help="exit with status 1 if a line was left out")

    def add_models(self, more: str) -> None:
        """Add the models that a command uses together, at least one."""
        help = f"best.npz, or the folder of a run; {more}"
        self.add_argument("models", nargs="+", type=user_path, metavar="MODEL", help=help)

    def add_data(self, train: str, dev: str, *, required: bool = False) -> None:
        """Add the files to learn from and those to validate on, of every training that reads any.

        ``train`` and ``dev`` say which; ``required`` that the command cannot do without.
        """
        for name, help in (("--train", train), ("--dev", dev)):
            self.add_argument(
                name, nargs="+", type=user_path, required=required, metavar="FILE", help=help
            )

    def add_run(self, out: str) -> None:
        """Add the options of every training, with the default folder of its run."""
        add = self.add_argument
        add("--out", type=user_path, default=out, metavar="DIR", help="folder of the run")
        add("--resume", action="store_true", help=f"continue from DIR/{LAST}")
        self.add_device()
        self.add_quiet()

    def add_demonstration(self, out: str) -> None:
        """Add the options of a demonstration, with its default folder."""
        self.add_seed()
        help = "folder for model and pictures"
        self.add_argument("--out", type=user_path, default=out, help=help)
        self.add_device()

    def add_seed(self) -> None:
        """Add ``--seed``."""
        self.add_argument("--seed", type=int, default=0, help="fixes the result")

    def add_device(self) -> None:
        """Add ``--device``."""
        help = "where to compute; cuda needs CuPy"
        self.add_argument("--device", choices=DEVICES, default="cpu", help=help)

    def add_quiet(self) -> None:
        """Add ``--quiet``."""
        self.add_argument("--quiet", action="store_true", help="no progress")

    def add_pictures(self, help: str) -> None:
        """Add ``--pictures``."""
        self.add_argument("--pictures", type=user_path, metavar="DIR", help=help)

    def add_keep(self) -> None:
        """Add ``--keep``."""
        help = "truncate the output's probabilities: a keep-set, such as min_p=0.05 or top_k=20"
        self.add_argument("--keep", metavar="SET=NUMBER", help=help)

    def add_search(self) -> None:
        """Add the options of a search for all results; `search_options` reads them."""
        add = self.add_argument
        add(
            "--search",
            choices=("beam", "exact"),
            help="beam if not given; exact: expand the best prefix first, until the result is "
            "proved",
        )
        add("--beam", type=int, metavar="N", help="open prefixes kept at each step, 5 if not given")
        help = "stop at the N best; all if not given"
        add("--n-best", "--best", dest="best", type=int, metavar="N", help=help)
        add(
            "--budget",
            type=int,
            metavar="N",
            help="exact: most prefixes to expand, 1000 if not given",
        )
        add("--min-length", type=int, metavar="N", help="fewest tokens of a result")
        help = "no N tokens in a row occur twice in a result"
        add("--no-repeat-ngram", type=int, metavar="N", help=help)
        self.add_keep()


# First words that several commands share → their help, and what the second word names: the
# attribute of the parsed arguments.
GROUPS = {"train": ("train a model", "model"), "data": ("fetch a data set", "dataset")}


class Commands:
    """The commands of ``pyentmax``, to which each task adds its own.

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
        """Add a command; returns its parser, to which the task adds the options.

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


def user_path(text: str) -> Path:
    """A path as it was typed: a shell does not replace the ~ of ``--out=~/run``."""
    return Path(os.path.expanduser(text))


# --- options as they were given -------------------------------------------------------------------
def run_options(args: argparse.Namespace) -> RunOptions:
    """The options of a training; a ValueError says if its folder is not free."""
    options = RunOptions(args.out, resume=args.resume, progress=not args.quiet)
    options.check_directory()
    return options


def search_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of a search, as `SequenceModel.decode` takes them."""
    exact = args.search == "exact"
    expect(args, "beam", not exact, "without --search exact, where it has no effect")
    expect(args, "budget", exact, "--search exact with it")
    chosen = {"search": args.search, "beam": args.beam, "n_best": args.best, "budget": args.budget}
    chosen |= {name: getattr(args, name) for name in ("keep", "min_length", "no_repeat_ngram")}
    return {name: value for name, value in chosen.items() if value is not None}


def expect(args: argparse.Namespace, names: str, fits: bool, expected: str) -> None:
    """Raise a ValueError if one of these options is given where it does not fit."""
    for name in names.split():
        if not fits and getattr(args, name) not in (None, False):
            raise ValueError(f"{option(name)}: expected {expected}")


def fields_from(args: argparse.Namespace, settings: Any) -> dict[str, Any]:
    """The values of the options that are named like fields of a dataclass."""
    return {
        field.name: getattr(args, field.name) for field in fields(settings) if field.name in args
    }


def option(name: str) -> str:
    """How the option is written whose attribute has this name.

    Examples
    --------
    >>> option("top_k")
    '--top-k'
    """
    return "--" + name.replace("_", "-")


def suggestion(word: str, known: Iterable[str]) -> str:
    """What may have been meant by a word that is not known, to end a message; or nothing.

    Examples
    --------
    >>> suggestion("trian", ["train", "translate"])
    ' (did you mean train?)'
    """
    return "".join(f" (did you mean {close}?)" for close in get_close_matches(word, known, n=1))


# --- what is printed ------------------------------------------------------------------------------
def check_finished(args: argparse.Namespace, history: History) -> None:
    """After a training that was stopped, say how to continue, and raise KeyboardInterrupt."""
    if history.interrupted:
        print(f"interrupted; continue with the same command and --resume ({args.out / LAST})")
        raise KeyboardInterrupt


def report_training(args: argparse.Namespace, history: History, result: str) -> None:
    """Print what came of a finished training."""
    seconds = f"{history.seconds[-1]:.0f} s"
    print(f"{history.update[-1]} updates in {seconds}; {result}; model in {args.out / BEST}")


def printable(text: str, keep: str = "\n\t") -> str:
    r"""A text of a model or a file for a terminal: control characters are escaped.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """

    def escaped(match: re.Match[str]) -> str:
        return match[0] if match[0] in keep else ascii(match[0])[1:-1]

    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", escaped, text)
