"""topk_sparsemax against its definition: the nearest of all points with at most k non-zeros."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pyentmax
from pyentmax import (
    check_jacobian,
    sparsemax,
    topk_sparsemax,
    topk_sparsemax_loss_and_grad,
)

BODIES = [topk_sparsemax, topk_sparsemax.reference]
either = pytest.mark.parametrize("function", BODIES, ids=["public", "reference"])


def nearest(z: np.ndarray, k: int) -> float:
    """The least ½‖p − z‖² of all supports of k entries, each with sparsemax's own p."""
    least = np.inf
    for support in combinations(range(len(z)), min(k, len(z))):
        p = np.zeros(len(z))
        p[list(support)] = sparsemax(z[list(support)])
        least = min(least, float(np.sum((p - z) ** 2) / 2))
    return least


@either
@pytest.mark.parametrize("k", [1, 2, 3, 7, 9])
def test_no_other_support_is_nearer(function: Any, k: int) -> None:
    for z in np.random.default_rng(k).standard_normal((50, 7)) * 0.7:
        p = function(z, k)
        assert np.count_nonzero(p) <= k
        np.testing.assert_allclose(np.sum((p - z) ** 2) / 2, nearest(z, k), rtol=1e-13)


@either
@given(
    z=hnp.arrays(np.float64, (3, 6), elements=st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 0.5])),
    k=st.integers(1, 7),
)
def test_of_ties_for_the_kth_place_the_first_stay(function: Any, z: np.ndarray, k: int) -> None:
    p = function(z, k)
    for row, found in zip(z, p, strict=True):
        kept = np.argsort(-row, kind="stable")[:k]
        expected = np.zeros(6)
        if (row > -np.inf).any():
            expected[kept] = sparsemax(row[kept])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
        assert np.count_nonzero(found) <= k


@either
def test_as_many_as_there_are_is_sparsemax(function: Any) -> None:
    z = np.random.default_rng(0).standard_normal((20, 30))
    for k in (30, 10**9):
        np.testing.assert_allclose(function(z, k), sparsemax(z), rtol=0, atol=1e-15)


@either
def test_one_is_argmax(function: Any) -> None:
    z = np.array([[0.1, 3.0, 3.0], [-5.0, -9.0, -9.0]])
    np.testing.assert_array_equal(function(z, 1), [[0, 1, 0], [1, 0, 0]])


@either
def test_a_k_for_each_row_and_masks(function: Any) -> None:
    z = np.array([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.5, np.nan, 0.5]])
    mask = np.array([[True] * 3, [False, True, True], [True, False, True]])
    p = function(z, [2, 1, 2], mask=mask)
    np.testing.assert_array_equal(p, [[0.5, 0.5, 0], [0, 1, 0], [0.5, 0, 0.5]])
    assert np.isnan(function(z, 2)[2]).all()
    np.testing.assert_array_equal(function(z, 2, mask=np.zeros((3, 3), bool)), 0)


@either
@pytest.mark.parametrize(("k", "expected"), [(0, "at least 1"), (1.5, "a whole number")])
def test_wrong_ks(function: Any, k: float, expected: str) -> None:
    with pytest.raises(ValueError, match=f"k must be {expected}, got {k:g}"):
        function([1.0, 2.0], k)


def test_support_and_jacobian() -> None:
    z = np.array([1.0, 0.8, 0.9, -1.0])
    p = topk_sparsemax(z, 2)
    assert pyentmax.topk_sparsemax_support(z, 2).tolist() == [True, False, True, False]
    check_jacobian(
        lambda z: topk_sparsemax(z, 2), z, lambda p: pyentmax.topk_sparsemax_jacobian(p, 2)
    ).raise_if_failed()
    v = np.array([-1.0, 9.0, 0.0, np.nan])
    np.testing.assert_array_equal(pyentmax.topk_sparsemax_jvp(p, v, 2), [-0.5, 0, 0.5, 0])


@pytest.mark.parametrize("name", ["topk_sparsemax_loss_and_grad"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loss_of_labels(name: str, dtype: type) -> None:
    """The definition Ω*(z) + Ω(e_y) − z_y, kernel and body, rows and options of all kinds."""
    function = getattr(pyentmax, name)
    rng = np.random.default_rng(0)
    z = rng.standard_normal((60, 9)).astype(dtype)
    y, k, weight = rng.integers(0, 9, 60), rng.integers(1, 12, 60), rng.random(60)
    p = topk_sparsemax(z, k)
    wide = p.astype(np.float64)
    expected = np.sum(wide * z, -1) + np.sum(wide * (1 - wide), -1) / 2 - z[np.arange(60), y]
    epsilon = np.finfo(dtype).eps
    for compute in (function, function.reference):
        loss, gradient = compute(z, y, k, reduction="none")
        np.testing.assert_allclose(loss, np.maximum(expected, 0), rtol=0, atol=32 * epsilon)
        np.testing.assert_allclose(gradient, p - np.eye(9)[y], rtol=0, atol=4 * epsilon)
        mean, _ = compute(z, y, k, weight=weight)
        np.testing.assert_allclose(mean, np.average(expected, weights=weight), rtol=64 * epsilon)
        assert compute(z, y, k)[0] == pyentmax.topk_sparsemax_loss(z, y, k) or compute is not (
            function
        )


def test_a_target_of_more_non_zeros_costs_infinity() -> None:
    z, q = np.array([1.0, 0.5, 0.0]), np.array([0.5, 0.25, 0.25])
    assert pyentmax.topk_sparsemax_loss(z, q, 2) == np.inf
    assert pyentmax.topk_sparsemax_loss(z, q, 3) == pyentmax.sparsemax_loss(z, q)
    assert pyentmax.topk_sparsemax_loss(z, 0, 2, label_smoothing=0.1) == np.inf


def test_csr() -> None:
    pytest.importorskip("scipy")
    z = np.random.default_rng(0).standard_normal((50, 40))
    sparse = pyentmax.topk_sparsemax_csr(z, 3)
    assert (np.diff(sparse.indptr) <= 3).all()
    np.testing.assert_array_equal(sparse.toarray(), topk_sparsemax(z, 3))


@pytest.mark.parametrize("form", ["", ".reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_told_apart_whose_gaps_to_the_largest_round_alike(
    form: str, dtype: type
) -> None:
    function = pyentmax.topk_sparsemax.reference if form else pyentmax.topk_sparsemax
    small = np.finfo(dtype).eps / 8
    for d in (0, 30, 600):  # beside nothing, in whole lanes, in chunks
        for before in (0, d):
            near = [0.75, 0, small, 0, 2 * small]
            z = np.concatenate([np.full(before, -9), near, np.full(d, -9)]).astype(dtype)
            for k, kept in ((1, [0]), (2, [0, 4]), (3, [0, 2, 4]), (4, [0, 1, 2, 4])):
                p = function(z, k)
                np.testing.assert_array_equal(np.flatnonzero(p) - before, kept)
                np.testing.assert_array_equal(pyentmax.topk_sparsemax_support(z, k), p > 0)
                if not form:
                    _, grad = pyentmax.topk_sparsemax_loss_and_grad(z, before, k)
                    grad[before] += 1
                    np.testing.assert_allclose(grad, p, rtol=0, atol=np.finfo(dtype).eps)


@pytest.mark.parametrize("y", [1, np.array([0.0, 0.5, 0.5, 0.0])])
def test_the_losses_gradient_is_that_of_the_scores_kept(y):
    z = np.array([0.5, 0.0, np.finfo(np.float32).tiny, 0.0])  # the gaps of the last three tie
    for loss in (topk_sparsemax_loss_and_grad, topk_sparsemax_loss_and_grad.reference):
        _, gradient = loss(z, y, 2)
        q = np.eye(4)[y] if isinstance(y, int) else y
        np.testing.assert_array_equal(gradient, topk_sparsemax(z, 2) - q)
