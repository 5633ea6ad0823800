"""Multi30k (Elliott et al. 2016) as the experiments use it: lower-cased, tokenised sentences."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyentmax.data import DataError
from pyentmax.tasks.translation.parallel import SentencePair, read_parallel

DEV = 1000  # pairs at the end of the training file, for every choice
_FILE = "{split}.lc.norm.tok.{language}"


class Data(NamedTuple):
    """Sentence pairs to learn from, to choose by, and to measure on once."""

    train: list[SentencePair]
    dev: list[SentencePair]
    val: list[SentencePair]


def read_multi30k(folder: Path, *, reverse: bool = False) -> Data:
    """German-English pairs, or English-German ones.

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
    found = next((place for place in places if (place / name).exists()), None)
    if found is None:
        raise DataError(
            f"{folder}: expected {name} or multi30k/tok/{name}, as multi30k/dataset has them"
        )
    train, val = (
        read_parallel(*(found / _FILE.format(split=split, language=x) for x in languages))
        for split in ("train", "val")
    )
    if len(train) <= DEV:
        raise DataError(
            f"{found}: expected more than {DEV} training pairs, whose last {DEV} are held out, got "
            f"{len(train)}"
        )
    return Data(train[:-DEV], train[-DEV:], val)
