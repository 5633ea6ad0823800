"""Forced decoding, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyentmax.decoding import ForcedDecoding, ForcedStep
from pyentmax.decoding.hypothesis_tree import format_percent
from pyentmax.plotting._figures import require_matplotlib, text_axes, text_width
from pyentmax.plotting._palette import BLUE, EDGE, GREY, INK, PALE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Sizes in units of the font size.
PADDING, GAP, CLOSE, ROW, LABEL = 0.5, 0.5, -0.85, 1.7, 0.72
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
    require_matplotlib()
    from matplotlib.patches import FancyBboxPatch

    columns = [_column(step, decode, max_others) for step in decoding.steps]
    lefts = [0.0]
    for column, joined in zip(columns[:-1], _joins_next(columns), strict=False):
        lefts.append(lefts[-1] + column.width + (CLOSE if joined else GAP))
    width = lefts[-1] + columns[-1].width
    height = ROW * max(len(column.lines) for column in columns)
    limits = {"xlim": (-0.5, width + 0.5), "ylim": (height + 0.5, -0.5)}
    ax, unit, write = text_axes(ax, (width + 1, height + 1), **limits)

    def outline(left: float, right: float, lines: int, **style: Any) -> None:
        style |= {"boxstyle": "round,pad=0,rounding_size=0.35", "lw": 0.09 * unit}
        ax.add_patch(FancyBboxPatch((left, 0.1), right - left, lines * ROW - 0.2, **style))

    run: float | None = None  # left edge of the current run of steps without a choice
    for left, column, joined in zip(lefts, columns, _joins_next(columns), strict=True):
        right = left + column.width
        if not column.certain:
            outline(left, right, len(column.lines), fc="white", ec=EDGE)
            outline(left, right, 1, fc=PALE, ec=BLUE if column.possible else VERMILION)
            continue
        run = left if run is None else run
        if not joined:
            outline(run, right, 1, fc=PALE, ec=BLUE)
            run = None
    for left, column in zip(lefts, columns, strict=True):
        for row, (token, label) in enumerate(column.lines):
            y = (row + 0.5) * ROW
            wrong = label == IMPOSSIBLE
            if token:
                weight = "bold" if row == 0 else "normal"
                write(left + PADDING, y, token, color=VERMILION if wrong else INK, weight=weight)
            if label:
                style = {"fontsize": LABEL * unit, "ha": "right"}
                colour = VERMILION if wrong else GREY
                write(left + column.width - PADDING, y, label, color=colour, **style)
    return ax


@dataclass(frozen=True)
class _Column:
    """What a step shows: lines of a token and a label, with the forced token first."""

    lines: list[tuple[str, str]]
    certain: bool
    possible: bool
    width: float


def _joins_next(columns: list[_Column]) -> list[bool]:
    """For each column, whether it and the next one have no choice, and so share a box."""
    certain = [column.certain for column in columns]
    return [a and b for a, b in zip(certain, [*certain[1:], False], strict=True)]


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
    space = 0.4 if labels else 0.0
    return _Column(lines, certain, step.possible, token + space + labels + 2 * PADDING)
