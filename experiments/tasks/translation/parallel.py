"""Parallel text: sentence pairs from files, with errors that name file and line; Multi30k."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.data.text_files import numbered_lines

TOY_GERMAN = Path(__file__).parents[3] / "examples" / "toy_german.tsv"
TOY_DEV = 200  # its last pairs, for choices
MULTI30K_DEV = 1000  # pairs at the end of its training file, for every choice
_FILE = "{split}.lc.norm.tok.{language}"


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
    return read_table(TOY_GERMAN)


class Multi30k(NamedTuple):
    """Its pairs to learn from, to choose by, and to measure on once."""

    train: list[SentencePair]
    dev: list[SentencePair]
    val: list[SentencePair]


def read_multi30k(folder: Path, *, reverse: bool = False) -> Multi30k:
    """German-English pairs of Multi30k (Elliott et al. 2016), or English-German ones.

    The sentences are lower-cased and tokenised.

    Parameters
    ----------
    folder : Path
        With ``train.lc.norm.tok.de`` and the like, or with ``multi30k/tok`` that has them.

    Raises
    ------
    DataError
        If the files are not there, or are not parallel text.
    """
    languages = ("en", "de") if reverse else ("de", "en")
    name = _FILE.format(split="train", language="de")
    places = [folder, folder / "multi30k" / "tok"]
    home = next((place for place in places if (place / name).exists()), None)
    if home is None:
        raise DataError(
            f"{folder}: expected {name} or multi30k/tok/{name}, as multi30k/dataset has them"
        )
    train, val = (
        read_parallel(*(home / _FILE.format(split=split, language=x) for x in languages))
        for split in ("train", "val")
    )
    if len(train) <= MULTI30K_DEV:
        raise DataError(
            f"{home}: expected more than the {MULTI30K_DEV} training pairs that are held out, got "
            f"{len(train)}"
        )
    return Multi30k(train[:-MULTI30K_DEV], train[-MULTI30K_DEV:], val)


def read_pairs(data: Sequence[Path], *, reverse: bool = False) -> list[SentencePair]:
    """The sentence pairs that DATA of a script names.

    Parameters
    ----------
    data : sequence of one or two paths
        A table, two files of parallel text, ``toy-german`` (its held-out pairs), or a folder with
        Multi30k (its dev pairs).
    reverse : bool
        Whether source and target are swapped.

    Raises
    ------
    ValueError
        If there are more than two.
    """
    if len(data) > 2:
        raise ValueError(f"examples: expected one or two files of translation, got {len(data)}")
    if data[0].is_dir():
        return read_multi30k(data[0], reverse=reverse).dev
    if len(data) == 2:
        pairs = read_parallel(*data)
    else:
        is_toy = str(data[0]) == "toy-german"
        pairs = toy_german()[-TOY_DEV:] if is_toy else read_table(data[0])
    return [SentencePair(pair.target, pair.source) for pair in pairs] if reverse else pairs


def _sentence(text: str, where: str) -> str:
    if not (words := text.split()):
        raise DataError(f"{where}: expected a sentence, got an empty one; leave the pair out")
    return " ".join(words)
