"""Plots of hypothesis graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyentmax.decoding.hypothesis_graph import HypothesisGraph
from pyentmax.decoding.hypothesis_tree import format_percent
from pyentmax.plotting._figures import require_matplotlib, text_axes, text_width
from pyentmax.plotting._palette import BLUE, EDGE, GREY, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Sizes in units of the font size.
PADDING, GAP, ROW, BOX, SMALL = 0.55, 3.5, 2.6, 1.7, 0.68


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
    >>> from pyentmax.decoding import Hypothesis, HypothesisGraph
    >>> hypotheses = [Hypothesis((0, 1), -0.7), Hypothesis((2, 1), -0.7)]
    >>> ax = plot_hypothesis_graph(HypothesisGraph.build(hypotheses, "abc".__getitem__))
    >>> [text.get_text() for text in ax.texts]
    ['a', '49.7%', 'c', '49.7%', 'b</s>', '99.3%']
    """
    require_matplotlib()
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path as Curve

    nodes = graph.nodes
    labels = [graph.label(node) for node in nodes]
    percents = [format_percent(node.probability) for node in nodes]
    columns, places = _columns(graph)
    widths = [
        text_width(label) + SMALL * text_width(percent) + 0.5 + 2 * PADDING
        for label, percent in zip(labels, percents, strict=True)
    ]
    lefts, x = [], 0.0
    for column in range(max(columns) + 1):
        lefts.append(x)
        x += GAP + max(w for w, c in zip(widths, columns, strict=True) if c == column)
    rows = list(places.values())
    low, high = min(rows) - ROW / 2, max(rows) + ROW / 2
    size = (x - GAP + 1, high - low)
    ax, unit, write = text_axes(ax, size, xlim=(-0.5, x - GAP + 0.5), ylim=(high, low))

    for i, node in enumerate(nodes):
        for j, p in node.following.items():
            # Through the rows reserved for it in the columns between.
            stops = [(lefts[columns[i]] + widths[i], places[i, i])]
            for column in range(columns[i] + 1, columns[j]):
                y = places[i, j, column]
                stops += [(lefts[column], y), (lefts[column + 1] - GAP, y)]
            stops.append((lefts[columns[j]], places[j, j]))
            path, codes = [stops[0]], [Curve.MOVETO]
            for (x0, y0), (x1, y1) in zip(stops, stops[1:], strict=False):
                bend = max((x0 + x1) / 2, x1 - GAP / 2)
                path += [(bend, y0), (bend, y1), (x1, y1)]
                codes += 3 * [Curve.CURVE4]
            style: dict[str, Any] = {"fill": False, "ec": EDGE, "capstyle": "butt"}
            ax.add_patch(PathPatch(Curve(path, codes), lw=unit * (0.06 + 0.5 * p), **style))
    for i, node in enumerate(nodes):
        left, y = lefts[columns[i]], places[i, i]
        ax.add_patch(
            FancyBboxPatch(
                (left, y - BOX / 2),
                widths[i],
                BOX,
                boxstyle="round,pad=0,rounding_size=0.4",
                ec=BLUE,
                fc=PALE if node.following else "white",
                lw=0.09 * unit,
            )
        )
        write(left + PADDING, y, labels[i])
        right = left + widths[i] - PADDING
        write(right, y, percents[i], color=GREY, ha="right", fontsize=SMALL * unit)
    return ax


def _columns(graph: HypothesisGraph) -> tuple[list[int], dict[tuple[int, ...], float]]:
    """Each node's column, and the rows (i, i) of nodes and (i, j, column) of passing desired."""
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
