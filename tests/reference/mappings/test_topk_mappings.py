"""topk_softmax and topk_sparsemax: what they keep, ties, derivatives, losses, errors."""

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
    MAPPINGS,
    sparsemax,
    topk_softmax,
    topk_sparsemax,
)

NAMES = ["topk_softmax", "topk_sparsemax"]
both = pytest.mark.parametrize("name", NAMES)
either_form = pytest.mark.parametrize("form", ["", "reference"])
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def forward_of(name: str, form: str = "") -> Any:
    forward: Any = MAPPINGS[name]
    return forward.reference if form else forward


def least_distance(z: np.ndarray, k: int) -> float:
    """The least ½‖p − z‖² over all supports of k entries, each with sparsemax's own p."""
    least = np.inf
    for support in combinations(range(len(z)), min(k, len(z))):
        p = np.zeros(len(z))
        p[list(support)] = sparsemax(z[list(support)])
        least = min(least, float(np.sum((p - z) ** 2) / 2))
    return least


@either_form
@pytest.mark.parametrize("k", [1, 2, 3, 7, 9])
def test_no_other_support_is_nearer(form: str, k: int) -> None:
    for z in np.random.default_rng(k).standard_normal((8, 7)) * 0.7:
        p = forward_of("topk_sparsemax", form)(z, k)
        assert np.count_nonzero(p) <= k
        np.testing.assert_allclose(np.sum((p - z) ** 2) / 2, least_distance(z, k), rtol=1e-13)


def test_topk_softmax_keeps_all_ties_for_kth_place() -> None:
    z = np.array([2.0, 1.0, 3.0, 1.0, 1.0, 0.0])
    assert (topk_softmax(z, 3) > 0).tolist() == [True, True, True, True, True, False]
    assert (topk_softmax(z, 2) > 0).tolist() == [True, False, True, False, False, False]
    np.testing.assert_allclose(topk_softmax(np.zeros(5), 1), 0.2, rtol=1e-15)


@either_form
@given(
    z=hnp.arrays(np.float64, (3, 6), elements=st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 0.5])),
    k=st.integers(1, 7),
)
def test_topk_sparsemax_keeps_first_ties(form: str, z: np.ndarray, k: int) -> None:
    p = forward_of("topk_sparsemax", form)(z, k)
    for row, found in zip(z, p, strict=True):
        first = np.argsort(-row, kind="stable")[:k]
        expected = np.zeros(6)
        if (row > -np.inf).any():
            expected[first] = sparsemax(row[first])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@both
def test_masked_scores_do_not_count(name: str) -> None:
    z = np.array([9.0, 0.3, 8.0, 0.2, 0.1])
    mask = np.array([False, True, False, True, True])
    forward, support = forward_of(name), MAPPINGS[name].support
    assert (forward(z, 2, mask=mask) > 0).tolist() == [False, True, False, True, False]
    # With fewer unmasked scores than k, all of them remain.
    assert (forward(z, 4, mask=mask) > 0).tolist() == mask.tolist()
    assert support(z, 4, mask=mask).tolist() == mask.tolist()


def test_support_of_underflowing_entries() -> None:
    z = np.array([0.0, -2000.0, -3000.0, -np.inf])
    assert topk_softmax(z, 2)[1] == 0
    assert pyentmax.topk_softmax.support(z, 2).tolist() == [True, True, False, False]
    assert pyentmax.topk_softmax.support(z, 4).tolist() == [True, True, True, False]


@both
@either_form
@every_dtype
def test_close_scores_differ_despite_rounded_gaps(name: str, form: str, dtype: type) -> None:
    """Gaps to the largest score that round alike must not make ties."""
    forward = forward_of(name, form)
    small, top = np.finfo(dtype).eps / 8, 16 if name == "topk_softmax" else 0.75
    for d in (0, 30, 600):  # short rows, whole lanes, chunks
        for before in (0, d):
            z = np.concatenate([np.full(before, -9), [top, 0, small, 0, 2 * small], np.full(d, -9)])
            z = z.astype(dtype)
            for k, support in ((1, [0]), (2, [0, 4]), (3, [0, 2, 4])):
                p = forward(z, k)
                np.testing.assert_array_equal(np.flatnonzero(p) - before, support)
                np.testing.assert_array_equal(MAPPINGS[name].support(z, k), p > 0)


@either_form
@every_dtype
def test_loss_of_labels_is_its_definition(form: str, dtype: type) -> None:
    """Ω*(z) + Ω(e_y) − z_y, kernel and body, with a k and a weight for each row."""
    loss_and_grad = topk_sparsemax.loss_and_grad
    compute = loss_and_grad.reference if form else loss_and_grad
    rng = np.random.default_rng(0)
    z = rng.standard_normal((60, 9)).astype(dtype)
    y, k, weight = rng.integers(0, 9, 60), rng.integers(1, 12, 60), rng.random(60)
    p = topk_sparsemax(z, k)
    wide = p.astype(np.float64)
    expected = np.sum(wide * z, -1) + np.sum(wide * (1 - wide), -1) / 2 - z[np.arange(60), y]
    epsilon = np.finfo(dtype).eps
    loss, gradient = compute(z, y, k, reduction="none")
    np.testing.assert_allclose(loss, np.maximum(expected, 0), rtol=0, atol=32 * epsilon)
    np.testing.assert_allclose(gradient, p - np.eye(9)[y], rtol=0, atol=4 * epsilon)
    mean, _ = compute(z, y, k, weight=weight)
    np.testing.assert_allclose(mean, np.average(expected, weights=weight), rtol=64 * epsilon)


def test_target_with_more_nonzeros_costs_infinity() -> None:
    z, q = np.array([1.0, 0.5, 0.0]), np.array([0.5, 0.25, 0.25])
    assert pyentmax.topk_sparsemax.loss(z, q, 2) == np.inf
    assert pyentmax.topk_sparsemax.loss(z, q, 3) == pyentmax.sparsemax.loss(z, q)
    assert pyentmax.topk_sparsemax.loss(z, 0, 2, label_smoothing=0.1) == np.inf


@pytest.mark.parametrize("y", [1, np.array([0.0, 0.5, 0.5, 0.0])])
def test_loss_gradient_keeps_mapping_support(y: Any) -> None:
    z = np.array([0.5, 0.0, np.finfo(np.float32).tiny, 0.0])  # the gaps of the last three tie
    for loss in (topk_sparsemax.loss_and_grad, topk_sparsemax.loss_and_grad.reference):
        _, gradient = loss(z, y, 2)
        q = np.eye(4)[y] if isinstance(y, int) else y
        np.testing.assert_array_equal(gradient, topk_sparsemax(z, 2) - q)
