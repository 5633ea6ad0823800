"""``python -m pyentmax``: the commands of all tasks.

Every command begins with a line that says what computes the mappings. One that trains or decodes
says next how many threads BLAS runs. Where standard output is a text to go on with, these lines go
to standard error. It ends with exit code 0 if it did what it was asked for, and
otherwise prints one line that says what was wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

from pyentmax import __version__
from pyentmax.backends.choice import describe_backend
from pyentmax.calls.devices import device_module
from pyentmax.system.blas import describe_blas, limit_blas
from pyentmax.system.memory import keep_freed_memory
from pyentmax.system.notes import note
from pyentmax.tasks.analyse import add_analyse
from pyentmax.tasks.captions.commands import add_commands as add_captions
from pyentmax.tasks.command_line import Commands, Parser
from pyentmax.tasks.inflection.commands import ANALYSES as OF_INFLECTION
from pyentmax.tasks.inflection.commands import add_commands as add_inflection
from pyentmax.tasks.language_model.commands import add_commands as add_language_model
from pyentmax.tasks.output import Terminated
from pyentmax.tasks.translation.commands import ANALYSES as OF_TRANSLATION
from pyentmax.tasks.translation.commands import add_commands as add_translation

LONGEST = 2000  # characters of a message
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
TASKS = [add_inflection, add_translation, add_captions, add_language_model]
ANALYSES = {**OF_INFLECTION, **OF_TRANSLATION}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    args = _parser().parse_args(argv)
    keep_freed_memory()  # decoding, too, allocates the same arrays at every step
    try:
        _begin(args, f"pyentmax runs {describe_backend()}")
        if getattr(args, "scheduler", None) is None:  # whose workers have devices of their own
            device_module(getattr(args, "device", "cpu"))  # raises before there is anything on disk
        code = _run(args)
        sys.stdout.flush()  # at exit, Python would tell what goes wrong in words of its own
        return code
    except BrokenPipeError:  # whoever read our output has read enough
        code = 141
    except (ValueError, OSError, FloatingPointError, ImportError, MemoryError) as error:
        _say(f"pyentmax {args.command}: {_message(error)}")
        code = 1
    except KeyboardInterrupt as stop:
        what = f"; {stop}" if str(stop) else ""
        _say(f"pyentmax {args.command}: stopped{what}")
        code = 143 if isinstance(stop, Terminated) else 130
    try:
        sys.stdout.flush()
    except (OSError, KeyboardInterrupt):  # it cannot be written, or nobody reads it
        # At exit, Python would try once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _say(text: str) -> None:
    """Say on standard error how it ended; the exit code says it too, if nobody can be told."""
    with suppress(OSError):
        note(text)


def _begin(args: argparse.Namespace, text: str) -> None:
    """Print one of the lines that a command begins with."""
    if args.writes_text:
        note(text)
    else:
        print(text, flush=True)


def _run(args: argparse.Namespace) -> int:
    if "blas_threads" not in args:
        return args.run(args)
    with limit_blas(args.blas_threads):
        _begin(args, describe_blas("--blas-threads N"))
        return args.run(args)


def _message(error: Exception) -> str:
    """One line, and not a page of it: what is quoted may be a whole file, or any file's name."""
    text = CONTROL.sub(lambda found: ascii(found[0])[1:-1], _text(error))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"


def _text(error: Exception) -> str:
    if isinstance(error, MemoryError):
        what = f" ({error})" if str(error) else ""
        return f"not enough memory: expected smaller sizes or files{what}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m pyentmax",
        description="Sparse attention and sparse sequence-to-sequence models.",
    )
    parser.add_argument("--version", action="version", version=f"pyentmax {__version__}")
    commands = Commands(parser)
    for add_commands in TASKS:
        add_commands(commands)
    add_analyse(commands, ANALYSES)
    return parser
