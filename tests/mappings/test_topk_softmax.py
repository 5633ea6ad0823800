"""topk_softmax: what is kept, what its derivatives say, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax as scipy_softmax

import pyentmax
from pyentmax import fenchel_young_loss, topk_softmax, topk_softmax_jvp


def by_sorting_a_list(z: Any, k: int) -> list[float]:
    """The definition, in plain Python."""
    threshold = sorted(z, reverse=True)[min(k, len(z)) - 1]
    kept = [np.exp(score - max(z)) if score >= threshold else 0.0 for score in z]
    return [value / sum(kept) for value in kept]


@pytest.mark.parametrize("k", [1, 2, 3, 7, 8, 100])
def test_is_the_definition(k: int) -> None:
    z = np.random.default_rng(k).standard_normal((20, 7)) * 3
    expected = [by_sorting_a_list(row, k) for row in z]
    p = topk_softmax(z, k)
    np.testing.assert_allclose(p, expected, rtol=1e-14)
    assert (np.count_nonzero(p, axis=-1) == min(k, 7)).all()


def test_from_d_on_it_is_softmax() -> None:
    z = np.random.default_rng(0).standard_normal((4, 5))
    for k in (5, 6, 10**12, np.inf):
        np.testing.assert_allclose(topk_softmax(z, k), scipy_softmax(z, axis=-1), rtol=1e-14)


def test_ties_with_the_kth_all_stay() -> None:
    z = np.array([2.0, 1.0, 3.0, 1.0, 1.0, 0.0])
    assert (topk_softmax(z, 3) > 0).tolist() == [True, True, True, True, True, False]
    assert (topk_softmax(z, 2) > 0).tolist() == [True, False, True, False, False, False]
    np.testing.assert_allclose(topk_softmax(np.zeros(5), 1), 0.2, rtol=1e-15)


def test_masked_scores_are_not_counted() -> None:
    z = np.array([9.0, 3.0, 8.0, 2.0, 1.0])
    mask = np.array([False, True, False, True, True])
    assert (topk_softmax(z, 2, mask=mask) > 0).tolist() == [False, True, False, True, False]
    # Fewer are left than k: all of them stay, and nothing else.
    assert (topk_softmax(z, 4, mask=mask) > 0).tolist() == mask.tolist()
    support = pyentmax.topk_softmax_support(z, 4, mask=mask)
    assert support.tolist() == mask.tolist()


def test_support_is_read_where_floats_underflow() -> None:
    z = np.array([0.0, -2000.0, -3000.0, -np.inf])
    assert topk_softmax(z, 2)[1] == 0
    assert pyentmax.topk_softmax_support(z, 2).tolist() == [True, True, False, False]
    assert pyentmax.topk_softmax_support(z, 4).tolist() == [True, True, True, False]


@pytest.mark.parametrize("axis", [0, 1, -1, -2, (0, 2), None])
def test_k_broadcasts_over_the_batch(axis: Any) -> None:
    z = np.random.default_rng(1).standard_normal((3, 4, 5))
    batch = z.sum(axis=axis).shape
    k = np.random.default_rng(2).integers(1, 8, batch)
    p = topk_softmax(z, k, axis)
    for value in range(1, 8):
        rows = np.expand_dims(k == value, (0, 1, 2) if axis is None else axis)
        same = np.broadcast_to(rows, z.shape)
        np.testing.assert_array_equal(p[same], topk_softmax(z, value, axis)[same])
    np.testing.assert_array_equal(topk_softmax(z, k.astype(np.float32), axis), p)
    v = np.random.default_rng(3).standard_normal(z.shape)
    np.testing.assert_array_equal(topk_softmax_jvp(p, v, k, axis), pyentmax.softmax_jvp(p, v, axis))


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (0, "k must be at least 1, got 0"),
        (-3, "k must be at least 1, got -3"),
        (np.nan, "k must be at least 1, got nan"),
        ([2, 0], "k must be at least 1, got 0"),
        (1.5, "k must be a whole number, got 1.5"),
        ([2, 2.25], "k must be a whole number, got 2.25"),
        ([1, 2, 3], r"k of shape \(3,\) .*batch shape \(2,\)"),
    ],
)
def test_a_bad_k_is_an_error_before_anything_is_written(k: Any, message: str) -> None:
    out = np.full((2, 3), 7.0)
    with pytest.raises(ValueError, match=message):
        topk_softmax(np.zeros((2, 3)), k, out=out)
    assert (out == 7).all()
    for function in (pyentmax.topk_softmax_jvp, pyentmax.topk_softmax_vjp):
        with pytest.raises(ValueError, match=message):
            function(np.zeros((2, 3)), np.zeros((2, 3)), k)
    with pytest.raises(ValueError, match=message):
        pyentmax.topk_softmax_jacobian(np.zeros((2, 3)), k)
    with pytest.raises(ValueError, match=message):
        pyentmax.topk_softmax_support(np.zeros((2, 3)), k)


def test_a_k_that_is_no_number_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="k must hold real numbers"):
        topk_softmax(np.zeros((2, 3)), 2j)


def test_has_no_fenchel_young_loss() -> None:
    with pytest.raises(ValueError, match="mapping must have an Ω.*topk_softmax has none"):
        fenchel_young_loss(np.zeros((2, 3)), [0, 1], "topk_softmax", k=2)


@pytest.mark.parametrize("form", ["", ".reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_told_apart_whose_gaps_to_the_largest_round_alike(
    form: str, dtype: type
) -> None:
    function = pyentmax.topk_softmax.reference if form else pyentmax.topk_softmax
    small = np.finfo(dtype).eps / 4
    for d in (0, 30, 600):  # beside nothing, in whole lanes, in chunks
        z = np.concatenate([[16, small, 0, small], np.full(d, -1)]).astype(dtype)
        for k, kept in ((1, [0]), (2, [0, 1, 3]), (3, [0, 1, 3]), (4, [0, 1, 2, 3])):
            p = function(z, k)
            np.testing.assert_array_equal(np.flatnonzero(p), kept)
            np.testing.assert_array_equal(pyentmax.topk_softmax_support(z, k), p > 0)
