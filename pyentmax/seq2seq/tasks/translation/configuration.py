"""Files that say what to train on, which model and how: TOML, one table for each.

    [data]
    train = ["train.de", "train.en"]   # or one file, source TAB target; or "toy-german", bundled
    dev = ["dev.de", "dev.en"]
    subwords = 4000                    # or a sentencepiece model's file; words without it
    algorithm = "bpe"                  # that learns them; by default "unigram"
    normalization = "nfkc"             # of learned sub-words; by default they keep all characters
    separate = true                    # as many for each side, instead of one joint vocabulary
    tokens = 2048                      # per batch, padding included; or batch_size, pairs

    [model]                            # fields of TransformerConfig or RNNSeq2SeqConfig
    width = 128

    [training]                         # fields of TrainingConfig
    updates = 3200

Files are looked for next to the configuration. Some configurations come with the library and go by
their names, without ``.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.tasks.text_files import read_text
from pyentmax.seq2seq.tasks.translation.parallel import (
    SentencePair,
    read_parallel,
    read_table,
    toy_german,
)
from pyentmax.seq2seq.tasks.translation.segmentation import (
    ALGORITHMS,
    NORMALIZATIONS,
    Subwords,
    Words,
    learn_subwords,
)
from pyentmax.seq2seq.tasks.translation.translator import ARCHITECTURES
from pyentmax.seq2seq.training import TrainingConfig

BUNDLED: dict[str, Any] = {"toy-german": toy_german}
BUNDLED_DEV = 200  # pairs at the end of a bundled corpus that are not trained on


@dataclass(frozen=True)
class DataConfig:
    """The table ``[data]``."""

    train: str | list[str]
    dev: str | list[str]
    subwords: int | str | None = None
    algorithm: str | None = None
    normalization: str | None = None
    separate: bool | None = None
    tokens: int | None = None
    batch_size: int | None = None
    longest: int | None = None  #: words of the longest sentence that is trained on

    def __post_init__(self) -> None:
        for name in ("train", "dev"):
            files = getattr(self, name)
            if not isinstance(files, str) and [type(file) for file in files] != [str, str]:
                raise ValueError(
                    f"{name}: expected two files of parallel text, or one with source TAB target, "
                    f"got {files!r}"
                )
        for name in ("subwords", "tokens", "batch_size", "longest"):
            if isinstance(number := getattr(self, name), int) and number < 1:
                raise ValueError(f"{name}: expected a number above 0, got {number!r}")
        for name, known, choices in (
            ("algorithm", ALGORITHMS, f"one of {', '.join(ALGORITHMS)}"),
            ("normalization", NORMALIZATIONS, f"one of {', '.join(NORMALIZATIONS)}"),
            ("separate", (True, False), "true or false"),
        ):
            value = getattr(self, name)
            if value is not None and not (value in known and isinstance(self.subwords, int)):
                raise ValueError(
                    f"{name}: expected {choices}, next to a number of subwords, got {value!r}"
                )
        if self.tokens and self.batch_size:
            raise ValueError("expected tokens or batch_size, got both")


@dataclass(frozen=True)
class Experiment:
    """What a configuration says.

    Attributes
    ----------
    data : DataConfig
    model, training : dict
        The other two tables.
    folder : Path
        Where the files are looked for.
    """

    data: DataConfig
    model: dict[str, Any]
    training: dict[str, Any]
    folder: Path

    def pairs(self) -> tuple[list[SentencePair], list[SentencePair]]:
        """The pairs to train on, and those to validate on."""
        train, dev = self._read(self.data.train, 0), self._read(self.data.dev, 1)
        if self.data.longest is not None:
            lengths = [max(len(side.split()) for side in pair) for pair in train]
            if min(lengths) > self.data.longest:
                raise DataError(
                    f"[data] longest: expected at least {min(lengths)}, the words of the shortest "
                    f"pair of {self.data.train}, got {self.data.longest}"
                )
            train = [pair for pair, n in zip(train, lengths, strict=True) if n <= self.data.longest]
        return train, dev

    def batches(self) -> dict[str, Any]:
        """The size of batches, as `train_translator` takes it."""
        size = self.data.batch_size
        return {"batch_size": size} if size else {"tokens": self.data.tokens or 2048}

    def segmenters(self, train: Sequence[SentencePair]) -> dict[str, Any]:
        """Words, or the sub-words that are asked for, as `train_translator` takes them."""
        subwords = self.data.subwords
        if subwords is None:
            return {"segmenter": Words()}
        if isinstance(subwords, str):
            return {"segmenter": Subwords.read(self._path(subwords))}
        names = ("algorithm", "normalization", "separate")
        settings = {name: getattr(self.data, name) for name in names}
        options = {name: value for name, value in settings.items() if value is not None}
        return learn_subwords(train, subwords, seed=self.training.get("seed", 0), **options)

    def _read(self, files: str | list[str], part: int) -> list[SentencePair]:
        names = [files] if isinstance(files, str) else files
        return read_corpus([name if name in BUNDLED else self._path(name) for name in names], part)

    def _path(self, name: str) -> Path:
        return self.folder / Path(name).expanduser()


def read_corpus(files: Sequence[str | Path], part: int) -> list[SentencePair]:
    """The pairs of two files or of a table; of a bundled corpus those of part 0 or 1, held out."""
    if len(files) == 2:
        return read_parallel(*files)
    if (name := str(files[0])) in BUNDLED:
        pairs = BUNDLED[name]()
        return (pairs[:-BUNDLED_DEV], pairs[-BUNDLED_DEV:])[part]
    return read_table(files[0])


def read_config(config: str | Path) -> tuple[str, Path]:
    """The text of a configuration, by its file or its bundled name, and where its files are.

    Raises
    ------
    DataError
        If there is no such configuration.
    """
    path, bundled = Path(config).expanduser(), _bundled()
    if not path.exists() and str(config) in bundled:
        return bundled[str(config)].read_text("utf-8"), Path()
    if path.is_file():
        return read_text(path), path.parent
    raise DataError(f"config: expected a file or one of {', '.join(sorted(bundled))}; got {config}")


def read_experiment(
    config: str | Path, architecture: str, **data: Sequence[str | Path] | None
) -> Experiment:
    """Read a configuration, by its file or by its name if it comes with the library.

    Parameters
    ----------
    config : str or Path
    architecture : {"rnn", "transformer"}
    **data
        ``train`` and ``dev``, instead of the configuration's if given: files as of the working
        directory, or bundled corpora.

    Raises
    ------
    DataError
        If there is no such configuration, it is not TOML, or it has a name or a value that is not
        expected; the message says which.
    """
    text, folder = read_config(config)
    try:
        tables = tomllib.loads(text)
    except ValueError as error:
        raise DataError(f"{config}: expected TOML ({error})") from error
    shapes = {
        "data": DataConfig,
        "model": ARCHITECTURES[architecture][1],
        "training": TrainingConfig,
    }
    for name in tables:
        if name not in shapes:
            raise DataError(f"{config}: expected the tables {', '.join(shapes)}; got {name!r}")
    for name, shape in shapes.items():
        table = tables.setdefault(name, {})
        if not isinstance(table, dict):
            raise DataError(f"{config}, [{name}]: expected a table, got {table!r}")
        known = [f.name for f in fields(shape) if f.name not in ("source_size", "target_size")]
        for entry, value in table.items():
            if entry not in known:
                raise DataError(f"{config}, [{name}]: expected {', '.join(known)}; got {entry!r}")
            if name != "training":  # which checks its values itself
                where = f"{config}, [{name}] {entry}"
                table[entry] = _typed(value, get_type_hints(shape)[entry], where)
    for name, files in data.items():
        if files:
            paths = [str(f) if str(f) in BUNDLED else str(Path(f).absolute()) for f in files]
            tables["data"][name] = paths[0] if len(paths) == 1 else paths
    try:
        data_config = DataConfig(**tables["data"])
    except (TypeError, ValueError) as error:  # a TypeError of a missing entry
        raise DataError(f"{config}, [data] {error}") from error
    return Experiment(data_config, tables["model"], tables["training"], folder)


def _typed(value: Any, hint: Any, where: str) -> Any:
    """A value with the type of a configuration's field; 2 may be written for 2.0 and for "2"."""
    types = tuple(get_origin(one) or one for one in get_args(hint) or (hint,))
    if type(value) in (int, float) and not isinstance(value, types):
        if float in types:
            value = float(value)
        elif str in types and int not in types:  # the α of a mapping
            value = str(value)
    if not isinstance(value, types):
        raise DataError(f"{where}: expected {getattr(hint, '__name__', hint)}, got {value!r}")
    return value


def _bundled() -> dict[str, Any]:
    """Name → configuration that comes with the library."""
    folder = resources.files(__package__) / "configs"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): file for file in files}
