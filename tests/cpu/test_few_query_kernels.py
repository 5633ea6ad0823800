"""The kernels of few queries: every build computes what their twins do, and reads nothing wild."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyentmax.sparse_attention import few_queries, screened_rows

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

BUILDS = list(_cpu.BUILDS)
BATCH, M, N, D = 2, 11, 333, 50  # more queries than go over the keys together
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
ALL_BUILDS = pytest.mark.parametrize("build", BUILDS)


def operands(dtype: Any, seed: int = 0) -> tuple[Any, ...]:
    """Queries, keys, mask, α, sinks and bias."""
    rng = np.random.default_rng(seed)
    query = (rng.standard_normal((BATCH, M, D)) * np.geomspace(0.05, 2, M)[:, None]).astype(dtype)
    key = rng.standard_normal((BATCH, N, D)).astype(dtype)
    mask = rng.random((BATCH, M, N)) < 0.8
    mask[1, 3] = False
    alpha = np.broadcast_to(np.linspace(1.1, 2, M), (BATCH, M))
    sink = np.where(rng.random((BATCH, M)) < 0.5, -np.inf, 1).astype(dtype)
    bias = rng.standard_normal((BATCH, M, N)).astype(dtype)
    return query, key, mask, alpha, sink, bias


def room(dtype: Any) -> tuple[Any, ...]:
    size = M * N + few_queries.OVERHANG
    shapes = (BATCH, size), (BATCH, size), (BATCH, M), (BATCH, M)
    types = dtype, np.int32, np.int64, dtype
    return tuple(np.zeros(s, t) for s, t in zip(shapes, types, strict=True))


def dense(values: Any, columns: Any, ends: Any) -> np.ndarray:
    full = np.zeros((*ends.shape, N), values.dtype)
    for place in np.ndindex(ends.shape):
        start = ends[place[0], place[1] - 1] if place[1] else 0
        own = slice(start, ends[place])
        assert (np.diff(columns[place[0], own]) > 0).all()
        full[place][columns[place[0], own]] = values[place[0], own]
    return full


def copies_of(key: Any) -> tuple[Any, Any]:
    copies = np.ones((*key.shape[:-1], -(-D // 32) * 32), np.int8)
    bounds = np.empty((BATCH, 3, key.shape[-2]), key.dtype)
    screened_rows.quantize_rows.reference(key, out=(copies, bounds))
    return copies, bounds


@DTYPES
@ALL_BUILDS
def test_few_queries_are_those_of_the_twin(build: str, dtype: Any) -> None:
    found, expected = room(dtype), room(dtype)
    _cpu.BUILDS[build]["few_queries"](*operands(dtype), out=found)
    few_queries.few_queries.reference(*operands(dtype), out=expected)
    atol = 200 * np.finfo(dtype).eps
    np.testing.assert_allclose(dense(*found[:3]), dense(*expected[:3]), rtol=0, atol=atol)
    np.testing.assert_allclose(found[3], expected[3], rtol=0, atol=atol)


@DTYPES
@ALL_BUILDS
def test_a_screen_is_that_of_the_twin(build: str, dtype: Any) -> None:
    """Up to rows that are within rounding of the edge, of which there are few."""
    query, key, *rest = operands(dtype)
    found, expected = ((x[1], x[2]) for x in (room(dtype), room(dtype)))
    _cpu.BUILDS[build]["screen_rows"](query, *copies_of(key), *rest, out=found)
    screened_rows.screen_rows.reference(query, *copies_of(key), *rest, out=expected)
    sets = [dense(np.ones(columns.shape), columns, ends) for columns, ends in (found, expected)]
    assert np.abs(sets[0] - sets[1]).sum() <= 3
    assert 0 < sets[0].sum() < 0.7 * sets[0].size


@DTYPES
@ALL_BUILDS
@pytest.mark.parametrize(("count", "margin"), [(1, 0.0), (7, 0.0), (1, 2.5), (40, 1.0), (N, 0.0)])
def test_a_screen_for_the_best_is_that_of_the_twin(
    count: int, margin: float, build: str, dtype: Any
) -> None:
    query, key, *_, bias = operands(dtype, 3)
    copies, bounds = copies_of(key)
    bounds[1, 1:, 5] = np.inf  # a key without bounds
    bias[:, 2, 50:60], bias[:, 3, 9], bias[0, 4, 8] = -np.inf, np.inf, np.nan
    rest = np.full((BATCH, M), count), np.full((BATCH, M), margin), bias
    found, expected = ((x[1], x[2]) for x in (room(dtype), room(dtype)))
    _cpu.BUILDS[build]["screen_best"](query, copies, bounds, *rest, out=found)
    screened_rows.screen_best.reference(query, copies, bounds, *rest, out=expected)
    sets = [dense(np.ones(columns.shape), columns, ends) for columns, ends in (found, expected)]
    assert np.abs(sets[0] - sets[1]).sum() <= 3  # within rounding of the edge
    assert sets[0][1, :, 5].all()
    assert sets[0][0, 4, 8]
    assert sets[0][:, 3, 9].all()
    with np.errstate(invalid="ignore"):
        scores = np.matmul(query, key.swapaxes(-1, -2)) + bias
        least = -np.sort(-np.where(np.isnan(scores), np.inf, scores), axis=-1)[..., count - 1]
        needed = scores >= least[..., None] - margin
    assert (sets[0] >= (needed & (scores > -np.inf))).all()
    assert count == N or sets[0][:, 5:].mean() < 0.6


@DTYPES
@ALL_BUILDS
def test_candidates_give_the_weights_of_all_keys(build: str, dtype: Any) -> None:
    query, key, *rest = operands(dtype, 1)
    kept, found, expected = (room(dtype) for _ in range(3))
    kernels = _cpu.BUILDS[build]
    kernels["screen_rows"](query, *copies_of(key), *rest, out=kept[1:3])
    columns, stops = kept[1:3]
    kernels["candidates"](query, key, columns, columns, stops, *rest, out=found)
    kernels["few_queries"](query, key, *rest, out=expected)
    atol = 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(dense(*found[:3]), dense(*expected[:3]), rtol=0, atol=atol)
    np.testing.assert_allclose(found[3], expected[3], rtol=0, atol=atol)
    twin = room(dtype)
    few_queries.candidates.reference(query, key, columns, columns, stops, *rest, out=twin)
    np.testing.assert_allclose(dense(*twin[:3]), dense(*found[:3]), rtol=0, atol=20 * atol)
    order = np.random.default_rng(2).permutation(N)  # keys that lie elsewhere
    moved, places = key[:, order], np.argsort(order).astype(np.int32)[columns]
    for run in (kernels["candidates"], few_queries.candidates.reference):
        elsewhere = room(dtype)
        run(query, moved, columns, places, stops, *rest, out=elsewhere)
        np.testing.assert_allclose(dense(*elsewhere[:3]), dense(*found[:3]), rtol=0, atol=20 * atol)


@DTYPES
@ALL_BUILDS
@pytest.mark.parametrize("d", [1, 31, 32, 64, 516, 700])
def test_copies_are_as_close_as_they_say(d: int, build: str, dtype: Any) -> None:
    rng = np.random.default_rng(d)
    rows = rng.standard_normal((9, d)) * np.geomspace(1e-9, 1e9, 9)[:, None]
    broken = [0, np.nan, np.inf, 1e-41, 1e38]
    rows = np.concatenate([rows, np.array(broken)[:, None] * np.ones(d)]).astype(dtype)
    copies = np.ones((len(rows), -(-d // 32) * 32), np.int8)
    bounds = np.empty((3, len(rows)), dtype)
    _cpu.BUILDS[build]["quantize_rows"](rows, out=(copies, bounds))
    assert not copies[:, d:].any()
    assert np.abs(copies[:, :d].astype(int)).max() <= 127
    unit, error, size = bounds.astype(np.longdouble)
    assert error[9:].tolist() == size[9:].tolist() == [0, *[np.inf] * 4]
    back = unit[:9, None] * copies[:9, :d]
    exact = np.linalg.norm((rows[:9] - back).astype(np.longdouble), axis=-1)
    assert np.all(exact <= error[:9])
    assert np.all(error[:9] <= 1.001 * exact + 1e-5 * np.linalg.norm(rows[:9], axis=-1))
    assert np.all(np.linalg.norm(rows[:9], axis=-1) <= size[:9])
    assert np.all(error[:9] <= unit[:9] * np.sqrt(d))  # no entry off by more than a unit


@ALL_BUILDS
def test_wrong_operands_are_an_error(build: str) -> None:
    query, key, *rest = operands(np.float32)
    kernels, out = _cpu.BUILDS[build], room(np.float32)
    small = tuple(x[..., :100] if i < 2 else x for i, x in enumerate(out))
    for name, keys in (("few_queries", (key,)), ("candidates", (key, out[1], *out[1:3]))):
        with pytest.raises(ValueError, match="room for all entries"):
            kernels[name](query, *keys, *rest, out=small)
    copies, bounds = copies_of(key)
    for wrong in (copies[..., :33], copies[..., :32]):
        with pytest.raises(ValueError, match="wrong shape"):
            kernels["screen_rows"](query, wrong, bounds, *rest, out=out[1:3])
        best = np.full((BATCH, M), 3), np.zeros((BATCH, M)), rest[-1]
        with pytest.raises(ValueError, match="wrong shape"):
            kernels["screen_best"](query, wrong, bounds, *best, out=out[1:3])
    for columns, stops in ((N, 5), (-1, 5), (0, -3), (0, 10**9), (0, 4000)):
        wild, ends = np.full(out[1].shape, columns, np.int32), np.full((BATCH, M), stops)
        for pair in ((wild, np.zeros_like(wild)), (np.zeros_like(wild), wild)):
            with pytest.raises(ValueError, match="outside of the matrix"):
                kernels["candidates"](query, key, *pair, ends, *rest, out=out)
