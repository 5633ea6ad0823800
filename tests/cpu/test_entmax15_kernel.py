"""The compiled 1.5-entmax against its definition: a bisection in wide floats, and the contract."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_rows import FLOATS, LENGTHS, awkward_layouts, rows_of_every_kind
from stages import slow

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")


def kernel(z, mask=True, **kwargs):
    """The gufunc, with the mask broadcast at stride 0 as the dispatching wrapper does it."""
    return _cpu.entmax15(z, np.broadcast_to(mask, np.shape(z)), **kwargs)


def oracle(z):
    """1.5-entmax of one row by bisection on the threshold, in the widest floats at hand.

    Nothing here resembles the kernel's algorithm: no sorting, no Newton step, no quadratic.
    """
    x = np.asarray(z, dtype=np.longdouble) / 2
    x = x - x.max()
    low, high = np.longdouble(-1), np.longdouble(0)
    for _ in range(np.finfo(np.longdouble).nmant + 2):
        middle = (low + high) / 2
        total = np.sum(np.maximum(x - middle, 0) ** 2)
        low, high = (middle, high) if total >= 1 else (low, middle)
    p = np.maximum(x - low, 0) ** 2
    return p / p.sum()


def assert_within_contract(p, z):
    """DESIGN's accuracy: |p - p*| <= 4 eps p* + 16 eps sqrt(p*) max(1, max_S |z - max z|)."""
    eps, exact = np.finfo(p.dtype).eps, oracle(z)
    gap = np.asarray(z, np.longdouble).max() - np.asarray(z, np.longdouble)[exact > 0].min()
    allowed = 4 * eps * exact + 16 * eps * np.sqrt(exact) * max(1, gap)
    # At the threshold itself p* may be exactly 0 and p the square of a rounding error.
    error = np.abs(p - exact) - allowed - (16 * eps) ** 2
    worst = int(np.argmax(error))
    assert error[worst] <= 0, (
        f"{p.dtype} row of {len(p)}: p[{worst}] = {p[worst]!r}, exact {exact[worst]!r}, "
        f"allowed error {allowed[worst]!r}; z = {np.array2string(np.asarray(z), threshold=40)}"
    )
    total = math.fsum(p.astype(float))
    assert abs(total - 1) <= 4 * eps * math.sqrt(len(p)), f"the row sums to {total!r}"
    assert (p >= 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [*LENGTHS[::3], *slow(*LENGTHS[1::3], *LENGTHS[2::3], 50_000)])
def test_accuracy_on_rows_of_every_kind(n, dtype):
    rng = np.random.default_rng(n)
    for z in rows_of_every_kind(rng, n):
        z = z.astype(dtype)
        p = kernel(z)
        assert p.dtype == dtype
        assert_within_contract(p, z)


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_dominant_and_many_tied_entries_sum_to_one(dtype):
    # The many share every rounding error, which adds up instead of averaging out.
    z = np.full(50_000, -1.5, dtype)
    z[123] = 0
    assert_within_contract(kernel(z), z)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1_000_000, 1_234_567])
def test_a_million_ties_sum_to_one(n):
    # 4 eps sqrt(n) is exceeded if a lane simply adds up its share of the row in float32.
    assert_within_contract(kernel(np.zeros(n, np.float32)), np.zeros(n, np.float32))


@pytest.mark.slow
def test_every_short_length():
    rng = np.random.default_rng(0)
    for n in range(1, 71):
        for z in (rng.standard_normal((20, n)) * 2).astype(np.float32):
            assert_within_contract(kernel(z), z)


@given(
    z=st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.integers(1, 40),
            elements=st.floats(-50, 50, width=np.dtype(dtype).itemsize * 8),
        )
    )
)
def test_accuracy_on_rows_found_by_hypothesis(z):
    assert_within_contract(kernel(z), z)


def test_closed_form_in_two_dimensions():
    # p_1 for z = (t, 0), figure 3 of the paper; it saturates at t = 2.
    t = np.linspace(-3, 3, 301)
    inside = np.clip(t, -2, 2)
    expected = 0.5 + inside / 8 * np.sqrt(8 - inside**2)
    p = kernel(np.stack([t, np.zeros_like(t)], axis=-1))
    np.testing.assert_allclose(p[:, 0], expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_zeros_beyond_the_margin(dtype):
    # The margin of 1.5-entmax is 1/(alpha - 1) = 2.
    np.testing.assert_array_equal(kernel(np.array([2, 0, -1], dtype)), [1, 0, 0])
    assert kernel(np.array([1.99, 0], dtype))[1] > 0


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_axis(axis, dtype):
    z = np.random.default_rng(1).standard_normal((4, 5, 6)).astype(dtype)
    p = kernel(z, axis=axis)
    last = np.moveaxis(z, axis, -1).reshape(-1, z.shape[axis])
    expected = np.stack([kernel(np.ascontiguousarray(row)) for row in last])
    expected = expected.reshape(np.moveaxis(z, axis, -1).shape)
    np.testing.assert_array_equal(np.moveaxis(p, axis, -1), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 5, 16, 40, 300])
def test_a_mask_equals_minus_infinity_and_leaving_out(n, dtype):
    rng = np.random.default_rng(n)
    z = rng.standard_normal((30, n)).astype(dtype)
    mask = rng.random((30, n)) < 0.6
    mask[0] = False
    mask[1] = True
    p = kernel(z, mask)
    np.testing.assert_array_equal(p, kernel(np.where(mask, z, -np.inf).astype(dtype)))
    assert (p[~mask] == 0).all()
    for row, kept, got in zip(z, mask, p, strict=True):
        if kept.any():
            assert_within_contract(got[kept], row[kept])
    np.testing.assert_array_equal(p[0], 0)


def test_a_masked_entry_may_hold_anything():
    z = np.array([1.0, np.nan, 0.5, np.inf])
    p = kernel(z, np.array([True, False, True, False]))
    np.testing.assert_array_equal(p[[0, 2]], kernel(np.array([1.0, 0.5])))
    np.testing.assert_array_equal(p[[1, 3]], 0)


def test_a_mask_that_is_one_false_for_the_whole_row():
    np.testing.assert_array_equal(kernel(np.array([[1.0, 2.0], [np.nan, 0.0]]), False), 0)


def test_a_mask_with_its_own_strides():
    z = np.random.default_rng(2).standard_normal((5, 8))
    mask = np.random.default_rng(3).random((8, 5)) < 0.7
    np.testing.assert_array_equal(kernel(z, mask.T), kernel(z, mask.T.copy()))
    np.testing.assert_array_equal(kernel(z, mask[::-1].T), kernel(z, mask[::-1].T.copy()))
    one_for_all = np.array([True, False, True, True, False, True, True, True])
    np.testing.assert_array_equal(kernel(z, one_for_all), kernel(z, np.tile(one_for_all, (5, 1))))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 4, 16, 37, 300])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_spoil_their_own_row_and_no_other(n, dtype, bad):
    z = np.random.default_rng(4).standard_normal((n + 2, n)).astype(dtype)
    clean = kernel(z)
    for place in range(n):
        z[place, place] = bad
    p = kernel(z)
    assert np.isnan(p[:n]).all()
    np.testing.assert_array_equal(p[n:], clean[n:])


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_without_a_finite_entry(dtype):
    inf, nan = np.inf, np.nan
    z = np.array([[-inf] * 3, [nan] * 3, [-inf, nan, -inf], [inf] * 3, [inf, -inf, 0]], dtype)
    p = kernel(z)
    np.testing.assert_array_equal(p[0], 0)
    assert np.isnan(p[1:]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_extreme_finite_scores(dtype):
    big = np.finfo(dtype).max
    np.testing.assert_array_equal(kernel(np.array([big, -big], dtype)), [1, 0])
    np.testing.assert_array_equal(kernel(np.array([-big, -big], dtype)), 0.5)
    tiny = np.finfo(dtype).smallest_subnormal
    np.testing.assert_array_equal(kernel(np.array([tiny, 0, -tiny, 0], dtype)), 0.25)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ties_share_alike(dtype):
    for n in (1, 2, 3, 4, 7, 8, 16, 100, 256, 1000, 1024, 4096):
        p = kernel(np.append(np.full(n, 3), -9).astype(dtype))
        assert (p[:n] == p[0]).all()
        assert p[n] == 0
        exact = n in (1, 2, 4, 8, 16)  # 1/n is a floating-point number, and no sum is rounded
        np.testing.assert_allclose(p[0], 1 / n, rtol=0 if exact else 4 * np.finfo(dtype).eps)


def test_no_warning_whatever_the_row_holds():
    z = np.array([[np.nan, 0], [np.inf, 0], [-np.inf, -np.inf], [1e308, -1e308], [1, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = kernel(z)
        _cpu.entmax15_jvp(p, np.array([1e308, np.inf]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_memory_layout_changes_nothing(dtype):
    z = np.random.default_rng(5).standard_normal((7, 45)).astype(dtype)
    mask = np.random.default_rng(6).random(z.shape) < 0.8
    v = np.random.default_rng(7).standard_normal(z.shape).astype(dtype)
    p, masked = kernel(z), kernel(z, mask)
    product = _cpu.entmax15_jvp(p, v)
    for name, other in awkward_layouts(z):
        before = other.copy()
        np.testing.assert_array_equal(kernel(other), p, err_msg=name)
        np.testing.assert_array_equal(kernel(other, mask), masked, err_msg=name)
        np.testing.assert_array_equal(other, before, err_msg=f"{name}: the input was overwritten")
        assert kernel(other).dtype == dtype, name
    for (name, p_), (_, v_) in zip(awkward_layouts(p), awkward_layouts(v), strict=True):
        np.testing.assert_array_equal(_cpu.entmax15_jvp(p_, v_), product, err_msg=name)
    broadcast = np.broadcast_to(dtype(3), (2, 9))
    np.testing.assert_allclose(kernel(broadcast), 1 / 9, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", FLOATS)
def test_out_of_every_kind(dtype):
    z = np.random.default_rng(8).standard_normal((6, 33)).astype(dtype)
    p = kernel(z)
    frame = np.zeros((6, 33 * 2), dtype)
    assert kernel(z, out=frame[:, ::2]).base is frame
    np.testing.assert_array_equal(frame[:, ::2], p)
    np.testing.assert_array_equal(frame[:, 1::2], 0)
    backwards = np.zeros_like(z)
    kernel(z, out=backwards[:, ::-1])
    np.testing.assert_array_equal(backwards[:, ::-1], p)
    in_place = z.copy()
    kernel(in_place, out=in_place)
    np.testing.assert_array_equal(in_place, p)
    shared = np.concatenate([z.ravel(), np.zeros(5, dtype)])
    kernel(shared[:-5].reshape(z.shape), out=shared[5:].reshape(z.shape))
    np.testing.assert_array_equal(shared[5:].reshape(z.shape), p)


def test_empty_batches():
    assert kernel(np.zeros((0, 4))).shape == (0, 4)
    assert kernel(np.zeros((3, 0, 4))).shape == (3, 0, 4)
    assert kernel(np.zeros((3, 0))).shape == (3, 0)
    assert _cpu.entmax15_jvp(np.zeros((0, 4)), np.zeros((0, 4))).shape == (0, 4)


def test_objects_and_complex_numbers_have_no_loop():
    for z in (np.array([1j, 0]), np.array([1, None], object)):
        with pytest.raises(TypeError, match="entmax15"):
            kernel(z)


def jacobian(p):
    """Proposition 1 of Peters, Niculae and Martins (2019), in the widest floats."""
    s = np.sqrt(np.asarray(p, np.longdouble))
    return np.diag(s) - np.outer(s, s) / s.sum()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", LENGTHS)
def test_jvp_is_the_dense_jacobian_times_v(n, dtype):
    rng = np.random.default_rng(n)
    for scale in (0.1, 1, 5):
        p = kernel((scale * rng.standard_normal(n)).astype(dtype))
        v = rng.standard_normal(n).astype(dtype)
        product = _cpu.entmax15_jvp(p, v)
        assert product.dtype == dtype
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(
            product, jacobian(p) @ v, rtol=0, atol=16 * eps * np.abs(v).max()
        )
        assert (product[p == 0] == 0).all()


def test_jvp_against_central_differences():
    rng = np.random.default_rng(9)
    z, v, step = rng.standard_normal((20, 12)), rng.standard_normal((20, 12)), 1e-6
    difference = (kernel(z + step * v) - kernel(z - step * v)) / (2 * step)
    np.testing.assert_allclose(_cpu.entmax15_jvp(kernel(z), v), difference, rtol=0, atol=1e-8)


def test_jvp_of_rows_without_support_and_with_nan():
    nan = np.nan
    p = np.array([[0.0, 0, 0], [1, 0, 0], [nan, nan, nan], [0.5, 0.5, 0]])
    v = np.array([[1.0, nan, 2], [3, nan, np.inf], [1, 2, 3], [1, 3, nan]])
    product = _cpu.entmax15_jvp(p, v)
    np.testing.assert_array_equal(product[:2], 0)
    assert np.isnan(product[2]).all()
    np.testing.assert_allclose(product[3], np.sqrt(0.5) * np.array([-1, 1, 0]), rtol=1e-15)


def test_jvp_broadcasts_one_direction_over_all_rows():
    p = kernel(np.random.default_rng(10).standard_normal((3, 4, 6)))
    v = np.arange(6.0)
    np.testing.assert_array_equal(
        _cpu.entmax15_jvp(p, v), _cpu.entmax15_jvp(p, np.broadcast_to(v, p.shape).copy())
    )


def test_many_python_threads_at_once():
    z = np.random.default_rng(11).standard_normal((8, 50, 600))
    expected = kernel(z)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for got, want in zip(pool.map(kernel, z), expected, strict=True):
                np.testing.assert_array_equal(got, want)


def test_other_threads_run_while_the_kernel_does():
    """With the GIL held for the whole call, the counting thread could not get a single turn.

    The switch interval is set so long that the interpreter never takes the GIL away by itself.
    """
    z = np.random.default_rng(12).standard_normal((4_000, 1_000))
    started, stop, turns = threading.Event(), threading.Event(), [0]

    def count():
        started.set()
        while not stop.wait(1e-4):
            turns[0] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    thread = threading.Thread(target=count)
    try:
        thread.start()
        started.wait()
        mask = np.broadcast_to(True, z.shape)
        during = 0
        for _ in range(500):  # on a busy machine a call of 2 ms may end before the thread wakes
            before = turns[0]
            _cpu.entmax15(z, mask)
            during += turns[0] - before
            if during:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert during > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory in the manner of Linux")
@pytest.mark.skipif("sanitize" in _cpu.BUILD_INFO, reason="a sanitizer needs memory without limit")
def test_no_memory_left_is_a_memory_error():
    code = """
import resource
import numpy as np
from pyentmax import _cpu
z, p = np.zeros((2, 10_000_000), np.float32)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**24, held + 2**24))
try:
    _cpu.entmax15(z, np.broadcast_to(True, z.shape), out=p)
except MemoryError:
    print("MemoryError")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "MemoryError", run.stdout + run.stderr


@pytest.mark.deep
@pytest.mark.parametrize("dtype", FLOATS)
def test_accuracy_on_a_million_random_rows(dtype):
    """Float32 against float64 bisection; float64 against the same in wide floats, fewer rows."""
    rng = np.random.default_rng(13)
    wide = np.float64 if dtype == np.float32 else np.longdouble
    eps = np.finfo(dtype).eps
    for block in range(1000 if dtype == np.float32 else 100):
        n = int(rng.integers(1, 130))
        scale = 10 ** rng.uniform(-3, 2, size=(1000, 1))
        z = scale * rng.standard_normal((1000, n))
        z = np.where(rng.random((1000, 1)) < 0.2, np.round(z), z).astype(dtype)
        p = kernel(z)
        y = z.astype(wide) - z.max(axis=-1, keepdims=True).astype(wide)
        low, high = np.full((1000, 1), -1, wide), np.zeros((1000, 1), wide)
        for _ in range(np.finfo(wide).nmant + 2):
            middle = (low + high) / 2
            above = (np.maximum(y / 2 - middle, 0) ** 2).sum(axis=-1, keepdims=True) >= 1
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        s = np.maximum(y / 2 - low, 0)
        gap = np.maximum(1, -np.where(s > 0, y, 0).min(axis=-1, keepdims=True))
        excess = np.abs(p - s**2) - 4 * eps * s**2 - 16 * eps * s * gap - (16 * eps) ** 2
        row = int(np.argmax(excess.max(axis=-1)))
        assert excess[row].max() <= 0, f"block {block}, row {row}: z = {z[row]!r}, p = {p[row]!r}"


def test_the_build_is_described():
    assert _cpu.INSTRUCTION_SET
    assert "-march" not in _cpu.BUILD_INFO
    assert _cpu.entmax15.signature == _cpu.entmax15_jvp.signature == "(n),(n)->(n)"
    assert _cpu.entmax15.types == ["f?->f", "d?->d"]
