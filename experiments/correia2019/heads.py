"""§5: what do the heads do? Densities, diversity, positions, sub-words, α (Correia et al. 2019).

Measures the Transformers that `correia2019/table1.py` and `zhao2019/table4.py` trained, on the
1,000 dev pairs of Multi30k. `head_pictures.py` measures any model and draws single heads.

What came out (1,600 and 3,200 updates, German to English): densities vary more with α learned, and
sparse heads disagree more than softmax's in all nine layers, as in the paper. After 3,200 updates α
turns around in the encoder, as in its Figure 2. Not held: two modes of α in the encoder (Figure 3):
α at the end is nearly α at the start; no head attends to the previous token (best 10 to 24%, paper
94%) or joins sub-words (20 to 29%, paper 80 to 90%) after so little training, 36 and 33% of
softmax's after 12,800 updates; nor are the last layers denser (§6). Two minutes for four models.

    python -m experiments.correia2019.heads --out runs/correia2019/table1 --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from experiments.analysis import (
    PerSentence,
    corpus_attention,
    merging_scores,
    positional_confidence,
)
from experiments.bootstrap import bootstrap_difference
from experiments.correia2019 import measured_heads as heads
from experiments.correia2019.clusters import word_clusters
from experiments.correia2019.head_plots import (
    plot_alpha_histograms,
    plot_head_diversity,
    plot_positional_confidence,
)
from experiments.plots import plot_head_densities
from experiments.runner import Experiment, Line, Options, Settings, Unready, folder_of
from experiments.tables import between, markdown
from experiments.tasks.translation.parallel import SentencePair
from experiments.translation import ROWS, read_data, settings_of
from pyentmax.seq2seq.models.transformer import KINDS
from pyentmax.seq2seq.plotting import save_figure
from pyentmax.seq2seq.training import BEST

DEFAULT = ("transformer-1", "transformer-1.5-late", "transformer-learned-late", "transformer-top8")
POSITIONS = ("encoder -1", "encoder +1", "encoder +0", "decoder -1")
OFFSETS = range(-3, 4)
WORDS = ("pieces", "hyphenated", "all")
"""Clusters whose merging is measured: words of several pieces, those with a hyphen, and all words.

Over all words the score of a word of one piece is the weight on itself, as in the paper's footnote.
"""
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
    result = heads.numbers(models)
    for one in models:
        density = {kind: by_layer(x) for kind, x in one.heads.density.items()}
        more = {"density by layer": density, **specialised(one, pairs)}
        result["models"][one.label].update(more)
    return result


def by_layer(measure: PerSentence) -> dict[str, Any]:
    """The mean of each layer's heads, and the last layer minus the first, over sentences."""
    layers = measure.values.mean(axis=2)
    first, last = (PerSentence(layers[:, i], measure.counts) for i in (0, -1))
    mean = PerSentence(layers, measure.counts).mean
    return {"mean": mean.round(4).tolist(), "last minus first": interval(last, first)}


def interval(first: PerSentence, second: PerSentence | None = None) -> list[float]:
    """A mean, or that minus another, and the bounds of its 95% interval over sentences."""
    zero = PerSentence(np.zeros_like(first.values), first.counts)
    return [round(float(x), 4) for x in bootstrap_difference(first, second or zero)]


def best_head(measure: PerSentence) -> dict[str, Any]:
    """The head with most on a random half of the sentences, and what it has on the other half.

    Not every other sentence: Multi30k's captions are shorter and longer by turns.
    """
    values, counts = measure
    order = np.random.default_rng(0).permutation(len(counts))
    chosen, rest = np.split(order, [len(order) // 2])
    means = PerSentence(values[chosen], counts[chosen]).mean
    layer, head = np.unravel_index(np.argmax(means), means.shape)
    mean = interval(PerSentence(values[rest, layer, head], counts[rest]))
    return {"head": [int(layer), int(head)], "mean": mean}


def specialised(one: heads.Measured, pairs: Sequence[SentencePair]) -> dict[str, Any]:
    """The best head of a model at each offset, and at joining the pieces of words."""
    translator = one.translator
    pieces = [translator.segmenter.split(pair.source) for pair in pairs]
    names = {kind: [f"{n:+d}" for n in OFFSETS] for kind in ("encoder", "decoder")}
    names["merging"] = list(WORDS)
    measured: dict[tuple[str, str], list[tuple[int, Any, int]]] = {
        (kind, name): [] for kind, of_kind in names.items() for name in of_kind
    }
    for place, weights in corpus_attention(translator.model, translator.pairs(pairs)):
        for kind, offset in product(("encoder", "decoder"), OFFSETS):
            p = weights[kind]
            if (count := p.shape[-1] - abs(offset)) > 0 and (kind == "encoder" or offset <= 0):
                confidence = positional_confidence(p, offset)
                measured[kind, f"{offset:+d}"].append((place, confidence, count))
        words = word_clusters(pieces[place], smallest=1)
        several = [word for word in words if len(word) > 1]
        hyphenated = [word for word in several if any("-" in pieces[place][i] for i in word)]
        for name, clusters in zip(WORDS, (several, hyphenated, words), strict=True):
            if clusters:
                score = merging_scores(weights["encoder"], clusters)
                measured["merging", name].append((place, score, len(clusters)))
    found: dict[str, dict[str, Any]] = {kind: {} for kind in names}
    for (kind, name), entries in measured.items():
        if entries:
            _, values, counts = zip(*sorted(entries, key=itemgetter(0)), strict=True)
            best = best_head(PerSentence(np.array(values), np.array(counts, float)))
            found[kind][name] = {**best, "count": sum(counts)}
    return {"best heads": found}


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
        for kind in KINDS:
            density = [np.array(model["density"][kind]) for model in result["models"].values()]
            layers = [" / ".join(f"{x:.2f}" for x in one.mean(axis=1)) for one in density]
            rows.append([f"density, {kind}: by layer", *layers, "figure only"])
            gaps = [between(_last_minus_first(one), "+.2f") for one in density]
            rows.append(["last minus first layer (95% over heads)", *gaps, "above 0"])
        parts += [f"{about}:", markdown(["", *result["models"], "papers"], rows)]
        if all("best heads" in model for model in result["models"].values()):
            parts.append(markdown(["", *result["models"]], _intervals(result["models"])))
    return "\n\n".join(parts)


def _last_minus_first(heads_by_layer: np.ndarray) -> list[float]:
    """The mean over the last layer's heads minus that over the first's, with bootstrap bounds."""
    first, last = heads_by_layer[[0, -1]]
    rng = np.random.default_rng(0)
    drawn = [rng.choice(heads, (1000, heads.size)).mean(axis=1) for heads in (last, first)]
    low, high = np.percentile(drawn[0] - drawn[1], [2.5, 97.5])
    return [float(last.mean() - first.mean()), float(low), float(high)]


def _intervals(models: dict[str, Any]) -> list[list[str]]:
    """Last layers and best heads of each model, with 95% intervals over sentences."""
    rows = []
    for kind in KINDS:
        layers = [model["density by layer"][kind] for model in models.values()]
        gaps = [between(one["last minus first"], "+.3f") for one in layers]
        rows.append([f"density, {kind}: last minus first layer", *gaps])
    names = dict.fromkeys(
        (kind, name)
        for model in models.values()
        for kind, heads_of_kind in model["best heads"].items()
        for name in heads_of_kind
    )
    for kind, name in names:
        best = [model["best heads"][kind].get(name) for model in models.values()]
        cells = [between(one["mean"], ".1%") if one else "–" for one in best]
        rows.append([f"best head, {kind} {name}", *cells])
    return rows


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
