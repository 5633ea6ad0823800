"""Pictures of what the heads of a Transformer do: Figures 2 to 4, 6 and the choice of k.

Each model has a colour, by its position, and each kind of attention a panel. The functions make a
new figure and return its first axes; ``ax.figure.axes`` has all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from experiments.plots import by_kind, checked_array, curves_by_model, percent_axis, titled_panels
from pyentmax.seq2seq.plotting._figures import legend, remove_frame
from pyentmax.seq2seq.plotting.palette import COLOURS, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    axes = titled_panels(alphas, (3.4, 3.2))[0]
    for ax, values in zip(axes, alphas.values(), strict=True):
        path = checked_array(values, ndim=3)
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
    axes = titled_panels(alphas, (3.0, 2.6))[0]
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
    rows = titled_panels(
        next(iter(densities.values()), ()), (3.0, 1.7), len(densities), sharex=True
    )
    for number, (axes, (model, arrays)) in enumerate(zip(rows, densities.items(), strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        for ax, array in zip(axes, arrays.values(), strict=True):
            values = np.ravel(array)
            share = np.full(len(values), 1 / len(values))
            ax.hist(values, bins=25, range=(0, 1), weights=share, color=colour)
            ax.axvline(values.mean(), color=INK, lw=1, ls=":")
            percent_axis(ax)
        axes[0].set_ylabel(model)
    for ax in rows[-1]:
        ax.set(xlabel="density", xlim=(0, 1))
    return rows[0][0]


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
    ax = curves_by_model(by_kind(diversity, ndim=1), "layer", "Jensen-Shannon divergence")
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
    return curves_by_model(ranked, "head, by confidence", "mean weight", width=2.5, percent=True)


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
    ax = curves_by_model({"": arrays}, "k: weights that a head may keep", label, width=4.8)
    ax.set_xticks(range(1, len(ks) + 1), ks, parse_math=False)
    return ax
