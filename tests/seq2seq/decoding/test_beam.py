"""Beam and greedy search on automata small enough to enumerate every string that they can write."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from automata import BOS, EOS, Automaton, automata, loop, search_one, together_and_alone
from hypothesis import given, settings
from hypothesis import strategies as st

from pyentmax.seq2seq.decoding import beam_search, greedy_search

search = partial(search_one, beam_search)


def plain_beam(model, start, beam, limit):
    """Beam search for one source as in a textbook, a list of tuples per step."""
    done, level = [], [((), start, 0.0)]
    for length in range(limit + 1):
        following = []
        for tokens, place, score in level:
            for token in np.flatnonzero(model.support[place]):
                total = score + float(model.log_prob[place, token])
                if token == EOS:
                    done.append((tokens, total))
                else:
                    following.append(((*tokens, int(token)), model.following[place, token], total))
        following.sort(key=lambda item: -item[2])
        level = following[:beam] if length < limit else []
    return sorted(done, key=lambda item: -item[1])


@given(automata(), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_exact_lists_equal_the_enumeration(model, beam):
    found, widths = model.strings(0, limit=20)
    result = search(model, beam=beam, max_length=20)
    assert result.exact == (max(widths) <= beam), (widths, result.reason)
    listed = {h.tokens: h.log_prob for h in result.hypotheses}
    assert len(listed) == len(result.hypotheses)
    for tokens, score in listed.items():
        assert score == pytest.approx(found[tokens], rel=1e-12, abs=0)
    assert result.mass == pytest.approx(sum(map(math.exp, listed.values())), rel=1e-14, abs=0)
    if result.exact:
        assert listed.keys() == found.keys()
        assert result.mass == pytest.approx(1.0, abs=1e-12)
        assert result.reason.startswith("Exact and complete")
    else:
        assert "pruned" in result.reason
        assert f"(beam {beam})" in result.reason


@given(automata(cyclic=True), st.integers(1, 6), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_hypotheses_equal_a_textbook_beams(model, beam, limit):
    result = search(model, beam=beam, max_length=limit)
    expected = plain_beam(model, 0, beam, limit)
    if expected:
        assert [(h.tokens, h.log_prob) for h in result.hypotheses] == expected
        assert all(h.finished for h in result.hypotheses)
    else:
        assert not any(h.finished for h in result.hypotheses)
    _, widths = model.strings(0, limit)
    assert result.exact == (max(widths) <= beam and widths[-1] == 0)


@given(automata(cyclic=True), st.integers(1, 4))
def test_batched_sources_decode_as_alone(model, beam):
    for batched, alone in together_and_alone(beam_search, model, beam=beam):
        assert (batched.exact, batched.reason) == (alone.exact, alone.reason)
        assert batched.mass == pytest.approx(alone.mass, rel=1e-12, abs=0)


def test_underflow_in_the_support_denies_the_certificate():
    model = Automaton.of([[0, 1, 0, 0]], [[0] * 4])
    assert search(model).exact
    model.support[0, 2] = True  # possible, while its log-probability stays −inf
    result = search(model)
    assert not result.exact
    assert [h.tokens for h in result.hypotheses] == [()]
    assert "1 possible continuation was too improbable for the model's" in result.reason
    model.log_prob[0, 2] = np.nan  # may hide anything
    result = search(model, n_best=3)
    assert (result.exact, result.bound, result.mass_bound) == (False, 1, 1)


def test_pruned_continuations_of_zero_mass_count():
    # exp(−800) is 0 in float64, but the log-probability is finite and the string possible.
    log_prob = np.array([[-np.inf, -np.inf, 0.0, -800.0], [-np.inf, 0.0, -np.inf, -np.inf]])
    model = Automaton(log_prob, np.isfinite(log_prob), np.array([[0, 0, 1, 1], [0] * 4]))
    narrow, wide = search(model, beam=1), search(model, beam=2)
    assert (narrow.exact, wide.exact) == (False, True)
    assert narrow.mass == wide.mass == 1.0
    assert [h.tokens for h in wide.hypotheses] == [(2,), (3,)]
    assert wide.hypotheses[1].log_prob == -800
    assert wide.hypotheses[1].probability == 0.0


def test_tokens_off_the_support_are_never_taken():
    log_prob = np.log(np.array([[0.25, 0.25, 0.25, 0.25], [0.01, 0.97, 0.01, 0.01]]))
    support = np.array([[False, False, True, True], [False, True, False, False]])
    model = Automaton(log_prob, support, np.ones((2, 4), dtype=int))
    result = search(model)
    assert result.exact
    assert {h.tokens for h in result.hypotheses} == {(2,), (3,)}
    [tokens] = greedy_search(model, np.array([[0]]), np.array([[True]]))
    assert tokens.tolist() == [2]


def test_open_branches_at_the_limit_deny_the_certificate():
    result = search(loop(0.5), max_length=3)
    assert [h.tokens for h in result.hypotheses] == [(), (2,), (2, 2), (2, 2, 2)]
    assert not result.exact
    assert result.mass == pytest.approx(1 - 1 / 16, rel=1e-14, abs=0)
    assert result.reason == (
        "Not proved complete: 1 possible continuation of mass 0.062 was still open at the limit "
        "of 3 tokens."
    )


def test_unfinished_prefixes_only_where_nothing_ended():
    result = search(loop(0.0), max_length=2, length=3)
    [hypothesis] = result.hypotheses
    assert hypothesis.tokens == (2, 2)
    assert not hypothesis.finished
    assert hypothesis.attention.shape == (2, 3)
    assert result.mass == 0.0
    assert not result.exact
    assert all(h.finished for h in search(loop(0.5), max_length=2).hypotheses)


def test_default_limit_ignores_padding():
    source = np.zeros((2, 4), dtype=int)
    mask = np.array([[True] * 4, [True] + [False] * 3])
    long, short = beam_search(loop(0.0), source, mask)
    assert len(long.best.tokens) == 18
    assert len(short.best.tokens) == 12
    assert [len(t) for t in greedy_search(loop(0.0), source, mask)] == [18, 12]


def test_ties_go_to_better_prefix_then_lower_token():
    # Four strings of probability ¼ each; the beam has room for three.
    model = Automaton.of(
        [[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 1, 0, 0]], [[0, 0, 1, 1], [0, 0, 2, 2], [0] * 4]
    )
    result = search(model, beam=3)
    assert [h.tokens for h in result.hypotheses] == [(2, 2), (2, 3), (3, 2)]
    assert "1 possible continuation of mass 0.25 was pruned, first at step 2" in result.reason
    [tokens] = greedy_search(model, np.array([[0]]), np.array([[True]]))
    assert tokens.tolist() == [2, 2]


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=40, deadline=None)
def test_dense_distributions_equal_the_textbook(seed, beam, ties, n_best):
    """Where every token is possible, few of many are looked at: those must be the best."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.5, size=(3, int(rng.choice([4, 65, 79])))) + 1e-3
    if ties:
        weights = np.ceil(weights)
    weights[:, BOS] = 1e-9
    weights[:, EOS] += rng.choice([0.5, 30.0])  # in every prefix it may be the most probable
    p = weights / weights.sum(axis=1, keepdims=True)
    model = Automaton.of(p, rng.integers(0, 3, p.shape), output_is_sparse=False)
    model.log_prob = model.log_prob.astype(rng.choice([np.float32, np.float64]))
    # Zeros that are not proved have every row looked at as a whole, and the bounds are the same.
    whole = Automaton(
        np.pad(model.log_prob, ((0, 0), (0, 1)), constant_values=-np.inf),
        np.pad(model.support, ((0, 0), (0, 1))),
        np.pad(model.following, ((0, 0), (0, 1))),
        output_is_sparse=False,
    )
    source = np.array([[0], [2], [1], [0]])
    options = {"beam": beam, "n_best": n_best, "max_length": 4}
    found, others = (beam_search(m, source, source >= 0, **options) for m in (model, whole))
    for start, result, other in zip(source[:, 0], found, others, strict=True):
        listed = [(h.tokens, h.log_prob) for h in result.hypotheses]
        most = n_best or beam
        assert listed[:most] == plain_beam(model, start, beam, 4)[:most]
        assert [(h.tokens, h.log_prob) for h in other.hypotheses] == listed
        assert (other.proved, other.bound) == (result.proved, result.bound)
        assert not result.exact
        assert "infinitely many strings are possible" in result.reason


def test_reason_about_zeros_is_per_source():
    """Zeros of one source's distributions were said of the whole batch."""
    p = np.array([[0.0, 0.5, 0.3, 0.2], [0.1, 0.4, 0.3, 0.2]])
    model = Automaton.of(p, [[0] * 4, [1] * 4], output_is_sparse=False)
    source = np.array([[0], [1]])
    both = beam_search(model, source, np.ones((2, 1), bool), max_length=2)
    assert [result.reason for result in both] == [
        search(model, start, length=1, max_length=2).reason for start in (0, 1)
    ]
    assert "zeros" in both[0].reason
    assert "dense" in both[1].reason


@given(automata(cyclic=True), st.integers(1, 4), st.integers(1, 3), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_normalized_search_keeps_the_best_means(model, beam, n, limit):
    """A prefix whose mean is lower so far may still end with the best one."""

    def means(strings):
        return sorted((score / (len(tokens) + 1) for tokens, score in strings), reverse=True)[:n]

    model.output_is_sparse = False
    expected = means(plain_beam(model, 0, beam, limit))
    result = search(model, beam=beam, n_best=n, normalize=True, max_length=limit)
    assert means((h.tokens, h.log_prob) for h in result.hypotheses if h.finished) == expected


def test_normalized_search_stops_once_settled():
    # "2" continues for certain and ends after five tokens: a mean of log(0.45) / 6.
    p = [[0, 0.55, 0.45], *[[0, 0, 1.0]] * 4, [0, 1.0, 0]]
    model = Automaton.of(p, [[0, 0, i + 1] for i in range(5)] + [[0] * 3], output_is_sparse=False)
    lengths = [len(h.tokens) for h in search(model, n_best=1, normalize=True).hypotheses]
    assert lengths == [0, 5]
    # log(0.55) lies between log(0.45) and its half.
    model = Automaton.of([[0, 0.55, 0.45], [0, 1, 0]], [[0, 0, 1], [0] * 3])
    assert len(search(model, n_best=1, normalize=True, max_length=1).hypotheses) == 2
    model = loop(0.9, output_is_sparse=False)
    search(model, beam=2, n_best=1, normalize=True, max_length=9)
    # "" has a mean of log(0.9), and strings through "2" of at most log(0.1) / 10.
    assert len(model.steps) == 1


@given(
    automata(cyclic=True), st.integers(1, 5), st.integers(1, 5), st.integers(1, 8), st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_stopping_at_n_best_keeps_them(model, beam, n, limit, sparse):
    model.output_is_sparse = sparse
    expected = plain_beam(model, 0, beam, limit)[:n]
    result = search(model, beam=beam, n_best=n, max_length=limit)
    found = [(h.tokens, h.log_prob) for h in result.hypotheses if h.finished]
    assert found[: len(expected)] == expected


@given(automata(cyclic=True), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_proved_n_best_hold_among_all_strings(model, beam, n, sparse):
    model.output_is_sparse = sparse
    limit = 3
    everything, _ = model.strings(0, limit + 3)  # longer ones too
    result = search(model, beam=beam, n_best=n, max_length=limit)
    listed = {h.tokens: h.log_prob for h in result.hypotheses if h.finished}
    rest = [score for tokens, score in everything.items() if tokens not in listed]
    best = max(rest, default=-math.inf)
    assert all(h.log_prob >= best for h in result.hypotheses[: result.proved])
    assert math.exp(best) <= result.bound * (1 + 1e-12)
    assert sum(map(math.exp, rest)) <= result.mass_bound + 1e-12
    assert not (result.exact and rest)
    if result.exact:
        assert sparse
        assert result.proved == len(result.hypotheses)
    else:
        assert "No other has a probability above" in result.reason


def test_search_stops_at_n_best_and_says_so():
    for model in (loop(0.9), loop(0.9, output_is_sparse=False)):
        result = search(model, beam=2, n_best=2, max_length=1000)
        # "" 0.9 and "2" 0.09 are finished when the best open prefix "22" has 0.01.
        assert [h.tokens for h in result.hypotheses] == [(), (2,)]
        assert len(model.steps) == 2
        assert (result.exact, result.proved) == (False, 2)
        assert result.bound == pytest.approx(0.01, rel=1e-6, abs=1e-12)
        assert result.mass_bound == pytest.approx(0.01, rel=1e-6, abs=1e-12)
        assert result.reason.startswith("The 2 best strings are proved. No other has a probability")
    result = search(loop(0.9), beam=2, n_best=2, max_length=1000)
    assert result.reason.endswith("Not proved complete: the search stopped with prefixes open.")


@given(automata(cyclic=True), st.integers(1, 4), st.integers(2, 6))
def test_unproved_beam_finds_the_same_strings(model, beam, limit):
    options = {"beam": beam, "max_length": limit}
    plain = search(model, prove=False, **options)
    stopping = search(model, n_best=beam, **options)
    some = search(model, prove=False, n_best=1, **options)
    found, expected = (
        [(h.tokens, h.log_prob) for h in result.hypotheses] for result in (plain, stopping)
    )
    assert found == expected
    assert some.best.tokens == stopping.best.tokens
    for result in (plain, some):
        assert (result.exact, result.proved, result.bound) == (False, 0, 1)
        assert result.reason.startswith("Never complete")


def test_attention_belongs_to_its_hypothesis():
    # 2 leads to state 1 and 3 to state 2; the toy's weights are (state + 1) / source length.
    model = Automaton.of(
        [[0, 0, 0.4, 0.6], [0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]],
        [[0, 0, 1, 2], [0] * 4, [0, 0, 3, 0], [0] * 4],
    )
    source, mask = np.zeros((1, 4), int), np.array([[True, True, False, False]])
    [result] = beam_search(model, source, mask)
    long, short = result.hypotheses
    assert (long.tokens, short.tokens) == ((3, 2), (2,))
    np.testing.assert_array_equal(long.attention, np.array([[1, 1], [3, 3], [4, 4]]) / 2)
    np.testing.assert_array_equal(short.attention, np.array([[1, 1], [2, 2]]) / 2)
    [result] = beam_search(model, source, mask, keep_attention=False)
    assert [h.attention for h in result.hypotheses] == [None] * 2
    # Open prefixes of all sources share a step.
    assert len(beam_search(model, source.repeat(3, axis=0), mask.repeat(3, axis=0))) == 3
    assert model.steps[-3:] == [3, 6, 3]


@given(automata(cyclic=True))
def test_greedy_takes_the_most_probable_token(model):
    source = np.arange(len(model.support))[:, None]
    outputs = greedy_search(model, source, source >= 0, max_length=6)
    for start, output in enumerate(outputs):
        place, expected = start, []
        while len(expected) < 6 and (token := int(model.log_prob[place].argmax())) != EOS:
            expected.append(token)
            place = model.following[place, token]
        assert output.tolist() == expected
