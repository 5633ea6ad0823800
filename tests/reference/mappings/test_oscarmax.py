"""oscarmax: its pooling, and exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fused_oracles import error_in_epsilons, exact_oscarmax

from pyentmax import oscarmax


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
