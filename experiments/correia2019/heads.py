"""§5: what do the heads do? Densities, diversity, positions, sub-words, α (Correia et al. 2019).

Measures the Transformers that `correia2019/table1.py` and `zhao2019/table4.py` trained, on the
1,000 dev pairs of Multi30k. `python -m pyentmax analyse` measures any model and draws single heads.

What came out (1,600 and 3,200 updates, German to English): densities vary more with α learned, and
sparse heads disagree more than softmax's in all nine layers, as in the paper. After 3,200 updates α
turns around in the encoder, whose heads fall into two groups, as in its Figures 2 and 3. Not held:
no head looks at the previous token (best 10 to 24%, paper 94%) or joins sub-words (20 to 29%, paper
80 to 90%) after so little training. Two minutes for four models.

    python -m experiments.correia2019.heads --out runs/correia2019/table1 --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import Experiment, Line, Options, Settings, Unready, folder_of
from experiments.tables import markdown
from experiments.translation import ROWS, read_data, settings_of
from pyentmax.models.transformer import KINDS
from pyentmax.plotting import (
    plot_alpha_histograms,
    plot_head_densities,
    plot_head_diversity,
    plot_positional_confidence,
    save_figure,
)
from pyentmax.tasks.translation import heads
from pyentmax.training import BEST

DEFAULT = ("transformer-1", "transformer-1.5-late", "transformer-learned-late", "transformer-top8")
POSITIONS = ("encoder -1", "encoder +1", "encoder +0", "decoder -1")
PAPERS = {  # how a row's title begins → what the papers have
    "JS divergence": "sparse above softmax",
    "JS minus": "all above",
    "previous token, encoder": "93.5 / 94.4 / 95.9% (median of 3 / 3 / 4 heads)",
    "next token": "one head each, around 95%",
    "joining pieces": "< 80 / 85.6 / 89.8%",
    "weight on the mark": "98.5 / 97.0 / 99.5%",
    "context": "figure only",
    "α": "figure only",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--row", nargs="+", default=list(DEFAULT), choices=ROWS, metavar="NAME", help="models")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="a comparison each")
    add("--updates", type=int, default=3200, help="of the models")
    add("--direction", choices=("de-en", "en-de"), default="de-en")
    add("--first", type=int, default=1000, metavar="N", help="dev pairs")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """A comparison for each seed."""
    names = ("updates", "direction", "first")
    shared = {name: getattr(args, name) for name in names}
    return [[{"rows": list(args.row), "seed": seed, **shared} for seed in args.seed]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Measure the trained models of a folder, side by side."""
    paths = trained(settings, folder)
    pairs = read_data(options, settings["direction"]).dev[: settings["first"]]
    models = heads.measure(paths, pairs, progress=not options.quiet)
    return heads.numbers(models)


def trained(settings: Settings, folder: Path) -> list[Path]:
    """The models of a comparison's rows, which another script has trained in the same --out."""
    reverse = settings["direction"] == "en-de"
    paths = []
    for row in settings["rows"]:
        one = settings_of(row, settings["seed"], settings["updates"], reverse=reverse)
        paths.append(folder_of(folder.parent, one, "updates") / BEST)
        if not paths[-1].exists():
            raise Unready(f"{row} is not trained in {folder.parent}")
    return paths


# --- tables and pictures --------------------------------------------------------------------------
def report(lines: list[Line]) -> str:
    """The main figures of each comparison, next to those of the papers."""
    parts = []
    for line in lines:
        settings, result = line["settings"], line["result"]
        about = f"{settings['direction']}, {settings['updates']:,} updates, seed {settings['seed']}"
        rows = [
            [
                title,
                *cells,
                next((x for start, x in PAPERS.items() if title.startswith(start)), "–"),
            ]
            for title, cells in heads.rows(result).items()
        ]
        parts += [f"{about}:", markdown(["", *result["models"], "papers"], rows)]
    return "\n\n".join(parts)


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw Figures 3, 5 and 6 and the positions, for each comparison."""
    files = []
    for number, line in enumerate(lines):
        models = line["result"]["models"]
        pictures = {
            "densities": plot_head_densities(_by_kind(models, "density")),
            "diversity": plot_head_diversity(_by_kind(models, "diversity")),
            "positional": plot_positional_confidence(
                {
                    name: {label: np.array(m["positional"][name]) for label, m in models.items()}
                    for name in POSITIONS
                }
            ),
        }
        if learned := [m["alphas"] for m in models.values() if m["alphas"]]:
            alphas = {kind: np.array(x) for kind, x in learned[-1].items()}
            pictures["alpha_histograms"] = plot_alpha_histograms(alphas)
        for name, ax in pictures.items():
            files.append(save_figure(ax, folder / f"{name}-{number}.png"))
    return files


def _by_kind(models: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    return {label: {kind: np.array(m[name][kind]) for kind in KINDS} for label, m in models.items()}


EXPERIMENT = Experiment("correia2019/heads", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
