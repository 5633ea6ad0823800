"""Attention with a bias: of scores, by distance, and by ALiBi's slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyentmax import DistanceBias, attention, attention_vjp

T, S, HEADS = 5, 7, 4


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(x) for x in ((2, HEADS, T, 3), (2, 2, S, 3), (2, 2, S, 2))]


@pytest.mark.parametrize("by_slopes", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_bias_of_long_inputs_in_the_precision_of_arrays(by_slopes: bool, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    query, key = rng.standard_normal((2, 2, 300, 4)).astype(dtype)
    bias = DistanceBias(slopes=np.array([0.02, 0.1], dtype))
    if not by_slopes:
        bias = DistanceBias(bias.array[:, None] * -np.abs(np.arange(-299, 300)).astype(dtype))
    found = []
    for precision in (dtype, np.float64):
        q, k = query.astype(precision), key.astype(precision)
        own = bias.with_array(bias.array.astype(precision))
        output, weights = attention(q, k, k, bias=own, return_weights=True)
        g = np.cos(np.arange(output.size)).reshape(output.shape).astype(precision)
        found.append((output, attention_vjp(weights, q, k, k, g, bias=own)[-1]))
        assert {x.dtype for x in found[-1]} == {np.dtype(precision)}
    for ours, exact in zip(*found, strict=True):
        room = {np.float16: 4e-3, np.float32: 2e-5}[dtype] * max(1, np.abs(exact).max())
        np.testing.assert_allclose(ours, exact, rtol=0, atol=room)


def test_distances_count_from_an_offset_without_causality() -> None:
    operands, slopes = arrays(), np.array([0.3])
    far = attention(*operands, bias=DistanceBias(slopes=slopes), offset=2)
    distances = np.abs(np.arange(T)[:, None] + 2 - np.arange(S))
    expected = attention(*operands, bias=-0.3 * distances)
    np.testing.assert_allclose(far, expected, rtol=0, atol=1e-13)


def test_minus_infinity_by_distance_is_a_window() -> None:
    operands, distance = arrays(), np.arange(1 - T, S)
    window = DistanceBias(np.where(np.abs(distance) <= 1, 0, -np.inf))
    mask = np.abs(np.arange(S) - np.arange(T)[:, None]) <= 1
    np.testing.assert_array_equal(
        attention(*operands, bias=window), attention(*operands, mask=mask)
    )


def test_wrong_biases_are_refused() -> None:
    operands = arrays()
    for shape in ((), (T + S,), (HEADS, T + S - 2), (3, T + S - 1)):
        with pytest.raises(ValueError, match="bias"):
            attention(*operands, bias=DistanceBias(np.zeros(shape)))
        with pytest.raises(ValueError, match="bias"):
            attention(*operands, bias=DistanceBias(np.zeros(shape)), cu_seqlens=([0, T], [0, S]))
    message = r"expected T \+ S − 1 = 11 numbers for 5 queries and 7 keys, got shape \(4, 10\)"
    with pytest.raises(ValueError, match=message):
        attention(*operands, bias=DistanceBias(np.zeros((HEADS, 10))))
    with pytest.raises(ValueError, match=r"bias of shape \(3,\) does not broadcast to the batch"):
        attention(*operands, bias=DistanceBias(slopes=np.ones(3)))
    with pytest.raises(
        ValueError, match=r"bias of shape \(7, 5\) does not broadcast to the scores"
    ):
        attention(*operands, bias=np.zeros((S, T)))
    with pytest.raises(TypeError, match="bias must hold real numbers"):
        attention(*operands, bias=DistanceBias(slopes=1j))
    for wrong in ({}, {"numbers": np.ones(3), "slopes": 1.0}):
        with pytest.raises(TypeError, match="expected numbers by distance, or slopes"):
            DistanceBias(**wrong)
    with pytest.raises(ValueError, match="offset shifts the causal mask"):
        attention(*operands, bias=DistanceBias(np.zeros(T + S - 1)), offset=1)
