"""Lines of results as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyentmax.seq2seq.plotting import save_figure
from pyentmax.seq2seq.plotting.palette import COLOURS, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of a line: six colours, then the same dashed, then dotted.

    Examples
    --------
    >>> line_style(0)["ls"], line_style(6)["ls"], line_style(0)["color"] == line_style(6)["color"]
    ('-', '--', True)
    """
    dashes, colour = divmod(number, len(COLOURS))
    return {
        "color": COLOURS[colour],
        "marker": "os^Dv*"[colour],
        "ls": ("-", "--", ":")[dashes % 3],
    }


def panels(columns: int = 1, *, share_y: bool = True) -> list[Axes]:
    """The axes of a new figure, side by side; four in two rows.

    At most 8.6 inches wide: a page shows it at 7.7, where 10 points are still 9.
    """
    from matplotlib.figure import Figure

    rows = 1 if columns < 4 else 2
    across = -(-columns // rows)
    figure = Figure(figsize=(1.4 + {1: 4.2, 2: 3.6}.get(across, 2.4) * across, 0.6 + 3 * rows))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(rows, across, squeeze=False, sharey=share_y).ravel()
    for ax in axes[columns:]:
        ax.set_axis_off()
    return list(axes[:columns])


def curves(
    ax: Axes,
    lines: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]],
    x: str,
    y: str,
) -> None:
    """Label → an x and a y of each run; the runs of a label look alike."""
    for number, (label, runs) in enumerate(lines.items()):
        for run in runs:
            ax.plot(*run, label=label, **line_style(number), ms=3.5, lw=1.6)
            label = f"_{label}"  # Matplotlib leaves such labels out of the legend
    _finish(ax, x, y)


def points(ax: Axes, lines: Mapping[str, Mapping[float, Sequence[float]]], x: str, y: str) -> None:
    """Label → x → values, whose mean is drawn, with a standard error where there are several."""
    for number, (label, values) in enumerate(lines.items()):
        places = sorted(values)
        arrays = [np.asarray(values[place], float) for place in places]
        error = [v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in arrays]
        mean = [v.mean() for v in arrays]
        ax.errorbar(places, mean, error, label=label, capsize=3, ms=5, lw=1.8, **line_style(number))
    _finish(ax, x, y)


def save(axes: Sequence[Axes], path: Path) -> Path:
    """Save the figure of these axes, with one legend for all of them."""
    if len(axes) == 1:
        legend: Any = axes[0].legend(frameon=False)
    else:
        handles, labels = axes[0].get_legend_handles_labels()
        columns = 3 if max(map(len, labels)) < 30 else 2  # else wider than the panels
        options: Any = {"loc": "outside lower center", "ncols": columns, "frameon": False}
        legend = axes[0].figure.legend(handles, labels, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return save_figure(axes[0], path)


def _finish(ax: Axes, x: str, y: str) -> None:
    ax.set(xlabel=x, ylabel=y)
    ax.grid(color=RULE, lw=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
