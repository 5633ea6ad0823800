"""``pyentmax``, or ``python -m pyentmax``: all commands.

Every command says first, on standard error, what computes the mappings; one that trains or decodes
says next how many threads BLAS runs. Results go to standard output. The exit code is 0 if the
command did what it was asked for, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, 1 where
``check`` finds a fault, and otherwise 2, with one line that says what was wrong.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pyentmax import __version__
from pyentmax.cli.check import add_check
from pyentmax.cli.parser import Commands, Parser
from pyentmax.engine.backends.choice import describe_backend
from pyentmax.engine.system.blas import describe_blas, limit_blas
from pyentmax.engine.system.memory import keep_freed_memory
from pyentmax.seq2seq.data.text_files import printable
from pyentmax.seq2seq.inflection.commands import add_commands as add_inflection
from pyentmax.seq2seq.training import LAST
from pyentmax.seq2seq.training.interrupt import TERMINATING, handling

ERRORS = (ValueError, OSError, ImportError, FloatingPointError, MemoryError)
"""Errors that a user's input or machine may cause, reported in one line; others are bugs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller's shell
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Results for a file or a program are UTF-8, as what is read; a terminal may lack α.
            redirected = stream is sys.stdout and not stream.isatty()
            stream.reconfigure(encoding="utf-8" if redirected else None, errors="replace")
    args = build_parser().parse_args(argv)
    try:
        with _terminated(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _note(f"note: {message}")
            _run(args)
            sys.stdout.flush()
        return 0
    except KeyboardInterrupt as error:
        signum = error.args[0] if isinstance(error, _Terminated) else signal.SIGINT
        resume = signum in TERMINATING and "resume" in args and (args.out / LAST).exists()
        hint = "; continue with the same command and --resume" if resume else ""
        _note(f"pyentmax {args.command}: stopped{hint}")
        return 128 + signum
    except BrokenPipeError:  # the reader of the output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 141
    except ERRORS as error:
        _note(f"pyentmax {args.command}: {_message(error)}")
        return 2


class _Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, its argument, which ends a command as Ctrl-C does."""


@contextmanager
def _terminated() -> Iterator[None]:
    def handler(signum: int, frame: Any) -> None:
        raise _Terminated(signum)

    with handling(handler, TERMINATING):
        yield


def _note(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        print(text, file=sys.stderr, flush=True)


def _run(args: argparse.Namespace) -> None:
    _note(f"pyentmax runs {describe_backend()}")
    os.environ["MPLBACKEND"] = "agg"  # pictures are files; a notebook's backend may not import
    keep_freed_memory()  # training and decoding allocate the same arrays at every step
    if "blas_threads" not in args:
        args.run(args)
        return
    with limit_blas(args.blas_threads):
        _note(describe_blas("--blas-threads N"))
        args.run(args)


def _message(error: Exception) -> str:
    """One line about an error, which may quote any bytes of a file or its name."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = ": ".join(filter(None, [error.filename, error.strerror]))
    if isinstance(error, MemoryError):
        text = f"not enough memory: expected smaller sizes or files ({text})"
    return printable(text, keep="")[:2000]


def build_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="pyentmax", description="Sparse attention and sparse sequence-to-sequence models."
    )
    parser.add_argument("--version", action="version", version=f"pyentmax {__version__}")
    commands = Commands(parser)
    add_inflection(commands.add)
    add_check(commands)
    commands.add(
        "reproduce", run=_reproduce, help="where the papers' experiments are", computes=False
    )
    return parser


def _reproduce(args: argparse.Namespace) -> None:
    print(
        "experiments are scripts of a clone, such as `python -m experiments.peters2019.table1`: "
        "experiments/README.md lists them"
    )
