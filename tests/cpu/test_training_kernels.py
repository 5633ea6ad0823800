"""Kernels that are no mapping's give the rule's numbers; the LSTM's cell also at its ends."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from kernel_operands import _cpu, operands, results
from kernel_rows import FLOATS, rows_of_every_kind

from pyentmax.reference.mappings._simplex import dense_in_numpy
from pyentmax.seq2seq.nn.lstm_cell import lstm_cell, lstm_cell_vjp
from pyentmax.seq2seq.nn.optim import adam_step
from pyentmax.sorting import permutahedron, permutahedron_product

RULES = {"lstm_cell": lstm_cell, "lstm_cell_vjp": lstm_cell_vjp, "adam_step": adam_step}
RULES |= {"permutahedron": permutahedron, "permutahedron_product": permutahedron_product}
every_dtype = pytest.mark.parametrize("dtype", FLOATS)


@every_dtype
@pytest.mark.parametrize("name", RULES)
def test_rules_numbers(name, dtype):
    for n in (2, 17, 300):
        rng = np.random.default_rng(n)
        z = rows_of_every_kind(rng, n, dtype)
        z = z[np.isfinite(z).all(axis=-1)]
        given = operands(name, np.clip(z, -50, 50), rng)
        wide = [x.astype(float) for x in given]
        if name == "adam_step":  # which writes over what it is given
            RULES[name].reference(*wide, out=tuple(best := wide[:3]))
        else:
            best = tuple(np.empty(x.shape) for x in results(getattr(_cpu, name), given))
            if name.startswith("permutahedron") and wide[-2][0] < 1:
                wide[-2] = float(wide[-2][0])  # what is asked for instead of the k largest
            RULES[name].reference(*wide, out=best if len(best) > 1 else best[0])
        size = 1 + (100 if name.startswith("permutahedron") else 0) * (1 + n / 1e3)
        for kernels in _cpu.BUILDS.values():
            for one, other in zip(results(kernels[name], given), best, strict=True):
                room = 64 * np.finfo(dtype).eps * (size + np.abs(other))
                assert (np.abs(one - other) <= room).all()


@every_dtype
def test_jacobians_of_separable_rows(dtype):
    """To the last bit symmetric, and with the digits of what an entry alone dominates."""
    for n in (1, 2, 8, 40):
        s = 10.0 ** np.random.default_rng(n).uniform(-9, 0, (20, n))
        s[:, n // 2] = 1
        s = s.astype(dtype)
        exact = dense_in_numpy(s.astype(np.longdouble))
        for kernels in _cpu.BUILDS.values():
            found = kernels["separable_jacobian"](s)
            np.testing.assert_array_equal(found, found.swapaxes(-1, -2))
            np.testing.assert_allclose(found, exact.astype(dtype), rtol=16 * np.finfo(dtype).eps)


@every_dtype
def test_gates_are_exact_to_a_few_units_of_the_last_place(dtype):
    eps = np.finfo(dtype).eps
    x = np.concatenate([np.geomspace(1e-30, 100, 300), np.linspace(0, 12, 301)])
    x = np.concatenate([-x, x]).astype(dtype)[:, None]
    zeros = np.zeros((len(x), 4, 1), dtype)
    a = zeros.copy()
    a[:, 0], a[:, 3] = x, x
    gates = _cpu.lstm_cell(a, zeros, zeros[:, 0])[0]
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
    gates, new_c, tanh_c, h = _cpu.lstm_cell(a, np.zeros_like(a), np.ones_like(far))
    np.testing.assert_array_equal(gates[:, 0, 0], [1, 0, 1, 0, np.nan])
    np.testing.assert_array_equal(gates[:, 3, 0], [1, -1, 1, -1, np.nan])
    np.testing.assert_array_equal(new_c[:, 0], [2, 0, 2, 0, np.nan])
    np.testing.assert_array_equal(np.isnan([tanh_c[:, 0], h[:, 0]]), 2 * [4 * [False] + [True]])


def test_four_gates_and_no_other_number():
    with pytest.raises(ValueError, match="lstm_cell"):
        _cpu.lstm_cell(np.zeros((2, 3, 5)), np.zeros((2, 3, 5)), np.zeros((2, 5)))
