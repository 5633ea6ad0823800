"""Table 1: multilingual inflection with each loss and attention (Peters et al. 2019, §4.1).

One model learns all languages of CoNLL-SIGMORPHON 2018; a source is the language, the tags and the
characters of the lemma. Each pair of output loss and attention is a model, several seeds of a pair
are an ensemble too.

What came out (medium setting, 102 languages, 20 epochs, dev): 78.3 with softmax for both, 81.0 with
1.5-entmax for both and 81.0 with the sparsemax loss; the paper has 82.6, 84.9 and 85.0 on test. The
order and the distances are the paper's, the heights four points below: the curves still rose.
It takes two hours a model on one core; the small version (`own/small_table.py`) ten minutes.

    python -m experiments.peters2019.table1 --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peters2019.inflection import (
    add_shared_options,
    fingerprints,
    first_words,
    fit,
    measured,
    read_words,
)
from experiments.peters2019.language_families import FAMILIES, FAMILY_OF
from experiments.pictures import curves as draw_curves
from experiments.pictures import panels, save
from experiments.runner import (
    Experiment,
    Line,
    Notes,
    Options,
    Settings,
    Unready,
    folder_of,
    speed,
)
from experiments.tables import grouped, markdown, mean, spread, values
from pyentmax.engine.system.memory import peak_memory
from pyentmax.seq2seq.inflection.inflector import Inflector
from pyentmax.seq2seq.training import BEST

PAPER = {
    ("1", "1"): {"high": (93.15, 94.20), "medium": (82.55, 85.68)},
    ("1", "1.5"): {"high": (92.32, 93.50), "medium": (83.20, 85.63)},
    ("1", "2"): {"high": (90.98, 92.60), "medium": (83.13, 85.65)},
    ("1.5", "1"): {"high": (94.36, 94.96), "medium": (84.88, 86.38)},
    ("1.5", "1.5"): {"high": (94.44, 95.00), "medium": (84.93, 86.55)},
    ("1.5", "2"): {"high": (94.05, 94.74), "medium": (84.93, 86.59)},
    ("2", "1"): {"high": (94.59, 95.10), "medium": (84.95, 86.41)},
    ("2", "1.5"): {"high": (94.47, 95.01), "medium": (85.03, 86.61)},
    ("2", "2"): {"high": (94.32, 94.89), "medium": (84.96, 86.47)},
}
"""(loss, attention) → size → test accuracy of a model (mean of three) and of their ensemble."""
POINTS = 6  # epochs, and hours, at which curves are compared
OWN = ("loss", "attention", "seed", "ensemble")  # settings in which the models of a table differ


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options. Defaults are the measured run's."""
    add = parser.add_argument
    add("--loss", nargs="+", default=["1", "1.5", "2"], metavar="MAPPING", help="α, or names")
    add("--attention", nargs="+", default=["1", "1.5", "2"], metavar="MAPPING", help="the same")
    add("--languages", nargs="+", default=["all"], metavar="NAME", help="or 'all'")
    add("--epochs", type=int, default=20, help="passes over the training words")
    add("--validate-every", type=int, default=1, metavar="EPOCHS")
    add("--validate-on", type=int, default=50, metavar="N", help="words of each language; 0: all")
    add("--schedule", choices=("linear", "halve"), default="linear", help="of the rate")
    shape = {"size": "medium", "hidden": 300, "layers": 2, "batch_size": 32, "rate": 2e-3}
    add_shared_options(parser, **shape)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """A model for each pair and seed, seed by seed; then an ensemble of each pair's seeds."""
    languages = "all" if args.languages == ["all"] else sorted(set(args.languages))
    names = "size hidden layers batch_size rate epochs validate_every validate_on schedule beam"
    shared = {name: getattr(args, name) for name in names.split()}
    shared |= {"languages": languages, "dropout": 0.3, "score": "bilinear"}
    pairs = [{"loss": x, "attention": a} for x in args.loss for a in args.attention]
    models = [{**pair, "seed": seed, **shared} for seed in args.seed for pair in pairs]
    ensembles = [{**pair, "ensemble": args.seed, **shared} for pair in pairs]
    return [models, ensembles if len(args.seed) > 1 else []]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model and measure the best of its validations, or measure an ensemble."""
    train, dev = read_words(settings, options)
    if "ensemble" in settings:
        decoder: Any = Inflector.load_ensemble(_members(settings, folder))
        result: dict[str, Any] = {}
    else:
        updates = -(-len(train) // settings["batch_size"])  # of an epoch, rounded up
        training = {
            "updates": settings["epochs"] * updates,
            "rate": settings["rate"],
            "schedule": settings["schedule"],
            "validate_every": settings["validate_every"] * updates,
        }
        chosen_on = first_words(dev, settings["validate_on"] or None)
        decoder, history = fit(settings, folder, options, train, chosen_on, training)
        result = {"updates": history.update[-1], "curve": Notes(folder).curve(history)}
        result |= speed(history)
        result["epochs"] = [
            min(settings["epochs"], settings["validate_every"] * number)
            for number in range(1, len(history.update) + 1)
        ]
    result["memory_mb"] = peak_memory()
    return result | measured(decoder, dev, settings["beam"]) | fingerprints(train, dev)


def _members(settings: Settings, folder: Path) -> list[Path]:
    """The folders of an ensemble's models."""
    shared = {name: value for name, value in settings.items() if name != "ensemble"}
    members = [folder_of(folder.parent, {**shared, "seed": n}) for n in settings["ensemble"]]
    if absent := [member.name for member in members if not (member / BEST).exists()]:
        raise Unready(f"{absent[0]} is not trained")
    return members


# --- tables and pictures --------------------------------------------------------------------------
def report(lines: list[Line]) -> str:
    """All tables, for each group of lines that share their settings."""
    parts = []
    for group in _tables(lines):
        parts += [_about(group), accuracies(group), families(group)]
        if values(group, "curve"):
            parts += ["Greedy accuracy at a validation, after the same epochs:", by_epoch(group)]
            parts += ["And after the same hours of updates, interpolated:", by_hour(group)]
    return "\n\n".join(parts)


def _tables(lines: Sequence[Line]) -> list[list[Line]]:
    shared = sorted({name for line in lines for name in line["settings"]} - set(OWN))
    groups: dict[str, list[Line]] = {}
    for line in lines:
        key = str([line["settings"].get(name) for name in shared])
        groups.setdefault(key, []).append(line)
    return list(groups.values())


def _about(lines: Sequence[Line]) -> str:
    shared = {name: x for name, x in lines[0]["settings"].items() if name not in OWN}
    languages = shared.pop("languages")
    number = len(lines[0]["result"]["languages"])
    which = f"{number} languages" + ("" if languages == "all" else f" ({', '.join(languages)})")
    rest = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shared.items())
    return f"{which}; {rest}. The paper's accuracies are on test, ours on dev."


def accuracies(lines: Sequence[Line]) -> str:
    """A row for each pair of loss and attention, seeds averaged, with the paper's numbers."""
    columns = "loss, attention, seeds, accuracy, Levenshtein, one sequence, beam exact, ensemble, "
    rows = []
    for pair, group in sorted(grouped(lines, "loss", "attention").items()):
        single = [line for line in group if "ensemble" not in line["settings"]]
        several = [line for line in group if "ensemble" in line["settings"]]
        ensemble = "–"
        if several:
            largest = max(several, key=lambda line: len(line["settings"]["ensemble"]))
            number = len(largest["settings"]["ensemble"])
            ensemble = f"{largest['result']['accuracy']:.2f} ({number})"
        size = group[0]["settings"]["size"]
        paper = [f"{x:.2f}" for x in PAPER.get(pair, {}).get(size, ())] or ["–", "–"]
        shares = [f"{mean(values(single, name), 0)}%" for name in ("single", "exact")]
        accuracy = spread(values(single, "accuracy"), 2)
        distance = mean(values(single, "levenshtein"), 3)
        rows.append([*pair, len(single), accuracy, distance, *shares, ensemble, *paper])
    return markdown([*columns.split(", ")[:-1], "paper", "its ensemble"], rows)


def families(lines: Sequence[Line]) -> str:
    """Accuracy by family, a mean over its languages and a pair's seeds."""
    pairs = grouped([x for x in lines if "ensemble" not in x["settings"]], "loss", "attention")
    accuracies_by_family: dict[str, dict[tuple[Any, ...], list[float]]] = {}
    members: dict[str, set[str]] = {}
    for pair, group in pairs.items():
        for line in group:
            for language, scores in line["result"]["languages"].items():
                family = FAMILY_OF.get(language, "other")
                members.setdefault(family, set()).add(language)
                accuracies_by_family.setdefault(family, {}).setdefault(pair, []).append(
                    scores["accuracy"]
                )
    rows = [
        [
            family,
            len(members[family]),
            *(mean(accuracies_by_family[family][pair]) for pair in pairs),
        ]
        for family in (*FAMILIES, "other")
        if family in accuracies_by_family
    ]
    return markdown(["family", "languages", *(" / ".join(pair) for pair in pairs)], rows)


def _curves(lines: Sequence[Line]) -> dict[str, list[tuple[list[int], list[float], list[float]]]]:
    """Pair → of each seed the epochs, hours and accuracies of its validations."""
    return {
        " / ".join(pair): [
            (
                line["result"]["epochs"],
                [seconds / 3600 for seconds in line["result"]["curve"]["seconds"]],
                [100 * x for x in line["result"]["curve"]["dev_accuracy"]],
            )
            for line in group
            if "curve" in line["result"]
        ]
        for pair, group in grouped(lines, "loss", "attention").items()
    }


def by_epoch(lines: Sequence[Line]) -> str:
    """Accuracy of each pair after the same epochs."""
    pairs = _curves(lines)
    every = [set(epochs) for seeds in pairs.values() for epochs, _, _ in seeds]
    shared = sorted(set.intersection(*every))
    chosen = sorted({shared[round(i)] for i in np.linspace(0, len(shared) - 1, POINTS)})
    rows = [
        [epoch]
        + [mean([seed[2][seed[0].index(epoch)] for seed in seeds]) for seeds in pairs.values()]
        for epoch in chosen
    ]
    return markdown(["epoch", *pairs], rows)


def by_hour(lines: Sequence[Line]) -> str:
    """Accuracy of each pair after the same hours of updates, on the first one's processor."""
    pairs = _curves(_comparable(lines))
    every = [hours for seeds in pairs.values() for _, hours, _ in seeds]
    first, last = max(hours[0] for hours in every), min(hours[-1] for hours in every)
    rows = [
        [f"{hour:.2f}"]
        + [mean([float(np.interp(hour, s[1], s[2])) for s in seeds]) for seeds in pairs.values()]
        for hour in np.linspace(first, last, POINTS)
    ]
    return markdown(["hours", *pairs], rows)


def _comparable(lines: Sequence[Line]) -> list[Line]:
    """Lines from the same processors as the first: hours compare only there."""
    machines = [[session["machine"] for session in line["made_from"]] for line in lines]
    return [line for line, used in zip(lines, machines, strict=True) if used == machines[0]]


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw accuracy against epochs and against hours."""
    if not values(lines, "curve"):
        return []
    axes = panels(2)
    for ax, place, name, group in (
        (axes[0], 0, "epochs", lines),
        (axes[1], 1, "hours of updates", _comparable(lines)),
    ):
        pairs = _curves(group)
        runs_by_pair = {
            f"α of loss {pair.replace('/', 'and attention')}": [(s[place], s[2]) for s in seeds]
            for pair, seeds in pairs.items()
        }
        draw_curves(ax, runs_by_pair, name, "accuracy, greedy, %")
    return [save(axes, folder / "table1.png")]


EXPERIMENT = Experiment("peters2019/table1", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
