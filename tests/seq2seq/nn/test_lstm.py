"""The LSTM against its defining formulas, and against itself step by step."""

import numpy as np
import pytest

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.lstm import bilstm, init_bilstm, init_lstm, lstm, lstm_step

RNG = np.random.default_rng(0)
T, B, H = 4, 3, 2
MASK = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 0, 0]], bool)


def normal(*shape):
    return RNG.standard_normal(shape)


def by_the_book(a, u, mask=None, reverse=False):
    """The formulas of the module's docstring, one example and one unit at a time."""
    steps, batch, _ = a.shape
    n = len(u)
    hidden, last = np.zeros((steps, batch, n)), np.zeros((2, batch, n))
    for b in range(batch):
        h, c = np.zeros(n), np.zeros(n)
        for t in range(steps)[:: -1 if reverse else 1]:
            if mask is None or mask[t, b]:
                i, f, o, g = np.split(a[t, b] + h @ u, 4)
                i, f, o = (1 / (1 + np.exp(-x)) for x in (i, f, o))
                c = f * c + i * np.tanh(g)
                h = o * np.tanh(c)
            hidden[t, b] = h
        last[:, b] = h, c
    return hidden, last


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mask", [None, MASK])
def test_forward(mask, reverse):
    a, u = normal(T, B, 4 * H), normal(H, 4 * H)
    kept = a.copy()
    hidden, last = lstm(a, u, mask, reverse)
    expected_hidden, expected_last = by_the_book(a, u, mask, reverse)
    np.testing.assert_allclose(hidden.data, expected_hidden, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(last.data, expected_last, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(a, kept)


def test_steps_and_sequence_agree():
    a, x, w, u = normal(T, B, 4 * H), normal(T, B, 3), normal(3, 4 * H), normal(H, 4 * H)
    state = Tensor(np.zeros((2, B, H)))
    for step_a, step_x in zip(a, x, strict=True):
        state = lstm_step(step_a, step_x, state, np.concatenate([w, u]))
    np.testing.assert_allclose(state.data, lstm(a + x @ w, u)[1].data, rtol=1e-12, atol=1e-14)


def test_bidirectional_layer():
    rng = np.random.default_rng(1)
    params = init_bilstm(rng, "e", 5, 2 * H, np.float64)
    x = normal(T, B, 5)
    hidden, last = bilstm(params, "e", x, MASK)
    for half, (name, reverse) in enumerate([("forward", False), ("backward", True)]):
        a = x @ params[f"e.{name}.weight"] + params[f"e.{name}.bias"]
        expected = by_the_book(a, params[f"e.{name}.recurrent"], MASK, reverse)
        part = slice(half * H, (half + 1) * H)
        np.testing.assert_allclose(hidden.data[..., part], expected[0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(last.data[..., part], expected[1], rtol=1e-12, atol=1e-14)


def test_initial_parameters():
    params = init_lstm(np.random.default_rng(0), "l", 3, 4)
    assert {k: v.shape for k, v in params.items()} == {
        "l.weight": (3, 16),
        "l.recurrent": (4, 16),
        "l.bias": (16,),
    }
    for k in range(4):
        u = params["l.recurrent"][:, 4 * k : 4 * k + 4]
        np.testing.assert_allclose(u @ u.T, np.eye(4), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(params["l.bias"][4:8], 1)
    assert all(v.dtype == np.float32 for v in params.values())
    with pytest.raises(ValueError, match="expected an even number, .*; got 5"):
        init_bilstm(np.random.default_rng(0), "l", 3, 5)
