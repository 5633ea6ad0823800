"""Forced decoding, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyentmax.seq2seq.decoding import ForcedDecoding, ForcedStep
from pyentmax.seq2seq.decoding.hypothesis_tree import format_percent
from pyentmax.seq2seq.plotting._figures import PADDING, TextCanvas, text_width
from pyentmax.seq2seq.plotting.palette import BLUE, EDGE, GREY, INK, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Sizes in units of the font size.
GAP, CLOSE, ROW, LABEL = 0.5, -0.9, 1.7, 0.72
IMPOSSIBLE = "impossible"


def plot_forced_decoding(
    decoding: ForcedDecoding,
    decode: Callable[[int], str],
    ax: Axes | None = None,
    *,
    max_others: int = 6,
) -> Axes:
    """Draw what is possible at each step of a forced target (Peters et al. 2019, Figure 2).

    The forced tokens are in bold along the top. Below each of them are all other possible tokens,
    most probable first. Consecutive steps without a choice share one box: the model would complete
    them by itself. An impossible forced token has a red box.

    Parameters
    ----------
    decoding : ForcedDecoding
    decode : callable
        The text of a token, such as ``vocabulary.tokens.__getitem__``.
    ax : matplotlib Axes, optional
        Where to draw; the text is scaled to the current size of the axes. By default a new figure
        of suitable size.
    max_others : int
        Maximum number of other tokens per step; a last line counts the rest.

    Raises
    ------
    ValueError
        If there is no step.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[1.0, 0.0, 0.0], [0.0, 0.25, 0.75], [0.0, 1.0, 0.0]])
    >>> decoding = ForcedDecoding(np.array([0, 2, 1]), np.log(p + 1e-99), p > 0, np.ones((3, 1)))
    >>> ax = plot_forced_decoding(decoding, ["a", "</s>", "b"].__getitem__)
    >>> [text.get_text() for text in ax.texts]
    ['a', 'b', '75.0%', '</s>', '25.0%', '</s>']
    """
    if not decoding.steps:
        raise ValueError("decoding has no steps to draw; expected at least one")
    columns = [_column(step, decode, max_others) for step in decoding.steps]
    groups: list[list[_Column]] = []  # of columns that share a box
    for column in columns:
        if groups and column.certain and groups[-1][0].certain:
            groups[-1].append(column)
        else:
            groups.append([column])
    gaps = GAP * (len(groups) - 1) + CLOSE * (len(columns) - len(groups))
    width = sum(column.width for column in columns) + gaps
    height = ROW * max(len(column.lines) for column in columns)

    canvas, left = TextCanvas(ax, width, -0.5, height + 0.5), 0.0
    for group in groups:
        start = left
        for column in group:
            right = left + column.width
            for row, (token, label) in enumerate(column.lines):
                y, weight = (row + 0.5) * ROW, "normal" if row else "bold"
                colours = [VERMILION] * 2 if label == IMPOSSIBLE else [INK, GREY]
                canvas.write(left + PADDING, y, token, color=colours[0], weight=weight)
                style = {"color": colours[1], "ha": "right"}
                canvas.write(right - PADDING, y, label, size=LABEL, **style)
            left = right + CLOSE
        if not group[0].certain:
            full = ROW * len(group[0].lines)
            canvas.box(start, right, full / 2, full - 0.2, fc="white", ec=EDGE)
        canvas.box(start, right, ROW / 2, ROW - 0.2, ec=BLUE if group[0].possible else VERMILION)
        left = right + GAP
    return canvas.ax


@dataclass(frozen=True)
class _Column:
    """The text of a step: lines of a token and a label, with the forced token first."""

    lines: list[tuple[str, str]]
    certain: bool
    possible: bool
    width: float


def _column(step: ForcedStep, decode: Callable[[int], str], max_others: int) -> _Column:
    def show(token: int) -> str:
        return decode(token).replace(" ", "␣")

    certain = step.possible and not step.others
    label = "" if certain else format_percent(step.probability) if step.possible else IMPOSSIBLE
    lines = [(show(step.token), label)]
    lines += [(show(token), format_percent(p)) for token, p in step.others[:max_others]]
    if len(step.others) > max_others:
        lines.append(("", f"+{len(step.others) - max_others} more"))
    token = max(text_width(text) for text, _ in lines)
    labels = max(text_width(text) for _, text in lines) * LABEL
    width = token + (0.4 if labels else 0.0) + labels + 2 * PADDING
    return _Column(lines, certain, step.possible, width)
