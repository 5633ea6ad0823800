"""Accuracy, exactness and sizes of supports."""

from __future__ import annotations

import numpy as np
import pytest
from automata import Automaton, automata
from hypothesis import given
from hypothesis import strategies as st

from experiments.certainty import (
    empty_string_probability,
    exactness_by_beam,
    exactness_statistics,
    smallest_exact_beam,
    support_sizes,
    word_accuracy,
)
from pyentmax.seq2seq.decoding import (
    Hypothesis,
    SearchResult,
    beam_search,
    exact_search,
    forced_decoding,
)


def result(probabilities, exact, unfinished=0):
    hypotheses = [Hypothesis((i,), float(np.log(p))) for i, p in enumerate(probabilities)]
    hypotheses += [Hypothesis((9,), -1.0, finished=False)] * unfinished
    return SearchResult(tuple(hypotheses), exact, float(sum(probabilities)), "")


def test_exactness_statistics():
    statistics = exactness_statistics(
        [
            result([1.0], True),
            result([0.75, 0.25], True),
            result([0.5], False),
            result([], False, 1),
        ]
    )
    assert statistics.count == 4
    assert statistics.single == 0.25  # a single listed hypothesis is not enough: it must be proved
    assert statistics.exact == 0.5
    assert statistics.mean_hypotheses == 1.0
    assert statistics.mean_mass == pytest.approx(0.625, rel=1e-15, abs=0)
    assert str(statistics) == (
        "4 sources: 25.0% with one possible sequence, 50.0% decoded exactly, "
        "1.00 hypotheses of mass 0.6250 on average"
    )


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda: word_accuracy([], []), "nothing to compare"),
        (lambda: exactness_statistics([]), "at least one result"),
        (lambda: exactness_by_beam([]), "at least one result"),
        (lambda: support_sizes([]), "at least one decoded target"),
    ],
)
def test_unsuitable_arguments_are_named(measure, message):
    with pytest.raises(ValueError, match=message):
        measure()


def test_empty_string_is_what_ends_at_once():
    ends = np.array([0, 0.25, 1])  # by the source
    model = Automaton.of(np.stack([1 - ends, ends], axis=1), np.zeros((3, 2), int))
    source = np.arange(3)[:, None]
    p = empty_string_probability(model, source, source >= 0)
    np.testing.assert_allclose(p, ends, rtol=1e-15)


def search(model, **options):
    source = np.zeros((1, 3), dtype=int)
    return beam_search(model, source, source == 0, **options)[0]


@given(automata(), st.integers(1, 8))
def test_smallest_exact_beam_is_the_narrowest_exact_one(model, widest):
    needed = smallest_exact_beam(search(model, beam=widest))
    exact = [search(model, beam=k).exact for k in range(1, widest + 1)]
    assert exact == [needed is not None and k >= needed for k in range(1, widest + 1)]


@given(automata())
def test_smallest_exact_beam_of_exact_search(model):
    source = np.zeros((1, 3), dtype=int)
    [listed] = exact_search(model, source, source == 0, n_best=None, budget=10**5)
    assert listed.exact
    needed = smallest_exact_beam(listed)
    assert search(model, beam=needed).exact
    assert needed == 1 or not search(model, beam=needed - 1).exact


def test_exactness_by_beam_counts_sources():
    def listed(*strings, exact=True):
        return SearchResult(tuple(Hypothesis(s, -1.0) for s in strings), exact, 1.0, "")

    results = [
        listed(()),  # ends at once: nothing is ever open, any beam will do
        listed((4,), (4, 5)),  # one open prefix at a time, though two strings
        listed((4, 5), (6, 7), (6, 8)),  # two of length 1, three of length 2
        listed((4,), exact=False),
    ]
    assert [smallest_exact_beam(r) for r in results] == [1, 1, 3, None]
    assert exactness_by_beam(results, [1, 2, 3, 10]) == {1: 0.5, 2: 0.5, 3: 0.75, 10: 0.75}


def test_support_sizes_under_forced_decoding():
    model = Automaton.of(
        [[0, 0, 0.75, 0.25], [0, 1, 0, 0], [0, 0.5, 0.25, 0.25]],
        [[0, 0, 1, 2], [0] * 4, [0, 0, 1, 1]],
    )
    source, mask = np.zeros((2, 3), int), np.array([[1, 1, 1], [1, 1, 0]], bool)
    sizes = support_sizes(forced_decoding(model, source, mask, [(2,), (3, 2)]))
    assert sizes.output.tolist() == [2, 1, 2, 3, 1]
    assert sizes.source_lengths.tolist() == [3, 3, 2, 2, 2]
    # This automaton attends to all that there is.
    np.testing.assert_array_equal(sizes.attention, sizes.source_lengths)
    assert sizes.vocabulary == 4
    assert sizes.mean_output == pytest.approx(9 / 5, rel=1e-15, abs=0)
    assert str(sizes) == (
        "5 target positions: 2.40 of 2.40 source positions attended, 1.80 of 4 tokens possible on "
        "average"
    )
