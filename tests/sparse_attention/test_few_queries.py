"""Attention of few queries to many keys: as of many queries, whatever the options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import Case, normal, one_by_one, random_case, visible

from pyentmax import DistanceBias, ScreenedRows, attention, attention_vjp, set_workers
from pyentmax.engine.backends import choice
from pyentmax.sparse_attention import few_queries, functions
from pyentmax.sparse_attention.problem import AttentionProblem

ROOM = {np.float64: 1e-12, np.float32: 2e-5}
has_kernels = pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")


def few(case: Case, t: int) -> Case:
    """The same call with no more than t queries."""
    options = dict(case.options)
    for name in ("mask", "scale"):
        axis = -2 if name == "mask" else -1
        option = options.get(name)
        if np.ndim(option) and np.shape(option)[axis] == case.query.shape[-2]:
            options[name] = np.take(option, range(min(t, np.shape(option)[axis])), axis)
    return replace(case, query=case.query[..., :t, :], options=options)


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_few_queries_match_single_queries(seed: int, t: int) -> None:
    case, batch = random_case(1000 + seed)
    case = few(case, t)
    expected, expected_weights = one_by_one(case, batch)
    output, weights = attention(*case.arrays, case.alpha, return_weights=True, **case.options)
    np.testing.assert_allclose(output, expected, rtol=0, atol=ROOM[np.float64])
    np.testing.assert_allclose(weights.to_dense(), expected_weights, rtol=0, atol=ROOM[np.float64])
    assert not weights.to_dense()[~visible(case, batch)].any()
    if weights.sink is not None:
        np.testing.assert_allclose(weights.sink, 1 - expected_weights.sum(-1), rtol=0, atol=1e-12)
    with set_workers(1):
        alone = attention(*case.arrays, case.alpha, **case.options)
    np.testing.assert_array_equal(alone, output)


@has_kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bias", ["alibi", "distances", "scores", "keys"])
def test_bias_and_groups_match_repeated_heads(bias: str, dtype: Any) -> None:
    """Two key heads for six query heads, as against a key head for each of them."""
    rng = np.random.default_rng(3)
    query, key, value = (
        normal(rng, shape, dtype) for shape in ((2, 6, 2, 8), (2, 2, 300, 8), (2, 2, 300, 5))
    )
    numbers = {
        "alibi": lambda: DistanceBias(slopes=np.geomspace(0.5, 0.01, 6)),
        "distances": lambda: DistanceBias(normal(rng, (6, 301))),
        "scores": lambda: normal(rng, (2, 6, 2, 300), dtype),
        "keys": lambda: normal(rng, (2, 1, 1, 300), dtype),
    }[bias]()
    options: dict[str, Any] = {"bias": numbers, "causal": True, "offset": 290}
    alpha = np.linspace(1.1, 2, 6)
    output = attention(query, key, value, alpha, sink=0.3, **options)
    both = (np.repeat(x, 3, axis=1) for x in (key, value))
    query = np.concatenate([query, np.zeros((2, 6, 9, 8), dtype)], axis=-2)  # now by tiles
    if bias == "distances":
        zeros = np.zeros((6, 9))
        options["bias"] = DistanceBias(np.concatenate([zeros, numbers.array], axis=-1))
    elif bias == "scores":
        options["bias"] = np.concatenate([numbers, np.zeros((2, 6, 9, 300), dtype)], axis=-2)
    expected = attention(query, *both, alpha, sink=0.3, **options)[..., :2, :]
    np.testing.assert_allclose(output, expected, rtol=0, atol=ROOM[dtype])


@has_kernels
def test_keys_are_read_where_they_lie() -> None:
    """In the order of positions, heads and features, and a part of a longer cache."""
    rng = np.random.default_rng(4)
    cache = normal(rng, (2, 900, 3, 16), np.float32)
    query = normal(rng, (2, 3, 1, 16), np.float32)
    key = np.swapaxes(cache, 1, 2)[:, :, :700]
    problem = AttentionProblem(query, key, key)
    assert few_queries.serves(problem, True)
    call = few_queries.FewQueries(problem, problem.sequences[0])
    assert np.shares_memory(call.key, cache)
    assert np.shares_memory(call.value, cache)
    expected = attention(query, key.copy(), key.copy())
    np.testing.assert_array_equal(attention(query, key, key), expected)
    reversed_features = key[..., ::-1]
    np.testing.assert_allclose(
        attention(query[..., ::-1], reversed_features, key), expected, rtol=0, atol=1e-5
    )


@has_kernels
def test_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_queries, "WORK", 1)
    rng = np.random.default_rng(5)
    query, key = normal(rng, (2, 7, 2, 8), np.float32), normal(rng, (2, 7, 500, 8), np.float32)
    with set_workers(1):
        one, weights = attention(query, key, key, return_weights=True)
    with set_workers(3):
        two, others = attention(query, key, key, return_weights=True)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(weights.data, others.data)
    np.testing.assert_array_equal(weights.indptr, others.indptr)


def test_masked_keys_may_hold_anything() -> None:
    rng = np.random.default_rng(6)
    query, key, value = (normal(rng, (1 if i == 0 else 50, 4)) for i in range(3))
    mask = rng.random(50) < 0.7
    expected = attention(query, key, value, mask=mask)
    key[~mask], value[~mask] = np.nan, np.inf
    np.testing.assert_array_equal(attention(query, key, value, mask=mask), expected)
    key[np.flatnonzero(mask)[3], 0] = np.nan
    output, weights = attention(query, key, value, mask=mask, return_weights=True)
    assert np.isnan(output).all()
    np.testing.assert_array_equal(weights.indices, np.flatnonzero(mask))


@pytest.mark.parametrize("offset", [-1, -4])
def test_queries_before_every_key_get_zeros(offset: int) -> None:
    x = np.ones((2, 4))
    output, weights = attention(x[:1], x, x, causal=True, offset=offset, return_weights=True)
    np.testing.assert_array_equal(output, np.zeros((1, 4)))
    assert weights.indptr.tolist() == [0, 0]


def test_gradients_follow_the_weights_of_few_queries() -> None:
    rng = np.random.default_rng(7)
    query, key, value = (normal(rng, (4, 2 if i == 0 else 60, 6)) for i in range(3))
    output, weights = attention(query, key, value, return_weights=True)
    g = normal(rng, output.shape)
    more = np.concatenate([query, normal(rng, (4, 20, 6))], axis=1)
    _, all_weights = attention(more, key, value, return_weights=True)
    longer = np.concatenate([g, np.zeros((4, 20, 6))], axis=1)
    expected = attention_vjp(all_weights, more, key, value, longer)
    for one, other in zip(attention_vjp(weights, query, key, value, g), expected, strict=True):
        np.testing.assert_allclose(one, other[:, : one.shape[1]], rtol=0, atol=1e-12)


@has_kernels
@pytest.mark.parametrize("screened", [False, True])
@pytest.mark.parametrize("alpha", [1.2, 1.5, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
def test_short_call_has_the_bits_of_the_long_one(
    batch: tuple[int, ...], dtype: Any, alpha: Any, screened: bool
) -> None:
    rng = np.random.default_rng(5)
    query = normal(rng, (*batch, 2, 8), dtype)
    key, value = normal(rng, (*batch, 90, 8), dtype), normal(rng, (*batch, 90, 5), dtype)
    key[..., 4, :] = np.nan if len(batch) == 1 else 3
    keys = ScreenedRows(key) if screened else key
    output = few_queries.short_call(query, keys, value, alpha)
    np.testing.assert_array_equal(output, attention(query, keys, value, alpha, mapping="entmax"))
    np.testing.assert_array_equal(output, attention(query, keys, value, alpha))


@has_kernels
def test_plain_calls_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(np.random.default_rng(5), (2, 4, 8))
    monkeypatch.setattr(functions, "AttentionProblem", None)
    assert attention(x, x, x).shape == attention(x, ScreenedRows(x), x, 2).shape == x.shape
    with pytest.raises(TypeError, match="NoneType"):  # the long way
        attention(x, x, x, scale=1.0)


@has_kernels
def test_short_call_declines_what_needs_more() -> None:
    x, y = np.ones((2, 4, 8)), np.ones((2, 9, 8))
    far = np.broadcast_to(np.ones(1), (8, 2 * few_queries.WORK, 8))[..., :1]
    declined = {
        "softmax": (x, x, x, 1.0),
        "α above 2": (x, x, x, 3.0),
        "α per head": (x, x, x, np.array([1.5, 2])),
        "many queries": (y, y, y, 1.5),
        "two dtypes": (x, x.astype(np.float32), x, 1.5),
        "half type": (*[x.astype(np.float16)] * 3, 1.5),
        "lists": (x.tolist(), x, x, 1.5),
        "shared keys": (x, x[:1], x[:1], 1.5),
        "keys without values": (x, y, x, 1.5),
        "other features": (x, x[..., :3].copy(), x, 1.5),
        "features apart": (x, np.asfortranarray(x), x, 1.5),
        "no keys": (x, x[:, :0], x[:, :0], 1.5),
        "one axis": (x[0, 0], x[0, 0], x[0, 0], 1.5),
    }
    for name, call in declined.items():
        assert few_queries.short_call(*call) is None, name
    with set_workers(2):
        assert few_queries.short_call(far[:, :1], far, far, 1.5) is None


@has_kernels
def test_route_says_which_way_a_call_goes() -> None:
    x, one = np.ones((2, 40, 4)), np.ones((2, 1, 4))
    assert attention.route(one, x, x) == "short call"
    assert attention.route(one, x, x, scale=1.0) == "few queries"
    assert attention.route(x, x, x) == "tiles"
    assert attention.route(x, x, x, mask=np.zeros((40, 1), int)) == "given keys"
