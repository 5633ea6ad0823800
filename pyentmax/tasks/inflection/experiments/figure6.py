"""Figure 6 of Peters et al. (2019): accuracy against the seconds that training takes.

The same model is trained with softmax, with 1.5-entmax by its exact algorithm, and with 1.5-entmax
by bisection (:mod:`pyentmax.nn.bisection`), each as attention and as output. Bisection is plain
NumPy. With ``PYENTMAX_BACKEND=reference`` so are the others, and the algorithms are compared in one
language; otherwise they run their compiled kernels. One picture can show both.

    OUT/settings.json
    OUT/kernels/loss-1.5.attention-1.5.seed-0/ …   as `one_language` writes them
    OUT/numpy/…                                    the same without compiled kernels
    OUT/figure6.csv figure6.png                    all finished models
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyentmax.backends.choice import kernels
from pyentmax.nn.mapping_choice import choose_mapping, spelled
from pyentmax.tasks.inflection.experiments.cells import Cell, check_alike, finished_results
from pyentmax.tasks.records import of_results, write_csv

MAPPINGS = ("1", "1.5", "bisection:1.5")
BACKENDS = {"kernels": "compiled", "numpy": "NumPy"}
COLUMNS = "mapping backend seed update cpu_seconds dev_loss dev_accuracy".split()


def backend() -> str:
    """The name of the folder for models that this process trains."""
    return "kernels" if kernels() else "numpy"


def grid(mappings: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Each mapping in both roles, seed by seed, so that a disturbance affects all of them.

    Examples
    --------
    >>> grid(["1", "1.5"], [0])
    [Cell(loss='1', attention='1', seed=0), Cell(loss='1.5', attention='1.5', seed=0)]
    """
    chosen = [spelled(choice) for choice in mappings]
    cells = [Cell(choice, choice, seed) for seed in seeds for choice in chosen]
    return list(dict.fromkeys(cells))


def results(out: Path) -> list[dict[str, Any]]:
    """The results of all finished models, each with the folder of its ``backend``.

    Errors are those of `cells.finished_results`.
    """
    found = [
        {**result, "backend": folder}
        for folder in BACKENDS
        for result in finished_results(out / folder)
    ]
    check_alike(found, out)
    return found


@of_results
def write_report(out: Path) -> None:
    """Write ``figure6.csv`` from the finished models, one row per validation."""
    rows = [
        {
            "mapping": result["loss"],
            "backend": result["backend"],
            "seed": result["seed"],
            "update": update,
            "cpu_seconds": f"{seconds:.2f}",
            "dev_loss": f"{loss:.4f}",
            "dev_accuracy": f"{100 * accuracy:.1f}",
        }
        for result in results(out)
        for update, seconds, loss, accuracy in zip(
            *(result[name] for name in ("update", "seconds", "dev_loss", "dev_accuracy")),
            strict=True,
        )
    ]
    write_csv(out / "figure6.csv", COLUMNS, rows)


@of_results
def draw(out: Path) -> Path:
    """Draw ``figure6.png`` from the finished models."""
    from pyentmax.plotting import plot_time_and_accuracy, save_figure

    lines: dict[str, list[tuple[list[float], list[float]]]] = defaultdict(list)
    for result in results(out):
        line = lines[label(result["loss"], result["backend"])]
        line.append((result["seconds"], result["dev_accuracy"]))
    return save_figure(plot_time_and_accuracy(lines), out / "figure6.png")


def label(mapping: str, folder: str) -> str:
    """The label of a line in the picture.

    Examples
    --------
    >>> label("1.5", "kernels"), label("bisection:1.5", "numpy")
    ('1.5-entmax, compiled', '1.5-entmax by bisection, NumPy')
    """
    chosen = choose_mapping(mapping)
    if chosen.name == "bisection":
        # Bisection is never compiled; the folder says whether the rest of the model is.
        name = f"{chosen.alpha:g}-entmax by bisection"
        return f"{name}, NumPy" if folder == "numpy" else f"{name}, the rest compiled"
    name = {"entmax15": "1.5-entmax", "entmax": f"{chosen.alpha}-entmax by Newton"}.get(
        chosen.name, chosen.name
    )
    return f"{name}, {BACKENDS[folder]}"
