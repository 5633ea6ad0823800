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
    "draw_simplex",
    "hold_blas",
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


def show(figure: Any, alt: str) -> None:
    """Display a figure with a description in words, for readers who cannot see it.

    As an HTML image: that is the form of output for which every front end keeps the description.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    source = f"data:image/png;base64,{data}"
    display(HTML(f'<img alt="{escape(alt)}" style="max-width: 100%" src="{source}">'))


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
