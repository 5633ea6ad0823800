"""Attention: formulas, masks and gradients."""

import numpy as np
import pytest
from finite_differences import assert_gradients

from pyentmax import autograd as ag
from pyentmax.nn.attention import (
    SCORES,
    Memory,
    additive_scores,
    attend,
    choose_score,
    dot_scores,
    weighted_average,
    within_fertility,
)
from pyentmax.nn.mapping_choice import choose_mapping

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


def test_gradients():
    assert_gradients(dot_scores, normal(B, H), normal(B, S, H))
    assert_gradients(additive_scores, normal(B, H), normal(B, S, H), normal(H))
    assert_gradients(weighted_average, normal(B, S), normal(B, S, H))


FORMULAS = {  # of one value h and one query q, as the module's docstring has them
    "dot": lambda p, h, q: h @ q,
    "bilinear": lambda p, h, q: h @ p["a.weight"] @ q,
    "scaled": lambda p, h, q: h @ p["a.weight"] @ q / H**0.5,
    "additive": lambda p, h, q: p["a.v"] @ np.tanh(h @ p["a.weight"] + q @ p["a.query.weight"]),
}


@pytest.mark.parametrize("name", sorted(SCORES))
def test_named_scores(name):
    score = choose_score(name)
    params = score.initialize(np.random.default_rng(1), "a", H, np.float64)
    values, query = normal(B, S, H), normal(B, H)

    def compare(values, query, *arrays):
        given = dict(zip(params, arrays, strict=True))
        return score.compare(given, "a", query, score.keys(given, "a", values))

    z = compare(ag.as_tensor(values), query, *params.values()).data
    expected = [
        [FORMULAS[name](params, h, q) for h in row] for row, q in zip(values, query, strict=True)
    ]
    np.testing.assert_allclose(z, expected, rtol=1e-12, atol=1e-14)
    assert_gradients(compare, values, query, *params.values())


def test_a_score_that_does_not_exist():
    with pytest.raises(ValueError, match="score: expected one of additive, .*; got 'cosine'"):
        choose_score("cosine")


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


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
def test_gradients_within_a_fertility(name):
    # Bounds that hold in some rows and entries and not in others; the sink takes the rest.
    scores = np.array([[1.0, 0.3, -0.4, 0.6], [2.0, 1.5, 0.0, 0.0], [0.7, 0.0, 0.0, 0.0]])
    upper = np.array([[0.2, 0.9, 0.4, 0.15], [0.3, 0.25, 0.5, 0.5], [0.4, 1.0, 1.0, 1.0]])

    def weights(z, u):
        return within_fertility(z, u, name, MASK)

    p = weights(ag.as_tensor(scores), upper).data
    held = np.isclose(p, upper, rtol=1e-15, atol=0)
    assert held.any()
    assert not held.all()
    assert (p <= upper).all()
    assert not p[~MASK].any()
    assert_gradients(weights, scores, upper)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
def test_gradients_through_the_attention_already_spent(name):
    mask = np.array([[True, True, True], [True, True, False]])

    def three_steps(z):
        spent, every = ag.as_tensor(np.zeros((2, 3))), []
        for t in range(3):
            weights = within_fertility(z[t], 0.45 - spent, name, mask)
            spent = spent + weights
            every.append(weights)
        return ag.stack(every)

    z = np.random.default_rng(2).normal(1, 0.5, (3, 2, 3))
    p = three_steps(ag.as_tensor(z)).data
    assert (p.sum(axis=0) <= 0.45 + 1e-15).all()
    assert np.isclose(p.sum(axis=0), 0.45, rtol=1e-15, atol=0).any(), "some fertility is used up"
    assert_gradients(three_steps, z)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_used_up_fertility_leaves_the_sink_alone(name, dtype):
    z = ag.Tensor(np.array([[3.0, 5.0, 1.0], [4.0, 2.0, 0.0]], dtype), requires_grad=True)
    # A remainder that rounding has put under zero counts as zero.
    upper = np.array([[0.0, -1e-7, 0.0], [0.0, 0.25, 0.0]], dtype)
    weights = within_fertility(z, upper, name, np.array([[True, True, True], [True, True, False]]))
    assert weights.dtype == dtype
    np.testing.assert_array_equal(weights.data, np.array([[0, 0, 0], [0, 0.25, 0]], dtype))
    weights.backward(np.ones((2, 3), dtype))
    np.testing.assert_array_equal(z.grad, np.zeros((2, 3), dtype))
