"""Attention of few queries to many keys: as of many queries, whatever the options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_cases import normal

from pyentmax import ScreenedRows, attention, set_workers
from pyentmax.engine.backends import choice
from pyentmax.sparse_attention import few_queries, functions
from pyentmax.sparse_attention.problem import AttentionProblem

has_kernels = pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")


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
    assert attention.route(one, x, x, mapping=None, causal=False, offset=0) == "short call"
    assert attention.route(one, x, x, causal=0) == "few queries"
    assert attention.route(one, x, x, scale=1.0) == "few queries"
    assert attention.route(x, x, x) == "tiles"
    assert attention.route(x, x, x, mask=np.zeros((40, 1), int)) == "given keys"
