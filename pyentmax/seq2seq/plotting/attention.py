"""Heat maps of attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.seq2seq.plotting._figures import axes_or_new
from pyentmax.seq2seq.plotting.palette import BLUE, INK, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_attention(
    weights: ArrayLike, source: Sequence[str], target: Sequence[str], ax: Axes | None = None
) -> Axes:
    """Draw attention weights as a heat map, non-zeros outlined (Peters et al. 2019, Figure 5).

    A weight of exactly zero has a blank cell; even the smallest weight above zero has an outline.

    Parameters
    ----------
    weights : (len(target), len(source)) array
        Such as ``hypothesis.attention``; one row per target token.
    source, target : sequences of str
        Labels of columns and rows.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure of suitable size, here with a colour bar.

    Raises
    ------
    ValueError
        If the weights do not have one row per target token and one column per source token.

    Examples
    --------
    >>> ax = plot_attention([[0.5, 0.5], [0.0, 1.0]], source="ab", target=["x", "</s>"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x', '</s>']
    """
    weights = np.asarray(weights, np.float64)
    source, target = ([str(t).replace(" ", "␣") for t in tokens] for tokens in (source, target))
    if weights.shape != (len(target), len(source)):
        raise ValueError(
            f"weights must have one row for each of the {len(target)} target tokens and one column "
            f"for each of the {len(source)} source tokens, not shape {weights.shape}"
        )
    new_figure = ax is None
    width = 0.36 * len(source) + 0.1 * max(map(len, target), default=0)
    height = 0.36 * len(target) + 0.1 * max(map(len, source), default=0)
    ax = axes_or_new(ax, width + 1.3, max(height + 0.5, 2.0))
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    rows, columns = np.nonzero(weights > 0)
    inset = 0.06  # separates the outlines of neighbours
    cells = [
        Rectangle((x - 0.5 + inset, y - 0.5 + inset), 1 - 2 * inset, 1 - 2 * inset)
        for y, x in zip(rows, columns, strict=True)
    ]
    colours = LinearSegmentedColormap.from_list("weights", ["#F3F8FC", BLUE])
    heat_map = PatchCollection(cells, cmap=colours, ec=INK, lw=0.9)
    heat_map.set_array(weights[rows, columns])
    heat_map.set_clim(0, 1)
    ax.add_collection(heat_map)
    ax.set(xlim=(-0.5, len(source) - 0.5), ylim=(len(target) - 0.5, -0.5), aspect="equal")
    ax.set_xticks(range(len(source)), source, parse_math=False)
    ax.set_yticks(range(len(target)), target, parse_math=False)
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    for label, token in zip(ax.get_xticklabels(), source, strict=True):
        label.set_rotation(0 if len(token) <= 2 else 90)
    for spine in ax.spines.values():
        spine.set_color(RULE)
    if new_figure:
        bar = ax.figure.colorbar(heat_map, ax=ax, label="attention weight", pad=0.03, aspect=16)
        bar.outline.set_visible(False)
    return ax
