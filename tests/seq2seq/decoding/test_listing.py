"""Lists of all outputs: complete only if they are, and a bound on what is missing where not."""

from __future__ import annotations

import numpy as np
import pytest
from automata import EOS, Automaton, loop

import pyentmax.seq2seq
from pyentmax.seq2seq.decoding import list_outputs
from pyentmax.seq2seq.decoding.search import Missing
from pyentmax.seq2seq.models import from_steps
from pyentmax.seq2seq.models.outputs import OutputRule

WORDS = Automaton.of(  # after token 2 or 3 nothing, or the other one
    [[0, 0.1, 0.6, 0.3], [0, 0.5, 0, 0.5], [0, 0.25, 0.75, 0], [0, 1, 0, 0]],
    [[0, 0, 1, 2], [3, 3, 3, 3], [3, 3, 3, 3], [3, 3, 3, 3]],
)


class Letters:
    """A tokenizer of two letters, which it spells alike."""

    def encode(self, text):
        return [{"start": 0}[text]]

    def decode(self, ids):
        return "".join("??aA"[i] for i in ids).lower()


def test_outputs_of_several_inputs_with_texts():
    one, two = list_outputs(WORDS, [[0], [1, 0]], Letters())
    assert one.texts == ("a", "aa", "aa", "", "a")
    assert [h.tokens for h in one.hypotheses] == [(2,), (2, 3), (3, 2), (), (3,)]
    assert one.by_text() == pytest.approx({"aa": 0.525, "a": 0.375, "": 0.1}, rel=1e-9, abs=1e-12)
    assert list(one.by_text()) == ["aa", "a", ""]
    assert one.complete
    assert one.total == pytest.approx(1, rel=1e-9, abs=1e-12)
    assert one.reason.startswith("Exact and complete")
    assert repr(one) == "OutputList(5 outputs, total 1, complete)"
    assert one.tree().root.probability == pytest.approx(1, rel=1e-9, abs=1e-12)
    assert "aa" in str(one.tree())
    assert {h.tokens for h in two.hypotheses} == {(), (3,)}
    [text] = list_outputs(WORDS, "start", Letters())
    assert text.texts == one.texts
    [cut] = list_outputs(WORDS, [[0]], keep="top_k=1")
    assert [h.tokens for h in cut.hypotheses] in ([(2,)], [(2,), (2, 3)])


def test_upper_bound_is_zero_only_with_proof():
    [outputs] = list_outputs(WORDS, [[0]], Letters())
    assert outputs.at_most(lambda text: "x" in text) == 0
    assert outputs.at_most(lambda text: text == "aa") == pytest.approx(0.525, rel=1e-9, abs=1e-12)
    [short] = list_outputs(WORDS, [[0]], Letters(), max_length=1)
    assert not short.complete
    assert short.rest == pytest.approx(0.525, rel=1e-9, abs=1e-12)
    assert "beyond the limit of 1 tokens" in short.reason
    assert repr(short) == "OutputList(3 outputs, total 0.475, not complete, at most 0.525 missing)"
    assert short.at_most(lambda text: "x" in text) == short.rest
    assert short.at_most(lambda text: True) == pytest.approx(1, rel=1e-9, abs=1e-12)


def test_output_too_improbable_for_a_float_is_not_impossible():
    model = loop(0.5)
    model.log_prob = np.where(model.support, [[0, -800.0, 0.0]], -np.inf)
    [outputs] = list_outputs(model, [[0]], Letters(), max_length=1)
    assert outputs.hypotheses[0].probability == 0
    assert outputs.at_most(lambda text: text == "") > 0


def test_unfinished_prefixes_are_not_outputs():
    def fn(prefixes, state):
        return np.tile([0.0, 0.0, 2.0, 0.0], (len(prefixes), 1)), state

    model = from_steps(fn, eos=0, keep="top_k=1")
    [outputs] = list_outputs(model, [[0]], Letters(), max_length=2)
    assert repr(outputs).startswith("OutputList(0 outputs, total 0, not complete, at most 1")
    assert (outputs.hypotheses, outputs.texts, outputs.by_text()) == ((), (), {})
    assert [h.tokens for h in outputs.unfinished] == [(2, 2)]
    assert "…" in str(outputs.tree())


def test_mappings_of_tokenizers_are_read():
    expected = list_outputs(WORDS, [[0], [1, 0]])
    ids, mask = np.array([[3, 0], [1, 0]]), np.array([[0, 1], [1, 1]])
    for inputs in ({"input_ids": ids, "attention_mask": mask}, {"input_ids": [[0], [1, 0]]}):
        found = list_outputs(WORDS, inputs)
        assert [[h.tokens for h in x.hypotheses] for x in found] == [
            [h.tokens for h in x.hypotheses] for x in expected
        ]
    [one] = list_outputs(WORDS, {"input_ids": [1, 0], "attention_mask": [1, 1]})
    assert {h.tokens for h in one.hypotheses} == {(), (3,)}
    with pytest.raises(TypeError, match="inputs: expected input_ids in a mapping, got text"):
        list_outputs(WORDS, {"text": ["start"]}, Letters())


def test_several_keep_sets_follow_each_other():
    def fn(prefixes, state):
        return np.tile(np.log([0.05, 0.5, 0.25, 0.2]), (len(prefixes), 1)), state

    for keep, listed in (("top_k=3,top_p=0.76", [1, 2]), ("top_p=0.76,top_k=3", [1, 2, 3])):
        model = from_steps(fn, eos=np.array([1]), keep=keep)
        [outputs] = list_outputs(model, [[2]], max_length=1)
        tokens = {h.tokens for h in outputs.hypotheses}
        support = model.output(np.log([[0.05, 0.5, 0.25, 0.2]]), 0).support
        assert np.flatnonzero(support).tolist() == listed
        assert tokens == {(), *((x,) for x in listed if x != 1)}
    [cut] = list_outputs(WORDS, [[0]], keep="top_k=2,top_p=0.5")
    [alone] = list_outputs(WORDS, [[0]], keep="top_p=0.5")
    assert {h.tokens for h in cut.hypotheses} == {h.tokens for h in alone.hypotheses}


# --- planted faults -------------------------------------------------------------------------------
def test_dropped_prefix_prevents_the_claim(monkeypatch):
    monkeypatch.setattr(Missing, "add", lambda *arguments: None)
    [outputs] = list_outputs(WORDS, [[0]], max_length=1)
    assert not outputs.complete
    assert outputs.rest == 1
    assert outputs.reason.startswith(
        "Not proved complete: what is listed and what is open sum to 0"
    )


@pytest.mark.parametrize("shift", [-0.01, 0.01])
def test_wrong_mass_prevents_the_claim(monkeypatch, shift):
    def fn(prefixes, state):
        return np.tile(
            [1.0, 1.0, 0.0] if prefixes.shape[1] < 3 else [9.0, 0, 0], (len(prefixes), 1)
        ), None

    model = from_steps(fn, eos=0, keep="min_p=0.1")
    [outputs] = list_outputs(model, [[1]], max_length=9)
    assert outputs.complete
    call = OutputRule.__call__

    def off(self, *arguments, **options):
        step = call(self, *arguments, **options)
        return step._replace(log_prob=step.log_prob + shift)

    monkeypatch.setattr(OutputRule, "__call__", off)
    [outputs] = list_outputs(model, [[1]], max_length=9)
    assert not outputs.complete
    assert "sum to" in outputs.reason


# --- bad input ------------------------------------------------------------------------------------
def test_bad_input_is_refused():
    dense = loop(0.5, output_is_sparse=False)
    with pytest.raises(ValueError, match=r"mapping: expected one whose zeros .*keep='min_p=0.05'"):
        list_outputs(dense, [[0]])
    [cut] = list_outputs(dense, [[0]], keep="top_k=1", max_length=1)
    assert len(cut.hypotheses) == 2
    with pytest.raises(ValueError, match="expected none for a model of pyentmax.seq2seq.models"):
        list_outputs(WORDS, [[0]], mapping="sparsemax")
    with pytest.raises(TypeError, match="model: expected one of transformers .* got function"):
        list_outputs(lambda prefixes, state: None, [[0]])
    with pytest.raises(ValueError, match="inputs: expected token ids, or a tokenizer for texts"):
        list_outputs(WORDS, "start")
    with pytest.raises(ValueError, match="inputs: input 1 has no token"):
        list_outputs(WORDS, [[0], []])
    for inputs in ([0, 1], [[[0]]]):
        with pytest.raises(ValueError, match="inputs: expected a batch"):
            list_outputs(WORDS, inputs)
    for ids in ([[0.0]], [["0"]], [[True]], np.array([[1.5]])):
        with pytest.raises((TypeError, ValueError), match="inputs: expected"):
            list_outputs(WORDS, ids)
    for keep in ({"top_k": 50}, ["top_k=50"], 0.1):
        with pytest.raises(ValueError, match="keep: expected NAME=NUMBER"):
            list_outputs(WORDS, [[0]], keep=keep)
    with pytest.raises(ValueError, match="budget must be at least 1"):
        list_outputs(WORDS, [[0]], budget=0)
    [outputs] = list_outputs(WORDS, [[0]])
    for ask in (outputs.by_text, lambda: outputs.at_most(bool)):
        with pytest.raises(ValueError, match="pass a tokenizer to list_outputs"):
            ask()
    assert list_outputs(WORDS, []) == []


def test_package_has_the_function():
    assert pyentmax.seq2seq.list_outputs is list_outputs
    with pytest.raises(AttributeError, match="no attribute 'list_output'"):
        pyentmax.seq2seq.list_output  # noqa: B018
    assert EOS == WORDS.eos
