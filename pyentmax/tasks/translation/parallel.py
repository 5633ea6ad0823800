"""Parallel text: sentence pairs from files, with errors that name file and line."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from pyentmax.data import DataError
from pyentmax.system.files import naming


class SentencePair(NamedTuple):
    """A sentence and its translation, each as its words with spaces between them."""

    source: str
    target: str


def read_parallel(
    source: str | os.PathLike[str], target: str | os.PathLike[str]
) -> list[SentencePair]:
    """The pairs of two files, one sentence per line; the n-th lines belong together.

    Raises
    ------
    DataError
        If the files differ in their number of lines, a line is empty or not UTF-8 (naming file and
        line), or there is none.
    OSError
        If a file cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [Path(folder, "train.de"), Path(folder, "train.en")]
    ...     for file, text in zip(files, ("ein hund", "a dog")):
    ...         _ = file.write_text(text, encoding="utf-8")
    ...     read_parallel(*files)
    [SentencePair(source='ein hund', target='a dog')]
    """
    sides = [list(_sentences(Path(path))) for path in (source, target)]
    counts = [len(side) for side in sides]
    if counts[0] != counts[1]:
        raise DataError(
            f"expected as many lines in both files of parallel text, got {counts[0]} in {source} "
            f"and {counts[1]} in {target}"
        )
    if not counts[0]:
        raise DataError(f"{source}: expected at least one sentence, got an empty file")
    return [SentencePair(*pair) for pair in zip(*sides, strict=True)]


def read_table(path: str | os.PathLike[str]) -> list[SentencePair]:
    """The pairs of one file, source TAB target on each line.

    Errors are those of `read_parallel`, and a `DataError` for a line without exactly one tab.
    """
    pairs = []
    for number, line in _lines(Path(path)):
        sides = line.split("\t")
        if len(sides) != 2:
            raise DataError(
                f"{path}, line {number}: expected source TAB target, got {len(sides)} columns"
            )
        cleaned = [" ".join(side.split()) for side in sides]
        for which, side in zip(("source", "target"), cleaned, strict=True):
            if not side:
                raise DataError(f"{path}, line {number}: the {which} is empty; leave the pair out")
        pairs.append(SentencePair(*cleaned))
    if not pairs:
        raise DataError(f"{path}: expected at least one pair, got an empty file")
    return pairs


def toy_german() -> list[SentencePair]:
    """German sentences of a toy grammar and their English translations, 3,200 pairs.

    The corpus is our own: ``tools/make_toy_german.py`` in the repository says what is in it. No
    source comes twice. The word *bank* is a bank or a bench, which only a place can tell.

    Examples
    --------
    >>> toy_german()[0]
    SentencePair(source='...', target='...')
    """
    with resources.as_file(resources.files(__package__) / "toy_german.tsv") as path:
        return read_table(path)


def _sentences(path: Path) -> Iterator[str]:
    for number, line in _lines(path):
        if not (sentence := " ".join(line.split())):
            raise DataError(
                f"{path}, line {number}: expected a sentence, got an empty line; leave it out, and "
                "its partner in the other file too"
            )
        yield sentence


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file, which end with a line feed and nothing else, with their numbers."""
    with naming(path):
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not lines[-1]:
        lines.pop()  # what follows the last line feed is no line
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {number}: expected UTF-8 ({error.reason})") from error
        yield number, text.removesuffix("\r")
