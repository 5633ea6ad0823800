"""The styles of lines that are told apart by a legend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyentmax.plotting._inputs import is_mapping, shown
from pyentmax.plotting._palette import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY)
MARKERS = "os^Dv*"
DASHES = ("-", "--", ":")
MOST_LINES = len(COLOURS) * len(DASHES)  # of which no two look alike


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of a line: six colours, then the same dashed, then dotted.

    Examples
    --------
    >>> line_style(0)["ls"], line_style(6)["ls"], line_style(0)["color"] == line_style(6)["color"]
    ('-', '--', True)
    """
    dashes, colour = divmod(number, len(COLOURS))
    return {"color": COLOURS[colour], "marker": MARKERS[colour], "ls": DASHES[dashes]}


def check_lines(lines: Mapping[str, object]) -> None:
    """Raise an error unless every line has values, and there is a style for each."""
    if not is_mapping(lines):
        raise TypeError(f"expected a mapping from labels to lines, got {shown(lines)}")
    without = [
        label
        for label, of in lines.items()
        if of is None or (hasattr(of, "__len__") and not len(of))
    ]
    if without or not len(lines):
        raise ValueError(f"expected values for every line, got none for {without}")
    if len(lines) > MOST_LINES:
        raise ValueError(f"expected at most {MOST_LINES} lines, got {len(lines)}")
