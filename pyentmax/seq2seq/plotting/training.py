"""Training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyentmax.seq2seq.plotting._figures import axes_or_new
from pyentmax.seq2seq.plotting.palette import BLUE, RULE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_training_curve(history: Mapping[str, Sequence[float]], ax: Axes | None = None) -> Axes:
    """Draw the training loss and the dev accuracy over the updates.

    Parameters
    ----------
    history : mapping
        Lists of the same length: "update", "loss" and "dev_accuracy" (from 0 to 1; NaN where it was
        not measured).
    ax : matplotlib Axes, optional
        Where to draw the loss; the accuracy gets a twin axis. A new figure by default.

    Returns
    -------
    matplotlib Axes
        Those of the loss.

    Examples
    --------
    >>> history = {"update": [100, 200], "loss": [2.0, 0.5], "dev_accuracy": [0.25, 0.75]}
    >>> ax = plot_training_curve(history)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('update', 'training loss')
    """
    names = ("update", "loss", "dev_accuracy")
    update, loss, accuracy = (np.asarray(history[name], np.float64) for name in names)
    ax = axes_or_new(ax, 6.4, 3.6)
    ax.plot(update, loss, color=BLUE, lw=2)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("update")
    ax.set_ylabel("training loss", color=BLUE)
    twin = ax.twinx()
    measured = np.isfinite(accuracy)
    twin.plot(update[measured], accuracy[measured], "o--", color=VERMILION, lw=1.6, ms=4)
    twin.set_ylim(0, 1.08)
    twin.set_yticks(np.linspace(0, 1, 6))
    twin.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    twin.set_ylabel("dev accuracy", color=VERMILION)
    if measured.any():
        best = int(np.nanargmax(accuracy))
        twin.annotate(
            f"best {accuracy[best]:.1%}",
            (update[best], accuracy[best]),
            xytext=(0, 7),
            textcoords="offset points",
            color=VERMILION,
            ha="right" if update[best] > update.mean() else "left",
        )
    for axes, colour in ((ax, BLUE), (twin, VERMILION)):
        axes.tick_params(axis="y", colors=colour)
        axes.spines["top"].set_visible(False)
    ax.grid(axis="x", color=RULE, lw=0.8)
    return ax
