"""Derivatives where s = p^{2−α} spans dozens of decades, and α beyond where its powers are floats.

Of a Jacobian's entries those beyond the largest float are ±∞, the others exact.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import mpmath
import numpy as np
import pytest

import pyentmax as pe

DTYPES = [np.float32, np.float64]
LARGE = [300, 1e5, 1e10, 2.0**60, 3e38, 1e39, 1e305]
SCORES = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.0, 0.0], [3.0, 3 - 2e-7, 2.0]]
PROBABILITIES = [
    [0.9, 0.05, 0.05],
    [0.5, 0.5, 0.0],
    [1.0, 0.0, 0.0],
    [0.5, 0.3, 0.2],
    [0.45, 0.45, 0.1],
    [0.6, 0.39, 0.01],
    [1 - 2.0**-40, 2.0**-40, 0.0],
]
forms = pytest.mark.parametrize("form", ["", ".reference"])
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def function(name: str, form: str) -> Any:
    attribute = attrgetter(name)(pe)
    return attribute.reference if form else attribute


def exact_jacobian(p: Any, alpha: float) -> list[list[mpmath.mpf]]:
    """s_i s_j/Σs off the diagonal, s_i Σ_{j≠i} s_j/Σs on it: nothing cancels."""
    with mpmath.workdps(50):
        s = [mpmath.mpf(float(x)) ** (2 - mpmath.mpf(alpha)) if x else mpmath.mpf(0) for x in p]
        total, others = mpmath.fsum(s), [s[:i] + s[i + 1 :] for i in range(len(s))]
        return [
            [
                a * mpmath.fsum(others[i]) / total if i == j else -a * b / total
                for j, b in enumerate(s)
            ]
            for i, a in enumerate(s)
        ]


def rounded(x: mpmath.mpf, dtype: type) -> float:
    largest = float(np.finfo(dtype).max)
    return float(x) if abs(x) <= largest else float(np.copysign(np.inf, float(mpmath.sign(x))))


def probabilities(alpha: float, dtype: type) -> np.ndarray:
    """Rows that saturate or tie, and some that the mapping itself gives."""
    z = np.random.default_rng(0).standard_normal((4, 3)) / min(max(alpha - 1, 0.2), 1e30)
    return np.concatenate([PROBABILITIES, pe.entmax(z, alpha)]).astype(dtype)


@pytest.mark.parametrize("alpha", [1, 1.3, 1.5, 2, 3, np.inf])
def test_fully_masked_row_has_zero_grad_alpha(alpha: float) -> None:
    p, g = np.array([pe.entmax([1, 0.5, 0], alpha), np.zeros(3)]), np.tile(np.arange(3.0), (2, 1))
    slope = pe.entmax.parameter_slope(p, alpha)
    assert np.isfinite(slope).all()
    assert not slope[1].any()
    alone = pe.entmax.parameter_vjp(p[0], g[0], alpha)
    np.testing.assert_allclose(pe.entmax.parameter_vjp(p, g, alpha), alone, rtol=1e-14)


def exact_grad_alpha(p: Any, alpha: float) -> np.ndarray:
    """The published form in 700 digits."""
    with mpmath.workdps(700):
        beta, p = mpmath.mpf(alpha) - 1, [mpmath.mpf(float(x)) for x in p]
        s = [x ** (1 - beta) for x in p]
        h = [-x * mpmath.log(x) for x in p]
        share = [x / sum(s) for x in s]
        terms = zip(p, share, h, strict=True)
        return np.array([float((x - y) / beta**2 + (z - y * sum(h)) / beta) for x, y, z in terms])


@pytest.mark.parametrize("alpha", [1.5, 1.8, 1.87, 1.9, 1.95, 1.99, 2.0, 2.001, 3.0])
@dtypes
def test_grad_alpha_with_denormal_probability(dtype: type, alpha: float) -> None:
    """Up to α = 2, p^{−β} overflows there: NaN, or another digit everywhere."""
    eps = np.finfo(dtype).eps
    for least in (np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny / 9):
        for rest in ([0.75, 0.25], [0.5, 0.5], [1.0], [1 / 3] * 3):
            p = np.array([*rest, least], dtype)
            expected = exact_grad_alpha(p, alpha)
            # ε of the largest p, and of g times the largest exponent
            allowed = eps * (2 + 400 * np.abs(expected).max())
            for function in (pe.entmax.parameter_slope, pe.entmax.parameter_slope.reference):
                got = function(p, alpha)
                np.testing.assert_allclose(got, expected, rtol=0, atol=allowed)
                product = pe.entmax.parameter_vjp(p, np.arange(len(p), dtype=dtype), alpha)
                wanted = expected @ np.arange(len(p))
                assert abs(product - wanted) <= 6 * allowed


def test_normmax_with_denormal_probability() -> None:
    p = pe.normmax([0.0, -0.515], 1.001)
    assert 0 < p[1] < np.finfo(float).tiny
    assert np.isfinite(pe.normmax.jvp(p, [1.0, 0.0], 1.001)).all()


# --- large α ---


@forms
@dtypes
def test_loss_approaches_perceptron_loss(form: str, dtype: type) -> None:
    eps = np.finfo(dtype).eps
    for z in np.array(SCORES, dtype):
        for y in (0, 2):
            limit = float(z.max() - z[y])
            for alpha in LARGE:
                for name in ("entmax.loss", "entmax.loss_and_grad"):
                    found = function(name, form)(z, y, alpha)
                    loss, gradient = found if isinstance(found, tuple) else (found, None)
                    # Less than Ω of the simplex, and what the largest scores may be moved by.
                    assert abs(float(loss) - limit) <= 1 / alpha + 16 * eps * np.ptp(z)
                    if gradient is not None:
                        p = pe.entmax(z, alpha)
                        p[y] -= 1
                        room = max(4, 8 / alpha) * eps
                        np.testing.assert_allclose(gradient, p, rtol=0, atol=room)


@forms
@dtypes
def test_probabilities_hardly_move_with_alpha(form: str, dtype: type) -> None:
    slope = function("entmax.parameter_slope", form)
    for p in np.array(PROBABILITIES, dtype):
        reach = 1 - float(np.log(p[p > 0].min()))
        for alpha in LARGE:
            found = slope(p, alpha)
            assert (np.abs(found) <= 2 * reach / alpha).all(), (p, alpha, found)


@dtypes
@pytest.mark.parametrize("alpha", [1, 1.5, 2, 3, 4, 6, 10, 20, 100, 1000, 1e5])
def test_jacobian_is_exact_within_float_range(alpha: float, dtype: type) -> None:
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
    for p in probabilities(alpha, dtype):
        jacobian = pe.entmax.jacobian(p, alpha)
        exact = np.array([[rounded(x, dtype) for x in row] for row in exact_jacobian(p, alpha)])
        beyond = np.isinf(exact)
        np.testing.assert_array_equal(jacobian[beyond], exact[beyond])
        # Powers of p are off by as many ε as their logarithms are large.
        room = 8 * eps * (1 - alpha * float(np.log(p[p > 0].min())))
        with np.errstate(invalid="ignore"):
            size = np.sqrt(np.diag(exact)) * np.sqrt(np.diag(exact))[:, None]
        allowed = room * np.where(np.isfinite(size), size, np.abs(exact))[~beyond] + tiny
        assert (np.abs(jacobian[~beyond] - exact[~beyond]) <= allowed).all(), (p, jacobian, exact)
        np.testing.assert_array_equal(jacobian, jacobian.T)
        rows = np.isfinite(jacobian).all(axis=-1)
        size = np.abs(jacobian[rows]).max(axis=-1, initial=0)
        assert (np.abs(jacobian[rows].sum(axis=-1)) <= 2 * room * size).all()


@forms
@dtypes
@pytest.mark.parametrize("alpha", [1, 1.5, 3, 10, 20, 300, 1e5, 1e39, 1.7e308])
def test_product_beyond_floats_is_infinite(alpha: float, form: str, dtype: type) -> None:
    product, eps = function("entmax.jvp", form), np.finfo(dtype).eps
    for p in probabilities(alpha, dtype):
        for v in ([1, 2, 4], [1, 2, 2], [2, 2, 2], [-1, 0, 1], [0, 0, 1]):
            found = product(p, np.array(v, dtype), alpha)
            assert not np.isnan(found).any()
            if alpha > 1e5:
                continue
            exact = exact_jacobian(p, alpha)
            for got, row in zip(found, exact, strict=True):
                expected = mpmath.fsum(a * b for a, b in zip(row, v, strict=True))
                size = mpmath.fsum(abs(a * b) for a, b in zip(row, v, strict=True))
                room = 32 * float(eps) * (1 - alpha * float(np.log(p[p > 0].min())))
                if size <= np.finfo(dtype).max:
                    assert abs(float(got) - float(expected)) <= room * float(size) + 1e-37
                elif abs(expected) > room * size:
                    assert abs(got) > 1e30
                    assert np.sign(got) == mpmath.sign(expected)


# --- normmax ---


def exact_normmax_jacobian(p: Any, alpha: float) -> list[list[mpmath.mpf]]:
    """(I − p1ᵀ) diag(s) (I − 1pᵀ), 1 − p_i as the sum of the others: no digits are lost."""
    with mpmath.workdps(60):
        exact_p = [mpmath.mpf(float(x)) for x in p]
        d, norm = range(len(p)), mpmath.fsum(x**alpha for x in exact_p) ** (1 / mpmath.mpf(alpha))
        s = [x and x * (norm / x) ** (mpmath.mpf(alpha) - 1) / (alpha - 1) for x in exact_p]
        apart = [mpmath.fsum(exact_p[:i] + exact_p[i + 1 :]) for i in d]
        part = [[apart[i] if i == k else -exact_p[i] for i in d] for k in d]
        return [[mpmath.fsum(s[k] * part[k][i] * part[k][j] for k in d) for j in d] for i in d]


@forms
@pytest.mark.parametrize(("dtype", "least"), [(np.float32, 1e-14), (np.float64, 1e-104)])
def test_normmax_derivatives_beyond_floats_are_infinite(
    dtype: type, least: float, form: str
) -> None:
    """One s beyond floats made all of its row's Jacobian ±∞: ∞ times parts of it."""
    p = np.array([0.7, 0.3 - 1e-6, 1e-6, least], dtype)
    exact = exact_normmax_jacobian(p, 5)
    expected = np.array([[rounded(x, dtype) for x in row] for row in exact])
    rtol = 2000 * np.finfo(dtype).eps
    np.testing.assert_allclose(pe.normmax.jacobian(p, 5), expected, rtol=rtol)
    found = function("normmax.jvp", form)(p, np.array([0, 0, 0, 1], dtype), 5)
    np.testing.assert_allclose(found, expected[3], rtol=rtol)


@pytest.mark.parametrize("alpha", [1.05, 1.5, 2, 3, 10])
@pytest.mark.parametrize(
    "p", [[1, 1e-18, 0], [1, 1e-18, 1e-30], [1 - 2**-28, 2**-29, 2**-29], [0.25, 0.25, 0.5]]
)
def test_normmax_derivatives_near_corner_keep_digits(p: list[float], alpha: float) -> None:
    jacobian = pe.normmax.jacobian(p, alpha)
    exact = np.array([[float(x) for x in row] for row in exact_normmax_jacobian(p, alpha)])
    size = np.sqrt(np.diag(exact)) * np.sqrt(np.diag(exact))[:, None]
    assert (np.abs(jacobian - exact) <= 1e-13 * alpha * size).all()
    np.testing.assert_array_equal(jacobian, jacobian.T)
    assert (np.abs(jacobian.sum(axis=-1)) <= 1e-13 * alpha * np.diag(jacobian)).all()
    for v in np.array([[1.0, 0.0, 0.0], [3.0, 1.0, -2.0]]):
        # Of J's entries the exact ones, since p itself sums to 1 but for rounding.
        apart = v - v[int(np.argmax(p))]
        room = 1e-13 * alpha * (np.abs(exact) @ np.abs(apart))
        for form in ("", ".reference"):
            found = function("normmax.jvp", form)(p, v, alpha)
            assert (np.abs(found - exact @ apart) <= room).all()
