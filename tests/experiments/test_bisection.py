"""α-entmax by bisection gives what the exact algorithms do, and trains as they do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import pyentmax as pe
from experiments.peters2019.bisection import bisection
from pyentmax.seq2seq.autograd import Tensor
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
