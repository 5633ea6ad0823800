"""What several commands take."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


class Formatter(argparse.HelpFormatter):
    """Help that shows the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        quiet = action.default in (None, False, [], argparse.SUPPRESS)
        return action.help if quiet else f"{action.help} (default: %(default)s)"


def add_models(parser: Any) -> None:
    parser.add_argument(
        "models",
        nargs="+",
        type=Path,
        metavar="MODEL",
        help="best.npz, or the folder of a run; the probabilities of several are averaged",
    )


def add_folder(parser: Any, option: str) -> None:
    parser.add_argument(
        option,
        type=Path,
        metavar="DIR",
        help="folder that holds conll2018/; if not given, that in PYENTMAX_DATA, or a download",
    )
