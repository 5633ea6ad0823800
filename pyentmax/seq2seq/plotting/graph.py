"""Plots of hypothesis graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyentmax.seq2seq.decoding.hypothesis_graph import HypothesisGraph
from pyentmax.seq2seq.decoding.hypothesis_tree import format_percent
from pyentmax.seq2seq.plotting._figures import PADDING, TextCanvas, text_width
from pyentmax.seq2seq.plotting.palette import GREY, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Sizes in units of the font size.
GAP, ROW, SMALL = 3.5, 2.6, 0.68


def plot_hypothesis_graph(graph: HypothesisGraph, ax: Axes | None = None) -> Axes:
    """Draw the hypotheses of a beam as a graph in which shared tokens stand once.

    A box shows a run of tokens with the total probability of the strings that go through it. An
    edge is as wide as the probability of its strings. Every path from left to right is one of the
    listed strings; several paths may be the same string.

    Parameters
    ----------
    graph : HypothesisGraph
    ax : as in `plot_forced_decoding`

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import Hypothesis, HypothesisGraph
    >>> hypotheses = [Hypothesis((0, 1), -0.7), Hypothesis((2, 1), -0.7)]
    >>> ax = plot_hypothesis_graph(HypothesisGraph.build(hypotheses, "abc".__getitem__))
    >>> [text.get_text() for text in ax.texts]
    ['a', '49.7%', 'c', '49.7%', 'b</s>', '99.3%']
    """
    nodes = graph.nodes
    labels = [graph.label(node) for node in nodes]
    percents = [format_percent(node.probability) for node in nodes]
    columns, places = _columns(graph)
    widths = [
        text_width(label) + SMALL * text_width(percent) + 0.5 + 2 * PADDING
        for label, percent in zip(labels, percents, strict=True)
    ]
    lefts = [0.0]  # of the columns, and of one after the last
    for column in range(max(columns) + 1):
        widest = max(w for w, c in zip(widths, columns, strict=True) if c == column)
        lefts.append(lefts[-1] + widest + GAP)

    rows = places.values()
    canvas = TextCanvas(ax, lefts[-1] - GAP, min(rows) - ROW / 2, max(rows) + ROW / 2)
    for i, node in enumerate(nodes):
        for j, p in node.following.items():
            # Through the rows reserved for it in the columns between.
            stops = [(lefts[columns[i]] + widths[i], places[i, i])]
            for column in range(columns[i] + 1, columns[j]):
                y = places[i, j, column]
                stops += [(lefts[column], y), (lefts[column + 1] - GAP, y)]
            canvas.edge([*stops, (lefts[columns[j]], places[j, j])], p, GAP)
    for i, node in enumerate(nodes):
        left, y = lefts[columns[i]], places[i, i]
        right = left + widths[i]
        canvas.box(left, right, y, fc=PALE if node.following else "white")
        canvas.write(left + PADDING, y, labels[i])
        canvas.write(right - PADDING, y, percents[i], size=SMALL, color=GREY, ha="right")
    return canvas.ax


def _columns(graph: HypothesisGraph) -> tuple[list[int], dict[tuple[int, ...], float]]:
    """Each node's column, and the rows (i, i) of nodes and (i, j, column) of passing edges."""
    nodes = graph.nodes
    columns = [0] * len(nodes)
    for i, node in enumerate(nodes):  # each stands before those that follow it
        for j in node.following:
            columns[j] = max(columns[j], columns[i] + 1)
    desired: list[dict[tuple[int, ...], float]] = [{} for _ in range(max(columns) + 1)]
    for i, node in enumerate(nodes):
        desired[columns[i]][i, i] = sum(node.strings) / len(node.strings)
        for j in node.following:
            shared = sorted(set(node.strings) & set(nodes[j].strings))
            for column in range(columns[i] + 1, columns[j]):
                desired[column][i, j, column] = sum(shared) / len(shared)
    middle = max(map(len, desired)) * ROW / 2
    places: dict[tuple[int, ...], float] = {}
    for rows in desired:
        top = middle - len(rows) * ROW / 2 + ROW / 2
        for row, (_, key) in enumerate(sorted((place, key) for key, place in rows.items())):
            places[key] = top + ROW * row
    return columns, places
