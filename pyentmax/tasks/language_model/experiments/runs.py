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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.analysis import epsilon_perplexity, jensen_shannon, sparsemax_score
from pyentmax.calls.devices import to_host
from pyentmax.data import DataError, cut
from pyentmax.models.language_model import LanguageModel
from pyentmax.nn.mapping_choice import choose_mapping
from pyentmax.system.blas import limit_blas
from pyentmax.tasks.language_model.experiments.rows import BATCH, CONTEXT, KS, row
from pyentmax.tasks.language_model.text import Text
from pyentmax.tasks.language_model.training import train_writer
from pyentmax.tasks.language_model.writer import Writer
from pyentmax.tasks.records import fingerprint_of_texts, open_folder
from pyentmax.tasks.runs import Curve, Run, finish, has_result, speed, training_state
from pyentmax.training import LAST, RunOptions, TrainingConfig, Validation

TRACED = 4
"""Pieces of the held-out text on which attended positions are counted at each validation."""
LENGTHS = (256, 512, 1024)
MEASURED = 64 * 256
"""Characters at the end of the held-out text on which other lengths and other k are tried."""


def is_finished(out: Path, run: Run, updates: int | None = None) -> bool:
    """Whether the result of a run has been written, after as many updates as are asked for."""
    return has_result(out, run, row(run.row).updates if updates is None else updates)


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
    A finished run is left as it is. If another process is at it, the call waits. All runs of a
    folder have one text, or a ValueError is raised.
    """

    def prepare() -> TrainingConfig:
        config = row(run.row).settings(run.seed, updates)
        least = max(TRACED * CONTEXT, *LENGTHS) + 1
        if len(text.held_out) < least:
            raise DataError(
                f"held-out text: expected at least {least:,} characters to measure on, a tenth of "
                f"the text, got {len(text.held_out):,}"
            )
        open_folder(out, {"text": fingerprint_of_texts(text)})
        return config

    def work(folder: Path, config: TrainingConfig) -> dict[str, Any] | None:
        writer, history = train_writer(
            text,
            config,
            RunOptions(
                folder, resume=(folder / LAST).exists(), pause_after=pause_after, progress=progress
            ),
            context=CONTEXT,
            batch_size=BATCH,
            device=device,
            on_validation=partial(_record, Curve(folder, config), text),
            **row(run.row).config(),
        )
        return None if history.interrupted else _measured(folder, run, writer, text)

    wanted = row(run.row).updates if updates is None else updates
    return finish(out, run, wanted, prepare, work)


def _record(curve: Curve, text: Text, writer: Writer, validation: Validation) -> None:
    """Write what a validation found, and how much the heads attend to on some pieces."""
    entry = {
        "loss": round(validation.loss, 4),
        "accuracy": round(100 * validation.accuracy, 2),
        "attended": round(float(attended(writer, writer.encode(text.held_out)).mean()), 2),
    }
    if not writer.model.output_is_sparse:  # cross-entropy, in bits
        entry["bits"] = round(validation.loss / math.log(2), 4)
    curve.add(entry)


@limit_blas()
def attended(writer: Writer, tokens: np.ndarray) -> np.ndarray:
    """Mean number of positions with a weight above zero, by layer and head, on some pieces."""
    starts = np.arange(TRACED) * writer.context
    pieces = cut(tokens, starts, writer.context).tokens_in
    weights = writer.model.attention_weights(pieces)
    return np.array([to_host((x > 0).sum(axis=-1).mean(axis=(0, 2))) for x in weights])


def _measured(folder: Path, run: Run, writer: Writer, text: Text) -> dict[str, Any]:
    """Everything that the table says of a finished run."""
    meta = training_state(folder)
    held_out = writer.encode(text.held_out)
    bits, scores = _scores(writer, held_out)
    result = {
        "what": row(run.row).what,
        "updates": meta["updates"],
        "bits": bits,
        "attended": attended(writer, held_out).round(2).tolist(),
        "scores": scores,
        "train_seconds": round(meta["seconds"], 1),
        "tokens_per_second": round(speed(meta)),
        "date": time.strftime("%Y-%m-%d"),
    }
    alphas = writer.model.alphas()
    if alphas is not None:
        result["alphas"] = alphas.round(3).tolist()
    if result["bits"] is not None:
        result["by_length"] = {str(n): round(_at_length(writer, held_out, n), 4) for n in LENGTHS}
    if result["bits"] is not None and _has_k(writer.model):
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
