"""The graph of hypotheses: what it spells, and what goes through each of its nodes."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyentmax.seq2seq.decoding import Hypothesis, HypothesisGraph

WORDS = "abc"
lists = st.lists(st.text(WORDS, max_size=5), min_size=1, max_size=8, unique=True)


def graph_of(words):
    """The graph of strings that are the more probable the earlier they stand."""
    hypotheses = [
        Hypothesis(tuple(map(WORDS.index, word)), log(0.5 ** (i + 1)))
        for i, word in enumerate(words)
    ]
    return HypothesisGraph.build(hypotheses, WORDS.__getitem__)


def spelled(graph, number):
    """All ways from a node to an end."""
    node = graph.nodes[number]
    if not node.following:
        return [node.tokens]
    return [(*node.tokens, *rest) for other in node.following for rest in spelled(graph, other)]


@given(lists)
def test_graph_spells_exactly_the_listed_strings(words):
    graph = graph_of(words)
    found = [way for i in graph.first for way in spelled(graph, i)]
    assert sorted(found) == sorted((*word, "</s>") for word in words)
    for i, node in enumerate(graph.nodes):
        assert all(other > i for other in node.following)
        mass = sum(0.5 ** (k + 1) for k in node.strings)
        assert node.probability == pytest.approx(mass, rel=1e-12, abs=0)
        if node.following:
            assert sum(node.following.values()) == pytest.approx(mass, rel=1e-12, abs=0)


def test_shared_beginnings_and_ends_stand_once():
    graph = graph_of(["aba", "aca"])
    assert [node.tokens for node in graph.nodes] == [("a",), ("b",), ("c",), ("a", "</s>")]
    assert graph.nodes[0].following == pytest.approx({1: 0.5, 2: 0.25}, rel=1e-12, abs=0)
    assert str(graph).splitlines()[0] == "a      75.0% → b, c"


def test_a_string_without_a_branch_is_one_node():
    [node] = graph_of(["abc"]).nodes
    assert node.tokens == ("a", "b", "c", "</s>")


def test_a_graph_needs_a_hypothesis():
    with pytest.raises(ValueError, match="expected at least one hypothesis"):
        HypothesisGraph.build([], str)


def test_tokens_spelled_like_the_end_symbol():
    """The empty string was merged with the beginning of the others."""
    words = ["a", "</s>"]
    listed = [((), 0.5), ((1,), 0.3), ((1, 0), 0.2)]
    graph = HypothesisGraph.build(
        [Hypothesis(tokens, log(p)) for tokens, p in listed], words.__getitem__
    )
    assert len(graph.first) == 2
    assert sorted(way for i in graph.first for way in spelled(graph, i)) == [
        ("</s>",),
        ("</s>", "</s>"),
        ("</s>", "a", "</s>"),
    ]
    # All strings end in the end symbol, and half of their mass goes through the token.
    first = sorted(graph.nodes[i].probability for i in graph.first)
    assert first == pytest.approx([0.5, 1.0], rel=1e-12, abs=0)
