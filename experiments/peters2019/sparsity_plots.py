"""Plots of how sparse, how exact and how well calibrated a model is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from experiments.analysis import Calibration
from experiments.certainty import SupportSizes
from experiments.plots import percent_axis
from pyentmax.seq2seq.plotting._figures import axes_or_new, legend
from pyentmax.seq2seq.plotting.palette import BLUE, GREY, INK, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_exactness_by_beam(
    shares: Mapping[int, float], single: float | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the share of sources for which beam search is exact against the beam width.

    Parameters
    ----------
    shares : mapping
        Beam width → share, such as `experiments.certainty.exactness_by_beam` gives.
    single : float, optional
        Share of the sources with a single possible sequence, drawn as a line for comparison.
    ax : as in `plot_attention`

    Examples
    --------
    >>> ax = plot_exactness_by_beam({1: 0.6, 2: 0.75, 3: 0.8}, single=0.5)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('beam', 'share of sources')
    """
    ax = axes_or_new(ax, 5.0, 3.4)
    widths = sorted(shares)
    ax.plot(widths, [shares[k] for k in widths], "o-", color=BLUE, lw=2, label="beam search exact")
    if single is not None:
        label = "one sequence holds all"
        ax.axhline(single, color=VERMILION, ls=(0, (4, 1.5)), lw=1.6, label=label)
    ax.set(xlabel="beam", ylabel="share of sources", ylim=(0, 1.03))
    ax.set_xticks(widths)
    percent_axis(ax)
    legend(ax, loc="best")
    return ax


def plot_support_sizes(sizes: SupportSizes, ax: Axes | None = None, *, max_size: int = 12) -> Axes:
    """Draw how often attention and output have a support of each size (Peters et al., Table 3).

    Parameters
    ----------
    sizes : SupportSizes
    ax : as in `plot_attention`
    max_size : int
        Supports of this size and larger share the last bar.

    Examples
    --------
    >>> sizes = SupportSizes(np.array([2, 1]), np.array([1, 1]), np.array([5, 5]), 30)
    >>> ax = plot_support_sizes(sizes)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['attention, mean 1.50', 'output, mean 1.00']
    """
    ax = axes_or_new(ax, 5.4, 3.4)
    lines = [("attention", sizes.attention, BLUE), ("output", sizes.output, VERMILION)]
    first = min(1, int(sizes.attention.min()))  # 0 where a fertility is used up
    largest = max(int(sizes.attention.max()), int(sizes.output.max()))
    last = min(max_size, largest)
    x = np.arange(first, last + 1)
    for number, (name, counts, colour) in enumerate(lines):
        share = np.bincount(np.minimum(counts, last), minlength=last + 1)[first:] / len(counts)
        place = x + 0.4 * (number - 0.5)
        ax.bar(place, share, 0.38, color=colour, label=f"{name}, mean {counts.mean():.2f}")
    ax.set_xticks(x, [f"{n}+" if n == last < largest else f"{n}" for n in x])
    ax.set(xlabel="size of the support", ylabel="share of target positions")
    percent_axis(ax)
    legend(ax)
    return ax


def plot_reliability(calibrations: Mapping[str, Calibration], ax: Axes | None = None) -> Axes:
    """Draw a reliability diagram: the accuracy of predictions against their confidence.

    A point is a bin of predictions, and its area grows with their number. A line joins it to the
    diagonal, on which the points of a calibrated model lie.

    Parameters
    ----------
    calibrations : mapping
        Label → result of `experiments.analysis.calibration`; at most two.
    ax : as in `plot_attention`

    Raises
    ------
    ValueError
        If there are more than two.

    Examples
    --------
    >>> from experiments.analysis import calibration
    >>> ax = plot_reliability({"best": calibration([0.9, 0.8], [True, False])})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['best, ECE 45.0%']
    """
    if len(calibrations) > 2:
        raise ValueError(f"expected one or two calibrations, got {len(calibrations)}")
    ax = axes_or_new(ax, 4.4, 4.4)
    from matplotlib.lines import Line2D

    ax.plot([0, 1], [0, 1], color=GREY, lw=1, zorder=1)
    styles = [(BLUE, "o"), (VERMILION, "D")]
    handles = []
    for (label, result), (colour, marker) in zip(calibrations.items(), styles, strict=False):
        p = np.array([b.confidence for b in result.bins])
        accuracy = np.array([b.accuracy for b in result.bins])
        share = np.array([b.count for b in result.bins]) / result.count
        low, high = np.minimum(p, accuracy), np.maximum(p, accuracy)
        ax.vlines(p, low, high, color=colour, lw=1, alpha=0.6)
        area = 18 + 220 * share
        ax.scatter(p, accuracy, area, color=colour, marker=marker, alpha=0.85, ec=INK, lw=0.5)
        name = f"{label}, ECE {result.error:.1%}"
        handles.append(Line2D([], [], color=colour, marker=marker, ls="", label=name))
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    ax.set(xlabel="confidence", ylabel="accuracy")
    percent_axis(ax)
    ax.xaxis.set_major_formatter(ax.yaxis.get_major_formatter())
    legend(ax, handles=handles, loc="lower left", bbox_to_anchor=(0, 1))
    return ax
