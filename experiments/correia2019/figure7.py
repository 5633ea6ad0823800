"""Figure 7 on language models: are there heads at the previous position? (Correia et al. 2019).

A translator's encoder has no such head after so little training (`heads.py`). This measures the
language models that `own/language_model.py` trained, on the held-out text in windows as long as
those of training: the confidence of every head at each offset, and that of the best head, which is
chosen on a random half of the windows and measured on the other.

What came out (seed 0): one head of the first layer looks back, with a confidence of 55% with
softmax and 58% with α learned after 2,000 updates, 58% with softmax and 69% with 1.5-entmax (for
the last 200) after 2,200. Softmax's, read with 1.5-entmax, has 71%. The paper's translators have
93.5 to 95.9%. Half a minute a model.

    python -m experiments.correia2019.figure7 --out runs/own/language_model --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.analysis import PerSentence, head_densities, positional_confidence
from experiments.correia2019.head_plots import plot_positional_confidence
from experiments.correia2019.heads import best_head
from experiments.own.language_model import ROWS, UPDATES, read_shakespeare, read_with, settings_of
from experiments.runner import Experiment, Line, Options, Settings, Unready, folder_of
from experiments.tables import between, markdown
from experiments.tasks.writer import Writer
from pyentmax.seq2seq.data import cut
from pyentmax.seq2seq.plotting import save_figure
from pyentmax.seq2seq.training import BEST

OFFSETS = range(-3, 1)  # no head can look ahead
POSITIONAL = 0.8
"""A head with this confidence at an offset counts as positional there."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    rows = ["softmax", "1.5-late", "learned-late", "relative"]
    add("--row", nargs="+", default=rows, choices=ROWS, metavar="NAME", help="models")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="a measurement each")
    add("--updates", type=int, default=UPDATES, help="of the models")
    what = "α that the heads are read with, instead of the one that they were trained with"
    add("--read", nargs="+", default=["own"], metavar="A", help=f"own, or an {what}")
    add("--windows", type=int, default=400, help="of the held-out text, the first ones")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """Each model."""
    shared = {"updates": args.updates, "windows": args.windows}
    each = product(args.seed, args.row, args.read)
    return [[{"row": row, "seed": seed, "read": read, **shared} for seed, row, read in each]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Measure a model that the other script has trained in the same --out."""
    row, seed, updates = (settings[name] for name in ("row", "seed", "updates"))
    path = folder_of(folder.parent, settings_of(row, seed, updates), "updates") / BEST
    if not path.exists():
        raise Unready(f"{row} is not trained in {folder.parent}")
    writer = Writer.load(path)
    if settings["read"] != "own":
        writer = read_with(writer, settings["read"])
    tokens = writer.encode(read_shakespeare(options).held_out)
    windows = min(settings["windows"], (len(tokens) - 1) // writer.context)
    measured: dict[str, list[np.ndarray]] = {}
    for start in range(windows):
        piece = cut(tokens, np.array([start * writer.context]), writer.context).tokens_in
        weights = np.stack([p[0] for p in writer.model.attention_weights(piece)])
        for offset in OFFSETS:
            confidence = positional_confidence(weights, offset)
            measured.setdefault(f"{offset:+d}", []).append(confidence)
        measured.setdefault("density", []).append(head_densities(weights, causal=True))
    heads = {name: PerSentence(np.array(x), np.ones(windows)) for name, x in measured.items()}
    alphas = writer.model.alphas()
    return {
        "windows": windows,
        "heads": {name: x.mean.round(4).tolist() for name, x in heads.items()},
        "best": {name: best_head(x) for name, x in heads.items() if name != "density"},
        "alphas": alphas["self"].round(3).tolist() if alphas else None,
    }


# --- tables and pictures --------------------------------------------------------------------------
def report(lines: list[Line]) -> str:
    """The best head of each model at each offset, and how many heads are positional."""
    rows = []
    for line in lines:
        result = line["result"]
        layer, head = result["best"]["-1"]["head"]
        at_previous = np.array(result["heads"]["-1"])
        positional = at_previous[at_previous >= POSITIONAL]
        rows.append(
            [
                _label(line),
                *(between(result["best"][f"{n:+d}"]["mean"], ".1%") for n in OFFSETS),
                f"layer {layer + 1}, head {head + 1}",
                f"{result['alphas'][layer][head]:.2f}" if result["alphas"] else "–",
                f"{result['heads']['density'][layer][head]:.3f}",
                f"{len(positional)}, median {np.median(positional):.1%}" if len(positional) else 0,
            ]
        )
    offsets = [f"best head at {n:+d}" for n in OFFSETS]
    columns = ["model", *offsets, "the one at -1", "its α", "its density"]
    columns.append(f"heads with {POSITIONAL:.0%} and more at -1")
    return markdown(columns, rows)


def _label(line: Line) -> str:
    names = ("row", "updates", "seed", "read")
    row, updates, seed, read = (line["settings"][name] for name in names)
    label = f"{row}, {updates:,} updates, seed {seed}"
    return label if read == "own" else f"{label}, read with {read}"


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw the confidence of every head at each offset, of models read as they were trained."""
    own = [line for line in lines if line["settings"]["read"] == "own"]
    heads = {_label(line): line["result"]["heads"] for line in own}
    confidences = {
        f"offset {name}": {row: of_row[name] for row, of_row in heads.items()}
        for name in [f"{n:+d}" for n in OFFSETS]
    }
    return [save_figure(plot_positional_confidence(confidences), folder / "figure7.png")]


EXPERIMENT = Experiment("correia2019/figure7", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
