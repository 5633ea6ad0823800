"""§4.1 on the English verbs: how far small models get, and what they list for *draw*.

A setting such as `high-2-5300` is the training file, the number of layers and of updates. In
`no-draw` settings *draw* and its compounds are held out of training.

What came out (three seeds, dev, after the last update): with two layers and 16,000 updates 95.5,
96.3 and 96.5% with softmax, 1.5-entmax and the sparsemax loss, where one string holds all the
probability for 94 and 96% of the words; PyTorch with the `entmax` package, one seed, 93.6 to 95.7%
in shorter settings where this library has 95.2 to 95.9. From 20 seconds to eight minutes a model.

    python -m experiments.peters2019.english --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.peters2019.inflection import small_run
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import grouped, markdown, mean, spread, values

SETTINGS: dict[str, Settings] = {
    f"{name}-{layers}-{updates}": {
        "size": "medium" if name == "medium" else "high",
        "layers": layers,
        "updates": updates,
        "batch_size": 16 if name == "medium" else 32,
        **({"held_out": "draw"} if name == "no-draw" else {}),
    }
    for name, layers, updates in (
        ("high", 1, 3100),
        ("high", 2, 5300),
        ("high", 1, 16000),
        ("high", 2, 16000),
        ("medium", 2, 1200),
        ("no-draw", 1, 3100),
        ("no-draw", 1, 16000),
    )
}
PYTORCH = {"high-1-3100": 93.6, "high-2-5300": 95.7, "high-1-16000": 95.2, "medium-2-1200": 83.4}
"""What PyTorch with the `entmax` package reached with 1.5-entmax, one seed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--setting", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    add("--loss", nargs="+", default=["1.5", "1", "2"], metavar="MAPPING")
    add("--seed", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    add("--updates", type=int, help="instead of the setting's")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """Each setting with each loss and seed."""
    shared = {"languages": ["english"], "hidden": 128, "dropout": 0.3, "rate": 3e-3, "beam": 5}
    shared |= {"validations": 10, "attention": "1.5"}
    more = {} if args.updates is None else {"updates": args.updates}
    return [
        [
            {"row": name, "loss": loss, "seed": seed, **shared, **SETTINGS[name], **more}
            for name in args.setting
            for loss in args.loss
            for seed in args.seed
        ]
    ]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model and measure it; what it lists for the past participle of *draw*."""
    inflector, _, measurements = small_run(settings, folder, options)
    result = inflector.inflect("draw", "V;V.PTCP;PST")
    listed = {inflector.form(h.tokens): round(h.probability, 4) for h in result.hypotheses[:5]}
    return measurements | {"draw": listed, "draw_exact": result.exact}


def report(lines: list[Line]) -> str:
    """A row for each setting and loss, seeds averaged."""
    columns = (
        "setting, loss, seeds, dev accuracy, PyTorch, one sequence, beam 5 exact, "
        "draw (first seed), CPU seconds"
    ).split(", ")
    rows = []
    groups = grouped(lines, "row", "loss")
    for name, loss in sorted(groups, key=lambda pair: (list(SETTINGS).index(pair[0]), pair[1])):
        group = groups[name, loss]
        group.sort(key=lambda line: line["settings"]["seed"])
        draw = " ".join(f"{form} {p:.4f}" for form, p in group[0]["result"]["draw"].items())
        shares = [f"{mean(values(group, share), 0)}%" for share in ("single", "exact")]
        pytorch = PYTORCH.get(name, "–") if loss == "1.5" else "–"
        accuracy = spread(values(group, "accuracy"))
        seconds = mean(values(group, "cpu_seconds"), 0)
        rows.append([name, loss, len(group), accuracy, pytorch, *shares, draw, seconds])
    return markdown(columns, rows)


EXPERIMENT = Experiment("peters2019/english", __doc__, runs, work, report, None, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
