"""Table 1 of Peters et al. (2019): multilingual inflection with any pair of loss and attention.

One model learns all languages: a source is the language, the tags and the lemma's characters
(§4.1). A cell of the table is one pair of output loss and attention, trained from one seed. Its
folder holds everything about it, so that a run can be stopped and resumed at any time:

    OUT/settings.json                       what all cells share
    OUT/loss-1.5.attention-1.seed-0/
        last.npz best.npz                   the training run, as by `python -m pyentmax train`
        predictions/LANGUAGE                best forms in the shared task's format
        result.json                         written last: the cell is finished
    OUT/loss-1.5.attention-1.ensemble-3/    predictions and result of an ensemble of seeds
    OUT/cells.csv languages.csv table.md families.md    all finished cells, rewritten after each one
    OUT/curves.csv curves.md curves.png     the validations of all cells, unfinished ones too
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyentmax.analysis import exactness_statistics, mean_levenshtein, word_accuracy
from pyentmax.decoding._inputs import MOST
from pyentmax.nn.attention import LEARNED
from pyentmax.nn.mapping_choice import spelled
from pyentmax.system.files import locked
from pyentmax.system.memory import peak_memory
from pyentmax.tasks.inflection.decoder import WordDecoder
from pyentmax.tasks.inflection.examples import first_words
from pyentmax.tasks.inflection.experiments import cells
from pyentmax.tasks.inflection.experiments.cells import LOCK, RESULT, Cell, Data, is_finished
from pyentmax.tasks.inflection.inflector import load_word_decoder
from pyentmax.tasks.model_files import check_own_best
from pyentmax.tasks.records import open_folder, write_json, write_text
from pyentmax.training import TrainingConfig

EPOCHS = {"high": 30, "medium": 100, "low": 300}
"""Our choice: the paper does not say."""
EPOCHS_PER_VALIDATION = {"high": 1, "medium": 10, "low": 100}
"""Every epoch in the high setting, every ten in medium (§4.1); the paper has no low setting."""


@dataclass(frozen=True)
class Settings:
    """The settings that all cells of a table share. Defaults are the paper's where it gives them.

    They are fields of :class:`pyentmax.models.rnn_seq2seq.RNNSeq2SeqConfig` and
    :class:`pyentmax.training.TrainingConfig` where nothing else is said.
    """

    setting: str  #: "high", "medium" or "low": size of the training files
    languages: tuple[str, ...]  #: as the shared task names its files, sorted
    epochs: int | None = None  #: passes over the training data; `EPOCHS` if not given
    validate_every: int | None = None  #: epochs; `EPOCHS_PER_VALIDATION` if not given
    hidden: int = 300
    layers: int = 2
    dropout: float = 0.3
    score: str = "bilinear"
    batch_size: int = 64  #: examples per update
    rate: float = 1e-3
    schedule: str = "halve"
    beam: int = 5  #: width of the search that makes the predictions
    validate_on: int | None = None  #: words of each language that a validation reads; all if None

    def __post_init__(self) -> None:
        if self.setting not in EPOCHS:
            raise ValueError(f"setting: expected one of {', '.join(EPOCHS)}; got {self.setting!r}")
        if not self.languages:
            raise ValueError("languages: expected at least one, got none")
        if self.epochs is None:
            object.__setattr__(self, "epochs", EPOCHS[self.setting])
        if self.validate_every is None:
            object.__setattr__(self, "validate_every", EPOCHS_PER_VALIDATION[self.setting])
        for name in ("epochs", "validate_every", "beam", "batch_size", "validate_on"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        if self.beam > MOST:  # which the search would say, when all is trained
            raise ValueError(f"beam: expected at most {MOST:,}, got {self.beam:,}")

    def training(self, examples: int, seed: int) -> TrainingConfig:
        """The settings of a cell's training run on this number of examples."""
        assert self.epochs is not None
        assert self.validate_every is not None
        updates = -(-examples // self.batch_size)  # rounded up
        return TrainingConfig(
            updates=self.epochs * updates,
            rate=self.rate,
            schedule=self.schedule,
            validate_every=self.validate_every * updates,
            seed=seed,
        )


def read_data(folder: Path | None, settings: Settings) -> Data:
    """Training and development examples, as by `cells.read_data`, marked with their language."""
    return cells.read_data(folder, settings.setting, settings.languages, marked=True)


def open_table(out: Path, settings: Settings) -> None:
    """Create the folder of a table, or check that the one there has the same settings."""
    # The languages as they come back from the file: JSON has no tuples.
    open_folder(out, asdict(settings) | {"languages": list(settings.languages)})


def run_cell(
    out: Path,
    cell: Cell,
    settings: Settings,
    data: Data,
    *,
    device: str = "cpu",
    progress: bool = True,
) -> bool:
    """Train or resume a cell, and write its result; returns False if Ctrl-C stopped it.

    The model of the best validation decodes the development examples. Seconds are those that the
    process computes, whatever else runs on the machine, unless a GPU does the work. A finished cell
    is left as it is. If another process is training the cell, the call waits, so that none is
    trained twice.
    """
    if is_finished(out, cell):
        return True
    with locked(out / cell.folder / LOCK, f"training {cell.folder}"):
        if is_finished(out, cell):
            return True
        config = settings.training(len(data.train), cell.seed)
        identity = {"purpose": "table 1", "score": settings.score}
        decoder, history = cells.train_cell(
            out,
            cell,
            settings,
            config,
            data._replace(dev=first_words(data.dev, settings.validate_on)),
            device=device,
            progress=progress,
            clock=time.process_time if device == "cpu" else time.perf_counter,
            **identity,
        )
        if history.interrupted:
            return False
        about = {
            **cell._asdict(),
            "models": 1,
            "updates": history.update[-1],
            "train_seconds": round(history.seconds[-1], 1),
            "memory_mb": peak_memory(),
        }
        _write_result(out / cell.folder, about, decoder, settings, data)
    return True


def run_ensembles(out: Path, trained: Iterable[Cell], settings: Settings, data: Data) -> None:
    """Decode with the averaged probabilities of each pair's seeds, if there are several.

    An ensemble consists of the pair's seeds among ``trained``; all of them must be finished. It
    replaces one of as many other seeds.
    """
    seeds: dict[tuple[str, str], list[int]] = defaultdict(list)
    for cell in trained:
        seeds[cell[:2]].append(cell.seed)
    for (loss, attention), of_pair in seeds.items():
        members = [Cell(loss, attention, seed) for seed in sorted(set(of_pair))]
        folder = out / members[0].ensemble_folder(len(members))
        seed = " ".join(str(cell.seed) for cell in members)
        there = folder / RESULT
        if len(members) == 1 or not all(is_finished(out, cell) for cell in members):
            continue
        if _is_of(there, seed):
            continue
        for cell in members:
            check_own_best(out / cell.folder)
        with locked(folder / LOCK, f"decoding with {folder.name}"):
            if _is_of(there, seed):
                continue
            there.unlink(missing_ok=True)  # before its predictions are replaced
            decoder = load_word_decoder([out / cell.folder for cell in members])
            about = {"loss": loss, "attention": attention, "seed": seed, "models": len(members)}
            about |= {"updates": 0, "train_seconds": 0.0, "memory_mb": peak_memory()}
            _write_result(folder, about, decoder, settings, data)


def _is_of(result: Path, seed: str) -> bool:
    """Whether there is the result of an ensemble of these seeds."""
    try:
        return bool(cells.read_result(result)["seed"] == seed)
    except FileNotFoundError:  # or another command has just removed it
        return False


def _write_result(
    folder: Path,
    about: dict[str, Any],
    decoder: WordDecoder,
    settings: Settings,
    data: Data,
) -> None:
    """Decode, then write the predictions and, last, the result."""
    dev = data.dev
    started = time.perf_counter()
    results = decoder.predict(dev, beam=settings.beam)
    seconds = time.perf_counter() - started
    forms = [decoder.form(result.best.tokens) for result in results]
    statistics = exactness_statistics(results)
    of_language: dict[str, list[int]] = defaultdict(list)
    for i, example in enumerate(dev):
        of_language[str(example.language)].append(i)
    languages = {}
    for language, places in of_language.items():
        predicted, wanted = [forms[i] for i in places], [dev[i].form for i in places]
        languages[language] = {
            "examples": len(places),
            "accuracy": 100 * word_accuracy(predicted, wanted),
            "levenshtein": mean_levenshtein(predicted, wanted),
        }
        lines = (f"{dev[i].lemma}\t{forms[i]}\t{';'.join(dev[i].tags)}\n" for i in places)
        write_text(folder / "predictions" / language, "".join(lines))
    summary = {
        # Means over languages, as in the shared task's scorer.
        "accuracy": sum(x["accuracy"] for x in languages.values()) / len(languages),
        "levenshtein": sum(x["levenshtein"] for x in languages.values()) / len(languages),
        "single": 100 * statistics.single,
        "exact": 100 * statistics.exact,
        "decode_seconds": round(seconds, 1),
        **cells.fingerprints(data),
        "date": time.strftime("%Y-%m-%d"),
    }
    write_json(folder / RESULT, about | summary | {"languages": languages})


def grid(losses: Sequence[str], attentions: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """All cells, seed by seed, so that each pair soon has a finished one.

    Examples
    --------
    >>> grid(["1", "1.5"], ["2"], [0])
    [Cell(loss='1', attention='2', seed=0), Cell(loss='1.5', attention='2', seed=0)]
    """
    attentions = [given if given == LEARNED else spelled(given) for given in attentions]
    pairs = [(spelled(loss), attention) for loss in losses for attention in attentions]
    cells = [Cell(loss, attention, seed) for seed in seeds for loss, attention in pairs]
    return list(dict.fromkeys(cells))  # what is asked for twice is one model
