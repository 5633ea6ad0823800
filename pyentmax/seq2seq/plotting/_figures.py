"""Common parts of all figures: axes, boxes of text, legends and saving."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category, east_asian_width

from pyentmax.engine.system.files import replacing
from pyentmax.seq2seq.plotting.palette import BLUE, EDGE, INK, PALE, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The width of a character of this font in units of its size, so that the width of a text is known
# before anything is drawn.
MONOSPACED, CHARACTER = "DejaVu Sans Mono", 0.602
PADDING = 0.55
"""Between a text and its box, in units of the font size."""
MAX_PIXELS = 2**25
"""Limit on the size of a PNG; drawing one of this size takes some 300 MB."""


def require_matplotlib() -> None:
    """Raise an ImportError that says what to install if Matplotlib is missing or broken."""
    try:
        importlib.import_module("matplotlib.figure")  # fails where it was built for another NumPy
    except ImportError as error:
        raise ImportError(
            "pictures are drawn with Matplotlib, which cannot be imported "
            f"({error}): pip install 'pyentmax[models]'"
        ) from error


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes or, if there are none, those of a new figure of this size in inches."""
    if ax is None:
        require_matplotlib()
        from matplotlib.figure import Figure

        ax = Figure(figsize=(width, height), layout="constrained").subplots()
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
            text.set_parse_math(False)  # "$" is only a character
    return ax


def remove_frame(ax: Axes) -> None:
    """A grid, and no frame above and to the right."""
    ax.grid(color=RULE, lw=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def legend(owner: Any, *handles_and_labels: Any, **options: Any) -> None:
    """A legend of axes or of a figure, whose labels are words, never formulas."""
    for text in owner.legend(*handles_and_labels, frameon=False, **options).get_texts():
        text.set_parse_math(False)


def text_width(text: str) -> float:
    """Width of monospaced text: wide characters take two columns, combining marks none."""
    above = ("Mn", "Me")  # marks that stand on the character before them
    wide = sum(east_asian_width(c) in "WF" for c in text)
    return CHARACTER * (sum(category(c) not in above for c in text) + wide)


class TextCanvas:
    """Axes for boxes of text and edges between them; all lengths are in units of the font size.

    In a new figure the font has 13 points; in existing axes it is as large as their size allows.
    The picture reaches from 0 to ``width`` and, downwards, from ``top`` to ``bottom``.
    """

    def __init__(self, ax: Axes | None, width: float, top: float, bottom: float) -> None:
        require_matplotlib()
        from matplotlib import rcParams
        from matplotlib.figure import Figure

        self.fonts = [MONOSPACED, *rcParams["font.family"]]  # the latter for other scripts
        width, height = width + 1, bottom - top
        if ax is None:
            inch = 13 / 72  # per unit
            figure = Figure(figsize=(width * inch, height * inch))
            # No layout engine, whatever Matplotlib's settings: there is no margin to lay out.
            figure.set_layout_engine("none")
            ax = figure.add_axes((0, 0, 1, 1))
        ax.set(aspect="equal", xlim=(-0.5, width - 0.5), ylim=(bottom, top))
        ax.set_axis_off()
        box = ax.get_window_extent()
        self.ax = ax
        self.unit = min(box.width / width, box.height / height) * 72 / ax.figure.dpi

    def write(self, x: float, y: float, text: str, *, size: float = 1, **changes: Any) -> None:
        """Write monospaced text, its middle at height y."""
        style: dict[str, Any] = {"color": INK, "va": "center_baseline", "parse_math": False}
        style |= {"family": self.fonts, "fontsize": size * self.unit}
        if text:
            self.ax.text(x, y, text, **style | changes)

    def box(
        self, left: float, right: float, y: float, height: float = 1.7, fc: str = PALE, **style: Any
    ) -> None:
        """Draw a box with round corners, its middle at height y."""
        from matplotlib.patches import FancyBboxPatch

        style = {"boxstyle": "round,pad=0,rounding_size=0.4", "ec": BLUE, "fc": fc} | style
        corner = (left, y - height / 2)
        self.ax.add_patch(
            FancyBboxPatch(corner, right - left, height, lw=0.09 * self.unit, **style)
        )

    def edge(
        self, stops: Sequence[tuple[float, float]], probability: float, gap: float = math.inf
    ) -> None:
        """Draw a curve, as wide as its probability, that bends in the last ``gap`` to each stop."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path as Curve

        path, codes = [stops[0]], [Curve.MOVETO]
        for (x0, y0), (x1, y1) in zip(stops, stops[1:], strict=False):
            bend = max((x0 + x1) / 2, x1 - gap / 2)
            path += [(bend, y0), (bend, y1), (x1, y1)]
            codes += 3 * [Curve.CURVE4]
        style: dict[str, Any] = {"fill": False, "ec": EDGE, "capstyle": "butt"}
        style["lw"] = self.unit * (0.06 + 0.5 * probability)
        self.ax.add_patch(PathPatch(Curve(path, codes), **style))


def save_figure(ax: Axes, path: str | os.PathLike[str], *, dpi: float = 200) -> Path:
    """Save the figure of the axes atomically, with the same bytes each time.

    Metadata that differs between runs (dates, versions) is left out. Matplotlib warns of characters
    that the fonts do not have; ``font.family`` of a matplotlibrc may name others.

    Parameters
    ----------
    ax : matplotlib Axes
        As the functions of `pyentmax.seq2seq.plotting` return them.
    path : path
        Its suffix chooses the format: .png, .svg or .pdf. Returned as a pathlib.Path.
    dpi : float
        Dots per inch of a PNG; fewer for a figure that would have more than 2²⁵ pixels.

    Raises
    ------
    ValueError
        If the suffix is not one of these.

    Examples
    --------
    >>> import tempfile
    >>> from pyentmax.seq2seq.plotting import plot_mapping_curves
    >>> ax = plot_mapping_curves()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(ax, f"{folder}/curves.png").name
    'curves.png'
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.text import Text

    figure: Any = ax.figure
    path = Path(path)
    metadata: dict[str, dict[str, None]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    suffix = path.suffix.lower()
    if suffix not in metadata:
        raise ValueError(f"the path must end in .png, .svg or .pdf, got {path.name!r}")
    width, height = figure.get_size_inches()
    if suffix == ".png":
        dpi = min(dpi, math.sqrt(MAX_PIXELS / (width * height)))
    saved = {"format": suffix[1:], "metadata": metadata[suffix], "dpi": dpi}
    # The salt of SVG identifiers would otherwise be drawn at random.
    rc = rc_context({"svg.hashsalt": "pyentmax", "text.usetex": False})
    with rc, replacing(path) as file:
        for text in figure.findobj(Text):  # words, which LaTeX would read as its commands
            text.set_usetex(False)
        figure.savefig(file, bbox_inches="tight", pad_inches=0.1, facecolor="white", **saved)
    return path
