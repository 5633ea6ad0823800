"""The text that a language model learns from, and the part of it that is held out."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyentmax.data import DataError
from pyentmax.tasks.text_files import read_text as read_file

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
