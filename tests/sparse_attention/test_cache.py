"""Attention to a cache in pages: skipping changes no bit, and the results match attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyentmax as pe
from pyentmax.sparse_attention import KeyValueCache
from pyentmax.sparse_attention.pages import Pages
from pyentmax.sparse_attention.row_thresholds import EntmaxThreshold

# Scores are sums in another order than BLAS's, and differences of scores count.
ROOM = {np.float16: 2e-3, np.float32: 2e-5, np.float64: 1e-12}
SPARSE: list[dict[str, Any]] = [
    {"alpha": 1.5},
    {"alpha": 2},
    {"alpha": 1.2},
    {"alpha": 3.0},
    {"alpha": np.inf},
    {"mapping": "sparsemax"},
    {"mapping": "entmax15"},
    {"mapping": "topk_softmax", "k": 4},
    {"mapping": "topk_sparsemax", "k": 4},
    {"alpha": 1.5, "sink": 1.0},
    {"alpha": 1.2, "sink": -1.0, "scale": np.array(0.5)},
    {"mapping": "topk_softmax", "k": 4, "sink": 0.5},
    {"mapping": "topk_sparsemax", "k": 4, "sink": 0.5},
]
DENSE: list[dict[str, Any]] = [
    {"alpha": 1},
    {"mapping": "softmax"},
    {"mapping": "normmax"},
    {"mapping": "csparsemax", "upper": 0.4},
]
DENSE[2]["alpha"] = 2.0


def clustered(rng: np.random.Generator, shape: tuple[int, ...], run: int, noise: float) -> Any:
    """Keys around a centre for `run` positions, then around the next."""
    *batch, s, d = shape
    centres = rng.standard_normal((*batch, -(-s // run), d))
    return np.repeat(centres, run, axis=-2)[..., :s, :] + noise * rng.standard_normal(shape)


def filled(key: Any, value: Any, size: int, steps: list[int]) -> KeyValueCache:
    """A cache that grew by these numbers of positions, again and again."""
    cache, at = KeyValueCache(size), 0
    while at < key.shape[-2]:
        for step in steps:
            cache.append(key[..., at : at + step, :], value[..., at : at + step, :])
            at += step
    return cache


def without_skipping(cache: KeyValueCache, query: Any, **options: Any) -> Any:
    """The result with a bound of ∞ for every page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Pages, "bounds", lambda self, q: np.full((*q.shape[:2], self.full), np.inf, float)
        )
        output, report = cache.attend(query, **options)
    assert report.skipped == 0
    return output, report


def assert_same_bits(found: Any, expected: Any) -> None:
    (output, report), (all_output, all_report) = found, expected
    np.testing.assert_array_equal(output, all_output)
    for name in ("data", "indices", "indptr"):
        one, other = (getattr(r.weights, name) for r in (report, all_report))
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    np.testing.assert_array_equal(report.weights.sink, all_report.weights.sink)


@given(
    seed=st.integers(0, 2**32 - 1),
    options=st.sampled_from(SPARSE),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    causal=st.booleans(),
)
def test_attend_matches_attention(
    seed: int, options: dict[str, Any], dtype: Any, causal: bool
) -> None:
    rng = np.random.default_rng(seed)
    s, d, width, size, run = (int(n) for n in rng.integers(1, [200, 9, 5, 20, 30]))
    t = int(rng.integers(1, 4))
    batches = [((), ()), ((2,), (4,)), ((3, 1), (3, 2)), ((2, 2), (2, 4)), ((2,), (3, 2))]
    cached, queried = batches[rng.integers(len(batches))]
    noise = rng.choice([0.0, 0.1, 1.0])
    key = clustered(rng, (*cached, s, d), run, noise).astype(dtype)
    value = rng.standard_normal((*cached, s, width)).astype(dtype)
    query = (rng.choice([0.3, 3, 10]) * rng.standard_normal((*queried, t, d))).astype(dtype)
    cache = filled(key, value, size, [int(n) for n in rng.integers(1, 40, 3)])
    np.testing.assert_array_equal(cache.key, key)
    np.testing.assert_array_equal(cache.value, value)
    output, report = cache.attend(query, causal=causal, **options)
    assert output.dtype == dtype
    assert_same_bits((output, report), without_skipping(cache, query, causal=causal, **options))
    if "topk" in options.get("mapping", "") and noise == 0:
        return  # whether scores tie for the last place is up to rounding
    expected, weights = pe.attention(
        query, key, value, causal=causal, offset=(s - t) * causal, return_weights=True, **options
    )
    if options.get("alpha") == np.inf and noise == 0:
        return  # so is here whether they tie for the first
    steep = options.get("alpha", 2) > 2  # at the threshold
    room = ROOM[dtype] * 30 if steep else ROOM[dtype]
    scale = max(1.0, float(np.abs(query).max() * np.abs(key).max()) * d)
    found, wanted = (w.to_dense() for w in (report.weights, weights))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=room * scale)
    if weights.sink is not None:
        one, other = report.weights.sink, weights.sink
        np.testing.assert_allclose(one, other, rtol=0, atol=room * scale)
    np.testing.assert_allclose(
        output, expected, rtol=0, atol=room * scale * max(1, np.abs(value).max()) * 4
    )


@pytest.mark.parametrize("options", SPARSE, ids=str)
def test_pages_of_clustered_keys_are_skipped(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    key = clustered(rng, (2, 4096, 16), 32, 0.05).astype(np.float32)
    query = (4 * rng.standard_normal((2, 1, 16))).astype(np.float32)
    cache = filled(key, key, 32, [4096])
    output, report = cache.attend(query, **options)
    assert report.pages == 128
    assert report.visited.shape == (2, 1)
    assert report.skipped > 0.5, str(report)
    assert f"skipped {report.skipped:.1%}" in str(report)
    assert_same_bits((output, report), without_skipping(cache, query, **options))


@pytest.mark.parametrize("options", DENSE, ids=str)
def test_report_says_why_nothing_is_skipped(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    key, query = rng.standard_normal((2, 70, 4)), rng.standard_normal((2, 1, 4))
    cache = filled(key, key, 8, [70])
    output, report = cache.attend(query, **options)
    np.testing.assert_array_equal(output, pe.attention(query, key, key, **options))
    assert report.skipped == 0
    name = options.get("mapping", "softmax")
    reason = "softmax gives every key a weight" if name == "softmax" else f"which {name} gives"
    assert reason in report.reason
    assert str(report).startswith("visited all 9 pages: ")


def test_parameters_may_be_per_head() -> None:
    rng = np.random.default_rng(2)
    key, query = clustered(rng, (2, 300, 8), 10, 0.1), 4 * rng.standard_normal((4, 2, 8))
    cache = filled(key, key, 16, [300])
    for options in (
        {"alpha": np.array([1.2, 1.5, 2, 1])},
        {"alpha": 1.3, "sink": np.array([-1, 0, 1, 2.0]), "scale": np.array([[1], [1], [2], [2]])},
        {"mapping": "topk_softmax", "k": np.array([1, 3, 500, 2])},
    ):
        output, report = cache.attend(query, **options)
        np.testing.assert_allclose(
            output, pe.attention(query, key, key, **options), rtol=0, atol=1e-12
        )
        assert_same_bits((output, report), without_skipping(cache, query, **options))
    assert (report.visited[2] == report.pages).all()  # there are not 500
    assert (report.visited[0] < report.pages).all()


def test_higher_sinks_skip_more_pages() -> None:
    rng = np.random.default_rng(3)
    key = clustered(rng, (2, 1024, 16), 32, 0.05)
    query = rng.standard_normal((3, 2, 5, 16))  # three queries in a batch share each head of keys
    cache, skipped = filled(key, key, 32, [1024]), []
    for sink in (-np.inf, 0.0, 2.0, 4.0, 1e6):
        output, report = cache.attend(query, 1.5, sink=sink)
        expected, weights = pe.attention(query, key, key, 1.5, sink=sink, return_weights=True)
        np.testing.assert_allclose(output, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(report.weights.sink, weights.sink, rtol=0, atol=1e-12)
        skipped.append(report.skipped)
    assert sorted(skipped) == skipped
    assert skipped[0] < skipped[-1] == 1
    for sink in (np.inf, np.nan):
        assert np.isnan(cache.attend(query, 1.5, sink=sink)[0]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_keys_are_never_skipped(bad: float) -> None:
    rng = np.random.default_rng(4)
    key, query = clustered(rng, (200, 4), 10, 0.1), 5 * rng.standard_normal((1, 4))
    key[57] = [1, bad, 0, 2]
    value = rng.standard_normal((200, 3))
    cache = filled(key, value, 8, [200])
    for q in (query, -query):
        output, report = cache.attend(q, 1.5)
        expected, weights = pe.attention(q, key, value, return_weights=True)
        np.testing.assert_allclose(output, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            report.weights.to_dense(), weights.to_dense(), rtol=0, atol=1e-12
        )
    query[0, 0] = bad
    assert np.isnan(cache.attend(query, 1.5)[0]).all()


def test_causal_queries_before_nan_stay_finite() -> None:
    rng = np.random.default_rng(5)
    key, query = clustered(rng, (60, 4), 10, 0.1), 5 * rng.standard_normal((3, 4))
    key[-1] = np.nan
    output, report = filled(key, key[:, :2], 8, [60]).attend(query, 1.5, causal=True)
    np.testing.assert_array_equal(np.isnan(output).any(axis=-1), [False, False, True])
    np.testing.assert_array_equal(report.weights.support_sizes[2], 60)
    expected = pe.attention(query, key, key[:, :2], causal=True, offset=57)
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-40, 1e-30, 1e-19, 1, 1e19, 1e30, 3e38])
def test_no_score_exceeds_its_bound(dtype: Any, size: float) -> None:
    rng = np.random.default_rng(6)
    for d in (1, 3, 64, 257):
        key = clustered(rng, (2, 256, d), 16, rng.choice([0, 1e-6, 0.1, 1])) * size
        key = np.clip(key, -3e38, 3e38).astype(dtype)
        pages = Pages(2, d, 1, 16, dtype)
        pages.append(key, key[..., :1])
        for scale in (1e-30, 1, 1e15):
            query = (scale * rng.standard_normal((2, 3, d))).astype(dtype)
            query[0, 0] = 0
            bounds = pages.bounds(query)
            look = np.ones((2, 3, 16), bool)
            visible, least = np.full((2, 3), 256), np.full((2, 3), -np.inf, dtype)
            scores, _, counts = pages.look(query, look, visible, least)
            largest = scores.reshape(2, 3, 16, 16).max(axis=-1)
            assert (counts == 256).all()
            assert ((largest <= bounds) | (bounds == np.inf)).all()
            assert (bounds == np.inf).all() == (not np.isfinite(bounds).any())


@pytest.mark.parametrize("alpha", [1.05, 1.5, 2.0, 4.0])
def test_lower_scores_do_not_move_the_threshold(alpha: float) -> None:
    rng = np.random.default_rng(8)
    z = np.sort(rng.standard_normal(30))[::-1] * 2
    p = pe.entmax(z, alpha)
    gaps = p[0] ** (alpha - 1) / (alpha - 1)
    tau = z[0] - gaps
    rule = EntmaxThreshold(np.array([alpha]))
    for shift in (-1e-9, -1e-15, 0, 1e-15, 1e-9):
        row = np.append(z[p > 0], tau + shift)
        answers = []
        for lower in ([], [tau - 0.1], [tau - 0.1, tau - 0.2, tau - 5]):
            scores = np.append(row, lower)[None]
            answers.append(rule.above(scores, *rule.find(scores))[0, : len(row)])
        np.testing.assert_array_equal(answers[0], answers[1])
        np.testing.assert_array_equal(answers[0], answers[2])
        beside = EntmaxThreshold(np.array([alpha]), sink=row[:1])  # the largest score is a sink's
        others = beside.above(row[None, 1:], *beside.find(row[None, 1:]))[0]
        np.testing.assert_array_equal(others, answers[0][1:])
        assert answers[0][:-1].all()
        if abs(shift) > 1e-10:
            assert answers[0][-1] == (shift > 0)


def test_growing_in_any_steps_gives_same_bits() -> None:
    rng = np.random.default_rng(10)
    key, value = rng.standard_normal((2, 3, 100, 4)), rng.standard_normal((2, 3, 100, 2))
    query = rng.standard_normal((2, 3, 1, 4))
    expected = filled(key, value, 8, [100]).attend(query)
    for steps in ([1], [7], [8], [3, 0, 20], [16, 1]):
        cache = filled(key, value, 8, steps)
        assert len(cache) == 100
        np.testing.assert_array_equal(cache.key, key)
        assert_same_bits(cache.attend(query), expected)
    assert cache.nbytes >= key.nbytes + value.nbytes
    assert repr(cache) == ("<KeyValueCache of batch shape (2, 3): 100 positions in 13 pages of 8>")


def test_arrays_are_copied_in_and_out() -> None:
    key = np.ones((3, 2))
    cache = KeyValueCache(2)
    cache.append(key, key)
    key[:] = 7
    cache.key[:], cache.value[:] = 9, 9
    assert (cache.key == 1).all()
    assert (cache.value == 1).all()


def test_empty_caches_and_queries() -> None:
    cache = KeyValueCache()
    assert (len(cache), cache.nbytes, repr(cache)) == (0, 0, "KeyValueCache(page_size=64)")
    cache.append(np.zeros((2, 0, 3)), np.zeros((2, 0, 4)))
    output, report = cache.attend(np.ones((2, 1, 3)))
    np.testing.assert_array_equal(output, np.zeros((2, 1, 4)))
    assert (report.pages, report.skipped) == (0, 0)
    cache.append(np.zeros((2, 5, 3)), np.zeros((2, 5, 4)))
    output, report = cache.attend(np.ones((2, 0, 3)))
    assert output.shape == (2, 0, 4)
    assert str(report)


def cache_of(key: Any, value: Any = None, size: Any = 4) -> KeyValueCache:
    cache = KeyValueCache(size)
    cache.append(key, key if value is None else value)
    return cache


K = np.zeros((2, 5, 3), np.float32)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "page_size must be at least 1, got 0", lambda: KeyValueCache(0)),
        (TypeError, "page_size must be a whole number, got 2.5", lambda: KeyValueCache(2.5)),
        (ValueError, "the cache is empty: append", lambda: KeyValueCache().attend(K)),
        (ValueError, r"differ in the last axis only.*\(2, 4, 3\)", lambda: cache_of(K, K[:, :4])),
        (ValueError, r"\(…, n, d\).* got \(3,\)", lambda: cache_of(K[0, 0])),
        (
            ValueError,
            r"the cache, \(2,\) and 3, got shape",
            lambda: cache_of(K).append(K[..., :2], K),
        ),
        (
            TypeError,
            "key of float64 is more precise",
            lambda: cache_of(K).append(K * np.ones(3), K),
        ),
        (TypeError, "key must hold real numbers", lambda: cache_of(K.astype(complex))),
        (TypeError, "a cache holds float16, float32", lambda: cache_of(K.astype(np.longdouble))),
        (ValueError, "a head and a feature at least", lambda: cache_of(K[..., :0])),
    ],
)
def test_errors_say_what_was_expected(error: Any, message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call()
