"""Entropies: known values, limits in α, gradients, axes."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from pyentmax import gini_entropy, norm_entropy, normmax, shannon_entropy, tsallis_entropy
from pyentmax.reference.entropies import alpha_norm

P = np.random.default_rng(0).dirichlet(np.ones(6) / 2, size=(3, 4))


@pytest.mark.parametrize("alpha", [0.5, 1, 1 + 1e-12, 1 + 1e-6, 1.1, 1.5, 2, 3.7, 40])
def test_tsallis_against_many_digits(alpha: float) -> None:
    for p in P.reshape(-1, 6):
        with mpmath.workdps(60):
            a, values = mpmath.mpf(alpha), [mpmath.mpf(float(x)) for x in p]
            if a == 1:
                exact = -sum(x * mpmath.log(x) for x in values)
            else:
                exact = sum(x - x**a for x in values) / (a * (a - 1))
        np.testing.assert_allclose(tsallis_entropy(p, alpha), float(exact), rtol=1e-14)


def test_shannon_and_gini_are_tsallis_at_1_and_2() -> None:
    np.testing.assert_allclose(shannon_entropy(P), tsallis_entropy(P, 1), rtol=1e-14)
    np.testing.assert_allclose(gini_entropy(P), tsallis_entropy(P, 2), rtol=1e-13)
    np.testing.assert_array_equal(tsallis_entropy(P, np.inf), 0)


@pytest.mark.parametrize("axis", [0, -2, (0, 2), None])
def test_axes_follow_sums(axis: object) -> None:
    for entropy, terms in (
        (shannon_entropy, -P * np.log(P)),
        (gini_entropy, P * (1 - P) / 2),
        (lambda p, axis: tsallis_entropy(p, 1.5, axis), (P - P**1.5) / 0.75),
    ):
        np.testing.assert_allclose(entropy(P, axis), terms.sum(axis=axis), rtol=1e-13)
    alpha = np.resize([1, 1.5, 2, np.inf], P.sum(axis=axis).shape)
    each = tsallis_entropy(P, alpha, axis)
    for value in np.unique(alpha):
        same = tsallis_entropy(P, value, axis)
        np.testing.assert_allclose(each[alpha == value], same[alpha == value], rtol=1e-13)


def test_dtypes() -> None:
    for entropy in (shannon_entropy, gini_entropy, tsallis_entropy):
        for dtype in (np.float16, np.float32, np.float64):
            h = entropy(np.array([0.5, 0.5, 0], dtype))
            assert h.dtype == dtype
            np.testing.assert_allclose(h, entropy([0.5, 0.5, 0]), rtol=2 * np.finfo(dtype).eps)
        assert entropy([1, 0]).dtype == np.float64
        assert np.isnan(entropy([np.nan, 0.5]))
    assert np.isnan(tsallis_entropy([[np.nan, 1.0]] * 3, [1, 1.5, np.inf])).all()


@pytest.mark.parametrize("entropy", [tsallis_entropy, norm_entropy, alpha_norm])
def test_bad_input_is_named(entropy: Callable[..., object]) -> None:
    least = "above 0" if entropy is tsallis_entropy else "at least 1"
    for alpha in (0, np.nan):
        with pytest.raises(ValueError, match=f"alpha must be {least}, got {alpha}"):
            entropy([1.0], alpha)
    with pytest.raises(TypeError, match="p must hold real numbers"):
        entropy([1j])
    with pytest.raises(ValueError, match=r"alpha of shape \(1,\) does not broadcast against \(\)"):
        entropy([0.5, 0.5], [1.5])
    with pytest.raises(ValueError, match=r"alpha of shape \(2,\) does not broadcast against \(3,"):
        entropy(P, [1.5, 2])
    with pytest.raises(TypeError, match="alpha must hold real numbers, got dtype <U1"):
        entropy([0.5, 0.5], "a")
    np.testing.assert_allclose(
        entropy(P, np.array([2, 1, 2, 3])), entropy(P, [2.0, 1, 2, 3]), rtol=1e-15
    )


def test_norm_of_empty_row_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"p of shape \(2, 0\) has no entry along axis -1"):
        norm_entropy(np.ones((2, 0)))
    assert norm_entropy(np.ones((0, 2))).shape == (0,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1e-3, 0.01, 0.5, 0.97])
def test_small_alpha_with_denormal_probabilities(alpha: float, dtype: type) -> None:
    # p^(α−1) is beyond floats there, and p^α is not.
    p = np.array([1, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny / 8], dtype)
    with mpmath.workdps(40), warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = sum(mpmath.mpf(x) - mpmath.mpf(x) ** alpha for x in map(float, p))
        exact /= mpmath.mpf(alpha) * (mpmath.mpf(alpha) - 1)
        np.testing.assert_allclose(
            float(tsallis_entropy(p, alpha)), float(exact), rtol=200 * np.finfo(dtype).eps
        )


@pytest.mark.parametrize(
    ("p", "alpha"), [([0.5, 0.5], 1.0002), ([0.5, 0.5], 1.001), ([0.999, 0.001], 1.5)]
)
def test_norm_entropy_of_half_is_rounded_once(p: list[float], alpha: float) -> None:
    # 1 − ‖p‖ was taken of a norm that had been rounded to half precision.
    halves = np.array(p, np.float16)
    expected = norm_entropy(halves.astype(np.float32), alpha).astype(np.float16)
    assert norm_entropy(halves, alpha) == expected


@pytest.mark.parametrize("axis", [0, -2, (0, 2), None])
def test_norm_entropy(axis: object) -> None:
    for alpha in (1, 1.5, 2, 7.5):
        expected = 1 - np.sum(P**alpha, axis=axis) ** (1 / alpha)
        np.testing.assert_allclose(norm_entropy(P, alpha, axis), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(norm_entropy(P, np.inf, axis), 1 - P.max(axis=axis), rtol=1e-14)
    shape = P.sum(axis=axis).shape
    alphas = np.resize([1.5, 3, np.inf, 1], shape)
    got = norm_entropy(P, alphas, axis)
    for index in np.ndindex(shape):
        same = norm_entropy(P, alphas[index], axis)
        np.testing.assert_allclose(got[index], same[index], rtol=1e-13, atol=1e-16)


def test_norm_entropy_at_the_edges() -> None:
    for alpha in (1, 1.3, 2, 400, np.inf):
        assert (norm_entropy(np.eye(4), alpha) == 0).all()
        assert norm_entropy(np.zeros(3), alpha) == 1
        tiny = normmax.regularizer(np.array([3e-200, 4e-200]), 2)
        np.testing.assert_allclose(tiny, 5e-200, rtol=1e-14)
    for dtype in (np.float16, np.float32, np.float64):
        assert norm_entropy(np.array([0.5, 0.5], dtype)).dtype == dtype
    assert np.isnan(norm_entropy([np.nan, 1.0]))
    with pytest.raises(ValueError, match="alpha must be at least 1, got 0.5"):
        norm_entropy([1.0], 0.5)
    with pytest.raises(ValueError, match="alpha must be at least 1, got nan"):
        norm_entropy([1.0], np.nan)
