"""Training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyentmax.plotting._figures import axes_or_new, percent_axis, require_matplotlib
from pyentmax.plotting._inputs import entries, is_mapping, numbers, sequence, shown, words
from pyentmax.plotting._palette import BLUE, RULE, VERMILION
from pyentmax.plotting.comparisons import check_lines, line_style

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

    Raises
    ------
    ValueError
        If a list is missing or their lengths differ, or an update is not finite.
    TypeError
        If the history is no mapping to lists of numbers.

    Examples
    --------
    >>> history = {"update": [100, 200], "loss": [2.0, 0.5], "dev_accuracy": [0.25, 0.75]}
    >>> ax = plot_training_curve(history)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('update', 'training loss')
    """
    if not is_mapping(history):
        raise TypeError(f"history must be a mapping from names to lists, got {shown(history)}")
    names = ("update", "loss", "dev_accuracy")
    found = {
        name: numbers(history[name], f"history[{name!r}]", ndim=1, empty=True)
        for name in names
        if name in history
    }
    lengths = {name: len(values) for name, values in found.items()}
    if len(lengths) < len(names) or len(set(lengths.values())) > 1:
        raise ValueError(
            f"history must have lists of the same length named {', '.join(names)}, but their "
            f"lengths are {lengths}"
        )
    update, loss, accuracy = (found[name] for name in names)
    ax = axes_or_new(ax, 6.4, 3.6)
    from matplotlib.ticker import PercentFormatter

    ax.plot(update, loss, color=BLUE, lw=2)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("update")
    ax.set_ylabel("training loss", color=BLUE)
    twin = ax.twinx()
    measured = np.isfinite(accuracy)
    twin.plot(update[measured], accuracy[measured], "o--", color=VERMILION, lw=1.6, ms=4)
    twin.set_ylim(0, 1.08)
    twin.set_yticks(np.linspace(0, 1, 6))
    twin.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
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


def plot_starts(
    curves: Mapping[str, Sequence[Mapping[str, float]]],
    parts: Sequence[str] = ("encoder", "decoder", "context"),
) -> Axes:
    """Draw accuracy, and the number of positions attended to, over the updates of several runs.

    Parameters
    ----------
    curves : mapping
        Label → what each validation found: "update", "dev_token_accuracy" in percent, and the mean
        support of each part.
    parts : sequence of str
        The attentions, a panel each.

    Returns
    -------
    matplotlib Axes
        Those of the accuracy, in a new figure; ``ax.figure.axes`` has all.

    Raises
    ------
    ValueError
        If a run has no validation, or one that lacks a number, or if there are more than 18 runs.
    TypeError
        If some of these are no numbers.

    Examples
    --------
    >>> found = {"update": 200, "dev_token_accuracy": 31.0, "context": 9.5}
    >>> ax = plot_starts({"1.5-entmax": [found]}, parts=["context"])
    >>> [axes.get_title() for axes in ax.figure.axes]
    ['dev token accuracy', 'attended: context']
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    check_lines(curves)
    curves = {label: sequence(of, f"curves[{label!r}]") for label, of in curves.items()}
    parts = words(parts, "parts", empty=True)
    found = {
        label: {
            "update": entries(curve, "update", f"curves[{label!r}]"),
            **{
                key: entries(curve, key, f"curves[{label!r}]")
                for key in ("dev_token_accuracy", *parts)
            },
        }
        for label, curve in curves.items()
    }
    panels = 1 + len(parts)
    figure = Figure(figsize=(3.1 * panels, 3.8), layout="constrained")
    first, *rest = figure.subplots(1, panels, squeeze=False)[0]
    for number, (label, curve) in enumerate(found.items()):
        style = line_style(number) | {"ms": 3.5, "lw": 1.6}
        first.plot(curve["update"], curve["dev_token_accuracy"] / 100, **style, label=label)
        for ax, part in zip(rest, parts, strict=True):
            ax.plot(curve["update"], curve[part], **style)
    first.set_title("dev token accuracy", fontsize=10)
    percent_axis(first)
    for ax, part in zip(rest, parts, strict=True):
        ax.set_title(f"attended: {part}", fontsize=10, parse_math=False)
        ax.set_yscale("log")
        ax.set_yticks(ticks := [1, 2, 5, 10, 20], [str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.set_ylim(0.95, 30)
        ax.grid(color=RULE, lw=0.8)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    for ax in (first, *rest):
        ax.set_xlim(0, None)
        ax.set_xlabel("update")
    shown = figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    for text in shown.get_texts():
        text.set_parse_math(False)
    return first


def plot_bits_curves(
    curves: Mapping[str, Sequence[Mapping[str, float]]], ax: Axes | None = None
) -> Axes:
    """Draw bits per character over the updates of several language models.

    Parameters
    ----------
    curves : mapping
        Label → what each validation found: "update" and "bits".
    ax : matplotlib Axes, optional
        A new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If a model has no validation, or one that lacks a number, or if there are more models than
        styles of lines.
    TypeError
        If some of these are no numbers.

    Examples
    --------
    >>> ax = plot_bits_curves({"softmax": [{"update": 200, "bits": 3.4}]})
    >>> ax.get_ylabel()
    'bits per character'
    """
    check_lines(curves)
    curves = {label: sequence(of, f"curves[{label!r}]") for label, of in curves.items()}
    found = {
        label: (
            entries(curve, "update", f"curves[{label!r}]"),
            entries(curve, "bits", f"curves[{label!r}]"),
        )
        for label, curve in curves.items()
    }
    ax = axes_or_new(ax, 6.4, 4.0)
    for number, (label, (updates, bits)) in enumerate(found.items()):
        ax.plot(updates, bits, ms=4, lw=1.6, label=label, **line_style(number))
    ax.set_xlim(0, None)
    ax.set_xlabel("update")
    ax.set_ylabel("bits per character")
    ax.grid(color=RULE, lw=0.8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for text in ax.legend(frameon=False, fontsize=9).get_texts():
        text.set_parse_math(False)
    return ax
