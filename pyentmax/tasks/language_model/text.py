"""The text that a language model learns from, and the part of it that is held out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pyentmax.data import DataError
from pyentmax.data.download import FOLDER_VARIABLE
from pyentmax.tasks.text_files import read_text as read_file

SHAKESPEARE = Path("tinyshakespeare", "input.txt")
HELD_OUT = 10  # the last tenth is not learned from


class Text(NamedTuple):
    """A text to learn from, and its last tenth, to measure on."""

    train: str
    held_out: str


def read_text(path: str | Path) -> Text:
    """A text file, in UTF-8, in its two parts.

    Raises
    ------
    DataError
        If the file is empty or not UTF-8.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "song.txt")
    ...     _ = path.write_text("la la la la la la la la " * 5)
    ...     [len(part) for part in read_text(path)]
    [108, 12]
    """
    text = read_file(path)
    if len(text) < HELD_OUT:
        raise DataError(f"{path}: expected a text, got {len(text)} characters")
    learned = len(text) - len(text) // HELD_OUT
    return Text(text[:learned], text[learned:])


def read_shakespeare(folder: Path | None = None) -> Text:
    """The text known as Tiny Shakespeare: 1.1 million characters of his plays.

    Parameters
    ----------
    folder : Path, optional
        With ``input.txt``, or with ``tinyshakespeare/input.txt``. If not given, the folder in
        ``PYENTMAX_DATA``.

    Raises
    ------
    DataError
        If the file is missing or is not a text.
    """
    named = folder or os.environ.get(FOLDER_VARIABLE)
    if not named:
        raise DataError(f"data: expected --data FOLDER, or PYENTMAX_DATA set, with {SHAKESPEARE}")
    given = Path(named)
    for path in (given / SHAKESPEARE.name, given / SHAKESPEARE):
        if path.exists():
            return read_text(path)
    raise DataError(f"{given}: expected {SHAKESPEARE.name} or {SHAKESPEARE}")
