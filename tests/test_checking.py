"""The checks pass what is right, catch what is wrong, and say where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax import check_gradient, check_jacobian, check_vjp

Z = np.random.default_rng(0).standard_normal((3, 5))


def test_right_derivatives_pass_with_room_to_spare() -> None:
    report = check_jacobian(pyentmax.entmax15, Z, pyentmax.entmax15_jacobian)
    assert report.passed
    assert report.largest_error < 1e-9
    assert report.raise_if_failed() is report
    assert check_vjp(pyentmax.softmax, Z, pyentmax.softmax_vjp).largest_error < 1e-9


def test_other_axes_of_the_jacobian() -> None:
    check_jacobian(
        lambda z: pyentmax.softmax(z, axis=0),
        Z,
        lambda p: pyentmax.softmax_jacobian(p, axis=0),
        axis=0,
    ).raise_if_failed()


@pytest.mark.parametrize("size", [1e-4, 1.0])
def test_one_wrong_entry_is_found_and_named(size: float) -> None:
    def wrong(p: Any) -> Any:
        jacobian = pyentmax.softmax_jacobian(p)
        jacobian[1, 3, 2] += size
        return jacobian

    report = check_jacobian(pyentmax.softmax, Z, wrong)
    assert not report.passed
    assert report.where == (1, 3, 2)
    np.testing.assert_allclose(report.largest_error, size, rtol=1e-4)
    np.testing.assert_allclose(report.analytic - report.numeric, size, rtol=1e-4)
    assert report.differences.shape == (3, 5, 5)
    with pytest.raises(AssertionError, match=r"(?s)Jacobian: FAILED.*at \[1, 3, 2\].*numeric"):
        report.raise_if_failed()


def test_a_wrong_vjp_and_a_nan_are_found() -> None:
    report = check_vjp(pyentmax.softmax, Z, lambda p, v: p * v)
    assert not report.passed
    report = check_vjp(pyentmax.softmax, Z, lambda p, v: np.full_like(p, np.nan))
    assert not report.passed
    assert report.largest_error == np.inf


def test_a_wrong_gradient_is_found() -> None:
    def loss(z: Any) -> Any:
        return pyentmax.softmax_loss(z, [0, 1, 2])

    def gradient(z: Any) -> Any:
        return pyentmax.softmax_loss_and_grad(z, [0, 1, 2])[1]

    check_gradient(loss, Z, gradient).raise_if_failed()
    assert not check_gradient(loss, Z, lambda z: 1.001 * gradient(z)).passed
    assert not check_gradient(loss, Z, lambda z: -gradient(z)).passed


def test_many_entries_are_checked_by_random_directions() -> None:
    z = np.random.default_rng(1).standard_normal((4, 100))
    report = check_vjp(pyentmax.softmax, z, pyentmax.softmax_vjp).raise_if_failed()
    assert len(report.where) == 1
    assert report.differences.shape == (16,)

    def wrong(p: Any, v: Any) -> Any:
        product = pyentmax.softmax_vjp(p, v)
        product[2, 50] += 1e-2
        return product

    assert not check_vjp(pyentmax.softmax, z, wrong).passed


def test_a_kink_is_reported() -> None:
    on_kink = [1.0, 0.0]  # sparsemax gives [1, 0], and any smaller gap gives both some
    report = check_jacobian(pyentmax.sparsemax, on_kink, pyentmax.sparsemax_jacobian)
    assert report.kink
    assert not report.passed
    assert "sits on a kink" in str(report)
    for off_kink in ([1.01, 0.0], [0.99, 0.0]):
        report = check_jacobian(pyentmax.sparsemax, off_kink, pyentmax.sparsemax_jacobian)
        assert report.passed
        assert not report.kink
        assert "kink" not in str(report)


def test_near_a_kink_small_steps_are_found() -> None:
    report = check_jacobian(pyentmax.sparsemax, [1 - 1e-4, 0.0], pyentmax.sparsemax_jacobian)
    assert report.passed
    assert report.step < 1e-4


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_derivatives_of_a_known_function(offset: float) -> None:
    """Richardson beats the plain central difference, whose error is 1e-10 at best."""
    report = check_gradient(lambda z: np.sin(z - offset).sum(), Z + offset, lambda z: np.cos(Z))
    assert report.passed
    assert report.largest_error < (1e-11 if offset == 0 else 1e-7)
    assert report.largest_error <= 100 * report.estimate + 1e-12


def test_the_generator_decides_the_directions() -> None:
    z = np.random.default_rng(2).standard_normal(400)

    def numeric(seed: int) -> float:
        rng = np.random.default_rng(seed)
        return check_vjp(pyentmax.softmax, z, pyentmax.softmax_vjp, rng=rng).numeric

    assert numeric(1) == numeric(1)
    assert numeric(1) != numeric(2)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"Jacobian must have shape \(3, 5, 5\), got \(3, 5\)"):
        check_jacobian(pyentmax.softmax, Z, lambda p: p)
    with pytest.raises(ValueError, match=r"VJP must have the shape of z, \(3, 5\), got \(5,\)"):
        check_vjp(pyentmax.softmax, Z, lambda p, v: p[0])
    with pytest.raises(ValueError, match="z must be a non-empty array of finite scores"):
        check_vjp(pyentmax.softmax, [0.0, -np.inf], pyentmax.softmax_vjp)
