"""Accuracy, edit distance, exactness and sparsity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyentmax.analysis import (
    density,
    empty_string_probability,
    exactness_statistics,
    levenshtein,
    mean_levenshtein,
    support_size,
    word_accuracy,
)
from pyentmax.decoding import BeamResult, Hypothesis, Step


def recursive_distance(a, b):
    """The definition, without a table."""
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return recursive_distance(a[1:], b[1:])
    return 1 + min(
        recursive_distance(a[1:], b),
        recursive_distance(a, b[1:]),
        recursive_distance(a[1:], b[1:]),
    )


@given(st.text("ab", max_size=5), st.text("abc", max_size=5))
def test_levenshtein_is_its_definition(a, b):
    assert levenshtein(a, b) == recursive_distance(a, b)


def test_levenshtein_takes_token_sequences():
    assert levenshtein(("ab", "c"), ["ab", "d", "c"]) == 1


def test_accuracy_and_distance_of_a_list():
    assert word_accuracy(["a", "b", "c", "d"], ["a", "b", "c", "x"]) == 0.75
    assert mean_levenshtein(["a", "bb"], ["a", ""]) == 1.0


@pytest.mark.parametrize("score", [word_accuracy, mean_levenshtein])
def test_lists_to_compare_must_match_and_hold_something(score):
    with pytest.raises(ValueError, match="of one length, not 1 and 2"):
        score(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="nothing to compare"):
        score([], [])


def result(probabilities, exact, unfinished=0):
    hypotheses = [Hypothesis((i,), float(np.log(p))) for i, p in enumerate(probabilities)]
    hypotheses += [Hypothesis((9,), -1.0, finished=False)] * unfinished
    return BeamResult(tuple(hypotheses), exact, float(sum(probabilities)), "")


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
    assert statistics.mean_mass == pytest.approx(0.625)
    assert str(statistics) == (
        "4 sources: 25.0% with one possible sequence, 50.0% decoded exactly, "
        "1.00 hypotheses of mass 0.6250 on average"
    )


def test_exactness_statistics_need_a_result():
    with pytest.raises(ValueError, match="at least one result"):
        exactness_statistics([])


def test_support_size_along_any_axis():
    p = np.array([[[0.5, 0.0], [0.5, 1.0]], [[0.0, 0.0], [1.0, 1.0]]])
    np.testing.assert_array_equal(support_size(p, axis=1), [[2, 1], [1, 1]])
    np.testing.assert_array_equal(support_size(p, axis=-2), support_size(p, axis=1))
    np.testing.assert_array_equal(support_size(p > 0), [[1, 2], [0, 2]])


def test_density_counts_allowed_entries_only():
    p = np.array([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)
    assert density(p[:2]) == pytest.approx(3 / 8)
    assert density(p, mask=mask) == pytest.approx((2 / 4 + 1 / 2) / 2)
    assert density(p.T, axis=0, mask=mask.T) == density(p, mask=mask)
    # Weight where none is allowed is not density.
    assert density([0.5, 0.0, 0.5], mask=[True, True, False]) == 0.5


def test_density_of_nothing_is_an_error():
    with pytest.raises(ValueError, match=r"none in shape \(2,\) with this mask"):
        density([0.5, 0.5], mask=[False, False])


def test_the_empty_string_is_what_ends_at_once():
    class Ends:
        """Ends source s at once with probability s / 4; a zero is off the support."""

        bos, eos = 0, 1

        def encode(self, source, source_mask):
            return source[:, 0]

        def step(self, state, tokens):
            assert (tokens == self.bos).all()
            p = np.stack([1 - state / 4, state / 4], axis=1)
            with np.errstate(divide="ignore"):
                return Step(np.log(p), p > 0, np.ones((len(p), 1))), state

    source = np.array([[0], [1], [4]])
    found = empty_string_probability(Ends(), source, source >= 0)
    np.testing.assert_allclose(found, [0, 0.25, 1], rtol=1e-15)
