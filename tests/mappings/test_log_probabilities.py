"""log p: against 50 digits, where p underflows and where it is near 1; edges of the contract."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from exact_rows import exact_row
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from stages import slow

import pyentmax

CASES: list[tuple[str, tuple[float, ...], float]] = [
    ("softmax", (), 1),
    ("entmax15", (), 1.5),
    ("sparsemax", (), 2),
    *(("entmax", (alpha,), alpha) for alpha in (1, 1 + 1e-9, 1.01, 1.2, 1.5, 1.9, 2)),
]
every_case = pytest.mark.parametrize(
    ("name", "params", "alpha"), CASES, ids=[f"{n}{p}" for n, p, _ in CASES]
)
every_way = pytest.mark.parametrize("way", ["public", "reference"])
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def log_of(name: str, way: str = "public") -> Callable[..., Any]:
    function = getattr(pyentmax, f"log_{name}")
    return function if way == "public" else function.reference


def assert_accurate(log_p: np.ndarray, z: np.ndarray, alpha: float) -> None:
    """Right within ε of log p, and within s/p times the rounding of the scores."""
    eps = np.finfo(z.dtype).eps
    p, s = exact_row(z, alpha)
    reach = max((float(max(z)) - float(x) for x, q in zip(z, p, strict=True) if q > 0), default=0)
    for got, value, slope in zip(log_p, p, s, strict=True):
        context = f"alpha = {alpha}, z = {z!r}, p = {mpmath.nstr(value, 20)}: {got!r}"
        with mpmath.workdps(50):
            if value == 0 or got == -np.inf:  # an entry on the threshold may go either way
                room = 64 * eps * max(1, reach)
                assert value <= room * slope + room ** max(1, 1 / max(alpha - 1, 0.1)), context
                continue
            exact = mpmath.log(value)
            # Where p is large, what moves it is what moves the others: p̃(1 − p̃), p̃ = s/Σs.
            moved = slope / value * (1 - slope / mpmath.fsum(s))
            allowed = 8 * eps * abs(exact) + 16 * eps * moved * max(1, reach)
            allowed += 1e-38  # float32 ends there, and so do fifty digits of p
            assert abs(mpmath.mpf(float(got)) - exact) <= allowed, (context, exact, allowed)


@every_case
@every_dtype
@pytest.mark.parametrize("n", [5, *slow(1, 2, 130)])
def test_against_fifty_digits(
    name: str, params: tuple[float, ...], alpha: float, dtype: type, n: int
) -> None:
    rng = np.random.default_rng(n)
    peaked = rng.standard_normal(n)
    peaked[n // 2] += {1: 12, 1.5: 1.5, 2: 0.5}.get(alpha, 3)
    rows = [scale * rng.standard_normal(n) for scale in (0.1, 1, 5, 60)]
    for z in np.array([*rows, peaked]).astype(dtype):
        for way in ("public", "reference"):
            assert_accurate(log_of(name, way)(z, *params), z, alpha)


@every_case
@given(
    z=st.sampled_from([np.float32, np.float64]).flatmap(
        lambda dtype: hnp.arrays(
            dtype, 6, elements=st.floats(-30, 30, width=np.dtype(dtype).itemsize * 8)
        )
    )
)
def test_exponential_is_the_mapping(
    name: str, params: tuple[float, ...], alpha: float, z: np.ndarray
) -> None:
    log_p = log_of(name)(z, *params)
    assert (log_p <= 0).all()
    p = getattr(pyentmax, name)(z, *params)
    # Each of the two is within the contract, in which the reach of the scores is a factor.
    reach = max(1, float(np.ptp(z)))
    np.testing.assert_allclose(np.exp(log_p), p, rtol=0, atol=64 * np.finfo(z.dtype).eps * reach)


@every_way
def test_finite_where_probability_underflows(way: str) -> None:
    z = np.array([0.0, -2000.0])
    np.testing.assert_array_equal(log_of("softmax", way)(z), [0, -2000])
    np.testing.assert_array_equal(
        log_of("softmax", way)(np.array([0, -(2.0**99)], np.float32))[1], -(2.0**99)
    )
    exact = np.log1p(-0.9) / 1e-3
    np.testing.assert_allclose(
        log_of("entmax", way)([0.0, -900.0], 1.001), [0, exact], rtol=1e-12, atol=0
    )
    assert pyentmax.entmax([0.0, -900.0], 1.001)[1] == 0


@every_dtype
@every_way
def test_near_certain_outcome_keeps_its_digits(dtype: type, way: str) -> None:
    gap = 30
    z = np.array([gap, 0, 0], dtype)
    expected = -np.log1p(2 * np.exp(-float(gap)))
    np.testing.assert_allclose(log_of("softmax", way)(z)[0], expected, rtol=4 * np.finfo(dtype).eps)
    # Beyond 1 - ε a probability could say nothing: δ = 2^-8 has δ² = 2^-16 left for the others.
    delta = 2.0**-8
    z = np.array([1 - 2 * delta, 0], dtype)  # sparsemax gives 1 - δ and δ
    np.testing.assert_allclose(
        log_of("sparsemax", way)(z)[0], np.log1p(-delta), rtol=4 * np.finfo(dtype).eps
    )


@every_case
@every_way
def test_edges(name: str, params: tuple[float, ...], alpha: float, way: str) -> None:
    inf, nan, log = np.inf, np.nan, log_of(name, way)
    z = np.array([[0, -inf, 0], [-inf] * 3, [nan, 0, 0], [inf, 0, 0], [0, 0, -5e5]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_p = log(z, *params)
        np.testing.assert_allclose(log_p[0], [-np.log(2), -inf, -np.log(2)], rtol=1e-15)
        assert (log_p[1] == -inf).all()
        assert np.isnan(log_p[2:4]).all()
        if alpha == 1 or alpha > 1.001:
            assert log_p[4, 2] == (-5e5 - np.log(2) if alpha == 1 else -inf)
        mask = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1], [0, 1, 1]], bool)
        log_p = log(z[:4], *params, mask=mask)
        np.testing.assert_allclose(np.exp(log_p[2:]), [[0, 0.5, 0.5]] * 2, rtol=1e-15)
        assert (log_p[1] == -inf).all()
    single = log(np.array([3.0]), *params)
    assert single == 0
    assert not np.signbit(single)


@every_case
def test_axes_dtypes_and_out(name: str, params: tuple[float, ...], alpha: float) -> None:
    z = np.random.default_rng(1).standard_normal((3, 4, 5))
    log = log_of(name)
    expected = log(z, *params)
    for axis in (0, 1, -2):
        moved = np.moveaxis(z, -1, axis)
        np.testing.assert_array_equal(
            np.moveaxis(log(moved, *params, axis=axis), axis, -1), expected
        )
    np.testing.assert_allclose(
        np.sum(np.exp(log(z, *params, axis=(0, 2))), axis=(0, 2)), 1, rtol=1e-14
    )
    half = log(z.astype(np.float16), *params)
    assert half.dtype == np.float16
    assert log([[1, 0]], *params).dtype == np.float64
    out = np.empty((3, 4, 10))[..., ::2]
    assert log(z, *params, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert log(np.zeros((0, 4)), *params).shape == (0, 4)
    with pytest.raises(ValueError, match="0-dimensional"):
        log(1.0, *params)


@pytest.mark.parametrize("alpha", [2.5, 4, np.inf])
def test_steep_entmax(alpha: float) -> None:
    z = np.random.default_rng(2).standard_normal((20, 7))
    p = pyentmax.entmax(z, alpha)
    log_p = pyentmax.log_entmax(z, alpha)
    np.testing.assert_allclose(np.exp(log_p), p, rtol=1e-12, atol=1e-13)
    assert ((log_p > -np.inf) == pyentmax.entmax_support(z, alpha)).all()


def test_alpha_per_row() -> None:
    z = np.random.default_rng(3).standard_normal((5, 6))
    alpha = np.array([1, 1.3, 1.5, 2, 3])
    rows = [pyentmax.log_entmax(row, a) for row, a in zip(z, alpha, strict=True)]
    np.testing.assert_allclose(pyentmax.log_entmax(z, alpha), rows, rtol=1e-13)
    with pytest.raises(ValueError, match="alpha must be at least 1"):
        pyentmax.log_entmax(z, 0.5)
