"""Attention on the tape: its gradients against differences, and what it keeps."""

from typing import Any

import numpy as np
import pytest
from finite_differences import assert_gradients

from pyentmax import attention as of_arrays
from pyentmax.seq2seq.autograd import Tensor, attention


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((5, 3), (7, 3), {}),
    "causal heads": ((2, 5, 3), (2, 5, 3), {"causal": True}),
    "behind a cache": ((5, 3), (8, 3), {"causal": True, "offset": 3, "scale": 0.9}),
    "constant scale and sink": ((5, 3), (4, 3), {"scale": np.ones(5) / 2, "sink": np.array(0.2)}),
    "grouped": ((4, 3, 3), (2, 4, 3), {}),
    "masked": ((4, 3, 3), (1, 4, 3), {"mask": normal(3, 4, seed=9) < 0.5}),
    "top-k": ((3, 3), (9, 3), {"mapping": "topk_softmax", "k": 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_match_finite_differences(name: str) -> None:
    q_shape, k_shape, options = CASES[name]
    arrays = normal(*q_shape), normal(*k_shape, seed=1), normal(*k_shape[:-1], 2, seed=2)
    assert_gradients(lambda *a: attention(*a, **options), *arrays, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("alpha", [1.3, [1.2, 1.9], [[1.4], [1.6], [2.0]]])
def test_alpha_gets_its_gradient(alpha: Any) -> None:
    arrays = normal(3, 2, 4, 3), normal(3, 2, 5, 3, seed=1), normal(3, 2, 5, 2, seed=2)
    assert_gradients(attention, *arrays, np.array(alpha), rtol=1e-5, atol=1e-7)


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
