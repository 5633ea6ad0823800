"""What the pictures hold: texts, numbers of parts, places. Never pixels."""

from __future__ import annotations

import math
import struct
import sys

import numpy as np
import pytest

from pyentmax.seq2seq.decoding import ForcedDecoding, Hypothesis, HypothesisTree

pytest.importorskip("matplotlib", reason="pictures need the extra: pip install 'pyentmax[models]'")

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch

from experiments import plots
from pyentmax.seq2seq.plotting import (
    _figures,
    plot_attention,
    plot_forced_decoding,
    plot_hypothesis_tree,
    plot_mapping_curves,
    save_figure,
)

DRAW = {"drawed": 0.664, "drawn": 0.322, "draw": 0.014}
NESTED = {"bought": 0.4, "buyed": 0.36, "buyen": 0.18, "buy": 0.06}
BARE = {"was": 0.6, "give up": 0.3999, "動詞": 0.0001}


def tree_of(words):
    hypotheses = [Hypothesis(tuple(map(ord, word)), math.log(p)) for word, p in words.items()]
    return HypothesisTree.build(hypotheses, chr)


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_tree_shows_runs_strings_and_percentages():
    ax = plot_hypothesis_tree(tree_of(DRAW))
    runs = ["draw", "ed", "</s>", "n", "</s>", "</s>"]
    assert texts(ax) == [*runs, "drawed", "66.4%", "drawn", "32.2%", "draw", "1.4%"]
    assert sum(isinstance(patch, FancyBboxPatch) for patch in ax.patches) == 4
    widths = [patch.get_linewidth() for patch in ax.patches if isinstance(patch, PathPatch)]
    assert len(widths) == 3
    assert widths[0] > widths[1] > 2 * widths[2]


def test_nested_tree_shows_shares():
    shown = texts(plot_hypothesis_tree(tree_of(NESTED)))
    assert {"60.0%", "90.0%", "66.7%", "33.3%", "10.0%"} <= set(shown)
    assert shown.count("40.0%") == 2  # as a share and as the probability of the string


def extents_in_frame(ax):
    """The extents of all texts, which lie in the frame of the axes."""
    ax.figure.draw_without_rendering()
    frame = ax.get_window_extent()
    extents = [text.get_window_extent() for text in ax.texts]
    for extent in extents:
        assert frame.x0 <= extent.x0 < extent.x1 <= frame.x1
        assert frame.y0 <= extent.y0 < extent.y1 <= frame.y1
    return extents


@pytest.mark.parametrize("words", [NESTED, BARE, {"went": 1.0}, {"": 1.0}])
@pytest.mark.parametrize("size", [None, (4, 3)])
@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")  # the bundled font has no Chinese
def test_tree_text_stays_inside_its_box(words, size):
    ax = plot_hypothesis_tree(tree_of(words), Figure(size).add_subplot() if size else None)
    extents = extents_in_frame(ax)
    for box in [p.get_window_extent() for p in ax.patches if isinstance(p, FancyBboxPatch)]:
        inside = [e for e in extents if box.x0 < (e.x0 + e.x1) / 2 < box.x1]
        inside = [e for e in inside if box.y0 < (e.y0 + e.y1) / 2 < box.y1]
        assert inside
        assert all(box.x0 < e.x0 and e.x1 < box.x1 for e in inside)
        inside.sort(key=lambda e: e.x0)
        assert all(a.x1 < b.x0 for a, b in zip(inside, inside[1:], strict=False))


def test_spaces_are_visible_in_trees_and_attention():
    assert "give␣up" in texts(plot_hypothesis_tree(tree_of(BARE)))
    ax = plot_attention(np.eye(2), ["a", " "], [" ", "b"])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "␣"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["␣", "b"]


def test_attention_outlines_exactly_the_nonzeros():
    weights = np.array([[0.5, 0.5, 0.0], [0.0, 1e-30, 1.0]])
    ax = plot_attention(weights, ["<V>", "g", "o"], ["w", "</s>"])
    [cells] = ax.collections
    assert len(cells.get_paths()) == 4
    np.testing.assert_array_equal(cells.get_array(), [0.5, 0.5, 1e-30, 1.0])
    centres = [tuple(path.get_extents().get_points().mean(axis=0)) for path in cells.get_paths()]
    np.testing.assert_allclose(centres, [(0, 0), (1, 0), (1, 1), (2, 1)], rtol=0, atol=1e-12)
    assert cells.get_linewidth()[0] > 0
    assert ax.get_ylim() == (1.5, -0.5)  # the first target token is on top
    assert [label.get_text() for label in ax.get_xticklabels()] == ["<V>", "g", "o"]
    assert [label.get_rotation() for label in ax.get_xticklabels()] == [90, 0, 0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["w", "</s>"]


def test_mapping_curves_saturate_at_their_dots():
    ax = plot_mapping_curves()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["α = 1 (softmax)", "α = 1.25", "α = 1.5", "α = 2 (sparsemax)", "α = 4"]
    softmax, *sparse = (line.get_xydata() for line in ax.lines)
    np.testing.assert_allclose(softmax[:, 1], 1 / (1 + np.exp(-softmax[:, 0])), rtol=1e-12)
    for curve, dots in zip(sparse, ax.collections, strict=True):
        left, right = dots.get_offsets()
        certain = (curve[:, 1] == 0) | (curve[:, 1] == 1)
        # Just inside a dot the missing probability may be too small for a float: leave a margin.
        outside, inside = abs(curve[:, 0]) > right[0] + 1e-9, abs(curve[:, 0]) < right[0] - 0.02
        assert right[1] == 1
        assert tuple(left) == (-right[0], 0)
        assert certain[outside].all()
        assert not certain[inside].any()


def forced(*steps):
    """A forced decoding of tokens numbered from 0, given the probabilities at each step."""
    p = np.array([probabilities for _, probabilities in steps])
    with np.errstate(divide="ignore"):
        return ForcedDecoding(
            np.array([token for token, _ in steps]), np.log(p), p > 0, np.ones((len(p), 1))
        )


SAID = forced(
    (0, [1, 0, 0, 0]),
    (1, [0, 1, 0, 0]),
    (2, [0.5, 0.25, 0.25, 0]),
    (2, [0, 1, 0, 0]),
    (3, [0, 0, 0, 1]),
)
NAMES = ["d", " ", "x", "</s>"]
EMPTY = ForcedDecoding(np.zeros(0, int), np.zeros((0, 3)), np.zeros((0, 3)) > 0, np.ones((0, 1)))


def test_forced_decoding_shows_what_was_possible():
    ax = plot_forced_decoding(SAID, NAMES.__getitem__)
    assert texts(ax) == [
        *("d", "␣"),
        *("x", "25.0%", "d", "50.0%", "␣", "25.0%"),
        *("x", "impossible", "␣", "100.0%"),
        "</s>",
    ]
    bold = [text.get_text() for text in ax.texts if text.get_weight() == "bold"]
    assert bold == ["d", "␣", "x", "x", "</s>"]
    # Two steps without a choice share a box; two with one have a box inside another; the end.
    boxes = [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == 1 + 2 + 2 + 1
    red = [box for box in boxes if box.get_edgecolor()[0] > 0.8]
    assert len(red) == 1


def test_forced_decoding_limits_other_tokens():
    decoding = forced((0, [0.25, 0.25, 0.25, 0.25]), (3, [0, 0, 0, 1]))
    shown = texts(plot_forced_decoding(decoding, NAMES.__getitem__, max_others=1))
    assert shown == ["d", "25.0%", "␣", "25.0%", "+2 more", "</s>"]
    assert "+1 more" not in texts(plot_forced_decoding(decoding, NAMES.__getitem__, max_others=3))


@pytest.mark.parametrize("size", [None, (4, 3), (9, 2)])
def test_forced_decoding_text_is_not_clipped(size):
    ax = Figure(size).add_subplot() if size else None
    extents = extents_in_frame(plot_forced_decoding(SAID, NAMES.__getitem__, ax))
    for i, one in enumerate(extents):
        assert not any(one.overlaps(other) for other in extents[i + 1 :])


@pytest.mark.parametrize(
    "draw",
    [
        plot_mapping_curves,
        lambda ax: plot_attention(np.eye(2), "ab", "cd", ax),
        lambda ax: plot_hypothesis_tree(tree_of(DRAW), ax),
        lambda ax: plot_forced_decoding(SAID, NAMES.__getitem__, ax),
    ],
)
def test_axes_argument_is_used_and_returned(draw):
    ax = Figure().add_subplot()
    assert draw(ax) is ax
    assert ax.figure.axes == [ax]  # no colour bar pushed into someone else's figure


def small_picture():
    ax = Figure((1, 1)).add_subplot()
    ax.plot([0, 1])
    ax.set_axis_off()
    return ax


@pytest.mark.parametrize("suffix", [".png", ".svg", pytest.param(".pdf", marks=pytest.mark.slow)])
def test_saved_figures_are_reproducible(tmp_path, suffix):
    first, second = (save_figure(small_picture(), tmp_path / f"{x}{suffix}") for x in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a{suffix}", f"b{suffix}"]
    assert b"matplotlib.org" not in first.read_bytes()


def test_settings_for_latex_do_not_reach_a_picture(tmp_path):
    """Labels are words, with % and _ in them, and LaTeX need not be there."""
    with rc_context({"text.usetex": True}):
        ax = small_picture()
        ax.set_title("50% of_it")
        assert save_figure(ax, tmp_path / "a.svg").stat().st_size


def test_large_pictures_have_bounded_memory(tmp_path, monkeypatch):
    """It grew with the square of a sentence's length: 4 GB for 300 words."""
    monkeypatch.setattr(_figures, "MAX_PIXELS", 2**20)
    path = save_figure(Figure(figsize=(90, 90)).add_subplot(), tmp_path / "a.png")
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    assert 0.5 < width * height / 2**20 <= 1.01


def test_unknown_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.png, \.svg or \.pdf, got 'a\.bmp'"):
        save_figure(small_picture(), tmp_path / "a.bmp")


@pytest.mark.parametrize(
    "draw",
    [
        plot_mapping_curves,
        lambda: plot_hypothesis_tree(tree_of(DRAW)),
        lambda: plot_attention(np.eye(1), "a", "b"),
        lambda: save_figure(None, "a.png"),
    ],
)
def test_missing_matplotlib_says_what_to_install(draw, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'pyentmax\[models\]'"):
        draw()


def test_tokens_are_never_parsed_as_formulas():
    strange = "a$^$b_{"
    tree = HypothesisTree.build(
        [Hypothesis((0, 1), -1.0), Hypothesis((0,), -2.0)], [strange, "$\\x$"].__getitem__
    )
    for ax in (plot_hypothesis_tree(tree), plot_attention([[1.0, 0.0]], [strange, "$"], ["$^$"])):
        ax.figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            lambda: plot_attention(np.ones((1, 2)), ["a"], ["b", "c"]),
            r"2 target tokens .* 1 source tokens, not shape \(1, 2\)",
        ),
        (lambda: plot_forced_decoding(EMPTY, str), "^decoding has no steps to draw"),
    ],
)
def test_unsuitable_arguments_are_named(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


@pytest.mark.parametrize("count", [1, 3, 5])
def test_attention_panels_keep_titles_without_empty_axes(count):
    panels = [plots.AttentionPanel(f"head {i}, $x", np.eye(3), "abc", "abc") for i in range(count)]
    ax = plots.plot_attention_panels(panels, columns=3)
    assert [axes.get_title() for axes in ax.figure.axes] == [panel.title for panel in panels]


def test_nan_is_a_gap():
    """Measures are NaN where there is nothing to count."""
    assert plot_attention([[np.nan, 1.0]], "ab", "c") is not None


def test_fonts_of_the_settings_stand_in_for_missing_glyphs(tmp_path):
    save_figure(plot_hypothesis_tree(tree_of({"שלום": 1.0})), tmp_path / "a.png")  # DejaVu Sans'
    with rc_context({"font.family": ["monospace"]}), pytest.warns(match="missing from font"):
        save_figure(plot_hypothesis_tree(tree_of({"שלום": 1.0})), tmp_path / "a.png")
