"""The colours of all figures, and the styles of lines that share a legend."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's palette, whose colours differ under every common form of colour blindness.
BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
INK, GREY, RULE, PALE, EDGE = "#1F2933", "#6B7785", "#DDE3E9", "#E6F0F8", "#8FBEDD"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY)


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
        "marker": "os^Dv*"[colour],
        "ls": ("-", "--", ":")[dashes % 3],
    }
