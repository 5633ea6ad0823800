"""oscarmax: optimality, generic solvers, the published shortcut's fault, derivatives, refusals."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from fused_oracles import (
    distance_from_optimality,
    error_in_epsilons,
    exact_oscarmax,
    generic_solution,
    pairs,
    smoothed_by_the_dual,
)
from scipy.optimize import isotonic_regression

import pyentmax
from pyentmax import (
    MAPPINGS,
    check_gradient,
    check_jacobian,
    check_vjp,
    fenchel_young_loss,
    oscarmax,
)
from pyentmax.mappings.oscarmax import _pooled, oscarmax_omega

STRENGTHS = [0, 1e-3, 0.03, 0.2, 1, 10, 1e6, np.inf]


def objective(z: np.ndarray, p: np.ndarray, strength: float) -> float:
    """p·z − ½‖p‖² − λ Σ_{i<j} max(p_i, p_j), as it is written."""
    largest = sum(max(a, b) for a, b in combinations(p, 2))
    return float(p @ z - 0.5 * p @ p - strength * largest)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_meets_the_optimality_conditions(strength: float) -> None:
    """max(a, b) = ½(a + b) + ½|a − b|: an edge of half the strength between any two."""
    rng = np.random.default_rng(0)
    for n in range(40):
        z = rng.standard_normal(rng.integers(1, 8)) * rng.choice([0.2, 1, 4])
        z = np.round(z * 2) / 2 if n % 3 == 0 else z
        mask = rng.random(len(z)) < (0.7 if n % 2 else 2)
        mask[rng.integers(len(z))] = True
        p = oscarmax(z, strength, mask=mask)
        assert (p[~mask] == 0).all()
        edges = pairs(np.ones(mask.sum(), bool))
        error = distance_from_optimality(z[mask], p[mask], edges, min(strength, 1e6) / 2)
        assert error < 1e-9, (z, mask, p)


@pytest.mark.parametrize("strength", [0.02, 0.1, 0.4])
def test_agrees_with_a_generic_solver_on_scores_of_both_signs(strength: float) -> None:
    rng = np.random.default_rng(1)
    unit = np.eye(5)
    for _ in range(5):
        z = rng.standard_normal(5)
        penalty = [[strength * unit[i], strength * unit[j]] for i, j in combinations(range(5), 2)]
        expected = generic_solution(z, penalty)
        np.testing.assert_allclose(oscarmax(z, strength), expected, rtol=0, atol=2e-6)


def bare_owl_prox(z: np.ndarray, strength: float) -> np.ndarray:
    """argmin ½‖u − z‖² + λ Σ_{i<j} max(|u_i|, |u_j|): the norm's prox (Zeng & Figueiredo 2014)."""
    order = np.argsort(-np.abs(z))
    weights = strength * np.arange(len(z))[::-1]
    fitted = isotonic_regression(np.abs(z)[order] - weights, increasing=False).x
    u = np.empty_like(z)
    u[order] = np.maximum(fitted, 0)
    return np.sign(z) * u


def test_the_bare_owl_prox_is_not_oscarmax_unless_scores_are_high() -> None:
    """torchsparseattn takes sparsemax(bare_owl_prox(z)), whatever the scores' signs."""
    rng = np.random.default_rng(2)
    loss = []
    for _ in range(200):
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
def test_pooling_agrees_with_the_dual_problem_and_another_isotonic_regression(
    strength: float,
) -> None:
    z = np.random.default_rng(3).standard_normal((3, 12))
    u = _pooled(z - z.max(axis=-1, keepdims=True), np.asarray(strength))
    for got, row in zip(u, z - z.max(axis=-1, keepdims=True), strict=True):
        expected = smoothed_by_the_dual(row, pairs(np.ones(12, bool)), strength / 2)
        np.testing.assert_allclose(got, expected - expected.max(), rtol=0, atol=1e-9)
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


def test_strength_0_is_sparsemax_to_the_last_bit() -> None:
    z = np.random.default_rng(5).standard_normal((50, 9))
    np.testing.assert_array_equal(oscarmax(z, 0), pyentmax.sparsemax(z))
    np.testing.assert_array_equal(oscarmax.reference(z, 0), pyentmax.sparsemax.reference(z))


@pytest.mark.parametrize("strength", [1e3, 1e30, 1e308, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_strengths_fuse_all(strength: float, dtype: Any) -> None:
    z = np.random.default_rng(6).standard_normal((4, 7)).astype(dtype)
    digits = 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(oscarmax(z, strength), 1 / 7, rtol=digits)
    mask = np.array([True, False, True, False, True, True, True])
    p = oscarmax(z, strength, mask=mask)
    np.testing.assert_allclose(p, np.broadcast_to(mask / 5, p.shape), rtol=digits)


def test_masked_entries_do_not_exist() -> None:
    z = np.random.default_rng(7).standard_normal((30, 7)) / 2
    mask = np.array([True, False, True, True, False, True, True])
    p = oscarmax(z, 0.05, mask=mask)
    np.testing.assert_allclose(p[:, mask], oscarmax(z[:, mask], 0.05), rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_very_low_score_does_not_swamp_its_row(dtype: Any) -> None:
    z = np.array([0.5, -1e9, 0.3, 0.2, -1e9, -1e9, 0.4, 0.1], dtype)
    modest = np.where(z < -100, -100, z).astype(np.float64)
    tolerance = 8 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(oscarmax(z, 0.02), oscarmax(modest, 0.02), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("strength", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("function", [oscarmax, oscarmax.reference], ids=["kernel", "reference"])
def test_how_long_a_row_is_does_not_round_what_leads(
    function: Any, strength: float, dtype: Any
) -> None:
    """Against rational arithmetic: 800 places, of which the first few count."""
    strength = float(dtype(strength))
    rng = np.random.default_rng(0)
    for share in (0.0, 0.7):  # of neighbours that change places, and are pooled
        u = -0.15 * np.cumsum(np.abs(rng.standard_normal(800)))
        z = u - strength * (np.arange(800) - (rng.random(800) < share))
        z = rng.permutation(z.astype(dtype))
        exact = exact_oscarmax(z, strength)
        assert error_in_epsilons(function(z, strength), exact, z) < 4


@pytest.mark.parametrize("function", [oscarmax, oscarmax.reference], ids=["kernel", "reference"])
def test_gaps_beyond_the_largest_float(function: Any) -> None:
    z = np.array([1.7e308, -1.7e308, 0.0])
    assert function(z, 1.6e308).tolist() == [1, 0, 0]
    p = function(z, 1.75e308)
    assert np.ptp(p) == 0
    np.testing.assert_allclose(p, 1 / 3, rtol=float(np.finfo(np.float64).eps), atol=0)


def test_groups_are_equal_to_the_last_bit_and_anywhere() -> None:
    p = oscarmax([1.0, -1.0, 0.9, 0.2, 1.1, 0.0], 0.11)
    assert p[0] == p[2] == p[4] > 0
    assert (p[[1, 3, 5]] == 0).all()


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), None])
def test_strength_broadcasts_over_the_batch(axis: Any) -> None:
    z = np.random.default_rng(8).standard_normal((3, 4, 5))
    batch = z.sum(axis=axis).shape
    strength = np.random.default_rng(9).choice([0, 0.02, 1, np.inf], batch)
    p = oscarmax(z, strength, axis)
    for value in (0, 0.02, 1, np.inf):
        rows = np.expand_dims(strength == value, (0, 1, 2) if axis is None else axis)
        same = np.broadcast_to(rows, z.shape)
        np.testing.assert_allclose(p[same], oscarmax(z, value, axis)[same], rtol=1e-14)


@pytest.mark.parametrize("strength", [0.0, 0.01, 0.05, 0.2])
def test_derivatives_by_finite_differences(strength: float) -> None:
    z = np.random.default_rng(10).standard_normal((4, 7)) / 2
    check_jacobian(
        lambda z: oscarmax(z, strength),
        z,
        lambda p: pyentmax.oscarmax_jacobian(p, strength),
        rtol=1e-5,
    ).raise_if_failed()
    mask = np.array([True, True, True, False, True, True, True])[:, None]
    check_vjp(
        lambda z: oscarmax(z, strength, axis=0, mask=mask),
        z.T,
        lambda p, v: pyentmax.oscarmax_vjp(p, v, strength, axis=0, mask=mask),
        rtol=1e-5,
    ).raise_if_failed()


def test_ties_are_not_averaged_without_strength() -> None:
    p = np.array([0.25, 0.5, 0.25])
    v = np.array([1.0, 0.0, 0.0])
    mixed = pyentmax.oscarmax_jvp([p, p], [v, v], [0, 0.1])
    np.testing.assert_allclose(mixed[0], pyentmax.sparsemax_jvp(p, v), rtol=1e-15)
    np.testing.assert_allclose(mixed[1], [1 / 6, -1 / 3, 1 / 6], rtol=1e-15)
    both = pyentmax.oscarmax_jacobian([p, p], [0, 0.1])
    np.testing.assert_allclose(both @ v, mixed, rtol=1e-14)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(), (4,), (3, 1), (3, 4), (1, 1), (1,)])
def test_vjp_strength_by_finite_differences(shape: tuple[int, ...], masked: bool) -> None:
    rng = np.random.default_rng(11)
    z, g = rng.standard_normal((2, 3, 4, 8)) / 2
    mask = rng.random(z.shape) < 0.8 if masked else np.ones(z.shape, bool)
    mask[..., 0] = True
    strength = rng.uniform(0.005, 0.06, shape)

    def total(strength: Any) -> float:
        return float(np.sum(g * oscarmax(z, strength, mask=mask)))

    p = oscarmax(z, strength, mask=mask)
    spoiled = np.where(mask, g, np.nan)
    got = pyentmax.oscarmax_vjp_strength(p, spoiled, strength, mask=mask)
    assert got.shape == shape
    numeric = np.empty(shape)
    for index in np.ndindex(*shape):
        up, down = strength.copy(), strength.copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        numeric[index] = (total(up) - total(down)) / 2e-6
    np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8)
    across = pyentmax.oscarmax_vjp_strength(
        np.moveaxis(p, -1, 0), np.moveaxis(g, -1, 0), strength, 0, mask=np.moveaxis(mask, -1, 0)
    )
    np.testing.assert_allclose(across, got, rtol=1e-12)


def test_vjp_strength_at_0_is_the_derivative_to_the_right() -> None:
    rng = np.random.default_rng(12)
    z, g = rng.standard_normal((2, 20, 6)) / 4
    z[:, 3], z[:, 5] = z[:, 1], z[:, 0]  # which any strength fuses
    right = np.sum(g * (oscarmax(z, 1e-7) - oscarmax(z, 0)), axis=-1) / 1e-7
    got = pyentmax.oscarmax_vjp_strength(oscarmax(z, 0), g, np.zeros(20))
    np.testing.assert_allclose(got, right, rtol=0, atol=1e-6)


def test_off_the_support_a_direction_may_hold_anything() -> None:
    p = oscarmax([0.9, 0.8, -1, -1, 0.9], 0.01)
    assert (p[2:4] == 0).all()
    v = np.array([0.3, -0.2, 0, 0, 1])
    for rubbish in ([np.nan, 1], [np.inf, -np.inf]):
        spoiled = v.copy()
        spoiled[2:4] = rubbish
        for function in (pyentmax.oscarmax_jvp, pyentmax.oscarmax_vjp_strength):
            np.testing.assert_array_equal(function(p, spoiled, 0.01), function(p, v, 0.01))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_derivatives_keep_dtypes_and_rows_without_anything(dtype: Any) -> None:
    p = oscarmax(np.array([[0.3, 0.2, 0.1], [np.nan, 0, 0]], dtype), 0.01)
    slope = pyentmax.oscarmax_vjp_strength(p, np.ones_like(p), [0.01, 0.01])
    assert slope.dtype == oscarmax_omega(p, 0.01).dtype == dtype
    assert np.isfinite(slope[0])
    assert np.isnan(slope[1])
    jacobian = pyentmax.oscarmax_jacobian(p, 0.01)
    assert np.isfinite(jacobian[0]).all()
    assert np.isnan(jacobian[1]).all()
    dead = np.zeros((2, 3))
    assert (pyentmax.oscarmax_jacobian(dead, 0.1) == 0).all()
    assert pyentmax.oscarmax_vjp_strength(dead, np.ones((2, 3)), 0.1) == 0
    empty = np.zeros((0, 3))
    assert pyentmax.oscarmax_jvp(empty, empty, 0.1).shape == (0, 3)
    assert pyentmax.oscarmax_vjp_strength(empty, empty, 0.1) == 0


@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_is_that_of_its_omega(masked: bool) -> None:
    rng = np.random.default_rng(13)
    z = rng.standard_normal((5, 6))
    mask = np.ones((5, 6), bool)
    if masked:
        mask[:, 2], mask[::2, 4] = False, False
    q = np.where(mask, rng.random((5, 6)), 0)
    q /= q.sum(axis=-1, keepdims=True)
    p = oscarmax(z, 0.05, mask=mask)
    labels = np.array([0, 1, 3, 5, 3])

    def gain(z: np.ndarray, p: np.ndarray, mask: np.ndarray) -> float:
        np.testing.assert_allclose(
            -oscarmax_omega(p, 0.05), objective(np.zeros(6), p, 0.05), rtol=1e-13
        )
        return objective(z[mask], p[mask], 0.05)

    best = [gain(*row) for row in zip(z, p, mask, strict=True)]
    options: dict[str, Any] = {"strength": 0.05, "mask": mask, "reduction": "none"}
    for y, target in ((q, q), (labels, np.eye(6)[labels])):
        expected = np.subtract(best, [gain(*row) for row in zip(z, target, mask, strict=True)])
        got = fenchel_young_loss(z, y, "oscarmax", **options)
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)
    at_best = fenchel_young_loss(z, p, "oscarmax", **options)
    np.testing.assert_allclose(at_best, 0, rtol=0, atol=1e-14)
    options["reduction"] = "sum"
    check_gradient(
        lambda z: fenchel_young_loss(z, labels, "oscarmax", **options),
        z,
        lambda z: pyentmax.fenchel_young_loss_and_grad(z, labels, "oscarmax", **options)[1],
    ).raise_if_failed()


@pytest.mark.parametrize(
    ("strength", "message"),
    [
        (-0.1, "strength must be at least 0, got -0.1"),
        (np.nan, "strength must be at least 0, got nan"),
        ([0.1, -2], "strength must be at least 0, got -2"),
        ([1.0] * 3, r"strength of shape \(3,\) .*batch shape \(2,\)"),
    ],
)
def test_a_bad_strength_is_an_error_before_anything_is_written(strength: Any, message: str) -> None:
    out, z = np.full((2, 3), 7.0), np.zeros((2, 3))
    with pytest.raises(ValueError, match=message):
        oscarmax(z, strength, out=out)
    assert (out == 7).all()
    for call in (
        lambda: pyentmax.oscarmax_support(z, strength),
        lambda: pyentmax.oscarmax_jvp(z, z, strength),
        lambda: pyentmax.oscarmax_jacobian(z, strength),
        lambda: pyentmax.oscarmax_vjp_strength(z, z, strength),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("z", "strength"),
    [
        (np.array([0, -1e38, 0, 1], np.float32), np.inf),
        (np.array([0, -1e38, 3e38, 1], np.float32), np.inf),
        (np.array([3e38, -3e38], np.float32), np.inf),
        (np.array([0.0, -1e308] * 50), 1e308),
        (np.array([1e308, -1e308] * 50), np.inf),
    ],
)
def test_strengths_and_scores_near_the_largest_float_fuse_all(
    z: np.ndarray, strength: float
) -> None:
    np.testing.assert_allclose(oscarmax(z, strength), 1 / z.size, rtol=4 * np.finfo(z.dtype).eps)
    assert MAPPINGS["oscarmax"].support(z, strength).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masked_entries_push_no_score_near_the_largest_float_beyond_it(dtype: Any) -> None:
    z = np.repeat(np.array([np.finfo(dtype).max, np.finfo(dtype).min, 0], dtype), 20)
    mask = np.arange(60) % 3 > 0
    for function in (oscarmax, oscarmax.reference):
        p = function(z, np.inf, mask=mask)
        np.testing.assert_allclose(p[mask], 1 / 40, rtol=4 * np.finfo(dtype).eps)
        assert not p[~mask].any()
    np.testing.assert_array_equal(MAPPINGS["oscarmax"].support(z, np.inf, mask=mask), mask)


def test_an_infinite_strength_has_a_mapping_but_no_loss() -> None:
    with pytest.raises(ValueError, match="strength must be finite .*, got inf"):
        fenchel_young_loss([[1.0, 0.5, 0.0]], [0], "oscarmax", strength=np.inf)
