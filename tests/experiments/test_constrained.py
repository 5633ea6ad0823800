"""Constrained searches list the strings that are allowed, and bound the others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from automata import Automaton, automata, loop
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.own.constrained import Constrained
from pyentmax.seq2seq.decoding import beam_search, exact_search


@pytest.mark.parametrize("search", [beam_search, exact_search])
@given(model=automata(), least=st.integers(0, 4), n=st.sampled_from([None, 1, 2, 3]))
@settings(max_examples=25, deadline=None)
def test_constrained_lists_are_the_allowed_strings(model, least, n, search):
    def allowed(tokens):
        grams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)] if n else []
        return len(tokens) >= least and len(set(grams)) == len(grams)

    found, source = model.strings(0, limit=6), np.zeros((1, 3), int)
    constrained = Constrained(model, least, n)
    wide = {"beam": 10_000} if search is beam_search else {"n_best": None}
    [raw] = search(constrained, source, source == 0, max_length=20, **wide)
    [result] = constrained.certified([raw])
    listed = {h.tokens: h.log_prob for h in result.hypotheses}
    assert all(found[tokens] == pytest.approx(p, rel=1e-12, abs=0) for tokens, p in listed.items())
    assert {tokens for tokens in found if allowed(tokens)} <= listed.keys()
    rest = sum(math.exp(p) for tokens, p in found.items() if tokens not in listed)
    assert result.exact == (0 not in constrained.excluded)
    if result.exact:
        assert rest < 1e-12
        assert result is raw
    else:
        assert result.proved == 0
        assert result.bound == result.mass_bound == pytest.approx(rest, abs=1e-9)
        assert result.reason.startswith("Among the strings that the constraints allow: ")


def test_string_that_has_to_end_may_end_early():
    ends = Automaton.of([[0, 0, 1.0], [0, 1.0, 0]], [[0, 0, 1], [1, 1, 1]])
    constrained, source = Constrained(ends, 5), np.zeros((1, 3), int)
    [result] = constrained.certified(beam_search(constrained, source, source == 0))
    assert [h.tokens for h in result.hypotheses] == [(2,)]
    assert result.exact


def test_each_source_has_its_own_constraint_and_certificate():
    loop = Automaton.of([[0, 0.5, 0.5], [0, 1.0, 0]], [[0, 0, 0], [1, 1, 1]])
    constrained = Constrained(loop, no_repeat_ngram=1)
    source = np.array([[1, 1], [0, 0]])
    for search, options in ((beam_search, {}), (exact_search, {"n_best": None})):
        one, two = constrained.certified(search(constrained, source, source >= 0, **options))
        assert [h.tokens for h in one.hypotheses] == [()]
        assert [h.tokens for h in two.hypotheses] == [(), (2,)]
        assert (one.exact, two.exact) == (True, False)
        assert two.mass_bound == pytest.approx(0.25, rel=1e-12, abs=0)


@pytest.mark.parametrize("options", [{"min_length": -1}, {"no_repeat_ngram": 0}])
def test_constraints_below_one_are_refused(options):
    with pytest.raises(ValueError, match="must be at least 1"):
        Constrained(loop(0.5), **options)
