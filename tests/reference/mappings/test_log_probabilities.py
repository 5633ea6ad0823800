"""log p: against many digits, where p underflows and where it is near 1; edges of the contract."""

from __future__ import annotations

import warnings
from typing import Any

import mpmath
import numpy as np
import pytest
from exact_rows import DIGITS, exact_row
from mapping_cases import Case
from stages import slow

import pyentmax

CASES = [(Case(name, (), form), alpha)
         for name, alpha in (("softmax", 1), ("entmax15", 1.5), ("sparsemax", 2))
         for form in ("", "reference")]  # fmt: skip
CASES += [
    (Case("entmax", (alpha,), form), alpha)
    for alpha in (1, 1 + 1e-9, 1.01, 1.2, 1.5, 1.9, 2)
    for form in ("", "reference")
]
every_case = pytest.mark.parametrize(("case", "alpha"), CASES, ids=str)
every_form = pytest.mark.parametrize("form", ["", "reference"])
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def log_of(case: Case, z: Any, **options: Any) -> Any:
    return case.function("log")(z, *case.params, **options)


def assert_accurate(log_p: np.ndarray, z: np.ndarray, alpha: float) -> None:
    """Right within ε of log p, and within s/p times the rounding of the scores."""
    eps = np.finfo(z.dtype).eps
    p, s = exact_row(z, alpha)
    reach = max((float(max(z)) - float(x) for x, q in zip(z, p, strict=True) if q > 0), default=0)
    for got, value, slope in zip(log_p, p, s, strict=True):
        context = f"alpha = {alpha}, z = {z!r}, p = {mpmath.nstr(value, 20)}: {got!r}"
        with mpmath.workdps(DIGITS):
            if value == 0 or got == -np.inf:  # an entry on the threshold may go either way
                room = 64 * eps * max(1, reach)
                assert value <= room * slope + room ** max(1, 1 / max(alpha - 1, 0.1)), context
                continue
            exact = mpmath.log(value)
            # Where p is large, what moves it is what moves the others: p̃(1 − p̃), p̃ = s/Σs.
            moved = slope / value * (1 - slope / mpmath.fsum(s))
            allowed = 8 * eps * abs(exact) + 16 * eps * moved * max(1, reach)
            allowed += 1e-38  # where float32 ends
            assert abs(mpmath.mpf(float(got)) - exact) <= allowed, (context, exact, allowed)


@every_case
@every_dtype
@pytest.mark.parametrize("n", [5, *slow(1, 2, 60)])
def test_against_many_digits(case: Case, alpha: float, dtype: type, n: int) -> None:
    rng = np.random.default_rng(n)
    peaked = rng.standard_normal(n)
    peaked[n // 2] += {1: 12, 1.5: 1.5, 2: 0.5}.get(alpha, 3)
    rows = [scale * rng.standard_normal(n) for scale in (0.1, 1, 5, 60)]
    for z in np.array([*rows, peaked]).astype(dtype):
        log_p = log_of(case, z)
        assert log_p.dtype == dtype
        assert (log_p <= 0).all()
        assert_accurate(log_p, z, alpha)


@every_form
def test_finite_where_probability_underflows(form: str) -> None:
    softmax, entmax = Case("softmax", (), form), Case("entmax", (1.001,), form)
    np.testing.assert_array_equal(log_of(softmax, [0.0, -2000.0]), [0, -2000])
    far = np.array([0, -(2.0**99)], np.float32)
    np.testing.assert_array_equal(log_of(softmax, far)[1], -(2.0**99))
    exact = np.log1p(-0.9) / 1e-3
    np.testing.assert_allclose(log_of(entmax, [0.0, -900.0]), [0, exact], rtol=1e-12, atol=0)
    assert entmax.forward([0.0, -900.0])[1] == 0


@every_dtype
@every_form
def test_near_certain_outcome_keeps_its_digits(dtype: type, form: str) -> None:
    rtol = 4 * np.finfo(dtype).eps
    log_p = log_of(Case("softmax", (), form), np.array([30, 0, 0], dtype))
    np.testing.assert_allclose(log_p[0], -np.log1p(2 * np.exp(-30.0)), rtol=rtol)
    # Beyond 1 - ε a probability could say nothing: δ = 2^-8 has δ² = 2^-16 left for the others.
    delta = 2.0**-8  # sparsemax gives 1 - δ and δ
    log_p = log_of(Case("sparsemax", (), form), np.array([1 - 2 * delta, 0], dtype))
    np.testing.assert_allclose(log_p[0], np.log1p(-delta), rtol=rtol)


@every_case
def test_edges(case: Case, alpha: float) -> None:
    inf, nan = np.inf, np.nan
    z = np.array([[0, -inf, 0], [-inf] * 3, [nan, 0, 0], [inf, 0, 0], [0, 0, -5e5]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_p = log_of(case, z)
        np.testing.assert_allclose(log_p[0], [-np.log(2), -inf, -np.log(2)], rtol=1e-15)
        assert (log_p[1] == -inf).all()
        assert np.isnan(log_p[2:4]).all()
        if alpha == 1 or alpha > 1.001:
            assert log_p[4, 2] == (-5e5 - np.log(2) if alpha == 1 else -inf)
        mask = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1], [0, 1, 1]], bool)
        log_p = log_of(case, z[:4], mask=mask)
        np.testing.assert_allclose(np.exp(log_p[2:]), [[0, 0.5, 0.5]] * 2, rtol=1e-15)
        assert (log_p[1] == -inf).all()
    single = log_of(case, np.array([3.0]))
    assert single == 0
    assert not np.signbit(single)


@every_case
def test_axes_dtypes_and_out(case: Case, alpha: float) -> None:
    z = np.random.default_rng(1).standard_normal((3, 4, 5))
    expected = log_of(case, z)
    for axis in (0, 1, -2):
        found = log_of(case, np.moveaxis(z, -1, axis), axis=axis)
        np.testing.assert_array_equal(np.moveaxis(found, axis, -1), expected)
    several = np.exp(log_of(case, z, axis=(0, 2)))
    np.testing.assert_allclose(np.sum(several, axis=(0, 2)), 1, rtol=1e-14)
    assert log_of(case, z.astype(np.float16)).dtype == np.float16
    assert log_of(case, [[1, 0]]).dtype == np.float64
    out = np.empty((3, 4, 10))[..., ::2]
    assert log_of(case, z, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert log_of(case, np.zeros((0, 4))).shape == (0, 4)
    with pytest.raises(ValueError, match="0-dimensional"):
        log_of(case, 1.0)


def test_alpha_above_2_and_per_row() -> None:
    z = np.random.default_rng(3).standard_normal((20, 7))
    alpha = np.resize([0.2, 1, 1.3, 1.5, 2, 2.5, 4, np.inf], 20)
    log_p = pyentmax.entmax.log(z, alpha)
    np.testing.assert_allclose(np.exp(log_p), pyentmax.entmax(z, alpha), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(log_p > -np.inf, pyentmax.entmax.support(z, alpha))
    rows = [pyentmax.entmax.log(row, a) for row, a in zip(z, alpha, strict=True)]
    np.testing.assert_allclose(log_p, rows, rtol=1e-13)
    with pytest.raises(ValueError, match="alpha must be above 0"):
        pyentmax.entmax.log(z, 0)
