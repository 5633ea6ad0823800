"""Figure 4 of Peters et al. (2019): accuracy against α, for the attention and for the output.

One of the two mappings is α-entmax with α from a list, the other keeps α = 1.5. The paper shows
German-English translation; here it is the inflection of one language, a task that trains in
seconds.

    OUT/settings.json loss-1.5.attention-2.seed-0/ …    as `one_language` writes them
    OUT/figure4.csv figure4.png                         all finished models
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyentmax.nn.mapping_choice import spelled
from pyentmax.tasks.inflection.experiments.cells import Cell, finished_results
from pyentmax.tasks.records import of_results, write_csv

OTHER = "1.5"
ALPHAS = ("1", "1.25", "1.5", "1.75", "2")
COLUMNS = "loss attention seed accuracy accuracy_greedy single exact cpu_seconds date".split()


def grid(alphas: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Each α for the attention, then for the output, seed by seed; the common point only once.

    Raises
    ------
    ValueError
        If an entry of ``alphas`` is not a number of 1 or more.

    Examples
    --------
    >>> [cell[:2] for cell in grid(["1", "1.5"], [0])]
    [('1.5', '1'), ('1.5', '1.5'), ('1', '1.5')]
    """
    for given in alphas:
        if not spelled(given)[0].isdigit():
            raise ValueError(f"alpha: expected numbers of 1 or more, got {given!r}")
    alphas = [spelled(given) for given in alphas]
    cells = [
        Cell(loss, attention, seed)
        for seed in seeds
        for loss, attention in [(OTHER, a) for a in alphas] + [(a, OTHER) for a in alphas]
    ]
    return list(dict.fromkeys(cells))


results = finished_results


@of_results
def write_report(out: Path) -> None:
    """Write ``figure4.csv`` from the finished models."""
    rows = [{name: result[name] for name in COLUMNS} for result in results(out)]
    for row in rows:
        row.update({name: f"{x:.1f}" for name, x in row.items() if isinstance(x, float)})
    write_csv(out / "figure4.csv", COLUMNS, rows)


@of_results
def draw(out: Path) -> Path:
    """Draw ``figure4.png`` from the finished models."""
    from pyentmax.plotting import plot_accuracy_by_alpha, save_figure

    found = results(out)
    attention = accuracies((r["attention"], r) for r in found if r["loss"] == OTHER)
    output = accuracies((r["loss"], r) for r in found if r["attention"] == OTHER)
    ax = plot_accuracy_by_alpha({"attention": attention, "output": output})
    return save_figure(ax, out / "figure4.png")


def accuracies(results: Iterable[tuple[str, dict[str, Any]]]) -> dict[float, list[float]]:
    """α → the accuracies of its seeds, from 0 to 1."""
    found = defaultdict(list)
    for alpha, result in results:
        found[float(alpha)].append(result["accuracy"] / 100)
    return dict(sorted(found.items()))
