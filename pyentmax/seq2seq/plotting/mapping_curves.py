"""Curves of α-entmax in two dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyentmax.reference.mappings.entmax import entmax
from pyentmax.seq2seq.plotting._figures import axes_or_new, remove_frame
from pyentmax.seq2seq.plotting.palette import BLUE, GREEN, ORANGE, PURPLE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_mapping_curves(ax: Axes | None = None) -> Axes:
    """Draw α-entmax in two dimensions: p₁ of the scores z = (t, 0) (Peters et al. 2019, Figure 3).

    A dot marks where a curve reaches 0 or 1 for good, at |t| = 1 / (α − 1); softmax never does.

    Parameters
    ----------
    ax : as in `plot_attention`

    Examples
    --------
    >>> len(plot_mapping_curves().lines)
    5
    """
    ax = axes_or_new(ax, 5.4, 3.8)
    reach = 4.5
    t = np.linspace(-reach, reach, 901)
    z = np.stack([t, np.zeros_like(t)], axis=-1)
    curves = [
        (1.0, "α = 1 (softmax)", PURPLE, (0, (1, 1))),
        (1.25, "α = 1.25", GREEN, (0, (5, 1, 1, 1))),
        (1.5, "α = 1.5", BLUE, "-"),
        (2.0, "α = 2 (sparsemax)", VERMILION, (0, (4, 1.5))),
        (4.0, "α = 4", ORANGE, (0, (7, 1, 1, 1, 1, 1))),
    ]
    for alpha, label, colour, dashes in curves:
        ax.plot(t, entmax(z, alpha)[:, 0], color=colour, ls=dashes, lw=2, label=label)
        if alpha > 1:
            saturation = 1 / (alpha - 1)
            ax.scatter([-saturation, saturation], [0, 1], s=28, color=colour, zorder=3)
    ax.set(xlim=(-reach, reach), ylim=(-0.04, 1.04), xlabel="t", ylabel="p₁ of z = (t, 0)")
    ax.legend(frameon=False, loc="upper left", handlelength=3)
    remove_frame(ax)
    return ax
