"""Trained models compared: accuracy against α, and against the time that training takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyentmax.plotting._figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    new_axes,
    percent_axis,
    require_matplotlib,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_accuracy_by_alpha", "plot_time_and_accuracy"]

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY)
MARKERS = "os^Dv*"


def plot_accuracy_by_alpha(
    accuracies: Mapping[str, Mapping[float, Sequence[float]]], ax: Axes | None = None
) -> Axes:
    """Draw accuracy against α, a line for each role (Peters et al. 2019, Figure 4).

    A point is the mean over seeds, and its bar one standard error to either side; a single seed
    has none.

    Parameters
    ----------
    accuracies : mapping
        Role, such as "attention", → α → accuracies of the seeds, from 0 to 1.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there is no accuracy, or there are more than six roles.
    ImportError
        If Matplotlib is not installed.

    Examples
    --------
    >>> ax = plot_accuracy_by_alpha({"output": {1.0: [0.80, 0.82], 1.5: [0.84, 0.85]}})
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('α', 'dev accuracy')
    """
    require_matplotlib()
    _check(accuracies)
    if ax is None:
        ax = new_axes(5.4, 3.6)
    alphas = {alpha for line in accuracies.values() for alpha in line}
    # Lines beside each other, so that bars at one α do not hide each other.
    apart = 0.02 * (max(alphas, default=0) - min(alphas, default=0))
    for number, (role, line) in enumerate(accuracies.items()):
        x = np.array(sorted(line))
        values = [np.asarray(line[alpha], dtype=float) for alpha in x]
        mean = [v.mean() for v in values]
        error = [v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in values]
        shift = apart * (number - (len(accuracies) - 1) / 2)
        style: dict[str, Any] = {
            "color": COLOURS[number],
            "marker": "os^Dv*"[number],
            "ms": 5,
            "lw": 1.8,
        }
        ax.errorbar(x + shift, mean, error, label=role, capsize=3, **style)
    ax.set_xticks(sorted(alphas), [f"{alpha:g}" for alpha in sorted(alphas)])
    ax.set(xlabel="α", ylabel="dev accuracy")
    percent_axis(ax)
    ax.legend(frameon=False)
    return ax


def plot_time_and_accuracy(
    runs: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]], ax: Axes | None = None
) -> Axes:
    """Draw accuracy against the seconds of training (Peters et al. 2019, Figure 6).

    A pale line is one run; where there are several, the strong one is their mean, validation by
    validation, and its markers show the validations. What lies more than 15 points below the best
    is cut off, so that the ends of the lines can be told apart.

    Parameters
    ----------
    runs : mapping
        Label → one (seconds, accuracies) a run, each with an entry for every validation; the runs
        of a label have the same number of them.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there is no run, or there are more than six labels.
    ImportError
        If Matplotlib is not installed.

    Examples
    --------
    >>> ax = plot_time_and_accuracy({"softmax": [([1, 2], [0.5, 0.8])]})
    >>> ax.get_xlabel()
    'CPU seconds of training'
    """
    require_matplotlib()
    _check(runs)
    if ax is None:
        ax = new_axes(5.8, 3.8)
    for number, (label, of_label) in enumerate(runs.items()):
        colour = COLOURS[number]
        curves = np.asarray(of_label, dtype=float)  # runs, (seconds, accuracies), validations
        if len(curves) > 1:
            for seconds, accuracy in curves:
                ax.plot(seconds, accuracy, color=colour, lw=0.8, alpha=0.35)
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[number], "label": label}
        ax.plot(*curves.mean(axis=0), ms=4.5, lw=1.8, **style)
    best = max(max(accuracy) for of_label in runs.values() for _, accuracy in of_label)
    ax.set(xlim=(0, None), ylim=(best - 0.15, best + 0.01))
    ax.set(xlabel="CPU seconds of training", ylabel="dev accuracy")
    percent_axis(ax)
    ax.legend(frameon=False)
    return ax


def _check(lines: Mapping[str, object]) -> None:
    if not lines or not all(lines.values()):
        raise ValueError(
            f"expected values for each line, got none for {[k for k in lines if not lines[k]]}"
        )
    if len(lines) > len(COLOURS):
        raise ValueError(f"expected at most {len(COLOURS)} lines, got {len(lines)}")
