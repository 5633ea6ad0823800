"""How the models of Table 1 got there: accuracy against epochs, and against hours.

One loss may lead early and another in the end, or one may be ahead at the same update and behind at
the same hour. The validations of all models, unfinished ones too, are read from their checkpoints.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyentmax.tasks.inflection.experiments.table1 import Settings
from pyentmax.tasks.records import of_results, write_csv, write_text
from pyentmax.training import LAST, TRAINING_STATE, load_checkpoint

FOLDER = re.compile(r"loss-(?P<loss>.+)\.attention-(?P<attention>.+)\.seed-(?P<seed>\d+)")
COLUMNS = (
    "loss attention seed epoch update seconds train_loss dev_loss dev_accuracy updates_done"
).split()
POINTS = 6  # epochs, and hours, at which the table compares


class Curve(NamedTuple):
    """The validations of one model."""

    loss: str
    attention: str
    seed: int
    updates_done: int  #: those since the last validation included
    history: dict[str, list[float]]  #: as a :class:`pyentmax.training.History` holds it
    epochs: list[int]  #: done at each validation

    @property
    def pair(self) -> str:
        """Its loss and attention, as the table names them."""
        return f"{self.loss} / {self.attention}"

    @property
    def hours(self) -> list[float]:
        """Hours of updates until each validation."""
        return [seconds / 3600 for seconds in self.history["seconds"]]


def read_curves(out: Path, settings: Settings) -> list[Curve]:
    """The curves of all models in the folder of a table, sorted by loss, attention and seed."""
    assert settings.epochs is not None
    assert settings.validate_every is not None
    curves = []
    for path in sorted(out.glob(f"loss-*/{LAST}")):
        name = FOLDER.fullmatch(path.parent.name)
        if name is None:
            continue
        _, meta = load_checkpoint(path, TRAINING_STATE)
        history = meta["history"]
        epochs = [
            min(settings.epochs, settings.validate_every * number)
            for number in range(1, len(history["update"]) + 1)
        ]
        # As the table names them: a folder has no colon, and no mapping a hyphen.
        loss, attention = (name[which].replace("-", ":") for which in ("loss", "attention"))
        known = loss, attention, int(name["seed"])
        curves.append(Curve(*known, meta["updates"], history, epochs))
    return sorted(curves)


@of_results
def write_curves(out: Path, settings: Settings) -> str:
    """Write ``curves.csv`` and ``curves.md``; returns the latter's table."""
    curves = read_curves(out, settings)
    rows = [
        {
            "loss": curve.loss,
            "attention": curve.attention,
            "seed": curve.seed,
            "epoch": epoch,
            "update": update,
            "seconds": f"{seconds:.0f}",
            "train_loss": f"{train_loss:.4f}",
            "dev_loss": f"{dev_loss:.4f}",
            "dev_accuracy": f"{100 * accuracy:.2f}",
            "updates_done": curve.updates_done,
        }
        for curve in curves
        for epoch, update, seconds, train_loss, dev_loss, accuracy in zip(
            curve.epochs,
            *(
                curve.history[name]
                for name in ("update", "seconds", "loss", "dev_loss", "dev_accuracy")
            ),
            strict=True,
        )
    ]
    write_csv(out / "curves.csv", COLUMNS, rows)
    table = format_curves(curves)
    write_text(out / "curves.md", table + "\n")
    return table


def format_curves(curves: Sequence[Curve]) -> str:
    """Two Markdown tables: accuracy of each pair at equal epochs, and at equal hours.

    They end where the model that has got least far is. A pair's seeds are averaged. At an hour
    between two validations, the accuracy is interpolated between them.
    """
    pairs = _by_pair([curve for curve in curves if curve.epochs])
    if not pairs:
        return "no validation yet"
    of_all = [curve for group in pairs.values() for curve in group]
    shared = sorted(set.intersection(*(set(curve.epochs) for curve in of_all)))
    chosen = sorted({shared[round(i)] for i in np.linspace(0, len(shared) - 1, POINTS)})
    lines = ["Greedy accuracy in percent at a validation, after the same epochs:", ""]
    lines += _table("epoch", pairs, {str(n): _at_epoch(pairs, n) for n in chosen})
    first = max(curve.hours[0] for curve in of_all)
    last = min(curve.hours[-1] for curve in of_all)
    if last > first:
        hours = np.linspace(first, last, POINTS)
        lines += ["", "And after the same hours of updates, interpolated between validations:", ""]
        digits = next(
            n for n in range(2, 9) if n == 8 or len({f"{h:.{n}f}" for h in hours}) == POINTS
        )
        lines += _table("hours", pairs, {f"{h:.{digits}f}": _at_hour(pairs, h) for h in hours})
    return "\n".join(lines)


def _by_pair(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    pairs: dict[str, list[Curve]] = defaultdict(list)
    for curve in curves:
        pairs[curve.pair].append(curve)
    return dict(pairs)


def _at_epoch(pairs: dict[str, list[Curve]], epoch: int) -> list[float]:
    return [
        100 * float(np.mean([c.history["dev_accuracy"][c.epochs.index(epoch)] for c in group]))
        for group in pairs.values()
    ]


def _at_hour(pairs: dict[str, list[Curve]], hour: float) -> list[float]:
    return [
        100 * float(np.mean([np.interp(hour, c.hours, c.history["dev_accuracy"]) for c in group]))
        for group in pairs.values()
    ]


def _table(
    name: str, pairs: dict[str, list[Curve]], accuracies: dict[str, list[float]]
) -> list[str]:
    lines = [f"| {name} | " + " | ".join(pairs) + " |", "| --- |" + " --- |" * len(pairs)]
    for key, values in accuracies.items():
        lines.append(f"| {key} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
    return lines


def draw_curves(out: Path, settings: Settings) -> Path | None:
    """Draw ``curves.png``: accuracy against epochs and against hours.

    None if there is none yet, or if there are more pairs than styles of lines.
    """
    from pyentmax.plotting import plot_learning_curves, save_figure
    from pyentmax.plotting.comparisons import MOST_LINES

    lines: dict[str, list[tuple[Any, Any, Any]]] = defaultdict(list)
    for curve in read_curves(out, settings):
        if curve.epochs:
            lines[curve.pair].append((curve.epochs, curve.hours, curve.history["dev_accuracy"]))
    if not 0 < len(lines) <= MOST_LINES:
        return None
    return save_figure(plot_learning_curves(lines, "loss / attention"), out / "curves.png")
