"""Attention with a bias: of scores, by distance, and by ALiBi's slopes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from stages import sample
from test_attention import gradients_by_difference

from pyentmax import DistanceBias, attention, attention_vjp
from pyentmax.sparse_attention.bias import array_of

T, S, HEADS = 5, 7, 4
KINDS = {
    "scores": lambda rng: rng.standard_normal((HEADS, T, S)),
    "keys": lambda rng: rng.standard_normal(S),
    "queries": lambda rng: rng.standard_normal((2, 1, T, 1)),
    "distances": lambda rng: DistanceBias(rng.standard_normal((HEADS, T + S - 1))),
    "distances of all heads": lambda rng: DistanceBias(rng.standard_normal(T + S - 1)),
    "slopes": lambda rng: DistanceBias(slopes=np.linspace(0.1, 0.8, HEADS)),
    "slope of a batch": lambda rng: DistanceBias(slopes=np.array([[0.2], [0.4]])),
}
FORMS: dict[str, dict[str, Any]] = {
    "alone": {},
    "causal behind a cache": {"causal": True, "offset": 2},
    "alpha, sink and scale": {
        "alpha": np.array([1.2, 1.5, 2.0, 1.7]), "sink": np.array(0.2), "scale": np.ones((4, 1)),
    },
    "softmax": {"alpha": 1.0},
    "below softmax": {"alpha": 0.7},
    "masked top-k": {"mapping": "topk_softmax", "k": 3, "mask": np.arange(S) != 2},
    "fused": {"mapping": "fusedmax", "strength": 0.1},
}  # fmt: skip


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(x) for x in ((2, HEADS, T, 3), (2, 2, S, 3), (2, 2, S, 2))]


def as_scores(bias: Any, offset: int = 0) -> np.ndarray:
    """The number of each score, one by one."""
    array = np.asarray(array_of(bias))
    if not isinstance(bias, DistanceBias):
        return array
    found = np.zeros((*array.shape[: len(array.shape) - (not bias.is_alibi)], T, S))
    for t, j in np.ndindex(T, S):
        found[..., t, j] = (
            -array * abs(t + offset - j) if bias.is_alibi else array[..., T - 1 + j - t]
        )
    return found


@pytest.mark.parametrize(("kind", "form"), sample([*product(KINDS, FORMS)], 8))
def test_bias_and_its_derivatives(kind: str, form: str) -> None:
    rng, options = np.random.default_rng(1), FORMS[form]
    bias, operands = KINDS[kind](rng), arrays()
    output, weights = attention(*operands, bias=bias, return_weights=True, **options)
    # A score with one more feature of query and key for each number: scale (q·k + b/scale).
    whole = np.broadcast_to(as_scores(bias, options.get("offset", 0)), (2, HEADS, T, S))
    scale = np.ones(T) if "scale" in options else 3**-0.5
    longer = np.concatenate([operands[0], whole / np.max(scale)], axis=-1)
    ones = np.broadcast_to(np.eye(S), (2, 2, S, S))
    keys = np.concatenate([operands[1], ones], axis=-1)
    expected = attention(longer, keys, operands[2], **options | {"scale": scale})
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-12)

    g, array = rng.standard_normal(output.shape), array_of(bias)

    def function(*moved: Any) -> Any:
        *operands, array = moved
        own = bias.with_array(array) if isinstance(bias, DistanceBias) else array
        return attention(*operands, bias=own, **options)

    *found, g_bias = attention_vjp(weights, *operands, g, bias=bias, **options)
    assert g_bias.shape == array.shape
    expected_gradients = gradients_by_difference(function, [*operands, array], g)
    for ours, theirs in zip((*found[:3], g_bias), expected_gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-7)


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


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_have_their_own_distances(kind: str) -> None:
    bias, operands = KINDS[kind](np.random.default_rng(3)), arrays()
    edges, sizes = ([0, 2, 2, 5], [0, 3, 4, 7]), (T, S)
    options: dict[str, Any] = {"causal": True, "offset": [1, 0, 2]}
    output, weights = attention(
        *operands, bias=bias, cu_seqlens=edges, return_weights=True, **options
    )
    g = np.random.default_rng(4).standard_normal(output.shape)
    found = attention_vjp(weights, *operands, g, bias=bias, cu_seqlens=edges, **options)
    total = np.zeros(np.shape(array_of(bias)))
    for i in range(3):
        q, k = slice(*edges[0][i : i + 2]), slice(*edges[1][i : i + 2])
        t, s = q.stop - q.start, k.stop - k.start
        array = np.asarray(array_of(bias))
        index: Any = ...
        if isinstance(bias, DistanceBias):
            if not bias.is_alibi:
                index = (..., slice(sizes[0] - t, sizes[0] - t + max(t + s - 1, 0)))
            own = bias.with_array(array[index])
        else:
            cuts = [
                slice(None) if n == 1 else cut
                for n, cut in zip(array.shape[-2:], (q, k)[-array.ndim :], strict=True)
            ]
            index = (..., *cuts)
            own = array[index]
        part = [operands[0][:, :, q], operands[1][:, :, k], operands[2][:, :, k]]
        each = {"bias": own, "causal": True, "offset": options["offset"][i]}
        expected, own_weights = attention(*part, return_weights=True, **each)
        np.testing.assert_allclose(output[:, :, q], expected, rtol=0, atol=1e-14)
        gradients = attention_vjp(own_weights, *part, g[:, :, q], **each)
        total[index] += gradients[-1]
    np.testing.assert_allclose(found[-1], total, rtol=1e-12, atol=1e-14)


def test_distances_count_from_an_offset_without_causality() -> None:
    operands, slopes = arrays(), np.array([0.3])
    far = attention(*operands, bias=DistanceBias(slopes=slopes), offset=2)
    expected = attention(*operands, bias=as_scores(DistanceBias(slopes=slopes[0]), offset=2))
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
