"""How can a Transformer with sparse heads start? Accuracy and supports on the way.

What came out (Multi30k, German to English, up to 3,200 updates, one seed): with 1.5-entmax from the
start 43.8% of the dev tokens after 800 updates where softmax has 49.6, since a query then sees two
positions and gets a gradient from no other; 48.6 with 0.3 of the rate for queries and keys, 46.6
after 400 updates of softmax, 49.5 after 1,200. `docs/guide/softmax-to-sparse.md` says why.
Five minutes a model on one core for 800 updates.

    python -m experiments.own.starts --data FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from experiments.pictures import curves, panels, save
from experiments.runner import Line, Options, Settings
from experiments.tables import values
from experiments.translation import PARTS, ROWS, experiment, models, train

STARTS = (
    "transformer-1",
    "transformer-1.5",
    "transformer-1.5-third",
    "transformer-1.5-slow",
    "transformer-1.5-switch",
    "transformer-1.5-late",
    "transformer-learned",
)

TICKS = (1, 2, 5, 10, 20)


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model; nothing is translated."""
    found: dict[str, Any] = train(settings, folder, options)[2]
    return found


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw accuracy and supports against updates."""
    titles = {"dev_accuracy": "dev token accuracy", **{p: f"attended: {p}" for p in PARTS}}
    axes = panels(len(titles), share_y=False)
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        runs_by_label = {
            ROWS[line["settings"]["row"]].what: [(curve["update"], curve[column])]
            for line in lines
            for curve in values([line], "curve")
            if column in curve
        }
        curves(ax, runs_by_label, "update", title)
        if column in PARTS:
            ax.set_yscale("log")
            ax.set_yticks(TICKS, [str(tick) for tick in TICKS])
            ax.minorticks_off()
    return [save(axes, folder / "starts.png")]


EXPERIMENT = experiment("own/starts", __doc__, STARTS, 800, runs=models, work=work, draw=draw)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
