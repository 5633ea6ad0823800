"""What fusedmax and oscarmax share: optimality, derivatives, losses, extreme strengths, errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from fused_oracles import chain, distance_from_optimality, generic_solution, pairs
from stages import slow

import pyentmax
from pyentmax import (
    MAPPINGS,
    check_gradient,
    check_jacobian,
    check_vjp,
    fenchel_young_loss,
    fusedmax,
    oscarmax,
)
from pyentmax.mappings.fusedmax import fusedmax_omega
from pyentmax.mappings.oscarmax import oscarmax_omega


class Case(NamedTuple):
    """One of the two mappings, and what tells it from the other."""

    name: str
    forward: Any
    omega: Any
    edges: Callable[[Any], list[tuple[int, int]]]  # the pairs that the penalty draws together
    edge_weight: float  # of |p_i − p_j|, as a share of the strength
    strength: float  # at which some entries of rows of scale ½ are fused

    def function(self, suffix: str) -> Any:
        return getattr(pyentmax, f"{self.name}_{suffix}")

    def penalty(self, p: Any, mask: Any) -> float:
        """Σ |p_i − p_j| over neighbours, or Σ max(p_i, p_j) over all pairs, as it is written."""
        if self.name == "fusedmax":
            return sum(abs(p[i] - p[j]) for i, j in chain(mask))
        return sum(max(a, b) for a, b in combinations(p[mask], 2))

    def generic(self, z: Any, strength: float) -> Any:
        """The same problem, solved by SLSQP."""
        unit = np.eye(len(z)) * strength
        if self.name == "fusedmax":
            steps = np.diff(unit, axis=0)
            return generic_solution(z, [[step, -step] for step in steps])
        return generic_solution(z, [list(pair) for pair in combinations(unit, 2)])


# max(a, b) = ½(a + b) + ½|a − b|: oscarmax has an edge of half the strength between any two.
CASES = [
    Case("fusedmax", fusedmax, fusedmax_omega, chain, 1, 0.1),
    Case("oscarmax", oscarmax, oscarmax_omega, pairs, 0.5, 0.05),
]
both = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@both
@pytest.mark.parametrize("strength", [0, 0.05, 1, np.inf, *slow(1e-3, 0.3, 10, 1e6)])
def test_optimality_conditions(case: Case, strength: float) -> None:
    rng = np.random.default_rng(0)
    for n in range(40):  # scores of both signs, some with ties, some masked
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
@pytest.mark.parametrize("strength", [0.02, 0.2, 0.7])
def test_generic_solver_agrees(case: Case, strength: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        z = rng.standard_normal(6)
        expected = case.generic(z, strength)
        np.testing.assert_allclose(case.forward(z, strength), expected, rtol=0, atol=2e-6)


@both
def test_strength_0_is_sparsemax_bit_for_bit(case: Case) -> None:
    z = np.random.default_rng(4).standard_normal((50, 9))
    np.testing.assert_array_equal(case.forward(z, 0), pyentmax.sparsemax(z))
    expected = pyentmax.sparsemax.reference(z)
    np.testing.assert_array_equal(case.forward.reference(z, 0), expected)


@both
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_strength_broadcasts_over_batch(case: Case, axis: int) -> None:
    z = np.random.default_rng(7).standard_normal((3, 4, 5))
    strengths = [0, 0.02, 1, np.inf]
    strength = np.random.default_rng(8).choice(strengths, z.sum(axis=axis).shape)
    p = case.forward(z, strength, axis)
    for value in strengths:
        same = np.broadcast_to(np.expand_dims(strength == value, axis), z.shape)
        np.testing.assert_allclose(p[same], case.forward(z, value, axis)[same], rtol=1e-14)


@both
@pytest.mark.parametrize("share", [0.0, 1.0, *slow(0.3, 4.0)])
def test_derivatives_against_differences(case: Case, share: float) -> None:
    z, strength = np.random.default_rng(9).standard_normal((4, 7)) / 2, share * case.strength
    check_jacobian(
        lambda z: case.forward(z, strength),
        z,
        lambda p: case.function("jacobian")(p, strength),
        rtol=1e-5,
    ).raise_if_failed()
    mask = np.array([True, True, True, False, True, True, True])[:, None]
    check_vjp(
        lambda z: case.forward(z, strength, axis=0, mask=mask),
        z.T,
        lambda p, v: case.function("vjp")(p, v, strength, axis=0, mask=mask),
        rtol=1e-5,
    ).raise_if_failed()


@both
def test_ties_are_averaged_only_with_strength(case: Case) -> None:
    p = np.array([0.25, 0.25, 0.5])
    v = np.array([1.0, 0.0, 0.0])
    without, fused = pyentmax.sparsemax_jvp(p, v), [1 / 6, 1 / 6, -1 / 3]
    mixed = case.function("jvp")([p, p], [v, v], [0, 0.1])
    np.testing.assert_allclose(mixed, [without, fused], rtol=1e-15)
    matrices = case.function("jacobian")([p, p], [0, 0.1])
    np.testing.assert_allclose(matrices @ v, mixed, rtol=1e-14)


@both
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(), (4,), (3, 1), (3, 4)])
def test_vjp_strength_against_differences(case: Case, shape: tuple[int, ...], masked: bool) -> None:
    rng = np.random.default_rng(10)
    z, g = rng.standard_normal((2, 3, 4, 8)) / 2
    mask = rng.random(z.shape) < 0.8 if masked else np.ones(z.shape, bool)
    mask[..., 0] = True
    strength = np.asarray(case.strength * rng.uniform(0.2, 2, shape))

    def total(strength: Any) -> float:
        return float(np.sum(g * case.forward(z, strength, mask=mask)))

    p = case.forward(z, strength, mask=mask)
    spoiled = np.where(mask, g, np.nan)
    got = case.function("vjp_strength")(p, spoiled, strength, mask=mask)
    assert got.shape == shape
    numeric = np.empty(shape)
    for index in np.ndindex(*shape):
        up, down = strength.copy(), strength.copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        numeric[index] = (total(up) - total(down)) / 2e-6
    np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8)
    across = case.function("vjp_strength")(
        np.moveaxis(p, -1, 0), np.moveaxis(g, -1, 0), strength, 0, mask=np.moveaxis(mask, -1, 0)
    )
    np.testing.assert_allclose(across, got, rtol=1e-12)


@both
def test_vjp_strength_at_0_is_right_derivative(case: Case) -> None:
    rng = np.random.default_rng(11)
    z, g = rng.standard_normal((2, 20, 6)) / 4
    z[:, 2], z[:, 5] = z[:, 1], z[:, 4]  # any strength fuses these
    right = np.sum(g * (case.forward(z, 1e-7) - case.forward(z, 0)), axis=-1) / 1e-7
    got = case.function("vjp_strength")(case.forward(z, 0), g, np.zeros(20))
    np.testing.assert_allclose(got, right, rtol=0, atol=1e-6)


@both
def test_direction_off_support_is_ignored(case: Case) -> None:
    strength = case.strength / 5
    p = case.forward([0.9, 0.8, -1, -1, 0.9], strength)
    assert (p[2:4] == 0).all()
    v = np.array([0.3, -0.2, 0, 0, 1])
    for rubbish in ([np.nan, 1], [np.inf, -np.inf]):
        spoiled = v.copy()
        spoiled[2:4] = rubbish
        for function in (case.function("jvp"), case.function("vjp_strength")):
            np.testing.assert_array_equal(function(p, spoiled, strength), function(p, v, strength))


@both
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_derivatives_of_half_nan_dead_and_empty_rows(case: Case, dtype: Any) -> None:
    p = case.forward(np.array([[0.3, 0.2, 0.1], [np.nan, 0, 0]], dtype), 0.01)
    slope = case.function("vjp_strength")(p, np.ones_like(p), [0.01, 0.01])
    assert slope.dtype == case.omega(p, 0.01).dtype == dtype
    assert np.isfinite(slope).tolist() == [True, False]
    jacobian = case.function("jacobian")(p, 0.01)
    assert np.isfinite(jacobian[0]).all()
    assert np.isnan(jacobian[1]).all()
    for rows in (np.zeros((2, 3)), np.zeros((0, 3))):
        assert (case.function("jacobian")(rows, 0.1) == 0).all()
        assert case.function("vjp_strength")(rows, np.ones_like(rows), 0.1) == 0


@both
@pytest.mark.parametrize("masked", [True, *slow(False)])
def test_loss_is_that_of_its_omega(case: Case, masked: bool) -> None:
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
        got = fenchel_young_loss(z, y, case.name, **options)
        expected = objective(p) - objective(target)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    at_best = fenchel_young_loss(z, p, case.name, **options)
    np.testing.assert_allclose(at_best, 0, rtol=0, atol=1e-14)
    options["reduction"] = "sum"
    check_gradient(
        lambda z: fenchel_young_loss(z, labels, case.name, **options),
        z,
        lambda z: pyentmax.fenchel_young_loss_and_grad(z, labels, case.name, **options)[1],
    ).raise_if_failed()


@both
@pytest.mark.parametrize(
    ("strength", "message"),
    [
        (-0.1, "strength must be at least 0, got -0.1"),
        (np.nan, "strength must be at least 0, got nan"),
        ([0.1, -2], "strength must be at least 0, got -2"),
        ([1.0] * 3, r"strength of shape \(3,\) .*batch shape \(2,\)"),
    ],
)
def test_bad_strength_writes_nothing(case: Case, strength: Any, message: str) -> None:
    out, z = np.full((2, 3), 7.0), np.zeros((2, 3))
    with pytest.raises(ValueError, match=message):
        case.forward(z, strength, out=out)
    assert (out == 7).all()
    with pytest.raises(ValueError, match=message):
        case.function("support")(z, strength)
    with pytest.raises(ValueError, match=message):
        case.function("jacobian")(z, strength)
    for name in ("jvp", "vjp_strength"):
        with pytest.raises(ValueError, match=message):
            case.function(name)(z, z, strength)


@both
def test_infinite_strength_has_no_loss(case: Case) -> None:
    with pytest.raises(ValueError, match="strength must be finite .*, got inf"):
        fenchel_young_loss([[1.0, 0.5, 0.0]], [0], case.name, strength=np.inf)


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
def test_scores_near_largest_float_are_fused(case: Case, z: np.ndarray, strength: float) -> None:
    p = case.forward(z, strength)
    np.testing.assert_allclose(p, 1 / z.size, rtol=4 * np.finfo(z.dtype).eps)
    assert MAPPINGS[case.name].support(z, strength).all()


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_very_low_scores_leave_others_exact(case: Case, dtype: Any) -> None:
    """Where −1e9 stands for a mask, running sums through it would lose the other scores' digits."""
    strength = 0.4 * case.strength
    for low in (-1e9, -1e30):
        z = np.array([0.5, low, 0.3, 0.2, low, low, 0.4, 0.1], dtype)
        modest = np.where(z < -100, -100, z).astype(np.float64)
        expected = case.forward(modest, strength)
        assert np.count_nonzero(expected) > 3
        atol = 8 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(case.forward(z, strength), expected, rtol=0, atol=atol)
