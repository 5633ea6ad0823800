"""What a mapping chosen by name says about its zeros."""

from __future__ import annotations

import numpy as np
import pytest

from pyentmax.nn.mapping_choice import choose_mapping


@pytest.mark.parametrize("name", ["fusedmax:0.1", "oscarmax:0.1"])
def test_support_holds_all_positive_probabilities(name: str) -> None:
    # p and the support are found apart, and a score on the threshold may be in one of them alone.
    rng = np.random.default_rng(0)
    for _ in range(4000):
        z = np.round(4 * rng.standard_normal((4, 6))) / 8
        log_p, possible, _ = choose_mapping(name).certified(z)
        assert possible[log_p > -np.inf].all()
