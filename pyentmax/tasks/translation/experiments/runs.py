"""Training and measuring the rows of the table, a folder for each row and seed:

    OUT/transformer-1.5.seed-0/
        last.npz best.npz   the training run, as by `python -m pyentmax train transformer`
        curve.json          at each validation: loss, accuracy, and how much the attention of use
                            sees on some dev sentences
        translations.txt    the best model's translations of val
        result.json         written last: the row is finished

A run can be stopped at any time: the same command continues it. Choices go by dev, the last 1,000
training pairs; val is decoded once, by the finished run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyentmax.data import Pair
from pyentmax.models.transformer import Transformer
from pyentmax.system.files import locked
from pyentmax.tasks.records import read_json, write_json, write_text
from pyentmax.tasks.translation.experiments.measures import bleu, supports
from pyentmax.tasks.translation.experiments.multi30k import Data, read_multi30k
from pyentmax.tasks.translation.experiments.rows import row
from pyentmax.tasks.translation.training import train_translator
from pyentmax.tasks.translation.translator import Translator
from pyentmax.training import (
    LAST,
    TRAINING_STATE,
    TrainingConfig,
    Validation,
    load_checkpoint,
)

RESULT, CURVE, TRAJECTORY = "result.json", "curve.json", "trajectory.json"
TRANSLATIONS, LOCK = "translations.txt", "lock"
TRACED = 200
"""Dev pairs on which the supports are measured at each validation."""
BEAM = 5


class Run(NamedTuple):
    """A row of the table with its seed."""

    row: str
    seed: int

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.row}.seed-{self.seed}"

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}"


def is_finished(out: Path, run: Run, updates: int | None = None) -> bool:
    """Whether the result of a run has been written, after as many updates as are asked for."""
    path = out / run.folder / RESULT
    if not path.exists():
        return False
    wanted = row(run.row).experiment().training["updates"] if updates is None else updates
    done: int = read_json(path)["updates"]
    return done >= wanted


def do_run(
    out: Path,
    run: Run,
    data: Path | None,
    *,
    updates: int | None = None,
    pause_after: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> bool:
    """Train or resume a run, translate, and write its result; False if it was stopped before.

    Parameters
    ----------
    updates : int, optional
        Instead of the row's. A run that is finished can be made longer: then it goes on, and its
        result is replaced.
    pause_after : int, optional
        Stop when so many updates are done; the run can go on later.

    Notes
    -----
    A finished run is left as it is. If another process is at it, the call waits.
    """
    folder = out / run.folder
    with locked(folder / LOCK, f"training {run.folder}"):
        if is_finished(out, run, updates):
            return True
        sentences = read_multi30k(data, reverse=row(run.row).reverse)
        translator, interrupted = _train(
            folder, run, sentences, updates, pause_after, device, progress
        )
        if interrupted:
            return False
        if watched := _history(folder).get("watched"):
            write_json(folder / TRAJECTORY, watched)
        write_json(folder / RESULT, _measured(folder, run, translator, sentences, progress))
    return True


def _train(
    folder: Path,
    run: Run,
    sentences: Data,
    updates: int | None,
    pause_after: int | None,
    device: str,
    progress: bool,
) -> tuple[Translator, bool]:
    of_row = row(run.row)
    experiment = of_row.experiment(run.seed)
    settings = experiment.training | ({} if updates is None else {"updates": updates})
    config = TrainingConfig(**settings)
    resume = (folder / LAST).exists()
    curve = _Curve(folder / CURVE, config, _history(folder)["update"] if resume else [])
    translator, history = train_translator(
        of_row.architecture,
        sentences.train,
        sentences.dev,
        config,
        segmenter=experiment.segmenter(sentences.train),
        tokens=experiment.data["tokens"],
        directory=folder,
        resume=resume,
        pause_after=pause_after,
        on_validation=lambda model, found: curve.measure(model, found, sentences.dev[:TRACED]),
        device=device,
        progress=progress,
        **experiment.model,
    )
    return translator, history.interrupted


class _Curve:
    """What was found at each validation, in a file; a run that is resumed goes on with it."""

    def __init__(self, path: Path, config: TrainingConfig, validated: Sequence[int]) -> None:
        self.path, self.config = path, config
        there = read_json(path) if path.exists() else []
        self.entries = [entry for entry in there if entry["update"] in validated]
        self.validations = len(validated)
        self.pairs: list[Pair] | None = None

    def measure(self, translator: Translator, validation: Validation, sentences: Any) -> None:
        every = self.config.validate_every
        assert every is not None
        self.validations += 1
        if self.pairs is None:
            self.pairs = translator.pairs(sentences)
        entry: dict[str, Any] = {
            "update": min(self.validations * every, self.config.updates),
            "dev_loss": round(validation.loss, 4),
            "dev_token_accuracy": round(100 * validation.accuracy, 2),
        }
        entry |= {name: round(x, 3) for name, x in supports(translator, self.pairs).items()}
        self.entries.append(entry | _alphas(translator))
        write_json(self.path, self.entries)


def _measured(
    folder: Path, run: Run, translator: Translator, sentences: Data, progress: bool
) -> dict[str, Any]:
    """Everything that the table says of a finished run."""
    started = time.perf_counter()
    translations = translator.translate_all(
        [pair.source for pair in sentences.val], beam=BEAM, progress=progress
    )
    seconds = time.perf_counter() - started
    references = [pair.target for pair in sentences.val]
    found = bleu(translations, references)
    write_text(folder / TRANSLATIONS, "".join(f"{line}\n" for line in translations))
    _, meta = load_checkpoint(folder / LAST, TRAINING_STATE)
    val = translator.pairs(sentences.val)
    return {
        "row": run.row,
        "seed": run.seed,
        "what": row(run.row).what,
        "updates": meta["updates"],
        "dev_token_accuracy": round(100 * max(meta["history"]["dev_accuracy"]), 2),
        "bleu": round(found.score, 2),
        "signature": found.signature,
        "beam": BEAM,
        "decode_seconds": round(seconds, 1),
        "train_seconds": round(meta["seconds"], 1),
        "tokens_per_second": round(meta["count"] / meta["seconds"]),
        "supports": {name: round(x, 3) for name, x in supports(translator, val).items()},
        **_alphas(translator),
        "date": time.strftime("%Y-%m-%d"),
    }


def _alphas(translator: Translator) -> dict[str, Any]:
    """The learned α of each head, if there are any."""
    if not isinstance(translator.model, Transformer):
        return {}
    alphas = translator.model.alphas()
    return {"alphas": {kind: x.round(3).tolist() for kind, x in alphas.items()}} if alphas else {}


def _history(folder: Path) -> dict[str, Any]:
    _, meta = load_checkpoint(folder / LAST, TRAINING_STATE)
    history: dict[str, Any] = meta["history"]
    return history
