"""Plots of hypothesis trees."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from pyentmax.decoding.hypothesis_tree import EMPTY, HypothesisNode, HypothesisTree, format_percent
from pyentmax.plotting._figures import require_matplotlib, text_axes, text_width
from pyentmax.plotting._palette import BLUE, EDGE, GREY, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Sizes of the hypothesis tree in units of its font size.
PADDING, ROW, BOX = 0.55, 2.5, 1.7


def plot_hypothesis_tree(tree: HypothesisTree, ax: Axes | None = None) -> Axes:
    """Draw the hypotheses of a beam as a tree from left to right (Peters et al. 2019, Figure 1).

    A box shows a run of tokens that all strings to the right of it share. An edge is as wide as the
    probability of its strings. If branches have branches, the number on an edge is its share of the
    probability of the box that it leaves. The strings are on the right, with their probabilities.

    Parameters
    ----------
    tree : HypothesisTree
        Such as ``HypothesisTree.build(result.hypotheses, vocabulary.tokens.__getitem__)``.
    ax : as in `plot_forced_decoding`

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

    positions = _positions(tree)
    leaves = [position for position in positions if position.node.is_leaf]
    nested = len(positions) > len(leaves) + 1
    best = max(position.node.probability for position in leaves)
    column = max(position.right for position in positions) + 1.8  # where the strings begin
    strings = [tree.string(position.node) or EMPTY for position in leaves]
    percents = [format_percent(position.node.probability) for position in leaves]
    end = column + max(map(text_width, strings)) + 1.2 + max(map(text_width, percents))
    height = len(leaves) * ROW

    limits = {"xlim": (-0.5, end + 0.5), "ylim": (height - ROW / 2, -ROW / 2)}
    ax, unit, write = text_axes(ax, (end + 1, height), **limits)

    for position in positions:
        if position.parent is not None:
            x0, y0 = position.parent.right, position.parent.y
            bend = (x0 + position.left) / 2
            path = [(x0, y0), (bend, y0), (bend, position.y), (position.left, position.y)]
            thickness = unit * (0.06 + 0.5 * position.node.probability)
            curve = Curve(path, [Curve.MOVETO, *3 * [Curve.CURVE4]])
            ax.add_patch(PathPatch(curve, fill=False, ec=EDGE, lw=thickness, capstyle="butt"))
    for position in positions:
        corner, width = (position.left, position.y - BOX / 2), position.right - position.left
        style: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.4", "ec": BLUE}
        colour = "white" if position.node.is_leaf else PALE
        ax.add_patch(FancyBboxPatch(corner, width, BOX, fc=colour, lw=0.09 * unit, **style))
        run, mark = _box_text(tree, position.node)
        write(position.left + PADDING, position.y, run)
        write(position.right - PADDING, position.y, mark, color=GREY, ha="right")
        if nested and position.parent is not None:
            # Next to the edge, on the side away from the parent.
            y = position.y + (0.8 if position.y > position.parent.y else -0.8)
            small: dict[str, Any] = {"color": GREY, "ha": "right", "fontsize": 0.68 * unit}
            # A thick edge may pass behind the number.
            small["path_effects"] = [withStroke(linewidth=0.2 * unit, foreground="white")]
            write(position.left - 0.25, y, format_percent(position.node.share), **small)
    for position, string, percent in zip(leaves, strings, percents, strict=True):
        weight = "bold" if position.node.probability == best else "normal"
        dots = [position.right + 0.3, column - 0.4]
        ax.plot(dots, [position.y] * 2, ":", color=GREY, lw=0.09 * unit)
        write(column, position.y, string, weight=weight)
        write(end, position.y, percent, weight=weight, ha="right")
    return ax


@dataclass
class _Position:
    """The position of a node of the tree."""

    node: HypothesisNode
    parent: _Position | None
    left: float
    right: float
    y: float = 0.0


def _positions(tree: HypothesisTree) -> list[_Position]:
    """Positions of all nodes, parents first: one row per leaf, parents amid their children."""
    gap = 6.0 if any(not child.is_leaf for child in tree.root.children) else 3.0
    row = count()
    positions: list[_Position] = []
    branches: dict[int, list[_Position]] = {}
    waiting: list[tuple[HypothesisNode, _Position | None]] = [(tree.root, None)]
    while waiting:
        node, parent = waiting.pop()
        left = 0.0 if parent is None else parent.right + gap
        run, mark = _box_text(tree, node)
        space = 0.35 if run and mark else 0.0
        right = left + 2 * PADDING + text_width(run + mark) + space
        position = _Position(node, parent, left, right)
        if node.is_leaf:
            position.y = ROW * next(row)
        positions.append(position)
        if parent is not None:
            branches.setdefault(id(parent), []).append(position)
        waiting += [(child, position) for child in reversed(node.children)]
    for position in reversed(positions):
        if heads := branches.get(id(position)):
            position.y = (heads[0].y + heads[-1].y) / 2
    return positions


def _box_text(tree: HypothesisTree, node: HypothesisNode) -> tuple[str, str]:
    """The run of a node and, separately, the end mark of a leaf."""
    if node.is_leaf:
        return tree.label(node.tokens[:-1]), node.tokens[-1]
    return tree.label(node.tokens) or "·", ""
