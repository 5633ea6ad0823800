"""Pictures of what the heads of a Transformer do (Correia et al. 2019, §5).

Each model has a colour, by its position, and each kind of attention a panel. The functions make a
new figure and return its first axes; ``ax.figure.axes`` has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.seq2seq.plotting._figures import legend, new_axes, percent_axis, remove_frame
from pyentmax.seq2seq.plotting.attention import plot_attention
from pyentmax.seq2seq.plotting.palette import COLOURS, INK, line_style

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
    axes = _panels(alphas, (3.4, 3.2))[0]
    for ax, values in zip(axes, alphas.values(), strict=True):
        path = _array(values, ndim=3)
        for layer in range(path.shape[1]):
            lines = ax.plot(updates, path[:, layer], color=COLOURS[layer % len(COLOURS)], lw=1.2)
            lines[0].set_label(f"layer {layer + 1}")
        ax.set(xlabel="update", ylim=(0.98, 2.02))
        remove_frame(ax)
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
    axes = _panels(alphas, (3.0, 2.6))[0]
    for ax, values in zip(axes, alphas.values(), strict=True):
        ax.hist(np.ravel(values), bins=bins, range=(1, 2), color=COLOURS[0], ec="white")
        ax.set(xlabel="α", xlim=(1, 2))
        ax.locator_params("y", integer=True)
        remove_frame(ax)
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
    rows = _panels(next(iter(densities.values()), ()), (3.0, 1.7), len(densities), sharex=True)
    for number, (axes, (model, by_kind)) in enumerate(zip(rows, densities.items(), strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        for ax, array in zip(axes, by_kind.values(), strict=True):
            values = np.ravel(array)
            share = np.full(len(values), 1 / len(values))
            ax.hist(values, bins=25, range=(0, 1), weights=share, color=colour)
            ax.axvline(values.mean(), color=INK, lw=1, ls=":")
            percent_axis(ax)
        axes[0].set_ylabel(model)
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
        kind: {model: np.sort(x, axis=1) for model, x in models.items()}
        for kind, models in _by_kind(densities, ndim=2).items()
    }
    return _curves(ranked, "layer", "density of a head", percent=True)


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
    ax = _curves(_by_kind(diversity, ndim=1), "layer", "Jensen-Shannon divergence")
    ax.set_ylim(0, None)
    return ax


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
    ranked = {
        panel: {model: np.sort(np.ravel(x))[::-1] for model, x in models.items()}
        for panel, models in confidences.items()
    }
    return _curves(ranked, "head, by confidence", "mean weight", width=2.5, percent=True)


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
    ks = list(next(iter(scores.values())))
    arrays = {model: [by_k[k] for k in ks] for model, by_k in scores.items()}
    ax = _curves({"": arrays}, "k: weights that a head may keep", label, width=4.8)
    ax.set_xticks(range(1, len(ks) + 1), ks, parse_math=False)
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


def _panels(
    titles: Iterable[str], size: tuple[float, float], rows: int = 1, **shared: bool
) -> list[list[Axes]]:
    """Rows of axes with a title for each column; those of a row share the y-axis."""
    titles = list(titles)
    axes = new_axes(rows, len(titles), size, **shared or {"sharey": True})
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(KIND_TITLES.get(title, title), fontsize=10)
    return axes


def _curves(
    panels: Mapping[str, Mapping[str, Any]],
    x: str,
    y: str,
    *,
    width: float = 3.2,
    percent: bool = False,
) -> Axes:
    """Panel → model → numbers (n,), or (n, lines), against 1 … n; one legend below all panels."""
    axes = _panels(panels, (width, 3.2))[0]
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


def _by_kind(
    values: Mapping[str, Mapping[str, ArrayLike]], ndim: int
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Kind → model → array, from model → kind → array; all models have the kinds of the first."""
    kinds = next(iter(values.values()), {})
    return {k: {model: _array(x[k], ndim) for model, x in values.items()} for k in kinds}


def _array(values: ArrayLike, ndim: int) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != ndim:
        raise ValueError(f"expected arrays of {ndim} dimensions, got shape {array.shape}")
    return array
