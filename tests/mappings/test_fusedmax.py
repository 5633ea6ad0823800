"""fusedmax: optimality, generic solvers, masks, extreme scores, derivatives, losses, refusals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fused_oracles import (
    chain,
    distance_from_optimality,
    error_in_epsilons,
    exact_fusedmax,
    generic_solution,
    smoothed_by_the_dual,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pyentmax
from pyentmax import (
    MAPPINGS,
    check_gradient,
    check_jacobian,
    check_vjp,
    fenchel_young_loss,
    fusedmax,
)
from pyentmax.mappings.fusedmax import _smoothed, fusedmax_omega

EPS = float(np.finfo(np.float64).eps)
STRENGTHS = [0, 1e-3, 0.05, 0.3, 1, 10, 1e6, np.inf]
BOTH = pytest.mark.parametrize(
    "function", [fusedmax, fusedmax.reference], ids=["kernel", "reference"]
)


def problems(seed: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores of both signs, some with ties, and masks, some of them full."""
    rng = np.random.default_rng(seed)
    found = []
    for n in range(count):
        z = rng.standard_normal(rng.integers(1, 9)) * rng.choice([0.2, 1, 4])
        mask = rng.random(len(z)) < (0.7 if n % 2 else 2)
        mask[rng.integers(len(z))] = True
        found.append((np.round(z * 2) / 2 if n % 3 == 0 else z, mask))
    return found


@pytest.mark.parametrize("strength", STRENGTHS)
def test_meets_the_optimality_conditions(strength: float) -> None:
    for z, mask in problems(0, 40):
        p = fusedmax(z, strength, mask=mask)
        assert (p[~mask] == 0).all()
        edges = chain(np.ones(mask.sum(), bool)) if mask.all() else chain(mask)
        index = np.cumsum(mask) - 1
        edges = [(index[i], index[j]) for i, j in edges]
        error = distance_from_optimality(z[mask], p[mask], edges, min(strength, 1e6))
        assert error < 1e-9, (z, mask, p)


@pytest.mark.parametrize("strength", [0.02, 0.2, 0.7])
def test_agrees_with_a_generic_solver_on_scores_of_both_signs(strength: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        z = rng.standard_normal(6)
        steps = strength * np.diff(np.eye(6), axis=0)
        expected = generic_solution(z, [[step, -step] for step in steps])
        np.testing.assert_allclose(fusedmax(z, strength), expected, rtol=0, atol=2e-6)


def test_smoothing_agrees_with_the_dual_problem() -> None:
    """In rows of 60, where most of the queue of knots comes and goes many times."""
    rng = np.random.default_rng(2)
    everything = np.ones(60, bool)
    for strength in (0.01, 0.1, 0.5, 2):
        z = rng.standard_normal((3, 60)) / 5
        z -= z.max(axis=-1, keepdims=True)
        u = _smoothed(z, np.asarray(strength))
        for got, row in zip(u, z, strict=True):
            expected = smoothed_by_the_dual(row, chain(everything), strength)
            np.testing.assert_allclose(got, expected - expected.max(), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-11), (np.float32, 1e-3)])
@pytest.mark.parametrize("strength", [0.01, 0.3, 5])
def test_long_rows_meet_the_optimality_conditions(
    dtype: Any, tolerance: float, strength: float
) -> None:
    """The dual variables are the running sums of u − z: within ±λ, and ±λ where u steps."""
    z = np.random.default_rng(3).random((2, 2000)).astype(dtype)
    z -= z.max(axis=-1, keepdims=True)
    u = _smoothed(z, np.asarray(strength))
    assert u.dtype == dtype
    moved = u.astype(float) - z
    dual = np.cumsum(moved - moved.mean(axis=-1, keepdims=True), axis=-1)
    step = np.sign(np.diff(u))
    assert np.abs(dual[:, -1]).max() < tolerance
    assert np.abs(dual).max() < strength + tolerance
    assert np.abs((dual[:, :-1] - strength * step)[step != 0]).max(initial=0) < tolerance


def test_strength_0_is_sparsemax_to_the_last_bit() -> None:
    z = np.random.default_rng(4).standard_normal((50, 9))
    np.testing.assert_array_equal(fusedmax(z, 0), pyentmax.sparsemax(z))
    np.testing.assert_array_equal(fusedmax.reference(z, 0), pyentmax.sparsemax.reference(z))


@pytest.mark.parametrize("strength", [1e3, 1e30, 1e308, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_strengths_fuse_each_run_between_masked_entries(strength: float, dtype: Any) -> None:
    z = np.random.default_rng(5).standard_normal((4, 7)).astype(dtype)
    digits = 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(fusedmax(z, strength), 1 / 7, rtol=digits)
    mask = np.array([True, True, False, True, True, True, False])
    means = np.repeat([z[:, :2].mean(axis=-1), z[:, 3:6].mean(axis=-1)], [2, 3], axis=0).T
    expected = np.zeros_like(z)
    expected[:, mask] = pyentmax.sparsemax(means)
    np.testing.assert_allclose(fusedmax(z, strength, mask=mask), expected, rtol=0, atol=digits)


def test_scores_beside_a_masked_entry_are_not_neighbours() -> None:
    z = np.array([0.4, 0.0, 0.3])
    mask = np.array([True, False, True])
    gap = fusedmax(z, 0.5, mask=mask)
    np.testing.assert_allclose(gap, pyentmax.sparsemax(z, mask=mask), rtol=1e-14)
    assert fusedmax(z, 0.5)[0] == fusedmax(z, 0.5)[2]  # unmasked, all three are fused
    np.testing.assert_array_equal(fusedmax([0.4, -np.inf, 0.3], 0.5), gap)


@pytest.mark.parametrize("low", [-1e9, -1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_very_low_score_does_not_swamp_its_row(low: float, dtype: Any) -> None:
    """Where −1e9 stands for a mask, running sums through it would lose all digits of the rest."""
    z = np.array([0.5, low, 0.3, 0.2, low, low, 0.4, 0.1], dtype)
    modest = np.where(z < -100, -100, z).astype(np.float64)
    expected = fusedmax(modest, 0.25)
    assert np.count_nonzero(expected) > 3
    tolerance = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(fusedmax(z, 0.25), expected, rtol=0, atol=tolerance)


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
@pytest.mark.parametrize("strength", [0.3, 1.0, 30.0, 1e3, 1e8, 1e15])
@BOTH
def test_no_strength_rounds_away_what_parts_two_peaks(
    function: Any, strength: float, dtype: Any
) -> None:
    """Against rational arithmetic: both lie below their scores by one multiple of the strength."""
    strength = float(dtype(strength))
    for seed in range(40):
        z = peaks_and_valleys(seed, strength, dtype)
        exact = exact_fusedmax(z, strength)
        assert error_in_epsilons(function(z, strength), exact, z) < 4, z
    two = np.array([0, -1e21, 0.2], dtype)
    exact = pyentmax.sparsemax(two[[0, 2]].astype(np.float64))
    got = function(two, strength)[[0, 2]]
    np.testing.assert_allclose(got, exact, rtol=0, atol=float(np.finfo(dtype).eps))


@BOTH
def test_equal_neighbours_are_fused_by_the_least_strength(function: Any) -> None:
    """Strengths of the size of the scores' rounding: what is fused decides the derivatives."""
    rng = np.random.default_rng(17)
    for _ in range(200):
        z = np.append(0, np.full(rng.integers(2, 6), -rng.uniform(0.02, 0.98)))
        strength = rng.uniform(0.05, 3) * 2.0**-54
        p = function(z, strength)
        assert np.ptp(p[1:]) == 0, (z, strength)
        p = function(z[::-1], strength)
        assert np.ptp(p[:-1]) == 0, (z, strength)


@BOTH
def test_gaps_beyond_the_largest_float(function: Any) -> None:
    z = np.array([1.7e308, -1.7e308])
    assert function(z, 1e308).tolist() == [1, 0]
    assert function(z, 1.6e308).tolist() == [1, 0]
    assert function(z, 1.75e308).tolist() == [0.5, 0.5]


@BOTH
def test_a_score_as_far_below_as_edges_reach_ties_with_the_peaks(function: Any) -> None:
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
    for short in 10.0 ** np.arange(-15, -9, 0.25):
        strength = step * half / 2 * (1 - short)
        rise = (Fraction(step) - 2 * Fraction(strength) / half) / 2
        higher = float(1 / Fraction(2 * half) + max(rise, Fraction(0)))
        p = function(z, strength)
        np.testing.assert_allclose(p[half:], higher, rtol=0, atol=4 * EPS)


def test_fused_neighbours_are_equal_to_the_last_bit() -> None:
    z = np.random.default_rng(6).standard_normal((40, 30)) / 10
    p = fusedmax(z, 0.1)
    u = np.array([smoothed_by_the_dual(row, chain(np.ones(30)), 0.1) for row in z])
    close = np.abs(np.diff(u)) < 1e-9
    assert close.any()
    assert (np.diff(p)[close] == 0).all()


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_strength_broadcasts_over_the_batch(axis: int) -> None:
    z = np.random.default_rng(7).standard_normal((3, 4, 5))
    batch = z.sum(axis=axis).shape
    strength = np.random.default_rng(8).choice([0, 0.1, 1, np.inf], batch)
    p = fusedmax(z, strength, axis)
    for value in (0, 0.1, 1, np.inf):
        same = np.broadcast_to(np.expand_dims(strength == value, axis), z.shape)
        np.testing.assert_allclose(p[same], fusedmax(z, value, axis)[same], rtol=1e-14)


@given(
    z=hnp.arrays(np.float64, st.integers(1, 15), elements=st.floats(-20, 20)),
    strength=st.floats(0, 10),
)
def test_reversing_scores_reverses_probabilities(z: np.ndarray, strength: float) -> None:
    np.testing.assert_allclose(
        fusedmax(z[::-1], strength), fusedmax(z, strength)[::-1], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("strength", [0.0, 0.03, 0.1, 0.4])
def test_derivatives_by_finite_differences(strength: float) -> None:
    z = np.random.default_rng(9).standard_normal((4, 7)) / 2
    check_jacobian(
        lambda z: fusedmax(z, strength),
        z,
        lambda p: pyentmax.fusedmax_jacobian(p, strength),
        rtol=1e-5,
    ).raise_if_failed()
    mask = np.array([True, True, True, False, True, True, True])[:, None]
    check_vjp(
        lambda z: fusedmax(z, strength, axis=0, mask=mask),
        z.T,
        lambda p, v: pyentmax.fusedmax_vjp(p, v, strength, axis=0, mask=mask),
        rtol=1e-5,
    ).raise_if_failed()


def test_ties_are_not_averaged_without_strength() -> None:
    p = np.array([0.25, 0.25, 0.5])
    v = np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(
        pyentmax.fusedmax_jvp(p, v, 0), pyentmax.sparsemax_jvp(p, v), rtol=1e-15
    )
    np.testing.assert_allclose(pyentmax.fusedmax_jvp(p, v, 0.1), [1 / 6, 1 / 6, -1 / 3], rtol=1e-15)
    mixed = pyentmax.fusedmax_jvp([p, p], [v, v], [0, 0.1])
    np.testing.assert_allclose(mixed[1], [1 / 6, 1 / 6, -1 / 3], rtol=1e-15)
    np.testing.assert_allclose(mixed[0], pyentmax.sparsemax_jvp(p, v), rtol=1e-15)
    both = pyentmax.fusedmax_jacobian([p, p], [0, 0.1])
    np.testing.assert_allclose(both @ v, mixed, rtol=1e-14)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(), (4,), (3, 1), (3, 4), (1, 1), (1,)])
def test_vjp_strength_by_finite_differences(shape: tuple[int, ...], masked: bool) -> None:
    rng = np.random.default_rng(10)
    z, g = rng.standard_normal((2, 3, 4, 8)) / 2
    mask = rng.random(z.shape) < 0.8 if masked else np.ones(z.shape, bool)
    mask[..., 0] = True
    strength = rng.uniform(0.02, 0.3, shape)

    def total(strength: Any) -> float:
        return float(np.sum(g * fusedmax(z, strength, mask=mask)))

    p = fusedmax(z, strength, mask=mask)
    spoiled = np.where(mask, g, np.nan)
    got = pyentmax.fusedmax_vjp_strength(p, spoiled, strength, mask=mask)
    assert got.shape == shape
    numeric = np.empty(shape)
    for index in np.ndindex(*shape):
        up, down = strength.copy(), strength.copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        numeric[index] = (total(up) - total(down)) / 2e-6
    np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8)
    across = pyentmax.fusedmax_vjp_strength(
        np.moveaxis(p, -1, 0), np.moveaxis(g, -1, 0), strength, 0, mask=np.moveaxis(mask, -1, 0)
    )
    np.testing.assert_allclose(across, got, rtol=1e-12)


def test_vjp_strength_at_0_is_the_derivative_to_the_right() -> None:
    rng = np.random.default_rng(11)
    z, g = rng.standard_normal((2, 20, 6)) / 4
    z[:, 2], z[:, 5] = z[:, 1], z[:, 4]  # which any strength fuses
    right = np.sum(g * (fusedmax(z, 1e-7) - fusedmax(z, 0)), axis=-1) / 1e-7
    got = pyentmax.fusedmax_vjp_strength(fusedmax(z, 0), g, np.zeros(20))
    np.testing.assert_allclose(got, right, rtol=0, atol=1e-6)


def test_strengths_down_to_rounding_and_knots_that_coincide() -> None:
    rng = np.random.default_rng(13)
    for strength in (1e-30, 1e-17, 1e-16, 1e-9):
        z = rng.standard_normal((200, 30))
        z[100:] = np.round(z[100:] * 4) / 4
        np.testing.assert_allclose(fusedmax(z, strength), fusedmax(z, 0), rtol=0, atol=1e-8)


def test_off_the_support_a_direction_may_hold_anything() -> None:
    p = fusedmax([0.9, 0.8, -1, -1, 0.9], 0.05)
    assert (p[2:4] == 0).all()
    v = np.array([0.3, -0.2, 0, 0, 1])
    for rubbish in ([np.nan, 1], [np.inf, -np.inf]):
        spoiled = v.copy()
        spoiled[2:4] = rubbish
        for function in (pyentmax.fusedmax_jvp, pyentmax.fusedmax_vjp_strength):
            np.testing.assert_array_equal(function(p, spoiled, 0.05), function(p, v, 0.05))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_derivatives_keep_dtypes_and_rows_without_anything(dtype: Any) -> None:
    p = fusedmax(np.array([[0.3, 0.2, 0.1], [np.nan, 0, 0]], dtype), 0.05)
    g = np.ones_like(p)
    slope = pyentmax.fusedmax_vjp_strength(p, g, [0.05, 0.05])
    assert slope.dtype == fusedmax_omega(p, 0.05).dtype == dtype
    assert np.isfinite(slope[0])
    assert np.isnan(slope[1])
    jacobian = pyentmax.fusedmax_jacobian(p, 0.05)
    assert np.isfinite(jacobian[0]).all()
    assert np.isnan(jacobian[1]).all()
    dead = np.zeros((2, 3))
    assert (pyentmax.fusedmax_jacobian(dead, 0.1) == 0).all()
    assert pyentmax.fusedmax_vjp_strength(dead, np.ones((2, 3)), 0.1) == 0
    empty = np.zeros((0, 3))
    assert pyentmax.fusedmax_jvp(empty, empty, 0.1).shape == (0, 3)
    assert pyentmax.fusedmax_vjp_strength(empty, empty, 0.1) == 0


@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_is_that_of_its_omega(masked: bool) -> None:
    rng = np.random.default_rng(12)
    z = rng.standard_normal((5, 6))
    mask = np.ones((5, 6), bool)
    if masked:
        mask[:, 2], mask[::2, 4] = False, False
    options: dict[str, Any] = {"strength": 0.2, "mask": mask, "reduction": "none"}
    q = np.where(mask, rng.random((5, 6)), 0)
    q /= q.sum(axis=-1, keepdims=True)
    p = fusedmax(z, 0.2, mask=mask)

    def objective(p: np.ndarray) -> Any:
        jumps = [[abs(r[i] - r[j]) for i, j in chain(m)] for r, m in zip(p, mask, strict=True)]
        omega = 0.5 * np.sum(p * p, axis=-1) + 0.2 * np.array([sum(row) for row in jumps])
        np.testing.assert_allclose(fusedmax_omega(p, 0.2, mask=mask), omega, rtol=1e-13)
        return np.sum(p * z, axis=-1) - omega

    expected = objective(p) - objective(q)
    assert (expected > 0).all()
    np.testing.assert_allclose(
        fenchel_young_loss(z, q, "fusedmax", **options), expected, rtol=1e-12
    )
    at_best = fenchel_young_loss(z, p, "fusedmax", **options)
    np.testing.assert_allclose(at_best, 0, rtol=0, atol=1e-14)
    labels = np.argmax(mask & (rng.random((5, 6)) < 0.5), axis=-1)
    labels = np.where(mask[np.arange(5), labels], labels, 0)
    np.testing.assert_allclose(
        fenchel_young_loss(z, labels, "fusedmax", **options),
        objective(p) - objective(np.eye(6)[labels]),
        rtol=1e-12,
    )
    options["reduction"] = "sum"
    check_gradient(
        lambda z: fenchel_young_loss(z, labels, "fusedmax", **options),
        z,
        lambda z: pyentmax.fenchel_young_loss_and_grad(z, labels, "fusedmax", **options)[1],
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
        fusedmax(z, strength, out=out)
    assert (out == 7).all()
    for call in (
        lambda: pyentmax.fusedmax_support(z, strength),
        lambda: pyentmax.fusedmax_jvp(z, z, strength),
        lambda: pyentmax.fusedmax_jacobian(z, strength),
        lambda: pyentmax.fusedmax_vjp_strength(z, z, strength),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("axis", [(0, 1), None, (-1, 0)])
def test_several_axes_have_no_order(axis: Any) -> None:
    z = np.zeros((2, 3))
    for call in (
        lambda: fusedmax(z, 0.1, axis),
        lambda: pyentmax.fusedmax_jvp(z, z, 0.1, axis),
        lambda: pyentmax.fusedmax_vjp_strength(z, z, 0.1, axis),
        lambda: pyentmax.fenchel_young_loss(z, z + 1 / 6, "fusedmax", axis, strength=0.1),
        lambda: pyentmax.fenchel_young_loss_and_grad(z, 0, "fusedmax", axis, strength=0.1),
    ):
        with pytest.raises(ValueError, match="axis must be one axis, .*an order"):
            call()


def test_one_axis_may_be_written_as_a_tuple_or_none() -> None:
    z = np.array([0.3, 0.1, 0.2])
    np.testing.assert_array_equal(fusedmax(z, 0.05, None), fusedmax(z, 0.05))
    np.testing.assert_array_equal(fusedmax([z, z], 0.05, (1,)), fusedmax([z, z], 0.05))


@pytest.mark.parametrize(
    ("z", "strength"),
    [
        (np.array([0, -1e38, 0, 1], np.float32), np.inf),
        (np.array([0, -1e38, 3e38, 1], np.float32), np.inf),
        (np.array([3e38, -3e38], np.float32), 3e38),
        (np.array([0.0, -1e308] * 50), 1e308),
        (np.array([1e308, -1e308] * 50), np.inf),
    ],
)
def test_strengths_and_scores_near_the_largest_float_fuse_all(
    z: np.ndarray, strength: float
) -> None:
    np.testing.assert_allclose(fusedmax(z, strength), 1 / z.size, rtol=4 * np.finfo(z.dtype).eps)
    assert MAPPINGS["fusedmax"].support(z, strength).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("large", [1e8, 1e17, 1e28])
def test_beside_strengths_that_swamp_1_no_low_score_is_raised_to_the_top(
    large: float, dtype: Any
) -> None:
    # Two edges raise a low score by 2λ, and two lower a peak by as much.
    z = np.array([0, 1, 0, 1, 0], dtype) * dtype(100 * large)
    expected = [0, 0.5, 0, 0.5, 0]
    for function in (fusedmax, fusedmax.reference):
        np.testing.assert_array_equal(function(z, large), expected)
    np.testing.assert_array_equal(
        MAPPINGS["fusedmax"].support(z, large), [False, True, False, True, False]
    )


def test_an_infinite_strength_has_a_mapping_but_no_loss() -> None:
    with pytest.raises(ValueError, match="strength must be finite .*, got inf"):
        fenchel_young_loss([[1.0, 0.5, 0.0]], [0], "fusedmax", strength=np.inf)
