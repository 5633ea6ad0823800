"""Table 5, Figure 3: the k largest weights in training (T), or in use too (T&P; Zhao et al. 2019).

Reads trained Transformers with other k than they were trained with. (Choice of k in training: rows
of `zhao2019/table4.py`; the language model's by `own/language_model.py`.)

What came out (1,600 updates, German to English, 400 dev pairs): trained with top-8, 52.3% of the
tokens are right with k = 8 in use and 52.1% with all; the same for softmax, 53.0 and 52.8%. So T
and T&P are level, as in the paper; with k = 1 two points are lost. A minute.

    python -m experiments.zhao2019.table5 --out runs/zhao2019/table4 --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.correia2019 import heads as measured
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import markdown
from experiments.translation import read_data
from pyentmax.plotting import plot_choice_of_k, save_figure
from pyentmax.tasks.translation import Translator, heads


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    measured.add_options(parser)
    add = parser.add_argument
    add("--k", nargs="+", default=["1", "2", "4", "8", "all"], help="weights kept in use, or all")
    add("--translate", type=int, default=200, metavar="N", help="sentences for BLEU, greedy search")
    parser.set_defaults(row=["transformer-1", "transformer-top8"], first=400)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """A comparison for each seed."""
    more = {"k": args.k, "translate": args.translate}
    return [[{**settings, **more} for settings in measured.runs(args)[0]]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Loss, share of right tokens and BLEU of each model with each k in use."""
    pairs = read_data(options, settings["direction"]).dev[: settings["first"]]
    result = {}
    for path in measured.trained(settings, folder):
        translator = Translator.load(path)
        encoded = translator.pairs(pairs)
        result[heads.attention_label(translator.model.config)] = {
            k: heads.use_with_k(translator, k, pairs, encoded, settings["translate"])
            for k in settings["k"]
        }
    return result


def report(lines: list[Line]) -> str:
    """Tokens right and BLEU, a row for each model."""
    parts = []
    for line in lines:
        ks = line["settings"]["k"]
        rows = [
            [name, *(f"{100 * x[k]['accuracy']:.1f}% / {x[k].get('bleu', 0):.1f}" for k in ks)]
            for name, x in line["result"].items()
        ]
        parts.append(markdown(["trained with", *(f"k = {k}" for k in ks)], rows))
    return "\n\n".join(parts)


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw tokens right against k."""
    by_k = {
        name: {k: 100 * scores["accuracy"] for k, scores in x.items()}
        for name, x in lines[0]["result"].items()
    }
    return [save_figure(plot_choice_of_k(by_k, "tokens right, %"), folder / "table5.png")]


EXPERIMENT = Experiment("zhao2019/table5", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
