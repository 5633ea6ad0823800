"""The styles of lines that share a legend."""

from __future__ import annotations

from typing import Any

from pyentmax.plotting._palette import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY)
MARKERS = "os^Dv*"
DASHES = ("-", "--", ":")


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of a line: six colours, then the same dashed, then dotted.

    Examples
    --------
    >>> line_style(0)["ls"], line_style(6)["ls"], line_style(0)["color"] == line_style(6)["color"]
    ('-', '--', True)
    """
    dashes, colour = divmod(number, len(COLOURS))
    return {
        "color": COLOURS[colour],
        "marker": MARKERS[colour],
        "ls": DASHES[dashes % len(DASHES)],
    }
