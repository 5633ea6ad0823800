"""``check``: anybody's mapping, loss or attention, by its name in a package or a file."""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from pyentmax import MAPPINGS, check_attention, check_loss, check_mapping
from pyentmax.checking._libraries import SPACINGS
from pyentmax.checking._truths import TRUTHS
from pyentmax.cli.parser import Commands

PARAMETERS = sorted({name for record in MAPPINGS.values() for name in record.parameters})


def add_check(commands: Commands) -> None:
    """Add the `check` command."""
    parser = commands.add(
        "check",
        run=_check,
        help="whether a mapping, loss or attention is right, of any package or file",
        description="Check an implementation of a mapping, a loss or attention: a line for each "
        "property, with the smallest input that fails and the worst. The exit code is 1 if the "
        "verdict is wrong or imprecise, with --strict 3 if it is edges, else 0.",
        computes=False,
    )
    add = parser.add_argument
    help = "such as keras.ops:sparsemax, or path/kern.py:softmax"
    add("function", metavar="MODULE:FUNCTION", help=help)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--attention", action="store_true", help="it is fn(query, key, value, …)")
    kind.add_argument("--loss", action="store_true", help="it is fn(scores, targets)")
    add(
        "--as",
        dest="mapping",
        choices=[*MAPPINGS, *TRUTHS],
        help="the mapping that it claims to be, or to use; of attention softmax if not given",
    )
    add("--strict", action="store_true", help="count failures at edges: −∞, NaN, huge scores")
    add("--json", action="store_true", help="print the report as JSON")
    add(
        "--dtypes",
        nargs="+",
        choices=SPACINGS,
        metavar="TYPE",
        help="all that it takes if not given",
    )
    help = "more sizes: 130x33, rows by scores, or 17x65x80, queries by keys by width"
    add("--shapes", nargs="+", type=shape, default=[], metavar="SIZE", help=help)
    add("--seed", type=int, default=0, help="draws the random arrays")
    for name in PARAMETERS:
        takers = ", ".join(key for key, record in MAPPINGS.items() if name in record.parameters)
        add(f"--{name}", type=number, metavar="X", help=f"of {takers}")


def _check(args: argparse.Namespace) -> None:
    if args.mapping is None and not args.attention:
        raise ValueError("--as is needed: the mapping that the function claims to be")
    for sizes in args.shapes:
        if len(sizes) != (3 if args.attention else 2):
            words = "QUERIESxKEYSxWIDTH" if args.attention else "ROWSxSCORES"
            raise ValueError(f"--shapes must be {words}, got {'x'.join(map(str, sizes))}")
    fn = function(args.function)
    parameters = {name: getattr(args, name) for name in PARAMETERS}
    chosen = {name: value for name, value in parameters.items() if value is not None}
    check = check_attention if args.attention else check_loss if args.loss else check_mapping
    try:
        report = check(
            fn,
            args.mapping or "softmax",
            dtypes=args.dtypes,
            shapes=args.shapes,
            seed=args.seed,
            strict=args.strict,
            **chosen,
        )
    except TypeError as error:  # no function, or parameters that do not belong to the mapping
        raise ValueError(f"{args.function}: {error}") from error
    if args.json:
        print(json.dumps(report.to_dict(), ensure_ascii=False, indent=1))
    else:
        print(report)
    if not report.passed:
        sys.exit(3 if report.verdict == "edges" else 1)


def function(words: str) -> Any:
    """The object that MODULE:NAME or FILE.py:NAME names."""
    module, colon, name = words.rpartition(":")
    if not (module and colon and name):
        raise ValueError(f"expected MODULE:FUNCTION, got {words}")
    if module.endswith(".py") and not Path(module).is_file():
        raise ValueError(f"there is no file {module}")
    sys.path.insert(0, os.getcwd())
    try:
        found = _from_file(Path(module)) if module.endswith(".py") else pkgutil.resolve_name(module)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if missing.partition(".")[0] == module.partition(".")[0]:
            raise
        backend = "; or set KERAS_BACKEND to torch, jax or numpy" if "keras" in module else ""
        raise ValueError(
            f"{module} needs {missing}, which is not installed: python -m pip install "
            f"{missing.partition('.')[0]}{backend}"
        ) from error
    except (Exception, SystemExit) as error:  # of the caller's file: it may exit, or need a GPU
        what = " ".join([f"{type(error).__name__}:", *str(error).split()])
        raise ValueError(f"{module} cannot be loaded: {what:.300}") from error
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise ValueError(f"{words}: {error}") from error
    return found


def _from_file(path: Path) -> Any:
    sys.path.insert(0, str(path.resolve().parent))  # whose neighbours it may import
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def shape(text: str) -> tuple[int, ...]:
    """Numbers with an x between them; its name is in argparse's message."""
    return tuple(int(part) for part in text.split("x"))


def number(text: str) -> float:
    """A whole number or a float; its name is in argparse's message."""
    return int(text) if text.isdecimal() else float(text)
