"""The kernels of training, LSTM cell and Adam, beside their NumPy bodies and exact values."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from kernel_rows import FLOATS, LENGTHS

from pyentmax.nn.lstm_cell import lstm_cell, lstm_cell_vjp
from pyentmax.nn.optim import adam_step

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")
every_dtype = pytest.mark.parametrize("dtype", FLOATS)
every_length = pytest.mark.parametrize("n", LENGTHS)


def normal(rng, shape, dtype, scale=3.0):
    return (scale * rng.standard_normal(shape)).astype(dtype)


def forward(function, a, b, c):
    out = np.empty((len(c), 4, c.shape[1]), c.dtype), *(np.empty_like(c) for _ in range(3))
    function(a, b, c, out=out)
    return out


def backward(function, dh, dc, gates, tanh_c, c):
    out = np.empty_like(gates), np.empty_like(c)
    function(dh, dc, gates, tanh_c, c, out=out)
    return out


@every_dtype
@every_length
def test_a_cell_is_its_bodys(n, dtype):
    rng = np.random.default_rng(n)
    a, b, c = (normal(rng, shape, dtype) for shape in ((5, 4, n), (5, 4, n), (5, n)))
    reach = 1 + np.abs(c).max()
    for summand in (a, a[0]):  # one bias for all rows
        kernel, body = (forward(f, summand, b, c) for f in (_cpu.lstm_cell, lstm_cell.reference))
        for got, expected in zip(kernel, body, strict=True):
            # Two summands of the new cell may cancel.
            np.testing.assert_allclose(got, expected, rtol=0, atol=8 * np.finfo(dtype).eps * reach)
        given = normal(rng, (5, n), dtype), normal(rng, (5, n), dtype), kernel[0], kernel[2], c
        for got, expected in zip(
            backward(_cpu.lstm_cell_vjp, *given),
            backward(lstm_cell_vjp.reference, *given),
            strict=True,
        ):
            atol = 8 * np.finfo(dtype).eps * reach**2
            np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


@every_dtype
def test_gates_are_exact_to_a_few_units_of_the_last_place(dtype):
    eps = np.finfo(dtype).eps
    x = np.concatenate([np.geomspace(1e-30, 100, 300), np.linspace(0, 12, 301)])
    x = np.concatenate([-x, x]).astype(dtype)[:, None]
    zeros = np.zeros((len(x), 4, 1), dtype)
    a = zeros.copy()
    a[:, 0], a[:, 3] = x, x
    gates = forward(_cpu.lstm_cell, a, zeros, zeros[:, 0])[0]
    with mpmath.workdps(40):
        exact = [mpmath.mpf(float(v)) for v in x[:, 0]]
        tanh = np.array([mpmath.tanh(v) for v in exact])
        sigmoid = np.array([1 / (1 + mpmath.exp(-v)) for v in exact])
        # The sigmoid is a half plus the half of a tanh: its errors are those of numbers near 1.
        for gate, value, bound in ((3, tanh, 8 * eps * abs(tanh)), (0, sigmoid, eps)):
            error = np.array([mpmath.mpf(float(g)) for g in gates[:, gate, 0]]) - value
            assert (abs(error) <= bound).all(), x[np.argmax(abs(error) - bound)]


@every_dtype
def test_a_cell_far_out_and_a_nan(dtype):
    far = np.array([np.inf, -np.inf, 1e30, -1e30, np.nan], dtype)[:, None]
    a = np.repeat(far[:, None], 4, axis=1)
    gates, new_c, tanh_c, h = forward(_cpu.lstm_cell, a, np.zeros_like(a), np.ones_like(far))
    np.testing.assert_array_equal(gates[:, 0, 0], [1, 0, 1, 0, np.nan])
    np.testing.assert_array_equal(gates[:, 3, 0], [1, -1, 1, -1, np.nan])
    np.testing.assert_array_equal(new_c[:, 0], [2, 0, 2, 0, np.nan])
    np.testing.assert_array_equal(np.isnan([tanh_c[:, 0], h[:, 0]]), 2 * [4 * [False] + [True]])


@every_dtype
def test_any_layout(dtype):
    rng = np.random.default_rng(0)
    a, b, c = (normal(rng, shape, dtype) for shape in ((6, 4, 20), (6, 4, 20), (6, 20)))
    expected = forward(_cpu.lstm_cell, a, b, c)
    spread = np.zeros((6, 8, 60), dtype)
    spread[:, ::2, ::3] = a
    out = np.ones((6, 8, 40), dtype), *(np.ones((6, 40), dtype) for _ in range(3))
    views = out[0][:, ::2, ::2], *(x[:, ::2] for x in out[1:])
    _cpu.lstm_cell(spread[:, ::2, ::3], np.asfortranarray(b), np.asfortranarray(c), out=views)
    for got, wanted in zip(views, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    for untouched in (out[0][:, 1::2], out[0][:, :, 1::2], out[1][:, 1::2]):
        np.testing.assert_array_equal(untouched, 1)
    dh, dc = (normal(rng, (6, 20), dtype) for _ in range(2))
    wanted = backward(_cpu.lstm_cell_vjp, dh, dc, expected[0], expected[2], c)
    out = np.ones((6, 8, 40), dtype), np.ones((6, 40), dtype)
    views = out[0][:, ::2, ::2], out[1][:, ::2]
    given = np.asfortranarray(dh), dc[:, ::-1].copy()[:, ::-1], *expected[::2]
    _cpu.lstm_cell_vjp(*given, np.asfortranarray(c), out=views)
    for got, one in zip(views, wanted, strict=True):
        np.testing.assert_array_equal(got, one)


def test_four_gates_and_no_other_number():
    with pytest.raises(ValueError, match="lstm_cell"):
        _cpu.lstm_cell(np.zeros((2, 3, 5)), np.zeros((2, 3, 5)), np.zeros((2, 5)))


@every_dtype
@pytest.mark.parametrize("shape", [(0,), (1,), (255,), (256,), (257,), (40, 33)])
def test_adam_gives_what_its_body_does(shape, dtype):
    rng = np.random.default_rng(0)
    x, m, g = (normal(rng, shape, dtype) for _ in range(3))
    v = normal(rng, shape, dtype) ** 2
    results = []
    for function in (_cpu.adam_step, adam_step.reference):
        arrays = x.copy(), m.copy(), v.copy()
        function(*arrays, g.copy(), 0.01, 1e-6, 0.9, 0.999, out=arrays)
        results.append(arrays)
    epsilon = 4 * float(np.finfo(dtype).eps)
    for got, expected in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=epsilon, atol=epsilon)


@every_dtype
def test_adam_in_any_layout(dtype):
    rng = np.random.default_rng(0)
    x, m, v, g = (np.abs(normal(rng, (40, 33), dtype)) for _ in range(4))
    size = rng.uniform(0.001, 0.1, (40, 1))  # a step size for each row
    expected = [
        _cpu.adam_step(x[i], m[i], v[i], g[i], size[i], 1e-6, 0.9, 0.999) for i in range(40)
    ]
    strided = [np.repeat(a, 2, axis=1)[:, ::2] for a in (x, m, v)]
    _cpu.adam_step(*strided, g[::-1].copy()[::-1], size, 1e-6, 0.9, 0.999, out=tuple(strided))
    for k, got in enumerate(strided):
        np.testing.assert_array_equal(got, [row[k] for row in expected])
