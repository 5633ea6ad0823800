"""Models of the inflection of one language, for experiments that compare many small runs.

As in :mod:`.table1`, each model has a folder and is resumed where it was stopped. Time is CPU time,
which other work on the machine hardly affects.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pyentmax.analysis import exactness_statistics, word_accuracy
from pyentmax.system.files import locked
from pyentmax.tasks.inflection.experiments import cells
from pyentmax.tasks.inflection.experiments.cells import LOCK, RESULT, Cell, Data, is_finished
from pyentmax.tasks.records import write_json
from pyentmax.training import TrainingConfig


@dataclass(frozen=True)
class Settings:
    """The settings that all models of an experiment share.

    They are fields of :class:`pyentmax.models.rnn_seq2seq.RNNSeq2SeqConfig` and
    :class:`pyentmax.training.TrainingConfig` where nothing else is said.
    """

    language: str = "english"  #: as the files are named
    setting: str = "medium"  #: size of the training file
    hidden: int = 128
    layers: int = 2
    dropout: float = 0.3
    updates: int = 1200
    batch_size: int = 16  #: examples per update
    rate: float = 3e-3  #: decays linearly to zero
    validations: int = 10  #: how many there are during training
    beam: int = 5  #: width of the search after the last update

    def __post_init__(self) -> None:
        for name in ("validations", "batch_size", "beam"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")

    def training(self, seed: int) -> TrainingConfig:
        """The settings of the training run."""
        return TrainingConfig(
            updates=self.updates,
            rate=self.rate,
            validate_every=-(-self.updates // self.validations),  # rounded up
            seed=seed,
        )


def read_data(folder: Path | None, settings: Settings) -> Data:
    """Training and development examples, as by `cells.read_data`, not marked with a language."""
    return cells.read_data(folder, settings.setting, [settings.language], marked=False)


def run_cell(
    out: Path, cell: Cell, settings: Settings, data: Data, *, progress: bool = True
) -> bool:
    """Train or resume a model, and write its result; returns False if Ctrl-C stopped it.

    The result is that of the parameters after the last update, not of the best validation. If
    another process is training the cell, the call waits, so that none is trained twice.
    """
    if is_finished(out, cell):
        return True
    with locked(out / cell.folder / LOCK, f"training {cell.folder}"):
        if is_finished(out, cell):
            return True
        inflector, history = cells.train_cell(
            out,
            cell,
            settings,
            settings.training(cell.seed),
            data,
            keep="last",
            progress=progress,
            clock=time.process_time,
        )
        if history.interrupted:
            return False
        results = inflector.predict(data.dev, beam=settings.beam)
        forms = [inflector.form(result.best.tokens) for result in results]
        statistics = exactness_statistics(results)
        found = {
            **cell._asdict(),
            "accuracy": 100 * word_accuracy(forms, [example.form for example in data.dev]),
            "accuracy_greedy": 100 * history.dev_accuracy[-1],
            "single": 100 * statistics.single,
            "exact": 100 * statistics.exact,
            "cpu_seconds": round(history.seconds[-1], 2),
            **cells.fingerprints(data),
            "date": time.strftime("%Y-%m-%d"),
            "update": history.update,
            "seconds": history.seconds,
            "dev_loss": history.dev_loss,
            "dev_accuracy": history.dev_accuracy,
        }
        write_json(out / cell.folder / RESULT, found)
    return True
