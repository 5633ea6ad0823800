"""The pictures of heads: what they hold, never pixels."""

import io

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pictures need the extra: pip install pyentmax[models]")

from pyentmax.plotting import (
    AttentionPanel,
    plot_alpha_histograms,
    plot_alpha_trajectories,
    plot_attention_panels,
    plot_choice_of_k,
    plot_density_histograms,
    plot_head_densities,
    plot_head_diversity,
    plot_positional_confidence,
)

KINDS = ("encoder", "context", "decoder")
RNG = np.random.default_rng(0)


def titles(ax):
    return [axes.get_title() for axes in ax.figure.axes]


def labels_of_legend(ax):
    return [text.get_text() for text in ax.figure.legends[0].get_texts()]


def test_trajectories_have_line_per_head_colour_per_layer():
    paths = {kind: 1 + RNG.random((5, 3, 4)) for kind in KINDS}
    ax = plot_alpha_trajectories(20 * np.arange(5), paths)
    assert len(titles(ax)) == 3
    for axes, path in zip(ax.figure.axes, paths.values(), strict=True):
        drawn = np.array([line.get_ydata() for line in axes.lines])
        np.testing.assert_array_equal(drawn, path.reshape(5, 12).T)
        assert len({line.get_color() for line in axes.lines}) == 3


def test_histograms_count_heads_and_sentences():
    ax = plot_alpha_histograms({"encoder": [[1.05, 1.06], [1.95, 1.55]]})
    assert [bar.get_height() for bar in ax.patches] == [2, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    ax = plot_density_histograms({"a": {"encoder": np.ones(8)}, "b": {"encoder": np.full(4, 0.5)}})
    first, second = ax.figure.axes
    assert [bar.get_height() for bar in first.patches][-1] == pytest.approx(1, rel=1e-9, abs=0)
    assert sum(bar.get_height() for bar in second.patches) == pytest.approx(1, rel=1e-9, abs=0)


def test_densities_are_sorted_within_layers():
    densities = {name: {kind: RNG.random((3, 4)) for kind in KINDS} for name in ("a", "b")}
    ax = plot_head_densities(densities)
    drawn = np.array([line.get_ydata() for line in ax.lines])
    expected = np.concatenate([np.sort(densities[name]["encoder"], axis=1).T for name in "ab"])
    np.testing.assert_array_equal(drawn, expected)
    assert labels_of_legend(ax) == ["a", "b"]


def test_diversity_has_line_per_model_and_panel():
    diversity = {name: {kind: RNG.random(3) for kind in KINDS} for name in ("a", "b", "$c$")}
    ax = plot_head_diversity(diversity)
    assert titles(ax) == [
        "encoder self-attention",
        "context attention",
        "decoder self-attention",
    ]
    for axes, kind in zip(ax.figure.axes, KINDS, strict=True):
        for line, of_kind in zip(axes.lines, diversity.values(), strict=True):
            np.testing.assert_array_equal(line.get_ydata(), of_kind[kind])
    assert labels_of_legend(ax) == ["a", "b", "$c$"]


def test_confidences_are_sorted():
    ax = plot_positional_confidence({"previous": {"a": np.array([[0.1, 0.9]]), "b": [0.5]}})
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0.9, 0.1], [0.5]]


def test_choice_of_k_keeps_its_order():
    ax = plot_choice_of_k({"a": {"2": 10, "all": 30}, "b": {"2": 20, "all": 5}}, "right, %")
    assert [line.get_ydata().tolist() for line in ax.lines] == [[10, 30], [20, 5]]
    assert ax.get_ylabel() == "right, %"


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_attention_panels_keep_titles_without_empty_axes(count):
    panels = [
        AttentionPanel(f"head {i}, $x", np.eye(3 + i % 2), "abcd"[: 3 + i % 2], "abcd"[: 3 + i % 2])
        for i in range(count)
    ]
    ax = plot_attention_panels(panels, columns=3)
    assert titles(ax) == [panel.title for panel in panels]


def test_nothing_to_draw_is_an_error():
    for draw in (lambda: plot_attention_panels([]), lambda: plot_alpha_trajectories([], {})):
        with pytest.raises(ValueError, match="nothing to draw: expected at least one panel"):
            draw()


def test_labels_are_never_parsed_as_formulas():
    """A $ in the name of a kind, a panel or a score was read as a formula, or ended in an error."""
    strange = "a$^$b_{"
    pictures = [
        plot_alpha_trajectories([1], {strange: [[[1.5]]]}),
        plot_alpha_histograms({strange: [1.5]}),
        plot_density_histograms({strange: {strange: [0.5]}}),
        plot_head_densities({strange: {strange: [[0.5]]}}),
        plot_positional_confidence({strange: {strange: [0.5]}}),
        plot_choice_of_k({strange: {strange: 0.5}}, strange),
    ]
    for ax in pictures:
        ax.figure.savefig(io.BytesIO())
