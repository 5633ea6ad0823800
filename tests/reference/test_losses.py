"""Losses of a new Ω, of half types and of weights; what all losses share is in tests/claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe


def test_omega_that_is_not_zero_at_corners() -> None:
    """Losses of others assume Ω(e_y) = 0 for labels: with ½‖p‖² theirs are off by ½."""

    @pe.mapping()
    def euclidean(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
        return z, None, axis, mask, out

    euclidean.rule(pe.sparsemax.body)
    euclidean.regularizer.rule(lambda p: np.sum(p * p, axis=-1) / 2)
    rng = np.random.default_rng(7)
    z, labels, q = rng.normal(size=(4, 5)), rng.integers(0, 5, 4), rng.dirichlet(np.ones(5), 4)
    for y in (labels, q):
        loss, grad = pe.fenchel_young_loss_and_grad(z, y, euclidean)
        expected, slope = pe.sparsemax.loss_and_grad(z, y)
        np.testing.assert_allclose(loss, expected, rtol=1e-13)
        np.testing.assert_allclose(grad, slope, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
def test_distributions_in_bfloat16_are_accepted(name: str) -> None:
    """1/13 is off by nearly 2⁻⁸ of itself, and so is the sum; own results were refused."""
    dtype, mapping = pytest.importorskip("ml_dtypes").bfloat16, pe.MAPPINGS[name]
    for d in (1, 2, 3, 13, 100, 299):
        loss = mapping.loss(np.zeros(d), np.full(d, 1 / d).astype(dtype))
        np.testing.assert_allclose(loss, 0, rtol=0, atol=2.0**-8 * 6)
    z = np.random.default_rng(0).standard_normal((2000, 8)).astype(dtype)
    p = mapping(z)
    assert p.dtype == mapping.jvp(p, p).dtype == dtype
    assert np.isfinite(mapping.loss(z, p))
    corners = mapping.regularizer(np.eye(3).astype(dtype))
    assert corners.dtype == dtype
    assert not np.signbit(corners).any()


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
def test_loss_ignores_offset_for_rounded_targets(name: str) -> None:
    """With Σq ≠ 1, Ω*(z) + Ω(q) − q·z changes with an offset of z by (1 − Σq) of it."""
    z, q = np.array([0.5, 0.25, -1.0]), np.array([0.5, 0.25, 0.2494])
    loss = pe.fenchel_young_loss(z, q, name)
    for offset in (2.0**13, -(2.0**13)):
        assert pe.fenchel_young_loss(z + offset, q, name) == loss


@pytest.mark.parametrize("form", ["", "reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masked_scores_add_nothing(form: str, dtype: type) -> None:
    loss_and_grad = getattr(pe.softmax.loss_and_grad, form) if form else pe.softmax.loss_and_grad
    for n in (1, 4, 200, 3000):
        z = np.full((3, n), -np.inf, dtype)
        z[:, 0] = 0
        # What is below the least float is seen beside a weight of 1e30.
        for result in loss_and_grad(z, [0, 0, 0], reduction="none", weight=[1, 1, 1e30]):
            np.testing.assert_array_equal(result, 0)


def test_rows_of_weight_0_change_no_bit() -> None:
    """The mean was scaled by a ratio of two sums, equal but for the order of their terms."""
    rng = np.random.default_rng(3)
    for length in range(5, 30, 5):
        z = rng.standard_normal((length, 32, 9)).astype(np.float32)
        y = rng.integers(9, size=(length, 32))
        lengths = rng.integers(1, length + 1, 32)
        weight = (np.arange(length) < lengths[:, None]).astype(np.float32).T  # in Fortran's order
        expected = pe.entmax15.loss_and_grad(z, y, weight=weight / weight.sum(), reduction="sum")
        for one, other in zip(
            pe.entmax15.loss_and_grad(z, y, weight=weight), expected, strict=True
        ):
            np.testing.assert_array_equal(one, other)
