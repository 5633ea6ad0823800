"""The compiled softmax, sparsemax and their Jacobian products, against their definitions.

What depends on the surroundings only (threads, memory) is tested once, in test_entmax15_kernel.py.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from kernel_rows import FLOATS, LENGTHS, awkward_layouts, rows_of_every_kind
from stages import slow

from pyentmax.mappings import _simplex

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

NAMES = ["softmax", "sparsemax"]


def kernel(name, z, mask=True, **kwargs):
    return getattr(_cpu, name)(z, np.broadcast_to(mask, np.shape(z)), **kwargs)


def jvp(name, p, v):
    return getattr(_cpu, f"{name}_jvp")(p, v)


def exact_softmax(z):
    x = np.asarray(z, np.longdouble)
    e = np.exp(x - x.max())
    p = e / e.sum()
    return p, p


def exact_sparsemax(z):
    """By bisection on the threshold: no sorting and no tangents."""
    x = np.asarray(z, np.longdouble)
    x = x - x.max()
    low, high = np.longdouble(-1), np.longdouble(0)
    for _ in range(np.finfo(np.longdouble).nmant + 2):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(x - middle, 0).sum() >= 1 else (low, middle)
    p = np.maximum(x - low, 0)
    return p / p.sum(), np.sign(p)


EXACT = {"softmax": exact_softmax, "sparsemax": exact_sparsemax}


def assert_within_contract(name, p, z):
    """DESIGN's accuracy: |p - p*| <= 4 eps p* + 16 eps s* max(1, max_S |z - max z|)."""
    eps, tiny = np.finfo(p.dtype).eps, np.finfo(p.dtype).smallest_subnormal
    exact, slope = EXACT[name](z)
    z = np.asarray(z, np.longdouble)
    room = 16 * eps * max(1, z.max() - z[exact > 0].min())
    # Off the support p* is 0, but an entry on the threshold may round to inside.
    on_threshold = room if name == "sparsemax" else 0
    error = np.abs(p - exact) - np.where(exact > 0, 4 * eps * exact + slope * room, on_threshold)
    worst = int(np.argmax(error))
    assert error[worst] <= tiny, (
        f"{name}, {p.dtype} row of {len(p)}: p[{worst}] = {p[worst]!r}, exact {exact[worst]!r}; "
        f"z = {np.array2string(z, threshold=40)}"
    )
    total = math.fsum(p.astype(float))
    assert abs(total - 1) <= 4 * eps * math.sqrt(len(p)), f"the row sums to {total!r}"
    assert (p >= 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [*LENGTHS[::3], *slow(*LENGTHS[1::3], *LENGTHS[2::3], 50_000)])
@pytest.mark.parametrize("name", NAMES)
def test_accuracy_on_rows_of_every_kind(name, n, dtype):
    for z in rows_of_every_kind(np.random.default_rng(n), n):
        z = z.astype(dtype)
        p = kernel(name, z)
        assert p.dtype == dtype
        assert_within_contract(name, p, z)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_every_short_length(name, dtype):
    rng = np.random.default_rng(0)
    for n in range(1, 71):
        for z in (rng.standard_normal((10, n)) * 2).astype(dtype):
            assert_within_contract(name, kernel(name, z), z)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_million_ties_sum_to_one(name):
    z = np.zeros(1_234_567, np.float32)
    assert_within_contract(name, kernel(name, z), z)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_underflows_gradually_and_then_to_zero(dtype):
    # e^-x for every x from 0 to far below the smallest subnormal number, beside a score of 0.
    lowest = math.log(np.finfo(dtype).smallest_subnormal)
    z = np.linspace(0, 1.1 * lowest, 5_000).astype(dtype)
    p = np.array([kernel("softmax", np.array([0, x], dtype))[1] for x in z])
    exact = np.exp(z.astype(np.longdouble)) / (1 + np.exp(z.astype(np.longdouble)))
    error = np.abs(p - exact) / np.maximum(exact, np.finfo(dtype).tiny)
    assert error.max() <= 4 * np.finfo(dtype).eps
    assert (p[z > 0.99 * lowest] > 0).all()
    assert (p[z < 1.01 * lowest] == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_sparsemax_is_exactly_zero_beyond_the_margin(dtype):
    np.testing.assert_array_equal(kernel("sparsemax", np.array([1, 0, -1], dtype)), [1, 0, 0])
    np.testing.assert_array_equal(kernel("sparsemax", np.array([0.5, 0], dtype)), [0.75, 0.25])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_ties_share_alike(name, dtype):
    for n in (1, 2, 3, 4, 7, 8, 16, 100, 256, 1000, 1024, 4096):
        p = kernel(name, np.append(np.full(n, 3), -np.inf).astype(dtype))
        assert (p[:n] == p[0]).all()
        assert p[n] == 0
        # 1/n is a floating-point number, and in very short rows and in long ones so are the sums.
        exact = n & (n - 1) == 0 and (n <= 16 or n >= 1000)
        np.testing.assert_allclose(p[0], 1 / n, rtol=0 if exact else 4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 5, 16, 40, 300])
@pytest.mark.parametrize("name", NAMES)
def test_a_mask_equals_minus_infinity_and_leaving_out(name, n, dtype):
    rng = np.random.default_rng(n)
    z = rng.standard_normal((30, n)).astype(dtype)
    mask = rng.random((30, n)) < 0.6
    mask[0] = False
    mask[1] = True
    p = kernel(name, np.where(mask, z, np.nan).astype(dtype), mask)
    np.testing.assert_array_equal(p, kernel(name, np.where(mask, z, -np.inf).astype(dtype)))
    assert (p[~mask] == 0).all()
    for row, kept, got in zip(z, mask, p, strict=True):
        if kept.any():
            assert_within_contract(name, got[kept], row[kept])
    np.testing.assert_array_equal(p[0], 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 4, 16, 37, 300])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_nan_and_infinity_spoil_their_own_row_and_no_other(name, bad, n, dtype):
    z = np.random.default_rng(4).standard_normal((n + 2, n)).astype(dtype)
    clean = kernel(name, z)
    np.fill_diagonal(z, bad)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = kernel(name, z)
    assert np.isnan(p[:n]).all()
    np.testing.assert_array_equal(p[n:], clean[n:])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_rows_without_a_finite_entry_and_extreme_scores(name, dtype):
    inf, nan, big = np.inf, np.nan, np.finfo(dtype).max
    z = np.array([[-inf] * 3, [nan] * 3, [-inf, nan, -inf], [inf] * 3, [inf, -inf, 0]], dtype)
    p = kernel(name, z)
    np.testing.assert_array_equal(p[0], 0)
    assert np.isnan(p[1:]).all()
    np.testing.assert_array_equal(kernel(name, np.array([big, -big], dtype)), [1, 0])
    np.testing.assert_array_equal(kernel(name, np.array([-big, -big], dtype)), 0.5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_memory_layout_changes_nothing(name, dtype):
    z = np.random.default_rng(5).standard_normal((7, 45)).astype(dtype)
    mask = np.random.default_rng(6).random(z.shape) < 0.8
    v = np.random.default_rng(7).standard_normal(z.shape).astype(dtype)
    p, masked = kernel(name, z), kernel(name, z, mask)
    product = jvp(name, p, v)
    for layout, other in awkward_layouts(z):
        np.testing.assert_array_equal(kernel(name, other), p, err_msg=layout)
        np.testing.assert_array_equal(kernel(name, other, mask), masked, err_msg=layout)
    for (layout, p_), (_, v_) in zip(awkward_layouts(p), awkward_layouts(v), strict=True):
        np.testing.assert_array_equal(jvp(name, p_, v_), product, err_msg=layout)
    for row, alone in zip(z, p, strict=True):
        np.testing.assert_array_equal(kernel(name, row), alone)
    in_place = z.copy()
    kernel(name, in_place, out=in_place)
    np.testing.assert_array_equal(in_place, p)
    frame = np.zeros((7, 90), dtype)
    kernel(name, z, out=frame[:, ::-2])
    np.testing.assert_array_equal(frame[:, ::-2], p)
    np.testing.assert_array_equal(frame[:, ::2], 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [5, 64, 128, 129])
@pytest.mark.parametrize("name", [*NAMES, "entmax15"])
def test_a_row_does_not_depend_on_its_neighbours(name, n, dtype):
    # Short rows are done side by side: easy and hard, sound and spoilt ones in one block.
    rng = np.random.default_rng(n)
    z = (10 ** rng.uniform(-2, 2, (83, 1)) * rng.standard_normal((83, n))).astype(dtype)
    z[7] = 0
    z[11, 3], z[13, 0], z[17], z[19, 1:] = np.nan, np.inf, -np.inf, -np.inf
    z[23:39] = np.nan
    p = kernel(name, z)
    for row, expected in zip(z, p, strict=True):
        np.testing.assert_array_equal(kernel(name, row), expected)
    shuffled = rng.permutation(83)
    np.testing.assert_array_equal(kernel(name, z[shuffled]), p[shuffled])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*NAMES, "entmax15"])
def test_a_nan_among_scores_out_of_reach_is_seen(name, dtype):
    z = np.full(2_000, -1e4, dtype)
    z[500] = 0
    for place in (0, 255, 256, 1_100, 1_999):
        bad = z.copy()
        bad[place] = np.nan
        assert np.isnan(kernel(name, bad)).all()
    big = np.finfo(dtype).max
    p = kernel(name, np.where(np.arange(2_000) % 2, big, -big).astype(dtype))
    np.testing.assert_allclose(p[1::2], 1e-3, rtol=4 * np.finfo(dtype).eps)
    assert (p[::2] == 0).all()


def jacobian(name, p):
    """diag(s) - s s'/sum s, in the widest floats."""
    p = np.asarray(p, np.longdouble)
    s = p if name == "softmax" else np.sign(p)
    return np.diag(s) - np.outer(s, s) / s.sum()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [*LENGTHS[::3], *slow(*LENGTHS[1::3], *LENGTHS[2::3])])
@pytest.mark.parametrize("name", NAMES)
def test_jvp_is_the_dense_jacobian_times_v(name, n, dtype):
    rng = np.random.default_rng(n)
    for scale in (0.1, 1, 5):
        p = kernel(name, (scale * rng.standard_normal(n)).astype(dtype))
        v = rng.standard_normal(n).astype(dtype)
        product = jvp(name, p, v)
        assert product.dtype == dtype
        allowed = 16 * np.finfo(dtype).eps * np.abs(v).max()
        np.testing.assert_allclose(product, jacobian(name, p) @ v, rtol=0, atol=allowed)
        assert (product[p == 0] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_jvp_against_central_differences(name):
    # z is far from the kinks of sparsemax: entries are 0.05 apart at least.
    z = np.random.default_rng(9).permuted(np.tile(np.linspace(0, 0.55, 12), (20, 1)), axis=1)
    v, step = np.random.default_rng(10).standard_normal(z.shape), 1e-6
    difference = (kernel(name, z + step * v) - kernel(name, z - step * v)) / (2 * step)
    np.testing.assert_allclose(jvp(name, kernel(name, z), v), difference, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_jvp_of_rows_without_support_and_with_nan(name):
    nan = np.nan
    p = np.array([[0.0, 0, 0], [1, 0, 0], [nan, nan, nan], [0.5, 0.5, 0]])
    v = np.array([[1.0, nan, 2], [3, nan, np.inf], [1, 2, 3], [1, 3, nan]])
    product = jvp(name, p, v)
    np.testing.assert_array_equal(product[:2], 0)
    assert np.isnan(product[2]).all()
    np.testing.assert_array_equal(
        product[3], (0.5 if name == "softmax" else 1) * np.array([-1, 1, 0])
    )


@pytest.mark.parametrize("n", [300, 1994, 4096])
def test_chunks_right_at_the_threshold_have_their_share(n):
    # The root lies between two floats: a whole chunk of entries below by less than a rounding.
    for level in np.linspace(-0.9999, -0.99999, 101).astype(np.float32):
        z = np.full(n, level)
        z[7] = 0
        p = kernel("sparsemax", z)
        assert abs(math.fsum(p.tolist()) - 1) <= 4 * np.finfo(np.float32).eps * math.sqrt(n)


@pytest.mark.parametrize("name", NAMES)
def test_empty_batches_and_rows(name):
    for shape in ((0, 4), (3, 0, 4), (3, 0)):
        assert kernel(name, np.zeros(shape)).shape == shape
        assert jvp(name, np.zeros(shape), np.zeros(shape)).shape == shape


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["softmax", "entmax15"])
@pytest.mark.parametrize("n", [2, 64, 300, 1000])
def test_jvp_keeps_its_digits_where_one_entry_dominates(name, n, dtype):
    rng = np.random.default_rng(n)
    eps = np.finfo(dtype).eps
    z = (0.01 * rng.standard_normal((50, n))).astype(dtype)
    lead = -np.log(eps) / 2 if name == "softmax" else 1.99
    z[np.arange(50), rng.integers(0, n, 50)] += lead
    p, v = kernel(name, z), rng.standard_normal(z.shape).astype(dtype)
    assert (p.max(axis=-1) > 0.7).all()
    curvature = (p if name == "softmax" else np.sqrt(p)).astype(np.longdouble)
    exact = _simplex.product(curvature, v.astype(np.longdouble))
    error = np.abs(jvp(name, p, v) - exact).max(axis=-1)
    assert (error <= 500 * eps * np.abs(exact).max(axis=-1)).all()
