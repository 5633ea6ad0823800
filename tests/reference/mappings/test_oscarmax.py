"""oscarmax: its pooling, and exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fused_oracles import error_in_epsilons, exact_oscarmax
from scipy.optimize import isotonic_regression

from pyentmax import oscarmax
from pyentmax.reference.mappings.oscarmax import _pooled


@pytest.mark.parametrize("strength", [6e-6, 4e-5, 4e-4])
def test_pooling_agrees_with_scipy(strength: float) -> None:
    x = -np.sort(np.random.default_rng(4).random(2000))
    x -= x.max()
    expected = isotonic_regression(x + strength * (np.arange(2000) - 999.5), increasing=False).x
    u = _pooled(x, np.asarray(strength))
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
