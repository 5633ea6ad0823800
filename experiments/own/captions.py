"""Captions in miniature: is a word looked for where it can be read? (Zhao et al. 2019, §4.2)

The paper captions photographs of Microsoft COCO, which do not come with this library. Here are
5,000 images that it draws itself, in which it is known where each word is to be read; a decoder
attends to the 64 cells of an image.

What came out (one seed, 500 images): softmax has 98.0% of the captions right in every word,
1.5-entmax 99.2%, top-4 99.8%. Both sparse models look where the word is for 96 and 92% of the
words; that dense attention is the more diffuse one does not hold: softmax does so for 99.8%. Sparse
in training only is worse than sparse in both: 87 of 99.8%. One to three minutes a model on one
core.

    python -m experiments.own.captions
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.own.captioning import Captioner, Pictures, draw_data, train_captioner
from experiments.own.captioning.grid_transformer import GridTransformer
from experiments.own.captioning.scenes import GRID
from experiments.runner import Experiment, Line, Options, Settings, finished, run_options, speed
from experiments.tables import markdown
from pyentmax.seq2seq.plotting import save_figure
from pyentmax.seq2seq.training import TrainingConfig

ROWS = {"softmax": "1", "entmax15": "1.5", "top4": "topk_softmax:4"}
"""Name → the mapping of every head."""
SWAPPED = ("1", "topk_softmax:1", "topk_softmax:2", "topk_softmax:4", "topk_softmax:8")
"""Mappings that replace that of the training where the model is used."""
SHAPE = {"width": 64, "layers": 2, "heads": 4, "inner": 128, "dropout": 0.0, "norm": "pre"}
SHOWN = 0  # the image of the test part whose attention is kept for the picture
WIDTH = 1472  # of the picture in pixels, twice that of a page


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--row", nargs="+", default=list(ROWS), choices=ROWS, metavar="NAME")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--updates", type=int, default=1200)
    add("--images", type=int, default=5000, help="in all; a tenth to choose by, a tenth to report")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """Each mapping with each seed."""
    training = {"rate": 2e-3, "validate_every": 200}
    shared = {"updates": args.updates, "images": args.images, "training": training}
    return [
        [
            {"row": row, "seed": seed, **shared, "model": {"attention": ROWS[row], **SHAPE}}
            for seed in args.seed
            for row in args.row
        ]
    ]


# --- a run ----------------------------------------------------------------------------------------
def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model, and measure it on the test part."""
    data = draw_data(settings["images"])
    captioner, history = train_captioner(
        data,
        TrainingConfig(updates=settings["updates"], seed=settings["seed"], **settings["training"]),
        run_options(folder, options),
        **settings["model"],
    )
    finished(history)
    [example] = captioner.caption(data.test.images[SHOWN][None])
    return {
        **measured(captioner, data.test),
        "used_with": {
            name: exact_share(with_attention(captioner, name).caption(data.test.images), data.test)
            for name in SWAPPED
        },
        "shown": {
            "words": list(example.words),
            "attention": np.round(example.attention, 4).tolist(),
        },
        **speed(history),
        "curve": {name: getattr(history, name) for name in ("update", "loss", "dev_accuracy")},
    }


def measured(captioner: Captioner, pictures: Pictures) -> dict[str, float]:
    """What a model does on some images: shares from 0 to 1, and a mean number of cells.

    ``exact`` are the captions that are right in every word. Of the words of these that can be read
    in one cell, ``looked_right`` are those where that cell has most weight in the last layer, the
    mean of its heads, and ``weight`` is the mean of that weight. ``cells`` is how many cells a head
    of the last layer gives any weight.
    """
    captions = captioner.caption(pictures.images)
    read = [
        (attention, cell)
        for said, scene in zip(captions, pictures.scenes, strict=True)
        if " ".join(said.words) == scene.caption
        for cell, attention in zip(scene.sought(), said.attention, strict=True)
        if cell >= 0
    ]
    return {
        "exact": exact_share(captions, pictures),
        "looked_right": float(np.mean([a.argmax() == cell for a, cell in read])) if read else 0.0,
        "weight": float(np.mean([a[cell] for a, cell in read])) if read else 0.0,
        "cells": _cells(captioner, pictures),
    }


def exact_share(captions: Sequence[Any], pictures: Pictures) -> float:
    """The share of captions that are right in every word."""
    pairs = zip(captions, pictures.scenes, strict=True)
    return float(np.mean([" ".join(said.words) == scene.caption for said, scene in pairs]))


def _cells(captioner: Captioner, pictures: Pictures) -> float:
    """How many cells a head of the last layer gives any weight, as it reads the captions."""
    total = rows = 0
    for batch in captioner.batches(*pictures, 128):
        weights = captioner.model.attention_weights(
            batch.source, batch.source_mask, batch.target_in
        )
        support = (weights["context"][-1] > 0).sum(axis=-1)  # (images, heads, words)
        total += int((support * batch.target_mask[:, None]).sum())
        rows += int(batch.target_mask.sum()) * support.shape[1]
    return total / rows


def with_attention(captioner: Captioner, attention: str) -> Captioner:
    """The same parameters with another mapping in every head (Zhao et al. 2019, Table 5)."""
    model = captioner.model
    config = replace(model.config, inference_attention=attention)
    other = GridTransformer(config, model.params, model.bos, model.eos)
    return Captioner(other, captioner.vocabulary)


# --- tables and pictures --------------------------------------------------------------------------
def report(lines: list[Line]) -> str:
    """What each model does, and what it does with another mapping in use."""
    columns = ["attention", "seed", "exact match", "attended cell right", "its weight"]
    rows, swapped = [], []
    for line in lines:
        settings, result = line["settings"], line["result"]
        name = [settings["row"], settings["seed"]]
        shares = [f"{100 * result[x]:.1f}%" for x in ("exact", "looked_right", "weight")]
        rows.append([*name, *shares, f"{result['cells']:.1f}", f"{settings['updates']:,}"])
        used = [f"{100 * result['used_with'][x]:.1f}%" for x in SWAPPED]
        swapped.append([*name, *used])
    other = markdown(["trained with", "seed", *(f"used with {x}" for x in SWAPPED)], swapped)
    return f"{markdown([*columns, 'cells attended', 'updates'], rows)}\n\n{other}"


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw where the models look on one image: a row each, a panel per word.

    The brighter a cell, the more weight it has; an outline is a weight above zero; a cross is the
    cell where the word can be read. Lines that do not have the weights are left out.
    """
    from matplotlib.figure import Figure

    lines = [line for line in lines if "shown" in line["result"]]
    if not lines:
        return []
    images = lines[0]["settings"]["images"]
    test = draw_data(images).test
    sought = test.scenes[SHOWN].sought()
    longest = max(1, *(len(line["result"]["shown"]["words"]) for line in lines))
    figure = Figure(figsize=(1.65 * longest + 0.3, 1.95 * len(lines)), layout="constrained")
    rows = figure.subplots(len(lines), longest, squeeze=False)
    for axes, line in zip(rows, lines, strict=True):
        shown = line["result"]["shown"]
        for place, ax in enumerate(axes):
            if place >= len(shown["words"]):
                ax.set_axis_off()
                continue
            cell = sought[place] if place < len(sought) else -1
            _draw_cells(ax, test.images[SHOWN], np.array(shown["attention"][place]), cell)
            ax.set_title(shown["words"][place], fontsize=10)
        axes[0].set_ylabel(line["settings"]["row"], fontsize=10)
    return [save_figure(rows[0, 0], folder / "captions.png", dpi=WIDTH / figure.get_figwidth())]


def _draw_cells(ax: Any, image: np.ndarray, weights: np.ndarray, sought: int) -> None:
    from matplotlib.patches import Rectangle

    grid = weights.reshape(-1, GRID)
    side = len(image) // GRID
    light = 0.22 + 0.78 * (np.kron(grid, np.ones((side, side))) / grid.max()) ** 0.5
    ax.imshow(image / 255 * light[..., None], interpolation="nearest")
    for row, column in np.argwhere(grid > 0):
        corner = (column * side - 0.5, row * side - 0.5)
        width = 0.5 + 1.5 * grid[row, column] / grid.max()
        ax.add_patch(Rectangle(corner, side, side, fc="none", ec="#FFD54A", lw=width))
    if sought >= 0:
        row, column = divmod(sought, GRID)
        place = ((column + 0.5) * side - 0.5, (row + 0.5) * side - 0.5)
        ax.plot(*place, "x", color="white", ms=6, mew=2)
    ax.set_xticks([])
    ax.set_yticks([])


EXPERIMENT = Experiment("own/captions", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
