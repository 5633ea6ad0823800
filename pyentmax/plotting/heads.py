"""Pictures of what the heads of a Transformer do (Correia et al. 2019, §5).

Each model has a colour, by its position, and each kind of attention a panel. The functions make a
new figure and return its first axes; ``ax.figure.axes`` has all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.plotting._figures import legend, percent_axis, require_matplotlib
from pyentmax.plotting._inputs import numbers
from pyentmax.plotting._lines import COLOURS, line_style
from pyentmax.plotting._palette import GREY, INK, RULE
from pyentmax.plotting.attention import checked_attention, plot_attention

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KIND_TITLES = {
    "encoder": "encoder self-attention",
    "context": "context attention",
    "decoder": "decoder self-attention",
}


def plot_alpha_trajectories(updates: ArrayLike, alphas: Mapping[str, ArrayLike]) -> Axes:
    """Draw the α of every head over the updates of a training (Figure 2).

    Parameters
    ----------
    updates : (n,) array
    alphas : mapping
        Kind → (n, layers, heads) array; a panel each. A layer has a colour.

    Examples
    --------
    >>> ax = plot_alpha_trajectories([0, 20], {"encoder": [[[1.5, 1.2]], [[1.4, 1.3]]]})
    >>> ax.get_title(), len(ax.lines)
    ('encoder self-attention', 2)
    """
    paths = {kind: numbers(path, f"alphas[{kind!r}]", 3) for kind, path in alphas.items()}
    axes = _panels(1, len(paths), (3.4, 3.2), sharey=True)[0]
    for ax, (kind, path) in zip(axes, paths.items(), strict=True):
        for layer in range(path.shape[1]):
            lines = ax.plot(updates, path[:, layer], color=COLOURS[layer % len(COLOURS)], lw=1.2)
            lines[0].set_label(f"layer {layer + 1}")
        ax.set_title(KIND_TITLES.get(kind, kind), fontsize=10, parse_math=False)
        ax.set(xlabel="update", ylim=(0.98, 2.02))
        _remove_frame(ax)
    axes[0].set_ylabel("α of a head")
    legend(axes[0], fontsize=8)
    return axes[0]


def plot_alpha_histograms(alphas: Mapping[str, ArrayLike], bins: int = 10) -> Axes:
    """Draw how many heads learned which α, for each kind of attention (Figure 3).

    Parameters
    ----------
    alphas : mapping
        Kind → array of any shape, from 1 to 2.
    bins : int

    Examples
    --------
    >>> ax = plot_alpha_histograms({"encoder": [1.05, 1.95], "context": [1.4, 1.5]})
    >>> [axes.get_title() for axes in ax.figure.axes]
    ['encoder self-attention', 'context attention']
    """
    axes = _panels(1, len(alphas), (3.0, 2.6), sharey=True)[0]
    for ax, (kind, values) in zip(axes, alphas.items(), strict=True):
        ax.hist(np.ravel(values), bins=bins, range=(1, 2), color=COLOURS[0], ec="white")
        ax.set_title(KIND_TITLES.get(kind, kind), fontsize=10, parse_math=False)
        ax.set(xlabel="α", xlim=(1, 2))
        _whole_numbers(ax.yaxis)
        _remove_frame(ax)
    axes[0].set_ylabel("heads")
    return axes[0]


def plot_density_histograms(densities: Mapping[str, Mapping[str, ArrayLike]]) -> Axes:
    """Draw how dense the heads are on the sentences of a corpus (Figure 4).

    Parameters
    ----------
    densities : mapping
        Model → kind → array of any shape, such as a density for each sentence, layer and head.

    Examples
    --------
    >>> ax = plot_density_histograms({"softmax": {"encoder": [1.0, 1.0]}})
    >>> ax.get_title(), ax.get_ylabel()
    ('encoder self-attention', 'softmax')
    """
    arrays = _by_model(densities, "densities")
    kinds = list(next(iter(arrays.values())))
    rows = _panels(len(arrays), len(kinds), (3.0, 1.7), sharex=True)
    for number, (axes, (model, by_kind)) in enumerate(zip(rows, arrays.items(), strict=True)):
        for ax, kind in zip(axes, kinds, strict=True):
            values = np.ravel(by_kind[kind])
            share = np.full(len(values), 1 / len(values))
            ax.hist(
                values, bins=25, range=(0, 1), weights=share, color=COLOURS[number % len(COLOURS)]
            )
            ax.axvline(values.mean(), color=INK, lw=1, ls=":")
            percent_axis(ax)
        axes[0].set_ylabel(model, parse_math=False)
    for ax, kind in zip(rows[0], kinds, strict=True):
        ax.set_title(KIND_TITLES.get(kind, kind), fontsize=10, parse_math=False)
    for ax in rows[-1]:
        ax.set(xlabel="density", xlim=(0, 1))
    return rows[0][0]


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
        model: {kind: np.sort(x, axis=1) for kind, x in by_kind.items()}
        for model, by_kind in _by_model(densities, "densities", ndim=2).items()
    }
    axes = _by_layer(ranked, (3.2, 3.2), lw=1.2, alpha=0.85, ms=4)
    for ax in axes:
        ax.set_ylim(0, 1.03)
        percent_axis(ax)
    axes[0].set_ylabel("density of a head")
    return axes[0]


def plot_head_diversity(diversity: Mapping[str, Mapping[str, ArrayLike]]) -> Axes:
    """Draw the Jensen-Shannon divergence between the heads of each layer (Figure 6).

    Parameters
    ----------
    diversity : mapping
        Model → kind → (layers,) array.

    Examples
    --------
    >>> ax = plot_head_diversity({"softmax": {"encoder": [0.2, 0.3]}})
    >>> ax.get_ylabel()
    'Jensen-Shannon divergence'
    """
    arrays = _by_model(diversity, "diversity", ndim=1)
    axes = _by_layer(arrays, (3.2, 3.0), lw=1.8, ms=5)
    for ax in axes:
        ax.set_ylim(0, None)
        _remove_frame(ax)
    axes[0].set_ylabel("Jensen-Shannon divergence")
    return axes[0]


def plot_positional_confidence(confidences: Mapping[str, Mapping[str, ArrayLike]]) -> Axes:
    """Draw the confidence of every head at each offset, sorted: positional heads lie at 100%.

    Parameters
    ----------
    confidences : mapping
        Panel, such as "encoder, previous token" → model → array of any shape, a number per head.

    Examples
    --------
    >>> ax = plot_positional_confidence({"encoder −1": {"softmax": [0.2, 0.9]}})
    >>> ax.lines[0].get_ydata().tolist()
    [0.9, 0.2]
    """
    axes = _panels(1, len(confidences), (2.5, 3.0), sharey=True)[0]
    for ax, (title, models) in zip(axes, confidences.items(), strict=True):
        for number, (model, values) in enumerate(models.items()):
            ranked = np.sort(np.ravel(values))[::-1]
            style = line_style(number)
            ax.plot(np.arange(1, len(ranked) + 1), ranked, lw=1, ms=4, label=model, **style)
        ax.set_title(title, fontsize=10, parse_math=False)
        ax.set(xlabel="head, by confidence", ylim=(0, 1.03))
        _whole_numbers(ax.xaxis)
        percent_axis(ax)
    axes[0].set_ylabel("mean weight")
    _legend_below(axes)
    return axes[0]


def plot_choice_of_k(scores: Mapping[str, Mapping[str, float]], label: str) -> Axes:
    """Draw a score against the number of positions that the heads may keep in use.

    Parameters
    ----------
    scores : mapping
        Model → k → score; k is a number or "all". All models have the same ones, in this order.
    label : str
        What the score is.

    Examples
    --------
    >>> ax = plot_choice_of_k({"softmax": {"1": 0.2, "8": 0.5, "all": 0.6}}, "accuracy")
    >>> [tick.get_text() for tick in ax.get_xticklabels()]
    ['1', '8', 'all']
    """
    ax = _panels(1, 1, (4.8, 3.2))[0][0]
    ks = list(next(iter(scores.values())))
    for number, (model, by_k) in enumerate(scores.items()):
        style = line_style(number)
        ax.plot(range(len(ks)), [by_k[k] for k in ks], lw=1.8, label=model, **style)
    ax.set_xticks(range(len(ks)), ks, parse_math=False)
    ax.set_xlabel("k: weights that a head may keep")
    ax.set_ylabel(label, parse_math=False)
    _remove_frame(ax)
    legend(ax)
    return ax


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
    >>> looks = [[1.0, 0.0], [0.5, 0.5]]
    >>> ax = plot_attention_panels([AttentionPanel(name, looks, "ab", "ab") for name in "xy"])
    >>> [axes.get_title() for axes in ax.figure.axes]
    ['x', 'y']
    """
    if not panels:
        raise ValueError("nothing to draw: expected at least one panel")
    for panel in panels:
        checked_attention(panel.weights, panel.source, panel.target)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    longest = max(len(token) for panel in panels for token in (*panel.source, *panel.target))
    width = 0.27 * max(len(panel.source) for panel in panels) + 0.085 * longest + 0.3
    height = 0.27 * max(len(panel.target) for panel in panels) + 0.085 * longest + 0.6
    grid = _panels(rows, columns, (max(width, 2.4), max(height, 1.2)))
    flat = [ax for axes in grid for ax in axes]
    for ax, panel in zip(flat, panels, strict=False):
        plot_attention(panel.weights, panel.source, panel.target, ax)
        ax.tick_params(labelsize=8)
        ax.set_title(panel.title, fontsize=9, parse_math=False)
    for ax in flat[len(panels) :]:
        ax.remove()
    return flat[0]


def _panels(
    rows: int,
    columns: int,
    size: tuple[float, float],
    *,
    sharex: bool = False,
    sharey: bool = False,
) -> list[list[Axes]]:
    """The axes of a new figure, a panel having this size in inches."""
    require_matplotlib()
    from matplotlib.figure import Figure

    if not rows * columns:
        raise ValueError("nothing to draw: expected at least one panel")
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    return [list(row) for row in axes]


def _whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers alone."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def _remove_frame(ax: Axes) -> None:
    """A grid, and no frame above and to the right."""
    ax.grid(color=RULE, lw=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=GREY, labelcolor=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _legend_below(axes: Sequence[Axes]) -> None:
    """One legend below all panels."""
    handles, labels = axes[0].get_legend_handles_labels()
    figure: Any = axes[0].figure
    shown = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(len(labels), 6),
        frameon=False,
        fontsize=9,
    )
    for text in shown.get_texts():
        text.set_parse_math(False)


def _by_model(
    values: Mapping[str, Mapping[str, ArrayLike]], name: str, ndim: int | None = None
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Model → kind → array; all models have the kinds of the first."""
    kinds = list(next(iter(values.values()), ()))
    arrays: dict[str, dict[str, NDArray[np.float64]]] = {}
    for model, by_kind in values.items():
        arrays[model] = {k: numbers(by_kind[k], f"{name}[{model!r}][{k!r}]", ndim) for k in kinds}
    return arrays


def _by_layer(
    arrays: Mapping[str, Mapping[str, NDArray[np.float64]]], size: tuple[float, float], **style: Any
) -> list[Axes]:
    """A panel for each kind: the numbers of each model against the layer, a line per column."""
    kinds = list(next(iter(arrays.values())))
    axes = list(_panels(1, len(kinds), size, sharey=True)[0])
    for number, (model, by_kind) in enumerate(arrays.items()):
        for ax, kind in zip(axes, kinds, strict=True):
            values = by_kind[kind]
            layers = np.arange(1, len(values) + 1)
            looks = line_style(number)
            lines = ax.plot(layers, values, **looks, **style)
            lines[0].set_label(model)
            ax.set_xticks(layers)
    for ax, kind in zip(axes, kinds, strict=True):
        ax.set_title(KIND_TITLES.get(kind, kind), fontsize=10, parse_math=False)
        ax.set_xlabel("layer")
    _legend_below(axes)
    return axes
