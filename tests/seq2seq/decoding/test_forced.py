"""Forced decoding on automata whose strings can be enumerated."""

from __future__ import annotations

import numpy as np
import pytest
from automata import EOS, Automaton

from pyentmax.seq2seq.decoding import forced_decoding

# State 0 says 2 (3/4) or 3; 2 leads to state 1, which ends; 3 to state 2, which says 2 or ends.
SMALL = [[0, 0, 0.75, 0.25], [0, 1, 0, 0], [0, 0.5, 0.5, 0]]
NEXT = [[0, 0, 1, 2], [0, 0, 0, 0], [0, 0, 1, 0]]


def force(model, targets, start=0, length=3):
    source = np.full((len(targets), length), start)
    return forced_decoding(model, source, np.ones_like(source, dtype=bool), targets)


def test_steps_list_the_possible_tokens():
    model = Automaton.of(SMALL, NEXT)
    [said] = force(model, [(3, 2)])
    assert [step.token for step in said.steps] == [3, 2, EOS]
    assert [step.possible for step in said.steps] == [True, True, True]
    np.testing.assert_allclose(
        [step.probability for step in said.steps], [0.25, 0.5, 1], rtol=1e-15
    )
    assert [[token for token, _ in step.others] for step in said.steps] == [[2], [EOS], []]
    np.testing.assert_allclose(said.steps[0].others[0][1], 0.75, rtol=1e-15)
    np.testing.assert_allclose(said.probability, 0.125, rtol=1e-15)
    # The others come by probability, then by id.
    [said] = force(Automaton.of([[0, 0.125, 0.25, 0.25, 0.375]], [[0] * 5]), [()])
    assert [token for token, _ in said.steps[0].others] == [4, 2, 3]


def test_impossible_tokens_are_fed():
    model = Automaton.of(SMALL, NEXT)
    [said] = force(model, [(2, 3)])
    assert said.possible.tolist() == [True, False, False]
    assert said.probability == 0
    assert said.token_log_probs[1] == -np.inf
    assert said.steps[1].probability == 0
    # The automaton goes from state 1 by token 3 to state 0, which says 2 or 3 again.
    assert [token for token, _ in said.steps[2].others] == [2, 3]


def test_support_is_that_of_the_mapping():
    model = Automaton.of(SMALL, NEXT)
    model.support[1, 3] = True  # possible, but its float is zero
    [said] = force(model, [(2, 3)])
    assert said.possible.tolist() == [True, True, False]
    assert said.steps[1].probability == 0
    assert said.steps[1].possible


def test_batched_targets_decode_as_alone():
    model = Automaton.of(SMALL, NEXT)
    targets = [(3, 2), (), (2,), (3, 2, 3, 2)]
    together = force(model, targets)
    assert max(model.steps) == 4
    assert model.steps == [4, 3, 2, 1, 1]  # finished targets are not fed on
    for target, said in zip(targets, together, strict=True):
        [alone] = force(model, [target])
        for name in ("tokens", "log_prob", "support", "attention"):
            np.testing.assert_array_equal(getattr(said, name), getattr(alone, name))


def test_attention_excludes_padding():
    model = Automaton.of(SMALL, NEXT)
    source, mask = np.zeros((2, 3), int), np.array([[1, 1, 1], [1, 0, 0]], bool)
    wide, narrow = forced_decoding(model, source, mask, [(2,), (2,)])
    assert wide.attention.shape == (2, 3)
    assert narrow.attention.shape == (2, 1)
    np.testing.assert_array_equal(narrow.attention[:, 0], [1, 2])  # state 0, then state 1


def test_each_source_needs_a_target():
    model = Automaton.of(SMALL, NEXT)
    source = np.zeros((2, 1), int)
    with pytest.raises(ValueError, match="one target for each of the 2 sources, got 1"):
        forced_decoding(model, source, source == 0, [(2,)])
