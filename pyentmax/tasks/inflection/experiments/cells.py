"""The cells of an experiment: models that differ in their mappings and seeds, a folder each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyentmax.models.checks import check_memory
from pyentmax.models.rnn_seq2seq import RNNSeq2SeqConfig
from pyentmax.nn.mapping_choice import choose_mapping
from pyentmax.tasks.inflection.conll2018 import conll2018_files
from pyentmax.tasks.inflection.examples import Example, read_examples
from pyentmax.tasks.inflection.inflector import Inflector
from pyentmax.tasks.inflection.training import train_inflector
from pyentmax.tasks.records import read_json
from pyentmax.training import LAST, History, TrainingConfig

RESULT = "result.json"
LOCK = "lock"
"""In the folder of a cell: held while it is trained and measured."""


_IDENTITY: dict[str, tuple[Any, Any]] = {
    "loss": (str, None),
    "attention": (str, None),
    "seed": ((int, str), None),  # those of an ensemble are in a text
    "models": (int, 1),
    "train": (str, ""),
    "dev": (str, ""),
}
"""What tells a result from others: its type, and what stands for one that is missing."""

_SPLITS = {"train": "training", "dev": "development"}


class Cell(NamedTuple):
    """One model: its two mappings, as for `choose_mapping`, and its seed."""

    loss: str
    attention: str
    seed: int

    @property
    def pair_folder(self) -> str:
        """How the names of all folders of its pair of mappings begin.

        Not every file system allows a colon there.
        """
        return f"loss-{self.loss}.attention-{self.attention}".replace(":", "-")

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.pair_folder}.seed-{self.seed}"

    def ensemble_folder(self, models: int) -> str:
        """The name of the folder of so many models of its pair together."""
        return f"{self.pair_folder}.ensemble-{models}"

    def __str__(self) -> str:
        return f"loss {self.loss}, attention {self.attention}, seed {self.seed}"


class Data(NamedTuple):
    """The examples of an experiment."""

    train: list[Example]
    dev: list[Example]


def read_data(folder: Path | None, setting: str, languages: Sequence[str], *, marked: bool) -> Data:
    """Training and development examples of some languages, marked with their language or not.

    ``folder`` and errors are those of :func:`pyentmax.tasks.inflection.conll2018_files`; a
    malformed file is a DataError too.
    """
    marks = languages if marked else None
    files = [conll2018_files(languages, split, folder) for split in (f"train-{setting}", "dev")]
    return Data(*(read_examples(paths, languages=marks) for paths in files))


def is_finished(out: Path, cell: Cell) -> bool:
    """Whether the result of a cell has been written."""
    return (out / cell.folder / RESULT).exists()


def fingerprint(examples: Sequence[Example]) -> str:
    """A short text for a list of examples, the same only for the same ones in the same order.

    Examples
    --------
    >>> fingerprint([Example("draw", "drawn", ("V", "PST"))])
    '1 examples, ...'
    """
    digest = hashlib.sha256(json.dumps(examples).encode())
    return f"{len(examples)} examples, {digest.hexdigest()[:16]}"


def fingerprints(data: Data) -> dict[str, str]:
    """What a result says of the examples that it comes from: a fingerprint of each split."""
    return {split: fingerprint(getattr(data, split)) for split in _SPLITS}


def check_examples(results: Iterable[Mapping[str, Any]], data: Data, out: Path) -> None:
    """Raise a ValueError if a result that is there comes from other examples.

    Results from before this was noted say nothing of them.
    """
    now = fingerprints(data)
    for result in results:
        for split, name in _SPLITS.items():
            if result.get(split, now[split]) != now[split]:
                raise ValueError(
                    f"{out} holds results on other {name} examples ({result[split]}; now "
                    f"{now[split]}), which do not compare: give another --out"
                )


def check_alike(results: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Raise a ValueError if results do not all come from the same examples."""
    for split, name in _SPLITS.items():
        of = sorted({result[split] for result in results if split in result})
        if len(of) > 1:
            raise ValueError(
                f"{out} holds results on different {name} examples ({'; '.join(of)}), which do not "
                "compare: remove the folders of some"
            )


def read_result(path: Path) -> dict[str, Any]:
    """The result of a cell or an ensemble; a ValueError names a file that holds none of its own."""
    result = read_json(path)
    if not isinstance(result, dict) or not all(
        isinstance(result.get(name, instead), kind) for name, (kind, instead) in _IDENTITY.items()
    ):
        raise ValueError(f"{path}: expected the result of a model, got {str(result)[:60]}")
    cell, models = Cell(result["loss"], result["attention"], result["seed"]), result.get("models")
    folder = cell.folder if models in (None, 1) else cell.ensemble_folder(models)
    if folder != path.parent.name:
        raise ValueError(f"{path}: expected the result of {path.parent.name}, got that of {folder}")
    return result


def finished_results(out: Path) -> list[dict[str, Any]]:
    """The results of all finished cells, and of ensembles after those of their pair.

    A ValueError names a damaged file, and says so if they do not all come from the same examples.
    """
    results = [read_result(path) for path in out.glob(f"loss-*/{RESULT}")]
    check_alike(results, out)
    return sorted(results, key=lambda r: (r["loss"], r["attention"], r.get("models", 1), r["seed"]))


def check_cells(
    cells: Iterable[Cell], settings: Any, training: Callable[[int], TrainingConfig]
) -> None:
    """Raise a ValueError if a model could not be made or trained, before anything is.

    Of an experiment's settings, it takes those that `train_cell` takes; ``training`` gives the
    settings of the training run of a seed.
    """
    for cell in cells:
        shape = RNNSeq2SeqConfig(
            source_size=1,
            target_size=1,
            hidden=settings.hidden,
            layers=settings.layers,
            dropout=settings.dropout,
            attention=cell.attention,
            output=cell.loss,
        )
        check_memory(shape.fewest_parameters, np.float32)
        choose_mapping(cell.loss).require_loss()
        training(cell.seed)


def train_cell(
    out: Path, cell: Cell, settings: Any, config: TrainingConfig, data: Data, **options: Any
) -> tuple[Inflector, History]:
    """Train or resume the model of a cell; ``options`` are more options of `train_inflector`.

    Of an experiment's settings, it takes hidden, layers, dropout and batch_size.
    """
    folder = out / cell.folder
    return train_inflector(
        data.train,
        data.dev,
        config,
        batch_size=settings.batch_size,
        directory=folder,
        resume=(folder / LAST).exists(),
        hidden=settings.hidden,
        layers=settings.layers,
        dropout=settings.dropout,
        attention=cell.attention,
        output=cell.loss,
        **options,
    )
