"""Models from functions: every search equals enumeration, whatever the state of the function is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from automata import EOS, automata
from hypothesis import given, settings
from hypothesis import strategies as st

import pyentmax as pe
from pyentmax.seq2seq.decoding import (
    HypothesisTree,
    ancestral_sampling,
    beam_search,
    exact_search,
    greedy_search,
)
from pyentmax.seq2seq.models import from_steps
from pyentmax.seq2seq.models.outputs import OutputRule

ALL = "min_p=0"  # what is −∞ is impossible, and nothing else


class Places(NamedTuple):
    place: np.ndarray
    again: dict[str, list[np.ndarray]]


def stateful(model):
    """A function that walks through an automaton, with the place in a nested state."""

    def fn(prefixes, state):
        if state is None:
            place = prefixes[:, 0]
            for token in prefixes[:, 1:].T:
                place = model.following[place, token]
        else:
            assert np.array_equal(state.place, state.again["x"][0])
            place = model.following[state.place, prefixes[:, -1]]
        return model.log_prob[place], Places(place, {"x": [place.copy()]})

    return from_steps(fn, eos=EOS, keep=ALL)


def stateless(model):
    """The same without a state, which reads all of a prefix."""

    def fn(prefixes, state):
        assert state is None
        place = prefixes[:, 0]
        for token in prefixes[:, 1:].T:
            place = model.following[place, token]
        return model.log_prob[place], None

    return from_steps(fn, eos=EOS, keep=ALL)


def listed(result):
    return {h.tokens: h.log_prob for h in result.hypotheses if h.finished}


@given(automata(), st.integers(1, 7), st.sampled_from([stateful, stateless]))
@settings(max_examples=40, deadline=None)
def test_searches_equal_enumeration(automaton, width, made):
    model, source = made(automaton), np.array([[0]])
    found = automaton.strings(0, limit=20)
    [exact] = exact_search(model, source, source == 0, n_best=None, width=width, max_length=20)
    [beam] = beam_search(model, source, source == 0, beam=10_000, max_length=20)
    for result in (exact, beam):
        assert listed(result).keys() == found.keys()
        for tokens, log_prob in listed(result).items():
            assert log_prob == pytest.approx(found[tokens], rel=1e-9, abs=1e-12)
        assert result.exact
    tree = HypothesisTree.build(exact.hypotheses, str)
    assert tree.root.probability == pytest.approx(1, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("made", [stateful, stateless])
def test_sources_of_different_lengths_share_a_batch(made):
    following = [[0, 0, 1, 2], [0, 0, 2, 0], [0, 0, 0, 1]]
    table = [[0, 0.2, 0.5, 0.3], [0, 0.5, 0.5, 0], [0, 0.9, 0.0, 0.1]]
    from automata import Automaton

    model = made(Automaton.of(table, following))
    source = np.array([[0, 2, 3, 2], [1, 0, 0, 0], [2, 3, 0, 0], [0, 0, 0, 0]])
    mask = np.arange(4) < np.array([[4], [1], [2], [1]])
    shifted = np.array([[0, 2, 3, 2], [0, 0, 0, 1], [0, 0, 2, 3], [0, 0, 0, 0]])  # padded before
    together = exact_search(model, source, mask, n_best=None, max_length=4)
    before = exact_search(model, shifted, mask[:, ::-1], n_best=None, max_length=4)
    beams = beam_search(model, source, mask, beam=3, max_length=4)
    drawn = ancestral_sampling(model, source, mask, np.random.default_rng(0), samples=9)
    best = greedy_search(model, source, mask, max_length=4)
    for row in range(4):
        alone = source[row : row + 1, mask[row]]
        [one] = exact_search(model, alone, alone >= 0, n_best=None, max_length=4)
        assert listed(one) == listed(together[row]) == listed(before[row])
        [one] = beam_search(model, alone, alone >= 0, beam=3, max_length=4)
        assert listed(one) == listed(beams[row])
        assert len(drawn[row]) == 9
        np.testing.assert_array_equal(
            greedy_search(model, alone, alone >= 0, max_length=4)[0], best[row]
        )


@pytest.mark.parametrize("mapping", ["softmax", "entmax15", 2, "1.25"])
@pytest.mark.parametrize("keep", [None, "top_k=3", "top_p=0.7"])
def test_step_is_mapping_of_kept_scores(mapping, keep):
    z = np.random.default_rng(0).normal(size=(5, 9)) * 2
    mask = None
    if keep:
        name, value = keep.split("=")
        mask = getattr(pe.keep, name)(z / 0.7, float(value))
    alpha = {"softmax": 1, "entmax15": 1.5}.get(mapping, mapping)
    p = pe.entmax(z / 0.7, float(alpha), mask=mask)
    step = OutputRule(mapping, keep, 0.7, [4])(z, 3)
    np.testing.assert_allclose(np.exp(step.log_prob), p, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(step.support, p > 0)
    assert step.attention.shape == (5, 3)
    ends = OutputRule(mapping, keep, 0.7, [4, 0, 7])(z, 3)
    joined = p.copy()
    joined[:, 4] += p[:, 0] + p[:, 7]
    joined[:, [0, 7]] = 0
    np.testing.assert_allclose(np.exp(ends.log_prob), joined, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(ends.support, joined > 0)


@pytest.mark.parametrize(
    ("mapping", "keep", "sparse"),
    [
        ("softmax", None, False),
        ("softmax", "top_k=2", True),
        (1.5, None, True),
        (2, "top_k=2", True),
    ]
    + [("fusedmax:1", None, False), ("fusedmax:1", "top_k=2", False), (0.5, "top_k=2", True)],
)
def test_zeros_are_certain_only_where_proved(mapping, keep, sparse):
    assert OutputRule(mapping, keep, 1.0, [0]).is_sparse == sparse


def test_half_types_and_integers_become_floats():
    for dtype, expected in [(np.float16, np.float32), (np.float32, np.float32), (int, np.float64)]:
        model = from_steps(
            lambda p, s, d=dtype: (np.ones((len(p), 3), d), s), eos=0, keep="top_k=1"
        )
        step, _ = model.step(model.encode(np.array([[1]]), np.array([[True]])), np.array([0]))
        assert step.log_prob.dtype == expected


def run_step(fn, source=((1, 2), (2, 1)), **options):
    model = from_steps(fn, **{"eos": 0, "keep": "top_k=2", **options})
    source = np.array(source)
    return exact_search(model, source, source > 0, n_best=None, max_length=3)


def test_bad_functions_are_refused():
    def scores(prefixes):
        return np.zeros((len(prefixes), 3))

    with pytest.raises(ValueError, match=r"scores: expected shape \(2, vocabulary\).*got \(1, 3\)"):
        run_step(lambda p, s: (scores(p)[:1], s))
    with pytest.raises(
        ValueError, match=r"scores: expected .* the end \(7\) among them; got \(2, 3"
    ):
        run_step(lambda p, s: (scores(p), s), eos=7)
    with pytest.raises(
        ValueError, match=r"state: expected arrays with a row for each of 2 prefixes"
    ):
        run_step(lambda p, s: (scores(p), (np.zeros((3, 2)),)))
    with pytest.raises(TypeError, match="state: expected None, arrays or tensors .* got str"):
        run_step(lambda p, s: (scores(p), ["x"]))
    with pytest.raises(ValueError, match="no next token after 0 tokens.*NaN"):
        run_step(lambda p, s: (scores(p) + np.nan, s))
    with pytest.raises(ValueError, match="source: row 1 is empty; expected at least one token"):
        run_step(lambda p, s: (scores(p), s), source=((1, 2), (0, 0)))


def test_bad_choices_are_refused():
    def fn(prefixes: Any, state: Any) -> Any:
        raise AssertionError

    for eos in ([], -1, [2, -3]):
        with pytest.raises(
            ValueError, match="eos: expected the id of the token that ends a string"
        ):
            from_steps(fn, eos=eos)
    with pytest.raises(ValueError, match="temperature must be a number above 0, not 0"):
        from_steps(fn, eos=0, temperature=0)
    with pytest.raises(ValueError, match="keep: expected NAME=NUMBER, such as min_p=0.05"):
        from_steps(fn, eos=0, keep="min_p")
    with pytest.raises(ValueError, match="k must be .*at least 1"):
        from_steps(fn, eos=0, keep="top_k=0")
    with pytest.raises(ValueError, match="mapping: expected"):
        from_steps(fn, eos=0, mapping="hardmax")


@pytest.mark.slow
def test_import_loads_no_framework():
    code = (
        "import sys, pyentmax.seq2seq.models, pyentmax.seq2seq as s; s.list_outputs; "
        "print([m for m in ('torch', 'transformers', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
