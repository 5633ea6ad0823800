"""Attention of one query: the formula, masks and gradients."""

import numpy as np
import pytest
from finite_differences import assert_gradients

from pyentmax.seq2seq import autograd as ag
from pyentmax.seq2seq.nn.attention import (
    Memory,
    attend,
    dot_scores,
    weighted_average,
)
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

RNG = np.random.default_rng(0)
B, S, H = 3, 4, 2
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)


def normal(*shape):
    return RNG.standard_normal(shape)


def test_scores_and_averages_by_einsum():
    q, k, p = normal(B, H), normal(B, S, H), normal(B, S)
    np.testing.assert_allclose(dot_scores(q, k).data, np.einsum("bh,bsh->bs", q, k), rtol=1e-12)
    np.testing.assert_allclose(
        weighted_average(p, k).data, np.einsum("bs,bsh->bh", p, k), rtol=1e-12
    )


@pytest.mark.parametrize("leading", [(), (B,), (2, 3)])
def test_gradients_of_averages(leading):
    assert_gradients(weighted_average, normal(*leading, S), normal(*leading, S, H))


@pytest.mark.parametrize("mapping", ["1", "1.3", "1.5", "2"])
def test_attend(mapping):
    chosen = choose_mapping(mapping)

    def function(q, k, v):
        context, weights = attend(dot_scores(q, k), Memory(k, v, MASK), chosen)
        return ag.concatenate([context, weights])

    q, k, v = normal(B, H), normal(B, S, H), normal(B, S, H)
    assert_gradients(function, q, k, v, rtol=1e-5)
    context, weights = attend(dot_scores(q, k), Memory(k, v, MASK), chosen)
    assert not weights.data[~MASK].any()
    np.testing.assert_allclose(weights.data.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(context.data[2], v[2, 0], rtol=1e-12)
