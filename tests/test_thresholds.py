"""Every way to find τ agrees with every other, and with the definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pyentmax.thresholds import (
    Threshold,
    bisect_largest,
    bisection,
    exp_beta,
    inside,
    newton,
    sort_entmax15,
    sort_sparsemax,
)


def rows(seed: int, d: int = 30) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack(
        [
            rng.standard_normal(d),
            rng.standard_normal(d) * 1e-3,
            rng.standard_normal(d) * 30,
            np.round(rng.standard_normal(d)),
            np.zeros(d),
            -np.geomspace(1e-9, 1, d),
        ]
    )


@pytest.mark.parametrize(("sort", "alpha"), [(sort_sparsemax, 2), (sort_entmax15, 1.5)])
def test_sort_solves_the_equation(sort: Callable[..., Threshold], alpha: float) -> None:
    x = rows(0)
    tau, size, passes = sort(x)
    np.testing.assert_allclose(np.sum(np.maximum(x - tau, 0) ** (1 / (alpha - 1)), -1), 1)
    np.testing.assert_array_equal(size, np.sum(x > tau, axis=-1, keepdims=True))
    assert passes == 1
    np.testing.assert_allclose(tau, bisection(x, alpha).tau, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [1.1, 1.33, 1.5, 1.75, 2])
def test_newton_and_bisection_agree(alpha: float) -> None:
    y = rows(1)
    y = y - y.max(axis=-1, keepdims=True)
    beta = np.array([alpha - 1])
    c, size, passes = newton(y, beta)
    np.testing.assert_allclose(exp_beta(y - c, beta)[0].sum(axis=-1), 1, rtol=1e-13)
    # In the scores x = βy, u = 1 + β(y − c) is x − τ, so τ = βc − 1.
    tau = bisection(beta * y, alpha).tau
    np.testing.assert_allclose(beta * c - 1, tau, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(size, inside(y, c, beta).sum(axis=-1, keepdims=True))
    assert 1 < passes <= 40


def test_newton_is_log_sum_exp_at_alpha_1_and_then_needs_two_passes() -> None:
    y = rows(2)
    y = y - y.max(axis=-1, keepdims=True)
    c, size, passes = newton(y, np.array([0.0]))
    np.testing.assert_allclose(c[:, 0], np.log(np.exp(y).sum(axis=-1)), rtol=1e-14)
    assert passes <= 3  # the first step is exact, the next ones see that nothing moves
    assert (size == y.shape[-1]).all()


@pytest.mark.parametrize("d", [2, 100, 20_000])
def test_newton_keeps_its_promise_on_rows_made_against_it(d: int) -> None:
    """Michelot's method drops few entries at a time where the scores fall geometrically."""
    y = np.stack([-np.geomspace(1e-12, 1, d), -(0.5 ** np.arange(d)), np.linspace(-1, 0, d)])
    y = y - y.max(axis=-1, keepdims=True)
    for beta in (1e-3, 0.5, 0.9, 1.0):
        passes = newton(y, np.array([beta])).passes
        assert passes < 2 + np.log2(d) + 26, f"{passes} passes: not stopped before the limit"


@pytest.mark.parametrize("alpha", [2.5, 4, 10])
def test_bisection_of_the_largest_agrees_with_plain_bisection(alpha: float) -> None:
    y = rows(3, d=5)
    y = y - y.max(axis=-1, keepdims=True)
    beta = np.array([alpha - 1])
    p, largest, _ = bisect_largest(y, beta)
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-15)
    np.testing.assert_allclose(p.max(axis=-1, keepdims=True), largest, rtol=1e-14)
    x = beta * y
    np.testing.assert_allclose(
        p**beta, np.maximum(x - bisection(x, alpha).tau, 0), rtol=0, atol=1e-14
    )


def test_fewer_passes_of_bisection_give_fewer_bits() -> None:
    x = rows(4)
    exact = sort_sparsemax(x).tau
    for passes in (5, 10, 20):
        result = bisection(x, 2, passes)
        assert result.passes == passes
        error = np.abs(result.tau - exact).max()
        assert error <= 2.0**-passes
        assert error >= 2.0 ** (-passes - 10)


@pytest.mark.parametrize("sort", [sort_sparsemax, sort_entmax15])
def test_float32_sums_of_a_long_row_do_not_pile_up(
    sort: Callable[..., Threshold],
) -> None:
    x = (np.random.default_rng(5).random(50_000) * 1e-3).astype(np.float32)
    tau = sort(x).tau
    assert tau.dtype == np.float32
    exact = sort(x.astype(np.float64)).tau
    np.testing.assert_allclose(tau, exact, rtol=3e-7)


def test_exp_beta_limits() -> None:
    t = np.array([-np.inf, -5.0, -0.5, 0.0, 0.5])
    for got in exp_beta(t, np.array([0.0])):
        np.testing.assert_array_equal(got, np.exp(t))
    for got in exp_beta(t, np.array([1e-300])):
        np.testing.assert_allclose(got, np.exp(t), rtol=1e-15)
    p, s = exp_beta(t, np.array([1.0]))
    np.testing.assert_allclose(p, np.maximum(1 + t, 0), rtol=1e-15)
    np.testing.assert_allclose(s, 1 + t > 0, rtol=1e-15)
