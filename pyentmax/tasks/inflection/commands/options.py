"""Options that several commands of inflection share."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_folder(parser: argparse.ArgumentParser, option: str) -> None:
    """Add the option that names the data folder."""
    parser.add_argument(
        option,
        type=Path,
        metavar="DIR",
        help="folder that holds conll2018/; if not given, that in PYENTMAX_DATA, or a download",
    )
