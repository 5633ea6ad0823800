"""Derivatives where s = p^{2−α} spans dozens of decades, and where nothing is left of a row."""

import mpmath
import numpy as np
import pytest

import pyentmax as pe

DTYPES = [np.float32, np.float64]


def exact_jacobian(p, alpha):
    """diag(s) − ssᵀ/Σs in 700 digits (s spans hundreds), for the floats in p as they are."""
    with mpmath.workdps(700):
        s = [mpmath.mpf(float(x)) ** (2 - alpha) if x > 0 else mpmath.mpf(0) for x in p]
        total = sum(s)
        return [
            [(s[i] * (total - s[i]) if i == j else -s[i] * s[j]) / total for j in range(len(p))]
            for i in range(len(p))
        ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", [1, 1.5, 2, 3, 4, 6, 10, 20])
def test_jacobian_and_products_at_forward_outputs(alpha, dtype):
    rng = np.random.default_rng(0)
    epsilon, largest = np.finfo(dtype).eps, np.finfo(dtype).max
    checked = 0
    for _ in range(40):
        z = (rng.standard_normal(6) / max(alpha - 1, 0.2)).astype(dtype)
        p, v = pe.entmax(z, alpha), rng.standard_normal(6).astype(dtype)
        exact = exact_jacobian(p, alpha)
        scale = max(abs(x) for row in exact for x in row)
        if scale == 0 or scale > largest / 10:
            continue
        checked += 1
        jacobian = pe.entmax_jacobian(p, alpha)
        error = max(
            abs(mpmath.mpf(float(jacobian[i, j])) - exact[i][j]) for i in range(6) for j in range(6)
        )
        assert error <= 40 * alpha * epsilon * scale
        np.testing.assert_array_equal(jacobian, jacobian.T)
        product = pe.entmax_jvp(p, v, alpha)
        for i in range(6):
            expected = sum(exact[i][j] * mpmath.mpf(float(v[j])) for j in range(6))
            assert abs(mpmath.mpf(float(product[i])) - expected) <= 100 * alpha * epsilon * scale
    assert checked > 20


@pytest.mark.parametrize("name", ["entmax_jvp", "entmax_vjp"])
def test_jvp_near_tie_at_alpha_10(name):
    # The exact product is (1.0837, −1.0837); s·(v − mean) gave (2.220, −1.084).
    product = getattr(pe, name)(np.array([0.01, 0.99]), np.array([1.0, 0.0]), 10)
    with mpmath.workdps(40):
        s = [mpmath.mpf(0.01) ** -8, mpmath.mpf(0.99) ** -8]
        expected = float(s[0] * s[1] / (s[0] + s[1]))
    np.testing.assert_allclose(product, [expected, -expected], rtol=1e-13)


def test_overflowing_slope_has_finite_product():
    # 0.0196⁻⁴⁸ is beyond float32, but it only says that this entry takes all of the threshold.
    p = np.array([0.0196, 0.9804], np.float32)
    jacobian = pe.entmax_jacobian(p, 50)
    assert np.isfinite(jacobian).all()
    np.testing.assert_allclose(jacobian.sum(axis=1), 0, rtol=0, atol=1e-5)
    np.testing.assert_allclose(pe.entmax_jvp(p, [1, 0], 50), jacobian[:, 0], rtol=1e-5)


def test_saturated_softmax_keeps_its_digits():
    p = np.array([1 - 2.0**-40, 2.0**-40])
    exact = 2.0**-40 * (1 - 2.0**-40)
    np.testing.assert_allclose(pe.softmax_jvp(p, [1, 0]), [exact, -exact], rtol=1e-15)
    np.testing.assert_allclose(
        pe.softmax_jacobian(p), [[exact, -exact], [-exact, exact]], rtol=1e-15
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinite_alpha_has_zero_derivatives(dtype):
    p = np.array([0.5, 0.5, 0.0], dtype)
    assert not pe.entmax_jvp(p, [1, 2, 3], np.inf).any()
    assert not pe.entmax_jacobian(p, np.inf).any()


@pytest.mark.parametrize("alpha", [1, 1.3, 1.5, 2, 3, np.inf])
def test_fully_masked_row_has_zero_grad_alpha(alpha):
    z = np.array([[1, 0.5, 0], [2, 0, 1]])
    mask = np.array([[True] * 3, [False] * 3])
    p = pe.entmax(z, alpha, mask=mask)
    slope = pe.entmax_grad_alpha(p, alpha)
    assert np.isfinite(slope).all()
    assert not slope[1].any()
    alone = pe.entmax_vjp_alpha(p[0], np.arange(3.0), alpha)
    both = pe.entmax_vjp_alpha(p, np.tile(np.arange(3.0), (2, 1)), alpha, mask=mask)
    np.testing.assert_allclose(both, alone, rtol=1e-14)


def exact_grad_alpha(p, alpha):
    """The published form in 700 digits."""
    with mpmath.workdps(700):
        beta, p = mpmath.mpf(alpha) - 1, [mpmath.mpf(float(x)) for x in p]
        s = [x ** (1 - beta) for x in p]
        h = [-x * mpmath.log(x) for x in p]
        share = [x / sum(s) for x in s]
        terms = zip(p, share, h, strict=True)
        return np.array([float((x - y) / beta**2 + (z - y * sum(h)) / beta) for x, y, z in terms])


@pytest.mark.parametrize("alpha", [1.5, 1.8, 1.87, 1.9, 1.95, 1.99, 2.0, 2.001, 3.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_grad_alpha_with_denormal_probability(dtype, alpha):
    """Up to α = 2, p^{−β} overflows there: NaN, or another digit everywhere."""
    eps = np.finfo(dtype).eps
    for least in (np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny / 9):
        for rest in ([0.75, 0.25], [0.5, 0.5], [1.0], [1 / 3] * 3):
            p = np.array([*rest, least], dtype)
            expected = exact_grad_alpha(p, alpha)
            # ε of the largest p, and of g times the largest exponent
            allowed = eps * (2 + 400 * np.abs(expected).max())
            for function in (pe.entmax_grad_alpha, pe.entmax_grad_alpha.reference):
                got = function(p, alpha)
                np.testing.assert_allclose(got, expected, rtol=0, atol=allowed)
                product = pe.entmax_vjp_alpha(p, np.arange(len(p), dtype=dtype), alpha)
                wanted = expected @ np.arange(len(p))
                assert abs(product - wanted) <= 6 * allowed


def test_normmax_with_denormal_probability():
    p = pe.normmax([0.0, -0.515], 1.001)
    assert 0 < p[1] < np.finfo(float).tiny
    assert np.isfinite(pe.normmax_jvp(p, [1.0, 0.0], 1.001)).all()
