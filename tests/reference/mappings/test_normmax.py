"""normmax: accuracy, the ends of α, its loss and its entropy."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import pyentmax
from pyentmax import norm_entropy, normmax

ALPHAS = [1.001, 1.1, 1.5, 2, 3, 10, 50]


def exact_normmax(z: np.ndarray, alpha: float) -> tuple[list[mpmath.mpf], mpmath.mpf]:
    """p and τ of one row in 40 digits, by bisection on τ."""
    with mpmath.workdps(40):
        scores = [mpmath.mpf(float(x)) for x in z]
        power = 1 / (mpmath.mpf(alpha) - 1)
        low, high = max(scores) - 1, max(scores)
        for _ in range(140):
            tau = (low + high) / 2
            enough = sum(max(x - tau, 0) ** (power * alpha) for x in scores) >= 1
            low, high = (tau, high) if enough else (low, tau)
        q = [max(x - low, mpmath.mpf(0)) ** power for x in scores]
        return [x / sum(q) for x in q], low


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_accuracy_in_many_digits(alpha: float, dtype: type) -> None:
    """|p − p*| ≤ 4ε p* + 16ε s*, s* of the Jacobian, up to α = 2; exact for moved scores above."""
    rng = np.random.default_rng(1)
    epsilon = float(np.finfo(dtype).eps)
    for d in (1, 2, 10):
        for scale in (1e-3, 0.3, 30.0):
            for offset in (0.0, -1e4):
                z = (rng.standard_normal(d) * scale + offset).astype(dtype)
                p = normmax(z, alpha)
                assert p.dtype == dtype
                assert abs(p.sum(dtype=float) - 1) <= 4 * epsilon * np.sqrt(d)
                exact, tau = exact_normmax(z, alpha)
                best = np.array([float(x) for x in exact])
                norm = float(sum(x**alpha for x in exact) ** (1 / mpmath.mpf(alpha)))
                on = best > 0
                if alpha <= 2:
                    s = best[on] ** (2 - alpha) * norm ** (alpha - 1) / (alpha - 1)
                    allowed = np.maximum(4 * epsilon * best[on] + 16 * epsilon * s, 1e-37)
                    assert (np.abs(p[on] - best[on]) <= allowed).all()
                    assert (p[~on] ** (alpha - 1) <= 16 * epsilon).all()
                else:
                    # The scores that p would be exact for, from (p/‖p‖)^{α−1} = z − τ.
                    root = p.astype(float) / np.sum(p.astype(float) ** alpha) ** (1 / alpha)
                    above = z.astype(float) - z.astype(float).max()
                    level = float(tau - mpmath.mpf(float(z.max())))
                    moved = np.where(p > 0, root ** (alpha - 1) - (above - level), 0)
                    assert np.abs(moved).max() <= 8 * epsilon * max(1, alpha / 8)
                    assert (above[p == 0] <= level + 8 * epsilon).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.1, 2, 10])
def test_long_rows_meet_optimality_conditions(alpha: float, dtype: type) -> None:
    z = (np.random.default_rng(2).standard_normal(50_000) * 0.3).astype(dtype)
    p = normmax(z, alpha).astype(float)
    epsilon = np.finfo(dtype).eps
    assert abs(p.sum() - 1) <= 4 * epsilon * np.sqrt(p.size)
    q = p / np.sum(p**alpha) ** (1 / alpha)
    tau = z - q ** (alpha - 1)
    on = p > 1e-30
    assert np.ptp(tau[on]) <= 32 * epsilon
    underflow = 1e-38 ** (alpha - 1) if alpha < 2 else 0
    assert z[p == 0].max() <= tau[on].min() + 32 * epsilon + underflow


def test_score_one_below_largest_gets_nothing() -> None:
    for alpha in (1.0001, 1.5, 2, 30, np.inf):
        np.testing.assert_array_equal(normmax([1.0, 0.0, -4.0], alpha), [1, 0, 0])
        assert normmax([1.0, 0.1], alpha)[1] > 0 or alpha < 1.5
        on = pyentmax.normmax.support([[1.0, 0.1, 0.0], [1.0, 0.0, -0.1]], alpha)
        np.testing.assert_array_equal(on, [[True, True, False], [True, False, False]])


@pytest.mark.parametrize("alpha", [2, 20, 50])
def test_score_just_above_threshold_keeps_its_digits(alpha: float) -> None:
    """A score that is an ulp or a few above the threshold: its power of 1/(α−1) shows every bit."""
    for left in 2.0**-53 * np.array([1, 3, 100, 1e8]):
        for others in ([], [0.0], [-0.3, 0.5]):
            z = np.array([1 - left, *others, 0.0])
            best = [float(x) for x in exact_normmax(z, alpha)[0]]
            # Few units of rounding: a power by logarithms, of up to 36, costs some.
            np.testing.assert_allclose(normmax(z, alpha), best, rtol=16 * 2.0**-52, atol=0)


def test_score_rounded_onto_threshold_spoils_no_row() -> None:
    # Its q was 0 to the power of 0 times -∞: a NaN, and a row of zeros.
    z = [-6.591978492581317e-14, 0.32830883026969465, 0.3059988294392768, 0.3656923402908306]
    np.testing.assert_allclose(normmax(z, np.inf), [0, 1 / 3, 1 / 3, 1 / 3], rtol=1e-15)


def test_infinite_alpha_is_uniform_over_sparsemax_support() -> None:
    z = np.random.default_rng(3).standard_normal((50, 8))
    on = pyentmax.sparsemax(z) > 0
    p = normmax(z, np.inf)
    np.testing.assert_allclose(p, on / on.sum(axis=-1, keepdims=True), rtol=1e-15)
    np.testing.assert_allclose(normmax(z, 1e12), p, rtol=1e-9)
    # No uniform distribution does better in p·z − max p.
    best = np.sum(p * z, axis=-1) - p.max(axis=-1)
    for size in range(1, 9):
        top = np.sort(z, axis=-1)[:, -size:]
        assert (top.mean(axis=-1) - 1 / size <= best + 1e-14).all()
    assert (pyentmax.normmax.jvp(p, z, np.inf) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.05, 1.5, 2, 3, 10])
def test_jacobian_in_many_digits(alpha: float) -> None:
    """Differences of the 40-digit solution: none of the digits that rounding costs."""
    z = np.random.default_rng(6).standard_normal(4) * 0.3
    jacobian = pyentmax.normmax.jacobian(normmax(z, alpha), alpha)
    step = 2.0**-20
    for j in range(4):
        up, down = (exact_normmax(z + sign * step * np.eye(4)[j], alpha)[0] for sign in (1, -1))
        numeric = [float((a - b) / (2 * step)) for a, b in zip(up, down, strict=True)]
        np.testing.assert_allclose(
            jacobian[:, j], numeric, rtol=0, atol=1e-8 * np.abs(jacobian).max()
        )


@pytest.mark.parametrize("alpha", [1.1, 1.5, 2, 5, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loss_is_zero_from_margin_1_on(alpha: float, dtype: type) -> None:
    for offset in (0, 1e4):
        z = (np.array([0.0, 1.01, -3.0]) + offset).astype(dtype)
        loss, grad = pyentmax.normmax.loss_and_grad(z, 1, alpha)
        assert loss == 0
        assert (grad == 0).all()
        z = (np.array([0.0, 0.5, -3.0]) + offset).astype(dtype)
        assert pyentmax.normmax.loss(z, 1, alpha) > 0 or alpha < 1.5  # there it may underflow


@pytest.mark.parametrize("alpha", [1.1, 1.5, 2, 5])
def test_loss_is_tau_plus_1_minus_score(alpha: float) -> None:
    z = np.random.default_rng(8).standard_normal(6) / 2
    _, tau = exact_normmax(z, alpha)
    for label in range(6):
        expected = float(tau + 1 - mpmath.mpf(float(z[label])))
        for y in (label, np.eye(6)[label]):
            loss = pyentmax.normmax.loss(z, y, alpha)
            np.testing.assert_allclose(loss, expected, rtol=1e-14, atol=1e-15)


P = np.random.default_rng(9).dirichlet(np.ones(6) / 2, size=(3, 4))


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
        tiny = pyentmax.normmax.regularizer(np.array([3e-200, 4e-200]), 2)
        np.testing.assert_allclose(tiny, 5e-200, rtol=1e-14)
    for dtype in (np.float16, np.float32, np.float64):
        assert norm_entropy(np.array([0.5, 0.5], dtype)).dtype == dtype
    assert np.isnan(norm_entropy([np.nan, 1.0]))
    with pytest.raises(ValueError, match="alpha must be at least 1, got 0.5"):
        norm_entropy([1.0], 0.5)
    with pytest.raises(ValueError, match="alpha must be at least 1, got nan"):
        norm_entropy([1.0], np.nan)
