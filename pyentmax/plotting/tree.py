"""The tree of hypotheses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from pyentmax.decoding.hypothesis_tree import EMPTY, HypothesisNode, HypothesisTree, format_percent
from pyentmax.plotting._figures import (
    BLUE,
    EDGE,
    GREY,
    INK,
    MONOSPACED,
    PALE,
    new_axes,
    require_matplotlib,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_hypothesis_tree"]

# Sizes of the hypothesis tree in units of its font size.
PADDING, ROW, BOX = 0.55, 2.5, 1.7


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
    require_matplotlib()
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
    end = column + max(map(text_width, strings)) + 1.2 + max(map(text_width, percents))
    height = len(leaves) * ROW

    if ax is None:
        inch = 13 / 72  # per unit, which makes the font 13 points
        ax = new_axes((end + 1) * inch, height * inch, fill=True)
    ax.set(xlim=(-0.5, end + 0.5), ylim=(height - ROW / 2, -ROW / 2), aspect="equal")
    ax.set_axis_off()
    box = ax.get_window_extent()
    unit = min(box.width / (end + 1), box.height / height) * 72 / ax.figure.dpi  # in points

    def write(x: float, y: float, text: str, **style: Any) -> None:
        style = {"color": INK, "fontsize": unit, "va": "center_baseline", **style}
        ax.text(x, y, text, family=MONOSPACED, **style)

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
        place = _Place(node, parent, left, left + 2 * PADDING + text_width(run + mark) + space)
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
