"""oscarmax: its pooling, the published shortcut's fault, exact arithmetic, masks."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from fused_oracles import error_in_epsilons, exact_oscarmax, pairs, smoothed_by_the_dual
from scipy.optimize import isotonic_regression

import pyentmax
from pyentmax import oscarmax
from pyentmax.mappings.oscarmax import _pooled


def objective(z: np.ndarray, p: np.ndarray, strength: float) -> float:
    """p·z − ½‖p‖² − λ Σ_{i<j} max(p_i, p_j), as it is written."""
    largest = sum(max(a, b) for a, b in combinations(p, 2))
    return float(p @ z - 0.5 * p @ p - strength * largest)


def bare_owl_prox(z: np.ndarray, strength: float) -> np.ndarray:
    """argmin ½‖u − z‖² + λ Σ_{i<j} max(|u_i|, |u_j|): the norm's prox (Zeng & Figueiredo 2014)."""
    order = np.argsort(-np.abs(z))
    weights = strength * np.arange(len(z))[::-1]
    fitted = isotonic_regression(np.abs(z)[order] - weights, increasing=False).x
    u = np.empty_like(z)
    u[order] = np.maximum(fitted, 0)
    return np.sign(z) * u


def test_owl_prox_is_oscarmax_only_for_high_scores() -> None:
    """torchsparseattn takes sparsemax(bare_owl_prox(z)), whatever the scores' signs."""
    rng = np.random.default_rng(2)
    loss = []
    for _ in range(40):
        z, strength = rng.standard_normal(6), rng.uniform(0.05, 0.5)
        ours = oscarmax(z, strength)
        theirs = pyentmax.sparsemax(bare_owl_prox(z, strength))
        loss.append(objective(z, ours, strength) - objective(z, theirs, strength))
        high = z + 100
        at_height = pyentmax.sparsemax(bare_owl_prox(high, strength))
        np.testing.assert_allclose(at_height, ours, rtol=0, atol=1e-12)
    assert min(loss) > -1e-14
    assert max(loss) > 0.05


@pytest.mark.parametrize("strength", [0.003, 0.02, 0.2])
def test_pooling_agrees_with_dual_and_scipy(strength: float) -> None:
    z = np.random.default_rng(3).standard_normal(12)
    z -= z.max()
    expected = smoothed_by_the_dual(z, pairs(np.ones(12, bool)), strength / 2)
    u = _pooled(z, np.asarray(strength))
    np.testing.assert_allclose(u, expected - expected.max(), rtol=0, atol=1e-9)
    x = -np.sort(np.random.default_rng(4).random(2000))
    x -= x.max()
    expected = isotonic_regression(
        x + strength / 500 * (np.arange(2000) - 999.5), increasing=False
    ).x
    u = _pooled(x, np.asarray(strength / 500))
    assert 1 < len(np.unique(u)) < 2000
    np.testing.assert_allclose(u, expected - expected.max(), rtol=0, atol=1e-12)


def test_rows_that_pool_one_by_one() -> None:
    """Ties below a slope pull it in entry by entry: as many passes as there are entries."""
    x = np.concatenate([-1.01e-3 * np.arange(100), np.full(100, -0.101)])
    y = x + 1e-3 * (np.arange(200) - 99.5)
    expected = isotonic_regression(y, increasing=False).x
    u = _pooled(x, np.asarray(1e-3))
    np.testing.assert_allclose(u, expected - expected.max(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("strength", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("function", [oscarmax, oscarmax.reference], ids=["kernel", "reference"])
def test_long_rows_keep_leading_digits(function: Any, strength: float, dtype: Any) -> None:
    """Against rational arithmetic: 800 places, of which the first few count."""
    strength = float(dtype(strength))
    rng = np.random.default_rng(0)
    for share in (0.0, 0.7):  # of neighbours that change places, and are pooled
        u = -0.15 * np.cumsum(np.abs(rng.standard_normal(800)))
        z = u - strength * (np.arange(800) - (rng.random(800) < share))
        z = rng.permutation(z.astype(dtype))
        exact = exact_oscarmax(z, strength)
        assert error_in_epsilons(function(z, strength), exact, z) < 4


def test_groups_are_bitwise_equal_anywhere() -> None:
    p = oscarmax([1.0, -1.0, 0.9, 0.2, 1.1, 0.0], 0.11)
    assert p[0] == p[2] == p[4] > 0
    assert (p[[1, 3, 5]] == 0).all()
