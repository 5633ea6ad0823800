"""Attention within a fertility: bounds, the sink, and gradients through what was spent."""

import numpy as np
import pytest
from finite_differences import assert_gradients

from pyentmax.seq2seq import autograd as ag
from pyentmax.seq2seq.nn.attention import constrained_attention

MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
def test_gradients_within_a_fertility(name):
    # Bounds that hold in some rows and entries and not in others; the sink takes the rest.
    scores = np.array([[1.0, 0.3, -0.4, 0.6], [2.0, 1.5, 0.0, 0.0], [0.7, 0.0, 0.0, 0.0]])
    upper = np.array([[0.2, 0.9, 0.4, 0.15], [0.3, 0.25, 0.5, 0.5], [0.4, 1.0, 1.0, 1.0]])

    def weights(z, u):
        return constrained_attention(z, u, name, MASK)

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
            weights = constrained_attention(z[t], 0.45 - spent, name, mask)
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
    mask = np.array([[True, True, True], [True, True, False]])
    weights = constrained_attention(z, upper, name, mask)
    assert weights.dtype == dtype
    np.testing.assert_array_equal(weights.data, np.array([[0, 0, 0], [0, 0.25, 0]], dtype))
    weights.backward(np.ones((2, 3), dtype))
    np.testing.assert_array_equal(z.grad, np.zeros((2, 3), dtype))
