"""Common parts of all figures: axes, text and saving."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category, east_asian_width

from pyentmax.plotting._palette import INK, RULE
from pyentmax.system.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The width of a character of this font in units of its size, so that the width of a text is known
# before anything is drawn.
MONOSPACED, CHARACTER = "DejaVu Sans Mono", 0.602
MAX_PIXELS = 2**25
"""Limit on the size of a PNG; drawing one of this size takes some 300 MB."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def text_width(text: str) -> float:
    """Width of monospaced text: wide characters take two columns, combining marks none."""
    above = ("Mn", "Me")  # marks that stand on the character before them
    wide = sum(east_asian_width(c) in "WF" for c in text)
    return CHARACTER * (sum(category(c) not in above for c in text) + wide)


def drawable(text: str) -> str:
    """The text with lone surrogates, which no font can draw, replaced.

    Python reads a byte that is not UTF-8 as one, and so a vocabulary may contain them.

    Examples
    --------
    >>> drawable("dr\\udcffw") == "dr\N{REPLACEMENT CHARACTER}w"
    True
    """
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes or, if there are none, those of a new figure of this size in inches."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return ax or Figure(figsize=(width, height), layout="constrained").add_subplot()


def text_axes(
    ax: Axes | None, size: tuple[float, float], **limits: Any
) -> tuple[Axes, float, Callable[..., Any]]:
    """Axes for a picture made of text, its font size in points, and its ``write(x, y, text)``.

    ``size`` and the limits ``xlim`` and ``ylim`` are in units of that font. It has 13 points in a
    new figure; in existing axes, it is as large as their current size allows.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    width, height = size
    if ax is None:
        inch = 13 / 72  # per unit
        figure = Figure(figsize=(width * inch, height * inch))
        # No layout engine, whatever Matplotlib's settings: there is no margin to lay out.
        figure.set_layout_engine("none")
        ax = figure.add_axes((0, 0, 1, 1))
    ax.set(aspect="equal", **limits)
    ax.set_axis_off()
    box = ax.get_window_extent()
    unit = min(box.width / width, box.height / height) * 72 / ax.figure.dpi
    style: dict[str, Any] = {"color": INK, "fontsize": unit, "va": "center_baseline"}

    def write(x: float, y: float, text: str, **changes: Any) -> None:
        options = {"family": MONOSPACED, "parse_math": False, **style, **changes}
        ax.text(x, y, drawable(text), **options)

    return ax, unit, write


def require_matplotlib() -> None:
    """Raise an ImportError that says what to install if Matplotlib is missing or broken."""
    try:
        importlib.import_module("matplotlib")
        importlib.import_module("matplotlib.figure")  # fails where it was built for another NumPy
    except ImportError as error:
        raise ImportError(
            "pictures are drawn with Matplotlib, which cannot be imported "
            f"({error}): pip install 'pyentmax[models]'"
        ) from error


def legend(ax: Axes, **options: Any) -> None:
    """A legend whose labels and title are words, never formulas."""
    shown = ax.legend(frameon=False, **options)
    for text in (shown.get_title(), *shown.get_texts()):
        text.set_parse_math(False)


def percent_axis(ax: Axes) -> None:
    """Label the y-axis in percent, with a grid."""
    ax.yaxis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")
    ax.grid(color=RULE, lw=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def save_figure(ax: Axes, path: str | os.PathLike[str], *, dpi: float = 200) -> Path:
    """Save the figure of the axes atomically, with the same bytes each time.

    Metadata that differs between runs (dates, versions) is left out.

    Parameters
    ----------
    ax : matplotlib Axes
        As the functions of `pyentmax.plotting` return them.
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
    >>> from pyentmax.plotting import plot_mapping_curves
    >>> ax = plot_mapping_curves()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(ax, f"{folder}/curves.png").name
    'curves.png'
    """
    require_matplotlib()
    from matplotlib import rc_context

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
    # The salt of SVG identifiers would otherwise be drawn at random.
    with rc_context({"svg.hashsalt": "pyentmax"}), replacing(path) as file:
        if suffix == ".png":
            width, height = figure.get_size_inches()
            dpi = min(dpi, math.sqrt(MAX_PIXELS / (width * height)))
        saved = {"format": suffix[1:], "metadata": metadata[suffix], "dpi": dpi}
        figure.savefig(file, bbox_inches="tight", pad_inches=0.1, facecolor="white", **saved)
    return path
