"""The compiled top-k softmax against its NumPy body, and its selection against a sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_rows import FLOATS, LENGTHS, awkward_layouts, rows_of_every_kind
from stages import slow

from pyentmax import topk_softmax

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

BUILDS = [kernels["topk_softmax"] for kernels in _cpu.BUILDS.values()]
every_build = pytest.mark.parametrize("kernel", BUILDS, ids=list(_cpu.BUILDS))


def assert_equals_the_body(p, z, k, **options):
    assert_equals(p, topk_softmax.reference(z, k, **options), z, k)


def assert_equals(p, expected, z, k):
    assert p.dtype == expected.dtype
    assert ((p > 0) == (expected > 0)).all(), f"another support: k = {k}, z = {z!r}"
    eps = np.finfo(p.dtype).eps
    tiny = np.finfo(p.dtype).smallest_subnormal
    close = np.isclose(p, expected, rtol=8 * eps, atol=tiny, equal_nan=True)
    assert close.all(), f"k = {k}, z = {z!r}: {p!r} instead of {expected!r}"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [*LENGTHS[::3], *slow(*LENGTHS[1::3], *LENGTHS[2::3], 5000)])
def test_equals_the_body_on_rows_of_every_kind(n, dtype):
    every_k = sorted({1, 2, 3, n // 256 + 1, n // 3 + 1, n - 1 or 1, n, 10**12})
    for z in rows_of_every_kind(np.random.default_rng(n), n):
        z = z.astype(dtype)
        bodies = topk_softmax.reference(np.tile(z, (len(every_k), 1)), every_k)
        for kernel in BUILDS:
            for k, expected in zip(every_k, bodies, strict=True):
                assert_equals(kernel(z, np.broadcast_to(True, n), k), expected, z, k)


@given(
    z=st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.integers(1, 40),
            elements=st.floats(width=np.dtype(dtype).itemsize * 8)
            | st.sampled_from([0.0, -0.0, 1.0, -np.inf]),
        )
    ),
    k=st.integers(1, 45),
)
def test_equals_the_body_on_rows_found_by_hypothesis(z, k):
    assert_equals_the_body(topk_softmax(z, k), z, k)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, 1, 2, -2, (0, 2), None])
def test_every_axis_with_masks_and_k_per_row(axis, dtype):
    rng = np.random.default_rng(1)
    z = np.round(3 * rng.standard_normal((4, 5, 6))).astype(dtype)
    mask = rng.random(z.shape) < 0.7
    mask[1] = mask[:, 2] = False
    batch = np.sum(z, axis=axis).shape
    for k in (1, 3, 6, np.inf, rng.integers(1, 9, batch)):
        for options in ({}, {"mask": mask}, {"mask": mask[:, :1]}):
            options |= {"axis": axis}
            assert_equals_the_body(topk_softmax(z, k, **options), z, k, **options)


@pytest.mark.parametrize("dtype", FLOATS)
def test_scores_that_tie_with_the_kth_all_stay(dtype):
    for n in (8, 300, 3000):
        z = np.full(n, -3, dtype)
        z[n // 2 :] = 1
        p = topk_softmax(z, 2)
        assert (p > 0).tolist() == (z == 1).tolist()
    # A row's rounded gaps tie although the scores do not.
    near = np.array([2.0**30, 0.25, 0.5, 0.0], dtype)
    assert_equals_the_body(topk_softmax(near, 2), near, 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 4, 37, 300])
def test_rows_without_a_maximum(n, dtype):
    z = np.random.default_rng(2).standard_normal((5, n)).astype(dtype)
    z[1], z[2, 0], z[3, n - 1] = -np.inf, np.nan, np.inf
    p = topk_softmax(z, 2)
    assert (p[1] == 0).all()
    assert np.isnan(p[2:4]).all()
    np.testing.assert_array_equal(p[[0, 4]], topk_softmax(z[[0, 4]], 2))


@pytest.mark.parametrize("dtype", FLOATS)
def test_memory_layout_changes_nothing(dtype):
    z = np.random.default_rng(3).standard_normal((7, 45)).astype(dtype)
    mask = np.random.default_rng(4).random(z.shape) < 0.8
    p, masked = topk_softmax(z, 5), topk_softmax(z, 5, mask=mask)
    for layout, other in awkward_layouts(z):
        np.testing.assert_array_equal(topk_softmax(other, 5), p, err_msg=layout)
        np.testing.assert_array_equal(topk_softmax(other, 5, mask=mask), masked, err_msg=layout)
    in_place = z.copy()
    topk_softmax(in_place, 5, out=in_place)
    np.testing.assert_array_equal(in_place, p)


def test_half_precision_and_empty_batches():
    z = np.random.default_rng(5).standard_normal((4, 50)).astype(np.float16)
    p = topk_softmax(z, 7)
    assert p.dtype == np.float16
    np.testing.assert_array_equal(p, topk_softmax.reference(z, 7))
    assert topk_softmax(np.zeros((0, 4)), 2).shape == (0, 4)


def test_the_kth_is_found_among_adversarial_scores():
    # One score differs from all others in its lowest bit, or all differ in a single digit each.
    for dtype in FLOATS:
        base = np.full(1000, 1, dtype)
        for place in (0, 499, 999):
            z = base.copy()
            z[place] = np.nextafter(dtype(1), dtype(2))
            assert np.flatnonzero(topk_softmax(z, 1)).tolist() == [place]
            z[place] = np.nextafter(dtype(1), dtype(0))
            assert place not in np.flatnonzero(topk_softmax(z, 999))
        powers = (2.0 ** np.arange(-60, 60)).astype(dtype)
        z = np.concatenate([powers, -powers, [0, -0.0]]).astype(dtype)
        for k in range(1, len(z)):
            assert_equals_the_body(topk_softmax(z, k), z, k)
