"""What the notebooks share: figures, code to read, the triangle of p, and one BLAS thread.

The colours are Okabe and Ito's, told apart under every common form of colour blindness; curves
differ in their dashes too, so that the figures can be read in black and white.
"""

from __future__ import annotations

import base64
import inspect
import io
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import HTML, display

from pyentmax.plotting import BLUE, EDGE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, RULE, VERMILION
from pyentmax.system.blas import describe_blas, limit_blas

__all__ = [
    "BLUE",
    "CURVES",
    "EDGE",
    "GREEN",
    "GREY",
    "INK",
    "ORANGE",
    "PALE",
    "PURPLE",
    "RULE",
    "SUPPORT_COLOURS",
    "VERMILION",
    "columns_of",
    "draw_decision_sets",
    "draw_fertility",
    "draw_matrix",
    "draw_simplex",
    "hold_blas",
    "numbers",
    "results_page",
    "show",
    "show_source",
    "simplex_grid",
    "simplex_xy",
]

plt.rcParams.update(
    {
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.constrained_layout.use": True,
        "figure.dpi": 100,
        "font.size": 11,
        "grid.color": RULE,
        "legend.frameon": False,
        "lines.linewidth": 2,
    }
)

# α, and how its curve is drawn in every notebook.
CURVES: dict[float, dict[str, Any]] = {
    1.0: {"color": PURPLE, "ls": (0, (1, 1)), "label": "α = 1"},
    1.25: {"color": GREEN, "ls": (0, (5, 1, 1, 1)), "label": "α = 1.25"},
    1.5: {"color": BLUE, "ls": "-", "label": "α = 1.5"},
    2.0: {"color": VERMILION, "ls": (0, (4, 1.5)), "label": "α = 2"},
    4.0: {"color": ORANGE, "ls": (0, (7, 1, 1, 1, 1, 1)), "label": "α = 4"},
}

# Of a support of 1, 2 and 3 entries: from dark to light, so that grey tones tell them apart too.
SUPPORT_COLOURS = {1: BLUE, 2: ORANGE, 3: "#F7E9B0"}


_until_the_end = ExitStack()


def hold_blas(threads: int = 1) -> None:
    """Limit BLAS to some threads from here on, and say so.

    The matrices of the notebooks are small: BLAS, left to itself, shares each product among all
    cores and takes several times as long.
    """
    _until_the_end.enter_context(limit_blas(threads))
    print(describe_blas("hold_blas(N)"))


def show(figure: Any, alt: str, caption: str) -> None:
    """Display a figure, its caption below, with a description for readers who cannot see it.

    The caption says what the marks are and what to look for. As an HTML image: that is the form of
    output for which every front end keeps the description.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    source = f"data:image/png;base64,{data}"
    display(
        HTML(
            f'<img alt="{escape(alt)}" style="max-width: 100%" src="{source}">'
            f'<p style="font-size: 90%; max-width: 46em">{escape(caption)}</p>'
        )
    )


def show_source(*functions: Any) -> None:
    """Display functions of the library as they are written there."""
    code = "\n\n".join(inspect.getsource(function) for function in functions)
    display({"text/markdown": f"```python\n{code}```", "text/plain": code}, raw=True)


def simplex_xy(p: Any) -> Any:
    """The plane's coordinates (…, 2) of points (…, 3): an equilateral triangle with p₁ on top.

    Any three numbers with unit sum have a place in the plane, those outside the simplex too.
    """
    corners = np.array([[0.5, np.sqrt(3) / 2], [0.0, 0.0], [1.0, 0.0]])
    return np.asarray(p) @ corners


def simplex_grid(n: int) -> Any:
    """All p with three entries that are multiples of 1/n, an array of shape (m, 3)."""
    i, j = np.mgrid[: n + 1, : n + 1]
    inside = i + j <= n
    i, j = i[inside], j[inside]
    return np.stack([i, j, n - i - j], axis=-1) / n


def draw_simplex(ax: Any, labels: Any = ("$e_1$", "$e_2$", "$e_3$")) -> Any:
    """The triangle's outline with its corners named, and no other axes."""
    corners = simplex_xy(np.eye(3))
    ax.fill(*corners.T, facecolor="none", edgecolor=INK, lw=1.2, zorder=3)
    for (x, y), label, (dx, dy) in zip(
        corners, labels, [(0, 0.07), (-0.06, -0.07), (0.06, -0.07)], strict=True
    ):
        ax.text(x + dx, y + dy, label, ha="center", va="center", color=INK)
    ax.set(xlim=(-0.16, 1.16), ylim=(-0.16, 1.02), aspect="equal")
    ax.set_axis_off()
    return ax


def draw_decision_sets(
    ax: Any, xs: Any, ys: Any, support: Any, best: Any, points: Any, labels: Any
) -> Any:
    """Colour a plane by sets of three classes, and draw points in it; gives handles for a legend.

    ``support`` (…, 3) says which classes are possible where, ``best`` which has the largest score.
    A set's colour mixes those of its classes, the paler the more there are: the handles are for the
    three classes, the three pairs and all.
    """
    base = np.array([[0, 114, 178], [230, 159, 0], [0, 158, 115]]) / 255

    def colour(sets: Any) -> Any:
        size = sets.sum(axis=-1, keepdims=True)
        return 1 - (1 - (sets[..., None] * base).sum(axis=-2) / size) * 0.75 / size

    extent = (xs[0, 0], xs[0, -1], ys[0, 0], ys[-1, 0])
    ax.imshow(colour(support), origin="lower", extent=extent, aspect="auto")
    ax.contour(xs, ys, best, levels=[0.5, 1.5], colors=INK, linewidths=0.8, linestyles=":")
    for k, marker in enumerate("os^"):
        style = {"ms": 4, "mec": "white", "mew": 0.4, "color": base[k] * 0.75, "ls": "none"}
        ax.plot(*points[labels == k].T, marker, **style)
    ax.grid(visible=False)
    members = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
    sets = np.array([[k in chosen for k in range(3)] for chosen in members])
    return [plt.Rectangle((0, 0), 1, 1, fc=c, ec=GREY, lw=0.5) for c in colour(sets)]


def draw_matrix(ax: Any, matrix: Any, names: Any, largest: float) -> None:
    """A square matrix as a coloured table; a plain 0 is exactly zero, .00 only rounds to it."""
    ax.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest)
    for (i, j), entry in np.ndenumerate(matrix):
        text = f"{entry:.2f}".replace("0.", ".") if entry else "0"
        colour = "white" if abs(entry) > 0.6 * largest else INK
        ax.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    ax.set_xticks(range(len(names)), names, rotation=60, fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.grid(visible=False)


def draw_fertility(axes: Any, columns: Any, source: Any, target: Any, allowed: Any) -> Any:
    """Attention over three words step by step, a column per mapping, its total in the last row.

    ``columns`` holds for each name the pairs (p, bounds) of the steps; ``allowed(bounds)`` gives
    the corners of what bounds leave of the simplex. Gives handles and labels for a legend.
    """
    for column, (name, steps) in zip(axes.T, columns.items(), strict=True):
        column[0].set_title(name, fontsize=12)
        for ax, (p, bounds) in zip(column, steps, strict=False):
            [part] = ax.fill(*allowed(bounds).T, color=PALE, ec=BLUE, lw=2)
            draw_simplex(ax, labels=[word[0] for word in source])
            [dot] = ax.plot(*simplex_xy(p), "o", color=VERMILION, ms=9, mec=INK, zorder=5)
            ax.text(0.5, -0.26, " ".join(f"{q:.2f}" for q in p), ha="center", fontsize=9)
            ax.set_ylim(-0.3, 1.02)
        total = np.sum([p for p, _ in steps], axis=0)
        colours = [GREY if t <= 1 + 1e-9 else VERMILION for t in total]
        column[3].bar([word[0] for word in source], total, color=colours)
        line = column[3].axhline(1, color=BLUE, lw=1.5)
        column[3].set(ylim=(0, 1.65), yticks=[0, 0.5, 1, 1.5])
        column[3].grid(axis="x", visible=False)
        for i, t in enumerate(total):
            column[3].text(i, t + 0.03, f"{t:.2f}", ha="center", va="bottom", fontsize=9)
    axes[3, 0].set_ylabel("attention in all")
    for row, word in zip(axes, target, strict=False):
        row[0].text(-0.3, 0.4, word, rotation=90, va="center", ha="center", fontsize=11)
    return [dot, part, line], ["attention p", "what the bounds allow", "fertility"]


def results_page(name: str) -> tuple[str, dict[str, Any]]:
    """A page of ``docs/results``, and its tables: heading → (column names, rows of cells)."""
    page = (Path(__file__).parents[1] / "docs" / "results" / name).read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    heading = ""
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if heading not in found:
                found[heading] = cells, []
            elif not set("".join(cells)) <= set("-: "):
                found[heading][1].append(cells)
    return page, found


def columns_of(tables: dict[str, Any], heading: str) -> dict[str, Any]:
    """Column name → cells, for the table whose heading begins so."""
    [(names, rows)] = [table for title, table in tables.items() if title.startswith(heading)]
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def numbers(cells: Any) -> Any:
    """The first number of each cell; behind a stroke may stand that of a cold cache."""
    return np.array([float(cell.split("/")[0].replace(",", "")) for cell in cells])
