"""``demo``: the demonstration."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyentmax.calls.devices import DEVICES
from pyentmax.cli._options import Formatter


def add_demo(commands: Any) -> None:
    """The command among the others."""
    demo = commands.add_parser(
        "demo", help="train on English verbs; list every form of 'draw'", formatter_class=Formatter
    )
    demo.add_argument("--seed", type=int, default=0, help="fixes the result")
    demo.add_argument(
        "--out", type=Path, default="pyentmax-demo", help="folder for model and pictures"
    )
    demo.add_argument("--device", choices=DEVICES, default="cpu", help="where to compute")
    demo.set_defaults(run=_demo)


def _demo(args: argparse.Namespace) -> int:
    from pyentmax.demo import run_demo

    return run_demo(args.out, args.seed, args.device)
