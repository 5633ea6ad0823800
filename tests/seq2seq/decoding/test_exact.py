"""Exact search against enumeration: what it lists, what it proves, and what it says is left."""

from __future__ import annotations

import heapq
import itertools
import math
import re
from functools import partial

import numpy as np
import pytest
from automata import EOS, Automaton, automata, loop, search_one, together_and_alone
from hypothesis import given, settings
from hypothesis import strategies as st

from pyentmax.seq2seq.decoding import Hypothesis, SearchResult, beam_search, exact_search
from pyentmax.seq2seq.decoding.hypotheses import bounds_text

search = partial(search_one, exact_search)


def assert_true(result, found, beyond=(), normalize=False):
    """Every claim of a result holds for the real strings.

    `found` maps all strings within the limit to log-probabilities; `beyond` holds those of the
    shortest prefixes that are too long, each of which stands for all strings through it.
    """
    listed = {h.tokens: h.log_prob for h in result.hypotheses if h.finished}
    assert len(listed) == sum(h.finished for h in result.hypotheses)
    for tokens, log_prob in listed.items():
        assert log_prob == pytest.approx(found[tokens], rel=1e-12, abs=0)
    assert result.mass == pytest.approx(sum(map(math.exp, listed.values())), rel=1e-14, abs=0)

    rest = [p for tokens, p in found.items() if tokens not in listed]
    missing = math.fsum(map(math.exp, [*rest, *beyond]))
    assert result.mass_bound >= missing * (1 - 1e-12)
    assert result.mass_bound == pytest.approx(1 - result.mass, abs=1e-12)
    assert result.bound >= math.exp(max([*rest, *beyond], default=-math.inf)) * (1 - 1e-12)
    assert result.exact <= (not rest and not beyond)

    def rank(tokens, log_prob):
        return log_prob / (len(tokens) + 1) if normalize else log_prob

    ranks = [rank(*item) for item in listed.items()]
    assert ranks == sorted(ranks, reverse=True)
    assert result.proved <= len(ranks)
    if result.proved:
        others = [rank(*item) for item in found.items() if item[0] not in listed]
        others += [] if normalize else beyond
        others += ranks[result.proved :]
        assert min(ranks[: result.proved]) >= max(others, default=-math.inf) - 1e-12


@given(automata(), st.sampled_from([1, 2, 3, 10, None]), st.integers(1, 7), st.booleans())
@settings(max_examples=60, deadline=None)
def test_acyclic_models_are_proved(model, best, width, normalize):
    found, _ = model.strings(0, limit=20)
    result = search(model, n_best=best, width=width, normalize=normalize, max_length=20)
    assert_true(result, found, normalize=normalize)
    wanted = len(found) if best is None else min(best, len(found))
    assert result.proved >= wanted
    if best is None:
        assert result.exact
        assert result.mass == pytest.approx(1.0, abs=1e-12)
        assert result.mass_bound == result.bound == 0.0


@given(
    automata(cyclic=True),
    st.sampled_from([1, 2, 5, None]),
    st.integers(1, 30),
    st.integers(1, 6),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_claims_hold_however_the_search_stops(model, best, budget, width, limit, normalize, sparse):
    model.output_is_sparse = sparse
    found, widths = model.strings(0, limit)
    open_at_limit = model.prefixes(0, limit + 1)
    options = {"n_best": best, "budget": budget, "width": width, "normalize": normalize}
    result = search(model, max_length=limit, **options)
    assert_true(result, found, open_at_limit, normalize)
    assert sum(model.steps) <= budget
    if widths[-1] or not sparse:
        assert not result.exact, "strings beyond the limit are possible"
    assert result.reason.startswith("Without proof of its zeros") == (not sparse)


@given(automata(cyclic=True), st.integers(1, 5))
def test_a_certified_beam_is_confirmed(model, limit):
    source = np.zeros((1, 2), dtype=int)
    [beam] = beam_search(model, source, source == 0, max_length=limit)
    [whole] = exact_search(model, source, source == 0, max_length=limit, n_best=None)
    [first] = exact_search(model, source, source == 0, max_length=limit)
    assert whole.exact >= beam.exact
    if beam.exact:
        assert beam.proved == whole.proved == len(beam.hypotheses)
        assert (beam.mass_bound, beam.bound) == (whole.mass_bound, whole.bound) == (0.0, 0.0)
        assert {h.tokens: h.log_prob for h in beam.hypotheses} == {
            h.tokens: h.log_prob for h in whole.hypotheses
        }
        assert first.best.log_prob == beam.best.log_prob
        attention = {h.tokens: h.attention for h in beam.hypotheses}
        for h in whole.hypotheses:
            np.testing.assert_array_equal(h.attention, attention[h.tokens])


@given(automata(cyclic=True), st.sampled_from([1, 3, None]))
def test_batched_sources_decode_as_alone(model, best):
    for batched, alone in together_and_alone(exact_search, model, n_best=best, budget=40):
        assert batched.reason == alone.reason
        assert (batched.proved, batched.mass_bound) == (alone.proved, alone.mass_bound)


def test_ties_are_proved_without_expanding_all():
    model = Automaton.of(
        [[0, 0.5, 0.5], [0, 1, 0]],
        [[0, 0, 1], [0, 0, 0]],
    )
    result = search(model, width=1)
    assert (result.best.tokens, result.proved, result.exact) == ((), 1, False)
    assert model.steps == [1]
    assert result.bound == result.mass_bound == 0.5
    assert search(model, n_best=2).exact


def test_truncation_leaves_mass_unproved():
    result = search(loop(0.3), max_length=3, n_best=None)
    assert not result.exact
    assert [len(h.tokens) for h in result.hypotheses] == [0, 1, 2, 3]
    assert result.mass_bound == pytest.approx(0.7**4, rel=1e-14, abs=0)
    # "" has 0.3, and strings beyond the limit at most 0.2401: the others stay unproved.
    assert result.proved == 1
    assert result.reason == (
        "The best string is proved. No other has a probability above 0.241, all that are not "
        "listed 0.241 together. Strings beyond the limit of 3 tokens are possible."
    )
    # With 0.2 even the best may be beaten beyond the limit.
    result = search(loop(0.2), max_length=3)
    assert result.proved == 0
    assert result.reason.startswith("No string is proved to be the best.")


def test_normalized_scores_are_proved_within_the_limit():
    result = search(loop(0.3), max_length=3, normalize=True)
    # The longest has the best mean: log 0.7 weighs more and more.
    assert [len(h.tokens) for h in result.hypotheses] == [3, 2, 1, 0]
    assert result.proved == 4
    assert not result.exact
    assert "by mean log-probability among strings of at most 3 tokens" in result.reason
    # log(0.55) lies between log(0.45) and its half, the mean of "2" and the end symbol.
    model = Automaton.of([[0, 0.55, 0.45], [0, 1, 0]], [[0, 0, 1], [0] * 3])
    assert search(model, width=1, max_length=1, normalize=True).best.tokens == (2,)


def test_nearly_certain_prefixes_stay_open():
    sure = 1 - 2**-53
    model = Automaton.of([[0, 2**-53, sure], [0, 1, 0]], [[0, 0, 1], [0] * 3])
    assert search(model, n_best=None).exact
    result = search(model, width=1)
    assert (result.best.tokens, result.best.log_prob) == ((2,), math.log(sure))
    assert result.proved == 2  # the empty string was met on the way


def test_log_probabilities_above_zero_keep_the_bounds():
    log_prob = np.array([[-np.inf, -0.1, 1e-7], [-np.inf, 1e-7, -np.inf]])
    model = Automaton(log_prob, np.isfinite(log_prob), np.array([[0, 0, 1], [0] * 3]))
    result = search(model, n_best=None, normalize=True)
    assert [h.log_prob for h in result.hypotheses] == [0.0, -0.1]


def test_repr_of_a_result_is_one_line():
    hypotheses = tuple(Hypothesis((k,), -1.0 - k, np.ones((2, 50))) for k in range(1000))
    text = repr(SearchResult(hypotheses, False, 0.58, "the beam was full"))
    assert text.startswith("SearchResult(1000 hypotheses, best 0.367879, mass 0.58, not proved")
    assert len(text) < 100
    assert "array" not in repr(hypotheses[0])


@pytest.mark.parametrize("token", [EOS, 2])
def test_underflow_in_the_support_is_bounded(token):
    model = Automaton.of([[0, 0, 0, 1], [0, 1, 0, 0]], [[0, 0, 0, 1], [0] * 4])
    assert search(model, n_best=None).exact
    model.support[0, token] = True  # possible, while its log-probability stays −inf
    result = search(model, n_best=None)
    assert (result.exact, result.proved) == (False, 1)
    assert result.bound == pytest.approx(np.finfo(float).tiny, rel=1e-12, abs=0)
    assert "Some are too improbable for the model's floating-point type." in result.reason
    model.log_prob[0, token] = np.nan  # a NaN may hide anything
    result = search(model, n_best=None)
    assert result.bound == result.mass_bound == 1.0


def test_budget_leaves_an_unfinished_prefix():
    result = search(loop(0.0), budget=2, length=3)
    [h] = result.hypotheses
    assert (h.tokens, h.finished, h.attention.shape) == ((2, 2), False, (2, 3))
    assert (result.proved, result.mass_bound, result.mass) == (0, 1.0, 0.0)
    assert result.reason.endswith("The budget of 2 prefixes is used up.")
    result = search(loop(0.0), max_length=2)
    assert [(h.tokens, h.finished) for h in result.hypotheses] == [((2, 2), False)]


def test_one_step_serves_prefixes_of_several_lengths():
    model = Automaton.of(
        [[0, 0, 0.5, 0.5], [0, 0, 0, 1], [0, 1, 0, 0]], [[0, 0, 1, 2], [0, 0, 0, 2], [0] * 4]
    )
    source = np.zeros((2, 1), dtype=int)
    results = exact_search(model, source, source == 0, n_best=None)
    assert [len(r.hypotheses) for r in results] == [2, 2]
    assert model.steps == [2, 4, 2]


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 4))
def test_prefixes_beyond_the_budget_are_dropped(seed, budget, width):
    """Many open prefixes and few to expand: found is what a heap without a limit finds."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(28, 0.5), 3)
    p = np.concatenate([np.zeros((3, 1)), rng.uniform(0, 0.2, (3, 1)), p], axis=1)
    p /= p.sum(axis=1, keepdims=True)
    model = Automaton.of(p, rng.integers(0, 3, p.shape))
    waiting, expected, order = [(0.0, 0, (), 0)], {}, itertools.count(1)
    for _ in range(budget):
        cost, _, tokens, place = heapq.heappop(waiting)  # of equal ones, the oldest
        for token in np.flatnonzero(p[place]).tolist():
            total = cost - model.log_prob[place, token]
            if token == EOS:
                expected[tokens] = -total
            else:
                following = int(model.following[place, token])
                heapq.heappush(waiting, (total, next(order), (*tokens, token), following))
    result = search(model, n_best=None, budget=budget, width=1, max_length=100)
    assert {h.tokens: h.log_prob for h in result.hypotheses} == pytest.approx(
        expected, rel=1e-14, abs=0
    )
    assert result.bound == pytest.approx(math.exp(-waiting[0][0]), rel=1e-14, abs=0)
    assert result.mass_bound == pytest.approx(
        sum(math.exp(-cost) for cost, *_ in waiting), rel=1e-14, abs=0
    )
    wide = search(model, n_best=None, budget=budget, width=width, max_length=100)
    assert wide.mass_bound == pytest.approx(1 - wide.mass, rel=1e-12, abs=0)


def test_printed_bounds_are_rounded_up():
    """A string of 0.187133 was not to have more than 0.187."""
    for x in np.random.default_rng(0).random(300) ** 9:
        told = re.findall(r"[0-9][0-9.e-]*", bounds_text(x, 1.0))
        assert x * (1 - 1e-8) <= float(told[0]) <= 1.01 * x
        assert told[1] == "1"
    assert "above 0.3, all that are not listed 0.6 together" in bounds_text(0.1 + 0.2, 0.6)
    assert "above 0, all that are not listed 0 together" in bounds_text(0.0, 0.0)
