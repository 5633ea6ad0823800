"""fusedmax: its smoothing, masks, exact arithmetic at extreme strengths, one axis only."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fused_oracles import error_in_epsilons, exact_fusedmax
from on_gpu import MARKS, on_gpu
from stages import slow

import pyentmax
from pyentmax import fusedmax

EPS = float(np.finfo(np.float64).eps)
BOTH = pytest.mark.parametrize(
    "function",
    [fusedmax, fusedmax.reference, pytest.param(on_gpu(fusedmax), marks=MARKS)],
    ids=["kernel", "reference", "gpu"],
)


@BOTH
@pytest.mark.parametrize("strength", [0.01, 0.1, 0.5, 2])
def test_queue_of_knots_agrees_with_rational_arithmetic(function: Any, strength: float) -> None:
    """In rows of 60, where most of it comes and goes many times; what is fused, to the bit."""
    z = np.random.default_rng(2).standard_normal(60) / 5
    p, exact = function(z, strength), exact_fusedmax(z, strength)
    assert error_in_epsilons(p, exact, z) < 4
    np.testing.assert_array_equal(np.diff(p)[np.diff(exact) == 0], 0)


def test_masked_entry_separates_its_neighbours() -> None:
    z = np.array([0.4, 0.0, 0.3])
    mask = np.array([True, False, True])
    gap = fusedmax(z, 0.5, mask=mask)
    np.testing.assert_allclose(gap, pyentmax.sparsemax(z, mask=mask), rtol=1e-14)
    assert fusedmax(z, 0.5)[0] == fusedmax(z, 0.5)[2]  # unmasked, all three are fused
    np.testing.assert_array_equal(fusedmax([0.4, -np.inf, 0.3], 0.5), gap)


def peaks_and_valleys(seed: int, strength: float, dtype: Any) -> np.ndarray:
    """Scores near 0 and others below by up to a thousand times the strength, which cut the chain or
    do not.
    """
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(rng.integers(2, 14)) * rng.choice([0.2, 1, 3])
    low = rng.random(len(z)) < 0.5
    depth = rng.choice([0.3, 1, 2, 3.5, 4.5, 1e3], low.sum()) * rng.uniform(0.9, 1.1, low.sum())
    z[low] = -strength * depth
    return z.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("strength", [0.3, 30.0, 1e8, *slow(1.0, 1e3, 1e15)])
@BOTH
def test_peaks_stay_apart_at_any_strength(function: Any, strength: float, dtype: Any) -> None:
    """Against rational arithmetic: both lie below their scores by one multiple of the strength."""
    strength = float(dtype(strength))
    for seed in range(15):
        z = peaks_and_valleys(seed, strength, dtype)
        exact = exact_fusedmax(z, strength)
        assert error_in_epsilons(function(z, strength), exact, z) < 4, z
    two = np.array([0, -1e21, 0.2], dtype)
    exact = pyentmax.sparsemax(two[[0, 2]].astype(np.float64))
    got = function(two, strength)[[0, 2]]
    np.testing.assert_allclose(got, exact, rtol=0, atol=float(np.finfo(dtype).eps))


@BOTH
def test_least_strength_fuses_equal_neighbours(function: Any) -> None:
    """Strengths of the size of the scores' rounding: what is fused decides the derivatives."""
    rng = np.random.default_rng(17)
    for _ in range(40):
        z = np.append(0, np.full(rng.integers(2, 6), -rng.uniform(0.02, 0.98)))
        strength = rng.uniform(0.05, 3) * 2.0**-54
        p = function(z, strength)
        assert np.ptp(p[1:]) == 0, (z, strength)
        p = function(z[::-1], strength)
        assert np.ptp(p[:-1]) == 0, (z, strength)


@BOTH
def test_score_at_reach_of_edges_ties_with_peaks(function: Any) -> None:
    z = np.array([-4, 0, -4, 0, -4]) * 2.0**70
    exact = exact_fusedmax(z, 2.0**70)
    assert exact.tolist() == [0, 1 / 3, 1 / 3, 1 / 3, 0]
    np.testing.assert_allclose(function(z, 2.0**70), exact, rtol=EPS, atol=0)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(fusedmax, id="kernel"),
        pytest.param(fusedmax.reference, id="reference", marks=pytest.mark.slow),
    ],
)
def test_long_plateaus_keep_their_digits(function: Any) -> None:
    """Two that a large strength all but fuses, or just does: rounding must not take it for the
    other.
    """
    half, step = 10_000 if function is fusedmax else 500, 0.37
    z = np.repeat([0, step], half)
    for short in 10.0 ** np.arange(-15, -9, 0.5):
        strength = step * half / 2 * (1 - short)
        rise = (Fraction(step) - 2 * Fraction(strength) / half) / 2
        higher = float(1 / Fraction(2 * half) + max(rise, Fraction(0)))
        p = function(z, strength)
        np.testing.assert_allclose(p[half:], higher, rtol=0, atol=4 * EPS)


@pytest.mark.parametrize("axis", [(0, 1), None, (-1, 0)])
def test_several_axes_have_no_order(axis: Any) -> None:
    row, z = np.array([0.3, 0.1, 0.2]), np.zeros((2, 3))
    np.testing.assert_array_equal(fusedmax(row, 0.05, None), fusedmax(row, 0.05))
    np.testing.assert_array_equal(fusedmax([row, row], 0.05, (1,)), fusedmax([row, row], 0.05))
    for call in (
        lambda: fusedmax(z, 0.1, axis),
        lambda: pyentmax.fusedmax.jvp(z, z, 0.1, axis),
        lambda: pyentmax.fusedmax.parameter_vjp(z, z, 0.1, axis),
        lambda: pyentmax.fenchel_young_loss(z, z + 1 / 6, "fusedmax", axis, strength=0.1),
        lambda: pyentmax.fenchel_young_loss_and_grad(z, 0, "fusedmax", axis, strength=0.1),
    ):
        with pytest.raises(ValueError, match="axis must be one axis, .*an order"):
            call()
