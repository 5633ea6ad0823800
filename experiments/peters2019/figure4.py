"""Figure 4: accuracy against α, for the attention and for the output (Peters et al. 2019).

The paper shows translation from German; this is the inflection of one language, which trains in
seconds (translation: `figure4_translation.py`). One of the two mappings is α-entmax with α from a
list, the other stays at 1.5.

What came out (English, medium, three seeds): attention 81.4 with softmax, 82.4 to 83.1 with every
sparse α; output 81.4 at 1.25 rising to 84.6 at 2, softmax 82.8. The paper has its optimum near 1.5;
here sparsemax is as good as any, as in its Table 1. Half a minute a model on one core.

    python -m experiments.peters2019.figure4 --data FOLDER --seed 0 1 2
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.peters2019.inflection import add_small_options, small_run, small_settings
from experiments.pictures import panels, points, save
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import grouped, markdown, spread, values

OTHER = "1.5"
ROLES = {"attention": "loss", "loss": "attention"}  # whose α varies → which stays


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    alphas = ["1", "1.25", "1.5", "1.75", "2"]
    parser.add_argument("--alpha", nargs="+", default=alphas, metavar="A", help="from 1 up")
    add_small_options(parser, size="medium", layers=2, updates=1200, batch_size=16, validations=2)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """Each α for the attention, then for the loss, seed by seed; the common point only once."""
    shared = small_settings(args)
    pairs = [(OTHER, alpha) for alpha in args.alpha] + [(alpha, OTHER) for alpha in args.alpha]
    return [
        [
            {"loss": loss, "attention": attention, "seed": seed, **shared}
            for seed in args.seed
            for loss, attention in dict.fromkeys(pairs)
        ]
    ]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model and measure it after the last update."""
    return small_run(settings, folder, options)[2]


def _accuracies(lines: list[Line]) -> dict[str, dict[float, list[float]]]:
    """Role → α → the accuracies of its seeds."""
    return {
        role: {
            float(alpha): values(group, "accuracy")
            for (other, alpha), group in sorted(grouped(lines, stays, role).items())
            if other == OTHER
        }
        for role, stays in ROLES.items()
    }


def report(lines: list[Line]) -> str:
    """Accuracy at each α, mean and standard error over seeds."""
    roles = _accuracies(lines)
    alphas = sorted({alpha for role in roles.values() for alpha in role})
    rows = [
        [f"{alpha:g}", *(spread(role.get(alpha, [])) for role in roles.values())]
        for alpha in alphas
    ]
    return markdown(["α", "attention", "output"], rows)


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw the two lines."""
    axes = panels()
    attention, output = _accuracies(lines).values()
    points(axes[0], {"attention": attention, "output": output}, "α", "dev accuracy, %")
    return [save(axes, folder / "figure4.png")]


EXPERIMENT = Experiment("peters2019/figure4", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
