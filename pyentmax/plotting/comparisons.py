"""Comparisons of trained models: accuracy against α, training time and epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyentmax.plotting._figures import axes_or_new, legend, percent_axis, require_matplotlib
from pyentmax.plotting._inputs import by_name, is_mapping, mapping, numbers, sequence, shown
from pyentmax.plotting._palette import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY)
MARKERS = "os^Dv*"
DASHES = ("-", "--", ":")
MOST_LINES = len(COLOURS) * len(DASHES)  # of which no two look alike


def plot_accuracy_by_alpha(
    accuracies: Mapping[str, Mapping[float, Sequence[float]]], ax: Axes | None = None
) -> Axes:
    """Draw accuracy against α, one line per role (Peters et al. 2019, Figure 4).

    A point is the mean over seeds, and its bar shows one standard error on either side; a single
    seed has no bar.

    Parameters
    ----------
    accuracies : mapping
        Role, such as "attention" → α → accuracies of the seeds, from 0 to 1.
    ax : as in `plot_attention`

    Raises
    ------
    ValueError
        If a role has no accuracies, or one that is not finite, or if there are more than 18 roles.
    TypeError
        If an α or an accuracy is no number.

    Examples
    --------
    >>> ax = plot_accuracy_by_alpha({"output": {1.0: [0.80, 0.82], 1.5: [0.84, 0.85]}})
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('α', 'dev accuracy')
    """
    check_lines(accuracies)
    found = {}
    for role, line in accuracies.items():
        numbers(list(mapping(line, f"accuracies[{role!r}]")), f"the α of {role!r}")
        found[role] = by_name(line, f"accuracies[{role!r}]", ndim=1)
    ax = axes_or_new(ax, 5.4, 3.6)
    alphas = {alpha for line in found.values() for alpha in line}
    # Lines are shifted, so that error bars at the same α do not hide each other.
    spacing = 0.02 * (max(alphas, default=0) - min(alphas, default=0))
    for number, (role, of_alpha) in enumerate(found.items()):
        x = np.array(sorted(of_alpha))
        values = [of_alpha[alpha] for alpha in x]
        mean = [v.mean() for v in values]
        error = [v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in values]
        shift = spacing * (number - (len(accuracies) - 1) / 2)
        style = line_style(number) | {"label": role}
        ax.errorbar(x + shift, mean, error, capsize=3, ms=5, lw=1.8, **style)
    ax.set_xticks(sorted(alphas), [f"{alpha:g}" for alpha in sorted(alphas)])
    ax.set(xlabel="α", ylabel="dev accuracy")
    percent_axis(ax)
    legend(ax)
    return ax


def plot_time_and_accuracy(
    runs: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]], ax: Axes | None = None
) -> Axes:
    """Draw accuracy against the seconds of training (Peters et al. 2019, Figure 6).

    The strong line is the mean of a label's runs at each validation, shown by a marker. If there
    are several runs, each has a pale line of its own. What lies more than 15 points below the best
    is cut off, to show the ends of the lines more clearly.

    Parameters
    ----------
    runs : mapping
        Label → one (seconds, accuracies) per run, each with one entry per validation. All runs of a
        label must have the same number of validations.
    ax : as in `plot_attention`

    Raises
    ------
    ValueError
        If a label has no runs, or runs of other shapes, or if there are more than 18 labels.
    TypeError
        If the runs are no numbers.

    Examples
    --------
    >>> ax = plot_time_and_accuracy({"softmax": [([1, 2], [0.5, 0.8])]})
    >>> ax.get_xlabel()
    'CPU seconds of training'
    """
    check_lines(runs)
    # Of each label: runs, (seconds, accuracies), validations.
    found = {label: numbers(of, f"runs[{label!r}]", ndim=3) for label, of in runs.items()}
    for label, curves in found.items():
        if curves.shape[1] != 2:
            raise ValueError(
                f"runs[{label!r}] must hold pairs of seconds and accuracies, got shape "
                f"{curves.shape}"
            )
    ax = axes_or_new(ax, 5.8, 3.8)
    for number, (label, curves) in enumerate(found.items()):
        style = line_style(number)
        if len(curves) > 1:
            for seconds, accuracy in curves:
                ax.plot(seconds, accuracy, color=style["color"], lw=0.8, alpha=0.35)
        ax.plot(*curves.mean(axis=0), ms=4.5, lw=1.8, label=label, **style)
    best = max(np.nanmax(curves[:, 1], initial=0) for curves in found.values())
    ax.set(xlim=(0, None), ylim=(best - 0.15, best + 0.01))
    ax.set(xlabel="CPU seconds of training", ylabel="dev accuracy")
    percent_axis(ax)
    legend(ax)
    return ax


def plot_learning_curves(
    runs: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float], Sequence[float]]]],
    title: str | None = None,
) -> Axes:
    """Draw accuracy against epochs on the left, and against hours on the right, in a new figure.

    Each run has a line. The runs of a label look alike, and may have got equally far or not.

    Parameters
    ----------
    runs : mapping
        Label → one (epochs, hours, accuracies) per run, each with one entry per validation.
    title : str, optional
        Of the legend.

    Returns
    -------
    matplotlib Axes
        Those on the left; ``ax.figure.axes`` has both.

    Raises
    ------
    ValueError
        If a label has no runs, or runs of other shapes, or if there are more than 18 labels.
    TypeError
        If the runs are no numbers.

    Examples
    --------
    >>> ax = plot_learning_curves({"softmax": [([1, 2], [0.1, 0.2], [0.5, 0.8])]})
    >>> [axes.get_xlabel() for axes in ax.figure.axes]
    ['epochs', 'hours of updates']
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    check_lines(runs)
    found = {label: sequence(of, f"runs[{label!r}]") for label, of in runs.items()}
    for label, label_runs in found.items():
        for i, run in enumerate(label_runs):
            curves = numbers(run, f"runs[{label!r}][{i}]", ndim=2, empty=True)
            if len(curves) != 3:
                raise ValueError(
                    f"runs[{label!r}][{i}] must be epochs, hours and accuracies, got shape "
                    f"{curves.shape}"
                )
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, (label, label_runs) in enumerate(found.items()):
        for epochs, hours, accuracy in label_runs:
            style = line_style(number) | {"ms": 3.5, "lw": 1.6, "label": label}
            left.plot(epochs, accuracy, **style)
            right.plot(hours, accuracy, **style)
            label = f"_{label}"  # Matplotlib leaves such labels out of the legend
    left.set(xlabel="epochs", ylabel="dev accuracy")
    right.set(xlabel="hours of updates")
    for ax in (left, right):
        ax.set_xlim(0, None)
        percent_axis(ax)
    if len(runs) > len(COLOURS):  # they would hide the lines
        legend(right, title=title, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        legend(right, title=title, loc="lower right")
    return left


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of a line: six colours, then the same dashed, then dotted.

    Examples
    --------
    >>> line_style(0)["ls"], line_style(6)["ls"], line_style(0)["color"] == line_style(6)["color"]
    ('-', '--', True)
    """
    dashes, colour = divmod(number, len(COLOURS))
    return {"color": COLOURS[colour], "marker": MARKERS[colour], "ls": DASHES[dashes]}


def check_lines(lines: Mapping[str, object]) -> None:
    """Raise an error unless every line has values, and there is a style for each."""
    if not is_mapping(lines):
        raise TypeError(f"expected a mapping from labels to lines, got {shown(lines)}")
    without = [
        label
        for label, of in lines.items()
        if of is None or (hasattr(of, "__len__") and not len(of))
    ]
    if without or not len(lines):
        raise ValueError(f"expected values for every line, got none for {without}")
    if len(lines) > MOST_LINES:
        raise ValueError(f"expected at most {MOST_LINES} lines, got {len(lines)}")
