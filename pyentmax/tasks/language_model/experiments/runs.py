"""Training and measuring the rows of the table, a folder for each row and seed:

    OUT/1.5-slow.seed-0/
        last.npz best.npz   the training run, as by `python -m pyentmax train language-model`
        curve.json          at each validation: bits per character, and how much the heads attend to
        result.json         written last: the row is finished

A run can be stopped at any time: the same command continues it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyentmax.analysis import epsilon_perplexity, jensen_shannon, sparsemax_score
from pyentmax.calls.devices import to_host
from pyentmax.data import cut
from pyentmax.models.language_model import LanguageModel
from pyentmax.nn.mapping_choice import choose_mapping
from pyentmax.system.blas import limit_blas
from pyentmax.system.files import locked
from pyentmax.tasks.language_model.experiments.rows import BATCH, CONTEXT, KS, row
from pyentmax.tasks.language_model.text import Text
from pyentmax.tasks.language_model.training import train_writer
from pyentmax.tasks.language_model.writer import Writer
from pyentmax.tasks.records import read_json, write_json
from pyentmax.training import LAST, TRAINING_STATE, TrainingConfig, Validation, load_checkpoint

RESULT, CURVE, LOCK = "result.json", "curve.json", "lock"
TRACED = 4
"""Pieces of the held-out text on which attended positions are counted at each validation."""
LENGTHS = (256, 512, 1024)
MEASURED = 64 * 256
"""Characters at the end of the held-out text on which other lengths and other k are tried."""


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
    wanted = row(run.row).updates if updates is None else updates
    return path.exists() and bool(read_json(path)["updates"] >= wanted)


def do_run(
    out: Path,
    run: Run,
    text: Text,
    *,
    updates: int | None = None,
    pause_after: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> bool:
    """Train or resume a run, and write its result; False if it was stopped before.

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
        config = row(run.row).settings(run.seed, updates)
        resume = (folder / LAST).exists()
        curve = _Curve(folder / CURVE, config, _history(folder)["update"] if resume else [])
        writer, history = train_writer(
            text,
            config,
            context=CONTEXT,
            batch_size=BATCH,
            directory=folder,
            resume=resume,
            pause_after=pause_after,
            device=device,
            progress=progress,
            on_validation=lambda model, found: curve.measure(model, found, text),
            **row(run.row).config(),
        )
        if history.interrupted:
            return False
        write_json(folder / RESULT, _measured(folder, run, writer, text))
    return True


class _Curve:
    """What was found at each validation, in a file; a run that is resumed goes on with it."""

    def __init__(self, path: Path, config: TrainingConfig, validated: Sequence[int]) -> None:
        self.path, self.config = path, config
        there = read_json(path) if path.exists() else []
        self.entries = [entry for entry in there if entry["update"] in validated]
        self.validations = len(validated)

    def measure(self, writer: Writer, validation: Validation, text: Text) -> None:
        every = self.config.validate_every
        assert every is not None
        self.validations += 1
        entry = {
            "update": min(self.validations * every, self.config.updates),
            "loss": round(validation.loss, 4),
            "accuracy": round(100 * validation.accuracy, 2),
            "attended": round(float(attended(writer, writer.encode(text.held_out)).mean()), 2),
        }
        if not writer.model.output_is_sparse:  # cross-entropy, in bits
            entry["bits"] = round(validation.loss / math.log(2), 4)
        self.entries.append(entry)
        write_json(self.path, self.entries)


@limit_blas()
def attended(writer: Writer, tokens: np.ndarray) -> np.ndarray:
    """Mean number of positions with a weight above zero, by layer and head, on some pieces."""
    starts = np.arange(TRACED) * writer.context
    pieces = cut(tokens, starts, writer.context).tokens_in
    weights = writer.model.attention_weights(pieces)
    return np.array([to_host((x > 0).sum(axis=-1).mean(axis=(0, 2))) for x in weights])


def _measured(folder: Path, run: Run, writer: Writer, text: Text) -> dict[str, Any]:
    """Everything that the table says of a finished run."""
    _, meta = load_checkpoint(folder / LAST, TRAINING_STATE)
    held_out = writer.encode(text.held_out)
    bits, scores = _scores(writer, held_out)
    result = {
        "row": run.row,
        "seed": run.seed,
        "what": row(run.row).what,
        "updates": meta["updates"],
        "bits": bits,
        "attended": attended(writer, held_out).round(2).tolist(),
        "scores": scores,
        "train_seconds": round(meta["seconds"], 1),
        "tokens_per_second": round(meta["count"] / meta["seconds"]),
        "date": time.strftime("%Y-%m-%d"),
    }
    alphas = writer.model.alphas()
    if alphas is not None:
        result["alphas"] = alphas.round(3).tolist()
    if result["bits"] is not None:
        result["by_length"] = {str(n): round(_at_length(writer, held_out, n), 4) for n in LENGTHS}
    if _has_k(writer.model):
        tried = {str(k): f"topk_softmax:{k}" for k in KS} | {"all": "softmax"}
        result["by_k"] = {
            name: round(with_attention(writer, choice).bits(held_out, limit=MEASURED), 4)
            for name, choice in tried.items()
        }
    return result


def with_attention(writer: Writer, attention: str) -> Writer:
    """The same parameters, with another mapping in every head where the model is used."""
    model = writer.model
    config = replace(model.config, inference_attention=attention)
    other = LanguageModel(config, model.params, model.bos, model.eos)
    return Writer(other, writer.vocabulary, writer.context)


def _has_k(model: LanguageModel) -> bool:
    """Whether the heads are softmax or its k largest, so that other k can be tried."""
    choice = model.config.attention
    return choice != "learned" and choose_mapping(choice).name in ("softmax", "topk_softmax")


@limit_blas()
def _scores(writer: Writer, tokens: np.ndarray) -> tuple[float | None, dict[str, float]]:
    """Bits per character, None where one was impossible; and measures that allow for it."""
    found = list(writer.predictions(tokens))
    p = np.concatenate([part.probabilities for part in found])
    labels = np.concatenate([part.labels for part in found])
    of_label = np.take_along_axis(p, labels[:, None], axis=1).astype(np.float64)
    impossible = float((of_label == 0).mean())
    measures = (epsilon_perplexity, sparsemax_score, jensen_shannon)
    scores = {measure.__name__: round(measure(p, labels), 4) for measure in measures}
    scores["possible"] = round(float((p > 0).sum(axis=-1).mean()), 2)
    scores["ruled_out"] = round(impossible, 5)
    bits = None if impossible else round(float(-np.log2(of_label).mean()), 4)
    return bits, scores


def _at_length(writer: Writer, tokens: np.ndarray, length: int) -> float:
    """Bits per character of the last ones, each piece of 256 after what is before it."""
    return writer.bits(tokens, length, LENGTHS[0], MEASURED)


def _history(folder: Path) -> dict[str, Any]:
    _, meta = load_checkpoint(folder / LAST, TRAINING_STATE)
    history: dict[str, Any] = meta["history"]
    return history
