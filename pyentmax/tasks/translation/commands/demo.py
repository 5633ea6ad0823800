"""``demo-translation``: the demonstration."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.calls.devices import DEVICES
from pyentmax.tasks.command_line import Commands


def add_demo(commands: Commands) -> None:
    """Add the `demo-translation` command."""
    demo = commands.add(
        "demo-translation",
        run=_demo,
        help="train on toy German; list every translation of a sentence",
    )
    demo.add_argument("--seed", type=int, default=0, help="fixes the result")
    demo.add_argument(
        "--out", type=Path, default="pyentmax-translation", help="folder for model and pictures"
    )
    demo.add_argument("--device", choices=DEVICES, default="cpu", help="where to compute")


def _demo(args: argparse.Namespace) -> int:
    from pyentmax.tasks.translation.demo import run_demo

    return run_demo(args.out, args.seed, args.device)
