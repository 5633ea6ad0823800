"""What fusedmax and oscarmax share: optimality, derivatives, losses, extreme strengths."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from fused_oracles import chain, distance_from_optimality, pairs
from stages import slow

import pyentmax
from pyentmax import MAPPINGS, fenchel_young_loss


class Smoothed(NamedTuple):
    """One of the two mappings, and what tells it from the other."""

    name: str
    edges: Callable[[Any], list[tuple[int, int]]]  # the pairs that the penalty draws together
    edge_weight: float  # of |p_i − p_j|, as a share of the strength
    strength: float  # at which some entries of rows of scale ½ are fused

    def forward(self, z: Any, strength: Any, **options: Any) -> Any:
        return MAPPINGS[self.name](z, strength, **options)

    def function(self, suffix: str) -> Any:
        return getattr(MAPPINGS[self.name], suffix)

    def penalty(self, p: Any, mask: Any) -> float:
        """Σ |p_i − p_j| over neighbours, or Σ max(p_i, p_j) over all pairs, as it is written."""
        if self.name == "fusedmax":
            return sum(abs(p[i] - p[j]) for i, j in chain(mask))
        return sum(max(a, b) for a, b in combinations(p[mask], 2))


# max(a, b) = ½(a + b) + ½|a − b|: oscarmax has an edge of half the strength between any two.
both = pytest.mark.parametrize(
    "case",
    [Smoothed("fusedmax", chain, 1, 0.1), Smoothed("oscarmax", pairs, 0.5, 0.05)],
    ids=lambda case: case.name,
)


@both
@pytest.mark.parametrize("strength", [0, 0.05, 1, np.inf, *slow(1e-3, 0.3, 10, 1e6)])
def test_optimality_conditions(case: Smoothed, strength: float) -> None:
    rng = np.random.default_rng(0)
    for n in range(20):  # scores of both signs, some with ties, some masked
        z = rng.standard_normal(rng.integers(1, 9)) * rng.choice([0.2, 1, 4])
        z = np.round(z * 2) / 2 if n % 3 == 0 else z
        mask = rng.random(len(z)) < (0.7 if n % 2 else 2)
        mask[rng.integers(len(z))] = True
        p = case.forward(z, strength, mask=mask)
        assert (p[~mask] == 0).all()
        place = np.cumsum(mask) - 1
        edges = [(place[i], place[j]) for i, j in case.edges(mask)]
        weight = min(strength, 1e6) * case.edge_weight
        assert distance_from_optimality(z[mask], p[mask], edges, weight) < 1e-9, (z, mask, p)


@both
def test_strength_0_is_sparsemax_bit_for_bit(case: Smoothed) -> None:
    z = np.random.default_rng(4).standard_normal((50, 9))
    np.testing.assert_array_equal(case.forward(z, 0), pyentmax.sparsemax(z))
    body: Any = MAPPINGS[case.name]
    np.testing.assert_array_equal(body.reference(z, 0), pyentmax.sparsemax.reference(z))


@both
def test_vjp_strength_at_0_is_right_derivative(case: Smoothed) -> None:
    rng = np.random.default_rng(11)
    z, g = rng.standard_normal((2, 20, 6)) / 4
    z[:, 2], z[:, 5] = z[:, 1], z[:, 4]  # any strength fuses these
    right = np.sum(g * (case.forward(z, 1e-7) - case.forward(z, 0)), axis=-1) / 1e-7
    got = case.function("parameter_vjp")(case.forward(z, 0), g, np.zeros(20))
    np.testing.assert_allclose(got, right, rtol=0, atol=1e-6)


@both
@pytest.mark.parametrize("masked", [True, False])
def test_loss_is_that_of_its_omega(case: Smoothed, masked: bool) -> None:
    rng = np.random.default_rng(12)
    z, mask = rng.standard_normal((5, 6)), np.ones((5, 6), bool)
    if masked:
        mask[:, 2], mask[::2, 4] = False, False
    q = np.where(mask, rng.random((5, 6)), 0)
    q /= q.sum(axis=-1, keepdims=True)
    options: dict[str, Any] = {"strength": case.strength, "mask": mask, "reduction": "none"}

    def objective(p: np.ndarray) -> Any:
        rows = [case.penalty(*row) for row in zip(p, mask, strict=True)]
        return np.sum(p * z - 0.5 * p * p, axis=-1) - case.strength * np.array(rows)

    p = case.forward(z, case.strength, mask=mask)
    labels = np.array([0, 1, 3, 5, 3])
    for y, target in ((q, q), (labels, np.eye(6)[labels])):
        got, slope = pyentmax.fenchel_young_loss_and_grad(z, y, case.name, **options)
        expected = objective(p) - objective(target)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(slope, p - target, rtol=0, atol=1e-15)
    at_best = fenchel_young_loss(z, p, case.name, **options)
    np.testing.assert_allclose(at_best, 0, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="strength must be finite .*, got inf"):
        fenchel_young_loss(z, labels, case.name, strength=np.inf)


@both
@pytest.mark.parametrize(
    ("z", "strength"),
    [
        (np.array([0, -1e38, 0, 1], np.float32), np.inf),
        (np.array([0, -1e38, 3e38, 1], np.float32), np.inf),
        (np.array([0.0, -1e308] * 50), 1e308),
        (np.array([1e308, -1e308] * 50), np.inf),
    ],
)
def test_scores_near_largest_float_are_fused(
    case: Smoothed, z: np.ndarray, strength: float
) -> None:
    p = case.forward(z, strength)
    np.testing.assert_allclose(p, 1 / z.size, rtol=4 * np.finfo(z.dtype).eps)
    assert MAPPINGS[case.name].support(z, strength).all()


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_very_low_scores_leave_others_exact(case: Smoothed, dtype: Any) -> None:
    """Where −1e9 stands for a mask, running sums through it would lose the other scores' digits."""
    strength = 0.4 * case.strength
    for low in (-1e9, -1e30):
        z = np.array([0.5, low, 0.3, 0.2, low, low, 0.4, 0.1], dtype)
        modest = np.where(z < -100, -100, z).astype(np.float64)
        expected = case.forward(modest, strength)
        assert np.count_nonzero(expected) > 3
        atol = 8 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(case.forward(z, strength), expected, rtol=0, atol=atol)
