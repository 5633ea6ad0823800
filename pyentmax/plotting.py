"""Pictures: hypothesis trees, attention maps, training curves, mapping curves.

Every function draws into the axes that it is given, or into a new figure of fitting size, and
returns the axes (``ax.figure`` is the figure). New figures never touch pyplot's state or backend,
so that the functions work in a notebook, in a script without a display, and in threads alike.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category, east_asian_width

import numpy as np
from numpy.typing import ArrayLike

from ._files import replacing
from .decoding.lattice import EMPTY, HypothesisNode, HypothesisTree, format_percent
from .mappings.entmax import entmax

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "plot_attention",
    "plot_hypothesis_tree",
    "plot_mapping_curves",
    "plot_training_curve",
    "save_figure",
]

# Okabe and Ito's palette, told apart under every common form of colour blindness.
BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
INK, GREY, RULE, PALE, EDGE = "#1F2933", "#6B7785", "#DDE3E9", "#E6F0F8", "#8FBEDD"

# Sizes of the hypothesis tree in units of its font size. The font is monospaced, and a character of
# it is 0.602 wide, so that the room which a text needs is known before anything is drawn.
CHARACTER, PADDING, ROW, BOX = 0.602, 0.55, 2.5, 1.7


def _new_axes(width: float, height: float, *, fill: bool = False) -> Axes:
    """Axes in a new figure of that many inches; ``fill`` leaves no margin around them."""
    from matplotlib.figure import Figure

    if fill:
        return Figure(figsize=(width, height)).add_axes((0, 0, 1, 1))
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def _require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "plots are drawn with Matplotlib, which is not installed: pip install pyentmax[models]"
        )


def plot_hypothesis_tree(tree: HypothesisTree, ax: Axes | None = None) -> Axes:
    """Draw the hypotheses of a beam as a tree from left to right (Peters et al. 2019, Figure 1).

    A box holds a run of tokens which all strings to the right of it share. The wider an edge, the
    more probability goes along it; where branches follow branches, the number on an edge is its
    share of the box that it leaves. On the right stands each string with its probability.

    Parameters
    ----------
    tree : HypothesisTree
        Such as ``HypothesisTree.build(result.hypotheses, vocabulary.tokens.__getitem__)``.
    ax : matplotlib Axes, optional
        Where to draw; the text is fitted to the size that the axes have now. By default a new
        figure of fitting size.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If Matplotlib is not installed.

    Examples
    --------
    >>> from math import log
    >>> from pyentmax.decoding import Hypothesis, HypothesisTree
    >>> hypotheses = [Hypothesis((0, 1), log(0.75)), Hypothesis((0,), log(0.25))]
    >>> tree = HypothesisTree.build(hypotheses, "no".__getitem__)
    >>> ax = plot_hypothesis_tree(tree)
    >>> [text.get_text() for text in ax.texts][-4:]
    ['no', '75.0%', 'n', '25.0%']
    """
    _require_matplotlib()
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path as Curve
    from matplotlib.patheffects import withStroke

    places = list(_places(tree))
    leaves = [place for place in places if place.node.is_leaf]
    nested = len(places) > len(leaves) + 1
    best = max(place.node.probability for place in leaves)
    column = max(place.right for place in places) + 1.8  # where the strings begin
    strings = [tree.string(place.node) or EMPTY for place in leaves]
    percents = [format_percent(place.node.probability) for place in leaves]
    end = column + max(map(_width, strings)) + 1.2 + max(map(_width, percents))
    height = len(leaves) * ROW

    if ax is None:
        inch = 13 / 72  # per unit, which makes the font 13 points
        ax = _new_axes((end + 1) * inch, height * inch, fill=True)
    ax.set(xlim=(-0.5, end + 0.5), ylim=(height - ROW / 2, -ROW / 2), aspect="equal")
    ax.set_axis_off()
    box = ax.get_window_extent()
    unit = min(box.width / (end + 1), box.height / height) * 72 / ax.figure.dpi  # in points

    def write(x: float, y: float, text: str, **style: Any) -> None:
        style = {"color": INK, "fontsize": unit, "va": "center_baseline", **style}
        ax.text(x, y, text, family="DejaVu Sans Mono", **style)

    for place in places:
        if place.parent is not None:
            x0, y0 = place.parent.right, place.parent.y
            bend = (x0 + place.left) / 2
            path = [(x0, y0), (bend, y0), (bend, place.y), (place.left, place.y)]
            thickness = unit * (0.06 + 0.5 * place.node.probability)
            curve = Curve(path, [Curve.MOVETO, *3 * [Curve.CURVE4]])
            ax.add_patch(PathPatch(curve, fill=False, ec=EDGE, lw=thickness, capstyle="butt"))
    for place in places:
        box_style = "round,pad=0,rounding_size=0.4"
        corner, width = (place.left, place.y - BOX / 2), place.right - place.left
        colour = "white" if place.node.is_leaf else PALE
        ax.add_patch(
            FancyBboxPatch(corner, width, BOX, box_style, fc=colour, ec=BLUE, lw=0.09 * unit)
        )
        run, mark = _box_text(tree, place.node)
        write(place.left + PADDING, place.y, run)
        write(place.right - PADDING, place.y, mark, color=GREY, ha="right")
        if nested and place.parent is not None:
            # Beside the edge, on the side that it does not come from.
            y = place.y + (0.8 if place.y > place.parent.y else -0.8)
            small: dict[str, Any] = {"color": GREY, "ha": "right", "fontsize": 0.68 * unit}
            # A thick edge may pass behind the figures.
            small["path_effects"] = [withStroke(linewidth=0.2 * unit, foreground="white")]
            write(place.left - 0.25, y, format_percent(place.node.share), **small)
    for place, string, percent in zip(leaves, strings, percents, strict=True):
        weight = "bold" if place.node.probability == best else "normal"
        ax.plot([place.right + 0.3, column - 0.4], [place.y] * 2, ":", color=GREY, lw=0.09 * unit)
        write(column, place.y, string, weight=weight)
        write(end, place.y, percent, weight=weight, ha="right")
    return ax


@dataclass
class _Place:
    """Where a node of the tree is drawn."""

    node: HypothesisNode
    parent: _Place | None
    left: float
    right: float
    y: float = 0.0


def _places(tree: HypothesisTree) -> Iterator[_Place]:
    """Places of all nodes, parents first: a row per leaf, parents amid their children."""
    gap = 6.0 if any(not child.is_leaf for child in tree.root.children) else 3.0
    row = count()

    def below(node: HypothesisNode, parent: _Place | None) -> list[_Place]:
        left = 0.0 if parent is None else parent.right + gap
        run, mark = _box_text(tree, node)
        space = 0.35 if run and mark else 0.0
        place = _Place(node, parent, left, left + 2 * PADDING + _width(run + mark) + space)
        branches = [below(child, place) for child in node.children]
        heads = [branch[0].y for branch in branches]
        place.y = (heads[0] + heads[-1]) / 2 if heads else ROW * next(row)
        return [place, *chain.from_iterable(branches)]

    yield from below(tree.root, None)


def _box_text(tree: HypothesisTree, node: HypothesisNode) -> tuple[str, str]:
    """The run of a node and, apart from it, the mark that ends a leaf."""
    if node.is_leaf:
        return tree.label(node.tokens[:-1]), node.tokens[-1]
    return tree.label(node.tokens) or "·", ""


def _width(text: str) -> float:
    """Width of monospaced text: wide characters take two columns, combining ones none."""
    above = ("Mn", "Me")  # marks that stand on the character before them
    wide = sum(east_asian_width(c) in "WF" for c in text)
    return CHARACTER * (sum(category(c) not in above for c in text) + wide)


def plot_attention(
    weights: ArrayLike, source: Sequence[str], target: Sequence[str], ax: Axes | None = None
) -> Axes:
    """Draw attention weights as a map, non-zeros outlined (Peters et al. 2019, Figure 5).

    A weight of exactly zero leaves its cell blank; the smallest weight above zero is outlined.

    Parameters
    ----------
    weights : (len(target), len(source)) array
        Such as ``hypothesis.attention``; a row for each target token.
    source, target : sequences of str
        Labels of columns and rows.
    ax : matplotlib Axes, optional
        Where to draw; a new figure of fitting size, with a colour bar, by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the weights do not have a row for each target token and a column for each source token.
    ImportError
        If Matplotlib is not installed.

    Examples
    --------
    >>> ax = plot_attention([[0.5, 0.5], [0.0, 1.0]], source="ab", target=["x", "</s>"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x', '</s>']
    """
    _require_matplotlib()
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    weights = np.asarray(weights, dtype=float)
    if weights.shape != (len(target), len(source)):
        raise ValueError(
            f"weights must have a row for each of the {len(target)} target tokens and a column for "
            f"each of the {len(source)} source tokens, not shape {weights.shape}"
        )
    own_figure = ax is None
    if ax is None:
        width = 0.36 * len(source) + 0.1 * max(map(len, target), default=0)
        height = 0.36 * len(target) + 0.1 * max(map(len, source), default=0)
        ax = _new_axes(width + 1.3, max(height + 0.5, 2.0))

    rows, columns = np.nonzero(weights > 0)
    inset = 0.06  # keeps the outlines of neighbours apart
    cells = [
        Rectangle((x - 0.5 + inset, y - 0.5 + inset), 1 - 2 * inset, 1 - 2 * inset)
        for y, x in zip(rows, columns, strict=True)
    ]
    colours = LinearSegmentedColormap.from_list("weights", ["#F3F8FC", BLUE])
    map_ = PatchCollection(cells, cmap=colours, ec=INK, lw=0.9)
    map_.set_array(weights[rows, columns])
    map_.set_clim(0, 1)
    ax.add_collection(map_)
    ax.set(xlim=(-0.5, len(source) - 0.5), ylim=(len(target) - 0.5, -0.5), aspect="equal")
    ax.set_xticks(range(len(source)), [token.replace(" ", "␣") for token in source])
    ax.set_yticks(range(len(target)), [token.replace(" ", "␣") for token in target])
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    for label, token in zip(ax.get_xticklabels(), source, strict=True):
        label.set_rotation(0 if len(token) <= 2 else 90)
    for spine in ax.spines.values():
        spine.set_color(RULE)
    if own_figure:
        bar = ax.figure.colorbar(map_, ax=ax, label="attention weight", pad=0.03, aspect=16)
        bar.outline.set_visible(False)
    return ax


def plot_training_curve(history: Mapping[str, Sequence[float]], ax: Axes | None = None) -> Axes:
    """Draw the training loss and the dev accuracy over the updates.

    Parameters
    ----------
    history : mapping
        Lists of one length: "update", "loss" and "dev_accuracy" (from 0 to 1; NaN where it was not
        measured).
    ax : matplotlib Axes, optional
        Where to draw the loss; the accuracy gets a twin of it. A new figure by default.

    Returns
    -------
    matplotlib Axes
        That of the loss.

    Raises
    ------
    ValueError
        If a list is missing or their lengths differ.
    ImportError
        If Matplotlib is not installed.

    Examples
    --------
    >>> history = {"update": [100, 200], "loss": [2.0, 0.5], "dev_accuracy": [0.25, 0.75]}
    >>> ax = plot_training_curve(history)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('update', 'training loss')
    """
    _require_matplotlib()
    from matplotlib.ticker import PercentFormatter

    names = ("update", "loss", "dev_accuracy")
    lengths = {name: len(history[name]) for name in names if name in history}
    if len(lengths) < len(names) or len(set(lengths.values())) > 1:
        raise ValueError(
            f"history must hold lists of one length named {', '.join(names)}, not of the lengths "
            f"{lengths}"
        )
    update, loss, accuracy = (np.asarray(history[name], dtype=float) for name in names)
    if ax is None:
        ax = _new_axes(6.4, 3.6)
    ax.plot(update, loss, color=BLUE, lw=2)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("update")
    ax.set_ylabel("training loss", color=BLUE)
    twin = ax.twinx()
    measured = np.isfinite(accuracy)
    twin.plot(update[measured], accuracy[measured], "o--", color=VERMILION, lw=1.6, ms=4)
    twin.set_ylim(0, 1.08)
    twin.set_yticks(np.linspace(0, 1, 6))
    twin.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    twin.set_ylabel("dev accuracy", color=VERMILION)
    if measured.any():
        best = int(np.nanargmax(accuracy))
        twin.annotate(
            f"best {accuracy[best]:.1%}",
            (update[best], accuracy[best]),
            xytext=(0, 7),
            textcoords="offset points",
            color=VERMILION,
            ha="right" if update[best] > update.mean() else "left",
        )
    for axes, colour in ((ax, BLUE), (twin, VERMILION)):
        axes.tick_params(axis="y", colors=colour)
        axes.spines["top"].set_visible(False)
    ax.grid(axis="x", color=RULE, lw=0.8)
    return ax


def plot_mapping_curves(ax: Axes | None = None) -> Axes:
    """Draw α-entmax in two dimensions: p₁ of the scores z = (t, 0) (Peters et al. 2019, Figure 3).

    A dot marks where a curve reaches 0 or 1 for good, at |t| = 1 / (α − 1); softmax never does.

    Parameters
    ----------
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If Matplotlib is not installed.

    Examples
    --------
    >>> len(plot_mapping_curves().lines)
    5
    """
    _require_matplotlib()
    if ax is None:
        ax = _new_axes(5.4, 3.8)
    reach = 4.5
    t = np.linspace(-reach, reach, 901)
    z = np.stack([t, np.zeros_like(t)], axis=-1)
    curves = [
        (1.0, "α = 1 (softmax)", PURPLE, (0, (1, 1))),
        (1.25, "α = 1.25", GREEN, (0, (5, 1, 1, 1))),
        (1.5, "α = 1.5", BLUE, "-"),
        (2.0, "α = 2 (sparsemax)", VERMILION, (0, (4, 1.5))),
        (4.0, "α = 4", ORANGE, (0, (7, 1, 1, 1, 1, 1))),
    ]
    for alpha, label, colour, dashes in curves:
        ax.plot(t, entmax(z, alpha)[:, 0], color=colour, ls=dashes, lw=2, label=label)
        if alpha > 1:
            saturation = 1 / (alpha - 1)
            ax.scatter([-saturation, saturation], [0, 1], s=28, color=colour, zorder=3)
    ax.set(xlim=(-reach, reach), ylim=(-0.04, 1.04), xlabel="t", ylabel="p₁ of z = (t, 0)")
    ax.legend(frameon=False, loc="upper left", handlelength=3)
    ax.grid(color=RULE, lw=0.8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def save_figure(ax: Axes, path: str | os.PathLike[str], *, dpi: float = 200) -> Path:
    """Save the figure of some axes whole or not at all, the same bytes each time.

    Neither a full disk nor an interrupt leaves half a picture or loses the one that was there.
    Metadata that differs from run to run (dates, versions) is left out.

    Parameters
    ----------
    ax : matplotlib Axes
        As the functions above return them.
    path : path
        Its suffix chooses the format: .png, .svg or .pdf.
    dpi : float
        Dots per inch of a PNG.

    Returns
    -------
    pathlib.Path
        The path.

    Raises
    ------
    ValueError
        If the suffix is none of these.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> ax = plot_mapping_curves()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(ax, f"{folder}/curves.png").name
    'curves.png'
    """
    _require_matplotlib()
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
        raise ValueError(f"the path must end in .png, .svg or .pdf, not in {path.name!r}")
    # The salt of SVG identifiers would otherwise be drawn at random.
    with rc_context({"svg.hashsalt": "pyentmax"}), replacing(path) as file:
        figure.savefig(
            file,
            format=suffix[1:],
            dpi=dpi,
            bbox_inches="tight",
            pad_inches=0.1,
            facecolor="white",
            metadata=metadata[suffix],
        )
    return path
