"""Captions with dense and with sparse attention: a model per mapping, measured on the same images.

    OUT/softmax.seed-0/
        last.npz best.npz   the training run
        result.json         written last: the run is finished
    OUT/table.md            all that are finished
    OUT/captions.png        where each model looks, on an image of the test part

A run can be stopped at any time: the same command continues it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.calls.devices import to_host
from pyentmax.models.grid_transformer import GridTransformer
from pyentmax.tasks.captions.captioner import Captioner, looked_right
from pyentmax.tasks.captions.scenes import GRID
from pyentmax.tasks.captions.training import (
    HELD_OUT,
    MODEL,
    TRAINING,
    CaptionData,
    Pictures,
    draw_data,
    train_captioner,
)
from pyentmax.tasks.records import of_results, open_folder, write_text
from pyentmax.tasks.runs import (
    RESULT,
    Run,
    finish,
    has_result,
    read_result,
    recorded_runs,
    speed,
    training_state,
)
from pyentmax.training import BEST, LAST, RunOptions, TrainingConfig

ROWS = {"softmax": "1", "entmax15": "1.5", "top4": "topk_softmax:4"}
"""Name → the mapping of every head."""
SWAPPED = ("1", "topk_softmax:1", "topk_softmax:2", "topk_softmax:4", "topk_softmax:8")
"""Mappings that stand in for that of the training, where the model is used."""


def is_finished(out: Path, run: Run, updates: int | None = None) -> bool:
    """Whether the result of a run has been written, after as many updates as are asked for."""
    return has_result(out, run, int(TRAINING["updates"]) if updates is None else updates)


def do_run(
    out: Path,
    run: Run,
    *,
    updates: int | None = None,
    pause_after: int | None = None,
    count: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> bool:
    """Train or resume a run and write its result; False if it was stopped before.

    Parameters
    ----------
    updates, count : int, optional
        Instead of the experiment's: updates, and images in all, a tenth of them to choose by and a
        tenth to report.
    pause_after : int, optional
        Stop when so many updates are done; the run can go on later.

    Raises
    ------
    ValueError
        If there is no such row, or the folder has results on another number of images.
    """
    check_row(run.row)
    settings = TRAINING | ({} if updates is None else {"updates": updates})

    def prepare() -> CaptionData:
        data = experiment_data(count)
        open_folder(out, {"images": sum(len(part.scenes) for part in data)})
        return data

    def work(folder: Path, data: CaptionData) -> dict[str, Any] | None:
        captioner, history = train_captioner(
            data,
            TrainingConfig(**settings, seed=run.seed),
            RunOptions(
                folder, resume=(folder / LAST).exists(), pause_after=pause_after, progress=progress
            ),
            device=device,
            attention=ROWS[run.row],
            **MODEL,
        )
        return None if history.interrupted else _result(captioner, data, folder)

    return finish(out, run, settings["updates"], prepare, work, _has_model_if_it_can)


def _has_model_if_it_can(folder: Path) -> bool:
    """Whether a run has its model, which the picture needs, or no ``last.npz`` to write it from."""
    return (folder / BEST).exists() or not (folder / LAST).exists()


def check_row(name: str) -> None:
    """Raise a ValueError unless it is a row of the table."""
    if name not in ROWS:
        raise ValueError(f"row: expected one of {', '.join(ROWS)}; got {name!r}")


def held_out(count: int | None = None) -> int:
    """How many images the experiment chooses by, and on how many it reports: a tenth each."""
    return HELD_OUT if count is None else max(count // 10, 1)


def experiment_data(count: int | None = None) -> CaptionData:
    """The images of the experiment, or fewer: a tenth to choose by, and a tenth to report."""
    return draw_data() if count is None else draw_data(count, held_out(count))


def _result(captioner: Captioner, data: CaptionData, folder: Path) -> dict[str, Any]:
    meta = training_state(folder)
    swapped = {name: _exact(_with_attention(captioner, name), data.test) for name in SWAPPED}
    return {
        **measured(captioner, data.test),
        "used_with": swapped,
        "curve": {name: meta["history"][name] for name in ("update", "loss", "dev_accuracy")},
        "updates": meta["updates"],
        "train_seconds": round(meta["seconds"], 1),
        "images_per_second": round(speed(meta), 1),
        "date": time.strftime("%Y-%m-%d"),
    }


def measured(captioner: Captioner, pictures: Pictures) -> dict[str, float]:
    """What a model does on some images: shares from 0 to 1, and a mean number of cells.

    ``exact`` are the captions that are right in every word. Of the words of these that can be read
    in one cell, ``looked_right`` are those where that cell has most weight in the last layer, the
    mean of its heads, and ``weight`` is the mean of that weight. ``cells`` is how many cells a head
    of the last layer gives any weight.
    """
    found = captioner.caption(pictures.images)
    weights = [
        attention[cell]
        for said, scene in zip(found, pictures.scenes, strict=True)
        if " ".join(said.words) == scene.caption
        for cell, attention in zip(scene.sought(), said.attention, strict=True)
        if cell >= 0
    ]
    return {
        "exact": _exact_share(found, pictures),
        "looked_right": float(looked_right(found, pictures.scenes).mean()) if weights else 0.0,
        "weight": float(np.mean(weights)) if weights else 0.0,
        "cells": _cells(captioner, pictures),
    }


def _exact(captioner: Captioner, pictures: Pictures) -> float:
    return _exact_share(captioner.caption(pictures.images), pictures)


def _exact_share(found: Sequence[Any], pictures: Pictures) -> float:
    pairs = zip(found, pictures.scenes, strict=True)
    return float(np.mean([" ".join(said.words) == scene.caption for said, scene in pairs]))


def _cells(captioner: Captioner, pictures: Pictures) -> float:
    """How many cells a head of the last layer gives any weight, as it reads the captions."""
    total = rows = 0
    for batch in captioner.batches(*pictures, 128):
        found = captioner.model.attention_weights(batch.source, batch.source_mask, batch.target_in)
        support = to_host((found["context"][-1] > 0).sum(axis=-1))  # (images, heads, words)
        total += int((support * batch.target_mask[:, None]).sum())
        rows += int(batch.target_mask.sum()) * support.shape[1]
    return total / rows


def _with_attention(captioner: Captioner, attention: str) -> Captioner:
    """The same parameters with another mapping in every head (Explicit Sparse Transformer, T5)."""
    model = captioner.model
    config = replace(model.config, inference_attention=attention)
    other = GridTransformer(config, model.params, model.bos, model.eos)
    return Captioner(other, captioner.vocabulary)


def recorded(out: Path) -> list[dict[str, Any]]:
    """The results of all finished runs, in the order of the rows."""
    found = [read_result(out / run.folder) for run in recorded_runs(out, ROWS, RESULT)]
    return [result for result in found if result is not None]


@of_results
def write_report(out: Path) -> str:
    """Write ``table.md``; returns the tables."""
    results = recorded(out)
    lines = [
        "| attention | seed | exact match | attended cell right | its weight | cells attended | "
        "updates | images/s |",
        "| --- " * 8 + "|",
    ]
    for r in results:
        shares = " | ".join(f"{100 * r[name]:.1f}%" for name in ("exact", "looked_right", "weight"))
        lines.append(
            f"| {r['row']} | {r['seed']} | {shares} | {r['cells']:.1f} | {r['updates']:,} | "
            f"{r['images_per_second']:.0f} |"
        )
    lines += [
        "",
        f"| trained with | {' | '.join(f'used with {name}' for name in SWAPPED)} |",
        "| --- " * (1 + len(SWAPPED)) + "|",
    ]
    for r in results:
        shares = " | ".join(f"{100 * r['used_with'][name]:.1f}%" for name in SWAPPED)
        lines.append(f"| {r['row']}, seed {r['seed']} | {shares} |")
    text = "\n".join(lines)
    write_text(out / "table.md", text + "\n")
    return text


def draw_looks(out: Path, runs: Sequence[Run], test: Pictures, image: int = 0) -> Path:
    """Draw where the models of some runs look on one of the images, as ``captions.png``."""
    from pyentmax.plotting import plot_captions, save_figure

    scene, pixels = test.scenes[image], test.images[image]
    looks = {}
    for run in runs:
        [said] = Captioner.load(out / run.folder).caption(pixels[None])
        looks[run.row] = (said.words, said.attention.reshape(-1, GRID, GRID))
    return save_figure(plot_captions(pixels, looks, scene.sought()), out / "captions.png")
