"""The compiled α-entmax for any α, against its definition in wider floats and its neighbours."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_rows import FLOATS, LENGTHS, awkward_layouts, rows_of_every_kind
from stages import sample, slow

import pyentmax

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

UP_TO_2 = [1 + 1e-12, 1 + 1e-6, 1.001, 1.03, 1.1, 1.154, 1.33, 1.49, 1.51, 1.75, 1.99, 2 - 1e-9]
ABOVE_2 = [2 + 1e-9, 2.1, 2.5, 4, 10, 50]


def kernel(z, alpha, mask=True, **kwargs):
    return _cpu.entmax(z, np.broadcast_to(mask, np.shape(z)), alpha, **kwargs)


def exact(z, alpha):
    """One row, 1 < α <= 2, in the widest floats, by bisection on c where Σ exp_β(y − c) = 1.

    Nothing here resembles the kernel: no powers of ratios, no norms, no tangents.
    """
    y = np.asarray(z, np.longdouble)
    y = y - y.max()
    beta = np.longdouble(alpha) - 1
    low, high = np.longdouble(0), np.log(np.longdouble(y.size)) + 1

    def powers(c):
        with np.errstate(divide="ignore"):
            return np.exp(np.log1p(np.maximum(beta * (y - c), -1)) / beta)

    for _ in range(np.finfo(np.longdouble).nmant + 6):
        middle = (low + high) / 2
        low, high = (middle, high) if powers(middle).sum() >= 1 else (low, middle)
    return powers(high) / powers(high).sum()


def assert_within_contract(p, z, alpha, best=None):
    """DESIGN's accuracy: |p − p*| <= 4ε p* + 16ε s* max(1, max_S |z − max z|), s* = p*^(2−α)."""
    eps, tiny = np.finfo(p.dtype).eps, np.finfo(p.dtype).tiny
    best = exact(z, alpha) if best is None else best
    on, wide = best > 0, np.asarray(z, np.longdouble)
    room = 16 * eps * max(1, wide.max() - wide[on].min())
    slope = np.where(on, best, 1) ** (2 - np.longdouble(alpha))
    error = np.abs(p - best) / np.maximum(4 * eps * best + slope * room, tiny)
    worst = int(np.argmax(np.where(on, error, 0)))
    assert error[worst] <= 1, (
        f"{p.dtype} row of {len(p)} at α = {alpha!r}: p[{worst}] = {p[worst]!r}, exact "
        f"{best[worst]!r}; z = {np.array2string(np.asarray(z), threshold=40)}"
    )
    # An entry on the threshold may round to inside.
    assert (p[~on].astype(np.longdouble) ** (np.longdouble(alpha) - 1) <= room).all()
    assert_sums_to_one(p)


def assert_exact_for_scores_nearby(p, z, alpha):
    """For α > 2 p is exact for scores y_i = (p_i^β − p_max^β)/β, at most 8ε max(1, …) away."""
    wide = np.asarray(z, np.longdouble)
    y, on, beta = wide - wide.max(), p > 0, np.longdouble(alpha) - 1
    power = p.astype(np.longdouble) ** beta
    room = 8 * np.finfo(p.dtype).eps * max(1, -y[on].min())
    moved = np.abs((power[on] - power.max()) / beta - y[on])
    assert moved.max() <= room, f"moved by {moved.max()}, room {room}; α = {alpha}, z = {z!r}"
    assert (y[~on] <= room - power.max() / beta).all()
    assert_sums_to_one(p)


def assert_sums_to_one(p):
    total = math.fsum(p.astype(float))
    assert abs(total - 1) <= 4 * np.finfo(p.dtype).eps * math.sqrt(len(p)), f"sums to {total!r}"
    assert (p >= 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", sample(UP_TO_2, 9))
def test_accuracy_on_rows_of_every_kind(alpha, dtype):
    for n in (1, 3, 17, 64, 129, 515):
        for z in rows_of_every_kind(np.random.default_rng(n), n):
            z = z.astype(dtype)
            best = exact(z, alpha)
            for kernels in _cpu.BUILDS.values():
                p = kernels["entmax"](z, np.broadcast_to(True, n), alpha)
                assert p.dtype == dtype
                assert_within_contract(p, z, alpha, best)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", sample(ABOVE_2))
def test_beyond_2_p_is_exact_for_scores_nearby(alpha, dtype):
    for n in (1, 2, 3, 17, 64, 129, 1000, 9000):
        for z in rows_of_every_kind(np.random.default_rng(n), n):
            assert_exact_for_scores_nearby(kernel(z.astype(dtype), alpha), z.astype(dtype), alpha)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [4, 7.97, 10, 50])
def test_beyond_2_an_entry_that_a_rounded_threshold_barely_reaches_is_not_lost(alpha, dtype):
    # Its base 1 + x/t may be 1e-8, and its p a tenth.
    for part in np.linspace(0.3, 0.99, 200):
        z = np.full(30, -9, dtype)
        z[[0, 23]] = -part / (alpha - 1), 0
        assert_exact_for_scores_nearby(kernel(z, alpha), z, alpha)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1.1, 1.33, 1.75])
def test_long_rows_start_from_a_sample(alpha, dtype):
    # Also where the sample tells nothing: all that matters lies where it does not look.
    rng = np.random.default_rng(0)
    d = 40_000
    z = rng.standard_normal(d)
    hidden = np.full(d, -20.0)
    hidden[101:109] = rng.standard_normal(8)
    outlier = np.full(d, -0.7 / (alpha - 1))
    outlier[77] = 0
    for row in (z, 0.1 * z, np.sort(z), np.round(z), np.zeros(d), hidden, outlier):
        assert_within_contract(kernel(row.astype(dtype), alpha), row.astype(dtype), alpha)


@pytest.mark.parametrize(
    "alpha", sample([1.19, 8 / 7, 1.33, 1.42, 1.5 - 1e-7, 1.52, 1.6, 1.75, 1.97], 9)
)
def test_long_rows_with_most_entries_in_the_support(alpha):
    rng = np.random.default_rng(0)
    for d in (1024, 1063, 2048, 2077):
        z = 0.03 / (alpha - 1) ** 2 * rng.standard_normal(d)
        z *= 1 if alpha < 1.5 else 0.03
        far = np.where(rng.random(d) < 0.01, -np.inf, z)  # where the sample may not look
        far[(np.arange(d) // 16) % 16 != 0] = z[(np.arange(d) // 16) % 16 != 0]
        half = z - (np.arange(d) % 2)
        for row in (z, z / 30, 2 * z, np.sort(z), np.sort(z)[::-1], far, half, z - 1e3):
            row = row.astype(np.float32)
            assert_within_contract(kernel(row, alpha), row, alpha)


@pytest.mark.parametrize(
    ("n", "alpha", "level"),
    [
        (508, 1.828375494727526, -0.5869228),
        (488, 1.821805240879634, -0.59463054),
        (472, 1.8130152482818396, -0.60712004),
        (490, 1.8370263224469399, -0.58615494),
        (483, 1.8286604866380827, -0.6055015),
        (497, 1.7709446004324905, -0.75844795),
        (4096, 1.4787, -1.911174),
        (4096, 1.4721, -1.794335),
        *slow((32000, 1.4694, -2.06788), (32000, 1.9561, -1.021422)),
    ],
)
def test_a_crowd_near_the_threshold_does_not_add_up_what_a_tangent_leaves_out(n, alpha, level):
    z = np.full(n, level, np.float32)
    z[0] = 0
    assert_within_contract(kernel(z, alpha), z, alpha)


def test_a_dense_row_is_the_same_alone_and_after_others():
    # What is prepared for one α must not serve the next.
    alphas = np.array([1.33, 1.33, 1.42, 2.5, 1.33, 1.1, 1.75, 1.42])
    z = (1e-3 * np.random.default_rng(1).standard_normal((8, 2500))).astype(np.float32)
    alone = np.stack([kernel(row, alpha) for row, alpha in zip(z, alphas, strict=True)])
    np.testing.assert_array_equal(kernel(z, alphas), alone)


@pytest.mark.parametrize("alpha", [1.01, 1.1, 1.33, 1.9])
def test_a_million_ties_sum_to_one(alpha):
    p = kernel(np.zeros(1_234_567, np.float32), alpha)
    np.testing.assert_allclose(p, 1 / 1_234_567, rtol=1e-6)
    assert (p == p[0]).all()


@given(
    z=st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.integers(1, 40),
            elements=st.floats(-50, 50, width=np.dtype(dtype).itemsize * 8),
        )
    ),
    alpha=st.floats(1, 3),
)
def test_accuracy_on_rows_found_by_hypothesis(z, alpha):
    p = kernel(z, alpha)
    if 1 < alpha <= 2:
        assert_within_contract(p, z, alpha)
    elif alpha > 2:
        assert_exact_for_scores_nearby(p, z, alpha)
    else:
        assert_sums_to_one(p)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", LENGTHS)
def test_special_cases_are_those_mappings_to_the_last_bit(n, dtype):
    z = np.random.default_rng(n).standard_normal((33, n)).astype(dtype)
    everything = np.broadcast_to(True, z.shape)
    for alpha, name in ((1, "softmax"), (1.5, "entmax15"), (2, "sparsemax")):
        expected = getattr(_cpu, name)(z, everything)
        np.testing.assert_array_equal(kernel(z, alpha), expected)
        np.testing.assert_array_equal(kernel(z, np.full(33, alpha)), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinity_shares_alike_among_the_largest(dtype):
    z = np.array([[1, 3, 3, 0, 3], [0, 0, 0, 0, 5], [2, 2, 2, 2, 2]], dtype)
    expected = np.array([[0, 1 / 3, 1 / 3, 0, 1 / 3], [0, 0, 0, 0, 1], [0.2] * 5], dtype)
    for alpha in (np.inf, 1e200, 1e17):
        np.testing.assert_array_equal(kernel(z, alpha), expected)
    steep = kernel(z, 1e6)
    np.testing.assert_allclose(steep, expected, rtol=4 * np.finfo(dtype).eps)
    assert (steep[expected == 0] == 0).all()


@pytest.mark.parametrize("alpha", [0.99, 0, -1, np.nan, -np.inf])
def test_no_alpha_is_no_number(alpha):
    z = np.zeros((3, 4))
    p = kernel(z, np.array([1.2, alpha, 1.2]))
    assert np.isnan(p[1]).all()
    np.testing.assert_allclose(p[[0, 2]], 0.25, rtol=1e-15)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [5, 64, 128, 129])
def test_every_row_has_its_own_alpha_and_ignores_its_neighbours(n, dtype):
    rng = np.random.default_rng(n)
    z = (10 ** rng.uniform(-2, 2, (83, 1)) * rng.standard_normal((83, n))).astype(dtype)
    z[7] = 0
    z[11, 3], z[13, 0], z[17], z[19, 1:] = np.nan, np.inf, -np.inf, -np.inf
    z[23:39] = np.nan
    choices = [1, 1 + 1e-9, 1.1, 1.25, 1.5, 1.75, 2, 3, 20, np.inf]
    alpha = np.where(rng.random(83) < 0.5, 1.3, rng.choice(choices, 83))
    p = kernel(z, alpha)
    for row, a, expected in zip(z, alpha, p, strict=True):
        np.testing.assert_array_equal(kernel(row, a), expected)
    shuffled = rng.permutation(83)
    np.testing.assert_array_equal(kernel(z[shuffled], alpha[shuffled]), p[shuffled])
    np.testing.assert_array_equal(
        kernel(z.reshape(83, 1, n), alpha[:10]), np.stack([kernel(z, a) for a in alpha[:10]], 1)
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("heads", [12, *slow(4, 599)])
@pytest.mark.parametrize("n", [20, 64, 384, 512])
def test_rows_of_heads_with_an_alpha_each_are_those_of_each_head(n, heads, dtype):
    # A window of rows is done in the order of α, and rows of several α share a tile.
    rng = np.random.default_rng(heads)
    z = (rng.choice([0.1, 1, 5], (600, 1)) * rng.standard_normal((600, n))).astype(dtype)
    alpha = 1 + rng.random(heads)
    alpha[:4] = np.nan, 1.25, np.inf, 1.5
    p = kernel(z, np.resize(alpha, 600))
    for head in range(min(heads, 40)):
        np.testing.assert_array_equal(kernel(z[head::heads], alpha[head]), p[head::heads])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1.03, 1.07, 1.15, 1.3, 1.45, 1.75, 1.97])
@pytest.mark.parametrize("n", [33, 256, *slow(3, 64, 512)])
def test_sparse_rows_are_the_same_beside_dense_ones(n, alpha, dtype):
    # What gets no probability is dropped early in sparse rows, and not in dense ones.
    z = np.random.default_rng(n).standard_normal((64, n)).astype(dtype)
    sparse, dense = (10 / (alpha - 1) * z).astype(dtype), (z / 100).astype(dtype)
    among_themselves = kernel(sparse, alpha)
    beside_dense = kernel(np.stack([sparse, dense], 1).reshape(-1, n), alpha)[::2]
    np.testing.assert_array_equal(beside_dense, among_themselves)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1, 1.2, 1.5, 2, 3, np.inf])
@pytest.mark.parametrize("n", [5, 40, *slow(1, 16, 300)])
def test_a_mask_equals_minus_infinity_and_leaving_out(n, alpha, dtype):
    rng = np.random.default_rng(n)
    z = rng.standard_normal((30, n)).astype(dtype)
    mask = rng.random((30, n)) < 0.6
    mask[0], mask[1] = False, True
    p = kernel(np.where(mask, z, np.nan).astype(dtype), alpha, mask)
    np.testing.assert_array_equal(p, kernel(np.where(mask, z, -np.inf).astype(dtype), alpha))
    assert (p[~mask] == 0).all()
    np.testing.assert_array_equal(p[0], 0)
    for row, kept, got in zip(z, mask, p, strict=True):
        if kept.any():
            alone = kernel(row[kept], alpha)
            np.testing.assert_allclose(got[kept], alone, rtol=0, atol=64 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1.2, 3, np.inf])
@pytest.mark.parametrize("n", [4, 37, *slow(1, 16, 300)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_spoil_their_own_row_and_no_other(bad, n, alpha, dtype):
    z = np.random.default_rng(4).standard_normal((n + 2, n)).astype(dtype)
    clean = kernel(z, alpha)
    np.fill_diagonal(z, bad)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = kernel(z, alpha)
    assert np.isnan(p[:n]).all()
    np.testing.assert_array_equal(p[n:], clean[n:])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1 + 1e-12, 1.2, 1.9, 2.2, 60, np.inf])
def test_extreme_finite_scores(alpha, dtype):
    big, tiny = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    np.testing.assert_array_equal(kernel(np.array([big, -big], dtype), alpha), [1, 0])
    half = kernel(np.array([-big, -big], dtype), alpha)
    np.testing.assert_allclose(half, 0.5, rtol=2 * np.finfo(dtype).eps)
    quarter = kernel(np.array([tiny, 0, -tiny, 0], dtype), min(alpha, 1000))
    np.testing.assert_allclose(quarter, 0.25, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1.2, 3])
@pytest.mark.parametrize("n", [45, 300])
def test_memory_layout_changes_nothing(n, alpha, dtype):
    z = np.random.default_rng(5).standard_normal((7, n)).astype(dtype)
    mask = np.random.default_rng(6).random(z.shape) < 0.8
    p, masked = kernel(z, alpha), kernel(z, alpha, mask)
    for layout, other in awkward_layouts(z):
        np.testing.assert_array_equal(kernel(other, alpha), p, err_msg=layout)
        np.testing.assert_array_equal(kernel(other, alpha, mask), masked, err_msg=layout)
    in_place = z.copy()
    kernel(in_place, alpha, out=in_place)
    np.testing.assert_array_equal(in_place, p)
    frame = np.zeros((7, 2 * n), dtype)
    kernel(z, alpha, out=frame[:, ::-2])
    np.testing.assert_array_equal(frame[:, ::-2], p)
    np.testing.assert_array_equal(frame[:, ::2], 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_public_function_runs_the_kernel_as_the_body_does_it(dtype):
    z = np.random.default_rng(7).standard_normal((4, 50, 3)).astype(dtype)
    mask = np.random.default_rng(8).random((4, 50, 3)) < 0.8
    alpha = np.array([1, 1.2, 1.5])
    for a in (1.3, alpha, alpha[None], np.array([[1.1], [1.6], [2], [3]])):
        expected = pyentmax.entmax.reference(z, a, 1, mask=mask)
        got = pyentmax.entmax(z, a, 1, mask=mask)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=0, atol=64 * np.finfo(dtype).eps)


def test_empty_batches_and_rows():
    for shape in ((0, 4), (3, 0, 4), (3, 0)):
        assert kernel(np.zeros(shape), 1.2).shape == shape
