"""``check``: an implementation of a mapping, by its name in any package."""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys

from pyentmax import MAPPINGS, check_mapping
from pyentmax.checking._subjects import SPACINGS
from pyentmax.checking._truths import TRUTHS
from pyentmax.seq2seq.tasks.command_line import Commands

PARAMETERS = sorted({name for record in MAPPINGS.values() for name in record.parameters})


def add_check(commands: Commands) -> None:
    """Add the `check` command."""
    parser = commands.add(
        "check",
        run=_check,
        help="whether an implementation of a mapping is right, of any package",
        description="Check an implementation of a mapping: a line for each property, with the "
        "smallest input that fails and the worst. The exit code is 1 if the verdict is wrong or "
        "imprecise, with --strict 3 if it is edges, else 0.",
        computes=False,
    )
    add = parser.add_argument
    help = "such as keras.ops:sparsemax, or mine:softmax of ./mine.py"
    add("function", metavar="MODULE:FUNCTION", help=help)
    add(
        "--as",
        dest="mapping",
        required=True,
        choices=[*MAPPINGS, *TRUTHS],
        help="what it claims to be",
    )
    add("--strict", action="store_true", help="count failures at edges: −∞, NaN, huge scores")
    add(
        "--dtypes",
        nargs="+",
        choices=SPACINGS,
        metavar="TYPE",
        help="all that it takes if not given",
    )
    for name in PARAMETERS:
        takers = ", ".join(key for key, record in MAPPINGS.items() if name in record.parameters)
        add(f"--{name}", type=number, metavar="X", help=f"of {takers}")


def _check(args: argparse.Namespace) -> None:
    module, colon, name = args.function.partition(":")
    if not (module and colon and name):
        raise ValueError(f"expected MODULE:FUNCTION, got {args.function}")
    sys.path.insert(0, os.getcwd())
    try:
        fn = pkgutil.resolve_name(args.function)
    except AttributeError as error:
        raise ValueError(f"{args.function}: {error}") from error
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if missing.partition(".")[0] == module.partition(".")[0]:
            raise
        backend = "; or set KERAS_BACKEND to torch, jax or numpy" if "keras" in module else ""
        raise ValueError(
            f"{module} needs {missing}, which is not installed: python -m pip install "
            f"{missing.partition('.')[0]}{backend}"
        ) from error
    parameters = {name: getattr(args, name) for name in PARAMETERS}
    chosen = {name: value for name, value in parameters.items() if value is not None}
    try:
        report = check_mapping(fn, args.mapping, dtypes=args.dtypes, strict=args.strict, **chosen)
    except TypeError as error:  # no function, or parameters that do not belong to the mapping
        raise ValueError(f"{args.function}: {error}") from error
    print(report)
    if not report.passed:
        sys.exit(3 if report.verdict == "edges" else 1)


def number(text: str) -> float:
    """A whole number or a float; its name is in argparse's message."""
    return int(text) if text.isdecimal() else float(text)
