"""Figure 6: accuracy against the seconds of training (Peters et al. 2019).

The same model with softmax, with 1.5-entmax by its exact algorithm, and with 1.5-entmax by
bisection (`experiments.peters2019.bisection`), each as attention and as output, on the inflection
of one language. Bisection is plain NumPy. With PYENTMAX_BACKEND=reference so are the others, and
the algorithms are compared in one language; one folder can hold both.

What came out (English, high, one seed): 52, 54 and 87 CPU seconds with compiled kernels, and 94.5,
95.0 and 95.4%: the exact algorithm costs what softmax does, bisection 1.7 times as much (1.4 in the
paper, on a GPU). A minute a model on one core. The paper's task, translation, was not run: rows
rnn-1-1, rnn-1.5-1.5 and rnn-bisection of `table2.py`, ten minutes each.

    python -m experiments.peters2019.figure6 --data FOLDER
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peters2019.bisection import bisection
from experiments.peters2019.inflection import add_small_options, small_run, small_settings
from experiments.pictures import curves, panels, save
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import grouped, markdown, mean, values

NAMES = {
    "1": "softmax",
    "1.5": "1.5-entmax",
    f"{bisection.name}:1.5": "1.5-entmax by bisection",
    "entmax:1.5": "1.5-entmax by Newton's method",
}
MAPPINGS = ("1", "1.5", "bisection:1.5")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--mapping", nargs="+", default=list(MAPPINGS), help="α, a name, or bisection:ALPHA")
    add_small_options(parser, size="high", layers=1, updates=3100, batch_size=32, validations=10)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """Each mapping in both roles, seed by seed, so that a disturbance affects all of them."""
    numpy = os.environ.get("PYENTMAX_BACKEND") == "reference"
    shared = {**small_settings(args), "rest": "NumPy" if numpy else "compiled"}
    return [
        [
            {"loss": mapping, "attention": mapping, "seed": seed, **shared}
            for seed in args.seed
            for mapping in args.mapping
        ]
    ]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model, its seconds being those of the process, and measure it."""
    return small_run(settings, folder, options)[2]


def report(lines: list[Line]) -> str:
    """Seconds and accuracy of each mapping."""
    rows = []
    for (rest,), group in grouped(lines, "rest").items():
        mappings = grouped(group, "loss")
        seconds = {
            name: float(np.mean(values(x, "cpu_seconds"))) for (name,), x in mappings.items()
        }
        for (name,), of_mapping in mappings.items():
            ratio = f"{seconds[name] / seconds['1']:.2f}" if "1" in seconds else "–"
            accuracy = mean(values(of_mapping, "accuracy_greedy"))
            rows.append(
                [NAMES.get(name, name), rest, f"{seconds[name]:.0f}", ratio, f"{accuracy}%"]
            )
    columns = ["mapping", "the rest", "CPU seconds", "against softmax", "dev accuracy, greedy"]
    return markdown(columns, rows)


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw accuracy against seconds, cut off 15 points below the best."""
    runs_by_label = {
        f"{NAMES.get(mapping, mapping)}, {rest}": [
            (curve["seconds"], [100 * x for x in curve["dev_accuracy"]])
            for curve in values(group, "curve")
        ]
        for (mapping, rest), group in grouped(lines, "loss", "rest").items()
    }
    axes = panels()
    curves(axes[0], runs_by_label, "CPU seconds of training", "dev accuracy, %")
    best = max(max(y) for of_label in runs_by_label.values() for _, y in of_label)
    axes[0].set(xlim=(0, None), ylim=(best - 15, best + 1))
    return [save(axes, folder / "figure6.png")]


EXPERIMENT = Experiment("peters2019/figure6", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
