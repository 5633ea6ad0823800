"""Rows with 8-bit copies: a screen loses no row that has a weight, and its bounds hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from screened_cases import KINDS, screened_case

import pyentmax as pe
from pyentmax import ScreenedRows, attention, attention_vjp, entmax_linear
from pyentmax.engine.backends import choice, threads
from pyentmax.sparse_attention import screened_rows
from pyentmax.sparse_attention.screened_rows import most_of_query, score_bounds

has_kernels = pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")


def scores_and_room(x: Any, rows: Any, bias: Any = 0) -> tuple[Any, Any]:
    """Scores in float64, and by how much another way to sum them in the dtype may be off."""
    eps, d = np.finfo(x.dtype).eps, x.shape[-1]
    x, rows = x.astype(np.float64), rows.astype(np.float64)
    with np.errstate(all="ignore"):
        sizes = np.linalg.norm(x, axis=-1)[:, None] * np.linalg.norm(rows, axis=-1)
        return x @ rows.T + bias, d * eps * sizes + eps * np.abs(bias)


def check_weights(p: Any, scores: Any, room: Any, alpha: Any) -> None:
    """p is α-entmax of scores that are within `room` of these, by the conditions of optimality.

    (α − 1) z_j − τ is p_j^{α−1} on the support, and not above 0 off it, for one τ of the row. So
    each entry of the support puts τ between two numbers, which no other entry may contradict. What
    underflows is not known that well.
    """
    info = np.finfo(p.dtype)
    p, least = p.astype(np.float64), float(info.smallest_subnormal) ** (alpha - 1)
    for own, z, around in zip(p, scores, room, strict=True):
        np.testing.assert_allclose(own.sum(), 1, rtol=0, atol=8 * info.eps * np.sqrt(len(z)))
        gaps, around = (alpha - 1) * (z - z.max()), (alpha - 1) * around + 64 * info.eps
        around = around + around[z.argmax()] + 4 * info.eps * np.abs(gaps)
        tau, known = gaps - own ** (alpha - 1), own > float(info.tiny)
        lowest = np.max(np.where(known, tau - around, -np.inf))
        highest = np.min(np.where(known, tau + around, np.inf))
        assert lowest <= highest
        assert np.all((own > 0) | (gaps - around - least <= highest))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 10))]
)
def test_screened_weights_are_those_of_all_rows(part: int, kind: str, dtype: Any) -> None:
    for seed in range(10 * part, 10 * part + 10):
        x, rows, alpha = screened_case(kind, seed, dtype)
        screened = ScreenedRows(rows)
        p = entmax_linear(x, screened, alpha).toarray()
        scores, room = scores_and_room(x, rows)
        if not len(rows):
            assert p.shape == (len(x), 0)
            continue
        values = np.random.default_rng(seed).standard_normal((len(rows), 3)).astype(dtype)
        options: dict[str, Any] = {"scale": 1.0, "return_weights": True}
        output, weights = attention(x, screened, values, alpha, **options)
        if choice.kernels():  # else the two sum products in different orders
            np.testing.assert_array_equal(weights.to_dense(), p)
        expected, others = attention(x, rows, values, alpha, **options)
        dense, other = weights.to_dense(), others.to_dense()
        np.testing.assert_array_equal(np.isnan(dense), np.isnan(other))
        if np.isnan(p).any():
            continue
        check_weights(p, scores, room, alpha)
        # The same scores to the last bit, whose thresholds are rounded apart.
        slack = 16 * np.finfo(dtype).eps / (alpha - 1) * np.maximum(dense, other) ** (2 - alpha)
        assert np.all(np.abs(dense - other) <= slack + 16 * np.finfo(dtype).eps * other)
        np.testing.assert_allclose(output, expected, rtol=0, atol=1e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_and_are_close(kind: str, dtype: Any) -> None:
    for seed in range(10):
        x, rows, _ = screened_case(kind, 100 + seed, dtype, 300)
        screened = ScreenedRows(rows)
        x_scaled = x * screened.scales
        pair = score_bounds(x_scaled, screened.copies, screened.bounds)
        low, high = (b.astype(np.float64) for b in pair)
        bounded = np.isfinite(high) & np.isfinite(low)
        exact, _ = scores_and_room(x, rows)
        with np.errstate(over="ignore", invalid="ignore"):
            one_by_one = np.cumsum(x[:, None] * rows, axis=-1, dtype=dtype)[..., -1]
            orders = exact, x @ rows.T, one_by_one
        for z in orders:
            assert np.all(~bounded | ((low <= z) & (z <= high))), (kind, seed)
        if kind in ("normal", "wide") and dtype == np.float64 and min(rows.shape) > 8:
            share = np.abs(exact - (low + high) / 2).max() / ((high - low) / 2).max()
            assert 0.02 < share <= 1  # Cauchy and Schwarz allow what d directions seldom do
            norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(rows, axis=1)
            assert np.all((high - low) / 2 <= 0.02 * norms)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_large_columns_have_scales_of_their_own(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((2, 3, 900, 128))
    rows[1, :, :, [5, 77]] *= 25
    rows[0, 1, :, 9] = 0
    screened = ScreenedRows(rows.astype(dtype))
    scales = screened.scales
    assert scales.shape == (2, 3, 1, 128)
    assert np.isin(scales, 2.0 ** np.arange(-2, 6)).all()
    assert (scales[1][..., [5, 77]] >= 4).all()
    assert (scales[0] == 1).all()
    assert (screened.take([1, 1]).scales == scales[[1, 1]]).all()
    monkeypatch.setattr(screened_rows, "LEAST_SAMPLE", 1000)
    query = rng.standard_normal((2, 3, 2, 128)).astype(scales.dtype)
    widths = []
    for each in (screened, ScreenedRows(rows.astype(dtype))):
        low, high = score_bounds(query * each.scales, each.copies, each.bounds)
        widths.append((high - low).mean(axis=(2, 3)))
    np.testing.assert_array_equal(widths[0][0], widths[1][0])
    assert (widths[0][1] < 0.35 * widths[1][1]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_a_row_enters_the_support_at_the_same_ulp(alpha: float, dtype: Any) -> None:
    """Rows a few ulps around the threshold, with features that the query does not see."""
    rng = np.random.default_rng(8)
    for base in (0.0, 3.0, -700.0):
        edge = dtype(base - 1 / (alpha - 1))
        for steps in range(-4, 5):
            rows = rng.standard_normal((70, 64)).astype(dtype) * 5
            rows[:, 0] = edge - 5
            rows[7, 0], rows[40, 0] = base, edge
            for _ in range(abs(steps)):
                rows[40, 0] = np.nextafter(rows[40, 0], dtype(np.sign(steps) * np.inf))
            x = np.zeros((1, 64), dtype)
            x[0, 0] = 1
            p = entmax_linear(x, ScreenedRows(rows), alpha)
            expected = pe.csr("entmax", x @ rows.T, alpha=alpha)
            assert p.indices.tolist() == expected.indices.tolist()
            np.testing.assert_allclose(p.data, expected.data, rtol=1e-5)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_scored(broken: float) -> None:
    rng = np.random.default_rng(9)
    query, rows, value = (rng.standard_normal((n, 8)) for n in (2, 100, 100))
    rows[50, 3] = broken
    mask = np.ones((2, 100), bool)
    mask[1, 50] = False
    options: dict[str, Any] = {"mask": mask, "return_weights": True}
    output, weights = attention(query, ScreenedRows(rows), value, **options)
    expected, others = attention(query, rows, value, **options)
    # The same scores, whose thresholds and products are rounded in two orders.
    np.testing.assert_allclose(output, expected, rtol=0, atol=32 * np.finfo(float).eps)
    np.testing.assert_array_equal(weights.indices, others.indices)
    assert np.isfinite(output[1]).all()
    assert np.isnan(output[0]).all() or np.isneginf(query[0] @ rows[50])


@has_kernels
def test_half_types_are_converted_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(18)
    query = rng.standard_normal((2, 6, 3, 16)).astype(np.float32)
    key, value = rng.standard_normal((2, 2, 2, 700, 16)).astype(np.float16)
    screened, counts = ScreenedRows(key), []
    wide, widened = (key.astype(np.float32), value.astype(np.float32)), screened_rows.widened
    monkeypatch.setattr(screened_rows, "widened", lambda x: counts.append(x.size) or widened(x))
    options: dict[str, Any] = {"sink": 0.5, "mask": rng.random((2, 1, 1, 700)) < 0.5}
    expected, weights = attention(query, *wide, return_weights=True, **options)
    for values in (value, wide[1]):
        output, own = attention(query, screened, values, return_weights=True, **options)
        assert output.dtype == np.float32
        np.testing.assert_allclose(output, expected, rtol=0, atol=2e-6)
        np.testing.assert_array_equal(own.indices, weights.indices)
    assert 0 < max(counts) < key.size / 3
    half = attention(query.astype(np.float16), screened, value, **options)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, expected, rtol=0, atol=2e-3)
    many = np.repeat(query, 5, axis=-2)  # by tiles
    np.testing.assert_allclose(
        attention(many, screened, value, **options)[..., ::5, :], expected, rtol=0, atol=2e-6
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_appended_rows_are_as_if_made_at_once(dtype: Any) -> None:
    rows = np.random.default_rng(12).standard_normal((2, 3, 300, 20)).astype(dtype)
    whole, n = ScreenedRows(rows), 100
    assert np.shares_memory(whole.rows, rows)
    for screened in (ScreenedRows(rows[:, :, :n]), ScreenedRows(rows[:, :, :n], room=300)):
        moves, before, roomy = 0, screened._rows, screened._rows.shape[2] >= 300
        for i in range(n, 300):
            screened.append(rows[:, :, i : i + 1])
            moves += screened._rows is not before
            before = screened._rows
        assert moves <= (0 if roomy else 2)  # to twice the size each time
        for name in ("rows", "copies", "bounds"):
            np.testing.assert_array_equal(getattr(screened, name), getattr(whole, name))
        assert not screened.rows.flags.writeable
    assert rows.flags.writeable


def test_crop_and_take_keep_what_they_say() -> None:
    rows = np.random.default_rng(13).standard_normal((4, 50, 8))
    screened = ScreenedRows(rows)
    beams = screened.take([2, 2, 0])
    beams.crop(30)
    beams.append(rows[1:, 40:42])
    expected = np.concatenate([rows[[2, 2, 0], :30], rows[1:, 40:42]], axis=1)
    np.testing.assert_array_equal(beams.rows, expected)
    np.testing.assert_array_equal(beams.bounds, ScreenedRows(expected).bounds)
    np.testing.assert_array_equal(screened.rows, rows)
    assert repr(beams) == "ScreenedRows(32 rows of 8, (3,) matrices, float64)"


def test_linear_takes_bias_scale_and_alphas() -> None:
    rng = np.random.default_rng(14)
    x, rows, bias = (
        rng.standard_normal(s).astype(np.float32) for s in ((19, 64), (3000, 64), 3000)
    )
    alphas = rng.choice([1.2, 1.5, 2.0], 19)
    p, counts = entmax_linear(
        x, ScreenedRows(rows), alphas, bias=bias, scale=0.5, return_counts=True
    )
    expected = pe.csr("entmax", 0.5 * (x @ rows.T) + bias, alpha=alphas)
    np.testing.assert_allclose(p.toarray(), expected.toarray(), rtol=0, atol=3e-5)
    assert counts.shape == (19,)
    assert np.all(counts >= np.diff(p.indptr))
    if choice.kernels():
        assert counts.max() < 3000
        with pe.set_workers(1):
            one = entmax_linear(x, ScreenedRows(rows), alphas, bias=bias, scale=0.5)
        np.testing.assert_array_equal(one.data, p.data)


def test_most_of_the_query_fits_32_bits() -> None:
    for d in (1, 64, 515, 516, 517, 700, 100_000):
        assert 127 * most_of_query(d) * d < 2**31
    assert most_of_query(515) == 32767 > most_of_query(517)
    x = np.full((1, 700), -1.0, np.float32)  # the largest sum there is
    p = entmax_linear(x, ScreenedRows(np.concatenate([x, -x, x * 0.99])), 2.0)
    assert p.toarray().tolist() == [[1, 0, 0]]


ROWS, X = ScreenedRows(np.ones((5, 4), np.float32)), np.ones((2, 4), np.float32)
CALL = X, ROWS, ROWS.rows
WRONG: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = [
    ("float16, float32 or float64, got int", ScreenedRows, (np.ones((5, 4), int),), {}),
    ("float16, float32 or float64, got list", ScreenedRows, ([[1.0]],), {}),
    ("float64, got uint16", ScreenedRows, (np.ones((5, 4), np.uint16),), {}),
    ("at least two axes", ScreenedRows, (np.ones(3),), {}),
    (r"the shape \(k, 4\), got \(1, 3\)", ROWS.append, (np.ones((1, 3)),), {}),
    ("expected real numbers", ROWS.append, (np.ones((1, 4), complex),), {}),
    ("from 0 to the number of rows, 5, got 51", ROWS.crop, (51,), {}),
    (r"expected rows of shape \(batch", ROWS.take, ([0],), {}),
    *(("above 1 and 2 at most", entmax_linear, (X, ROWS, a), {}) for a in (1, 2.5, [1.5] * 3)),
    ("rows: expected ScreenedRows", entmax_linear, (X, X), {}),
    (r"\(b, d\)", entmax_linear, (X[:, :3], ROWS), {}),
    ("bias must have the shape", entmax_linear, (X, ROWS), {"bias": np.ones(4)}),
    *(("ScreenedRows as key", attention, CALL, {"alpha": a}) for a in (1, 3)),
    ("ScreenedRows as key: .* got softmax", attention, CALL, {"mapping": "softmax"}),
    ("ScreenedRows as key: .* got topk", attention, CALL, {"mapping": "topk_softmax", "k": 3}),
    ("cu_seqlens", attention, CALL, {"cu_seqlens": ([0, 2], [0, 5])}),
    ("no derivatives", attention_vjp, (None, *CALL, X), {}),
]


@pytest.mark.parametrize(("message", "function", "arguments", "options"), WRONG)
def test_wrong_arguments_say_what_to_do(
    message: str, function: Any, arguments: Any, options: Any
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        function(*arguments, **options)


@has_kernels
def test_few_screened_scores_take_one_thread(monkeypatch):
    """Under 300,000 a second cost half of the processor's time again, and saved none."""
    counts, run = [], threads.run_pieces
    monkeypatch.setattr(threads, "run_pieces", lambda p, b, n: counts.append(n) or run(p, b, n))
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(8, 1, 64)), rng.normal(size=(8, 8200, 64))
    with pe.set_workers(2):
        for keys in (key, ScreenedRows(key)):
            attention(query, keys, key, scale=0.1)
    assert counts == [2]
