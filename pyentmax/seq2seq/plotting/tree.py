"""Plots of hypothesis trees."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from pyentmax.seq2seq.decoding.hypothesis_tree import (
    EMPTY,
    HypothesisNode,
    HypothesisTree,
    format_percent,
)
from pyentmax.seq2seq.plotting._figures import PADDING, TextCanvas, text_width
from pyentmax.seq2seq.plotting.palette import GREY, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 2.5
"""Height of a row in units of the font size."""


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
    >>> from pyentmax.seq2seq.decoding import Hypothesis, HypothesisTree
    >>> hypotheses = [Hypothesis((0, 1), log(0.75)), Hypothesis((0,), log(0.25))]
    >>> tree = HypothesisTree.build(hypotheses, "no".__getitem__)
    >>> ax = plot_hypothesis_tree(tree)
    >>> [text.get_text() for text in ax.texts][-4:]
    ['no', '75.0%', 'n', '25.0%']
    """
    boxes = _boxes(tree)
    leaves = [box for box in boxes if box.node.is_leaf]
    nested = len(boxes) > len(leaves) + 1
    best = max(leaf.node.probability for leaf in leaves)
    column = max(leaf.right for leaf in leaves) + 1.8  # where the strings begin
    strings = [tree.string(leaf.node) or EMPTY for leaf in leaves]
    percents = [format_percent(leaf.node.probability) for leaf in leaves]
    end = column + max(map(text_width, strings)) + 1.2 + max(map(text_width, percents))

    canvas = TextCanvas(ax, end, -ROW / 2, (len(leaves) - 0.5) * ROW)
    from matplotlib.patheffects import withStroke

    for box in boxes:
        if box.parent:
            stops = [(box.parent.right, box.parent.y), (box.left, box.y)]
            canvas.edge(stops, box.node.probability)
    for box in boxes:
        canvas.box(box.left, box.right, box.y, fc="white" if box.node.is_leaf else PALE)
        run, mark = _texts(tree, box.node)
        canvas.write(box.left + PADDING, box.y, run)
        canvas.write(box.right - PADDING, box.y, mark, color=GREY, ha="right")
        if nested and box.parent:
            # Next to the edge, on the side away from the parent.
            y = box.y + (0.8 if box.y > box.parent.y else -0.8)
            # A thick edge may pass behind the number.
            halo = [withStroke(linewidth=0.2 * canvas.unit, foreground="white")]
            style: dict[str, Any] = {
                "size": 0.68,
                "color": GREY,
                "ha": "right",
                "path_effects": halo,
            }
            canvas.write(box.left - 0.25, y, format_percent(box.node.share), **style)
    for leaf, string, percent in zip(leaves, strings, percents, strict=True):
        weight = "bold" if leaf.node.probability == best else "normal"
        dots = [leaf.right + 0.3, column - 0.4]
        canvas.ax.plot(dots, [leaf.y] * 2, ":", color=GREY, lw=0.09 * canvas.unit)
        canvas.write(column, leaf.y, string, weight=weight)
        canvas.write(end, leaf.y, percent, weight=weight, ha="right")
    return canvas.ax


@dataclass
class _Box:
    """The place of a node in the drawing of a tree."""

    node: HypothesisNode
    parent: _Box | None
    left: float
    right: float
    y: float = 0.0


def _boxes(tree: HypothesisTree) -> list[_Box]:
    """The boxes of all nodes, parents first: one row per leaf, parents amid their children."""
    gap = 6.0 if any(not child.is_leaf for child in tree.root.children) else 3.0
    row, boxes = count(), []

    def place(node: HypothesisNode, parent: _Box | None, left: float) -> float:
        run, mark = _texts(tree, node)
        space = 0.35 if run and mark else 0.0
        right = left + 2 * PADDING + text_width(run + mark) + space
        box = _Box(node, parent, left, right)
        boxes.append(box)
        rows = [place(child, box, right + gap) for child in node.children]
        box.y = (rows[0] + rows[-1]) / 2 if rows else ROW * next(row)
        return box.y

    place(tree.root, None, 0.0)
    return boxes


def _texts(tree: HypothesisTree, node: HypothesisNode) -> tuple[str, str]:
    """The run of a node and, separately, the end mark of a leaf."""
    if node.is_leaf:
        return tree.label(node.tokens[:-1]), node.tokens[-1]
    return tree.label(node.tokens) or "·", ""
