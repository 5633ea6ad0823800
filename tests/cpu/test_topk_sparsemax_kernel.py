"""The compiled top-k sparsemax and its losses, beside exact values and the NumPy body."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_rows import FLOATS, LENGTHS, awkward_layouts, rows_of_every_kind
from stages import slow

from pyentmax import (
    check_gradient,
    sparsemax,
    sparsemax_loss_and_grad,
    topk_sparsemax,
    topk_sparsemax_loss,
    topk_sparsemax_loss_and_grad,
)

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

QUICK = (2, 33, 129)  # the other lengths in the slow stage
every_dtype = pytest.mark.parametrize("dtype", FLOATS)
every_length = pytest.mark.parametrize(
    "n", [*QUICK, *slow(*(n for n in [*LENGTHS, 5000] if n not in QUICK))]
)


def exact(z: np.ndarray, k: int) -> tuple[np.ndarray, np.longdouble]:
    """p and Ω*(z), the maximum of z moved to 0, in the widest floats."""
    x = (z - np.max(z)).astype(np.longdouble)
    kept = np.argsort(-z, kind="stable")[:k]  # rounding makes gaps of different scores tie
    falling = x[kept]
    tau = (np.cumsum(falling) - 1) / np.arange(1, len(kept) + 1)
    with np.errstate(invalid="ignore"):  # -inf less -inf, where fewer than k are left
        size = np.flatnonzero(falling > tau)[-1]
    p = np.zeros(len(x), np.longdouble)
    p[kept] = np.maximum(falling - tau[size], 0)
    support = p > 0
    return p, p[support] @ x[support] + np.sum(p * (1 - p)) / 2


def assert_accurate(z: np.ndarray, k: int, p: np.ndarray) -> None:
    eps = np.finfo(z.dtype).eps
    expected, _ = exact(z, k)
    context = f"k = {k}, z = {np.array2string(z, threshold=40)}"
    assert p.dtype == z.dtype
    assert np.count_nonzero(p) <= k, context
    assert (np.abs(p - expected) <= 4 * eps * expected + 16 * eps).all(), context
    assert abs(np.sum(p, dtype=np.longdouble) - 1) <= 4 * eps * np.sqrt(len(z)), context


@every_dtype
@every_length
def test_rows_of_every_kind(n, dtype):
    for z in rows_of_every_kind(np.random.default_rng(n), n):
        z = z.astype(dtype)
        for k in {1, 2, 3, n // 3 + 1, n - 1 or 1, n, 10**12}:
            assert_accurate(z, k, topk_sparsemax(z, k))


rows_and_k = {
    "z": st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.integers(1, 40),
            elements=st.floats(-30, 30, width=np.dtype(dtype).itemsize * 8)
            | st.sampled_from([0.0, -0.0, 0.125, 0.25, 1.0]),
        )
    ),
    "k": st.integers(1, 45),
}


@given(**rows_and_k)
def test_rows_found_by_hypothesis(z, k):
    assert_accurate(z, k, topk_sparsemax(z, k))


@every_dtype
@pytest.mark.parametrize("n", [4, 40, 300, 3000])
def test_of_ties_with_the_kth_the_first_are_kept(n, dtype):
    z = np.zeros(n, dtype)
    for k in (1, 2, n // 2, n - 1):
        np.testing.assert_array_equal(np.flatnonzero(topk_sparsemax(z, k)), np.arange(k))
    z[n // 2 :: 2] = 0.25  # two of these, then one of the zeros
    z[n // 2 + 4 :] = -1
    above = np.flatnonzero(z == 0.25)
    p = topk_sparsemax(z, len(above) + 1)
    assert np.flatnonzero(p).tolist() == sorted([0, *above])
    # A row's rounded gaps tie although the scores do not.
    z = np.array([1.0, 2.0**-60, 1.0, 0.0], dtype)
    assert np.flatnonzero(topk_sparsemax(z - 0.5, 3)).tolist() == [0, 2]


@every_dtype
def test_from_the_size_of_the_support_on_it_is_sparsemax(dtype):
    for n in (5, 64, 300, 3000):
        z = np.random.default_rng(n).standard_normal((20, n)).astype(dtype)
        for k in (n, n + 7, int(np.max(np.sum(sparsemax(z) > 0, axis=-1)))):
            np.testing.assert_allclose(
                topk_sparsemax(z, k), sparsemax(z), rtol=0, atol=4 * np.finfo(dtype).eps
            )


@pytest.mark.parametrize("dtype", [np.float32, *slow(np.float64)])
def test_rows_where_many_entries_are_all_but_at_the_threshold(dtype):
    """No entry beyond the k-th is lifted above 0 by what rounding leaves to share."""
    eps = np.finfo(dtype).eps
    rng = np.random.default_rng(0)
    for n in (20, 300, 3000):
        for k in (1, 2, 3, 7):
            z = -1 / np.sqrt(k) + eps * rng.integers(-3, 4, (50, n))
            z[:, :k] = 0.2 * rng.standard_normal((50, k))
            z[:, k:] = np.min(z[:, :k], axis=1, keepdims=True) - sparsemax(z[:, :k]).min(
                axis=1, keepdims=True
            )
            z = (z + eps * rng.integers(-3, 4, z.shape)).astype(dtype)
            for row, p in zip(z, topk_sparsemax(z, k), strict=True):
                assert_accurate(row, k, p)


@every_dtype
@pytest.mark.parametrize("axis", [0, 1, -2, (0, 2), None])
def test_every_axis_with_masks_and_k_per_row(axis, dtype):
    rng = np.random.default_rng(1)
    z = np.round(3 * rng.standard_normal((4, 5, 6))).astype(dtype) / 4
    mask = rng.random(z.shape) < 0.7
    mask[1] = mask[:, 2] = False
    batch = np.sum(z, axis=axis).shape
    for k in (1, 3, 6, rng.integers(1, 9, batch)):
        for options in ({}, {"mask": mask}, {"mask": mask[:, :1]}):
            got = topk_sparsemax(z, k, axis=axis, **options)
            expected = topk_sparsemax.reference(z, k, axis=axis, **options)
            np.testing.assert_array_equal(got > 0, expected > 0)
            np.testing.assert_allclose(got, expected, rtol=0, atol=4 * np.finfo(dtype).eps)


@every_dtype
@pytest.mark.parametrize("n", [1, 4, 37, 300])
def test_rows_without_a_maximum_and_without_a_k(n, dtype):
    z = np.random.default_rng(2).standard_normal((5, n)).astype(dtype)
    z[1], z[2, 0], z[3, n - 1] = -np.inf, np.nan, np.inf
    p = topk_sparsemax(z, 2)
    assert (p[1] == 0).all()
    assert np.isnan(p[2:4]).all()
    np.testing.assert_array_equal(p[[0, 4]], topk_sparsemax(z[[0, 4]], 2))
    assert np.isnan(_cpu.topk_sparsemax(z[0], np.broadcast_to(True, n), 0)).all()


@every_dtype
def test_memory_layout_changes_nothing(dtype):
    rng = np.random.default_rng(3)
    z = (rng.standard_normal((7, 45)) / 8).astype(dtype)
    mask = rng.random(z.shape) < 0.8
    p, masked = topk_sparsemax(z, 5), topk_sparsemax(z, 5, mask=mask)
    assert (np.count_nonzero(p, axis=-1) == 5).all()  # it is k that bounds the support
    for layout, other in awkward_layouts(z):
        np.testing.assert_array_equal(topk_sparsemax(other, 5), p, err_msg=layout)
        np.testing.assert_array_equal(topk_sparsemax(other, 5, mask=mask), masked, err_msg=layout)
    in_place = z.copy()
    topk_sparsemax(in_place, 5, out=in_place)
    np.testing.assert_array_equal(in_place, p)


# --- losses -----------------------------------------------------------------------------------


def assert_accurate_loss(z: np.ndarray, y: int, k: int) -> None:
    eps = np.finfo(z.dtype).eps
    loss, grad = topk_sparsemax_loss_and_grad(z, y, k)
    p, conjugate = exact(z, k)
    x = (z - np.max(z)).astype(np.longdouble)
    expected, slope = conjugate - x[y], p - (np.arange(len(z)) == y)
    context = f"label {y}, k = {k}, z = {np.array2string(z, threshold=40)}"
    assert loss >= 0, context
    assert loss.dtype == grad.dtype == z.dtype
    assert abs(loss - expected) <= 8 * eps * abs(expected) + 4 * eps, context
    allowed = 4 * eps * np.abs(slope) + 16 * eps
    allowed[y] += 4 * eps * np.sqrt(len(z))  # the sum of all the others
    assert (np.abs(grad - slope) <= allowed).all(), context
    assert loss == topk_sparsemax_loss(z, y, k)


@every_dtype
@every_length
def test_losses_of_rows_of_every_kind(n, dtype):
    rng = np.random.default_rng(n)
    for z in rows_of_every_kind(rng, n):
        z = z.astype(dtype)
        for k in {1, 2, n // 3 + 1, n}:
            falling = np.argsort(-z, kind="stable")
            for y in {0, n - 1, int(falling[0]), int(falling[min(k, n - 1)])}:
                assert_accurate_loss(z, y, k)


@given(**rows_and_k, y=st.integers(0, 39))
def test_losses_of_rows_found_by_hypothesis(z, k, y):
    assert_accurate_loss(z, y % len(z), k)


@every_dtype
def test_small_losses_keep_their_digits(dtype):
    """k = 1 is the perceptron's loss; else a label alone on top has sparsemax's loss of its row."""
    for n in (2, 30, 500):
        for gap in (2.0**-20, 2.0**-8, 0.75):
            z = np.zeros(n, dtype)
            z[n // 2] = gap
            loss, grad = topk_sparsemax_loss_and_grad(z, n - 1 if n > 2 else 0, 1)
            assert loss == gap
            assert grad[n // 2] == 1
            z[n // 2] = 1 - gap / 1024
            two = topk_sparsemax_loss(z, n // 2, 2)
            assert two == topk_sparsemax_loss(z[[n // 2, 0]], 0, 2)
            eps = np.finfo(dtype).eps
            np.testing.assert_allclose(two, (gap / 2048) ** 2, rtol=float(8 * eps * 2048 / gap))


@pytest.mark.slow
def test_gradients_are_those_of_the_loss():
    rng = np.random.default_rng(5)
    for n, k in ((5, 1), (5, 2), (12, 4), (12, 12)):
        for y in range(n):
            z = rng.standard_normal(n)
            check_gradient(
                lambda x, y=y, k=k: topk_sparsemax_loss(x, y, k),
                z,
                lambda x, y=y, k=k: topk_sparsemax_loss_and_grad(x, y, k)[1],
            ).raise_if_failed()


@every_dtype
def test_losses_with_every_option_equal_those_of_the_body(dtype):
    rng = np.random.default_rng(6)
    z = np.round(4 * rng.standard_normal((9, 11))).astype(dtype) / 4
    z[2], z[4, 3] = -np.inf, np.nan
    y = rng.integers(0, 11, 9)
    y[5] = -100
    weight = rng.integers(0, 3, 9).astype(dtype)
    mask = rng.random(z.shape) < 0.8
    mask[np.arange(9), y % 11] = True
    for k in (1, 3, rng.integers(1, 12, 9)):
        for options in ({}, {"mask": mask}, {"weight": weight}):
            options = {"ignore_index": -100, "reduction": "none", **options}
            for z_there in (z, z[:, ::-1].copy()[:, ::-1]):
                got = topk_sparsemax_loss_and_grad(z_there, y, k, **options)
                expected = topk_sparsemax_loss_and_grad.reference(z, y, k, **options)
                for one, other in zip(got, expected, strict=True):
                    np.testing.assert_allclose(one, other, rtol=0, atol=32 * np.finfo(dtype).eps)
    ones = np.ones(9, dtype)
    everything = np.broadcast_to(True, z.shape)
    loss, counts, grad = _cpu.topk_sparsemax_loss_and_grad(z, everything, y, ones, 0)
    assert counts[0]
    assert np.isnan(loss[0])
    assert np.isnan(grad[0]).all()


@every_dtype
def test_with_every_score_kept_it_is_the_loss_of_sparsemax(dtype):
    z = np.random.default_rng(7).standard_normal((30, 300)).astype(dtype)
    y = np.random.default_rng(8).integers(0, 300, 30)
    got = topk_sparsemax_loss_and_grad(z, y, 300, reduction="none")
    expected = sparsemax_loss_and_grad(z, y, reduction="none")
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=16 * np.finfo(dtype).eps)
