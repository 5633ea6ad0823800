"""Maps of attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.plotting._figures import BLUE, INK, RULE, new_axes, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_attention"]


def plot_attention(
    weights: ArrayLike, source: Sequence[str], target: Sequence[str], ax: Axes | None = None
) -> Axes:
    """Draw attention weights as a map, non-zeros outlined (Peters et al. 2019, Figure 5).

    A weight of exactly zero leaves its cell blank; the smallest weight above zero is outlined.

    Parameters
    ----------
    weights : (len(target), len(source)) array
        Such as ``hypothesis.attention``; a row for each target token.
    source, target : sequences of str
        Labels of columns and rows.
    ax : matplotlib Axes, optional
        Where to draw; a new figure of fitting size, with a colour bar, by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the weights do not have a row for each target token and a column for each source token.
    ImportError
        If Matplotlib is not installed.

    Examples
    --------
    >>> ax = plot_attention([[0.5, 0.5], [0.0, 1.0]], source="ab", target=["x", "</s>"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x', '</s>']
    """
    require_matplotlib()
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    weights = np.asarray(weights, dtype=float)
    if weights.shape != (len(target), len(source)):
        raise ValueError(
            f"weights must have a row for each of the {len(target)} target tokens and a column for "
            f"each of the {len(source)} source tokens, not shape {weights.shape}"
        )
    own_figure = ax is None
    if ax is None:
        width = 0.36 * len(source) + 0.1 * max(map(len, target), default=0)
        height = 0.36 * len(target) + 0.1 * max(map(len, source), default=0)
        ax = new_axes(width + 1.3, max(height + 0.5, 2.0))

    rows, columns = np.nonzero(weights > 0)
    inset = 0.06  # keeps the outlines of neighbours apart
    cells = [
        Rectangle((x - 0.5 + inset, y - 0.5 + inset), 1 - 2 * inset, 1 - 2 * inset)
        for y, x in zip(rows, columns, strict=True)
    ]
    colours = LinearSegmentedColormap.from_list("weights", ["#F3F8FC", BLUE])
    map_ = PatchCollection(cells, cmap=colours, ec=INK, lw=0.9)
    map_.set_array(weights[rows, columns])
    map_.set_clim(0, 1)
    ax.add_collection(map_)
    ax.set(xlim=(-0.5, len(source) - 0.5), ylim=(len(target) - 0.5, -0.5), aspect="equal")
    ax.set_xticks(range(len(source)), [token.replace(" ", "␣") for token in source])
    ax.set_yticks(range(len(target)), [token.replace(" ", "␣") for token in target])
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    for label, token in zip(ax.get_xticklabels(), source, strict=True):
        label.set_rotation(0 if len(token) <= 2 else 90)
    for spine in ax.spines.values():
        spine.set_color(RULE)
    if own_figure:
        bar = ax.figure.colorbar(map_, ax=ax, label="attention weight", pad=0.03, aspect=16)
        bar.outline.set_visible(False)
    return ax
