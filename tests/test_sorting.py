"""Soft sorting, ranks and top-k: optimality by Frank-Wolfe's gap, differences, limits, edges."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

import pyentmax as pe
from pyentmax import sorting
from pyentmax.sorting import (
    soft_rank,
    soft_rank_jvp,
    soft_sort,
    soft_sort_jvp,
    soft_topk,
    soft_topk_jvp,
)

RNG = np.random.default_rng(0)


def rows() -> list[tuple[np.ndarray, float]]:
    """Rows with a strength: random, tied, wide, and far apart."""
    z = [RNG.standard_normal(d) * scale for d in (1, 2, 3, 8, 40) for scale in (0.1, 1, 30)]
    z += [np.zeros(5), np.round(RNG.standard_normal(12)), np.array([1e3, -1e3, 1e3 + 1, 0, 0.5])]
    return [(row, strength) for row in z for strength in (0.03, 1.0, 20.0)]


def assert_in_permutahedron(p: np.ndarray, w: np.ndarray) -> None:
    """Its k largest sum to at most those of w, for every k, and all to the same."""
    excess = np.cumsum(np.sort(p)[::-1] - np.sort(w)[::-1])
    room = 1e-12 * np.abs(w).sum() * len(w)
    assert excess.max() <= room
    assert abs(excess[-1]) <= room


def gap(gradient: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    """max over P(w) of gradient·(a − p): 0 if and only if p is optimal (Frank & Wolfe 1956)."""
    return float(np.sort(gradient) @ np.sort(w) - gradient @ p)


def test_ranks_and_topk_are_optimal() -> None:
    for z, strength in rows():
        x, d = z / strength, len(z)
        for w, p in [
            (np.arange(d) + 1.0, soft_rank(z, strength)),
            (np.arange(d) < 2, soft_topk(z, 2, strength)),
        ]:
            assert_in_permutahedron(p, w * 1.0)
            assert gap(x - p, p, w) <= 1e-10 * (1 + np.abs(x).max()) * w.sum()


def test_sorted_values_are_optimal() -> None:
    for z, strength in rows():
        x = (np.arange(len(z)) + 1) / strength
        p = soft_sort(z, strength)
        assert_in_permutahedron(p, z)
        assert gap(x - p, p, z) <= 1e-10 * (1 + np.abs(x).max()) * (1 + np.abs(z).sum())


def test_textbook_isotonic_regression_and_enumeration_agree() -> None:
    for z, strength in rows():
        d = len(z)
        order = np.argsort(-z, kind="stable")
        p = soft_rank(z, strength)
        w = np.arange(d, 0, -1.0)
        v = isotonic_regression(z[order] / strength - w, increasing=False).x
        atol = 1e-13 * (1 + np.abs(z / strength).max()) * d
        np.testing.assert_allclose(p[order], z[order] / strength - v, rtol=0, atol=atol)
        np.testing.assert_allclose(sorting.textbook(z / strength, w), p, rtol=0, atol=atol)
    w = np.array([3.0, 1.0, -2.0, 0.5])
    corners = np.array(list(permutations(w)))
    x = RNG.standard_normal(4)
    best = sorting.textbook(x, w)
    mixed = RNG.dirichlet(np.ones(24) / 4, 2000) @ corners
    assert (np.sum((mixed - x) ** 2, 1) >= np.sum((best - x) ** 2)).all()


def test_limits_are_hard_answers_and_means() -> None:
    z = RNG.permutation(40) + RNG.uniform(-0.3, 0.3, 40)
    ranks = 1 + np.argsort(np.argsort(z))
    np.testing.assert_allclose(soft_rank(z, 1e-9), ranks, rtol=1e-12)
    np.testing.assert_array_equal(soft_topk(z, 7, 1e-9), ranks > 33)
    np.testing.assert_allclose(soft_rank(z, 1e12), 20.5, rtol=1e-9)
    np.testing.assert_allclose(soft_topk(z, 7, 1e12), 7 / 40, rtol=1e-9)
    np.testing.assert_array_equal(soft_sort(z, 1e-9), np.sort(z))  # to the last bit
    np.testing.assert_allclose(soft_sort(z, 1e12), z.mean(), rtol=1e-9)
    np.testing.assert_allclose(soft_rank([3.0, 3, 1, 3], 1e-9), [3, 3, 1, 3], rtol=1e-12)


def test_topk_is_budget_sparsemax() -> None:
    z = RNG.standard_normal((6, 20))
    for k in (1, 2, 7, 19, 20):
        for strength in (0.1, 3.0):
            expected = pe.budget_sparsemax(z / strength, k)
            np.testing.assert_allclose(soft_topk(z, k, strength), expected, rtol=0, atol=1e-13)
    per_row = soft_topk(z, np.arange(1, 7), np.linspace(0.2, 2, 6))
    for row, k, strength, p in zip(z, range(1, 7), np.linspace(0.2, 2, 6), per_row, strict=True):
        np.testing.assert_allclose(p, soft_topk(row, k, strength), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(soft_topk(z, 99), 1)


@pytest.mark.parametrize("name", ["soft_sort", "soft_rank", "soft_topk"])
def test_products_match_differences(name: str) -> None:
    function = getattr(sorting, name)
    jvp, vjp = getattr(sorting, f"{name}_jvp"), getattr(sorting, f"{name}_vjp")
    k = (3,) if name == "soft_topk" else ()
    for strength in (0.1, 1.0, 10.0):
        z, v, g = RNG.standard_normal((3, 4, 9))
        options: dict[str, Any] = {"strength": strength}
        h = 1e-6
        up, down = function(z + h * v, *k, **options), function(z - h * v, *k, **options)
        moved = jvp(z, v, *k, **options)
        np.testing.assert_allclose(moved, (up - down) / (2 * h), rtol=1e-6, atol=1e-7 / strength)
        back = vjp(z, g, *k, **options)
        np.testing.assert_allclose(
            np.sum(back * v, 1), np.sum(moved * g, 1), rtol=1e-11, atol=1e-13
        )
    still = [([5.0, 5, 5, 0], 3), ([5.0, 5, 0, 0], 2), ([1.0, 1, 1], 3), ([9.0, 0, -9, -9], 1)]
    for z, count in still:  # all in or out, so that nothing moves
        v = RNG.standard_normal(len(z))
        np.testing.assert_allclose(soft_topk_jvp(z, v, count, 0.1), 0, rtol=0, atol=1e-15)
    x = RNG.standard_normal(7)
    jacobian = sorting.textbook_jacobian(x, np.arange(7))
    np.testing.assert_allclose(
        [soft_rank_jvp(x, e) for e in np.eye(7)], jacobian, rtol=0, atol=1e-14
    )


def test_offsets_and_far_neighbours_cost_no_digits() -> None:
    z = np.array([0.0, 0.5, 0.75])
    near = soft_rank(z)
    for offset in (1e9, -1e15):
        np.testing.assert_allclose(soft_rank(z * 0 + offset), 2, rtol=1e-15)
        far = soft_rank(np.append(z, offset))
        np.testing.assert_allclose(far[:3], near + (offset < 0), rtol=1e-14)
    huge = np.array([1e308, -1e308, 1e308, 0])
    np.testing.assert_allclose(soft_rank(huge), [3.5, 1, 3.5, 2], rtol=1e-12)
    np.testing.assert_allclose(soft_topk(huge, 1), [0.5, 0, 0.5, 0], rtol=1e-12)


def test_axes_dtypes_broken_rows_and_errors() -> None:
    z = RNG.standard_normal((3, 5, 2))
    for function in (soft_sort, soft_rank):
        expected = np.moveaxis(function(np.moveaxis(z, 1, -1)), -1, 1)
        np.testing.assert_array_equal(function(z, axis=1), expected)
        assert function(z.astype(np.float16)).dtype == np.float16
        assert function(z[:0]).shape == (0, 5, 2)
        assert function([3, 1, 2]).dtype == np.float64
        broken = function([[np.nan, 0, 1], [0, np.inf, 1], [0, 1, 2.0]])
        assert np.isnan(broken).all(axis=1).tolist() == [True, True, False]
    for error, message, call in [
        (ValueError, "strength must be above 0, got 0", lambda: soft_sort(z, 0)),
        (ValueError, "k must be at least 1, got 0", lambda: soft_topk(z, 0)),
        (ValueError, "k must be at least 1, got -1", lambda: soft_topk(z, -1.0)),
        (ValueError, "axis must be one axis", lambda: soft_sort(z, axis=None)),
        (ValueError, "v must have the shape", lambda: soft_sort_jvp(z, z[0])),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("name", ["soft_sort", "soft_rank", "soft_topk"])
def test_results_are_written_to_out(name):
    z, values = np.random.default_rng(0).normal(size=(4, 3)), (2,) if name == "soft_topk" else ()
    function = getattr(sorting, name)
    expected, out = function(z, *values, axis=0), np.empty((3, 4)).T
    assert function(z, *values, axis=0, out=out) is out
    np.testing.assert_array_equal(out, expected)
    function(z, *values, axis=0, out=z)
    np.testing.assert_array_equal(z, expected)
    with pytest.raises(ValueError, match="out must have the shape of z"):
        function(z, *values, out=np.empty(3))


@pytest.mark.parametrize("body", [False, True])
def test_underflow_is_not_an_error(body: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if body:
        for name in ("permutahedron", "permutahedron_product"):
            monkeypatch.setattr(sorting, name, getattr(sorting, name).reference)
    z = np.array([1e-310, 0.0])
    with np.errstate(all="raise"):
        np.testing.assert_allclose(soft_rank(z, 1e3), [1.5, 1.5], rtol=1e-12)
        np.testing.assert_allclose(soft_rank_jvp(z, z, 1e3), [0, 0], rtol=0, atol=1e-300)
        np.testing.assert_allclose(soft_topk(z, 1, 1e3), [0.5, 0.5], rtol=1e-12)
