"""Figure 4 on the paper's own task: accuracy of translation against α (Peters et al. 2019).

What came out (Multi30k, German to English, 400 updates, two seeds): over the loss's α from 38.5 ±
0.1 to 48.6 ± 0.1% of the dev tokens, best at 1.5 and 1.75; over the attention's from 45.1 ± 0.1 to
49.2 ± 0.1, best at 1. The loss's α matters more, and beyond 2 both fall, as in the paper; the
attention's side, which falls from softmax on, goes the other way there. That is where training
leads: a model that softmax attention has trained for 800 updates has 54.9% of the tokens right,
54.7 if it is read with 1.5-entmax and 54.5 with sparsemax, and 100 updates later those two are 0.0
and 0.3 behind softmax, where they were 0.6 (after 800 updates) and 2.0 (after 400) with that
attention from the start. Two minutes a model on one core.

    python -m experiments.peters2019.figure4_translation --data FOLDER
    python -m experiments.peters2019.figure4_translation --data FOLDER \
        --row rnn-1-1.5 --updates 1200 --switch 1 1.5 2 2.5
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments import translation
from experiments.analysis import PerSentence
from experiments.bootstrap import bootstrap_difference
from experiments.pictures import panels, points, save
from experiments.runner import (
    Line,
    Options,
    Settings,
    Unready,
    finished,
    folder_of,
    run_options,
)
from experiments.tables import between, grouped, markdown, mean, spread, values
from experiments.tasks import fit
from experiments.tasks.translation import Translator
from experiments.translation import ALPHAS, experiment, models, read_data, settings_of, supports
from pyentmax.seq2seq.data import Pair, TokenBatches
from pyentmax.seq2seq.training import BEST, TrainingConfig, fingerprint

BOTH = [f"rnn-1.5-{alpha}" for alpha in ALPHAS], [f"rnn-{alpha}-1.5" for alpha in ALPHAS]
NAMES = ("output", "attention")
DENSE = "rnn-1-1.5"
SWITCHED: Settings = {"rate": 8e-4, "clip": 1.0, "betas": [0.9, 0.98]}
"""The training after a switch: from the rate that the first training has fallen to, down to 0."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    translation.add_options(parser, ROWS, 400)
    add = parser.add_argument
    what = f"α of the attention that a trained {DENSE} goes on with"
    add("--switch", nargs="+", default=[], choices=ALPHAS, metavar="A", help=what)
    add("--more", type=int, default=200, metavar="N", help="updates after a switch")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """All rows, then the switches."""
    switches = [
        {"row": f"rnn-{alpha}-1.5", "from": DENSE, "after": args.updates, "updates": args.more}
        | {"seed": seed, "direction": args.direction, "training": SWITCHED}
        for seed in args.seed
        for alpha in args.switch
    ]
    return [*models(args), switches]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model as all experiments on translation do; or go on from softmax's."""
    return (switched if "from" in settings else translation.work)(settings, folder, options)


def switched(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Read a model that softmax attention has trained with another α; train it on with that."""
    seed, direction = settings["seed"], settings["direction"]
    first = settings_of(settings["from"], seed, settings["after"], reverse=direction == "en-de")
    path = folder_of(folder.parent, first, "updates") / BEST
    if not path.exists():
        raise Unready(f"{settings['from']} is not trained in {folder.parent}")
    translator = Translator.load(path)
    config = replace(
        translator.model.config,
        attention=translation.ROWS[settings["row"]].model["attention"],
    )
    dense = translator.model
    translator.model = type(dense)(config, dense.params, dense.bos, dense.eos)
    data = read_data(options, direction)
    train, dev = translator.pairs(data.train), translator.pairs(data.dev)
    read = right_tokens(translator, dev).mean
    history = fit(
        translator,
        TokenBatches(train, first["tokens"]),
        TrainingConfig(updates=settings["updates"], seed=seed, **settings["training"]),
        partial(translator.validate, dev),
        run_options(folder, options, keep="last"),
        data={"train": fingerprint(data.train), "dev": fingerprint(data.dev)},
    )
    finished(history)
    right = right_tokens(translator, dev)
    return {
        "read": float(read),
        "dev_accuracy": float(right.mean),
        "right": np.rint(right.values * right.counts).astype(int).tolist(),
        "tokens": right.counts.astype(int).tolist(),
        "supports": {name: round(x, 3) for name, x in supports(translator, dev).items()},
    }


def right_tokens(translator: Translator, pairs: list[Pair]) -> PerSentence:
    """The share of each sentence's tokens that are the most probable ones after the reference."""
    right = [translator.validate([pair]).accuracy for pair in pairs]
    return PerSentence(np.array(right), np.array([len(target) + 1.0 for _, target in pairs]))


# --- tables and pictures --------------------------------------------------------------------------
def report(lines: list[Line]) -> str:
    """Accuracy, BLEU and supports against α, for the loss and the attention; then the switches."""
    parts = []
    trained = [line for line in lines if "from" not in line["settings"]]
    for (updates,), group in grouped(trained, "updates").items():
        parts += [f"After {updates:,} updates:", _table(group)]
    switches = [line for line in lines if "from" in line["settings"]]
    for (after, updates), group in grouped(switches, "after", "updates").items():
        about = (
            f"{DENSE} after {after:,} updates, read with another α, and trained on for {updates}:"
        )
        parts += [about, _switch_table(group)]
    return "\n\n".join(parts)


def _table(lines: list[Line]) -> str:
    rows = []
    for alpha, *names in zip(ALPHAS, *BOTH, strict=True):
        cells = [alpha]
        for name, part in zip(names, ("output", "context"), strict=True):
            group = [line for line in lines if line["settings"]["row"] == name]
            cells.append(spread([100 * x for x in values(group, "dev_accuracy")]))
            cells += [mean(values(group, "bleu")), mean(values(group, "supports", part))]
        rows.append(cells)
    columns = ["α", "of the loss: dev token accuracy", "BLEU", "possible tokens"]
    columns += ["of the attention: dev token accuracy", "BLEU", "attended"]
    return markdown(columns, rows)


def _switch_table(lines: list[Line]) -> str:
    dense = {
        line["settings"]["seed"]: _right(line) for line in lines if line["settings"]["row"] == DENSE
    }
    rows = []
    for line in lines:
        result, seed = line["result"], line["settings"]["seed"]
        minus = bootstrap_difference(_right(line), dense[seed]) if seed in dense else None
        rows.append(
            [
                translation.ROWS[line["settings"]["row"]].model["attention"],
                seed,
                f"{100 * result['read']:.1f}",
                f"{100 * result['dev_accuracy']:.1f}",
                between([100 * float(x) for x in minus], "+.2f") if minus else "–",
                mean(values([line], "supports", "context")),
            ]
        )
    columns = "α of the attention, seed, read only, trained on, minus softmax's (95%), attended"
    return markdown(columns.split(", "), rows)


def _right(line: Line) -> PerSentence:
    right, tokens = (np.array(line["result"][name], float) for name in ("right", "tokens"))
    return PerSentence(right / tokens, tokens)


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw accuracy against α, for each number of updates."""
    files = []
    trained = [line for line in lines if "from" not in line["settings"]]
    for (updates,), of_length in grouped(trained, "updates").items():
        accuracies = {
            role: {
                float(alpha): [100 * x for x in values(group, "dev_accuracy")]
                for alpha, name in zip(ALPHAS, names, strict=True)
                if (group := [line for line in of_length if line["settings"]["row"] == name])
            }
            for role, names in zip(NAMES, BOTH, strict=True)
        }
        axes = panels()
        points(axes[0], accuracies, "α", "dev token accuracy, %")
        files.append(save(axes, folder / f"figure4_translation-{updates}.png"))
    return files


ROWS = tuple(dict.fromkeys([*BOTH[0], *BOTH[1]]))
EXPERIMENT = experiment(
    "peters2019/figure4_translation",
    __doc__,
    ROWS,
    400,
    runs=runs,
    work=work,
    report=report,
    draw=draw,
    add_options=add_options,
)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
