"""The colours of all figures, and the styles of lines that share a legend."""

from __future__ import annotations

# Okabe and Ito's palette, whose colours differ under every common form of colour blindness.
BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
INK, GREY, RULE, PALE, EDGE = "#1F2933", "#6B7785", "#DDE3E9", "#E6F0F8", "#8FBEDD"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY)
