"""The finished cells of Table 1 as CSV files, as a table with the paper's numbers, by family."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyentmax.tasks.inflection.experiments.cells import finished_results
from pyentmax.tasks.inflection.experiments.language_families import FAMILIES, FAMILY_OF
from pyentmax.tasks.inflection.experiments.table1 import Settings
from pyentmax.tasks.records import of_results, write_csv, write_text


class Published(NamedTuple):
    """A row of the paper: mean accuracy of three models, and accuracy of their ensemble, in %."""

    average: float
    ensemble: float


PAPER = {
    ("1", "1"): {"high": Published(93.15, 94.20), "medium": Published(82.55, 85.68)},
    ("1", "1.5"): {"high": Published(92.32, 93.50), "medium": Published(83.20, 85.63)},
    ("1", "2"): {"high": Published(90.98, 92.60), "medium": Published(83.13, 85.65)},
    ("1.5", "1"): {"high": Published(94.36, 94.96), "medium": Published(84.88, 86.38)},
    ("1.5", "1.5"): {"high": Published(94.44, 95.00), "medium": Published(84.93, 86.55)},
    ("1.5", "2"): {"high": Published(94.05, 94.74), "medium": Published(84.93, 86.59)},
    ("2", "1"): {"high": Published(94.59, 95.10), "medium": Published(84.95, 86.41)},
    ("2", "1.5"): {"high": Published(94.47, 95.01), "medium": Published(85.03, 86.61)},
    ("2", "2"): {"high": Published(94.32, 94.89), "medium": Published(84.96, 86.47)},
}
"""Peters et al. (2019), Table 1: (loss, attention) → test accuracy in percent, all languages."""

CELL_COLUMNS = (
    "loss attention seed models accuracy levenshtein single exact updates train_seconds "
    "decode_seconds memory_mb date"
).split()
LANGUAGE_COLUMNS = "loss attention seed models language examples accuracy levenshtein".split()
DECIMALS = {"accuracy": 2, "levenshtein": 4, "single": 1, "exact": 1, "memory_mb": 0}


@of_results
def write_report(out: Path, settings: Settings) -> str:
    """Write ``cells.csv``, ``languages.csv``, ``table.md`` and ``families.md``.

    Returns the table.
    """
    results = finished_results(out)
    languages = [
        result | {"language": language} | scores
        for result in results
        for language, scores in sorted(result["languages"].items())
    ]
    write_csv(out / "cells.csv", CELL_COLUMNS, [_row(r, CELL_COLUMNS) for r in results])
    write_csv(
        out / "languages.csv", LANGUAGE_COLUMNS, [_row(r, LANGUAGE_COLUMNS) for r in languages]
    )
    table = format_table(results, settings)
    write_text(out / "table.md", table + "\n")
    write_text(out / "families.md", format_families(results) + "\n")
    return table


def _row(found: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    # Results from before memory was noted, and systems that do not tell, have none.
    rounded = {
        name: f"{found[name]:.{places}f}"
        for name, places in DECIMALS.items()
        if found.get(name) is not None
    }
    return {name: (found | rounded).get(name, "") for name in columns}


def format_table(results: Sequence[dict[str, Any]], settings: Settings) -> str:
    """A Markdown table with a row for each pair of loss and attention, and the paper's numbers.

    Accuracies are means over languages, in percent. With several seeds, it is their mean and its
    standard error.
    """
    lines = [
        f"{len(settings.languages)} languages, {settings.setting}, dev. The paper: "
        f"{'86' if settings.setting == 'high' else '102'} languages, test.",
        "",
        "| loss | attention | seeds | accuracy | Levenshtein | one sequence | beam exact "
        "| ensemble | paper | its ensemble |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for loss, attention in sorted({(r["loss"], r["attention"]) for r in results}):
        of_pair = [r for r in results if (r["loss"], r["attention"]) == (loss, attention)]
        single = [r for r in of_pair if r["models"] == 1]
        several = [r for r in of_pair if r["models"] > 1]
        if not single:
            continue
        largest = max(several, key=lambda r: r["models"], default=None)
        ensemble = "–" if largest is None else f"{largest['accuracy']:.2f} ({largest['models']})"
        published = PAPER.get((loss, attention), {}).get(settings.setting)
        theirs = ("–", "–") if published is None else tuple(f"{x:.2f}" for x in published)
        means = {
            name: statistics.mean(r[name] for r in single)
            for name in ("levenshtein", "single", "exact")
        }
        lines.append(
            f"| {loss} | {attention} | {len(single)} | {_mean([r['accuracy'] for r in single])} "
            f"| {means['levenshtein']:.3f} | {means['single']:.0f}% | {means['exact']:.0f}% "
            f"| {ensemble} | {theirs[0]} | {theirs[1]} |"
        )
    return "\n".join(lines)


def format_families(results: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of the accuracy by family, a mean over its languages and a pair's seeds.

    Families are those of `language_families`; other languages are "other".
    """
    single = [r for r in results if r["models"] == 1]
    pairs = sorted({(r["loss"], r["attention"]) for r in single})
    accuracies: dict[str, dict[tuple[str, str], list[float]]] = {}
    members: dict[str, set[str]] = {}
    for result in single:
        for language, scores in result["languages"].items():
            family = FAMILY_OF.get(language, "other")
            members.setdefault(family, set()).add(language)
            of_pair = accuracies.setdefault(family, {})
            of_pair.setdefault((result["loss"], result["attention"]), []).append(scores["accuracy"])
    lines = [
        "| family | languages | " + " | ".join(" / ".join(pair) for pair in pairs) + " |",
        "| --- | --- |" + " --- |" * len(pairs),
    ]
    for family in filter(accuracies.get, (*FAMILIES, "other")):
        means = [f"{statistics.mean(accuracies[family][pair]):.1f}" for pair in pairs]
        lines.append(f"| {family} | {len(members[family])} | " + " | ".join(means) + " |")
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> str:
    """The mean, with its standard error if there are at least two values."""
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"
