"""Derivatives: by finite differences, by duality, by the dense Jacobian, in many digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from mapping_oracles import exact_entmax
from stages import slow

import pyentmax
from pyentmax import MAPPINGS, check_jacobian, check_vjp

CASES = [("softmax", ()), ("sparsemax", ()), ("entmax15", ())] + [
    ("entmax", (alpha,)) for alpha in (1, 1 + 1e-8, 1.1, 1.5, 2, 2.5, 4)
]
CASES += [("topk_softmax", (3,)), ("fusedmax", (0,)), ("fusedmax", (0.2,)), ("oscarmax", (0.1,))]
CASES += [("normmax", (1.2,)), ("normmax", (2,)), ("normmax", (4,)), ("budget_sparsemax", (1.7,))]
CASES += [("csoftmax", (0.6,)), ("csparsemax", (0.6,))]
every_case = pytest.mark.parametrize(
    ("name", "params"), CASES, ids=[f"{n}{p or ''}" for n, p in CASES]
)
BETAS = [0, 1e-12, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5, 1, 3]


@every_case
def test_jacobian_against_differences(name: str, params: tuple[float, ...]) -> None:
    record = MAPPINGS[name]
    z = np.random.default_rng(0).standard_normal((3, 5))
    check_jacobian(
        lambda z: record.forward(z, *params), z, lambda p: record.jacobian(p, *params), rtol=1e-5
    ).raise_if_failed()


@every_case
@pytest.mark.parametrize("axis", [-2, *slow(0, 1, -3)])
def test_vjp_against_differences_on_every_axis(
    name: str, params: tuple[float, ...], axis: int
) -> None:
    """deep-spin/entmax's arbitrary-axis gradient test differentiates a simplex of length one."""
    record = MAPPINGS[name]
    z = np.random.default_rng(1).standard_normal((2, 3, 4))
    check_vjp(
        lambda z: record.forward(z, *params, axis=axis),
        z,
        lambda p, v: record.vjp(p, v, *params, axis=axis),
        rtol=1e-5,
    ).raise_if_failed()


@every_case
def test_jvp_and_jacobian_agree_and_are_dual(name: str, params: tuple[float, ...]) -> None:
    record = MAPPINGS[name]
    rng = np.random.default_rng(2)
    p = record.forward(rng.standard_normal((6, 7)) * 2, *params)
    u, v = rng.standard_normal((2, 6, 7))
    jacobian = record.jacobian(p, *params)
    assert jacobian.shape == (6, 7, 7)
    tolerance = 1e-12 * np.abs(jacobian).max()
    np.testing.assert_allclose(
        record.jvp(p, v, *params), (jacobian @ v[..., None])[..., 0], rtol=0, atol=tolerance
    )
    np.testing.assert_allclose(
        np.sum(u * record.jvp(p, v, *params)),
        np.sum(record.vjp(p, u, *params) * v),
        rtol=1e-10,
        atol=tolerance,
    )
    # Symmetric, positive semi-definite, and blind to a shift of all scores.
    np.testing.assert_array_equal(jacobian, np.swapaxes(jacobian, -1, -2))
    assert record.jacobian(p.astype(np.float16), *params).dtype == np.float16
    np.testing.assert_allclose(jacobian.sum(axis=-1), 0, rtol=0, atol=tolerance)
    assert np.linalg.eigvalsh(jacobian).min() >= -tolerance
    np.testing.assert_allclose(
        record.jacobian(p.T, *params, axis=0), jacobian, rtol=0, atol=tolerance
    )


@every_case
def test_direction_off_support_is_ignored(
    name: str, params: tuple[float, ...]
) -> None:
    record = MAPPINGS[name]
    rng = np.random.default_rng(3)
    z, v = rng.standard_normal((2, 4, 5))
    mask = np.ones((4, 5), bool)
    mask[:, 1], mask[3] = False, False
    p = record.forward(z, *params, mask=mask)
    clean = record.jvp(p, np.where(mask, v, 0), *params)
    rubbish = np.where(mask, v, np.nan)
    np.testing.assert_array_equal(record.jvp(p, rubbish, *params, mask=mask), clean)
    np.testing.assert_array_equal(record.jvp(p, rubbish, *params), clean)
    assert (clean[~mask] == 0).all()
    spoiled = np.where(mask, p, 0.5)  # a p of one's own making, say
    np.testing.assert_array_equal(record.jvp(spoiled, rubbish, *params, mask=mask), clean)
    assert (record.jacobian(p, *params)[3] == 0).all()


@every_case
def test_nan_row_has_nan_derivatives(name: str, params: tuple[float, ...]) -> None:
    record = MAPPINGS[name]
    p = record.forward([[np.nan, 0.0], [1.0, 0.9]], *params)
    product = record.jvp(p, np.ones((2, 2)), *params)
    assert np.isnan(product[0]).all()
    assert np.isfinite(product[1]).all()


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", "<f2"])
def test_results_have_native_byte_order(dtype: str) -> None:
    z = np.array([1.0, 0.8, 0.1], dtype)
    p = pyentmax.softmax(z)
    for found in (p, pyentmax.softmax_vjp(z, z), pyentmax.softmax_loss(z, 0), pyentmax.entmax(z)):
        assert found.dtype == np.dtype(dtype).newbyteorder("=")


@every_case
def test_dtypes_of_derivatives(name: str, params: tuple[float, ...]) -> None:
    record = MAPPINGS[name]
    for dtype in (np.float16, np.float32, np.float64):
        p = record.forward(np.array([1.0, 0.8, 0.1], dtype), *params)
        assert record.jvp(p, p, *params).dtype == dtype
        assert record.jvp(p, p.astype(np.float64), *params).dtype == np.float64
        assert pyentmax.entmax_vjp_alpha(p, p, 1.5).dtype == dtype


def test_bad_operands_are_named() -> None:
    with pytest.raises(ValueError, match=r"v must have the shape of p, \(3,\), got \(2,\)"):
        pyentmax.entmax15_jvp([1.0, 0, 0], [1.0, 0])
    with pytest.raises(TypeError, match="v must hold real numbers"):
        pyentmax.softmax_jvp([0.5, 0.5], [1j, 0])
    for gradient in (pyentmax.entmax_vjp_alpha, pyentmax.csoftmax_vjp_upper):  # g, not v
        with pytest.raises(ValueError, match=r"g must have the shape of p, \(2,\), got \(3,\)"):
            gradient([0.5, 0.5], [1.0, 0, 0], 1.5)
        with pytest.raises(TypeError, match="g must hold real numbers"):
            gradient([0.5, 0.5], [1j, 0], 1.5)
    with pytest.raises(ValueError, match="p is 0-dimensional"):
        pyentmax.sparsemax_jvp(1.0, 1.0)
    with pytest.raises(ValueError, match="alpha must be at least 1, got 0.5"):
        pyentmax.entmax_jvp([1.0], [1.0], 0.5)


def _slope_in_alpha(z: np.ndarray, alpha: mpmath.mpf, digits: int = 60) -> np.ndarray:
    """∂ entmax/∂α by differences in many digits: one-sided with extrapolation, so α = 1 works."""
    with mpmath.workdps(digits):
        h = mpmath.mpf(10) ** (-digits // 4)
        base, one, two = (exact_entmax(z, alpha + k * h, digits) for k in range(3))
        rows = zip(base, one, two, strict=True)
        return np.array([float((4 * b - 3 * a - c) / (2 * h)) for a, b, c in rows])


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("d", [5, *slow(2, 12)])
def test_grad_alpha_against_many_digits(beta: float, d: int) -> None:
    """The published formula is wrong in every digit at β = 1e−8 (MATH: error ε/β²)."""
    z = np.random.default_rng(d).standard_normal(d) / (1 + beta)
    alpha = 1 + mpmath.mpf(beta)
    p = np.array([float(x) for x in exact_entmax(z, alpha, 60)])
    exact = _slope_in_alpha(z, alpha)
    error = np.abs(pyentmax.entmax_grad_alpha(p, 1 + beta) - exact).max()
    assert error <= 1e-9 * np.abs(exact).max()


@pytest.mark.parametrize("beta", [*BETAS, 50, np.inf])
@pytest.mark.parametrize("d", [1, 2, 3, 7, 10, 1000])
def test_grad_alpha_of_uniform_row_is_zero(beta: float, d: int) -> None:
    p = np.append(np.full(d, 1 / d), 0)
    np.testing.assert_array_equal(pyentmax.entmax_grad_alpha(p, 1 + beta), 0)


@pytest.mark.parametrize("alpha", [1, 1.05, 1.5, 2, 2.0001, 3, 10])
def test_grad_alpha_against_differences(alpha: float) -> None:
    z = np.random.default_rng(5).standard_normal((20, 6)) / alpha
    h = 1e-5
    low = max(alpha - h, 1)
    numeric = (pyentmax.entmax(z, alpha + h) - pyentmax.entmax(z, low)) / (alpha + h - low)
    p = pyentmax.entmax(z, (alpha + h + low) / 2)
    slope = pyentmax.entmax_grad_alpha(p, (alpha + h + low) / 2)
    # Rows where an entry is just entering or leaving have a kink in α.
    same = (pyentmax.entmax(z, alpha + h) > 0) == (pyentmax.entmax(z, low) > 0)
    steady = same.all(axis=-1)
    assert steady.sum() >= 15
    np.testing.assert_allclose(slope[steady], numeric[steady], rtol=0, atol=1e-6)


def test_grad_alpha_does_not_overflow() -> None:
    p = np.array([1 - 1e-300, 1e-300, 0.0])
    for alpha in (1, 1.01, 1.5, 2, 4, 50, np.inf):
        assert np.isfinite(pyentmax.entmax_grad_alpha(p, alpha)).all()


def test_grad_alpha_with_alpha_per_row() -> None:
    z = np.random.default_rng(6).standard_normal((5, 4)) / 3
    alpha = np.array([1, 1.5, 2, 3, np.inf])
    p = pyentmax.entmax(z, alpha)
    rows = [pyentmax.entmax_grad_alpha(p[i], alpha[i]) for i in range(5)]
    np.testing.assert_allclose(pyentmax.entmax_grad_alpha(p, alpha), rows, rtol=1e-14)
    np.testing.assert_allclose(
        pyentmax.entmax_grad_alpha(p.T, alpha, axis=0), np.transpose(rows), rtol=1e-14
    )


@pytest.mark.parametrize("shape", [(), (3,), (2, 1), (2, 3), (1, 1), (1,)])
def test_vjp_alpha_has_shape_of_alpha(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(7)
    z, g = rng.standard_normal((2, 2, 3, 4))
    alpha = rng.uniform(1.1, 1.9, shape)
    got = pyentmax.entmax_vjp_alpha(pyentmax.entmax(z, alpha), g, alpha)
    assert got.shape == shape

    def total(alpha: Any) -> float:
        return float(np.sum(g * pyentmax.entmax(z, alpha)))

    for index in np.ndindex(*shape):
        up, down = alpha.copy(), alpha.copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        np.testing.assert_allclose(got[index], (total(up) - total(down)) / 2e-6, rtol=1e-6)


def test_vjp_alpha_with_axis_and_mask() -> None:
    rng = np.random.default_rng(8)
    z, g = rng.standard_normal((2, 4, 3))
    mask = np.array([True, False, True])
    alpha = np.array([1.2, 1.5, 1.7, 1.9])
    p = pyentmax.entmax(z, alpha, mask=mask)
    expected = np.sum(g * pyentmax.entmax_grad_alpha(p, alpha), axis=-1)
    spoiled = np.where(mask, g, np.nan)
    np.testing.assert_allclose(
        pyentmax.entmax_vjp_alpha(p, spoiled, alpha, mask=mask), expected, rtol=1e-13
    )
    np.testing.assert_allclose(
        pyentmax.entmax_vjp_alpha(p.T, spoiled.T, alpha, axis=0, mask=mask[:, None]),
        expected,
        rtol=1e-13,
    )


@pytest.mark.parametrize("function", [pyentmax.entmax_jvp, pyentmax.entmax_vjp])
def test_entmax_products_at_special_alpha(function: Callable[..., Any]) -> None:
    rng = np.random.default_rng(9)
    z, v = rng.standard_normal((2, 4, 6))
    for alpha, name in ((1, "softmax"), (1.5, "entmax15"), (2, "sparsemax")):
        p = MAPPINGS[name].forward(z)
        np.testing.assert_allclose(
            function(p, v, alpha), MAPPINGS[name].jvp(p, v), rtol=1e-12, atol=1e-15
        )
