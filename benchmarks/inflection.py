"""Accuracy and exactness on the English files of CoNLL-SIGMORPHON 2018, one row per run.

    PYENTMAX_DATA=FOLDER python benchmarks/inflection.py [--settings high-1-3100 …] [--losses 1.5 …]

FOLDER holds ``conll2018/task1/…`` as the shared task lays it out. Finished rows are kept in
``docs/results/english_inflection.csv`` and not run again, so the script can be stopped at any
time. ``--table`` prints what there is. The accuracy is that of the last update, not of the best
validation.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from pyentmax.analysis import exactness_statistics, word_accuracy  # noqa: E402
from pyentmax.tasks.inflection import (  # noqa: E402
    compounds_of,
    hold_out,
    read_examples,
    train_inflector,
)
from pyentmax.training import TrainingConfig  # noqa: E402

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "english_inflection.csv"


class Setting(NamedTuple):
    """What is trained, and what PyTorch reached with it (one seed)."""

    size: str
    layers: int
    batch_size: int
    updates: int
    pytorch: float | None = None
    hold_out: bool = False


SETTINGS = {
    "high-1-3100": Setting("high", 1, 32, 3100, 93.6),
    "high-2-5300": Setting("high", 2, 32, 5300, 95.7),
    "high-1-16000": Setting("high", 1, 32, 16000, 95.2),
    "high-2-16000": Setting("high", 2, 32, 16000),
    "medium-2-1200": Setting("medium", 2, 16, 1200, 83.4),
    "no-draw-1-3100": Setting("high", 1, 32, 3100, hold_out=True),
    "no-draw-1-16000": Setting("high", 1, 32, 16000, hold_out=True),
}
COLUMNS = (
    "setting",
    "loss",
    "attention",
    "seed",
    "accuracy_greedy",
    "accuracy_beam5",
    "single",
    "exact_beam5",
    "draw",
    "draw_exact",
    "cpu_seconds",
    "date",
)


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--losses", nargs="+", default=["1.5", "1", "2"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="print the results there are")
    args = parser.parse_args()
    if not args.table:
        folder = os.environ.get("PYENTMAX_DATA")
        if not folder:
            sys.exit("set PYENTMAX_DATA to the folder that holds conll2018/")
        for name in args.settings:
            for loss in args.losses:
                for seed in args.seeds:
                    if (name, loss, str(seed)) not in _done():
                        _append(run(Path(folder), name, loss, seed))
    print(table())


def run(folder: Path, name: str, loss: str, seed: int) -> dict[str, object]:
    """Train and measure one model."""
    setting = SETTINGS[name]
    english = folder / "conll2018" / "task1" / "surprise"
    train = read_examples(english / f"english-train-{setting.size}")
    dev = read_examples(english / "english-dev")
    if setting.hold_out:
        words = {example.lemma for example in train}
        train, _ = hold_out(train, {"draw", *compounds_of("draw", words)})
    config = TrainingConfig(updates=setting.updates, rate=3e-3, seed=seed)
    started = time.process_time()
    inflector, history = train_inflector(
        train,
        dev,
        config,
        batch_size=setting.batch_size,
        keep="last",
        hidden=128,
        layers=setting.layers,
        dropout=0.3,
        output=loss,
    )
    seconds = time.process_time() - started
    results = inflector.predict(dev, beam=5)
    forms = [inflector.form(result.best.tokens) for result in results]
    exactness = exactness_statistics(results)
    draw = inflector.inflect("draw", "V;V.PTCP;PST")
    listed = [f"{inflector.form(h.tokens)} {h.probability:.4f}" for h in draw.hypotheses[:5]]
    row = {
        "setting": name,
        "loss": loss,
        "attention": "1.5",
        "seed": seed,
        "accuracy_greedy": f"{100 * history.dev_accuracy[-1]:.1f}",
        "accuracy_beam5": f"{100 * word_accuracy(forms, [e.form for e in dev]):.1f}",
        "single": f"{100 * exactness.single:.1f}",
        "exact_beam5": f"{100 * exactness.exact:.1f}",
        "draw": " ".join(listed),
        "draw_exact": draw.exact,
        "cpu_seconds": f"{seconds:.0f}",
        "date": time.strftime("%Y-%m-%d"),
    }
    print(row, flush=True)
    return row


def _done() -> set[tuple[str, str, str]]:
    return {(row["setting"], row["loss"], row["seed"]) for row in _rows()}


def _rows() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _append(row: dict[str, object]) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    new = not RESULTS.exists()
    with RESULTS.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def table() -> str:
    """Means over seeds with their standard errors, a line for each setting and loss."""
    lines = [
        "| setting | loss | seeds | dev accuracy, beam 5 | PyTorch, one seed "
        "| one sequence holds all | beam 5 exact | draw, past participle (first seed) "
        "| CPU seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = _rows()
    for name, setting in SETTINGS.items():
        for loss in sorted({row["loss"] for row in rows if row["setting"] == name}):
            group = [row for row in rows if (row["setting"], row["loss"]) == (name, loss)]
            group.sort(key=lambda row: int(row["seed"]))
            accuracy = [float(row["accuracy_beam5"]) for row in group]
            shown = f"{statistics.mean(accuracy):.1f}"
            if len(group) > 1:
                shown += f" ± {statistics.stdev(accuracy) / len(accuracy) ** 0.5:.1f}"
            single, exact, seconds = (
                statistics.mean(float(row[key]) for row in group)
                for key in ("single", "exact_beam5", "cpu_seconds")
            )
            pytorch = setting.pytorch if loss == "1.5" and setting.pytorch else "–"
            lines.append(
                f"| {name} | {loss} | {len(group)} | {shown} | {pytorch} | {single:.0f}% "
                f"| {exact:.0f}% | {group[0]['draw']} | {seconds:.0f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
