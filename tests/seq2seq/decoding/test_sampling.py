"""Ancestral sampling: the frequencies are the probabilities, and nothing impossible is drawn."""

from collections import Counter

import numpy as np
import pytest
from automata import Automaton

from pyentmax.seq2seq.decoding import Truncated, ancestral_sampling, exact_search

# By the state, of a source and its last token: 2 and 3 are words, 1 ends.
CHAIN = Automaton.of(
    [[0, 0.1, 0.6, 0.3], [0, 1, 0, 0], [0, 0.5, 0, 0.5], [0, 1, 0, 0]]
    + [[0, 0, 0, 1.0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0.8, 0.2, 0]],
    4 * (np.arange(8)[:, None] // 4) + np.arange(4),
)
SOURCE, MASK = np.array([[0, 0], [4, 0]]), np.array([[True, True], [True, False]])


def sample(samples=4000, seed=0, **options):
    rng = np.random.default_rng(seed)
    return ancestral_sampling(CHAIN, SOURCE, MASK, rng, samples=samples, **options)


def test_frequencies_are_the_probabilities():
    exact = exact_search(CHAIN, SOURCE, MASK, n_best=None)
    for drawn, result in zip(sample(), exact, strict=True):
        assert result.exact
        counts = Counter(h.tokens for h in drawn)
        assert set(counts) == {h.tokens for h in result.hypotheses}
        for h in result.hypotheses:
            p = h.probability
            # Four standard errors of a frequency.
            error = 4 * (p * (1 - p) / 4000) ** 0.5
            assert counts[h.tokens] / 4000 == pytest.approx(p, rel=0, abs=error)
        expected = {h.tokens: h.log_prob for h in result.hypotheses}
        for h in drawn:
            assert h.finished
            assert h.log_prob == pytest.approx(expected[h.tokens], rel=1e-12, abs=1e-12)


@pytest.mark.filterwarnings("error")
def test_low_temperature_draws_the_most_probable():
    for temperature in (0.01, 5e-324):
        cold, other = sample(samples=20, temperature=temperature)
        assert {h.tokens for h in cold} <= {(2,), (2, 3)}  # a tie: 0.6 · 0.5
        assert {h.log_prob for h in cold} == {np.log(0.6) + np.log(0.5)}
        assert {h.tokens for h in other} == {(3,)}
    hot, _ = sample(temperature=1e6)
    counts = Counter(h.tokens[:1] for h in hot)
    for first in ((), (2,), (3,)):  # all alike, but none that is impossible
        assert counts[first] / 4000 == pytest.approx(1 / 3, rel=0, abs=0.04)


@pytest.mark.parametrize("options", [{"top_k": 2}, {"nucleus": 0.85}])
def test_top_k_and_nucleus_exclude_improbable_tokens(options):
    first, _ = sample(**options)
    assert {h.tokens for h in first} == {(2,), (2, 3), (3,)}
    alone, _ = sample(samples=10, **{next(iter(options)): 1 if "top_k" in options else 0.6})
    assert {h.tokens[0] for h in alone} == {2}


def test_length_limit_leaves_strings_unfinished():
    drawn, other = sample(samples=200, max_length=1)
    assert {(h.tokens, h.finished) for h in drawn} == {
        ((), True),
        ((2,), True),
        ((2,), False),
        ((3,), True),
    }
    by_fate = {(h.tokens, h.finished): h.log_prob for h in drawn}
    assert by_fate[(2,), False] == pytest.approx(np.log(0.6), rel=1e-12, abs=0)
    assert by_fate[(2,), True] == pytest.approx(np.log(0.3), rel=1e-12, abs=0)
    assert {h.finished for h in other} == {True, False}


def test_equal_seeds_draw_equal_strings():
    for a, b in zip(sample(50, seed=3), sample(50, seed=3), strict=True):
        assert [h.tokens for h in a] == [h.tokens for h in b]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be at least 1"),
        ({"temperature": 0}, "temperature must be a number above 0, not 0"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"nucleus": 0}, "nucleus must be a mass"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sample(**options)


@pytest.mark.parametrize("keep_set", ["min_p=0.4", "top_k=2", "typical=0.7"])
def test_truncated_models_sample_what_their_search_lists(keep_set):
    model = Truncated(CHAIN, keep_set)
    exact = exact_search(model, SOURCE, MASK, n_best=None)
    rng = np.random.default_rng(0)
    drawn = ancestral_sampling(model, SOURCE, MASK, rng, samples=2000)
    for strings, result in zip(drawn, exact, strict=True):
        assert result.exact
        assert sum(h.probability for h in result.hypotheses) == pytest.approx(1, rel=0, abs=1e-12)
        probabilities = {h.tokens: h.probability for h in result.hypotheses}
        counts = Counter(h.tokens for h in strings)
        assert set(counts) == set(probabilities)
        for tokens, p in probabilities.items():
            error = 4 * (p * (1 - p) / 2000) ** 0.5
            assert counts[tokens] / 2000 == pytest.approx(p, rel=0, abs=error)
    # The first word ends with 0.1 of its largest 0.6, or is one of two.
    assert () not in {h.tokens for h in exact[0].hypotheses}


@pytest.mark.parametrize(
    ("keep_set", "message"),
    [("min_p", "NAME=NUMBER"), ("best=3", "NAME=NUMBER"), ("top_p=2", "mass must be")],
)
def test_keep_sets_by_name_are_checked(keep_set, message):
    with pytest.raises(ValueError, match=message):
        Truncated(CHAIN, keep_set)
