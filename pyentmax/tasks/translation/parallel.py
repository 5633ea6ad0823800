"""Parallel text: sentence pairs from files, with errors that name file and line."""

from __future__ import annotations

import os
from importlib import resources
from typing import NamedTuple

from pyentmax.data import DataError
from pyentmax.tasks.text_files import numbered_lines


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
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [Path(folder, "train.de"), Path(folder, "train.en")]
    ...     for file, text in zip(files, ("ein hund", "a dog")):
    ...         _ = file.write_text(text, encoding="utf-8")
    ...     read_parallel(*files)
    [SentencePair(source='ein hund', target='a dog')]
    """
    sides = [
        [_sentence(line, where) for where, line in numbered_lines(path)]
        for path in (source, target)
    ]
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
    for where, line in numbered_lines(path):
        sides = line.split("\t")
        if len(sides) != 2:
            raise DataError(f"{where}: expected source TAB target, got {len(sides)} columns")
        pairs.append(SentencePair(*(_sentence(side, where) for side in sides)))
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


def _sentence(text: str, where: str) -> str:
    if not (words := text.split()):
        raise DataError(f"{where}: expected a sentence, got an empty one; leave the pair out")
    return " ".join(words)
