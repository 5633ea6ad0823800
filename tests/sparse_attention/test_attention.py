"""Attention of arrays: edges, weights and errors; test_attention_table.py has the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_cases import normal
from hypothesis import given
from hypothesis import strategies as st

from pyentmax import (
    AttentionWeights,
    DistanceBias,
    attention,
    attention_vjp,
    attention_vjp_alpha,
)
from pyentmax.engine.calls.rows import reduce_to

RNG = np.random.default_rng(5)
# Rounding of the products in front of the threshold, of a few dozen terms.
ROOM = {np.float64: 1e-12, np.float32: 2e-5, np.float16: 2e-3}


def test_csr_shares_memory_with_the_weights() -> None:
    pytest.importorskip("scipy")
    query, key = normal(RNG, (2, 3, 4, 5)), normal(RNG, (2, 3, 6, 5))
    _, weights = attention(query, key, key, 2, return_weights=True)
    for head in np.ndindex(2, 3):
        matrix = weights.csr(*head)
        np.testing.assert_array_equal(matrix.toarray(), weights.to_dense()[head])
        assert np.shares_memory(matrix.data, weights.data)
        assert np.shares_memory(matrix.indices, weights.indices)
        assert matrix.has_sorted_indices
    for head, message in (((0,), "the index of a head, 2 numbers"), ((0, 3), r"no head \(0, 3\)")):
        with pytest.raises(IndexError, match=message):
            weights.csr(*head)


def test_queries_without_keys_give_zero_gradients() -> None:
    query, key, value = normal(RNG, (4, 3)), normal(RNG, (5, 3)), normal(RNG, (5, 2))
    mask = np.ones((4, 5), bool)
    mask[1] = False
    output, weights = attention(query, key, value, mask=mask, return_weights=True)
    assert not output[1].any()
    assert weights.support_sizes[1] == 0
    g = np.full((4, 2), np.nan)
    g[[0, 2, 3]] = 1
    g_query, g_key, g_value = attention_vjp(weights, query, key, value, g)
    assert not g_query[1].any()
    assert np.isfinite(g_key).all()
    assert np.isfinite(g_value).all()
    assert not attention(query, key, value, causal=True, offset=-2)[:2].any()


@pytest.mark.parametrize("t", [1, 70])
@pytest.mark.parametrize("mapping", [None, "softmax", "topk_softmax"])
def test_negative_offset_hides_all_keys(mapping: str | None, t: int) -> None:
    x, options = normal(RNG, (2, t, 3)), {"mapping": mapping, "causal": True, "offset": -t}
    if mapping == "topk_softmax":
        options["k"] = 2
    output, weights = attention(x, x, x, return_weights=True, **options)
    assert not output.any()
    assert not weights.support_sizes.any()
    for gradient in attention_vjp(weights, x, x, x, x, **options):
        assert not gradient.any()


@pytest.mark.parametrize("alpha", [1, 1.5, 2, 3.0])
def test_large_sink_takes_all_weight(alpha: float) -> None:
    x = normal(RNG, (2, 70, 3))
    options = {"sink": np.array([1e6, -1e6]), "causal": True, "offset": -3}
    output, weights = attention(x, x, x, alpha, return_weights=True, **options)
    assert not output[0].any()
    np.testing.assert_array_equal(weights.support_sizes[0], 0)
    np.testing.assert_array_equal(weights.sink[:, :3], 1)  # queries without a key
    np.testing.assert_array_equal(weights.sink[1, 3:], 0)
    gradients = attention_vjp(weights, x, x, x, x, alpha, **options)
    assert not gradients[-1].any()
    expected = attention_vjp(weights, x, x, x, x, alpha, causal=True, offset=-3)
    for gradient, other in zip(gradients, expected, strict=False):
        np.testing.assert_array_equal(gradient, other)


def test_nan_sink_spoils_its_head_alone() -> None:
    x = normal(RNG, (2, 5, 3))
    output, weights = attention(x, x, x, sink=np.array([np.nan, 0.5]), return_weights=True)
    np.testing.assert_array_equal(np.isnan(output).any(axis=(-1, -2)), [True, False])
    np.testing.assert_array_equal(np.isnan(weights.sink).all(axis=-1), [True, False])


def test_nan_spoils_only_queries_that_see_it() -> None:
    query, key, value = normal(RNG, (4, 3)), normal(RNG, (5, 3)), normal(RNG, (5, 2))
    expected = attention(query, key, value, mask=np.arange(5) != 3)
    broken = query.copy(), key.copy(), value.copy()
    broken[0][2, 0] = np.nan
    broken[1][3] = np.nan
    broken[2][3] = [np.inf, np.nan]
    mask = np.broadcast_to(np.arange(5) != 3, (4, 5))
    output, weights = attention(*broken, mask=mask, return_weights=True)
    assert np.isnan(output[2]).all()
    rest = [0, 1, 3]
    np.testing.assert_allclose(output[rest], expected[rest], rtol=0, atol=ROOM[np.float64])
    np.testing.assert_array_equal(np.isnan(weights.to_dense()), mask & (np.arange(4) == 2)[:, None])
    g_query, g_key, g_value = attention_vjp(weights, *broken, np.ones((4, 2)))
    assert np.isfinite(g_query[rest]).all()
    assert np.isnan(g_query[2]).all()
    assert not g_key[3].any()
    assert not g_value[3].any()


def test_values_without_weight_may_be_nan() -> None:
    key = np.array([[1.0], [-1.0]])
    value = np.array([[1.0], [np.nan]])
    output, weights = attention([[9.0]], key, value, return_weights=True)
    np.testing.assert_array_equal(output, [[1.0]])
    for gradient in attention_vjp(weights, [[9.0]], key, value, [[1.0]]):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("shapes", "output"),
    [
        (((0, 3), (4, 3), (4, 2)), (0, 2)),
        (((3, 3), (0, 3), (0, 2)), (3, 2)),
        (((3, 3), (4, 3), (4, 0)), (3, 0)),
        (((0, 3, 3), (0, 4, 3), (4, 2)), (0, 3, 2)),
        (((5, 0), (4, 0), (2, 3, 4, 2)), (2, 3, 5, 2)),
    ],
)
def test_empty_shapes(shapes: tuple[tuple[int, ...], ...], output: tuple[int, ...]) -> None:
    arrays = [normal(RNG, shape) for shape in shapes]
    found, weights = attention(*arrays, return_weights=True)
    assert found.shape == output
    assert weights.to_dense().shape == (*output[:-1], shapes[1][-2])
    assert np.isfinite(found).all()
    for gradient, shape in zip(attention_vjp(weights, *arrays, found), shapes, strict=True):
        assert gradient.shape == shape
    assert attention_vjp_alpha(weights, arrays[2], found) == 0 or found.size


@given(
    st.lists(st.integers(1, 3), max_size=3),
    st.lists(st.booleans(), min_size=9, max_size=9),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_batch_shapes_broadcast(
    batch: list[int], ones: list[bool], key_drops: int, value_drops: int
) -> None:
    def shape(kept: list[bool], drops: int) -> tuple[int, ...]:
        return tuple(1 if one else n for n, one in zip(batch, kept, strict=False))[drops:]

    rng = np.random.default_rng(0)
    query = normal(rng, (*shape(ones[:3], 0), 2, 3))
    key = normal(rng, (*shape(ones[3:6], key_drops), 4, 3))
    value = normal(rng, (*shape(ones[6:], value_drops), 4, 2))
    output, weights = attention(query, key, value, return_weights=True)
    whole = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    each = [np.broadcast_to(x, (*whole, *x.shape[-2:])) for x in (query, key, value)]
    np.testing.assert_allclose(output, attention(*each), rtol=0, atol=ROOM[np.float64])
    g = normal(rng, output.shape)
    found = attention_vjp(weights, query, key, value, g)
    separate = attention_vjp(weights, *each, g)
    for a, b, x in zip(found, separate, (query, key, value), strict=True):
        np.testing.assert_allclose(a, reduce_to(b, x.shape), rtol=0, atol=ROOM[np.float64])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.longdouble])
def test_masked_infinities_raise_no_warning(bad: float, dtype: Any) -> None:
    query, key, value = (normal(RNG, shape, dtype) for shape in ((4, 3), (5, 3), (5, 2)))
    key[3], value[3], query[2] = bad, bad, [0, bad, 1]
    mask = np.ones((4, 5), bool)
    mask[:, 3] = mask[2] = False
    with np.errstate(all="raise"):
        output, weights = attention(query, key, value, mask=mask, return_weights=True)
        gradients = attention_vjp(weights, query, key, value, np.ones((4, 2), dtype), mask=mask)
    assert all(np.isfinite(x).all() for x in (output, *gradients))


def test_mask_may_have_the_batch_shape_of_values() -> None:
    query, key, value = normal(RNG, (5, 0)), normal(RNG, (4, 0)), normal(RNG, (2, 4, 3))
    mask = np.array([[[True, True, False, False]], [[False, False, False, True]]])
    output = attention(query, key, value, mask=mask)
    expected = np.stack([value[0, :2].mean(axis=0), value[1, 3]])
    np.testing.assert_allclose(output[:, 0], expected, rtol=0, atol=ROOM[np.float64])


def test_distances_count_from_an_offset_without_causality() -> None:
    x, distances = normal(RNG, (5, 3)), np.abs(np.arange(5)[:, None] + 2 - np.arange(5))
    found = attention(x, x, x, bias=DistanceBias(slopes=np.array(0.3)), offset=2)
    np.testing.assert_allclose(found, attention(x, x, x, bias=-0.3 * distances), rtol=0, atol=1e-13)


def test_minus_infinity_by_distance_is_a_window() -> None:
    x, near = normal(RNG, (5, 3)), np.abs(np.arange(-4, 5)) <= 1
    mask = np.abs(np.arange(5) - np.arange(5)[:, None]) <= 1
    window = DistanceBias(np.where(near, 0, -np.inf))
    np.testing.assert_array_equal(attention(x, x, x, bias=window), attention(x, x, x, mask=mask))


X = np.zeros((2, 4, 3, 5))
WEIGHTS = AttentionWeights.from_dense(np.zeros((2, 4, 3, 3)))
FUSED = {"mapping": "fusedmax", "strength": 1}
WRONG_VALUES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("query must have at least two axes", (X[0, 0, 0], X, X), {}),
    ("same number of features", (X, X[..., :4], X), {}),
    ("same number of positions", (X, X, X[..., :2, :]), {}),
    (r"batch shapes .* \(3,\)", (X, X[0, :3], X), {}),
    (r"alpha of shape \(3,\)", (X, X, X, [1.5] * 3), {}),
    ("alpha must be above 0, got 0", (X, X, X, 0), {}),
    (r"mask of shape \(2,\)", (X, X, X), {"mask": [True, False]}),
    ("offset shifts the causal mask", (X, X, X), {"offset": 3}),
    ("offset shifts", (X, X, X), {"bias": DistanceBias(np.zeros(5)), "offset": 1}),
    ("scale must be finite", (X, X, X), {"scale": np.inf}),
    (r"scale of shape \(4,\)", (X, X, X), {"scale": np.ones(4)}),
    (r"sink of shape \(3,\)", (X, X, X), {"sink": np.ones(3)}),
    ("sink: expected α-entmax, .* got fusedmax", (X, X, X), {**FUSED, "sink": 0}),
    ("mapping must be one of", (X, X, X), {"mapping": "entmax2"}),
    ("bias", (X, X, X), {"bias": np.zeros((2, 3))}),
    ("bias", (X, X, X), {"bias": DistanceBias(slopes=np.ones(3))}),
    *(("bias", (X, X, X), {"bias": DistanceBias(np.zeros(s))}) for s in ((), 6, (4, 4), (3, 5))),
    (r"T \+ S − 1 = 5 .* got shape \(9,\)", (X, X, X), {"bias": DistanceBias(np.zeros(9))}),
    ("must rise from 0 to their number, 3", (X, X, X), {"cu_seqlens": [0, 2, 1, 3]}),
    ("must rise from 0", (X, X, X), {"cu_seqlens": [1, 3]}),
    ("of the queries must rise from 0 to", (X, X, X), {"cu_seqlens": [0, 2]}),
    ("of queries as of keys, got 1 and 2", (X, X, X), {"cu_seqlens": ([0, 3], [0, 1, 3])}),
    ("of the keys must rise from 0 to", (X, X, X), {"cu_seqlens": ([0, 3], [0, 4])}),
    ("one array or two, got 1", (X, X, X), {"cu_seqlens": ([0, 3],)}),
    ("one for each of 1 seq", (X, X, X), {"cu_seqlens": [0, 3], "causal": True, "offset": [1, 2]}),
]
WRONG_TYPES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("causal must be True or False", (X, X, X), {"causal": 3}),
    ("offset must be a whole", (X, X, X), {"causal": True, "offset": 1.5}),
    ("sink must hold real numbers", (X, X, X), {"sink": 1j}),
    ("bias must hold real numbers", (X, X, X), {"bias": DistanceBias(slopes=1j)}),
    ("whole numbers with one axis", (X, X, X), {"cu_seqlens": [0.0, 3.0]}),
    (r"takes the parameters \(k\)", (X, X, X), {"mapping": "topk_softmax"}),
    ("value is a numpy.ma", (X, X, np.ma.masked_array(X)), {}),
]


@pytest.mark.parametrize(("message", "arguments", "options"), WRONG_VALUES + WRONG_TYPES)
def test_errors_say_what_was_expected(message: str, arguments: Any, options: Any) -> None:
    error = TypeError if any(message == row[0] for row in WRONG_TYPES) else ValueError
    with pytest.raises(error, match=message):
        attention(*arguments, **options)


def test_wrong_weights_and_gradients_are_refused() -> None:
    with pytest.raises(ValueError, match="got weights without"):
        attention_vjp(WEIGHTS, X, X, X, X, sink=0)
    with pytest.raises(TypeError, match="weights must be the AttentionWeights"):
        attention_vjp(X, X, X, X, X)
    with pytest.raises(ValueError, match="do not belong"):
        attention_vjp(WEIGHTS, X[0], X[0], X[0], X[0])
    with pytest.raises(ValueError, match="g must have the shape"):
        attention_vjp(WEIGHTS, X, X, X, X[0])
    for options in ({}, {"numbers": [1.0], "slopes": 1.0}):
        with pytest.raises(TypeError, match="expected numbers by distance, or slopes"):
            DistanceBias(**options)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("indices", [0, 3], "lies outside of the matrix"),  # of keys 0 … 2
        ("indices", [0, 1 << 32], "lies outside of the matrix"),  # 0 in 32 bits
        ("indptr", [0, 3, 2], "lies outside of the matrix"),
        ("indptr", [0, 1, 1 << 62], "lies outside of the matrix"),
        ("indptr", [0, 2], "must have 3 places in indptr"),
        ("indices", [0], "same number of indices and data"),
        ("indices", [0.0, 1.0], "weights.indices must be an array of whole numbers"),
        ("data", [1j, 1j], "weights.data must be an array of real numbers"),
        ("data", [[1.0], [1.0]], "weights.data must be .* with one axis"),
    ],
)
def test_inconsistent_weights_are_refused(part: str, value: Any, message: str) -> None:
    x = np.eye(3)
    right = {"data": np.ones(2), "indices": np.int32([0, 1]), "indptr": np.int64([0, 1, 2])}
    assert AttentionWeights((1, 2, 3), **right).csr(0).toarray().tolist() == x[:2].tolist()
    weights = AttentionWeights((1, 2, 3), **{**right, part: np.array(value)})
    x = x[None]
    for call in (
        lambda: weights.csr(0),
        weights.to_dense,
        lambda: attention_vjp(weights, x[:, :2], x, x, x[:, :2]),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()
