"""Files that say what to train on, which model and how: TOML, one table for each.

    [data]
    train = ["train.de", "train.en"]   # or one file, source TAB target; or a bundled corpus,
                                       # "toy-german" or "planted-questions"
    dev = ["dev.de", "dev.en"]
    subwords = 4000                    # or a sentencepiece model's file; words without it
    tokens = 2048                      # per batch, padding included; or batch_size, pairs

    [model]                            # fields of TransformerConfig or RNNSeq2SeqConfig
    width = 128

    [training]                         # fields of TrainingConfig
    updates = 3200

Files are looked for beside the configuration. Some configurations come with the library and go by
their names, without ``.toml``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from pyentmax.data import DataError
from pyentmax.system.files import naming
from pyentmax.tasks.translation.parallel import (
    SentencePair,
    read_parallel,
    read_table,
    toy_german,
)
from pyentmax.tasks.translation.planted import planted_questions
from pyentmax.tasks.translation.segmentation import Segmenter, Subwords, Words
from pyentmax.tasks.translation.translator import ARCHITECTURES
from pyentmax.training import TrainingConfig

BUNDLED = {"toy-german": toy_german, "planted-questions": planted_questions}
BUNDLED_DEV = 200  # pairs at the end of a bundled corpus that are not trained on
_DATA = ("train", "dev", "subwords", "tokens", "batch_size", "longest")


@dataclass(frozen=True)
class Experiment:
    """What a configuration says.

    Attributes
    ----------
    data, model, training : dict
        The three tables.
    folder : Path
        Where the files are looked for.
    """

    data: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]
    folder: Path

    def pairs(self) -> tuple[list[SentencePair], list[SentencePair]]:
        """The pairs to train on, and those to validate on."""
        train, dev = (self._read(name) for name in ("train", "dev"))
        longest = self.data.get("longest")
        if longest is not None:
            every, train = train, [p for p in train if max(map(_words, p)) <= longest]
            if every and not train:
                least = min(max(map(_words, pair)) for pair in every)
                raise DataError(
                    f"[data] longest: expected at least {least}, the words of the shortest pair of "
                    f"{self.data['train']}, got {longest}"
                )
        return train, dev

    def segmenter(self, train: Sequence[SentencePair]) -> Segmenter:
        """Words, or the sub-words that the configuration asks for."""
        wanted = self.data.get("subwords")
        if wanted is None:
            return Words()
        if isinstance(wanted, str):
            return Subwords.read(self.folder / wanted)
        sentences = [side for pair in train for side in pair]
        return Subwords.learn(sentences, wanted, self.training.get("seed", 0))

    def _read(self, name: str) -> list[SentencePair]:
        given = self.data[name]
        if isinstance(given, str):
            if given in BUNDLED:
                pairs = BUNDLED[given]()
                return pairs[:-BUNDLED_DEV] if name == "train" else pairs[-BUNDLED_DEV:]
            return read_table(self.folder / given)
        source, target = given
        return read_parallel(self.folder / source, self.folder / target)


def _words(side: str) -> int:
    return len(side.split())


def read_experiment(config: str | Path, architecture: str) -> Experiment:
    """Read a configuration, by its file or by its name if it comes with the library.

    Raises
    ------
    DataError
        If there is no such configuration, it is not TOML, or it has a name or a value that is not
        expected; the message says which.
    """
    path = Path(config)
    if not path.exists() and (shipped := _shipped().get(str(config))):
        text, folder = shipped.read_text("utf-8"), Path()
    elif path.is_file():
        folder = path.parent
        try:
            with naming(path):
                text = path.read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(f"{config}: expected text in UTF-8 ({error})") from error
    else:
        raise DataError(
            f"config: expected a file or one of {', '.join(sorted(_shipped()))}; got {config}"
        )
    toml = _toml()
    try:
        tables = toml.loads(text)
    except (ValueError, RecursionError) as error:  # of numbers, too, with thousands of digits
        raise DataError(f"{config}: expected TOML ({error})") from error
    model = _defaults(ARCHITECTURES[architecture][1])
    expected = {
        "data": dict.fromkeys(_DATA),
        "model": {k: v for k, v in model.items() if k not in ("source_size", "target_size")},
        "training": _defaults(TrainingConfig),
    }
    if strange := [name for name in tables if name not in expected]:
        raise DataError(f"{config}: expected the tables data, model, training; got {strange[0]!r}")
    for table, known in expected.items():
        entries = tables.setdefault(table, {})
        if not isinstance(entries, dict):
            raise DataError(f"{config}: expected a table [{table}], got a value")
        if strange := [name for name in entries if name not in known]:
            raise DataError(f"{config}, [{table}]: expected {', '.join(known)}; got {strange[0]!r}")
        for name, default in known.items():
            if name in entries and default is not None:
                where = f"{config}, [{table}] {name}"
                entries[name] = _like(default, entries[name], where)
    _check_data(config, tables["data"])
    return Experiment(tables["data"], tables["model"], tables["training"], folder)


def _defaults(settings: Any) -> dict[str, Any]:
    return {field.name: field.default for field in fields(settings)}


def _like(default: Any, value: Any, where: str) -> Any:
    """The value, if it is of the kind of the default; a number is as good as its text."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    for kind, right, words in (
        (bool, isinstance(value, bool), "true or false"),
        (int, number and isinstance(value, int), "a whole number"),
        (float, number, "a number"),
        (str, number or isinstance(value, str), "text"),
        (tuple, isinstance(value, list), "a list"),
    ):
        if type(default) is kind:
            if not right:
                raise DataError(f"{where}: expected {words}, got {value!r}")
            return str(value) if kind is str else value
    return value


def _check_data(config: str | Path, data: dict[str, Any]) -> None:
    for name in ("train", "dev"):
        given = data.get(name)
        two = isinstance(given, list) and len(given) == 2 and all(type(x) is str for x in given)
        if not (two or isinstance(given, str)):
            raise DataError(
                f"{config}, [data] {name}: expected two files of parallel text, or one with source "
                f"TAB target, got {given!r}"
            )
        names: list[str] = given if isinstance(given, list) else [str(given)]
        if any("\0" in file for file in names):
            raise DataError(f"{config}, [data] {name}: expected names of files, got {given!r}")
    for name in ("tokens", "batch_size", "longest"):
        given = data.get(name, 1)
        if type(given) is not int or given < 1:
            raise DataError(f"{config}, [data] {name}: expected a number above 0, got {given!r}")
    if "tokens" in data and "batch_size" in data:
        raise DataError(f"{config}, [data]: expected tokens or batch_size, got both")
    subwords = data.get("subwords", 1)
    wrong = "\0" in subwords if type(subwords) is str else type(subwords) is not int or subwords < 1
    if wrong:
        raise DataError(
            f"{config}, [data] subwords: expected a number above 0 or a model's file, got "
            f"{subwords!r}"
        )


def _shipped() -> dict[str, Any]:
    """Name → configuration that comes with the library."""
    folder = resources.files(__package__) / "configs"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): file for file in files}


def _toml() -> Any:
    try:
        import tomllib

        return tomllib
    except ImportError:  # Python 3.10
        pass
    try:
        import tomli
    except ImportError:
        raise ImportError(
            "reading a configuration needs tomli on Python 3.10: pip install 'pyentmax[models]'"
        ) from None
    return tomli
