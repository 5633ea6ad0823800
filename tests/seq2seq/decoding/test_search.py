"""Every search of every model equals enumeration: its strings, their order, and all its claims.

The oracle (`automata.Truth`) reads each prefix alone and from the start, so that it shares with a
search neither batches nor states that are rearranged.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from automata import BOS, EOS, Automaton, Truth, automata, loop, stateful, stateless
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import slow

from pyentmax.seq2seq.decoding import (
    Hypothesis,
    SearchResult,
    Truncated,
    beam_search,
    exact_search,
    forced_decoding,
    greedy_search,
)
from pyentmax.seq2seq.decoding.hypotheses import bounds_text
from pyentmax.seq2seq.models.ensemble import Ensemble
from pyentmax.seq2seq.models.language_model import LanguageModel, LanguageModelConfig
from pyentmax.seq2seq.models.protocol import append
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig

SEARCHES = {
    "beam of one": (beam_search, {"beam": 1}),
    "beam": (beam_search, {"beam": 3}),
    "whole beam": (beam_search, {"beam": 10_000}),
    "best of a beam": (beam_search, {"beam": 2, "n_best": 1}),
    "two best of a beam": (beam_search, {"beam": 4, "n_best": 2}),
    "best means of a beam": (beam_search, {"beam": 3, "n_best": 2, "normalize": True}),
    "unproved beam": (beam_search, {"beam": 2, "prove": False}),
    "best": (exact_search, {"width": 1}),
    "three best": (exact_search, {"n_best": 3, "width": 4}),
    "two best means": (exact_search, {"n_best": 2, "width": 1, "normalize": True}),
    "few prefixes": (exact_search, {"n_best": None, "budget": 5, "width": 1}),
    "few wide steps": (exact_search, {"n_best": None, "budget": 6, "width": 4}),
    "everything": (exact_search, {"n_best": None, "width": 7}),
}


def dense(automaton, impossible=False):
    """Every one of 79 tokens is possible, or all but one: a search looks at few of them, or all."""
    states = len(automaton.support)
    rng = np.random.default_rng(states)
    weights = rng.gamma(0.5, size=(states, 79)) + 1e-3
    weights[:, BOS] = 0 if impossible else 1e-9
    weights[:, EOS] += 10 * (np.arange(states) % 2)
    following = rng.integers(0, states, weights.shape)
    p = weights / weights.sum(axis=1, keepdims=True)
    model = Automaton.of(p, following, output_is_sparse=impossible)
    return replace(model, log_prob=model.log_prob.astype(np.float32))


def hidden(automaton):
    """Some tokens are possible without a number for their probability."""
    states, tokens = np.indices(automaton.support.shape)
    adds = (states + tokens) % 4 == 2
    nan = adds & ~automaton.support & (states % 3 == 2)
    log_prob = np.where(nan, np.nan, automaton.log_prob)
    return replace(automaton, support=automaton.support | adds, log_prob=log_prob)


def improbable(automaton):
    """Some possible tokens have a probability that is 0 in floats."""
    adds = ~automaton.support & (np.arange(automaton.support.shape[1]) > 1)
    log_prob = np.where(adds, -800.0, automaton.log_prob)
    return replace(automaton, support=automaton.support | adds, log_prob=log_prob)


def mean(automaton):
    other = replace(automaton, following=automaton.following[::-1])
    return Ensemble([automaton, other])


class Cached(Automaton):
    """Keeps all that it has read, in an array that each step writes to, and reads it anew."""

    def encode(self, source, source_mask):
        rows = len(source)
        return source[:, 0], (np.zeros((rows, 1), int), np.zeros(rows, int)), source_mask

    def step(self, state, tokens, prove=True):
        place, (read, lengths), mask = state
        read = append(read, lengths, tokens)
        for t in range(1, lengths.max(initial=0) + 1):
            place = np.where(t <= lengths, self.following[place, read[:, t]], place)
        step, _ = super().step((place, np.full_like(place, -1), mask), tokens)
        return step, (state[0], (read, lengths + 1), mask)


def network(model, config, automaton):
    """A small network with scores of any size, so that some of its strings end."""
    rng = np.random.default_rng(automaton.following.sum())
    made = model.initialize(config, rng, bos=BOS, eos=EOS, dtype=np.float64)
    made.params["output.weight"] *= rng.choice([1, 30])
    made.params["output.bias"][[BOS, EOS]] = -9, rng.choice([0, 1])
    return made


RECURRENT = RNNSeq2SeqConfig(6, 5, hidden=4, layers=2)
TRANSFORMER = TransformerConfig(6, 5, width=4, layers=2, heads=2, inner=4)
LANGUAGE_MODEL = LanguageModelConfig(6, width=4, layers=2, heads=2, inner=4, output="1.5")
MODELS = {
    "sparse": lambda automaton: automaton,
    "unproved zeros": lambda automaton: replace(automaton, output_is_sparse=False),
    "dense": dense,
    "wide": partial(dense, impossible=True),
    "hidden": hidden,
    "improbable": improbable,
    "cached": lambda automaton: Cached(**vars(automaton)),
    "function": stateful,
    "function without a state": stateless,
    "ensemble": mean,
    "truncated": lambda automaton: Truncated(automaton, "top_k=2"),
    "recurrent": partial(network, RNNSeq2Seq, RECURRENT),
    "transformer": partial(network, Transformer, TRANSFORMER),
    "language model": partial(network, LanguageModel, LANGUAGE_MODEL),
    "networks": lambda automaton: Ensemble(
        [MODELS[kind](automaton) for kind in ("recurrent", "transformer")]
    ),
}
LIMITS = {
    "dense": 1,
    "wide": 1,
    **dict.fromkeys([*MODELS][-4:], 2),
}  # in tokens, where steps cost more


LATER = ["wide", "hidden", "improbable", "unproved zeros", "function without a state"]
LATER += ["truncated", "networks", "language model", "ensemble", "dense", "recurrent"]
"""Each is close to one that is asked in the first stage."""


@pytest.mark.parametrize("kind", [*(kind for kind in MODELS if kind not in LATER), *slow(*LATER)])
@given(automaton=st.one_of(automata(), automata(cyclic=True)))
@settings(max_examples=7, deadline=None)
def test_searches_equal_enumeration(kind, automaton):
    model, limit = MODELS[kind](automaton), LIMITS.get(kind, 4)
    sources = np.arange(min(len(automaton.support), 2))
    source = np.column_stack([sources, *3 * [np.full_like(sources, 2)]])
    mask = np.arange(4) <= sources[:, None]  # lengths 1 and 2
    truths = [Truth(model, row[None, seen], limit) for row, seen in zip(source, mask, strict=True)]
    for name, (search, options) in SEARCHES.items():
        results = search(model, source, mask, max_length=limit, **options)
        for truth, result in zip(truths, results, strict=True):
            assert_claims(result, truth, options, (kind, name))
            equal = assert_beam if search is beam_search else assert_best_first
            equal(result, truth, options, (kind, name))
    for truth, written in zip(
        truths, greedy_search(model, source, mask, max_length=limit), strict=True
    ):
        tokens = ()
        while len(tokens) < limit:
            token, _ = max(truth.continuations(tokens, 0.0), key=lambda item: item[1])
            if token == EOS:
                break
            tokens += (token,)
        assert tuple(written.tolist()) == tokens, kind
    for row, seen, truth in zip(source, mask, truths, strict=True):
        if truth.strings:
            targets = [*truth.strings][:30]
            many = np.repeat(row[None, seen], len(targets), axis=0)
            said = forced_decoding(model, many, many >= 0, targets)
            totals = [step.token_log_probs.clip(max=0).sum() for step in said]
            expected = [truth.strings[tokens] for tokens in targets]
            assert totals == pytest.approx(expected, rel=1e-9, abs=1e-12), kind


def assert_claims(result, truth, options, case):
    """What a result claims is true of all strings, and its bounds are no weaker than they are."""
    normalize, sparse = options.get("normalize", False), truth.model.output_is_sparse
    finished = [h for h in result.hypotheses if h.finished]
    listed = {h.tokens: h.log_prob for h in finished}
    assert len(listed) == len(finished), case
    assert finished == [] or len(finished) == len(result.hypotheses), case
    for h in result.hypotheses:
        known = truth.strings if h.finished else truth.scores
        assert h.log_prob == pytest.approx(known[h.tokens], rel=1e-9, abs=1e-12), case
        read = [truth.rows[h.tokens[:n]].attention[0] for n in range(len(h.tokens) + h.finished)]
        assert len(h.attention) == len(read), case
        read = np.reshape(read, h.attention.shape)
        np.testing.assert_allclose(h.attention, read, rtol=1e-9, atol=1e-12)
    assert result.mass == pytest.approx(sum(map(math.exp, listed.values())), rel=1e-14, abs=0), case
    ranks = [truth.rank(*item, normalize) for item in listed.items()]
    assert ranks == sorted(ranks, reverse=True), case
    if not options.get("prove", True):
        claims = result.exact, result.proved, result.bound, result.mass_bound
        assert claims == (False, 0, 1, 1), case
        return
    unlisted = {tokens: p for tokens, p in truth.strings.items() if tokens not in listed}
    missing = [*unlisted.values(), *truth.beyond]
    assert result.exact <= (sparse and not missing and not truth.hidden), case
    most = max(missing + truth.hidden, default=-math.inf)
    assert result.bound >= math.exp(most) * (1 - 1e-9), case
    assert result.mass_bound >= max(math.fsum(map(math.exp, missing)) - 1e-6, result.bound), case
    if truth.sums_to_one:
        assert result.mass + result.mass_bound == pytest.approx(1, abs=1e-5), case
    if result.exact:
        assert (result.proved, result.bound, result.mass_bound) == (len(finished), 0, 0), case
    # Hidden strings may have any length; those beyond the limit are not compared by their means.
    rivals = [p / (truth.limit + 1) if normalize else p for p in truth.hidden]
    rivals += [] if normalize else truth.beyond
    others = [truth.rank(*item, normalize) for item in unlisted.items()] + ranks[result.proved :]
    best = max(rivals + others, default=-math.inf)
    assert min(ranks[: result.proved], default=math.inf) >= best - 1e-9, case
    if options.get("beam", 1000) >= 1000 <= options.get("budget", 1000):  # nothing is cut
        certain = [truth.rank(*item, normalize) for item in truth.strings.items()]
        count = sum(rank > max(rivals, default=-math.inf) + 1e-9 for rank in certain)
        assert result.proved >= min(options.get("n_best", 1) or math.inf, count), case


def assert_beam(result, truth, options, case):
    """The strings are a textbook's, in its order."""
    n_best, beam = options.get("n_best"), options["beam"]
    whole = options.get("prove", True) and truth.model.output_is_sparse and n_best is None
    enough = None if whole else n_best or beam
    expected = truth.beam(beam, options.get("normalize", False))[:enough]
    found = [(h.tokens, h.log_prob) for h in result.hypotheses if h.finished][:enough]
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected], case
    if whole:
        cut = max(truth.widths) > beam or truth.widths[-1] or truth.hidden
        assert result.exact == (not cut), case


def assert_best_first(result, truth, options, case):
    """The strings are those of a heap, where prefixes are expanded one at a time."""
    if options["width"] == 1:
        n_best, budget = options.get("n_best", 1), options.get("budget", 1000)
        expected = truth.best_first(n_best, budget, options.get("normalize", False))
        assert {h.tokens for h in result.hypotheses if h.finished} == expected.keys(), case
    if options.get("n_best", 1) is None and "budget" not in options:
        whole = not (truth.beyond or truth.hidden) and truth.model.output_is_sparse
        assert result.exact == whole, case


# --- when a search stops --------------------------------------------------------------------------
FORK = Automaton.of(  # 2 leads to the end, 3 to another 2 or 3
    [[0, 0, 0.5, 0.5], [0, 1, 0, 0], [0, 0, 0.25, 0.75]], [[0, 0, 1, 2], [0] * 4, [0, 0, 1, 1]]
)
TIED = Automaton.of([[0, 0.5, 0.5], [0, 1, 0]], [[0, 0, 1], [0] * 3])
NEARLY = Automaton.of([[0, 2**-53, 1 - 2**-53], [0, 1, 0]], [[0, 0, 1], [0] * 3])
p = [[0, 0.55, 0.45], *[[0, 0, 1.0]] * 4, [0, 1.0, 0]]
LONG = Automaton.of(p, [[0, 0, i + 1] for i in range(5)] + [[0] * 3])
DENSE = loop(0.9, output_is_sparse=False)
BEST, ALL = {"width": 1}, {"n_best": None}
STOPS = {  # model, search and options; the lengths of the strings, and the rows of each step
    "nothing is open": (FORK, beam_search, {}, [1, 2, 2], [1, 2, 2]),
    "n best settled": (loop(0.9), beam_search, {"beam": 2, "n_best": 2}, [0, 1], [1, 1]),
    "dense model": (DENSE, beam_search, {"beam": 2}, [0, 1], [1, 1]),
    "unproved beam": (loop(0.9), beam_search, {"beam": 2, "prove": False}, [0, 1], [1, 1]),
    "no better mean": (loop(0.9), beam_search, {"n_best": 1, "normalize": True}, [0], [1]),
    # "2" goes on for certain and ends after five tokens: a mean of log(0.45) / 6.
    "better mean is far": (LONG, beam_search, {"n_best": 1, "normalize": True}, [5, 0], [1] * 6),
    "ties are proved": (TIED, exact_search, BEST, [0], [1]),
    "nearly certain": (NEARLY, exact_search, BEST, [1, 0], [1, 1]),
    "best first": (FORK, exact_search, BEST, [1], [1, 1]),
    "lengths share a step": (FORK, exact_search, ALL, [1, 2, 2], [1, 2, 2]),
    "budget": (loop(0.5), exact_search, ALL | {"budget": 2}, [0, 1], [1, 1]),
    "limit": (loop(0.3), exact_search, ALL | {"max_length": 2}, [0, 1, 2], [1, 1, 1]),
}


@pytest.mark.parametrize("name", STOPS)
def test_search_stops(name):
    model, search, options, lengths, steps = STOPS[name]
    model = replace(model, steps=[])
    source = np.zeros((1, 2), int)
    [result] = search(model, source, source == 0, **options)
    assert [len(h.tokens) for h in result.hypotheses] == lengths
    assert model.steps == steps
    # The prefixes of all sources share steps.
    source = np.zeros((3, 2), int)
    assert len(search(model, source, source == 0, **options)) == 3
    assert model.steps[len(steps) :] == [3 * n for n in steps]


SHORT, NO_OTHER = {"max_length": 3}, "so no other string has a probability above zero.$"
REASONS = [  # model, search and options; what the reason says
    (FORK, beam_search, {}, f"^Exact and complete: no possible .* was pruned .* {NO_OTHER}"),
    (FORK, exact_search, ALL, f"^Exact and complete: every possible prefix .* {NO_OTHER}"),
    (FORK, beam_search, {"beam": 1}, r"^The best string is proved.* were pruned \(beam 1\)\.$"),
    (FORK, beam_search, {"prove": False}, "^Never complete: "),
    (loop(0.9), beam_search, {"n_best": 2}, "^The 2 best strings are proved. No .* together.$"),
    (loop(0.3), exact_search, SHORT | ALL,
     "^The best string is proved. No other has a probability above 0.241, all that are not listed "
     "0.241 together. Strings beyond the limit of 3 tokens are possible.$"),
    (loop(0.2), exact_search, SHORT, "^No string is proved to be the best. .* the limit of 3"),
    (loop(0.2), beam_search, SHORT, "^No string is proved to be the best. .* the limit of 3"),
    (loop(0.3), exact_search, SHORT | {"normalize": True, "n_best": 4},
     "^The 4 best strings are proved by mean log-probability among strings of at most 3 tokens."),
    (loop(0.0), exact_search, {"budget": 2}, "The budget of 2 prefixes is used up.$"),
    (DENSE, beam_search, {}, "^Without proof of its zeros an output .*infinitely many strings"),
    (dense(FORK), exact_search, {}, "^A dense output mapping .*infinitely many strings possible."),
    (hidden(FORK), beam_search, {}, "too improbable for the model's floating-point type.$"),
    (hidden(FORK), exact_search, ALL, "too improbable for the model's floating-point type.$"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "search", "options", "words"), REASONS)
def test_reason(model, search, options, words):
    source = np.zeros((1, 2), int)
    [result] = search(model, source, source == 0, **options)
    assert re.search(words, result.reason), result.reason


def test_reason_about_zeros_is_per_source():
    """Zeros of one source's distributions were said of the whole batch."""
    p = np.array([[0.0, 0.5, 0.3, 0.2], [0.1, 0.4, 0.3, 0.2]])
    model = Automaton.of(p, [[0] * 4, [1] * 4], output_is_sparse=False)
    source = np.array([[0], [1]])
    for search in (beam_search, exact_search):
        zeros, dense = search(model, source, source >= 0, max_length=2)
        assert zeros.reason.startswith("Without proof of its zeros")
        assert dense.reason.startswith("A dense output mapping")


# --- single cases ---------------------------------------------------------------------------------
def test_no_step_writes_into_a_state_that_others_continue_from():
    # "222" and "223" continue from one row with room for a token; "223" is read before "2222".
    p = [[0, 0, 1.0, 0]] * 2 + [
        [0, 0, 0.55, 0.45],
        [0, 0.4, 0.6, 0],
        [0, 0.4, 0, 0.6],
        [0, 1, 0, 0],
    ]
    following = [[0, 0, 1, 0], [0, 0, 2, 0], [0, 0, 3, 4], [0, 0, 5, 0], [0, 0, 0, 5], [0] * 4]
    model, source = Cached(**vars(Automaton.of(p, following))), np.array([[0]])
    [result] = exact_search(model, source, source == 0, width=1, n_best=None)
    assert {h.tokens[2:] for h in result.hypotheses} == {(2, 2), (3, 3), (2,), (3,)}


def test_default_limit_ignores_padding():
    source = np.zeros((2, 4), dtype=int)
    mask = np.array([[True] * 4, [True] + [False] * 3])
    for search in (beam_search, exact_search):
        long, short = search(loop(0.0), source, mask)
        assert (len(long.best.tokens), len(short.best.tokens)) == (18, 12)
        assert not long.best.finished
    assert [len(t) for t in greedy_search(loop(0.0), source, mask)] == [18, 12]


def test_ties_go_to_better_prefix_then_lower_token():
    # Four strings of probability ¼ each; the beam has room for three.
    model = Automaton.of(
        [[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 1, 0, 0]], [[0, 0, 1, 1], [0, 0, 2, 2], [0] * 4]
    )
    source = np.array([[0]])
    [result] = beam_search(model, source, source == 0, beam=3)
    assert [h.tokens for h in result.hypotheses] == [(2, 2), (2, 3), (3, 2)]
    assert greedy_search(model, source, source == 0)[0].tolist() == [2, 2]


def test_log_probabilities_above_zero_keep_the_bounds():
    log_prob = np.array([[-np.inf, -0.1, 1e-7], [-np.inf, 1e-7, -np.inf]])
    model = Automaton(log_prob, np.isfinite(log_prob), np.array([[0, 0, 1], [0] * 3]))
    source = np.array([[0]])
    for search in (beam_search, exact_search):
        [result] = search(model, source, source == 0, n_best=2)
        assert [h.log_prob for h in result.hypotheses] == [0.0, -0.1]
        assert result.bound <= 1


def test_tokens_off_the_support_are_never_taken():
    log_prob = np.log(np.array([[0.25, 0.25, 0.25, 0.25], [0.01, 0.97, 0.01, 0.01]]))
    support = np.array([[False, False, True, True], [False, True, False, False]])
    model, source = Automaton(log_prob, support, np.ones((2, 4), int)), np.array([[0]])
    for search in (beam_search, exact_search):
        [result] = search(model, source, source == 0, n_best=9)
        assert {h.tokens for h in result.hypotheses} == {(2,), (3,)}
    assert greedy_search(model, source, source == 0)[0].tolist() == [2]


def test_attention_can_be_left_out():
    source = np.array([[0]])
    for search in (beam_search, exact_search):
        [result] = search(FORK, source, source == 0, keep_attention=False)
        assert {h.attention for h in result.hypotheses} == {None}


def test_repr_of_a_result_is_one_line():
    hypotheses = tuple(Hypothesis((k,), -1.0 - k, np.ones((2, 50))) for k in range(1000))
    text = repr(SearchResult(hypotheses, False, 0.58, "the beam was full"))
    assert text.startswith("SearchResult(1000 hypotheses, best 0.367879, mass 0.58, not proved")
    assert len(text) < 100
    assert "array" not in repr(hypotheses[0])


def test_printed_bounds_are_rounded_up():
    """A string of 0.187133 was not to have more than 0.187."""
    for x in np.random.default_rng(0).random(300) ** 9:
        told = re.findall(r"[0-9][0-9.e-]*", bounds_text(x, 1.0))
        assert x * (1 - 1e-8) <= float(told[0]) <= 1.01 * x
        assert told[1] == "1"
    assert "above 0.3, all that are not listed 0.6 together" in bounds_text(0.1 + 0.2, 0.6)
    assert "above 0, all that are not listed 0 together" in bounds_text(0.0, 0.0)
