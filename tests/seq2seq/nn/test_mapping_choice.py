"""Mappings chosen by name: bisection is α-entmax, bad parameters are refused, zeros are certain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import pyentmax as pe
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.bisection import bisection
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

ALPHAS = [1.25, 1.5, 2.0, 3.0]
ROWS = arrays(np.float64, (3, 5), elements=st.floats(-20, 20, width=32))


@given(ROWS, st.sampled_from(ALPHAS))
def test_bisection_agrees_with_exact_algorithms(z, alpha):
    mask = np.ones(z.shape, dtype=bool)
    mask[1, 2:] = False
    mask[2] = False
    p = bisection(z, alpha, mask=mask)
    np.testing.assert_allclose(p, pe.entmax(z, alpha, mask=mask), rtol=0, atol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), [1, 1, 0], rtol=0, atol=1e-14)


@given(ROWS, st.sampled_from(ALPHAS))
def test_bisection_trains_as_entmax(z, alpha):
    g = np.arange(15.0).reshape(3, 5)
    results = []
    for mapping in (choose_mapping(f"bisection:{alpha}"), choose_mapping(alpha)):
        assert mapping.alpha == alpha
        assert mapping.proves_zeros
        scores, loss_scores = Tensor(z, requires_grad=True), Tensor(z, requires_grad=True)
        p = mapping(scores)
        p.backward(g)
        np.testing.assert_allclose(scores.grad, pe.entmax.vjp(p.data, g, alpha), rtol=1e-12)
        loss = mapping.loss(loss_scores, np.array([0, 1, 4]))
        loss.backward()
        results.append((loss.data, loss_scores.grad))
    for ours, theirs in zip(*results, strict=True):
        # Above α = 2 p leaves 0 steeply: an ulp of the threshold is its root in p.
        atol = 1e-11 if alpha <= 2 else 1e-6
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=atol)


def test_bisection_keeps_the_dtype_of_scores():
    p = bisection(np.array([2.0, 1.6, -1.0], np.float32))
    assert p.dtype == np.float32
    np.testing.assert_allclose(p, [0.64, 0.36, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("bisection", "expected bisection:ALPHA, numbers"),
        ("bisection:1", "alpha must be above 1"),
        ("topk_softmax:nan", "k must be at least 1"),
        ("topk_softmax:0", "k must be at least 1"),
        ("topk_sparsemax:1.5", "k must be a whole number"),
        ("fusedmax:-1", "strength must be at least 0"),
        ("entmax:nan", "alpha must be above 0"),
        ("csoftmax:-0.1", "upper must be at least 0"),
        ("budget_sparsemax:nan", "budget must be at least 0"),
    ],
)
def test_bad_parameters_are_refused(choice, words):
    with pytest.raises(ValueError, match=f"mapping: {words}.*'{choice}'"):
        choose_mapping(choice)


@pytest.mark.parametrize(
    "choice", ["csoftmax:0.1", "budget_sparsemax:7", "topk_softmax:1e9", "fusedmax:0", "entmax:inf"]
)
def test_parameters_valid_for_some_rows_are_accepted(choice):
    assert str(choose_mapping(choice).params[0]) in {"0.1", "7.0", "1000000000.0", "0.0", "inf"}


@pytest.mark.parametrize("name", ["fusedmax:0.1", "oscarmax:0.1"])
def test_support_holds_all_positive_probabilities(name):
    # p and the support are computed separately, and may round a score on the threshold differently.
    z = np.round(4 * np.random.default_rng(0).standard_normal((16_000, 6))) / 8
    log_p, possible, _ = choose_mapping(name).certified(z)
    assert possible[log_p > -np.inf].all()
