"""The layers of a Transformer besides attention, by their formulas."""

import numpy as np
import pytest

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.feed_forward import feed_forward, init_feed_forward
from pyentmax.seq2seq.nn.layer_norm import EPS, init_norm, layer_norm, norm
from pyentmax.seq2seq.nn.positions import sinusoidal_positions

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_layer_norm_equals_its_formula(leading):
    x, gain, bias = 2 * normal(*leading, 5) + 1, normal(5), normal(5)
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    expected = gain * (x - mean) / np.sqrt(variance + EPS) + bias
    np.testing.assert_allclose(layer_norm(x, gain, bias).data, expected, rtol=1e-12, atol=1e-14)


def test_layer_norm_of_equal_features_is_the_shift():
    x = np.full((2, 4), 1e4)
    bias = normal(4)
    np.testing.assert_array_equal(layer_norm(x, np.ones(4), bias).data, np.tile(bias, (2, 1)))


def test_layer_norm_of_a_view_and_of_float32():
    x = normal(4, 3, 6).astype(np.float32)
    params = {name: Tensor(a, requires_grad=True) for name, a in init_norm("n", 6).items()}
    view = Tensor(x.transpose(1, 0, 2), requires_grad=True)
    y = norm(params, "n", view)
    whole = norm(init_norm("n", 6), "n", x).data
    # float32: a few roundings of numbers about 1.
    np.testing.assert_allclose(y.data, whole.transpose(1, 0, 2), rtol=1e-5, atol=1e-6)
    y.backward(np.broadcast_to(np.float32(1), y.shape))
    assert {y.dtype, view.grad.dtype, params["n.gain"].grad.dtype} == {np.dtype(np.float32)}


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_feed_forward_equals_its_formula(rate):
    params = init_feed_forward(np.random.default_rng(1), "f", 3, 7, np.float64)
    params = {name: a + 0.1 * normal(*a.shape) for name, a in params.items()}
    x = normal(2, 4, 3)
    w1, b1, w2, b2 = params.values()
    expected = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    np.testing.assert_allclose(feed_forward(params, "f", x, rate).data, expected, rtol=1e-12)


def test_feed_forward_drops_units_at_its_rate():
    ones = {"f.inner.weight": np.ones((1, 20_000)), "f.inner.bias": np.zeros(20_000)}
    ones |= {"f.output.weight": np.ones((20_000, 1)), "f.output.bias": np.zeros(1)}
    [[mean]] = (
        feed_forward(ones, "f", np.ones((1, 1)), 0.25, np.random.default_rng(0)).data / 20_000
    )
    # Three standard errors of a mean of 20,000 draws.
    assert mean == pytest.approx(1, rel=0, abs=3 * (1 / 3 / 20_000) ** 0.5)


def test_positions_are_the_papers_reordered():
    found = sinusoidal_positions(np.arange(50), 8, np.float64)
    for t in (0, 7, 49):
        for i in range(4):
            angle = t / 10_000 ** (2 * i / 8)
            assert found[t, i] == pytest.approx(np.sin(angle), rel=1e-12, abs=1e-15)
            assert found[t, 4 + i] == pytest.approx(np.cos(angle), rel=1e-12, abs=1e-15)
    np.testing.assert_array_equal(
        sinusoidal_positions(np.array([[3, 7]]), 8, np.float64)[0, 1], found[7]
    )
    with pytest.raises(ValueError, match="width: expected an even number from 2 up, got 5"):
        sinusoidal_positions(np.arange(3), 5)
