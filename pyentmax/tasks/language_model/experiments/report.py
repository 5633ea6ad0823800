"""The tables and the pictures of what is there, from the small JSON files of the runs.

OUT/table.md      all runs, finished or not, seeds averaged
OUT/curves.png    bits per character against updates, by the mapping of the heads
OUT/positions.png the same by what the model knows of positions and lengths
OUT/k.png         bits per character against k, in training and where one model was read with each
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pyentmax.tasks.language_model.experiments.rows import KS, ROWS, row
from pyentmax.tasks.records import of_results, write_text
from pyentmax.tasks.runs import CURVE, Run, read_curve, read_result, recorded_runs

CURVES = {  # picture → its rows, at most as many as there are colours
    "curves": ("softmax", "1.5-slow", "1.5-late", "learned-late", "top8", "top8-late"),
    "positions": (
        "softmax",
        "softmax-scaled",
        "1.5-late-scaled",
        "relative",
        "relative-1.5-late",
        "memory",
    ),
}
READ_WITH_K = ("softmax", "top8", "top8-late")  # the lines of the picture of k
SCORES = ("epsilon_perplexity", "sparsemax_score", "jensen_shannon")

Kind = TypeVar("Kind")


class Recorded(NamedTuple):
    """What the files of a run tell: its curve, and its result if it is finished."""

    run: Run
    curve: list[dict[str, Any]]
    result: dict[str, Any] | None

    @property
    def updates(self) -> int:
        """How far the run is."""
        return int(self.result["updates"] if self.result else self.curve[-1]["update"])


def recorded(out: Path) -> list[Recorded]:
    """All runs that have been validated once, in the order of the rows."""
    found = [
        Recorded(run, read_curve(out / run.folder), read_result(out / run.folder))
        for run in recorded_runs(out, ROWS, CURVE)
    ]
    return [entry for entry in found if entry.curve]


@of_results
def write_report(out: Path) -> str:
    """Write ``table.md``; returns it."""
    runs = recorded(out)
    parts = [format_table(runs), format_by_k(runs), format_by_length(runs)]
    text = "\n\n".join(part for part in parts if part)
    write_text(out / "table.md", text + "\n")
    return text


def format_table(runs: Sequence[Recorded]) -> str:
    """One line for each row and length of training, seeds averaged.

    Unfinished runs have lines of their own: what is known of them is their last validation, which
    reads less than a result does.
    """
    lines = [
        "| row | what | seeds | updates | bits per character | attended | ε-perplexity | "
        "sparsemax score | Jensen-Shannon | tokens/s |",
        "| --- " * 10 + "|",
    ]
    groups: dict[tuple[str, int, bool], list[Recorded]] = defaultdict(list)
    for entry in runs:
        groups[entry.run.row, entry.updates, entry.result is not None].append(entry)
    for (name, updates, _), group in groups.items():
        results = [entry.result for entry in group if entry.result]
        seen = [float(np.mean(r["attended"])) for r in results]
        cells = [
            name,
            row(name).what,
            str(len(group)),
            f"{updates:,}",
            _bits(group),
            _number(seen or [entry.curve[-1]["attended"] for entry in group], 1),
            *(_number([r["scores"][s] for r in results], 3) for s in SCORES),
            _number([r["tokens_per_second"] for r in results], 0),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def format_by_k(runs: Sequence[Recorded]) -> str:
    """Bits per character of one model read with each k, and of models trained with it."""
    return _format_bits(
        "Bits per character of the last 16,384 characters with the k largest weights, where a "
        "model is read with other k than it was trained with:",
        "trained with",
        _results(runs, "by_k"),
    )


def format_by_length(runs: Sequence[Recorded]) -> str:
    """Bits per character of the same characters after shorter and longer texts."""
    return _format_bits(
        "Bits per character of the last 16,384 characters, read in pieces of so many characters, "
        "of which the last 256 are counted:",
        "row",
        _results(runs, "by_length"),
    )


def _format_bits(what: str, first: str, found: Mapping[str, Mapping[str, float]]) -> str:
    """A table of bits, a line for each run; nothing if there is none."""
    if not found:
        return ""
    names = list(next(iter(found.values())))
    lines = [what, "", f"| {first} | {' | '.join(names)} |", "| --- " * (len(names) + 1) + "|"]
    for run, bits in found.items():
        lines.append(f"| {run} | {' | '.join(f'{bits[name]:.3f}' for name in names)} |")
    return "\n".join(lines)


def _results(runs: Sequence[Recorded], name: str) -> dict[str, dict[str, float]]:
    """One entry of the results that have it, by row, the mean of the seeds trained the longest."""
    groups: dict[str, list[tuple[int, dict[str, float]]]] = defaultdict(list)
    for entry in runs:
        if entry.result and name in entry.result:
            groups[entry.run.row].append((entry.updates, entry.result[name]))
    found = {}
    for row_name, group in groups.items():
        longest = _longest(group)
        found[row_name] = {key: float(np.mean([one[key] for one in longest])) for key in longest[0]}
    return found


def _curves(runs: Sequence[Recorded], rows: Sequence[str]) -> dict[str, list[dict[str, float]]]:
    """Bits at each update that all were validated at, the mean of the seeds trained the longest."""
    found = {}
    for name in rows:
        of_row = [entry.curve for entry in runs if entry.run.row == name]
        curves = [
            {point["update"]: point.get("bits", np.nan) for point in curve}
            for curve in _longest([(curve[-1]["update"], curve) for curve in of_row])
        ]
        common = [u for u in curves[0] if all(u in curve for curve in curves)] if curves else []
        bits = {update: float(np.mean([curve[update] for curve in curves])) for update in common}
        if len(bits) > 1 and not np.isnan(list(bits.values())).any():
            found[name] = [{"update": update, "bits": mean} for update, mean in bits.items()]
    return found


def _longest(seeds: Sequence[tuple[int, Kind]]) -> list[Kind]:
    """What belongs to the most updates: a mean over different ones would be of no model."""
    most = max((updates for updates, _ in seeds), default=0)
    return [one for updates, one in seeds if updates == most]


def _lines_by_k(runs: Sequence[Recorded]) -> dict[str, dict[str, float]]:
    """The lines of the picture of k: of chosen rows, and each k at which a model was trained."""
    by_k = _results(runs, "by_k")
    lines = {row: by_k[row] for row in READ_WITH_K if row in by_k}
    if {"softmax", *(f"top{k}" for k in KS)} <= set(by_k):
        trained = {str(k): by_k[f"top{k}"][str(k)] for k in KS}
        lines["trained with that k"] = trained | {"all": by_k["softmax"]["all"]}
    return lines


@of_results
def draw_report(out: Path) -> list[Path]:
    """Draw the curves, and bits against k if a run has them; returns the files."""
    from pyentmax.plotting import plot_bits_curves, plot_choice_of_k, save_figure

    runs = recorded(out)
    files = []
    for name, rows in CURVES.items():
        curves = _curves(runs, rows)
        if curves:
            files.append(save_figure(plot_bits_curves(curves), out / f"{name}.png"))
    by_k = _lines_by_k(runs)
    if by_k:
        files.append(save_figure(plot_choice_of_k(by_k, "bits per character"), out / "k.png"))
    return files


def _bits(group: Sequence[Recorded]) -> str:
    """The mean over seeds, with its standard error; of unfinished runs, the last validation's."""
    found = [(entry.result or entry.curve[-1]).get("bits") for entry in group]
    values = [float(bits) for bits in found if bits is not None]
    if len(values) < len(found):  # a finished model found impossible what came
        return "∞" if all(entry.result for entry in group) else "–"
    if len(values) < 2:
        return f"{values[0]:.3f}"
    error = np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.3f} ± {error:.3f}"


def _number(values: Sequence[float], digits: int) -> str:
    return f"{np.mean(values):,.{digits}f}" if len(values) else "–"
