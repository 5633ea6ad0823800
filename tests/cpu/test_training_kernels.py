"""The kernel of the LSTM cell where its numbers are extreme; of all others see
test_kernel_contract.py.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from kernel_rows import FLOATS

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")
every_dtype = pytest.mark.parametrize("dtype", FLOATS)


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
