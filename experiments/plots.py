"""Panels and curves of what the heads of a Transformer do (Correia et al. 2019, §5).

Each model has a colour, by its position, and each kind of attention a panel. The functions make a
new figure and return its first axes; ``ax.figure.axes`` has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.pictures import line_style
from pyentmax.seq2seq.plotting import plot_attention
from pyentmax.seq2seq.plotting._figures import legend, remove_frame, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KIND_TITLES = {
    "encoder": "encoder self-attention",
    "context": "context attention",
    "decoder": "decoder self-attention",
}


def new_axes(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> list[list[Axes]]:
    """The axes of a new figure, each panel with this size in inches; ``$`` is only a character."""
    require_matplotlib()
    from matplotlib.figure import Figure

    if not rows * columns:
        raise ValueError("nothing to draw: expected at least one panel")
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    for ax in axes.flat:
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
            text.set_parse_math(False)
    return [list(row) for row in axes]


def percent_axis(ax: Axes) -> None:
    """Label the y-axis in percent, with a grid."""
    ax.yaxis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")
    remove_frame(ax)


class AttentionPanel(NamedTuple):
    """One heat map of `plot_attention_panels`: its title, weights, and labels."""

    title: str
    weights: ArrayLike
    source: Sequence[str]  #: of the columns, the keys
    target: Sequence[str]  #: of the rows, the queries


def plot_attention_panels(panels: Sequence[AttentionPanel], columns: int = 3) -> Axes:
    """Draw several heat maps in one figure, each as by `plot_attention` (Figures 1 and 7 to 10).

    Parameters
    ----------
    panels : sequence of AttentionPanel
        One at least.
    columns : int
        Most of them in a row.

    Examples
    --------
    >>> weights = [[1.0, 0.0], [0.5, 0.5]]
    >>> ax = plot_attention_panels([AttentionPanel(name, weights, "ab", "ab") for name in "xy"])
    >>> [axes.get_title() for axes in ax.figure.axes]
    ['x', 'y']
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // max(columns, 1))
    longest = max((len(token) for x in panels for token in (*x.source, *x.target)), default=0)
    width = 0.27 * max((len(x.source) for x in panels), default=0) + 0.085 * longest + 0.3
    height = 0.27 * max((len(x.target) for x in panels), default=0) + 0.085 * longest + 0.6
    flat = sum(new_axes(rows, columns, (max(width, 2.4), max(height, 1.2))), [])
    for ax, panel in zip(flat, panels, strict=False):
        plot_attention(panel.weights, panel.source, panel.target, ax)
        ax.tick_params(labelsize=8)
        ax.set_title(panel.title, fontsize=9)
    for ax in flat[len(panels) :]:
        ax.remove()
    return flat[0]


def plot_head_densities(densities: Mapping[str, Mapping[str, ArrayLike]]) -> Axes:
    """Draw the mean density of the heads of each layer, sorted within it (Figure 5).

    Parameters
    ----------
    densities : mapping
        Model → kind → (layers, heads) array. A line joins the densest heads of all layers, one the
        second, and so on.

    Examples
    --------
    >>> ax = plot_head_densities({"1.5-entmax": {"context": [[0.2, 0.4], [0.3, 0.1]]}})
    >>> [line.get_ydata().tolist() for line in ax.lines]
    [[0.2, 0.1], [0.4, 0.3]]
    """
    ranked = {
        kind: {model: np.sort(x, axis=1) for model, x in models.items()}
        for kind, models in by_kind(densities, ndim=2).items()
    }
    return curves_by_model(ranked, "layer", "density of a head", percent=True)


def titled_panels(
    titles: Iterable[str], size: tuple[float, float], rows: int = 1, **shared: bool
) -> list[list[Axes]]:
    """Rows of axes with a title for each column; those of a row share the y-axis."""
    titles = list(titles)
    axes = new_axes(rows, len(titles), size, **shared or {"sharey": True})
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(KIND_TITLES.get(title, title), fontsize=10)
    return axes


def curves_by_model(
    panels: Mapping[str, Mapping[str, Any]],
    x: str,
    y: str,
    *,
    width: float = 3.2,
    percent: bool = False,
) -> Axes:
    """Panel → model → numbers (n,), or (n, lines), against 1 … n; one legend below all panels."""
    axes = titled_panels(panels, (width, 3.2))[0]
    for ax, models in zip(axes, panels.values(), strict=True):
        for number, (model, values) in enumerate(models.items()):
            places = np.arange(1, len(values) + 1)
            ax.plot(places, values, lw=1.4, ms=4, **line_style(number))[0].set_label(model)
        ax.set_xlabel(x)
        ax.locator_params("x", integer=True)
        remove_frame(ax)
        if percent:
            ax.set_ylim(0, 1.03)
            percent_axis(ax)
    axes[0].set_ylabel(y)
    lines, labels = axes[0].get_legend_handles_labels()
    options = {"loc": "outside lower center", "ncols": min(len(labels), 6), "fontsize": 9}
    legend(axes[0].figure, lines, labels, **options)
    return axes[0]


def by_kind(
    values: Mapping[str, Mapping[str, ArrayLike]], ndim: int
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Kind → model → array, from model → kind → array; all models have the kinds of the first."""
    kinds = next(iter(values.values()), {})
    return {k: {model: checked_array(x[k], ndim) for model, x in values.items()} for k in kinds}


def checked_array(values: ArrayLike, ndim: int) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != ndim:
        raise ValueError(f"expected arrays of {ndim} dimensions, got shape {array.shape}")
    return array
