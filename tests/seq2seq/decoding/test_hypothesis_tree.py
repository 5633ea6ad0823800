"""The tree of hypotheses: its structure, its masses, its text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyentmax.seq2seq.decoding import Hypothesis, HypothesisTree


def tree_of(words, unfinished=(), **kwargs):
    """Tree of {word: probability}, a token per character."""
    hypotheses = [
        Hypothesis(tuple(map(ord, word)), math.log(p), finished=word not in unfinished)
        for word, p in words.items()
    ]
    return HypothesisTree.build(hypotheses, chr, **kwargs)


def picture(words, **kwargs):
    return f"\n{tree_of(words, **kwargs)}\n"


def test_trees_are_drawn_as_in_figure_1():
    nested = {"bought": 0.4, "buyed": 0.36, "buyen": 0.18, "buy": 0.06}
    assert (
        picture(nested)
        == """
b                  100.0%
├── uy              60.0%   60.0% of branch
│   ├── e           54.0%   90.0% of branch
│   │   ├── d</s>   36.0%   66.7% of branch  buyed
│   │   └── n</s>   18.0%   33.3% of branch  buyen
│   └── </s>         6.0%   10.0% of branch  buy
└── ought</s>       40.0%   40.0% of branch  bought
"""
    )
    assert (
        picture({"was": 0.6, "is": 0.1})
        == """
·            70.0%
├── was</s>  60.0%  was
└── is</s>   10.0%  is
"""
    )
    assert (
        picture({"ab": 0.5, "abab": 0.25}, unfinished=["abab"])
        == """
ab        75.0%
├── </s>  50.0%  ab
└── ab…   25.0%  abab…
"""
    )
    assert picture({"": 1.0}) == "\n</s>  100.0%  (empty)\n"
    words = ["two", "words"].__getitem__
    tree = HypothesisTree.build([Hypothesis((0, 1), 0.0)], words, separator=" ", end="⏎")
    assert str(tree) == "two words ⏎  100.0%  two words"
    assert "give␣up</s>" in picture({"give up": 1.0})


def test_tokens_spelled_like_the_end_symbol():
    hypotheses = [Hypothesis((0,), math.log(0.75)), Hypothesis((0, 1), math.log(0.25))]
    tree = HypothesisTree.build(hypotheses, ["a", "</s>"].__getitem__)
    assert [child.probability for child in tree.root.children] == pytest.approx(
        [0.75, 0.25], rel=1e-15, abs=0
    )
    assert [tree.string(child) for child in tree.root.children] == ["a", "a</s>"]


def test_a_tree_needs_a_hypothesis():
    with pytest.raises(ValueError, match="expected at least one hypothesis"):
        HypothesisTree.build([], chr)


@given(st.dictionaries(st.text("abc", max_size=6), st.floats(0.01, 1), min_size=1, max_size=12))
def test_nodes_hold_the_mass_below_them(words):
    tree = tree_of(words)
    nodes = [node for _, node in tree.root.walk()]
    leaves = {tree.string(node): node.probability for node in nodes if node.is_leaf}
    assert leaves == pytest.approx(words, rel=1e-14, abs=0)
    assert tree.root.probability == pytest.approx(sum(words.values()), rel=1e-14, abs=0)
    for node in nodes:
        if not node.is_leaf:
            assert len(node.children) > 1  # runs without a branch are merged
            assert node.probability == pytest.approx(
                sum(c.probability for c in node.children), rel=1e-14, abs=0
            )
            assert sum(child.share for child in node.children) == pytest.approx(
                1.0, rel=1e-14, abs=0
            )
            masses = [child.probability for child in node.children]
            assert masses == sorted(masses, reverse=True)
        assert all(child.prefix == node.prefix + node.tokens for child in node.children)
    assert len(tree.text().splitlines()) == len(nodes)
