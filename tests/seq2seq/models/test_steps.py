"""Models from functions: what they say, and what is refused; `test_search` has their searches."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from automata import Automaton, stateful, stateless

import pyentmax as pe
from pyentmax.seq2seq.decoding import exact_search
from pyentmax.seq2seq.models import from_steps
from pyentmax.seq2seq.models.outputs import OutputRule

MADE = {"stateful": stateful, "stateless": stateless}


@pytest.mark.parametrize("made", MADE)
def test_padding_may_be_on_either_side(made):
    model = MADE[made](
        Automaton.of(
            [[0, 0.2, 0.5, 0.3], [0, 0.5, 0.5, 0], [0, 0.9, 0.0, 0.1]],
            [[0, 0, 1, 2], [0, 0, 2, 0], [0, 0, 0, 1]],
        )
    )
    source = np.array([[0, 2, 3, 2], [1, 0, 0, 0], [2, 3, 0, 0], [0, 0, 0, 0]])
    mask = np.arange(4) < np.array([[4], [1], [2], [1]])
    before = np.array([[0, 2, 3, 2], [0, 0, 0, 1], [0, 0, 2, 3], [0, 0, 0, 0]])
    results = [
        exact_search(model, *given, n_best=None, max_length=4)
        for given in ((source, mask), (before, mask[:, ::-1]))
    ]
    for one, other in zip(*results, strict=True):
        assert [(h.tokens, h.log_prob) for h in one.hypotheses] == [
            (h.tokens, h.log_prob) for h in other.hypotheses
        ]


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
