"""The figures of the notebooks, and what else these share: code to read, pages, one BLAS thread.

A cell works out what is to be seen, asserts it, and calls a function of this file that draws it and
returns the figure; the functions stand in the order of the notebooks. ``show`` displays a figure
with the two texts that belong to it: ``TEXTS``, at the end, has them by name.

The colours are Okabe and Ito's, told apart under every common form of colour blindness; curves
differ in their dashes too, so that the figures can be read in black and white.
"""

from __future__ import annotations

import base64
import inspect
import io
import json
import re
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import HTML, display
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from pyentmax.engine.system.blas import describe_blas, limit_blas
from pyentmax.seq2seq.plotting import plot_attention
from pyentmax.seq2seq.plotting.palette import (
    BLUE,
    EDGE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    RULE,
    VERMILION,
)

__all__ = [
    "TEXTS",
    "CURVES",
    "accuracy_by_k",
    "active_sets",
    "alpha_paths",
    "attention_bars",
    "attention_maps",
    "beam_on_tree",
    "budget_levels",
    "chain_slopes",
    "choice_in_rows",
    "clipped_water",
    "complete_by_width",
    "density_by_alpha",
    "descent",
    "distance_from_limit",
    "diversity_of_layers",
    "entropies_of_two",
    "entropy_at_zero",
    "entropy_hills",
    "entry_of_a_choice",
    "errors_by_step",
    "errors_of_models",
    "errors_of_slopes",
    "fertility",
    "gaps_to_target",
    "gradient_lengths",
    "grammatical_by_temperature",
    "heads_on_sentences",
    "hold_blas",
    "inflection_model",
    "intervals_of_scores",
    "jacobian_tables",
    "draw_water",
    "keys_and_queries",
    "landing_places",
    "levels_of_search",
    "looks_at_a_row",
    "losses_of_two",
    "lost_by_width",
    "mass_of_others",
    "measured_jacobians",
    "module_of_choice",
    "of_k",
    "one_step",
    "passes_by_digits",
    "passes_until_sure",
    "paths_in_alpha",
    "position_products",
    "possible_by_position",
    "price_of_zeros",
    "puzzle_panels",
    "ranked_characters",
    "ranks_in_the_plane",
    "reach_of_gradients",
    "recovered_alphas",
    "recurrent_step",
    "reliability",
    "results_lines",
    "scores_in_reach",
    "sets_of_species",
    "shares_of_products",
    "show",
    "show_described",
    "show_source",
    "simplex_grid",
    "simplex_xy",
    "slack_of_a_choice",
    "smoothing_kernels",
    "starts_of_training",
    "steep_at_threshold",
    "strength_paths",
    "sums_of_threshold",
    "support_by_width",
    "supports_by_length",
    "supports_of_plane",
    "tape_graph",
    "taut_string",
    "third_of_three",
    "tilted_hills",
    "trained_by_length",
    "training_curves",
    "training_of_scores",
    "transformer_layers",
    "two_heads",
    "used_with",
    "water_levels",
    "ways_to_be_sparse",
    "weights_of_listing",
]

plt.rcParams.update(
    {
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.constrained_layout.use": True,
        "figure.dpi": 100,
        "font.size": 11,
        "grid.color": RULE,
        "legend.frameon": False,
        "lines.linewidth": 2,
    }
)

# α, and how its curve is drawn in every notebook.
CURVES: dict[float, dict[str, Any]] = {
    1.0: {"color": PURPLE, "ls": (0, (1, 1)), "label": "α = 1"},
    1.25: {"color": GREEN, "ls": (0, (5, 1, 1, 1)), "label": "α = 1.25"},
    1.5: {"color": BLUE, "ls": "-", "label": "α = 1.5"},
    2.0: {"color": VERMILION, "ls": (0, (4, 1.5)), "label": "α = 2"},
    4.0: {"color": ORANGE, "ls": (0, (7, 1, 1, 1, 1, 1)), "label": "α = 4"},
}

WATER = "#D6EAF8"  # of the water-level pictures
PAGE = 7.3  # inches, at 100 dots each: the width of the text on a page of the site

# Of a support of 1, 2 and 3 entries: from dark to light, so that grey tones tell them apart too.
SUPPORT_COLOURS = {1: BLUE, 2: ORANGE, 3: "#F7E9B0"}


_until_the_end = ExitStack()


def hold_blas(threads: int = 1) -> None:
    """Limit BLAS to some threads from here on, and say so.

    The matrices of the notebooks are small: BLAS, left to itself, shares each product among all
    cores and takes several times as long.
    """
    _until_the_end.enter_context(limit_blas(threads))
    print(describe_blas("hold_blas(N)"))


def show(figure: Any, name: str, **values: Any) -> None:
    """Display a figure with its two texts of ``TEXTS``, into which ``values`` are written."""
    alt, caption = TEXTS[name]
    show_described(figure, alt.format(**values), caption.format(**values))


def show_described(figure: Any, alt: str, caption: str) -> None:
    """Display a figure, its caption below, with a description for readers who cannot see it.

    The caption says what the marks are and what to look for. As an HTML image: that is the form of
    output for which every front end keeps the description.
    """
    fit_page(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    source = f"data:image/png;base64,{data}"
    display(
        HTML(
            f'<img alt="{escape(alt)}" style="max-width: 100%" src="{source}">'
            f'<p style="font-size: 90%; max-width: 46em">{escape(caption)}</p>'
        )
    )


def fit_page(figure: Any) -> None:
    """Make a figure as wide as the page at most, its text smaller to match, but 8 points at least.

    A wider picture would be shown at the page's width all the same, with text that is too small.
    """
    width, height = figure.get_size_inches()
    if width > PAGE:
        figure.set_size_inches(PAGE, height)
        figure.canvas.draw()
        for text in figure.findobj(Text):
            text.set_fontsize(max(8, PAGE / width * text.get_fontsize()))
        for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
            size = axis.get_major_ticks()[0].label1.get_fontsize() if axis.get_major_ticks() else 8
            axis.set_tick_params(which="both", labelsize=size)


def show_source(*functions: Any) -> None:
    """Display functions of the library as they are written there."""
    code = "\n\n".join(inspect.getsource(function) for function in functions)
    display({"text/markdown": f"```python\n{code}```", "text/plain": code}, raw=True)


def simplex_xy(p: Any) -> Any:
    """The plane's coordinates (…, 2) of points (…, 3): an equilateral triangle with p₁ on top.

    Any three numbers with unit sum have a place in the plane, those outside the simplex too.
    """
    corners = np.array([[0.5, np.sqrt(3) / 2], [0.0, 0.0], [1.0, 0.0]])
    return np.asarray(p) @ corners


def simplex_grid(n: int) -> Any:
    """All p with three entries that are multiples of 1/n, an array of shape (m, 3)."""
    i, j = np.mgrid[: n + 1, : n + 1]
    inside = i + j <= n
    i, j = i[inside], j[inside]
    return np.stack([i, j, n - i - j], axis=-1) / n


def draw_simplex(ax: Any, labels: Any = ("$e_1$", "$e_2$", "$e_3$"), distance: float = 0.07) -> Any:
    """The triangle's outline with its corners named at a distance, and no other axes."""
    corners = simplex_xy(np.eye(3))
    ax.fill(*corners.T, facecolor="none", edgecolor=INK, lw=1.2, zorder=3)
    for (x, y), label, (dx, dy) in zip(
        corners, labels, [(0, 1), (-0.86, -1), (0.86, -1)], strict=True
    ):
        ax.text(x + distance * dx, y + distance * dy, label, ha="center", va="center", color=INK)
    ax.set(xlim=(-0.16, 1.16), ylim=(-0.16, 1.02), aspect="equal")
    ax.set_axis_off()
    return ax


def by_alpha(ax: Any, x: Any, curves: Any, draw: str = "plot", **style: Any) -> None:
    """A curve per α of ``curves`` (α → values) in that α's colour and dashes."""
    for alpha, values in curves.items():
        getattr(ax, draw)(x, values, **CURVES[alpha] | style)


def draw_matrix(ax: Any, matrix: Any, names: Any, largest: float, rows: Any = None) -> None:
    """A square matrix as a coloured table; a plain 0 is exactly zero, .00 only rounds to it."""
    ax.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest)
    for (i, j), entry in np.ndenumerate(matrix):
        text = _minus(entry, ".2f").replace("0.", ".") if entry else "0"
        colour = "white" if abs(entry) > 0.6 * largest else INK
        ax.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    ax.set_xticks(range(len(names)), names, rotation=60 if rows is None else 0, fontsize=8)
    ax.set_yticks(range(len(names)), names if rows is None else rows, fontsize=8)
    ax.grid(visible=False)


# --- 1. From argmax to entmax ---------------------------------------------------------------------


def draw_water(ax: Any, scores: Any, level: float, low: float, cap: Any = np.inf) -> None:
    """Scores as bars from `low`, and water up to a level: what stands out of it is dark.

    A level of −∞ is no water at all. What stands out by more than `cap`, a
    number or one for each score, is hatched.
    """
    scores = np.asarray(scores, float)
    places, surface = np.arange(1, len(scores) + 1), max(level, low)
    shown = np.minimum(scores, surface + cap)
    ax.axhspan(low, surface, color=WATER, lw=0, zorder=0)
    ax.bar(places, np.minimum(scores, surface) - low, 0.7, low, color=EDGE, zorder=2)
    ax.bar(places, np.maximum(shown - surface, 0), 0.7, surface, color=BLUE, zorder=2)
    if (scores > shown).any():
        rest = {"color": "none", "ec": GREY, "hatch": "////", "lw": 0.8}
        ax.bar(places, scores - shown, 0.7, shown, zorder=2, **rest)
    if level > low:
        ax.axhline(level, color=INK, lw=1.2, zorder=3)
    ax.set(xlim=(0.4, len(scores) + 0.6), ylim=(low, None))
    ax.set_xticks(places, [_short(score) for score in scores], fontsize=9)
    ax.grid(visible=False)


def _short(number: float) -> str:
    """Without the zero before the point: many stand side by side."""
    return re.sub(r"^(−?)0\.", r"\1.", _minus(number))


def _minus(number: float, digits: str = "g") -> str:
    return f"{number:{digits}}".replace("-", "−")


def _share(probability: float) -> str:
    """Two digits, or a plain 0 for what is exactly zero."""
    return f"{probability:.2f}" if probability else "0"


def water_levels(scores: Any, results: Any) -> Any:
    """The scores over the water of each α, and p below: α → (level, p), the level in units of z.

    What stands out by h gets p = [(α − 1) h]^{1/(α − 1)}. Softmax's level is −∞, argmax's the
    largest score.
    """
    formulas = {
        1.0: "softmax, $α = 1$\n$p = e^z / Z$",
        1.25: "$α = 1.25$\n$p = (h/4)^4$",
        1.5: "1.5-entmax\n$p = (h/2)^2$",
        2.0: "sparsemax, $α = 2$\n$p = h$",
        4.0: "$α = 4$\n$p = (3h)^{1/3}$",
        np.inf: "argmax, $α = ∞$\nthe highest takes all",
    }
    size = (2.15 * len(results), 4.6)
    figure, axes = plt.subplots(2, len(results), figsize=size, sharey="row", squeeze=False)
    levels = [level for level, _ in results.values() if level > -np.inf]
    low, high = min([*scores, *levels]), max(scores)
    low, high = low - 0.2 * (high - low), high + 0.1 * (high - low)
    places = np.arange(1, len(scores) + 1)
    for (alpha, (level, p)), water, below in zip(results.items(), *axes, strict=True):
        draw_water(water, scores, level, low)
        water.set_title(formulas[alpha], fontsize=10)
        water.set_xlabel(f"level {_minus(level, '.2f')}" if level > -np.inf else "no level")
        below.bar(places, p, 0.7, color=BLUE)
        for place, share in zip(places, p, strict=True):
            colour = INK if share else GREY
            style = {"ha": "center", "va": "bottom", "fontsize": 8, "color": colour}
            below.text(place, share + 0.02, _share(share).replace("0.", "."), **style)
        below.set(xlim=(0.4, len(scores) + 0.6), ylim=(0, 1.15))
        below.set_xticks(places, [f"$p_{i}$" for i in places])
        below.grid(visible=False)
    axes[0, 0].set(ylabel="score $z$", ylim=(low, high))
    axes[1, 0].set_ylabel("probability $p$")
    return figure


def water_to_move(scores: Any, results: Any) -> None:
    """A picture as of `water_levels`, and below it, where scripts run, the same with sliders.

    The scripts are those of the page docs/play.md, written into the output, which needs no network.
    """
    described = ", ".join(f"{level:.2f} for α = {alpha}" for alpha, (level, _) in results.items())
    show_described(
        water_levels(scores, results),
        f"Scores as bars, and water up to a level: {described}. Below, the probabilities.",
        "The same scores at two values of α. Below it is a picture that moves, where scripts run.",
    )
    folder = Path(__file__).resolve().parents[1] / "docs" / "_static" / "play"
    names = ("mappings.js", "drawing.js", "water.js")
    scripts = "".join((folder / name).read_text("utf-8") for name in names)
    call = f'PlayWater(document.getElementById("play-water"), {json.dumps(list(scores))});'
    html = f'<div id="play-water"></div>\n<script>(() => {{\n{scripts}{call}\n}})();</script>'
    display({"text/html": html, "text/plain": "Sliders, where JavaScript runs."}, raw=True)


def supports_of_plane(xx: Any, yy: Any, sizes: Any) -> Any:
    """The plane of scores of three choices, coloured by the support's size: α → sizes."""
    figure, axes = plt.subplots(1, len(sizes), figsize=(10, 3.2))
    colours = [SUPPORT_COLOURS[k] for k in (1, 2, 3)]
    for ax, (alpha, size) in zip(axes, sizes.items(), strict=True):
        ax.contourf(xx, yy, size, levels=[0.5, 1.5, 2.5, 3.5], colors=colours)
        ax.fill(*simplex_xy(np.eye(3)).T, facecolor="none", edgecolor=INK, lw=1.2)
        ax.set(title=CURVES[alpha]["label"], aspect="equal")
        ax.set_axis_off()
    names = {1: "one choice (a corner)", 2: "two (an edge)", 3: "all three (inside)"}
    handles = [plt.Rectangle((0, 0), 1, 1, fc=SUPPORT_COLOURS[k], ec=GREY, lw=0.5) for k in names]
    figure.legend(handles, names.values(), loc="outside lower center", ncols=3)
    return figure


def landing_places(probabilities: Any) -> Any:
    """Many p (n, 3) for each α as marks in the triangle, by the size of their support."""
    figure, axes = plt.subplots(1, len(probabilities), figsize=(9, 3.4))
    marks = {3: ("o", 3, "inside"), 2: ("s", 4, "on an edge"), 1: ("D", 7, "on a corner")}
    for ax, (alpha, p) in zip(axes, probabilities.items(), strict=True):
        draw_simplex(ax)
        places, size = simplex_xy(p), (p > 0).sum(axis=-1)
        for k, (marker, ms, name) in marks.items():
            style = {"ms": ms, "mec": INK, "mew": 0.3, "zorder": 4 if k < 3 else 2, "label": name}
            ax.plot(*places[size == k].T, marker, ls="none", color=SUPPORT_COLOURS[k], **style)
        percents = ", ".join(f"{np.mean(size == k):.0%}" for k in (1, 2, 3))
        title = f"{CURVES[alpha]['label']}\n{percents}\non corners, edges, inside"
        ax.set_title(title, fontsize=10)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


# --- 2. Entropies ---------------------------------------------------------------------------------


def entropies_of_two(functions: Any) -> Any:
    """Entropies of (q, 1 − q), then their feet under two magnifiers: α → function of q."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), width_ratios=(1.5, 1, 1))
    for ax, end in zip(axes, (1.0, 1e-2, 1e-4), strict=True):
        q = np.linspace(0, end, 401)
        by_alpha(ax, q, {alpha: entropy(q) for alpha, entropy in functions.items()})
        ax.set(xlabel="$q$", xlim=(0, end), ylim=(0, 0.75 if end == 1 else 12 * end))
        if end < 1:
            ax.set_xticks([0, end / 2, end], ["0", f"{end / 2:f}".rstrip("0"), f"{end:g}"])
            ax.set_yticks([0, 4 * end, 8 * end, 12 * end])
            ax.yaxis.set_major_formatter("{x:g}")
            ax.set_title(f"magnified {1 / end:,.0f} times", fontsize=10)
    axes[0].set(ylabel="$H_α(q, 1-q)$")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def distance_from_limit(beta: Any, printed: Any, careful: Any, first_order: Any) -> Any:
    """How far h_α(t) is from its limit at α = 1, by two formulas and to first order."""
    figure, ax = plt.subplots(figsize=(6.4, 4))
    ax.loglog(beta, printed, ".", color=VERMILION, label="as printed")
    ax.loglog(beta, careful, "-", color=BLUE, label="pyentmax")
    label = r"$β\,|\frac{1}{2}\log t - 1|$"
    ax.loglog(beta, first_order, ":", color=INK, lw=1, label=label)
    ax.set(xlabel="$β = α - 1$", ylabel="relative distance to $h_1(t)$, $t = 0.3$")
    ax.set_xlim(beta[0], beta[-1])
    ax.legend()
    return figure


def entropy_at_zero(near_zero: Any, terms: Any, t: Any, slopes: Any) -> Any:
    """A term of the entropies near zero, and its slope on a logarithmic axis: α → values."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    by_alpha(left, near_zero, terms)
    by_alpha(right, t, slopes, "semilogx")
    left.set(xlabel="$t$", ylabel="$h_α(t)$", xlim=(0, near_zero[-1]), ylim=(0, None))
    right.set(xlabel="$t$ (logarithmic)", ylabel="slope $h_α'(t)$", xlim=(1e-6, 1))
    right.legend(fontsize=9)
    return figure


def smoothing_kernels(x: Any, weights: Any) -> Any:
    """Kernels over positions: name → weights."""
    figure, ax = plt.subplots(figsize=(7, 3.6))
    styles = (("-", VERMILION), ("--", BLUE), ("-.", GREEN), (":", PURPLE))
    for (name, p), (line, colour) in zip(weights.items(), styles, strict=True):
        ax.plot(x, p, ls=line, color=colour, label=name)
    ax.set(xlabel="position $x$", ylabel="weight", xlim=(x[0], x[-1]), ylim=(0, None))
    ax.legend(fontsize=9)
    return figure


def entropy_hills(grid: Any, heights: Any, cut: Any, cuts: Any) -> Any:
    """Contours of functions over the triangle, 1 at its centre, and a cut: α → heights.

    The cut runs from the middle of the edge e₁e₂, where p₃ = 0, over the centre to e₃.
    """
    figure = plt.figure(figsize=(10, 5.2))
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1))
    levels = np.linspace(0, 1, 11)
    for ax, (alpha, height) in zip(above.subplots(1, len(heights)), heights.items(), strict=True):
        xy = simplex_xy(grid).T
        ax.tricontourf(*xy, height, levels=levels, cmap="cividis", alpha=0.55)
        labelled = levels[4:10:2] + 0.1
        ax.tricontour(*xy, height, levels=labelled, colors=INK, linewidths=0.8)
        falling = cut >= 1 / 3  # from the centre to e₃, where each line is met once
        for corner, level in enumerate(labelled[::-1]):  # a number towards each corner
            most = np.interp(-level, -cuts[alpha][falling], cut[falling])
            place = simplex_xy(np.where(np.arange(3) == (2 - corner), most, (1 - most) / 2))
            box = {"fc": "white", "ec": "none", "pad": 0.8}
            style = {"ha": "center", "va": "center", "fontsize": 8, "bbox": box, "zorder": 4}
            ax.text(*place, f"{level:.1f}", **style)
        draw_simplex(ax)
        ax.plot(*simplex_xy(np.full(3, 1 / 3)), "+", color=INK, ms=9)
        ax.plot(*simplex_xy([[0.5, 0.5, 0], [0, 0, 1]]).T, ":", color=INK, lw=1)
        ax.set_title(CURVES[alpha]["label"])
    whole, start = below.subplots(1, 2)
    by_alpha(whole, cut, cuts)
    whole.set(xlabel="$p_3$ along the dotted line", ylabel="height of the hill", xlim=(0, 1))
    whole.set_ylim(0, 1.05)
    whole.legend(fontsize=9)
    near = cut < 1.001e-3
    by_alpha(start, cut[near], {alpha: height[near] - height[0] for alpha, height in cuts.items()})
    start.set(xlabel="$p_3$, magnified 1,000 times", ylabel="what $p_3$ adds", xlim=(0, 1e-3))
    start.set_ylim(0, None)
    start.ticklabel_format(style="sci", scilimits=(0, 0))
    return figure


def tilted_hills(grid: Any, values: Any, tops: Any) -> Any:
    """Contours of functions over the triangle with a dot at the top: α → values, α → p."""
    figure, axes = plt.subplots(1, len(values), figsize=(10, 3.1))
    style = {"color": VERMILION, "mec": "white", "ms": 9, "zorder": 5, "clip_on": False}
    for ax, (alpha, value) in zip(axes, values.items(), strict=True):
        levels = value.max() + np.linspace(-1.2, 0, 13)
        filled = {"levels": levels, "cmap": "cividis", "alpha": 0.55, "extend": "min"}
        ax.tricontourf(*simplex_xy(grid).T, value, **filled)
        ax.tricontour(*simplex_xy(grid).T, value, levels=levels, colors=INK, linewidths=0.5)
        draw_simplex(ax)
        ax.plot(*simplex_xy(tops[alpha]), "o", **style)
        p = ", ".join(map(_share, tops[alpha]))
        ax.set_title(f"{CURVES[alpha]['label']}\n({p})", fontsize=10)
    return figure


# --- 3. Finding the threshold ---------------------------------------------------------------------

# How the curves of the solvers are drawn.
SOLVERS: dict[str, dict[str, Any]] = {
    "bisection": {"color": GREY, "ls": ":", "marker": "s"},
    "Newton": {"color": BLUE, "ls": "-", "marker": "o"},
    "Halley": {"color": GREEN, "ls": "--", "marker": "^"},
    "sort": {"color": VERMILION, "ls": "--", "marker": "^"},
}


def levels_of_search(x: Any, searches: Any, power: float = 1.0) -> Any:
    """The water while a solver looks for its level: name → levels, a row each, a panel a pass.

    Above a panel stands F, the sum over what stands out of the water, each part to a power.
    """
    columns = max(len(levels) for levels in searches.values())
    size = (2 * columns, 2.4 * len(searches))
    figure, axes = plt.subplots(len(searches), columns, figsize=size, sharey=True, squeeze=False)
    everything = [*x, *(level for levels in searches.values() for level in levels)]
    low, high = min(everything), max(everything)
    low, high = low - 0.2 * (high - low), high + 0.1 * (high - low)
    for (name, levels), row in zip(searches.items(), axes, strict=True):
        for number, (ax, level) in enumerate(zip(row, levels, strict=False), 1):
            draw_water(ax, x, level, low)
            total = np.sum(np.maximum(x - level, 0) ** power)
            then = "" if abs(total - 1) < 0.005 else ": raise it" if total > 1 else ": lower it"
            ax.set_title(f"$F$ = {total:.2f}{then}", fontsize=10)
            ax.set_xlabel(f"{number}. τ = {_minus(level, '.2f')}", fontsize=10)
        row[0].set_ylabel(f"{name}\n$x$")
        for ax in row[len(levels) :]:
            ax.set_visible(False)
    axes[0, 0].set_ylim(low, high)
    return figure


def sums_of_threshold(sums: Any, roots: Any) -> Any:
    """F against τ − max x, α → (τ − max x, F), with a dot at the root, α → τ − max x."""
    figure, ax = plt.subplots(figsize=(6.4, 4))
    for alpha, (tau, values) in sums.items():
        by_alpha(ax, tau, {alpha: values})
        ax.plot(roots[alpha], 1, "o", color=CURVES[alpha]["color"])
    ax.axhline(1, color=INK, lw=1)
    ax.set(xlabel="$τ - \\max x$", ylabel="$F(τ)$", ylim=(0, 3), xlim=(-1.25, 0.1))
    ax.legend()
    return figure


def one_step(tau: Any, f: Any, start: Any, lands: Any, root: float) -> Any:
    """f near its root, and one step of Newton's and of Halley's method from `start`.

    `start` is τ with f, f′ and f″ there; `lands` says where each method arrives.
    """
    figure, ax = plt.subplots(figsize=(6.4, 3.8))
    ax.plot(tau, f, color=INK, label="$F - 1$")
    at, f0, f1, f2 = start
    names = {"Newton": "Newton's tangent", "Halley": "Halley's hyperbola"}
    for name, end in lands.items():
        t = np.linspace(at, end, 100)
        bend = 0.0 if name == "Newton" else f2 / (2 * f1)
        style = {key: SOLVERS[name][key] for key in ("color", "ls")}
        ax.plot(t, f0 + f1 * (t - at) / (1 - bend * (t - at)), label=names[name], **style)
        ax.plot(end, 0, "o", color=style["color"], ms=7, zorder=4)
    ax.plot(root, 0, "o", color=INK, ms=7, zorder=4)
    ax.axhline(0, color=INK, lw=1)
    ax.set(xlabel="$τ$", ylabel="$F(τ) - 1$", xlim=(tau[0], tau[-1]))
    ax.legend()
    return figure


def passes_by_digits(digits: Any, means: Any) -> Any:
    """Passes until τ has so many right digits: α → solver → passes."""
    figure, axes = plt.subplots(1, len(means), figsize=(9, 3.8), sharey=True)
    for ax, (alpha, counts) in zip(axes, means.items(), strict=True):
        for name, passes in counts.items():
            ax.plot(digits, passes, ms=4, label=name, **SOLVERS[name])
        ax.set(title=f"α = {alpha}", xlabel="correct digits of $τ$")
    axes[0].set(ylabel="passes (mean of rows)", ylim=(0, None))
    axes[0].legend()
    return figure


def passes_until_sure(exponents: Any, counted: Any) -> Any:
    """Passes until the support is certain against the k of δ = 2^−k: solver → passes."""
    figure, ax = plt.subplots(figsize=(6.4, 3.8))
    for name, passes in counted.items():
        ax.plot(exponents, passes, ms=5, label=name, **SOLVERS[name])
    ax.set(xlabel="$k$, where $δ = 2^{-k}$", ylabel="passes until the support is certain")
    ax.legend()
    return figure


def steep_at_threshold(steps: Any, rounded: Any, ours: Any, sizes: Any, gains: Any) -> Any:
    """p next to the threshold by two routes, and what the next float does to a p: α → gains."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    left.plot(steps, rounded, ".", color=VERMILION, ms=5, label="by a rounded τ")
    left.plot(steps, ours, color=BLUE, label="by the largest p")
    passed = "float32 values past the threshold (every 1000th)"
    left.set(xlabel=passed, ylabel="$p_3$ of $(0, 0, t)$, α = 4")
    left.legend()
    by_alpha(right, sizes, gains, "loglog", marker=".")
    right.set(xlabel="number $d$ of equal scores 1", ylabel="relative change of its $p$")
    right.legend()
    return figure


# --- 4. Jacobians ---------------------------------------------------------------------------------


def slack_of_a_choice(scores: Any, level: float, raised: Any, probabilities: Any) -> Any:
    """Scores that stand above a level, the slack of the last, and what raising it does."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8))
    colours, places = [BLUE, VERMILION, GREEN, ORANGE, INK], np.arange(1, len(scores) + 1)
    above = np.maximum(scores - level, 0)
    left.bar(places, above, bottom=level, color=colours, width=0.6, alpha=0.85)
    left.hlines(scores, places - 0.3, places + 0.3, color=colours, lw=2.5)
    left.axhline(level, color=INK, ls="--", lw=1.2)
    left.text(0.45, level - 0.05, "level $τ_z$", va="top", color=INK)
    last = places[-1], scores[-1]
    left.annotate("", (last[0], level), last, arrowprops={"arrowstyle": "<->", "color": INK})
    left.text(last[0] - 0.12, (level + last[1]) / 2, "slack $μ_5$", ha="right", va="center")
    left.set(ylabel="score", xlim=(0.4, len(scores) + 0.6), ylim=(-1.45, 1.05))
    left.set_xticks(places, [f"$z_{i}$" for i in places])
    for i, (colour, dashes) in enumerate(zip(colours, DASHES, strict=False)):
        values = probabilities[:, i]
        right.plot(raised, values, color=colour, ls=dashes)
        at = (raised[-1] - 0.42, values[-1]) if i == 4 else (raised[0], values[0] + 0.012)
        right.text(*at, f"$p_{i + 1}$", color=colour, va="bottom")
    right.axvline(level, color=INK, ls="--", lw=1.2)
    right.text(level - 0.06, 0.72, "$z_5$ has slack", ha="right", va="center", color=INK)
    right.set(xlabel="fifth score, the others fixed", ylabel="probabilities", ylim=(-0.01, 0.82))
    return figure


def measured_jacobians(jacobians: Any, probabilities: Any) -> Any:
    """Jacobians as tables, α → J, with the p of each row next to it: α → p."""
    figure, axes = plt.subplots(
        -(-len(jacobians) // 2), 2, figsize=(PAGE, 3.1 * len(jacobians) / 2)
    )
    for ax, (alpha, jacobian) in zip(axes.flat, jacobians.items(), strict=True):
        names = [f"$z_{j}$" for j in range(1, len(jacobian) + 1)]
        rows = [f"$p_{i}$ = {_share(q)}" for i, q in enumerate(probabilities[alpha], 1)]
        draw_matrix(ax, jacobian, names, 0.67, rows)
        ax.set_title(CURVES[alpha]["label"], fontsize=10)
    return figure


def errors_by_step(steps: Any, errors: Any, reference: float) -> Any:
    """The errors of central differences against their step, and that of check_jacobian."""
    figure, ax = plt.subplots(figsize=(6.4, 3.9))
    ax.loglog(steps, errors, ".-", color=BLUE, label="central difference")
    ax.loglog(steps, steps**2 / 6, ":", color=GREY, label="$h^2/6$")
    ax.loglog(steps, 1.1e-16 / steps, "--", color=GREY, lw=1.2, label="$ε/h$")
    ax.axhline(reference, color=VERMILION, lw=1.4, label="check_jacobian")
    ax.set(xlabel="step $h$", ylabel="largest error of $J$", ylim=(1e-15, 1))
    ax.legend(fontsize=9)
    return figure


def entry_of_a_choice(t: Any, probabilities: Any, slopes: Any) -> Any:
    """A third probability and its slope while its score t rises: α → values."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    by_alpha(left, t, probabilities)
    by_alpha(right, t, slopes)
    left.set(xlabel="$t$", ylabel="$p_3$ of $z = (0, 0, t)$")
    right.set(xlabel="$t$", ylabel=r"$\partial p_3/\partial t$", ylim=(-0.02, 1.2))
    highest = max(slope.max() for slope in slopes.values())
    right.annotate(f"up to {highest:.0f}", (-0.04, 1.1), (-0.12, 1.1), ha="right", va="center")
    for ax in (left, right):
        ax.set_xticks([-1.5, -1, -0.5, 0])
    left.legend(fontsize=9)
    return figure


# --- 5. Fenchel-Young losses ----------------------------------------------------------------------


def gaps_to_target(share: Any, hills: Any) -> Any:
    """Hills over p₁ with their tops, and the gap to their right end: (α, lead) → heights, top."""
    names = {1.0: "softmax", 2.0: "sparsemax"}
    figure, axes = plt.subplots(1, len(hills), figsize=(10, 3.5))
    for ax, ((alpha, lead), (heights, top)) in zip(axes, hills.items(), strict=True):
        colour, highest = CURVES[alpha]["color"], np.interp(top, share, heights)
        gap = highest - heights[-1]
        ax.plot(share, heights, color=colour)
        ax.plot(top, highest, "o", color=INK, ms=7, clip_on=False, zorder=5)
        ax.plot(1, heights[-1], "s", color=INK, ms=7, clip_on=False, zorder=5, mfc="white")
        ax.plot([top, 1.09], [highest, highest], color=INK, lw=1, ls=":", clip_on=False)
        ax.plot([1, 1.09], [heights[-1]] * 2, color=INK, lw=1, ls=":", clip_on=False)
        if gap > 1e-9:
            ends = (1.07, heights[-1]), (1.07, highest)
            style = {"arrowstyle": "<->", "color": INK, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", *ends, arrowprops=style, annotation_clip=False)
        ax.text(1.11, (highest + heights[-1]) / 2, f"loss\n{gap:.2f}", va="center", clip_on=False)
        ax.set(title=f"{names[alpha]}, $t$ = {lead}", xlabel="$p_1$", xlim=(0, 1.0))
        ax.set(ylim=(min(heights) - 0.05, highest + 0.12))
    axes[0].set_ylabel(r"$p^\top z - Ω(p)$")
    return figure


def losses_of_two(t: Any, losses: Any, perceptron: Any) -> Any:
    """Losses of two choices against the lead t of the gold score, a dot at each margin."""
    figure, ax = plt.subplots(figsize=(6.4, 4))
    by_alpha(ax, t, losses)
    for alpha in losses:
        if alpha > 1:
            style = {"color": CURVES[alpha]["color"], "clip_on": False, "zorder": 5}
            ax.plot(1 / (alpha - 1), 0, "o", ms=6, **style)
    ax.plot(t, perceptron, color=GREY, lw=1, label="α = ∞")
    ax.set(xlabel="$t = z_y - z_{other}$", ylabel="loss", ylim=(0, 4), xlim=(-4, 5))
    ax.legend()
    return figure


def sets_of_species(xs: Any, ys: Any, supports: Any, best: Any, flowers: Any, names: Any) -> Any:
    """Which of three species a classifier finds possible where: α → support, α → best class.

    One species has a strong colour, a set of two is hatched, and both are labelled where they are.
    """
    points, labels = flowers
    shades = ("#8CC4E8", "#F5C96B", "#7FD1B5")
    figure, axes = plt.subplots(1, len(supports), figsize=(10, 4.8), sharey=True)
    apart = np.abs(points[:, None, None] - np.stack([xs, ys], axis=-1)) / (0.45, 0.2)
    occupied = (apart < 1).all(axis=-1).any(axis=0)
    occupied |= (np.abs(xs) > 1.75) | (np.abs(ys) > 1.8)  # so that a text is not cut off
    for ax, (alpha, support) in zip(axes, supports.items(), strict=True):
        size = support.sum(axis=-1)
        regions = [(support[..., k] & (size == 1), names[k], shades[k], None) for k in range(3)]
        for i, j in ((0, 1), (0, 2), (1, 2)):
            pair = support[..., i] & support[..., j] & (size == 2)
            regions.append((pair, f"{names[i]} or {names[j]}", "#F4F5F7", "///"))
        for region, text, colour, hatch in regions:
            if not region.any():
                continue
            style = {"colors": [colour], "hatches": [hatch]}
            ax.contourf(xs, ys, region, levels=[0.5, 1.5], **style).set_edgecolor(RULE)
            if region.mean() > 0.02:
                at = _middle(region & ~occupied)
                box = {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1.5}
                style = {"ha": "center", "va": "center", "fontsize": 9, "bbox": box, "zorder": 6}
                ax.text(xs[at], ys[at], text.replace(" or ", " or\n"), color=INK, **style)
        ax.contour(xs, ys, best[alpha], levels=[0.5, 1.5], colors=INK, linewidths=1, linestyles=":")
        for k, (marker, colour) in enumerate(zip("os^", (BLUE, "#B97900", GREEN), strict=True)):
            style = {"ms": 5, "mec": "white", "mew": 0.5, "color": colour, "ls": "none"}
            ax.plot(*points[labels == k].T, marker, **style)
        ax.set_title(f"{CURVES[alpha]['label']}: {np.mean(size > 1):.0%} undecided")
        ax.set_xlabel("petal length (standardised)")
        ax.grid(visible=False)
    axes[0].set_ylabel("petal width (standardised)")
    return figure


def _middle(region: Any) -> Any:
    """The place of a grid that is deepest inside a region, and not at its edge: (row, column)."""
    inside = np.pad(region, 1)
    depth = np.zeros(inside.shape)
    while inside.any():
        depth += inside
        row = inside[1:-1, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
        inside = np.pad(row & inside[:-2, 1:-1] & inside[2:, 1:-1], 1)
    return np.unravel_index(np.argmax(depth[1:-1, 1:-1]), region.shape)


def descent(norms: Any, pulling: Any) -> Any:
    """The norm of the weights and how many examples pull, by update: α → values."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.7))
    updates = np.arange(1, len(next(iter(norms.values()))) + 1)
    by_alpha(left, updates, norms, "semilogx")
    by_alpha(right, updates, pulling, "loglog")
    left.set(xlabel="update", ylabel="$\\|W\\|$", ylim=(0, None))
    right.set(xlabel="update", ylabel="examples with a gradient", ylim=(1, 130))
    left.legend()
    return figure


# --- 6. Learning α --------------------------------------------------------------------------------

DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1))]


def paths_in_alpha(scores: Any, alphas: Any, paths: Any, slopes: Any) -> Any:
    """Probabilities of fixed scores against α, and their slopes: arrays (α, choice)."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    for i, colour in enumerate([BLUE, VERMILION, GREEN, ORANGE, INK]):
        label = f"$z_{i + 1}$ = {scores[i]}".replace("-", "−")
        left.plot(alphas, paths[:, i], color=colour, ls=DASHES[i], label=label)
        right.plot(alphas, slopes[:, i], color=colour, ls=DASHES[i])
    left.set(xlabel="$α$", ylabel="$p_i$", ylim=(0, 1))
    right.set(xlabel="$α$", ylabel=r"$\partial p_i/\partial α$")
    figure.legend(loc="outside lower center", ncols=5, fontsize=9)
    return figure


def errors_of_slopes(betas: Any, errors: Any) -> Any:
    """Relative errors of ∂p/∂α against β: three formulas → errors, the printed one first."""
    figure, ax = plt.subplots(figsize=(6.4, 4))
    styles = [(".", VERMILION), ("-", BLUE), ("--", GREEN)]
    for (name, error), (line, colour) in zip(errors.items(), styles, strict=True):
        ax.loglog(betas, np.maximum(error, 1e-17), line, color=colour, label=name)
    ax.loglog(betas, 1.1e-16 / betas**2, ":", color=INK, lw=1, label="$ε/β^2$")
    ax.axhline(1, color=INK, lw=0.8)
    ax.set(xlabel="$β = α - 1$", ylabel="relative error of $∂p/∂α$", ylim=(1e-17, 1e14))
    ax.legend()
    return figure


def recovered_alphas(paths: Any) -> Any:
    """α against updates: three hidden values → the paths of some students."""
    figure, ax = plt.subplots(figsize=(6.4, 3.8))
    styles = ((GREEN, "-."), (BLUE, "-"), (VERMILION, "--"))
    for (hidden, students), (colour, line) in zip(paths.items(), styles, strict=True):
        for path in students:
            ax.plot(path, color=colour, ls=line, lw=1.5)
        style = {"textcoords": "offset points", "ha": "right", "va": "bottom", "color": colour}
        ax.annotate(f"hidden α = {hidden}", (len(path), hidden), xytext=(-4, 4), **style)
    ax.set(xlabel="update", ylabel="α", ylim=(1, 2), xlim=(0, len(path)))
    return figure


def two_heads(alphas: Any, sizes: Any) -> Any:
    """α and the size of the support against updates: head → values."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.7))
    for name, colour, line in zip(alphas, (BLUE, VERMILION), ("-", "--"), strict=True):
        left.plot(alphas[name], color=colour, ls=line, label=name)
        right.plot(sizes[name], color=colour, ls=line, label=name)
    left.set(xlabel="update", ylabel="α", ylim=(1, 2))
    right.set(xlabel="update", ylabel="mean size of the support", ylim=(0, 8.2))
    left.legend(loc="center right")
    return figure


def five_in_one(scores: Any, rows: Any, jacobian: Any) -> Any:
    """The five scores of notebooks 1 to 6, by notebook: what a row is and its numbers; and J."""
    figure, axes = plt.subplots(2, 3, figsize=(PAGE, 4.6), layout="constrained")
    places, names = np.arange(1, 6), [_short(score) for score in scores]
    for number, ax in enumerate(axes.flat, 1):
        what, values = rows[number]
        if number == 3:
            draw_water(ax, scores, scores[0] - 2 * values[0], -1.3)  # x = z/2
            what = "scores, and the level $τ_z$"
        elif number == 4:
            draw_matrix(ax, jacobian, names, 0.67, names)
            what = "Jacobian"
        else:
            ax.bar(places, values, 0.7, color=np.where(values < 0, VERMILION, BLUE))
            ax.axhline(0, color=INK, lw=0.8)
            ax.set_xticks(places, names, fontsize=9)
        ax.set_title(f"{number}. {what}", fontsize=9)
    return figure


def falls_and_returns(learned: Any, held: Any, degrees: Any, slopes: Any) -> Any:
    """α and the angle of the query against updates, and the slope of the loss in α by angle.

    ``learned`` has a pair (α, angle) for each first query, ``held`` the α of a query held wrong and
    of one held right; ``slopes`` belong to fixed queries at ``degrees``.
    """
    figure = plt.figure(figsize=(10, 5))
    grid = figure.add_gridspec(2, 2, width_ratios=(1.5, 1))
    top, bottom = (figure.add_subplot(grid[i, 0]) for i in range(2))
    right = figure.add_subplot(grid[:, 1])
    for alphas, text in zip(held, ("query held wrong", "query held right"), strict=True):
        top.plot(alphas, color=GREY, lw=1.3, ls=":")
        style = {"color": GREY, "fontsize": 9, "ha": "right", "va": "bottom"}
        top.text(len(alphas), alphas[-1] + 0.02, text, **style)
    for (alphas, off), colour, line in zip(learned, (BLUE, VERMILION, GREEN), DASHES, strict=False):
        turn = int(np.argmin(alphas))
        label = f"first {off[0]:.0f}° off"
        for ax, values in ((top, alphas), (bottom, off)):
            ax.plot(values, color=colour, ls=line, label=label)
            ax.plot(turn, values[turn], "o", color=colour, ms=6, mec="white", zorder=5)
    top.set(ylabel="α", ylim=(0.96, 2.14))
    top.tick_params(labelbottom=False)
    bottom.set(xlabel="update", ylabel="degrees off", yticks=[0, 45, 90, 135])
    bottom.legend(fontsize=9)
    right.axhline(0, color=INK, lw=1)
    right.plot(degrees, slopes, color=INK)
    slopes = np.asarray(slopes)
    for where, colour, text, at in (
        (slopes > 0, BLUE, "α falls", (112, 0.1)),
        (slopes <= 0, VERMILION, "α rises", (46, -0.08)),
    ):
        right.fill_between(
            degrees, slopes, 0, where=where, interpolate=True, color=colour, alpha=0.25
        )
        right.text(*at, text, color=colour, ha="center", va="center")
    right.set(xlabel="query, degrees off", ylabel="slope of the loss in α", xlim=(180, 0))
    right.set_xticks([180, 135, 90, 45, 0])
    return figure


# --- 7a. Structure --------------------------------------------------------------------------------


def attention_bars(words: Any, attention: Any) -> Any:
    """Attention over words as bars, a panel per mapping: name → p."""
    figure, axes = plt.subplots(3, 1, figsize=(6.4, 6.2), sharey=True)
    for ax, (name, p), colour in zip(axes, attention.items(), (GREY, BLUE, ORANGE), strict=True):
        ax.bar(words, p, color=colour, edgecolor=INK, linewidth=0.6)
        for i, q in enumerate(p):
            ax.text(i, q + 0.02, f"{q:.2f}" if q else "0", ha="center", va="bottom", fontsize=9)
        ax.set(title=name, ylim=(0, 0.68), ylabel="$p$")
        ax.grid(axis="x", visible=False)
    return figure


def taut_string(z: Any, u: Any, strength: float, bends: Any) -> Any:
    """The running sums of z in their tube and the string, and below z and the string's slopes.

    Both sums are drawn less their common slope, which only wastes paper.
    """
    n = len(z)
    k = np.arange(n + 1)
    Z, U = (np.append(0, np.cumsum(x)) for x in (z, u))
    Z, U = Z - Z[-1] / n * k, U - Z[-1] / n * k
    radius = np.where((k == 0) | (k == n), 0, strength)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(6.4, 6.2))
    top.fill_between(k, Z - radius, Z + radius, color=PALE, label="tube of radius λ")
    top.plot(k, Z, ":", color=GREY, lw=1.5, label="$Z$, the running sums of $z$")
    top.plot(k, U, "-", color=VERMILION, label="$U$, the taut string")
    top.plot(bends, U[bends], "o", color=VERMILION, ms=5)
    top.set(xlabel="$k$", ylabel="less the common slope", xlim=(-0.3, n + 0.3))
    bottom.plot(k[1:], z, ".", color=GREY, ms=8, label="$z$")
    bottom.step(k[1:], u, where="mid", color=VERMILION, label="$u$ = slopes of the string")
    bottom.set(xlabel="$j$", ylabel="score", xlim=(-0.3, n + 0.3))
    for ax, columns in ((top, 3), (bottom, 2)):
        ax.legend(fontsize=9, ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def chain_slopes(x: Any, slopes: Any, strength: float, reach: Any, u: Any) -> Any:
    """The polylines f₁, f₂, … of Johnson's method, with the l and h of ``reach`` and the last u."""
    figure, axes = plt.subplots(1, len(slopes), figsize=(9, 3.3), sharey=True)
    for j, (ax, f) in enumerate(zip(axes, slopes, strict=True)):
        ax.axhspan(-strength, strength, color=PALE, lw=0)
        last = j == len(slopes) - 1
        dots, level = ([u[-1]], [0.0]) if last else (reach[j], [-strength, strength])
        names = [f"$u_{j + 1}$"] if last else [f"$l_{j + 1}$", f"$h_{j + 1}$"]
        inside = np.ones_like(x, bool) if last else (x >= dots[0]) & (x <= dots[1])
        ax.plot(x, f, ls=(0, (2, 2)), lw=1.2, color=GREY)
        ax.plot(x, np.where(inside, f, np.nan), color=BLUE)
        ax.plot(dots, level, "o", color=VERMILION, ms=6, zorder=5)
        for name, at, height in zip(names, dots, level, strict=True):
            place = {"xytext": (7, -14), "textcoords": "offset points", "fontsize": 9}
            ax.annotate(f"{name} = {at:.2f}", (at, height), **place)
        ax.axhline(0, color=INK, lw=0.8)
        ax.set(title=f"$f_{j + 1}$", xlabel="$x$", ylim=(-0.75, 0.75), xlim=(x[0], x[-1]))
    axes[0].set_ylabel("slope; the band is ±λ")
    return figure


def _groups(p: Any) -> list[tuple[int, ...]]:
    """The entries above zero by their value, equal ones together."""
    found: dict[float, list[int]] = {}
    for i in np.flatnonzero(p > 0):
        found.setdefault(round(float(p[i]), 9), []).append(int(i))
    return [tuple(members) for members in found.values()]


def strength_paths(words: Any, strengths: Any, paths: Any) -> Any:
    """Probabilities of words against λ, a panel per mapping: name → array (λ, word).

    Words with one weight are a thick line that bears their names.
    """
    figure, axes = plt.subplots(2, 1, figsize=(7.4, 7))
    colours = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, GREY]
    for ax, (name, path) in zip(axes, paths.items(), strict=True):
        steps = strengths[name]
        where: dict[tuple[int, ...], list[int]] = {}
        for k, p in enumerate(path):
            for members in _groups(p):
                where.setdefault(members, []).append(k)
        for members, at in where.items():
            if len(at) < 4:  # curves that cross
                continue
            one = len(members) == 1
            line = path[at[0] : min(at[-1] + 2, len(path)), members[0]]
            span = steps[at[0] : at[0] + len(line)]
            ax.plot(span, line, lw=2 if one else 4.5, color=colours[members[0]] if one else INK)
            middle = len(line) // 2
            label = "all" if len(members) == len(words) else " = ".join(words[i] for i in members)
            rises = line[-1] > line[0] + 1e-9
            place: Any = {"xytext": (7, -13) if rises else (5, 6), "textcoords": "offset points"}
            if rises and line[middle] < 0.04:  # below it the axis has its numbers
                place |= {"xytext": (-6, 6), "ha": "right"}
            ax.annotate(label, (span[middle], line[middle]), fontsize=10, **place)
        left_out = [word for word, p in zip(words, path[1], strict=True) if p == 0]
        ax.annotate(", ".join(left_out) + ": 0", (steps[4], 0.008), fontsize=9, color=GREY)
        ax.set(title=name, xlabel="strength λ", ylabel="$p$", ylim=(-0.02, 0.62))
    return figure


def jacobian_tables(jacobians: Any, names: Any) -> Any:
    """Jacobians as coloured tables side by side: title → J."""
    figure, axes = plt.subplots(1, len(jacobians), figsize=(8.4, 3.2))
    for ax, (title, jacobian) in zip(axes, jacobians.items(), strict=True):
        draw_matrix(ax, jacobian, names, 0.8)
        ax.set_title(title, fontsize=11)
    return figure


# --- 7b. Constraints ------------------------------------------------------------------------------


def clipped_water(z: Any, u: Any, levels: Any, parts: Any, dense: Any) -> Any:
    """Scores in water whose parts above it may not exceed u, and softmax with the same bounds.

    ``levels`` and ``parts`` are τ and p of two mappings by name, the first without bounds;
    ``dense`` are softmax's p and csoftmax's.
    """
    figure, axes = plt.subplots(1, 3, figsize=(9.4, 3.6))
    places = np.arange(1, len(z) + 1)
    bound = {"color": VERMILION, "lw": 2.4, "zorder": 4}
    told = {"textcoords": "offset points", "ha": "center", "fontsize": 10}
    for number, (ax, (name, tau)) in enumerate(zip(axes, levels.items(), strict=False)):
        draw_water(ax, z, tau, 0.0, cap=u if number else np.inf)
        if number:
            ax.hlines(tau + u, places - 0.4, places + 0.4, **bound)
        tops = np.maximum(z, tau + u if number else tau)
        for place, top, share in zip(places, tops, parts[name], strict=True):
            ax.annotate(f"$p$ = {share:.1f}" if share else "0", (place, top), (0, 6), **told)
        title = f"{name}, level τ = {_minus(tau, '.1f')}"
        ax.set(title=title, ylim=(0, 1.45), xlabel="score $z$", ylabel="" if number else "height")
    softmax, bounded = dense
    axes[2].bar(places, bounded, 0.7, color=BLUE)
    axes[2].bar(places, softmax, 0.7, facecolor="none", edgecolor=INK, lw=1, ls="--")
    axes[2].hlines(u, places - 0.4, places + 0.4, **bound)
    for place, now, before in zip(places, bounded, softmax, strict=True):
        axes[2].annotate(f"$p$ = {now:.2f}", (place, max(now, before)), (0, 5), **told)
    axes[2].set(title="csoftmax, no level", ylabel="$p$", xlabel="score $z$", ylim=(0, 0.72))
    axes[2].set_xticks(places, [_minus(score) for score in z], fontsize=9)
    axes[2].grid(visible=False)
    return figure


def fertility(columns: Any, source: Any, target: Any, allowed: Any) -> Any:
    """Attention over three words step by step, a column per mapping, its total in the last row.

    ``columns`` holds for each name the pairs (p, bounds) of the steps; ``allowed(bounds)`` gives
    the corners of what bounds leave of the simplex.
    """
    ratios = {"height_ratios": (1, 1, 1, 1.2)}
    figure, axes = plt.subplots(4, 4, figsize=(8.6, 6.4), gridspec_kw=ratios)
    figure.get_layout_engine().set(h_pad=0.01, hspace=0)
    for column, (name, steps) in zip(axes.T, columns.items(), strict=True):
        column[0].set_title(name, fontsize=12)
        for ax, (p, bounds) in zip(column, steps, strict=False):
            [part] = ax.fill(*allowed(bounds).T, color=PALE, ec=BLUE, lw=2)
            draw_simplex(ax, [word[0] for word in source], distance=0.13)
            [dot] = ax.plot(*simplex_xy(p), "o", color=VERMILION, ms=9, mec=INK, zorder=5)
            ax.text(0.5, -0.2, " ".join(f"{q:.2f}" for q in p), ha="center", fontsize=9)
            ax.set(xlim=(-0.2, 1.2), ylim=(-0.24, 1.06))
        total = np.sum([p for p, _ in steps], axis=0)
        colours = [GREY if t <= 1 + 1e-9 else VERMILION for t in total]
        column[3].bar([word[0] for word in source], total, color=colours)
        line = column[3].axhline(1, color=BLUE, lw=1.5)
        column[3].set(ylim=(0, 1.65), yticks=[0, 0.5, 1, 1.5])
        column[3].grid(axis="x", visible=False)
        for i, t in enumerate(total):
            column[3].text(i, t + 0.03, f"{t:.2f}", ha="center", va="bottom", fontsize=9)
    axes[3, 0].set_ylabel("attention in all")
    for row, word in zip(axes, target, strict=False):
        row[0].text(-0.3, 0.4, word, rotation=90, va="center", ha="center", fontsize=11)
    names = ["attention p", "what the bounds allow", "fertility"]
    figure.legend([dot, part, line], names, loc="outside lower center", ncols=3)
    return figure


def third_of_three(t: Any, curves: Any) -> Any:
    """p₃ of (1, 0.5, t) against t for three mappings: name → p₃; NaN breaks a curve."""
    figure, ax = plt.subplots(figsize=(6.4, 3.8))
    styles = (("-", INK), ("-.", BLUE), ("--", VERMILION))
    for (name, p), (line, colour) in zip(curves.items(), styles, strict=True):
        ax.plot(t, p, line, color=colour, label=name)
    ax.set(xlabel="$t$", ylabel="$p_3$ of $z = (1, 0.5, t)$")
    ax.legend()
    return figure


def budget_levels(tau: Any, mass: Any, bends: Any, readings: Any) -> Any:
    """What is handed out against the threshold τ.

    ``bends`` are the τ and mass where the polyline bends; ``readings`` tells τ and p by budget.
    """
    figure, ax = plt.subplots(figsize=(6.4, 4))
    ax.plot(tau, mass, color=BLUE)
    ax.plot(*bends, "o", color=BLUE, ms=4)
    for k, (threshold, p) in readings.items():
        ax.plot([tau[0], threshold, threshold], [k, k, 0], ":", color=GREY, lw=1.4)
        text = f"k = {k}:  p = ({', '.join(f'{q:.2f}' for q in p)})"
        place = {"xytext": (8, 4), "textcoords": "offset points"}
        ax.annotate(text, (threshold, k), fontsize=9, **place)
    ax.set(xlabel="$τ$", ylabel=r"$\sum_i\,\mathrm{clip}(z_i - τ, 0, 1)$")
    ax.set(xlim=(tau[0], 2.6), ylim=(0, 4.2))
    return figure


# --- 7c. Sorting and structure --------------------------------------------------------------------


def ranks_in_the_plane(corners: Any, path: Any, marked: Any) -> Any:
    """The hexagon of the orders of three, a path of points in it, and some named by ε."""
    plane = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    figure, ax = plt.subplots(figsize=(6.6, 5.2))
    xy = np.array(corners) @ plane.T
    around = np.argsort(np.arctan2(*(xy - xy.mean(axis=0)).T))
    ax.fill(*xy[around].T, facecolor=PALE, edgecolor=INK, lw=1.2)
    for corner, (x, y) in zip(corners, xy, strict=True):
        ax.text(1.2 * x, 1.14 * y, "({}, {}, {})".format(*corner), ha="center", va="center")
    ax.plot(*(path @ plane.T).T, color=BLUE)
    for strength, p in marked.items():
        x, y = p @ plane.T
        ax.plot(x, y, "o", color=VERMILION)
        place = {"xytext": (-10, -4), "ha": "right"}
        if y > 1.1:  # on the edge
            place = {"xytext": (10, -5)} if x > 0.5 else {"xytext": (2, -18), "ha": "center"}
        ax.annotate(f"ε = {strength:g}", (x, y), textcoords="offset points", **place)
    ax.set(xlim=(-2.1, 2.1), ylim=(-1.9, 1.9), aspect="equal")
    ax.set_axis_off()
    return figure


def active_sets(corners: Any, point: Any, steps: Any) -> Any:
    """Steps of an active set in the plane: (active corners, weights, the corner to add or None)."""
    rows = (len(steps) + 1) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(9, 3.1 * rows), squeeze=False)
    for ax in axes.flat[len(steps) :]:
        ax.set_axis_off()
    for number, (ax, (active, p, best)) in enumerate(zip(axes.flat, steps, strict=False), 1):
        ax.fill(*corners.T, facecolor=PALE, edgecolor=INK, lw=1.2)
        ax.plot(*corners.T, "o", color=INK, mfc="white", ms=7)
        for corner in corners:
            outwards = corner - corners.mean(axis=0)
            away = (24, 14) * outwards / np.linalg.norm(outwards)
            text = "({:g}, {:g})".format(*corner)
            style = {"ha": "center", "va": "center", "fontsize": 8, "color": GREY}
            ax.annotate(text, corner, away, textcoords="offset points", **style)
        ax.plot(*active.T, "o-", color=BLUE, ms=13)
        mean = p @ active
        ax.plot(*np.stack([mean, point]).T, ":", color=GREY, lw=1.4)
        ax.plot(*mean, "x", color=VERMILION, ms=8, mew=2.5)
        ax.plot(*point, "s", color=INK, ms=6)
        ax.annotate("z", point, (-13, -5), textcoords="offset points")
        if best is not None:
            style = {"arrowstyle": "-|>", "color": VERMILION, "lw": 1.6, "shrinkA": 6, "shrinkB": 6}
            ax.annotate("", best, mean, arrowprops=style)
        elif len(active) == 2:  # the right angle between z − μ and the edge
            sides = np.stack([active[1] - active[0], point - mean])
            edge, down = 0.08 * sides / np.linalg.norm(sides, axis=1, keepdims=True)
            ax.plot(*np.stack([mean + edge, mean + edge + down, mean + down]).T, color=INK, lw=1.2)
        ax.set_title(f"step {number}", fontsize=11)
        ax.set(aspect="equal", xlim=(-0.55, 3.2), ylim=(-0.3, 2.6))
        ax.set_axis_off()
    return figure


# --- 8. Autograd from nothing ---------------------------------------------------------------------


def block(ax: Any, x: float, y: float, text: str, **style: Any) -> Any:
    """A box of a diagram around (x, y), which `arrow` joins to others."""
    style = {"width": 1.6, "height": 0.62, "fc": PALE, "ec": BLUE, "size": 10.5} | style
    width, height, size = (style.pop(name) for name in ("width", "height", "size"))
    corner = (x - width / 2, y - height / 2)
    box = FancyBboxPatch(corner, width, height, "round,pad=0.06", zorder=3, lw=1.3, **style)
    ax.add_patch(box)
    ax.text(x, y, text, ha="center", va="center", fontsize=size, color=INK, zorder=4)
    return box


def arrow(ax: Any, start: Any, end: Any, bend: float = 0.0, **style: Any) -> None:
    """An arrow between two boxes or points, from edge to edge."""
    style = {"arrowstyle": "-|>", "color": EDGE, "lw": 1.7, "shrinkA": 0, "shrinkB": 0} | style
    if bend:
        style["connectionstyle"] = f"arc3,rad={bend}"
    ends = []
    for patch, place in (("patchA", start), ("patchB", end)):
        if isinstance(place, tuple):
            ends.append(place)
            continue
        style[patch] = place
        ends.append((place.get_x() + place.get_width() / 2, place.get_y() + place.get_height() / 2))
    ax.annotate("", ends[1], ends[0], arrowprops=style, zorder=2)


def canvas(width: float, height: float, x: Any, y: Any) -> Any:
    """A figure and axes for a diagram, without ticks."""
    figure, ax = plt.subplots(figsize=(width, height))
    ax.set(xlim=x, ylim=y)
    ax.set_axis_off()
    return figure, ax


def tape_graph(boxes: Any, order: Any) -> Any:
    """The tape as a graph: name → (Var, x, y), and the values in the order of the sweep."""
    figure, ax = canvas(8, 4.6, (-1.1, 8.1), (-0.75, 4.35))
    turn = {id(var): number for number, var in enumerate(order, 1)}
    drawn = {}
    for name, (var, x, y) in boxes.items():
        symbol = name.partition(" ")[0]
        text = f"{name}\nvalue {float(var.value):g}\n∂L/∂{symbol} = {float(var.gradient):g}"
        colour = PALE if var.parents else "white"
        drawn[id(var)] = block(ax, x, y, text.replace("-", "−"), width=1.7, height=1, fc=colour)
        mark = {"boxstyle": "circle,pad=0.22", "fc": VERMILION, "ec": "white"}
        place = x + 0.86, y + 0.52
        style = {"ha": "center", "va": "center", "fontsize": 10, "color": "white", "zorder": 5}
        ax.text(*place, str(turn[id(var)]), bbox=mark, **style)
    for var, _, _ in boxes.values():
        for parent, _ in var.parents:
            arrow(ax, drawn[id(parent)], drawn[id(var)])
    return figure


def keys_and_queries(keys: Any, values: Any, panels: Any) -> Any:
    """Keys in the plane, as thick as the attention that they get: title → (query, attention)."""
    figure, axes = plt.subplots(1, len(panels), figsize=(8.6, 4.2))
    for ax, (title, (query, p)) in zip(axes, panels.items(), strict=True):
        for (x, y), value, share in zip(keys, values, p, strict=True):
            style = {"color": BLUE if share else GREY, "lw": 1 + 5 * share}
            arrow(ax, (0.0, 0.0), (float(x), float(y)), **style)
            percent = "<1%" if 0 < share < 0.005 else f"{share:.0%}"
            label = f"{value:.1f}".replace("-", "−") + (f"\n({percent})" if share else "")
            place = np.array([x, y]) + 0.3 * np.array([x, y]) / np.hypot(x, y)
            ax.text(*place, label, ha="center", va="center", fontsize=9.5)
        reach = 1.25 * np.abs(keys).max()
        tip = reach * np.array(query) / np.hypot(*query)
        arrow(ax, (0.0, 0.0), (float(tip[0]), float(tip[1])), color=VERMILION, lw=1.6, ls="--")
        ax.text(*(1.08 * tip), "$q$", color=VERMILION, ha="center", va="center", fontsize=13)
        low = keys[:, 1].min() - 0.7
        ax.set(xlim=(-1.1 * reach, 1.2 * reach), ylim=(low, 1.2 * reach), aspect="equal")
        ax.set_title(title)
        ax.set_axis_off()
    return figure


def errors_of_models(curves: Any) -> Any:
    """The error against updates, of softmax first: name → errors."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    for (name, curve), (colour, line) in zip(
        curves.items(), ((GREY, ":"), (BLUE, "-")), strict=True
    ):
        ax.semilogy(curve, color=colour, ls=line, label=name)
    ax.set(xlabel="update", ylabel="mean squared error")
    ax.legend()
    return figure


# --- 8b and 8c. A recurrent network ---------------------------------------------------------------


def recurrent_step(words: Any) -> Any:
    """Left: one step of the loop over encoder states of the words. Right: inside the LSTM."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), width_ratios=[1.15, 1])
    for ax in (left, right):
        ax.set_axis_off()
    left.set(xlim=(-1.0, 7.4), ylim=(-0.5, 5.2), title="one step of the decoder")
    states = [
        block(left, 2 * j, 0, f"$h_{j + 1}$\n{word}", fc="white", width=1.5, height=0.8)
        for j, word in enumerate(words)
    ]
    for before, after in zip(states, states[1:], strict=False):
        arrow(left, before, after)
    scores = block(left, 1, 1.6, "scores  $s = Hq_{k-1}$", width=2.6)
    weights = block(left, 1, 2.9, r"attention  $p = \pi(s)$", width=2.6)
    average = block(left, 1, 4.2, r"average  $a = \sum_j p_j h_j$", width=2.6)
    for state in states:
        arrow(left, state, scores)
    arrow(left, scores, weights)
    arrow(left, weights, average)
    query = block(left, 4.4, 1.6, "$q_{k-1}$", fc="white", width=1.2)
    word = block(left, 6.4, 1.6, "$y_{k-1}$", fc="white", width=1.2)
    decoder = block(left, 5.4, 2.9, "decoder LSTM", width=2.2)
    state, output = (
        block(left, x, 4.2, text, fc="white", width=1.2)
        for x, text in ((4.4, "$q_k$"), (6.4, "$y_k$"))
    )
    joins = ((query, scores), (query, decoder), (word, decoder), (decoder, state), (state, output))
    for start, end in joins:
        arrow(left, start, end)
    arrow(left, average, decoder, color=VERMILION)
    left.text(2.95, 3.75, "input\nfeeding", color=VERMILION, fontsize=9.5, ha="center")

    right.set(xlim=(-0.9, 6.9), ylim=(-0.5, 5.2), title="inside the LSTM")
    inputs = block(right, 3, 0, "$xW + hU + b$,  cut into four", width=4.4)
    gates = [
        block(right, x, 1.5, text, width=1.3)
        for x, text in ((0, "$f$: keep"), (2, "$i$: write"), (4, "$g$: what"), (6, "$o$: show"))
    ]
    old = block(right, 0, 4.2, "cell $c$", fc="white", width=1.2)
    kept = block(right, 1, 2.9, r"$f \circ c$", width=1.1)
    added = block(right, 3, 2.9, r"$i \circ g$", width=1.1)
    new = block(right, 3, 4.2, "new cell $c'$", fc="white", width=1.7)
    shown = block(right, 5.6, 2.9, r"$o \circ \tanh c'$", width=1.6)
    hidden = block(right, 5.9, 4.2, "state $h'$", fc="white", width=1.4)
    for gate, use in zip(gates, (kept, added, added, shown), strict=True):
        arrow(right, inputs, gate)
        arrow(right, gate, use)
    for start, end in ((old, kept), (kept, new), (added, new), (new, shown), (shown, hidden)):
        arrow(right, start, end)
    return figure


def reach_of_gradients(sizes: Any) -> Any:
    """The size of the gradient by step, for three biases of the forget gate: bias → sizes."""
    figure, ax = plt.subplots(figsize=(6.4, 3.9))
    styles = ((VERMILION, "--"), (BLUE, "-"), (GREEN, "-."))
    for (bias, size), (colour, line) in zip(sizes.items(), styles, strict=True):
        ax.semilogy(np.arange(1, len(size) + 1), size, color=colour, ls=line)
        ax.lines[-1].set_label(f"forget bias {bias}")
    ax.set(xlabel=f"step $t$ of {len(size)}", ylabel="size of ∂L/∂(gates of step $t$)")
    ax.legend()
    return figure


def training_of_scores(smoothed: Any, width: int) -> Any:
    """Training losses of four attention scores, means of ``width`` updates: name → losses."""
    figure, ax = plt.subplots(figsize=(6.4, 3.9))
    styles = ((ORANGE, "-."), (BLUE, "-"), (INK, ":"), (VERMILION, "--"))
    for (name, losses), (colour, line) in zip(smoothed.items(), styles, strict=True):
        updates = np.arange(width, width + len(losses))
        ax.semilogy(updates, losses, color=colour, ls=line, label=name)
    ax.set(xlabel="update", ylabel=f"loss per letter (mean of {width} updates)")
    ax.legend()
    return figure


def attention_maps(
    weights: Any, columns: Any, rows: Any, width: float, rotation: float | None = None
) -> Any:
    """Attention as squares, a panel per model: name → array (row, column), blank where it is 0.

    Columns of more than two letters are named from bottom to top, or all turned by ``rotation``.
    """
    figure, axes = plt.subplots(1, len(weights), figsize=(width, 4.4), squeeze=False)
    for ax, (name, p) in zip(axes.flat, weights.items(), strict=True):
        plot_attention(p, columns, rows[name], ax)
        ax.set_title(name)
        ax.grid(visible=False)
        if rotation is not None:
            ax.tick_params(axis="x", rotation=rotation)
    return figure


# --- 9. drawn / drawed ----------------------------------------------------------------------------

# How the curves of the two models are drawn.
MODELS: dict[str, dict[str, Any]] = {
    "1.5-entmax": {"color": BLUE, "marker": "o"},
    "softmax": {"color": PURPLE, "marker": "s"},
}


def training_curves(histories: Any) -> Any:
    """Loss and accuracy by update: name → history."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    for (name, history), line in zip(histories.items(), ("-", ":"), strict=True):
        style = {"ls": line, "ms": 4, "label": name} | MODELS[name]
        left.plot(history.update, history.loss, **style)
        right.plot(history.update, history.dev_accuracy, **style)
    left.set(xlabel="update", ylabel="training loss per letter", ylim=(0, None))
    right.set(xlabel="update", ylabel="held-out forms right", ylim=(0, 1))
    for ax in (left, right):
        ax.legend()
    return figure


# What becomes of a prefix in a beam search: the name of the fate, its colour and hatch.
FATES = {"finished": (BLUE, ""), "open": (ORANGE, ".."), "lost": (VERMILION, "//")}


def beam_on_tree(events: Any, books: Any, first: int = 0) -> Any:
    """A beam search as a tree, and below each step where the probability is.

    ``events`` are (step, string, mass, fate), ``books`` the finished, open and lost mass after
    each step from 0 on. Steps before ``first`` are not drawn.
    """
    figure, (tree, bars) = plt.subplots(2, 1, figsize=(10, 6), height_ratios=[1.6, 1], sharex=True)
    steps = range(first, len(books))
    columns = {t: [e for e in events if e[0] == t] for t in steps}
    tallest = max(map(len, columns.values()))
    places: dict[str, Any] = {}
    for t, column in columns.items():
        for k, (_, string, mass, fate) in enumerate(column):
            y = (len(column) - 1) / 2 - k
            text = f"{string or 'start'}\n{mass:.2g}"
            colour = {"finished": PALE, "open": "white", "lost": "white"}[fate]
            style = {
                "fc": colour,
                "ec": FATES[fate][0],
                "size": 9.5,
                "ls": "--" if fate == "lost" else "-",
            }
            box = block(tree, t, y, text, width=0.62, height=0.56, **style)
            before = places.get(string[:-1])
            if before is not None:
                arrow(tree, before, box, lw=1 + 3 * mass, color=GREY if fate == "lost" else EDGE)
            if fate == "open":
                places[string] = box
    tree.set(ylim=(-tallest / 2 - 0.1, tallest / 2 + 0.1), xlim=(first - 0.6, len(books) - 0.4))
    tree.set_axis_off()
    bottom = np.zeros(len(steps))
    for mass, (name, (colour, hatch)) in zip(books[first:].T, FATES.items(), strict=True):
        style = {"color": colour, "hatch": hatch, "ec": "white", "label": name}
        bars.bar(steps, mass, bottom=bottom, width=0.62, **style)
        bottom += mass
    # Room for the legend above 1, where no probability is.
    bars.set(xlabel="step", ylabel="probability", ylim=(0, 1.3), yticks=(0, 0.5, 1), xticks=steps)
    bars.legend(ncols=3, loc="upper center")
    return figure


def inflection_model() -> Any:
    """The model that inflects: two encoders, a decoder with attention, input feeding."""
    figure, ax = canvas(9.8, 5, (-1.7, 9.4), (-0.6, 5.6))
    source = ["<V>", "…", "r", "a", "w"]
    forward, backward, states = [], [], []
    for j, symbol in enumerate(source):
        x = 1.15 * j
        style = {"width": 0.8, "height": 0.5}
        letter = block(ax, x, 0, symbol, fc="white", **style)
        style["width"] = 0.55
        forward.append(block(ax, x - 0.25, 1.0, r"$\rightarrow$", **style))
        backward.append(block(ax, x + 0.25, 1.75, r"$\leftarrow$", **style))
        style["width"] = 0.8
        states.append(block(ax, x, 2.75, f"$h_{j + 1}$", fc="white", **style))
        for encoder in (forward[-1], backward[-1]):
            arrow(ax, letter, encoder)
            arrow(ax, encoder, states[-1])
    for a, b in zip(forward, forward[1:], strict=False):
        arrow(ax, a, b)
    for a, b in zip(backward[1:], backward, strict=False):
        arrow(ax, a, b)
    average = block(ax, 2.3, 4.1, r"$c_t = \sum_j \pi(z)_j\, h_j$", width=2.6)
    for state in states:
        arrow(ax, state, average)
    decoder = block(ax, 6.9, 2.75, "decoder LSTM: $s_t$", width=2.4)
    before = block(ax, 8.3, 1.2, "letter $y_{t-1}$", fc="white", width=1.5)
    fed = block(ax, 6.2, 1.2, r"$\tilde o_{t-1}$", fc="white", width=1.0)
    output = block(ax, 6.9, 4.1, r"$\tilde o_t = \tanh(W[c_t; s_t])$", width=2.8)
    letters = block(ax, 6.9, 5.2, r"next letter: $\pi'(V\tilde o_t + b)$", fc="white", width=2.8)
    for start, end in ((average, output), (decoder, output), (output, letters)):
        arrow(ax, start, end)
    arrow(ax, before, decoder)
    arrow(ax, fed, decoder, color=VERMILION)
    arrow(ax, decoder, average)
    ax.text(5.0, 3.62, "query", fontsize=9.5, ha="center")
    ax.text(6.2, 0.55, "input feeding", color=VERMILION, fontsize=9.5, ha="center")
    ax.text(-0.75, 1.375, "two\nencoders", fontsize=9.5, ha="right", va="center")
    return figure


def lost_by_width(widths: Any, lost: Any) -> Any:
    """The mass that a beam loses in the end, by its width: name → masses."""
    figure, ax = plt.subplots(figsize=(6.4, 3.7))
    for name, mass in lost.items():
        ax.plot(widths, mass, ls=":", lw=1, ms=5, label=name, **MODELS[name])
    ax.set_yscale("symlog", linthresh=1e-6)
    ax.set(xlabel="width of the beam $k$", ylabel="mass lost in the end", ylim=(-1e-7, 1))
    ax.set_xticks(widths)
    ax.legend()
    return figure


def mass_of_others(left_over: Any) -> Any:
    """The mass of all strings but the n most probable, against n: name → masses."""
    figure, ax = plt.subplots(figsize=(6.4, 3.9))
    for name, mass in left_over.items():
        count = np.arange(1, len(mass) + 1)
        ax.plot(count, mass, ls=":", ms=4, lw=1, label=name, **MODELS[name])
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=1e-6)
    ax.set(xlabel="strings listed, the most probable first", ylabel="mass of all others")
    ax.set_ylim(-1e-7, 1)
    ax.legend()
    return figure


def complete_by_width(shares: Any, single: float) -> Any:
    """The share of complete lists by the beam's width: name → (width → share)."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    for (name, by_width), line in zip(shares.items(), ("-", ":"), strict=True):
        label = f"{name}: complete"
        ax.plot([*by_width], [*by_width.values()], ls=line, label=label, **MODELS[name])
    ax.axhline(single, color=GREEN, ls="--", label="1.5-entmax: one string")
    ax.set(xlabel="width of the beam $k$", ylabel="share of the held-out forms", ylim=(-0.03, 1.03))
    ax.set_xticks([*by_width])
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.3))
    return figure


def reliability(calibrations: Any) -> Any:
    """Accuracy against confidence, a mark per bin of a size that grows with its answers."""
    figure, ax = plt.subplots(figsize=(4.6, 4.4))
    for name, measured in calibrations.items():
        confidence = [b.confidence for b in measured.bins]
        accuracy = [b.accuracy for b in measured.bins]
        area = [20 + 200 * b.count / measured.count for b in measured.bins]
        ax.scatter(confidence, accuracy, area, alpha=0.8, label=name, **MODELS[name])
    ax.plot([0, 1], [0, 1], color=GREY, lw=1)
    ax.set(xlabel="confidence", ylabel="accuracy", aspect="equal")
    ax.set(xlim=(-0.03, 1.06), ylim=(-0.03, 1.06))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, markerscale=0.6)
    return figure


def price_of_zeros(updates: Any, ruled_out: Any, perplexities: Any) -> Any:
    """The share of forms ruled out, α → (share, low, high), and the perplexity of the others.

    Bars join the ends ``low`` and ``high`` of an interval; the αs stand a little apart.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.7))
    for i, (alpha, bounds) in enumerate(ruled_out.items()):
        share, low, high = np.array(bounds).T
        beside = np.array(updates) * 1.03 ** (i - 1.5)
        ends = np.maximum([share - low, high - share], 0)
        style = CURVES[alpha] | {"lw": 1.5}
        left.errorbar(beside, share, ends, marker="o", ms=4, capsize=2, elinewidth=1, **style)
    by_alpha(right, updates, perplexities, "semilogx", marker="o", ms=4)
    left.set_xscale("log")
    left.set(xlabel="updates", ylabel="correct forms ruled out", ylim=(-0.005, None))
    right.set(xlabel="updates", ylabel="perplexity of the possible")
    for ax in (left, right):
        ax.set_xticks(updates, [str(n) for n in updates])
        ax.minorticks_off()
    left.legend()
    return figure


# --- 10. Fast -------------------------------------------------------------------------------------


def looks_at_a_row(z: Any, chunk: int, levels: Any, live: Any) -> Any:
    """The scores of a row by place, and the levels that rule most of them out: name → level.

    The levels rise: what lies above the last is dark. Chunks that are `live` are shaded.
    """
    figure, ax = plt.subplots(figsize=(9, 3.8))
    for i in np.flatnonzero(live):
        ax.axvspan(i * chunk, (i + 1) * chunk, color=PALE, lw=0, zorder=0)
    (first, low), (second, high) = levels.items()
    places = np.arange(len(z))
    kinds = {
        f"below both: {np.sum(z <= low):,}": (z <= low, GREY, 2),
        f"between: {np.sum((z > low) & (z <= high)):,}": ((z > low) & (z <= high), ORANGE, 4),
        f"above both: {np.sum(z > high):,}": (z > high, BLUE, 6),
    }
    for name, (chosen, colour, size) in kinds.items():
        ax.plot(places[chosen], z[chosen], ".", color=colour, ms=size, label=name)
    for name, level, va in ((first, low, "top"), (second, high, "bottom")):
        ax.axhline(level, color=INK, lw=1)
        style = {
            "ha": "right",
            "va": va,
            "fontsize": 9,
            "xytext": (-2, 2 if va == "bottom" else -2),
        }
        box = {"fc": "white", "ec": "none", "pad": 0.5, "alpha": 0.8}
        ax.annotate(name, (len(z), level), textcoords="offset points", bbox=box, **style)
    ax.set(xlim=(0, len(z)), xlabel="place in the row", ylabel="score $z$")
    ax.set_xticks(np.arange(0, len(z) + 1, 2 * chunk))
    ax.grid(visible=False)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def scores_in_reach(lengths: Any, near: Any, support: Any) -> Any:
    """How many scores are near the largest and how many in the support: α → numbers."""
    figure, ax = plt.subplots(figsize=(6.4, 4))
    for alpha in near:
        colour, dashes, label = (CURVES[alpha][what] for what in ("color", "ls", "label"))
        ax.loglog(lengths, near[alpha], color=colour, ls=dashes, label=f"{label}: near")
        ax.loglog(lengths, support[alpha], "o", color=colour, ms=6, label=f"{label}: support")
    ax.loglog(lengths, lengths, color=GREY, lw=1)
    place = {"xytext": (-22, 4), "textcoords": "offset points"}
    ax.annotate("all", (lengths[-2], lengths[-2]), color=GREY, **place)
    ax.set(xlabel="length $d$ of the row", ylabel="scores")
    ax.legend(fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.2))
    return figure


def intervals_of_scores(
    x: Any, low: Any, high: Any, level: float, threshold: float, left: Any, count: int = 80
) -> Any:
    """The intervals of the scores that reach highest, and who is `left` above the level."""
    figure, ax = plt.subplots(figsize=(9, 4.2))
    best = np.argsort(-high)[:count]
    remains = np.isin(best, left)
    kinds = {
        f"gets a weight: {np.sum(x > threshold)}": (x[best] > threshold, BLUE, 2.4),
        f"read in full, weight 0: {len(left) - np.sum(x > threshold)}": (
            remains & (x[best] <= threshold), ORANGE, 2.4,
        ),
        f"proved to be 0: {len(x) - len(left):,}": (~remains, GREY, 1.4),
    }  # fmt: skip
    for name, (chosen, colour, width) in kinds.items():
        places, own = np.flatnonzero(chosen), best[chosen]
        ax.vlines(places, low[own], high[own], color=colour, lw=width, label=name)
        ax.plot(places, x[own], ".", color=colour, ms=7)
    for value, name, va in (
        (threshold, "threshold τ", "bottom"),
        (level, "τ of the lower bounds", "top"),
    ):
        ax.axhline(value, color=INK, lw=1, ls="-" if va == "bottom" else "--")
        offset = (4, 2 if va == "bottom" else -2)
        ax.annotate(name, (-1, value), xytext=offset, textcoords="offset points", va=va, fontsize=9)
    ax.set(xlim=(-1, count), xlabel="keys, by upper bound", ylabel="$x = z/2$")
    ax.grid(visible=False)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


# --- 11. A Transformer from nothing ---------------------------------------------------------------

# How the curves of three mappings in the same heads are drawn.
HEADS: dict[str, dict[str, Any]] = {
    "softmax": {"color": PURPLE, "ls": ":"},
    "1.5-entmax": {"color": BLUE, "ls": "-"},
    "top-2": {"color": ORANGE, "ls": "--"},
}


def support_by_width(widths: Any, supports: Any) -> Any:
    """Mean supports against the width of a head: name → supports, two of them."""
    figure, ax = plt.subplots(figsize=(6.4, 3.4))
    styles = ((VERMILION, "-"), (BLUE, "--"))
    for (name, values), (colour, line) in zip(supports.items(), styles, strict=True):
        ax.semilogx(widths, values, color=colour, ls=line, marker="o", ms=5, base=2, label=name)
    ax.set_xticks(widths, [f"{n:,}" for n in widths])
    ax.minorticks_off()
    ax.set(xlabel="width $d$ of the head", ylabel="keys with any weight, of 32", ylim=(0, None))
    ax.legend(title="scores")
    return figure


def position_products(products: Any) -> Any:
    """The products of the encodings of all pairs of positions, as colours."""
    figure, ax = plt.subplots(figsize=(4.8, 3.9))
    shown = ax.imshow(products, cmap="Blues")
    figure.colorbar(shown, ax=ax, label="product of the encodings")
    ax.set(xlabel="position", ylabel="position")
    ax.grid(visible=False)
    return figure


def starts_of_training(curves: Any, starts: Any) -> Any:
    """Losses of several runs, name → (run, update), and the update at which each gets going."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.9), width_ratios=[1.7, 1])
    for place, (name, losses) in enumerate(curves.items()):
        style = HEADS[name]
        for run in losses:
            left.semilogy(run, lw=0.7, alpha=0.45, color=style["color"])
        left.semilogy(np.median(losses, axis=0), lw=2.2, label=name, **style)
        spread = np.linspace(-0.12, 0.12, len(starts[name]))
        right.plot(place + spread, starts[name], "o", ms=7, color=style["color"], mec="white")
    left.set(xlabel="update", ylabel="loss per letter", ylim=(2e-3, 2))
    left.legend()
    right.set(ylabel="first update with a loss below 0.1", ylim=(0, None))
    right.set_xticks(range(len(curves)), [*curves])
    right.set_xlim(-0.5, len(curves) - 0.5)
    return figure


def transformer_layers() -> Any:
    """An encoder layer and a decoder layer, as branches that are added to a main line."""
    figure, ax = canvas(10, 6, (-1.5, 9.0), (-0.6, 7.5))
    attention = {"fc": "#FBE6C8", "ec": ORANGE}

    def column(x: float, side: int, start: str, branches: Any, top: str) -> Any:
        """A main line from below to above with its branches; the last box, the inner boxes."""
        below, inner = block(ax, x, 0, start, fc="white", width=2.5, height=0.75), []
        for k, (name, style) in enumerate(branches):
            y = 1.2 + 1.75 * k
            norm = block(ax, x + 1.9 * side, y, "norm", width=1.3, height=0.5)
            part = block(ax, x + 1.9 * side, y + 0.85, name, width=1.9, height=0.62, **style)
            mark = {"boxstyle": "circle,pad=0.15", "fc": "white", "ec": BLUE}
            ax.text(x, y + 0.85, "+", ha="center", va="center", fontsize=12, bbox=mark, zorder=4)
            arrow(ax, (x, y), norm)
            arrow(ax, norm, part)
            arrow(ax, part, (x + 0.2 * side, y + 0.85))
            inner.append(part)
        above = block(ax, x, 1.2 + 1.75 * len(branches), top, fc="white", width=2.3, height=0.75)
        arrow(ax, below, above, lw=4, color=BLUE)
        return above, inner

    network: tuple[str, Any] = ("network", {})
    encoder = [("self-attention", attention), network]
    decoder = [("self-attention,\nno future", attention), ("attention\nto memory", attention)]
    memory, _ = column(0, 1, "source symbols\n+ positions", encoder, "norm: memory")
    top = "norm, linear, $\\pi$:\nnext symbol"
    _, inner = column(7.4, -1, "target so far\n+ positions", [*decoder, network], top)
    arrow(ax, memory, inner[1], color=VERMILION)
    ax.text(0, 5.5, "encoder", ha="center", fontsize=12)
    ax.text(7.4, 7.2, "decoder", ha="center", fontsize=12)
    return figure


# --- 12. Heads that choose their own sparsity ----------------------------------------------------

HEAD_STYLES = [(PURPLE, "s"), (BLUE, "o"), (GREEN, "^")]


def alpha_paths(updates: Any, alphas: Any) -> Any:
    """The α of every head over the updates: kind → (updates, layers, heads).

    A colour for each layer; a head whose α has risen again by 0.01 is thick, a dot at its lowest.
    """
    figure, axes = plt.subplots(1, len(alphas), figsize=(10, 3.9), sharey=True)
    for ax, (kind, paths) in zip(axes, alphas.items(), strict=True):
        for layer, (colour, _) in enumerate(HEAD_STYLES):
            for path in paths[:, layer].T:
                lowest = int(np.argmin(path))
                returned = path[-1] - path[lowest] > 0.01
                ax.plot(updates, path, color=colour, lw=2.6 if returned else 1, ls=DASHES[layer])
                if returned:
                    ax.plot(updates[lowest], path[lowest], "o", color=colour, mec="white", ms=7)
            ax.plot([], [], color=colour, ls=DASHES[layer], label=f"layer {layer + 1}")
        returns = np.sum(paths[-1] - paths.min(axis=0) > 0.01)
        ax.set(title=f"{kind}: {returns} of {paths[0].size} returned", xlabel="update")
        ax.locator_params(axis="x", nbins=4)
    axes[0].set(ylabel="α of a head", ylim=(1, 2))
    axes[-1].legend(fontsize=9)
    return figure


def density_by_alpha(densities: Any, alphas: Any) -> Any:
    """Densities of heads by model and kind, and against learned α: model → kind → (layers, heads).

    The model whose densities are drawn against α is the one called "α learned".
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(1.5, 1), sharey=True)
    jitter = np.linspace(-0.1, 0.1, 12)
    for k, (kind, (colour, marker)) in enumerate(zip(alphas, HEAD_STYLES, strict=True)):
        style = {"color": colour, "marker": marker, "ls": "none", "ms": 5, "mec": "white"}
        for place, kinds in enumerate(densities.values()):
            values = np.sort(kinds[kind].ravel())
            at = place + 0.28 * (k - 1) + jitter
            left.plot(at, values, label=kind if place == 0 else None, **style)
        right.plot(alphas[kind].ravel(), densities["α learned"][kind].ravel(), **style)
    left.set_xticks(range(len(densities)), list(densities))
    left.set(ylabel="density of a head", ylim=(0, 1.05))
    left.grid(axis="x", visible=False)
    left.legend(fontsize=9, loc="lower left")
    right.set(xlabel="learned α", title="α learned")
    return figure


def diversity_of_layers(differences: Any) -> Any:
    """Differences of divergence from softmax's with intervals: model → kind → dict of layers."""
    figure, ax = plt.subplots(figsize=(8, 4.4))
    kinds = list(next(iter(differences.values())))
    for number, (label, by_kind) in enumerate(differences.items()):
        colour, marker = HEAD_STYLES[number]
        middle, low, high = (
            np.concatenate([by_kind[kind][name] for kind in kinds])
            for name in ("difference", "low", "high")
        )
        rows = np.arange(len(middle)) + 0.22 * (number - 1)
        style = {"color": colour, "ms": 6, "lw": 2.5, "capsize": 4, "mec": "white"}
        widths = [middle - low, high - middle]
        ax.errorbar(middle, rows, xerr=widths, fmt=marker, label=label, **style)
    layers = len(middle) // len(kinds)
    names = [f"{kind}, layer {layer + 1}" for kind in kinds for layer in range(layers)]
    ax.axvline(0, color=INK, lw=1)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("divergence between the heads, minus softmax's")
    ax.legend(fontsize=9)
    return figure


def heads_on_sentences(maps: Any) -> Any:
    """One head on sentences, squares blank where a weight is 0: (title, weights, words)."""
    from experiments.plots import AttentionPanel, plot_attention_panels  # notebook 12 has its path

    panels = [AttentionPanel(title, weights, words, words) for title, weights, words in maps]
    figure: Any = plot_attention_panels(panels, columns=2).figure
    for ax in figure.axes:
        ax.grid(visible=False)
    return figure


# --- 13. Explicit top-k ---------------------------------------------------------------------------


def module_of_choice(scores: Any, chosen: Any, weights: Any, values: Any) -> Any:
    """The module of explicit top-k as tables: scores → choice → weights, values → result."""
    tables = {
        "scores $P$": scores,
        "choice $M$": chosen,
        "weights $A$": weights,
        "values $V$": values,
        "result $AV$": weights @ values,
    }
    figure = plt.figure(figsize=(PAGE, 3.8))
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.5))
    rows = [*above.subplots(1, 3), *below.subplots(1, 4)]
    for ax in (rows[3], rows[6]):  # V and AV have two columns: they stand in the middle
        ax.set_axis_off()
    axes = [*rows[:3], *rows[4:6]]
    signs = {0: "keep 2\n→", 1: "softmax\n→", 3: "="}
    for number, (ax, (title, table)) in enumerate(zip(axes, tables.items(), strict=True)):
        blank = ~np.isfinite(table) | (table == 0)
        shown, white = np.where(blank, np.nan, table), plt.get_cmap("RdBu_r").copy()
        white.set_bad("#ECECEC")
        ax.imshow(shown, cmap=white, vmin=-3, vmax=3, aspect="auto")
        for (i, j), entry in np.ndenumerate(table):
            digits = ".2f" if number in (2, 4) else ".1f"
            text = "−∞" if entry == -np.inf else _minus(entry, digits) if entry else "0"
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color=INK)
        ax.set_title(title, fontsize=11)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.grid(visible=False)
        if number in signs:
            place = {"ha": "left", "va": "center", "xycoords": "axes fraction", "fontsize": 9}
            ax.annotate(signs[number], (1.03, 0.5), **place)
    return figure


def choice_in_rows(rows: Any) -> Any:
    """Weights of a row before and after the choice: title → (letters, before, after)."""
    figure, axes = plt.subplots(1, len(rows), figsize=(9, 3.2), sharey=True)
    for ax, (title, (letters, before, after)) in zip(axes, rows.items(), strict=True):
        places = np.arange(len(letters))
        ax.bar(places - 0.2, before, 0.4, color=EDGE, label="softmax")
        ax.bar(places + 0.2, after, 0.4, color=ORANGE, label="top-2 of it")
        for place in places[after == 0]:
            ax.text(place + 0.2, 0.01, "0", ha="center", va="bottom", color=GREY, fontsize=9)
        ax.set_xticks(places, [str(letter) for letter in letters])
        ax.set(title=title, xlabel="letter read", ylim=(0, 1))
        ax.grid(axis="x", visible=False)
    axes[0].set_ylabel("weight")
    axes[1].legend()
    return figure


def weights_of_listing(largest: Any, k: int) -> Any:
    """How often the largest weight of a row has which size: name → weights, two of them."""
    figure, ax = plt.subplots(figsize=(6.4, 3.2))
    bins = np.linspace(1 / k, 1, 31)
    for (name, weights), colour in zip(largest.items(), (VERMILION, BLUE), strict=True):
        ax.hist(weights, bins, color=colour, alpha=0.75, label=name)
    ax.set(xlabel=f"largest of the {k} weights of a row", ylabel="rows", xlim=(1 / k, 1))
    ax.legend(title="scores", loc="upper center")
    return figure


def gradient_lengths(ks: Any, lengths: Any, entmax: Any) -> Any:
    """Against k: the length of the gradient of all scores; and 1.5-entmax's, (support, length)."""
    figure, ax = plt.subplots(figsize=(6.4, 3.3))
    ax.plot(ks, lengths, "-o", color=ORANGE, ms=6, label="top-k softmax")
    ax.plot(*entmax, "s", color=BLUE, ms=8, ls="none", label="1.5-entmax")
    ax.set(
        xlabel="$k$: scores with a weight, of 32", ylabel="length of the gradient", ylim=(0, None)
    )
    ax.set_xscale("log", base=2)
    ax.set_xticks(ks, [str(k) for k in ks])
    ax.minorticks_off()
    ax.legend()
    return figure


def accuracy_by_k(ks: Any, curves: Any) -> Any:
    """The share of right tokens by k, the last one being all: task → shares, two of them."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    styles = ((BLUE, "-", "o"), (ORANGE, "--", "s"))
    for (name, shares), (colour, line, marker) in zip(curves.items(), styles, strict=True):
        ax.plot(range(len(ks)), shares, color=colour, ls=line, marker=marker, ms=6, label=name)
    ax.set_xticks(range(len(ks)), [str(k) for k in ks])
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f}%")
    ax.set(xlabel="$k$ of every head", ylabel="tokens right", ylim=(0, 1.04))
    ax.legend(loc="lower right")
    return figure


def used_with(panels: Any, used: Any, what: str) -> Any:
    """Shares against the mapping of use: panel → mapping of training → shares, a line each."""
    size = {1: (6.4, 3.5), 2: (9, 3.7)}[len(panels)]
    figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False)
    styles = {
        "softmax": (PURPLE, ":", "o"),
        "1.5-entmax": (BLUE, "-", "s"),
        "top-4": (ORANGE, "--", "^"),
        "top-2": (GREEN, "-.", "D"),
    }
    for ax, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for name, shares in lines.items():
            colour, line, marker = styles[name]
            ax.plot(shares, color=colour, ls=line, marker=marker, ms=6, label=name)
            if name in used:
                place = list(used).index(name)
                ring = {"mfc": "none", "mec": colour, "mew": 1.6, "ls": "none"}
                ax.plot(place, shares[place], "o", ms=14, **ring)
        ax.set_xticks(range(len(used)), used)
        ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f}%")
        ax.set(title=title, xlabel="used with", ylim=(0, 1.06))
    axes[0, 0].set_ylabel(what)
    place = "lower left" if len(panels) == 1 else "lower right"
    axes[0, -1].legend(title="trained with", loc=place, fontsize=9)
    return figure


# --- 14. A language model that can say never ------------------------------------------------------

_OUTPUTS = {
    "softmax": {"color": VERMILION, "marker": "o"},
    "1.5-entmax": {"color": BLUE, "marker": "s"},
}


def possible_by_position(sentence: str, right: Any, size: int) -> Any:
    """How many characters are right at each place of a sentence, of a vocabulary of a size."""
    figure, ax = plt.subplots(figsize=(8, 3.2))
    places = np.arange(len(right))
    ax.bar(places, right, 0.8, color=[BLUE if n == 1 else ORANGE for n in right])
    for place, number in zip(places, right, strict=True):
        ax.annotate(str(number), (place, number), (0, 2), textcoords="offset points", ha="center")
    ax.axhline(size, color=VERMILION, ls="--", lw=1.6)
    told = {"textcoords": "offset points", "color": VERMILION, "fontsize": 10}
    ax.annotate(f"softmax: all {size}", (0, size), (-14, -14), **told)
    ax.set_xticks(places, [*sentence.replace(" ", "␣"), "↵"], fontsize=10)
    ax.set(ylabel="characters that are right", ylim=(0, size + 2), xlim=(-0.7, len(right) - 0.3))
    ax.grid(axis="x", visible=False)
    return figure


def ranked_characters(ranked: Any) -> Any:
    """Probabilities in falling order, logarithmic: name → p; those that are 0 on a line below."""
    figure, ax = plt.subplots(figsize=(6.8, 4))
    least = min(p[p > 0].min() for p in ranked.values())
    zero = 10.0 ** (np.floor(np.log10(least)) - 1)
    ax.axhline(zero, color=INK, lw=1)
    for number, (name, p) in enumerate(ranked.items()):
        places = np.arange(1, len(p) + 1) + (0.12 if number else -0.12)
        style = {"ls": "none", "ms": 6, "zorder": 3, "clip_on": False} | _OUTPUTS[name]
        ax.plot(places[p > 0], p[p > 0], label=name, **style)
        ax.plot(places[p == 0], np.full((p == 0).sum(), zero), **style | {"mfc": "white"})
    ax.set_yscale("log")
    powers = np.arange(np.log10(zero) + 2, 1, 2)
    ax.set_yticks([zero, *10.0**powers], ["0", *(f"$10^{{{int(power)}}}$" for power in powers)])
    ax.minorticks_off()
    ax.set(xlabel="character, the most probable first", ylabel="probability", ylim=(zero, 3))
    ax.legend()
    return figure


def grammatical_by_temperature(temperatures: Any, shares: Any) -> Any:
    """The share of lines that are right by temperature: (seed, name) → shares, and their means."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    for name, style in _OUTPUTS.items():
        runs = np.array([values for (_, of), values in shares.items() if of == name])
        ax.plot(temperatures, runs.T, color=style["color"], lw=0.8, alpha=0.6)
        ax.plot(temperatures, runs.mean(axis=0), ms=6, label=name, **style)
    ax.set(xlabel="temperature $T$", ylabel="lines that are sentences", ylim=(0, 1.05))
    ax.set_xticks(temperatures)
    ax.legend(loc="lower left")
    return figure


def of_k(ks: Any, bits: Any) -> Any:
    """Bits per character against k: name of a model → one number per k."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    styles = ((VERMILION, "o"), (BLUE, "s"), (GREEN, "^"), (ORANGE, "D"), (PURPLE, "v"))
    for (name, values), (colour, marker) in zip(bits.items(), styles, strict=False):
        ax.plot(range(len(ks)), values, color=colour, marker=marker, ms=5, label=name)
    ax.set_xticks(range(len(ks)), ks)
    ax.set(xlabel="$k$: weights that each head keeps", ylabel="bits per character")
    ax.legend(title="trained with")
    return figure


# --- Pages of measurements ----------------------------------------------------------------------


def shares_of_products(lengths: Any, shares: Any) -> Any:
    """The share of multiplications that sparse attention keeps, a curve for each α."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    for alpha, share in shares.items():
        ax.semilogx(lengths, share, marker="o", ms=4, base=2, **CURVES[alpha])
    ax.axhline(1 / 6, color=GREY, lw=1)
    ax.annotate("$QK^\\top$ alone", (lengths[0], 0.14), color=GREY, va="top", fontsize=9)
    ax.set_xticks(lengths, [f"{n:,}" for n in lengths])
    ax.minorticks_off()
    ax.set(xlabel="positions", ylabel="multiplications left", ylim=(0, 1))
    ax.legend()
    return figure


# --- 15. Puzzles ----------------------------------------------------------------------------------


def draw_values(ax: Any, values: Any, colours: Any, zeros_only: bool = False) -> None:
    """A number or two in print, a few as bars, many as a curve, labels and rows as a table."""

    def write(x: float, y: float, text: Any, digits: int = 2, **style: Any) -> None:
        text = text if isinstance(text, str) else f"{text:.{digits}g}".replace("-", "−")
        ax.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": 9, "color": INK} | style)

    ax.set_axis_off()
    kind = "i" if isinstance(values, tuple) else np.asarray(values).dtype.kind
    if isinstance(values, tuple) or np.ndim(values) == 0:
        for i, value in enumerate(np.atleast_1d(values)):
            place = (i + 0.5) / np.size(values)
            write(place, 0.5, float(value), 4, fontsize=17, color=colours[0])
    elif np.ndim(values) == 2 or kind in "bi":
        table = values if np.ndim(values) == 2 else values[None] if kind == "b" else values[:, None]
        ax.set(xlim=(-0.6, table.shape[1] - 0.4), ylim=(len(table) - 0.4, -0.6))
        for (i, j), entry in np.ndenumerate(table):
            write(j, i, "–✓"[int(entry)] if kind == "b" else entry, fontsize=11)
    elif len(values) > 8:
        ax.plot(values, color=colours[0], marker="o", ms=3)
        write(-0.5, values[0], values[0], ha="right")
        write(len(values) - 0.5, values[-1], values[-1], ha="left")
        ax.set_xlim(-2, len(values) + 1)
    else:
        ax.bar(range(len(values)), values, color=colours, width=0.75)
        ax.axhline(0, color=GREY, lw=0.8)
        span = np.ptp([0, *values]) or 1
        white = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
        for i, entry in enumerate(values):
            side = "top" if entry < 0 else "bottom"
            gap = -0.05 * span if entry < 0 else 0.05 * span
            if entry == 0 or not zeros_only:
                write(i, entry + gap, entry, va=side, bbox=white, zorder=5)
        ax.set(
            xlim=(-0.6, len(values) - 0.4),
            ylim=(min(0, *values) - 0.2 * span, max(0, *values) + 0.25 * span),
        )


def puzzle_panels(
    given: Any, output: str, wanted: Any, yours: Any = None, level: float | None = None
) -> Any:
    """What is given (names and values), an arrow, what is wanted, and an attempt that is not it.

    A ``level`` is drawn into the first bars, and what stands out above it is in the colour of p.
    """
    panels = [(name, value, GREY) for name, value in given] + [(output, wanted, BLUE)]
    if yours is not None:
        panels.append(("yours", yours, BLUE))
    widths = [
        1.5
        if isinstance(value, tuple)
        else 0.9
        if np.ndim(value) == 0 or np.asarray(value).dtype.kind == "i"
        else 2.2
        for _, value, _ in panels
    ]
    widths.insert(len(given), 0.5)
    space = {"width_ratios": widths, "left": 0, "right": 1, "bottom": 0, "top": 0.85, "wspace": 0.1}
    figure, axes = plt.subplots(
        1, len(widths), figsize=(sum(widths), 1.45), gridspec_kw=space, layout="none"
    )  # a layout that is worked out would double the time of forty of these
    arrow, *axes = [axes[len(given)], *axes[: len(given)], *axes[len(given) + 1 :]]
    arrow.set_axis_off()
    arrow.text(0.5, 0.5, "→", ha="center", va="center", fontsize=20, color=INK)
    for ax, (name, value, colour) in zip(axes, panels, strict=True):
        colours = [colour] * max(1, np.size(value))
        if name == "yours":
            right = np.isclose(value, wanted, rtol=0, atol=1e-9).ravel()
            colours = [BLUE if good else VERMILION for good in right]
            if np.size(value) > 8 or isinstance(value, tuple):
                colours = [VERMILION]
        draw_values(ax, value, colours)
        ax.set_title(name, fontsize=11)
    if level is not None:
        scores = given[0][1]
        above = np.maximum(scores - level, 0)
        axes[0].bar(range(len(scores)), above, bottom=level, color=BLUE, width=0.75)
        axes[0].axhline(level, color=INK, ls=(0, (4, 1.5)), lw=1.2)
        gap = 0.05 * np.ptp(scores)
        for label in axes[0].texts:  # one that the line would cross goes below its bar
            if label.get_position()[1] < level < label.get_position()[1] + 4 * gap:
                label.set(y=-gap, va="top")
        axes[0].text(len(scores) - 0.5, level, "τ", ha="right", va="bottom", color=INK)
    return figure


def ways_to_be_sparse(scores: Any, ways: Any) -> Any:
    """The scores, and a panel of bars for what each of ``ways`` (a name → p) makes of them."""
    figure, axes = plt.subplots(2, (len(ways) + 2) // 2, figsize=(9, 3.4))
    for ax in axes.flat:
        ax.set_axis_off()
    panels = [("scores", scores, GREY), *((name, p, BLUE) for name, p in ways.items())]
    for ax, (name, values, colour) in zip(axes.flat, panels, strict=False):
        draw_values(ax, values, [colour] * len(values), zeros_only=name != "scores")
        ax.set_title(name, fontsize=10)
        if name != "scores":
            ax.set_ylim(-0.1, 1.05)
    return figure


def results_lines(folder: str, name: str) -> list[dict[str, Any]]:
    """The results that a script in ``experiments/`` wrote, a line each."""
    path = Path(__file__).parents[1] / "experiments" / folder / "results" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- 16. Longer than trained ----------------------------------------------------------------------

LENGTH_STYLES: dict[str, dict[str, Any]] = {
    "softmax": {"color": PURPLE, "ls": (0, (1, 1)), "marker": "o"},
    "1.5-entmax": {"color": BLUE, "ls": "-", "marker": "s"},
    "sparsemax": {"color": VERMILION, "ls": (0, (4, 1.5)), "marker": "^"},
    "softmax · s log n": {"color": ORANGE, "ls": (0, (5, 1, 1, 1)), "marker": "D"},
    "1.5-entmax · s log n": {"color": GREEN, "ls": (0, (7, 1, 1, 1, 1, 1)), "marker": "v"},
    "ASEntmax": {"color": INK, "ls": (0, (2, 2)), "marker": "x"},
}


def supports_by_length(lengths: Any, found: Any, laws: Any) -> Any:
    """Keys in use against n: law of the scores → array (n, mapping), and the predicted curves."""
    figure, axes = plt.subplots(1, len(found), figsize=(10, 3.9), sharey=True)
    for ax, (title, measured) in zip(axes, found.items(), strict=True):
        for k, name in enumerate(("1.5-entmax", "sparsemax", "softmax")):
            style = LENGTH_STYLES[name]
            ax.loglog(lengths, laws[title][k], color=style["color"], ls=style["ls"])
            label = name if name != "softmax" else "softmax, $e^H$"
            mark = {"color": style["color"], "marker": style["marker"], "ls": "none", "ms": 6}
            ax.loglog(lengths, measured[:, k], label=label, **mark)
        ax.set(title=title, xlabel="number of scores n")
    axes[0].set_ylabel("keys in use")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def trained_by_length(
    lengths: Any, results: Any, measures: Any, tasks: Any, trained: float, chance: float
) -> Any:
    """Measures of models against n: (task, mapping) → array (seeds, lengths, measures).

    The first measure is a share, with a line at ``chance``.
    """
    rows = len(measures)
    figure, axes = plt.subplots(rows, len(tasks), figsize=(9.4, 2.5 * rows), sharex=True)
    for column, task in zip(axes.T, tasks, strict=True):
        column[0].set_title(task)
        for (of, name), values in results.items():
            if of != task:
                continue
            middle, low, high = values.mean(0), values.min(0), values.max(0)
            for k, ax in enumerate(column):
                ends = np.stack([middle - low, high - middle])[..., k]
                style = {"lw": 1.6, "ms": 4, "capsize": 2, "elinewidth": 1} | LENGTH_STYLES[name]
                if name == "softmax":  # rings, since scaled softmax has the same support
                    style |= {"ms": 9, "mfc": "none"}
                ax.errorbar(lengths, middle[:, k], ends, label=name, **style)
        for ax, measure in zip(column, measures, strict=True):
            ax.set_xscale("log")
            ax.axvline(trained, color=INK, ls=":", lw=1)
            if measure == "support":
                ax.set_yscale("log")
        column[0].axhline(chance, color=GREY, ls="--", lw=1)
        column[0].text(trained, chance + 0.02, " chance", color=GREY, fontsize=9)
        column[0].set_ylim(0, 1.05)
        column[-1].set_xlabel("number of items n")
    for ax, measure in zip(axes[:, 0], measures, strict=True):
        ax.set_ylabel(measure)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


# --- What the pictures say ------------------------------------------------------------------------

# By name: the alternative text, for readers who cannot see a picture, and the caption. Both may
# hold the answer of a prediction, so they do not stand in the cells. ``show`` fills the braces.
TEXTS: dict[str, tuple[str, str]] = {
    # notebook 1
    "water_levels": (
        "Five panels with the scores 1.2, 0.9, 0.3, −0.4 and −1 as bars, and water up to a "
        "level: none for softmax, −2.14 for α = 1.25, −0.29 for 1.5-entmax, 0.55 for sparsemax "
        "and 1.2, the largest score, for argmax. Below, the probabilities: twice all five are "
        "positive, then three, two, and one.",
        "Above: scores, and the level of each mapping; dark is what stands out of the water, by "
        "h. Below: the probabilities, a grey 0 where one is exactly zero. The level rises with "
        "α, and choices drown one after the other. Softmax has no level: an exponential stands "
        "in its place, which is positive for every score.",
    ),
    "mappings_of_two": (
        "The probability of the first of two choices against the difference t of their scores, "
        "for α = 1, 1.25, 1.5, 2 and 4. All curves pass through one half at t = 0. Softmax never "
        "reaches 0 or 1; the others do at t = ±4, ±2, ±1 and ±1/3, marked by dots. The curve of "
        "α = 2 is straight.",
        "p₁ for the scores (t, 0). Dots: where a curve reaches 0 or 1, at t = ±1/(α − 1). Look "
        "at the corners there: smooth for α < 2, sharp for α = 2 and above, none for softmax.",
    ),
    "supports_of_plane": (
        "The plane of scores of three choices, coloured by the size of the support, for α = 1, "
        "1.5, 2 and 4, with the outline of the simplex. With α = 1 every point has full support. "
        "With growing α the region of full support shrinks to a small patch around the centre, "
        "and the three regions where a single choice takes all grow; between them lie strips "
        "with two choices.",
        "Each point of the plane is a vector of three scores (up to a constant); its colour says "
        "how many choices get probability. The triangle is the simplex itself. Look at the dark "
        "regions, where one choice takes all: they grow with α.",
    ),
    "landing_places": (
        "1500 random score vectors mapped into the triangle of probabilities. With softmax all "
        "of them lie inside. With α = 1.5 many lie on the edges and some on the corners; with α "
        "= 2 nearly nine in ten lie on corners and edges.",
        "Where random scores land: a mark per vector, in the triangle of probabilities; the "
        "percentages count those on corners, on edges and inside. Look at the left panel: "
        "softmax fills the inside alone, and leaves corners and edges empty.",
    ),
    # notebook 2
    "tilted_hills": (
        "Contours of p·z plus entropy over the triangle for z = (1, 0.6, −0.2), with a dot at "
        "the top. For α = 1 and 1.5 the top lies inside, for α = 2 on the edge between the first "
        "two corners, for α = 4 on the first corner.",
        "Hills of p·z + H(p), lines a tenth apart. The dot is the top, which is the mapping's "
        "value, given above each panel. Look at it move to the edge e₁e₂ and then to the corner: "
        "the larger α, the less the entropy bends the plane.",
    ),
    "entropies_of_two": (
        "Left: Tsallis entropies of two choices against the probability q of the first, for α = "
        "1, 1.25, 1.5, 2 and 4: arches that are zero at q = 0 and 1 and highest at one half, "
        "from 0.69 for α = 1 down to 0.07 for α = 4. Middle and right: the foot at q = 0, "
        "magnified 100 and 10,000 times. The lines of α = 2 and 4 keep their slope; that of α = "
        "1 doubles it.",
        "H of a distribution (q, 1 − q), and its left foot, magnified (q by the number above the "
        "panel, H by a sixteenth of it). Compare the two magnified panels: the line of α = 1 "
        "gets steeper, without end; all others come to a slope of their own, those near α = 1 "
        "late.",
    ),
    "distance_from_limit": (
        "Relative distance between h of α and its limit at α = 1, against α − 1 from 1e-15 to 1, "
        "in double logarithmic scale. The library's value follows a straight line down to 1e-15. "
        "The formula as printed leaves the line at about 1e-8 and turns upwards again, reaching "
        "errors of several per cent at 1e-15.",
        "How far h at α is from its limit at α = 1. Dots: the formula as printed, which loses "
        "all digits towards the left. Line: the same quantity without cancellation, along the "
        "dotted first order.",
    ),
    "entropy_at_zero": (
        "Left: the term h of the entropies near t = 0, for α = 1, 1.25, 1.5, 2 and 4; the larger "
        "α, the flatter. Right: their slopes on a logarithmic axis. The slope for α = 1 keeps "
        "growing as t falls; all others level off, at 3.2, 1.33, 0.5 and 0.08.",
        "Left: one term of the entropy for t below 0.01. Right: its slope, on a logarithmic "
        "axis. Look at the left end of the right panel: the dotted curve of α = 1 goes on "
        "rising, all others have levelled off.",
    ),
    "entropy_hills": (
        "Above: contours of Tsallis entropies over the triangle of three probabilities, each "
        "scaled to 1 at its top, for α = 1, 2 and 4, with the lines 0.5, 0.7 and 0.9. All are "
        "highest at the centre and zero at the corners; for α = 2 the lines are circles around "
        "the centre, for α = 4 the line of 0.9 ends on the edges. Below: the height along a line "
        "from the middle of an edge, over the centre, to the opposite corner, and its beginning "
        "magnified: straight lines for α = 2 and 4, for α = 1 a curve that gets steeper towards "
        "the border.",
        "Height of the entropy over the triangle (top +), and a cut along the dotted line. Look "
        "where the lines of 0.9 end, and in the last panel at the first bit of the way in: α = 1 "
        "starts vertically, the others at a finite slope.",
    ),
    "smoothing_kernels": (
        "Four bell curves of variance 1 around 0. Epanechnikov's is a parabola that ends at ±2.2 "
        "with a corner; the biweight ends at ±2.6 and the triweight at ±3, ever more smoothly; "
        "the Gaussian never ends.",
        "Weights of positions x for a query at 0, scores −x²/2h², all with variance 1. Look at "
        "the ends: a corner for α = 2, smoother for smaller α, none for softmax.",
    ),
    # notebook 3
    "levels_of_search": (
        "Two rows of five panels with five scores as bars and the water level of each pass. "
        "Bisection: levels −0.12, −0.26, −0.19, −0.16 and −0.14, with F = 0.93, 1.42, 1.16, 1.04 "
        "and 0.98. Newton: −0.40, −0.20, −0.15, −0.15, −0.15 with F = 2.07, 1.17, 1.01, 1.00 and "
        "1.00.",
        "The level of each pass, and above it F, the sum over what stands out. Look at the "
        "direction: bisection goes down and up, Newton only climbs, and is there at the fourth. "
        "Bisection gets there at its seventh.",
    ),
    "sums_of_threshold": (
        "F against τ for five scores and α = 1.5, 2 and 4: falling curves that reach zero where "
        "τ is the largest score. Each crosses the line F = 1 once, at a marked dot between max x "
        "− 1 and max x. The curves of 1.5 and 2 are convex, the one of 4 is not.",
        "F(τ) for five scores; dots: where it is one, which is the threshold. The axis starts "
        "from the largest score: every root lies less than 1 below it, and every curve falls.",
    ),
    "one_step": (
        "F − 1 against τ, a falling convex curve, near its root. From the start, at the left, a "
        "straight tangent reaches zero at three quarters of the way; a hyperbola that shares "
        "value, slope and curvature at the start reaches zero much nearer to it.",
        "One step from max x − 1, α = 1.25. Dots: where Newton's tangent and Halley's hyperbola "
        "cross zero, and the root. Look at how long each stays on the curve.",
    ),
    "passes_by_digits": (
        "Mean number of passes against right decimal digits of τ, for rows of 1000 scores, at α "
        "= 1.25 and 1.5. Bisection is a straight line of 3.3 passes per digit, up to about 42. "
        "Newton and Halley need well under ten passes for 13 digits and their curves are nearly "
        "flat.",
        "Passes over the row until τ has so many right decimal digits; marks are means over "
        "rows. Bisection pays 3.3 passes for each digit; Newton and Halley bend away from it, "
        "since each of their passes doubles or triples the digits.",
    ),
    "passes_until_sure": (
        "Passes until the support is certain, for two scores 0 and −1 + δ, against k where δ is "
        "2 to the power −k. Bisection needs about k passes, a straight line up to 47. Newton's "
        "method and sorting need one each, whatever k.",
        "Passes until it is certain which scores are in the support, for the row (0, −1 + δ). "
        "Look at the grey line: bisection needs one pass for each bit of δ, so no number of "
        "passes is enough for all rows.",
    ),
    "steep_at_threshold": (
        "Left: the probability of a score that passes the threshold at α = 4, against the number "
        "of float32 values past it. Computed from a rounded τ it jumps from 0 to thousandths; "
        "from the largest probability it rises from 0 without a jump. Right: by how much the "
        "next float32 raises a probability among d equal scores, against d, for α = 1.5, 2 and "
        "4: nearly 1e-7 times the root of d, d and d cubed; for α = 4 more than 1 beyond 250 "
        "scores.",
        "Left: a dot per score t, float32 values counted from the one at which the third choice "
        "enters; look at the gap between zero and the first dot above it. Right: what rounding "
        "one score to float32 may do to its probability; look at the slope of α = 4: no program "
        "that is given float32 scores can know such a p.",
    ),
    # notebook 4
    "slack_of_a_choice": (
        "Left: five scores as bars that begin at the level −0.50: four stand above it, the fifth "
        "score is 0.60 below, a gap marked as slack. Right: the five probabilities against the "
        "fifth score: horizontal lines up to −0.50, then the fifth rises and the others fall.",
        "Left: five scores and the level; the gap between the fifth score and the level is its "
        "slack. Right: all five probabilities as the fifth score rises. Until the slack is used "
        "up nothing moves.",
    ),
    "measured_jacobians": (
        "Jacobians of entmax at one vector of five scores for α = 1, 1.25, 1.5 and 2, as "
        "coloured tables. All are symmetric, positive on the diagonal and not positive "
        "elsewhere. With growing α the rows and columns of the last choices become zero; for α = "
        "2 the remaining 3 by 3 block has .67 on its diagonal and −.33 elsewhere. A plain 0 is "
        "exactly zero; what only rounds to zero is written .00.",
        "Measured Jacobians at one z: row i says how pᵢ moves, column j which score moves it. "
        "Red positive, blue negative; a plain 0 is exactly zero, .00 only rounds to it. Look at "
        "the rows and columns that become zero as α grows, and at the block that remains for α = "
        "2.",
    ),
    "errors_by_step": (
        "The largest error of a numeric Jacobian of 1.5-entmax against the step h from 1e-13 to "
        "0.1, in double logarithmic scale: a V whose left side follows ε/h and whose right side "
        "follows h squared, lowest near h = 1e-5. A horizontal line shows the smaller error of "
        "check_jacobian.",
        "The largest error of a central difference against its step. Dotted: the bend of the "
        "curve; dashed: rounding. The best step lies where they cross; the red line is "
        "check_jacobian, which needs no step.",
    ),
    "entry_of_a_choice": (
        "The probability of the third of three choices and its slope against its score t, the "
        "others being 0, for α = 1, 1.5, 2 and 4. Softmax is positive everywhere. For α = 1.5 "
        "the probability leaves zero smoothly at t = −1.41 and the slope is continuous; for α = "
        "2 the slope jumps from 0 to 2/3 at t = −1/2; for α = 4 it jumps to 8, just below t = 0, "
        "out of the picture, and goes up to 9.",
        "Left: the third probability as its score rises from below. Right: its slope. Look at "
        "the moment of entry: α = 1.5 leaves zero smoothly, α = 2 with a jump of its slope to "
        "2/3, α = 4 to 8, far above the picture (and from there to its peak, 9, at p₃ = 1/9).",
    ),
    # notebook 5
    "gaps_to_target": (
        "Three hills over the probability of the first choice. Sparsemax with a lead of 0.4: the "
        "top is at 0.7, 0.09 above the right end, a gap marked as the loss. Sparsemax with a "
        "lead of 1.2: the top is the right end, and the gap is zero. Softmax with the same lead: "
        "the top is at 0.77, and the gap 0.26, because the hill falls steeply at its end.",
        "Hills p·z − Ω(p) over p₁, for scores (t, 0). Dot: the prediction; square: the target. "
        "The loss is the gap between their heights. Look at the right end: softmax's hill is "
        "vertical there, so its top never gets to it.",
    ),
    "losses_of_two": (
        "Losses of two choices against the lead t of the gold score, for α = 1, 1.25, 1.5, 2, 4 "
        "and infinity. All fall with slope −1 on the left. Those with α above 1 reach zero at a "
        "dot, at t = 4, 2, 1 and 1/3; cross-entropy only approaches it. The larger α, the lower "
        "the curve.",
        "The loss of two choices against the lead t of the gold score. Dots: where a loss "
        "reaches zero, at its margin. Look right of them: those curves stay at zero, "
        "cross-entropy does not.",
    ),
    "sets_of_species": (
        "The plane of petal length and width with the irises of three species, for α = 1.5 and "
        "2. Strong colours where a linear classifier gives probability to one species: setosa at "
        "the lower left, versicolor in a diagonal strip, virginica at the upper right. Hatched "
        "strips between them, labelled setosa or versicolor and versicolor or virginica, "
        "narrower for α = 2.",
        "Colour: one species alone has probability above zero. Hatched: two have; unlabelled, at "
        "the upper left for α = 1.5: all three. Marks: the flowers; dotted: where the largest "
        "score changes. Look at the strips next to the dotted lines: there the classifier "
        "answers with a set, and the larger α is, the narrower they are.",
    ),
    "descent": (
        "Gradient descent on separable data: left the norm of the weights, right the number of "
        "examples whose gradient is not zero, against the number of updates, for α = 1, 1.5 and "
        "2. With cross-entropy the norm keeps growing and all 100 examples keep a gradient. With "
        "α = 1.5 and 2 the norm levels off, and soon fewer than ten examples have a gradient.",
        "Plain gradient descent on two separable species. Left: the norm of the weights; right: "
        "how many of the 100 examples have a gradient. Look at the right end: with cross-entropy "
        "all of them do, and the norm is still growing.",
    ),
    # notebook 6
    "paths_in_alpha": (
        "Left: five probabilities of fixed scores against α from 1 to 3. The largest rises from "
        "0.41 to 0.80; the second rises until α = 1.77 and then falls; the others fall to zero "
        "one after the other and stay there. Right: their slopes, continuous, with bends where a "
        "probability reaches zero; at 1.77, where the third does, they fall almost vertically.",
        "Left: five probabilities as α grows, one curve per score. Right: their slopes. Look at "
        "the curves reaching zero, one after the other, never to return, and at what the slopes "
        "of the others do at that moment: a bend, at α = 1.77 almost a wall.",
    ),
    "errors_of_slopes": (
        "The relative error of the derivative in α against α − 1, in double logarithmic scale. "
        "The published formula's error grows like ε over β squared as β falls: it passes 1, no "
        "digit right, near β = 1e-8 and reaches 1e13. The rearranged formula and the library "
        "stay near 1e-16. At α = 2, the right end, all three agree.",
        "Relative error of ∂p/∂α against α − 1, at one p. Dots: the published formula, along the "
        "dotted ε/β²; above the horizontal line, to the left of 1e-8, not even its first digit "
        "is right. The two curves that run along the bottom, near the rounding of one number, "
        "are the rearranged formula and the library.",
    ),
    "recovered_alphas": (
        "Learned α against updates: three starts, near 1.08, 1.5 and 1.92, for each of three "
        "hidden values 1.2, 1.5 and 1.8. All nine curves end at their hidden value.",
        "A curve per student: α against updates, from three starts, for each of three hidden "
        "values (by colour). All of them end on their hidden value.",
    ),
    "two_heads": (
        "Training of two heads' α from 1.5. The head that has to report the mean of all values "
        "moves towards α = 1 and its support grows to all eight tokens; the head that has to "
        "report the value of the best token moves towards α = 2 and its support shrinks to about "
        "two.",
        "Two heads learn nothing but their α. Left: α; right: how many of eight tokens they "
        "attend to. The head that needs the mean goes to softmax, the one that needs the best "
        "token to sparsemax.",
    ),
    "falls_and_returns": (
        "Left, above: α against updates. With the query learned it falls from 1.5 to {lowest} "
        "within twenty updates and then rises towards 2, for three first queries; with the query "
        "held wrong it falls to 1, with the query held right it rises to 2. Left, below: the "
        "angle of the three learned queries, from about 107, 90 and 135 degrees to 0. Right: the "
        "slope of the loss in α against the angle of a fixed query: negative up to some 30 "
        "degrees, positive beyond.",
        "Left: α and the query's angle during training, for three first queries; a dot where α "
        "turns. Grey: the query held fixed. Right: the slope of the loss in α at α = 1.5, no "
        "training at all, against the angle of a query of length 1. Look at which side of zero "
        "it is on.",
    ),
    "five_in_one": (
        "Six panels for the scores 1.2, 0.9, 0.3, −0.4 and −1, and α = 1.5: the probabilities; "
        "the entropy's terms; the scores, three of them above the level −0.29; the Jacobian, a "
        "block of 3 rows and columns with zeros around it; the gradient of the loss with the "
        "second as label, −0.64 there; and the slopes in α, positive for the first two, negative "
        "for the third.",
        "One vector of scores through six notebooks. Look at the last two: under water in the "
        "third panel, and exactly 0 in all others.",
    ),
    # notebook 7a
    "attention_bars": (
        "Three bar charts of attention over the words I am going to the store. Sparsemax gives "
        ".07 to I, nothing to am, .57 to going and .37 to store. Fusedmax gives an equal share, "
        ".22, to each of the neighbours I, am and going, and .35 to store. Oscarmax gives a "
        "third each to I, going and store, which are not neighbours.",
        "Attention over six words: a bar per word, 0 where it is exactly zero. Look at “I am "
        "going”: a hole, one share for neighbours, and one share for words that are not "
        "neighbours.",
    ),
    "taut_string": (
        "Above: the running sums of sixteen scores as a zigzag inside a tube, and a string "
        "pulled taut through the tube, straight but for a few bends, each at the tube's wall. "
        "Below: the scores as dots and the slopes of the string, which are constant over runs of "
        "neighbours and follow the level of the dots.",
        "Above: running sums of the scores (dotted) in a tube of radius λ, and the string pulled "
        "taut through it; dots mark its bends. Below: the scores, and the slopes of the string. "
        "Each bend touches the wall, and between bends the smoothed scores are equal.",
    ),
    "chain_slopes": (
        "Three panels of rising polylines, f1, f2 and f3, with a band from −0.2 to 0.2. In the "
        "first two, dots where the line enters and leaves the band, at 0.9 and 1.3, and at 0.3 "
        "and 0.7. In the third a dot where the line crosses zero, at 0.65.",
        "The slopes f of Johnson's method for three scores. What leaves the band of ±λ is cut "
        "off (dashed), and the line x − z of the next score is added: that is the next panel. "
        "Dots: l and h; the last dot is u₃, from which the others follow to the left.",
    ),
    "strength_paths": (
        "Two panels: the probabilities of the six words against the strength, above for fusedmax "
        "and below for oscarmax. At strength 0 both are sparsemax. Curves meet and then run "
        "together: in fusedmax I and am first, then going, in oscarmax going, I and store. At "
        "the right end all six are one sixth.",
        "Probabilities of the six words as the strength grows. A thick line is a group, with the "
        "names of its members: where two neighbours (above) or any two words (below) meet above "
        "zero, they stay together. On the line at zero lie words without any probability. Look "
        "at who joins whom: above, store crosses the group on its left without joining it.",
    ),
    "jacobian_tables": (
        "Three Jacobians as coloured tables. Sparsemax: I, going and store have .67 on the "
        "diagonal and −.33 between them, am nothing. Fusedmax: I, am and going form a block of "
        "nine equal entries, .08, and each has −.25 with store. Oscarmax: going and store form a "
        "block of .17 and have −.33 with I. All else is zero.",
        "Jacobians at the scores of 7.1: red positive, blue negative, a plain 0 exactly zero. "
        "Look for blocks of equal entries: a group moves as one, and raising one member raises "
        "all of it.",
    ),
    # notebook 7b
    "clipped_water": (
        "Three panels of bars for the scores 1.2, 0.8 and 0.4. Sparsemax: water up to 0.5, 0.7 "
        "and 0.3 stand out. Csparsemax: the first bar is cut at its bound, 0.4; the water has "
        "fallen to 0.3, and 0.5 and 0.1 stand out of the other two. Csoftmax: the first "
        "probability is cut at 0.4, the two others have grown in proportion.",
        "Left: without bounds. Middle: what stands out of the water may not exceed the bound "
        "(short line); what is cut off is hatched, and the level falls until the parts sum to 1 "
        "again. Right: with csoftmax the others grow in proportion (outlines: softmax). Look at "
        "the third bar.",
    ),
    "fertility": (
        "Triangles of attention over the words United, Nations and elections: a row for each of "
        "three steps, a column each for softmax, sparsemax, csoftmax and csparsemax, and in the "
        "last row bars of the total. The part that the bounds allow is shaded: the whole "
        "triangle at first, for the constrained mappings a smaller part in the second step and a "
        "single point in the third. The totals of softmax and sparsemax exceed 1 for Nations and "
        "elections and fall short for United; those of the constrained mappings are 1 for each "
        "word.",
        "A row per step, a column per mapping; the dot is the attention over United, Nations and "
        "elections, the shaded part what the bounds still allow. Below: the attention each word "
        "got in all, red above its fertility of 1. Look at the third row: a single point is "
        "left, and “Unidas” has to attend to “United”.",
    ),
    "third_of_three": (
        "The probability of the third of three choices against its score t. Top-2 softmax is 0 "
        "up to t = 0.5 and jumps there to 0.38; 1.5-entmax and sparsemax leave zero without a "
        "jump.",
        "The probability of a third score t next to 1 and 0.5. The break in the black line at t "
        "= 0.5 is a jump: there the third score overtakes the second and takes all it had. The "
        "two others leave zero without one.",
    ),
    "budget_levels": (
        "The sum of the four clipped scores against the threshold: a falling polyline from 4 to "
        "0 that bends at eight dots. Dotted lines read off the thresholds for the budgets 1, 2 "
        "and 3, with the shares that they give; a larger budget fills the first choices to 1.",
        "How much is handed out if the threshold is τ; dots: where a choice enters or is full. "
        "Dotted lines read off the thresholds for k = 1, 2, 3. Look at k = 3: the first choices "
        "are full, at 1.",
    ),
    # notebook 7c
    "ranks_in_the_plane": (
        "A hexagon with the six orders of 1, 2, 3 at its corners, and a path inside: it starts "
        "at the corner (3, 2, 1), runs along the edge towards (2, 3, 1), then from the edge to "
        "the centre.",
        "The soft ranks of z = (1.1, 1.0, 0.2) as ε grows, from the corner of the hard ranks to "
        "the centre (2, 2, 2). Look at the first part: along an edge, where the two close scores "
        "share.",
    ),
    "active_sets": (
        "{panels} panels of a polygon with six corners and a point z below it. Filled corners "
        "are active; a cross, the best point of their hull, ends at the projection of z.",
        "The active set, step by step: filled corners are active, the cross is μ, an arrow "
        "points to the corner that the oracle adds. Look at the last panel: z − μ is at right "
        "angles to the edge.",
    ),
    "matching_of_words": (
        "Three maps of attention from four target words to six source words. By rows, store gets "
        "more than 1 from loja and agora together; in matchings no source word gets more than 1, "
        "but agora takes going, before store; in non-crossing alignments no weight lies to the "
        "left of another's in a row above, and agora is left alone in part.",
        "Left, sparsemax of each row: a column may sum to more than 1. Middle, SparseMAP over "
        "matchings. Right, over non-crossing alignments: look at the last row, where “going” "
        "would cross.",
    ),
    # notebook 8
    "keys_and_queries": (
        "Two pictures of the same six arrows from the origin, each with a number at its tip. On "
        "the left a dashed arrow, the query, points up, and several of the others have some "
        "width. On the right it points to the right, and the arrow that reaches furthest to the "
        "right has all width.",
        "The six keys of one example as arrows, with the number at each. Width and percentage "
        "show the attention by 1.5-entmax; grey arrows get exactly none. Dashed: the direction "
        "of the query. The right answer is {answer:.2f}.",
    ),
    "tape_graph": (
        "A graph of the computation of L = (w x + b) x: boxes for w, x and b at the left, then u, "
        "v and L, joined by arrows in the direction of the computation. Each box holds its value "
        "and its gradient, and its turn in the sweep: L is first, and x comes after u and L, "
        "which use it.",
        "The tape of L = (wx + b)·x at x = 2, w = 3, b = −1. White: what was given; arrows run as "
        "the computation did. Orange: the order of the sweep, against the arrows. x is used by u "
        "and by L, so it comes after both, with the sum 6 + 5.",
    ),
    "errors_of_models": (
        "The mean squared error of the toy task against updates, in logarithmic scale, for "
        "attention by softmax and by 1.5-entmax. Both fall; that of 1.5-entmax lies lower in the "
        "end.",
        "The model's error while your tape trains it. Look at the right end: softmax has to make "
        "its query ever longer to come near to picking one number; a sparse mapping can pick one.",
    ),
    # notebook 8b
    "recurrent_step": (
        "Two diagrams. Left: three encoder states in a row lead up to scores, attention and "
        "average; the query q(k−1) leads to the scores too. Average, q(k−1) and the word y(k−1) "
        "lead into the decoder LSTM, from which arrows go to q(k) and y(k). Right: the four gates "
        "f, i, g, o; old cell times f plus i times g is the new cell, and o times its tanh the "
        "new state.",
        "Left: a step of the decoder. Input feeding, in orange: the average of the encoder's "
        "states is an input of the LSTM. Right: inside an LSTM, the four gates and the cell, "
        "equation (8.2).",
    ),
    "reach_of_gradients": (
        "The size of the gradient of the last of 60 steps in the gates of each step, in "
        "logarithmic scale, for three biases of the forget gate. With bias 0 it falls by many "
        "powers of ten towards the first step, with bias 1 by fewer, with bias 3 by less than "
        "one.",
        "How much the last hidden state depends on the gates of step t, for three biases of the "
        "forget gate. Compare the left end with the right: with bias 3 {reach[3]:.0%} arrives "
        "from there, with bias 1 less than a millionth, with bias 0 nothing that could be "
        "learned from.",
    ),
    "training_of_scores": (
        "The training loss of the reversal task against updates, in logarithmic scale, for the "
        "four attention scores. All four fall from about {smooth[dot][0]:.1f} to about 0.01 or "
        "less, but not steadily: they climb now and then before they fall on.",
        "Training loss of the four scores on the reversal task (means of {window} updates). Each "
        "falls by a factor of {fall:.0f} or more, and none of them steadily. One run each: which "
        "of them is lowest in the end says little.",
    ),
    "backwards_letters": (
        "Attention of two models while a string of eight letters is written backwards: a row for "
        "each written letter, a column for each read one. The cells with weight lie on the "
        "diagonal from the upper right to the lower left or just next to it; most others are "
        "blank.",
        "Attention while a string is written backwards. On the diagonal from upper right to "
        "lower left the letter that is read is the one to be written; a cell to its right, "
        "offset +1, is the letter that was read after it, whose state knows it too.",
    ),
    # notebook 9
    "beam_first_look": (
        "Above: a tree from left to right; from the start to a 0.5, b 0.3 and c 0.2, which is "
        "pruned; from a to aa 0.4 and to the finished a 0.1; from b to the finished b 0.3; from "
        "aa to the finished aa 0.4. Below, bars of height 1: all open, then 0.2 lost, then 0.4 "
        "finished, at last 0.8 finished and 0.2 lost.",
        "Above: the prefixes of each step with their probability. Orange: open. Blue: finished, a "
        "dot ends the string. Dashed: pruned. Below: where all probability is after each step.",
    ),
    "inflection_model": (
        "A diagram. At the bottom the source symbols, each read by an encoder that goes right and "
        "one that goes left; both lead to the states h. The states and the query of the decoder "
        "LSTM lead to the average c(t); average and s(t) lead to õ(t), and from there to the next "
        "letter. The decoder reads the letter before and õ(t − 1), which is marked as input "
        "feeding.",
        "The model. White: what goes in and comes out. The decoder's state is the query of the "
        "attention; input feeding, in orange, hands õ on to the next step.",
    ),
    "training_curves": (
        "Training curves of the two models. Left: both losses fall steeply at first and level "
        "off. Right: the share of held-out forms that are entirely right, which rises to "
        "{sparse_history.best_accuracy:.0%} for 1.5-entmax and {dense_history.best_accuracy:.0%} "
        "for softmax; at the first evaluation the two are {apart[0]:.0%} apart, in the second "
        "half of the training at most {later:.0%}.",
        "Training of the two models: a mark per evaluation. Left: the loss, each model in its "
        "own, so that only the shapes can be compared, not the heights. Right: the share of "
        "held-out forms with every letter right, which can be compared. Look at the second half "
        "of the right panel: the two can hardly be told apart.",
    ),
    "beam_on_draw": (
        "Above: the prefixes that a beam of 1 meets on draw, from its third step on; up to draw "
        "it is one, then it branches and one branch is kept. Below: bars of height 1 with the "
        "finished, open and lost probability; in the end {final[0]:.1%} is finished and "
        "{final[2]:.1%} lost.",
        "A beam of 1 on draw, from its third step on: prefixes with their probability, and below "
        "where all probability is. Orange: open. Blue: finished. Dashed: pruned.",
    ),
    "lost_by_width": (
        "The mass that a beam of width 1 to 20 loses on draw. For softmax it falls slowly and "
        "never reaches zero; for 1.5-entmax it is exactly zero from a small width on.",
        "What beams of 1 to 20 lose in the end. Look at the bottom line: only the sparse model "
        "ever reaches exactly zero.",
    ),
    "tree_of_draw": (
        "The tree of the strings that the model finds possible for draw: {listing}.",
        "Every string that the sparse model finds possible, as a tree of letters; the number at "
        "a leaf is the probability of the whole string. What is not drawn has probability zero "
        "if the certificate below says so.",
    ),
    "possible_at_steps": (
        "What is possible at each step of {form}: {steps}.",
        "What is possible at each step of the given string: letters without a choice share a "
        "box, a choice is shown with all its alternatives. Look for a letter that is marked "
        "impossible.",
    ),
    "attention_on_draw": (
        "Attention of the two models while they write their best answers for draw: a row for "
        "each letter written, a column for each tag and letter read. With 1.5-entmax "
        "{zeros[0]:.0%} of the cells are blank, exactly zero; with softmax every cell has some "
        "weight.",
        "Attention while the best answer is written: a row per letter written, a column per "
        "symbol read. Blank is exactly zero. Look at how few cells the left model needs; every "
        "cell of the right one has some weight.",
    ),
    "mass_of_others": (
        "The probability of all strings but the n most probable ones, against n, both "
        "logarithmic. The sparse model's reaches zero after {strings} strings; that of softmax "
        "falls slowly and is still {softmax:.1g} after {size} strings.",
        "The probability that is left for all other strings once n are listed. Look at the end "
        "of each curve: the sparse one reaches zero and stops; softmax goes on and always leaves "
        "something.",
    ),
    "complete_by_width": (
        "Share of held-out forms against the beam's width from 1 to 10. Lists proved complete by "
        "1.5-entmax rise from {first:.0%} to {last:.0%}; a dashed line marks the {single:.0%} "
        "with a single possible string; softmax stays at zero.",
        "Share of the held-out forms for which a beam of width k is proved complete. The dashed "
        "line: forms with one possible string only, for which k = 1 is enough. Softmax stays at "
        "zero for every k.",
    ),
    "reliability": (
        "Accuracy of the best answers against their confidence, in ten bins, for both models; "
        "the diagonal would be perfect. Expected error: {described}.",
        "A mark per model and bin of confidence, the larger the more answers it holds: the "
        "largest, at the upper right, holds {most:.0%} of them, the smallest only a few, and "
        "where those lie is mostly luck. On the grey diagonal the probabilities would mean what "
        "they say; below it a model is surer than it is right, above it less sure.",
    ),
    "price_of_zeros": (
        "Left: the share of held-out correct forms to which a model gives probability zero, "
        "against the number of updates, for α = 1, 1.25, 1.5 and 2. Softmax stays at zero; after "
        "the longest training it is {shares}. Right: the perplexity of the forms that are "
        "possible.",
        "Left: how many correct held-out forms are impossible for the model, one run per mark; "
        "the bars are 95% intervals over verbs. Right: perplexity per letter, of the other forms "
        "alone. Look at the left panel: bars of neighbouring α overlap; those of α = 1.25 and 2 "
        "do so at {overlapping} of {count} lengths.",
    ),
    # notebook 10
    "looks_at_a_row": (
        "4,096 scores by place. {below:,} lie below the line two under the largest, {above} "
        "above a second, higher line; {live} of 16 chunks of 256 scores hold one of these and "
        "are shaded.",
        "The scores of one row. Grey is ruled out by the largest score alone, orange by the "
        "level of a small part of the row (section 10.2). What is blue needs arithmetic; only "
        "shaded chunks are read again.",
    ),
    "scores_in_reach": (
        "Mean number of standard normal scores in reach of the largest, and in the support, "
        "against the length of the row, {lengths[0]} to {longest:,}, double logarithmic. All grow "
        "more slowly than the row, those in reach for α = 1.25 only a little. Those in reach grow "
        "{growth}; supports lie below and grow more slowly still.",
        "How many scores are near the largest, within its reach (lines), and how many get "
        "probability (dots), against the length of the row; the grey line is all of them. Look at "
        "the distance from the grey line: that is the work that a comparison saves.",
    ),
    "shares_of_products": (
        "The share of multiplications that sparse attention keeps, forward and backward, against "
        "the number of positions, {lengths[0]} to {longest:,}, with a line at one sixth. It "
        "falls {falls}.",
        "What is left of the multiplications of dense attention, for scores of scale 1. The grey "
        "line is the sixth that finds out which keys count: no sparsity saves that one.",
    ),
    "intervals_of_scores": (
        "The 80 best keys by their upper bound, each with the interval of its score. Two lines "
        "lie close together: the level of the lower bounds and, {gap:.3f} above it, the "
        "threshold. {read} intervals reach above the lower line, {support} scores both.",
        "Intervals from copies of 8 bits, of the 80 keys of 4,096 that reach highest: {read} end "
        "above the level of all lower bounds, blue and orange: only these are read in full. The "
        "blue ones get a weight; every grey key is proved to get none.",
    ),
    # notebook 11
    "transformer_layers": (
        "Two columns. Left, the encoder: source symbols plus positions, then two side branches, "
        "norm and self-attention, norm and network, each added to the main line; a norm gives "
        "the memory. Right, the decoder: target symbols so far plus positions, then three "
        "branches, the second of which attends to the memory; at the top a norm and the scores "
        "of the next symbol.",
        "A Transformer with one layer on each side. Thick: the main line, to which each branch "
        "is added. Both columns can be repeated. Attention, in orange, mixes positions; all else "
        "works on each position alone.",
    ),
    "support_by_width": (
        "How many of 32 random keys 1.5-entmax keeps, against the width of the head. Without the "
        "factor the curve falls from about five to one; with it, it stays between eight and ten.",
        "Random queries and keys: how many of 32 keys get any weight from 1.5-entmax, by the "
        "width of the head. Solid: scores as they are. Dashed: divided by the square root of the "
        "width.",
    ),
    "position_products": (
        "A square of 48 by 48 positions coloured by the product of their encodings: stripes "
        "along the diagonal, darkest on it and paler with distance, the same at every place.",
        "The product of the encodings of two positions. All along a diagonal the colour is the "
        "same: the product tells how far apart two positions are, and not where.",
    ),
    "starts_of_training": (
        "Left: training losses of softmax, 1.5-entmax and top-2, five thin lines each, in "
        "logarithmic scale; all fall from 1 to below a hundredth, those of top-2 later. Right: "
        "the update at which the loss is first below 0.1, a mark per run; the marks of top-2 lie "
        "above all others.",
        "Left: the training loss of {runs} runs with each mapping, thick the middle one at each "
        "update. Right: the update at which a run's loss first falls below 0.1. Look at whether "
        "the marks of two mappings overlap.",
    ),
    "heads_that_copy": (
        "Attention of three models while they write a string backwards, a panel each: a row per "
        "letter written, a column per letter read. Softmax has weight in every cell, the others "
        "in few, most of it on the diagonal from the upper right to the lower left.",
        "Attention to the source while a string is written backwards: a row per letter written, "
        "a column per letter read; blank is exactly zero. Softmax leaves no cell blank, the "
        "sparse mappings most. Look along the diagonal from upper right to lower left.",
    ),
    # notebook 12
    "alpha_paths": (
        "Three panels with twelve lines each, the α of every head from update 1,200 to 3,200. "
        "All fall steeply at first. In the context and decoder panels they go on falling, more "
        "slowly. In the encoder panel five lines, drawn thick with a dot at their lowest place, "
        "rise again.",
        "The α of all 36 heads of one training, by kind of attention; a colour per layer. Thick, "
        "with a dot at its lowest place: a head whose α has risen again by more than 0.01.",
    ),
    "density_by_alpha": (
        "Left: the densities of twelve heads for each kind of attention, in four models: softmax "
        "at 1 everywhere; those of α learned spread from a fifth to one; those of 1.5-entmax and "
        "top 8 are closer together. Right: density against learned α: it falls from 1 near α = "
        "1.1 to a fifth at 1.47, with a wide scatter.",
        "Left: a mark per head, by model and kind of attention; within a group heads stand in the "
        "order of their density, so its slant says nothing. Right: the heads with a learned α, "
        "density against α. Look at heads with nearly the same α: their densities differ by up to "
        "a half.",
    ),
    "diversity_of_layers": (
        "Nine rows, three layers of each kind of attention, with the difference of the "
        "Jensen-Shannon divergence from softmax's for 1.5-entmax, α learned and top 8: all to "
        "the right of zero, from 0.01 to 0.16, but for one of top 8. The intervals are hardly "
        "wider than the marks.",
        "Divergence between the heads of a layer, minus softmax's, with 95% intervals over "
        "sentences. Right of the line: the sparse heads disagree more. Look at how far the "
        "layers differ compared with the width of an interval.",
    ),
    "heads_on_sentences": (
        "Two heat maps of one head. In the question the rows of wer and was have nearly all "
        "their weight in the column of the question mark; in the statement in that of the full "
        "stop.",
        "The interrogation head on a question, and on the same words as a statement. Look at the "
        "rows of wer and was: they look for the mark, whichever it is. White: exactly zero.",
    ),
    # notebook 13
    "module_of_choice": (
        "Five tables, three above two, joined by arrows: the scores of three queries for six "
        "keys; the same with all but the two largest of each row minus infinity; the weights, two "
        "in each row and zeros; the values, six rows of two numbers; and the result, three rows "
        "of two.",
        "Scores P, the choice M (k = 2, grey: −∞), the weights A = softmax(M), the values V and "
        "the result AV. Look at a row of A: two weights, whatever the scores are.",
    ),
    "weights_of_listing": (
        "Two histograms of the largest weight of a row, for random queries and keys. Without the "
        "root of d most rows have a largest weight near 1; divided by it most have one near 0.4.",
        "The largest of four weights, for random queries and keys of 64 features: with the "
        "listing's scores, and with the factor of the paper's own equation. The same keys are "
        "kept.",
    ),
    "gradient_lengths": (
        "The length of the gradient against k from 1 to 32: zero at k = 1, largest at k = 2 and "
        "4, and falling from there. A square marks 1.5-entmax, at 8 scores in the support, above "
        "the line.",
        "Length of the gradient that reaches the scores, rows of 32 random scores, a random "
        "gradient in the weights. The square is 1.5-entmax, at the mean size of its support.",
    ),
    "accuracy_by_k": (
        "Accuracy against k from 1 to 8 and all, for two tasks. Both are lowest at k = 1. "
        "Backwards is near 100% from k = 2 on; majority rises more slowly with k.",
        "Tokens right after {updates} updates, by the k of all heads: a task that needs one "
        "letter at a time, and one that needs many.",
    ),
    "choice_in_rows": (
        "Two bar charts of attention over the letters that were read, softmax's weights and "
        "those after a choice of two. Backwards: most of the weight is on two letters, and the "
        "choice changes little. Majority: all nine weights are near a ninth, and the choice "
        "gives half to each of two.",
        "One row of attention of a model that was trained with softmax (pale), and the same row "
        "when only the two largest scores are kept (dark). Left the choice removes little, right "
        "seven ninths.",
    ),
    "mappings_swapped": (
        "Two panels of the share of right tokens against the mapping of use, from top-1 to "
        "softmax, with a line for each mapping of training. Backwards: all lines are at 100% "
        "from top-4 on, softmax's falls to 90% at top-1. Majority: softmax's line falls below "
        "60% at top-4; those of top-4 and top-2 rise towards softmax.",
        "Trained with one mapping (a line), used with another (from left to right, sparse to "
        "dense); a ring where both are the same. Look at softmax's line on majority, from right "
        "to left.",
    ),
    "captions_swapped": (
        "The share of right captions against the mapping of use, from top-1 to softmax. Trained "
        "with softmax it rises from 64% to 98%; trained with top-4 it is near 100% from top-2 to "
        "top-8 and falls to 87% with softmax; trained with 1.5-entmax it falls after top-4, to "
        "6% with softmax.",
        "Captions of images: trained with one mapping (a line), used with another; the share of "
        "captions that are right in every word. Look at the right end, where 60 small scores "
        "return.",
    ),
    # notebook 14
    "possible_by_position": (
        "Bars over the characters of a sentence: three are right at the first place and at the "
        "beginnings of words, two at the verb, one at all others. A line at 22 shows what "
        "softmax leaves possible.",
        "How many characters may stand at each place of a sentence of the language (↵ ends the "
        "line). The dashed line is what softmax leaves possible, however long it is trained.",
    ),
    "ranked_characters": (
        "Probabilities of all characters after 'one dog hear', in falling order and logarithmic "
        "scale, with a line for zero below. The circles of softmax go on to the last character; "
        "of the squares of 1.5-entmax the first is at one, and the others lie on the line of "
        "zeros.",
        "All characters after 'one dog hear', the most probable first. Softmax (circles) has a "
        "tail that never ends. 1.5-entmax (squares) has zeros, on the line at the bottom, which "
        "no logarithmic scale could show otherwise.",
    ),
    "grammatical_by_temperature": (
        "The share of grammatical lines against the temperature, a thin line per seed and their "
        "mean. Softmax falls from one to less than a quarter at temperature 2, 1.5-entmax stays "
        "above one half.",
        "Share of {lines} lines that are sentences of the language, against the temperature at "
        "which they were drawn: a thin line per seed, and the mean. Look at the right end.",
    ),
    "k_of_shakespeare": (
        "Bits per character on Shakespeare against the number of weights that each head keeps: "
        "falling steeply from one to four, flat from eight on.",
        "Bits per character of the last 16,384 characters of Shakespeare, by the number of "
        "weights that each head keeps when the model is read. A line per model, named by what it "
        "was trained with.",
    ),
    # notebook 15
    "ways_to_be_sparse": (
        "Bars of six falling scores and of what nine mappings make of them: softmax keeps all six.",
        "Grey: the scores. Blue: what each mapping makes of them. A plain 0 is exactly zero. "
        "Look at how many bars are left, and how even they are.",
    ),
    # notebook 16
    "supports_by_length": (
        "Three panels in double logarithmic scale, number of keys in use against n from 16 to a "
        "million. Uniform scores: straight lines, softmax steepest, then 1.5-entmax, then "
        "sparsemax. Normal scores: softmax proportional to n, both others nearly level, below "
        "50. Scaled normal scores: 1.5-entmax level near 8, sparsemax near 3, softmax rising "
        "more slowly than before.",
        "Keys in use against the length: the support of 1.5-entmax and sparsemax, e^H of "
        "softmax. Marks are measured, lines are the laws of this section. Look at the right "
        "panel: a scale that grows with √(log n) keeps the support of 1.5-entmax near 8.",
    ),
    "trained_by_length": (
        "Two columns, key and largest, of four panels against n from 16 to 16,384. The share of "
        "right answers falls in all; softmax falls first. Its largest weight falls and its "
        "entropy rises fastest, and its support is n. 1.5-entmax and sparsemax are between "
        "softmax and the mappings whose scores grow with log n.",
        "Trained on at most 16 items (left of the dotted line), tested on more: means of the "
        "seeds, a bar from the least to the largest; dashed: chance. Look at the first row: "
        "which lines fall first, and whether the bars of two of them overlap. (“marked” is in "
        "the table below.)",
    ),
}
