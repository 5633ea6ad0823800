"""Attention on the tape: what it keeps. Its values are in test_attention_table.py."""

import numpy as np
import pytest

from pyentmax import attention as of_arrays
from pyentmax.seq2seq.autograd import Tensor, attention


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def test_constant_alpha_gets_no_gradient() -> None:
    x = Tensor(normal(2, 4, 3).astype(np.float32), requires_grad=True)
    alpha = Tensor(np.array([1.3, 1.7], np.float32))
    output = attention(x, x, x, alpha)
    output.sum().backward()
    assert alpha.grad is None
    assert x.grad.dtype == output.dtype == np.float32
    without = attention(x.data, x.data, x.data, alpha)
    assert not without.parents
    for found in (output, without):
        expected = of_arrays(x.data, x.data, x.data, alpha.data)
        np.testing.assert_array_equal(found.data, expected)


def test_alpha_as_a_tensor_is_for_entmax() -> None:
    x, alpha = normal(4, 3), Tensor(np.array(1.5))
    with pytest.raises(TypeError, match="a tensor is for α-entmax.*got sparsemax"):
        attention(x, x, x, alpha, mapping="sparsemax")
