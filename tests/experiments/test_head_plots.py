"""The pictures of heads: what they hold, never pixels."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pictures need the extra: pip install 'pyentmax[models]'")

from experiments.correia2019.head_plots import (
    plot_alpha_histograms,
    plot_alpha_trajectories,
    plot_choice_of_k,
    plot_density_histograms,
    plot_head_diversity,
    plot_positional_confidence,
)
from experiments.plots import plot_head_densities
from pyentmax.seq2seq.plotting import AttentionPanel, plot_attention_panels

KINDS = {
    "encoder": "encoder self-attention",
    "context": "context attention",
    "decoder": "decoder self-attention",
}
RNG = np.random.default_rng(0)


def titles(ax):
    return [axes.get_title() for axes in ax.figure.axes]


def drawn(axes):
    return np.array([line.get_ydata() for line in axes.lines])


def heights(axes):
    return [bar.get_height() for bar in axes.patches]


def test_trajectories_have_line_per_head_colour_per_layer():
    paths = {kind: 1 + RNG.random((5, 3, 4)) for kind in KINDS}
    ax = plot_alpha_trajectories(20 * np.arange(5), paths)
    assert titles(ax) == list(KINDS.values())
    for axes, path in zip(ax.figure.axes, paths.values(), strict=True):
        np.testing.assert_array_equal(drawn(axes), path.reshape(5, 12).T)
        assert len({line.get_color() for line in axes.lines}) == 3


def test_histograms_count_heads_and_sentences():
    ax = plot_alpha_histograms({"encoder": [[1.05, 1.06], [1.95, 1.55]]})
    assert heights(ax) == [2, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    ax = plot_density_histograms({"a": {"encoder": np.ones(8)}, "b": {"encoder": np.full(4, 0.5)}})
    first, second = map(heights, ax.figure.axes)
    assert first[-1] == pytest.approx(1, rel=1e-9, abs=0)
    assert sum(second) == pytest.approx(1, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("draw", "shape", "expected"),
    [
        (plot_head_densities, (3, 4), lambda x: np.sort(x, axis=1).T),
        (plot_head_diversity, (3,), lambda x: x[None]),
    ],
)
def test_measures_have_panel_per_kind_and_colour_per_model(draw, shape, expected):
    models = {name: {kind: RNG.random(shape) for kind in KINDS} for name in ("a", "b", "$c$")}
    ax = draw(models)
    assert titles(ax) == list(KINDS.values())
    for axes, kind in zip(ax.figure.axes, KINDS, strict=True):
        lines = np.concatenate([expected(by_kind[kind]) for by_kind in models.values()])
        np.testing.assert_array_equal(drawn(axes), lines)
        assert len({line.get_color() for line in axes.lines}) == 3
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == list(models)


def test_confidences_are_sorted_and_ks_are_not():
    ax = plot_positional_confidence({"previous": {"a": np.array([[0.1, 0.9]]), "b": [0.5]}})
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0.9, 0.1], [0.5]]
    ax = plot_choice_of_k({"a": {"2": 10, "all": 30}, "b": {"2": 20, "all": 5}}, "right, %")
    assert drawn(ax).tolist() == [[10, 30], [20, 5]]
    assert ax.get_ylabel() == "right, %"


@pytest.mark.parametrize("count", [1, 3, 5])
def test_attention_panels_keep_titles_without_empty_axes(count):
    panels = [
        AttentionPanel(f"head {i}, $x", np.eye(3 + i % 2), "abcd"[: 3 + i % 2], "abcd"[: 3 + i % 2])
        for i in range(count)
    ]
    assert titles(plot_attention_panels(panels, columns=3)) == [panel.title for panel in panels]


STRANGE = "a$^$b_{"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_alpha_trajectories([1], {STRANGE: [[[1.5]]]}),
        lambda: plot_density_histograms({STRANGE: {STRANGE: [0.5]}}),
        lambda: plot_positional_confidence({STRANGE: {STRANGE: [0.5]}}),
        lambda: plot_choice_of_k({STRANGE: {STRANGE: 0.5}}, STRANGE),
    ],
)
def test_labels_are_never_parsed_as_formulas(draw):
    draw().figure.draw_without_rendering()
