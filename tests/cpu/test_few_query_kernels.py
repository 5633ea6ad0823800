"""The kernels of few queries: screens keep what bounds cannot exclude, and nothing wild is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.sparse_attention.compressed_rows import OVERHANG
from pyentmax.sparse_attention.screened_rows import quantize_rows, score_bounds

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
    size = M * N + OVERHANG
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
    quantize_rows.reference(key, out=(copies, bounds))
    return copies, bounds


def check_screen(found: Any, low: Any, high: Any, floor: Any) -> Any:
    """Which keys a screen keeps: those whose `high` is above the floor, but for rounding."""
    kept = dense(np.ones(found[0].shape), *found) > 0
    nothing_known = ~np.isfinite(low.max(axis=-1, keepdims=True))
    with np.errstate(invalid="ignore"):
        expected = np.where(nothing_known, high > -np.inf, high > floor)
    assert np.count_nonzero(kept != expected) <= 3
    return kept


@DTYPES
@ALL_BUILDS
def test_a_screen_keeps_what_may_have_weight(build: str, dtype: Any) -> None:
    query, key, mask, alpha, sink, bias = operands(dtype)
    found, copies = room(dtype)[1:3], copies_of(key)
    _cpu.BUILDS[build]["screen_rows"](query, *copies, mask, alpha, sink, bias, out=found)
    low, high = (np.where(mask, x + bias, -np.inf) for x in score_bounds(query, *copies))
    low = np.concatenate([low, sink[..., None]], axis=-1)
    top = pe.entmax(low, alpha).max(axis=-1).astype(float) ** (alpha - 1) / (alpha - 1)
    kept = check_screen(found, low, high, low.max(axis=-1, keepdims=True) - top[..., None])
    assert 0 < kept.sum() < 0.7 * kept.size


@DTYPES
@ALL_BUILDS
@pytest.mark.parametrize(("count", "margin"), [(1, 0.0), (7, 0.0), (1, 2.5), (40, 1.0), (N, 0.0)])
def test_a_screen_keeps_the_best(count: int, margin: float, build: str, dtype: Any) -> None:
    query, key, *_, bias = operands(dtype, 3)
    copies, bounds = copies_of(key)
    bounds[1, 1:, 5] = np.inf  # a key without bounds
    bias[:, 2, 50:60], bias[:, 3, 9], bias[0, 4, 8] = -np.inf, np.inf, np.nan
    rest, found = (np.full((BATCH, M), count), np.full((BATCH, M), margin), bias), room(dtype)[1:3]
    _cpu.BUILDS[build]["screen_best"](query, copies, bounds, *rest, out=found)
    with np.errstate(invalid="ignore"):
        low, high = (x + bias for x in score_bounds(query, copies, bounds))
    low, high = np.where(np.isfinite(low), low, -np.inf), np.where(high < 9e9, high, np.inf)
    least = -np.sort(-low, axis=-1)[..., count - 1, None]
    kept = check_screen(found, low, high, least - margin)
    assert kept[1, :, 5].all()
    assert kept[0, 4, 8]
    assert kept[:, 3, 9].all()
    with np.errstate(invalid="ignore"):
        scores = np.matmul(query, key.swapaxes(-1, -2)) + bias
        least = -np.sort(-np.where(np.isnan(scores), np.inf, scores), axis=-1)[..., count - 1]
        needed = scores >= least[..., None] - margin
    assert (kept >= (needed & (scores > -np.inf))).all()
    assert count == N or kept[:, 5:].mean() < 0.6


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
    order = np.random.default_rng(2).permutation(N)  # keys that lie elsewhere
    moved, places = key[:, order], np.argsort(order).astype(np.int32)[columns]
    elsewhere = room(dtype)
    kernels["candidates"](query, moved, columns, places, stops, *rest, out=elsewhere)
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
