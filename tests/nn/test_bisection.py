"""α-entmax by bisection is α-entmax, also where a model is trained with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import pyentmax as pe
from pyentmax import autograd as ag
from pyentmax.nn.bisection import entmax_by_bisection
from pyentmax.nn.mapping_choice import choose_mapping

ALPHAS = [1.25, 1.5, 2.0, 3.0]
ROWS = arrays(np.float64, (3, 5), elements=st.floats(-20, 20, width=32))


@given(ROWS, st.sampled_from(ALPHAS))
def test_bisection_agrees_with_exact_algorithms(z, alpha):
    mask = np.ones(z.shape, dtype=bool)
    mask[1, 2:] = False
    mask[2] = False
    p = entmax_by_bisection(z, alpha, mask=mask)
    np.testing.assert_allclose(p, pe.entmax(z, alpha, mask=mask), rtol=0, atol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), [1, 1, 0], rtol=0, atol=1e-14)


@given(ROWS, st.sampled_from(ALPHAS))
def test_bisection_has_the_gradients_of_entmax(z, alpha):
    chosen, other = choose_mapping(f"bisection:{alpha}"), choose_mapping(alpha)
    assert chosen.sparse
    assert chosen.alpha == alpha
    g = np.arange(15.0).reshape(3, 5)
    found = []
    for mapping in (chosen, other):
        scores = ag.Tensor(z, requires_grad=True)
        mapping(scores).backward(g)
        loss_scores = ag.Tensor(z, requires_grad=True)
        loss = mapping.loss(loss_scores, np.array([0, 1, 4]))
        loss.backward()
        found.append((loss.data, loss_scores.grad))
        if mapping is chosen:
            p = entmax_by_bisection(z, alpha)
            np.testing.assert_allclose(scores.grad, pe.entmax_vjp(p, g, alpha), rtol=1e-12)
    for ours, theirs in zip(*found, strict=True):
        # Above α = 2 p leaves 0 steeply: an ulp of the threshold is its root in p.
        atol = 1e-11 if alpha <= 2 else 1e-6
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=atol)


def test_log_probabilities_and_support_match_bisection():
    z = np.array([[2.0, 1.6, -1.0]])
    log_p, support = choose_mapping("bisection:1.5").log_probabilities(z)
    np.testing.assert_array_equal(support, [[True, True, False]])
    np.testing.assert_allclose(np.exp(log_p), [[0.64, 0.36, 0]], rtol=1e-14)


def test_bisection_keeps_the_dtype_of_scores():
    p = entmax_by_bisection(np.array([2.0, 1.6, -1.0], np.float32))
    assert p.dtype == np.float32
    np.testing.assert_allclose(p, [0.64, 0.36, 0], rtol=1e-6)


def test_bad_alphas_are_refused():
    for alpha in (1, 0.5, np.inf):
        with pytest.raises(ValueError, match="alpha must be above 1"):
            entmax_by_bisection([1.0, 0.0], alpha)
    with pytest.raises(ValueError, match="expected bisection:ALPHA, numbers"):
        choose_mapping("bisection")


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("bisection:0.5", "alpha must be above 1"),
        ("topk_softmax:nan", "k must be at least 1"),
        ("topk_softmax:0", "k must be at least 1"),
        ("topk_sparsemax:1.5", "k must be a whole number"),
        ("fusedmax:-1", "strength must be at least 0"),
        ("entmax:nan", "alpha must be at least 1"),
        ("normmax:1", "alpha must be above 1"),
        ("csoftmax:-0.1", "upper must be at least 0"),
        ("budget_sparsemax:nan", "budget must be at least 0"),
    ],
)
def test_bad_parameters_are_refused_with_the_mappings_name(choice, words):
    """A training wrote its first checkpoint before it came to the numbers."""
    with pytest.raises(ValueError, match=f"mapping: {words}.*, in '{choice}'"):
        choose_mapping(choice)


@pytest.mark.parametrize(
    "choice", ["csoftmax:0.1", "budget_sparsemax:7", "topk_softmax:1e9", "fusedmax:0", "entmax:inf"]
)
def test_parameters_valid_for_some_rows_are_accepted(choice):
    assert str(choose_mapping(choice).params[0]) in {"0.1", "7.0", "1000000000.0", "0.0", "inf"}
