"""csoftmax and csparsemax: optimality, accuracy, the contract of `upper`, and its derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bounded_oracles import (
    best_bounded_softmax,
    best_box_projection,
    central_difference,
    exact_boxes,
    exact_csoftmax,
    random_problems,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize

import pyentmax
from pyentmax import MAPPINGS, check_jacobian, check_vjp
from pyentmax.thresholds import water_fill

NAMES = ["csoftmax", "csparsemax"]
every_name = pytest.mark.parametrize("name", NAMES)
FAR = np.array([0.0, -1.0, -1e17, -1e17])


def forward_of(name: str) -> Callable[..., Any]:
    return MAPPINGS[name].forward


def vjp_upper(name: str, p: Any, g: Any, upper: Any, z: Any, axis: Any = -1, **options: Any) -> Any:
    """Either mapping's gradient in the bounds; only csparsemax needs z."""
    if name == "csoftmax":
        return pyentmax.csoftmax_vjp_upper(p, g, upper, axis, **options)
    return pyentmax.csparsemax_vjp_upper(p, g, upper, z, axis, **options)


def test_against_every_active_set() -> None:
    for z, upper in random_problems(40, 5, seed=0):
        np.testing.assert_allclose(
            pyentmax.csoftmax(z, upper), best_bounded_softmax(z, upper), rtol=1e-12, atol=1e-14
        )
        np.testing.assert_allclose(
            pyentmax.csparsemax(z, upper), best_box_projection(z, upper, 1), rtol=0, atol=1e-14
        )


@every_name
def test_against_a_generic_convex_solver(name: str) -> None:
    for z, upper in random_problems(4, 7, seed=1):

        def objective(p: np.ndarray, z: np.ndarray = z) -> float:
            if name == "csparsemax":
                return float(np.sum((p - z) ** 2) / 2)
            return float(np.sum(p * np.log(np.maximum(p, 1e-300))) - p @ z)

        solution = minimize(
            objective,
            upper / upper.sum(),
            bounds=[(0, min(u, 1)) for u in upper],
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 300},
        )
        p = forward_of(name)(z, upper)
        assert objective(p) <= solution.fun + 1e-9
        np.testing.assert_allclose(p, solution.x, rtol=0, atol=2e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3])
@every_name
def test_accuracy_in_many_digits(name: str, scale: float, dtype: type) -> None:
    """Within 4ε p + 16ε s max(1, max_S |z − max z|), and a few ε that the mass left carries."""
    epsilon = float(np.finfo(dtype).eps)
    for z, upper in random_problems(2, 12, seed=2, scale=scale):
        for offset in (0.0, 1e4):
            scores, bounds = (z + offset).astype(dtype), upper.astype(dtype)
            p = forward_of(name)(scores, bounds)
            assert p.dtype == dtype
            exact = (exact_csoftmax if name == "csoftmax" else exact_boxes)(
                *(a.astype(float) for a in (scores, bounds)), *((1,) if name != "csoftmax" else ())
            )
            exact = np.array([float(value) for value in exact])
            s = exact if name == "csoftmax" else np.ones_like(exact)
            top = scores.astype(float).max()
            reach = max(1.0, top - scores[exact > 0].astype(float).min())
            error = np.abs(p - exact)
            assert (error <= 4 * epsilon * (1 + exact) + 16 * epsilon * s * reach).all()
            assert abs(p.sum(dtype=float) - 1) <= 4 * epsilon * np.sqrt(12)


@pytest.mark.parametrize("form", ["", "reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_name
def test_scores_far_apart_get_what_the_higher_ones_leave(name: str, dtype: type, form: str) -> None:
    """Beside a full score of 1e21 the others' gaps to it are all the same number."""
    function = getattr(pyentmax, name)
    function = function.reference if form else function
    p = [0.4, 0.4, 0.2, 0, 0]
    for exponent in np.arange(1, 38, 1.25):
        for lower in (1e3, 1e8, 1e13):
            z = np.array([10.0**exponent, 0, -lower, -2 * lower, -(lower**2)], dtype)
            order = np.random.default_rng(0).permutation(5)
            found = function(z[order], 0.4)
            np.testing.assert_allclose(found, np.array(p)[order], rtol=1e-5, err_msg=f"{z}")


@pytest.mark.parametrize("form", ["", "reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_name
def test_each_of_many_scales_that_are_full_leaves_the_next_its_digits(
    name: str, dtype: type, form: str
) -> None:
    """The body took four scales off, and shared the rest evenly."""
    function = getattr(pyentmax, name)
    function = function.reference if form else function
    scales, gaps = [1e38, 1e29, 1e20, 1e11, 1e2], np.array([0.5, 0.45, 0.4])
    z = np.array([*scales, *gaps, -1e4, -1e13, -1e22, -1e31], dtype)
    rest = 0.25 * pyentmax.softmax(gaps) if name == "csoftmax" else gaps - (gaps.sum() - 0.25) / 3
    p = function(z, 0.15)
    np.testing.assert_allclose(p, [*[0.15] * 5, *rest, *[0] * 4], rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 3, 10, 1000, 50_000])
@every_name
def test_sums_to_one_and_exceeds_no_bound(name: str, d: int, dtype: type) -> None:
    rng = np.random.default_rng(d)
    epsilon = np.finfo(dtype).eps
    for scale in (1e-3, 1.0, 30.0, 1e3):
        z = (rng.standard_normal(d) * scale).astype(dtype)
        for upper in (
            np.full(d, 1.5 / d),
            rng.random(d) * 6 / d + (d < 10),
            np.full(d, np.inf),
            pyentmax.softmax(z.astype(float)),  # every entry reaches its bound at once
        ):
            bounds = upper.astype(dtype)
            p = forward_of(name)(z, bounds)
            assert (p >= 0).all()
            assert (p <= bounds).all()
            missing = max(0.0, 1 - bounds.sum(dtype=float))
            assert abs(p.sum(dtype=float) - 1) <= 4 * epsilon * np.sqrt(d) + missing


def test_rounding_lifts_no_probability_over_its_bound() -> None:
    """a + (b − a) may round to above b: here both operations are ties."""
    ulp = 2.0**-53
    a, b = np.array([1.5 * ulp]), np.array([0.5 + 5 * ulp])
    assert a + (b - a) > b
    points = np.array([0.0, 1.0])
    filling = water_fill(points, lambda t: np.where(t >= 1, b, a), b)
    np.testing.assert_array_equal(filling.p, b)


@every_name
def test_optimality_conditions_on_a_long_row(name: str) -> None:
    d = 20_000
    rng = np.random.default_rng(3)
    z, upper = rng.standard_normal(d), rng.random(d) * 6 / d
    if name == "csparsemax":
        z = z / d  # else few lie within a bound's width of τ
    p = forward_of(name)(z, upper)
    with np.errstate(divide="ignore"):
        slope = z - np.log(p) if name == "csoftmax" else z - p  # log 1/r and τ where p is free
    free = (p > 0) & (p < upper)
    level = slope[free].mean()
    np.testing.assert_allclose(slope[free], level, rtol=0, atol=1e-12 if level > 1 else 1e-18)
    assert (slope[p == upper] >= level - 1e-12).all()
    assert (slope[p == 0] <= level + 1e-12).all()
    assert free.sum() > 100
    assert (p == upper).sum() > 100


def test_no_bound_that_binds_gives_softmax_and_sparsemax() -> None:
    z = np.random.default_rng(4).standard_normal((3, 6)) * 2
    for upper in (1, np.inf, 1e300, np.full(6, 7.0)):
        np.testing.assert_allclose(pyentmax.csoftmax(z, upper), pyentmax.softmax(z), rtol=1e-14)
        np.testing.assert_allclose(
            pyentmax.csparsemax(z, upper), pyentmax.sparsemax(z), rtol=0, atol=1e-15
        )


def test_lower_scores_are_used_however_low_once_the_rest_is_full() -> None:
    """exp(z) underflows and z − u absorbs u: only relative to what is left are they found."""
    upper = np.array([0.25, 0.25, 1.0, 1.0])
    for name in NAMES:
        for z in (FAR, FAR / 1e14, FAR * 1e290):
            np.testing.assert_allclose(forward_of(name)(z, upper), [0.25] * 4, rtol=1e-14)
        np.testing.assert_array_equal(forward_of(name)([1e308, -1e308], [0.5, 0.5]), [0.5, 0.5])
        p = forward_of(name)([0.0, -5.0, -9.0], [0.5, 0, 1])
        np.testing.assert_allclose(p, [0.5, 0, 0.5], rtol=1e-15)


@every_name
def test_a_sum_of_one_within_rounding_is_feasible_and_gives_the_bounds(name: str) -> None:
    z = np.random.default_rng(5).standard_normal(7)
    for dtype in (np.float16, np.float32, np.float64):
        upper = np.full(7, 1 / 7).astype(dtype)
        epsilon = np.finfo(dtype).eps
        np.testing.assert_array_equal(forward_of(name)(z.astype(dtype), upper), upper)
        np.testing.assert_allclose(forward_of(name)(z, upper), upper, rtol=0, atol=epsilon)
        just = upper * dtype(1 - 5 * epsilon)
        np.testing.assert_array_equal(forward_of(name)(z.astype(dtype), just), just)
        with pytest.raises(ValueError, match="upper is infeasible"):
            forward_of(name)(z.astype(dtype), upper * dtype(1 - 40 * epsilon))
    # Bounds of half precision are rounded more coarsely than the scores.
    halves = np.full(100, 0.01, np.float16)
    assert halves.sum(dtype=float) != 1
    assert forward_of(name)(np.zeros(100), halves * np.float16(0.999)).shape == (100,)


@every_name
def test_bounds_of_bfloat16(name: str) -> None:
    types = pytest.importorskip("ml_dtypes", reason="ml_dtypes, which has bfloat16, is missing")
    upper = np.full(4, 0.5).astype(types.bfloat16)
    np.testing.assert_array_equal(forward_of(name)(np.zeros(4), upper), np.full(4, 0.25))
    with pytest.raises(ValueError, match="upper is infeasible"):
        forward_of(name)(np.zeros(4), upper / 4)


@every_name
@pytest.mark.parametrize("axis", [0, 1, -2, (0, 2), (2, 0), None])
@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 4), (1, 3, 1), (4,), ()])
def test_bounds_broadcast_against_z_and_move_with_the_axis(
    name: str, shape: tuple[int, ...], axis: Any
) -> None:
    rng = np.random.default_rng(6)
    z, g = rng.standard_normal((2, 2, 3, 4))
    upper = rng.uniform(0.55, 0.9, shape)
    full = np.broadcast_to(upper, z.shape)
    p = forward_of(name)(z, upper, axis)
    assert (p <= full).all()
    axes = (0, 1, 2) if axis is None else np.atleast_1d(axis)
    rest = [a for a in range(3) if a not in {int(x) % 3 for x in axes}]
    for index in np.ndindex(*(z.shape[a] for a in rest)):
        row: list[Any] = [slice(None)] * 3
        for a, i in zip(rest, index, strict=True):
            row[a] = i
        part = tuple(row)
        np.testing.assert_allclose(
            p[part].ravel(), forward_of(name)(z[part].ravel(), full[part].ravel()), rtol=1e-13
        )
    got = vjp_upper(name, p, g, upper, z, axis)
    assert got.shape == shape
    each = vjp_upper(name, p, g, full, z, axis)
    assert each.shape == z.shape
    extra = tuple(range(3 - len(shape)))
    kept = tuple(i + len(extra) for i, n in enumerate(shape) if n == 1)
    np.testing.assert_allclose(
        got, np.sum(each, axis=extra + kept, keepdims=True).reshape(shape), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(
        MAPPINGS[name].jvp(p, g, upper, axis), MAPPINGS[name].jvp(p, g, full, axis), rtol=1e-15
    )


@every_name
def test_the_mask_rules_bounds_out_with_their_entries(name: str) -> None:
    rng = np.random.default_rng(7)
    z, g = rng.standard_normal((2, 4, 6))
    mask = rng.random((4, 6)) < 0.7
    mask[0], mask[1, :3] = False, True
    upper = rng.uniform(0.35, 0.5, (4, 6))
    mask[mask.sum(axis=-1) < 3] = False
    forward, jvp = forward_of(name), MAPPINGS[name].jvp
    ruled_out = np.where(mask, z, -np.inf)
    p = forward(ruled_out, upper)
    assert (p[0] == 0).all()
    clean = np.where(mask, g, 0)
    for rubbish in (np.nan, -1.0, np.inf, 1e300):
        spoiled = np.where(mask, upper, rubbish)
        options = {"mask": mask}
        scores = np.where(mask, z, np.nan)
        np.testing.assert_array_equal(forward(scores, spoiled, **options), p)
        np.testing.assert_array_equal(forward(ruled_out, spoiled), p)
        direction = np.where(mask, g, np.nan)
        np.testing.assert_array_equal(jvp(p, direction, spoiled, **options), jvp(p, clean, upper))
        got = vjp_upper(name, p, direction, spoiled, scores, **options)
        expected = vjp_upper(name, p, clean, upper, ruled_out, mask=mask)
        np.testing.assert_array_equal(got, expected)
        assert (got[~mask] == 0).all()
        assert np.any(got != 0)
        on = MAPPINGS[name].support(scores, spoiled, **options)
        np.testing.assert_array_equal(on, p > 0)


@every_name
def test_jacobian_and_vjp_by_finite_differences(name: str) -> None:
    record, full = MAPPINGS[name], 0
    for z, upper in random_problems(6, 6, seed=8):
        full += int(np.sum(record.forward(z, upper) == upper))
        check_jacobian(
            lambda z, u=upper: record.forward(z, u), z, lambda p, u=upper: record.jacobian(p, u)
        ).raise_if_failed()
        check_vjp(
            lambda z, u=upper: record.forward(z, u), z, lambda p, v, u=upper: record.vjp(p, v, u)
        ).raise_if_failed()
    assert full > 6


@every_name
def test_derivative_in_the_bounds_by_finite_differences(name: str) -> None:
    rng = np.random.default_rng(9)
    bound = 0
    for z, upper in random_problems(12, 6, seed=9):
        upper = np.maximum(upper, 0.02)  # exhausted ones have a derivative on one side only
        g = rng.standard_normal(6)
        p = forward_of(name)(z, upper)
        numeric = central_difference(lambda u, z=z: forward_of(name)(z, u), upper, g)
        np.testing.assert_allclose(vjp_upper(name, p, g, upper, z), numeric, rtol=1e-6, atol=1e-8)
        bound += int((p == upper).sum())
    assert bound > 20


@every_name
@pytest.mark.parametrize("axis", [0, -1, (1, 0)])
def test_derivative_in_shared_bounds_by_finite_differences(name: str, axis: Any) -> None:
    rng = np.random.default_rng(10)
    z, g = rng.standard_normal((2, 3, 4))
    upper = rng.uniform(0.35, 0.6, (3, 1))
    p = forward_of(name)(z, upper, axis)
    numeric = central_difference(lambda u: forward_of(name)(z, u, axis), upper, g)
    got = vjp_upper(name, p, g, upper, z, axis)
    np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8)


@every_name
def test_an_exhausted_bound_has_the_derivative_of_loosening_it(name: str) -> None:
    rng = np.random.default_rng(11)
    step, seen = 1e-6, []
    for z, upper in random_problems(20, 6, seed=12):
        upper[:2] = 0
        if upper.sum() < 1.05:
            continue
        g = rng.standard_normal(6)
        p = forward_of(name)(z, upper)
        got = vjp_upper(name, p, g, upper, z)
        for i in range(2):
            loose = upper.copy()
            loose[i] = step
            numeric = g @ (forward_of(name)(z, loose) - p) / step
            np.testing.assert_allclose(got[i], numeric, rtol=1e-4, atol=1e-5)
            seen.append(got[i] != 0)
    assert any(seen)
    # For csparsemax an exhausted bound with a low score holds nothing down.
    assert all(seen) == (name == "csoftmax")


@every_name
def test_without_free_entries_the_mean_is_zero(name: str) -> None:
    z, upper, g = [0.5, 0.2, 0.1, -1.0], [0.5, 0.5, 0.0, 0.0], np.array([3.0, 1.0, 2.0, 7.0])
    p = forward_of(name)(z, upper)
    np.testing.assert_array_equal(p, [0.5, 0.5, 0, 0])
    # τ is then the score at which the last full entry lets go, 0.2 − 0.5.
    expected = [3, 1, 2, 7] if name == "csoftmax" else [3, 1, 2, 0]
    np.testing.assert_array_equal(vjp_upper(name, p, g, upper, z), expected)
    assert (MAPPINGS[name].jvp(p, g, upper) == 0).all()


@every_name
def test_nan_and_dead_rows(name: str) -> None:
    z = np.array([[np.nan, 0.0, 1.0], [np.inf, 0, 1], [-np.inf] * 3, [1.0, 0.0, 2.0]])
    upper = np.array([0.5, 0.0, 0.6])
    p = forward_of(name)(z, upper)
    assert np.isnan(p[:2]).all()
    assert (p[2] == 0).all()
    np.testing.assert_array_equal(p[3], forward_of(name)(z[3], upper))
    g = np.array([1.0, 2.0, -1.0]) * np.ones((4, 1))
    full = np.broadcast_to(upper, z.shape)
    for product in (MAPPINGS[name].jvp(p, g, upper), vjp_upper(name, p, g, full, z)):
        assert np.isnan(product[:2]).all()
        assert (product[2] == 0).all()
        assert np.isfinite(product[3]).all()
    # A row with nothing left is not infeasible, whatever its bounds.
    np.testing.assert_array_equal(forward_of(name)(z[2:3], 0.1), [[0, 0, 0]])


@every_name
def test_dtypes_and_inputs_kept(name: str) -> None:
    z, upper = np.array([1.0, 0.8, 0.1]), np.array([0.4, 0.4, 0.4])
    before = upper.copy()
    for dtype in (np.float16, np.float32, np.float64):
        for bounds in (upper, upper.astype(np.float32), upper.tolist(), upper.astype(np.float16)):
            p = forward_of(name)(z.astype(dtype), bounds)
            assert p.dtype == dtype
            coarse = max(np.finfo(x).eps for x in (dtype, np.asarray(bounds).dtype))
            # Both bounds may be off by half of it, the rest by their sum, and then p is rounded.
            np.testing.assert_allclose(p, [0.4, 0.4, 0.2], rtol=3 * coarse)
            # What is at its bound is known to be, in each precision.
            product = MAPPINGS[name].jvp(p, np.array([1, -1, 2], dtype), bounds)
            assert product.dtype == dtype
            assert (product == 0).all()
            got = vjp_upper(name, p, np.array([1, 0, 0], dtype), bounds, z.astype(dtype))
            np.testing.assert_allclose(got, [1, 0, 0], rtol=0, atol=1e-6)
            assert got.dtype == dtype
    np.testing.assert_array_equal(upper, before)
    np.testing.assert_array_equal(
        forward_of(name)([3, 1, 1], [1, 1, 1])[1:] > 0, name == "csoftmax"
    )


@pytest.mark.parametrize("form", ["", ".reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("upper", [1.0, [1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 1.0, np.inf]])
@pytest.mark.parametrize("gap", [10.0, 20.0, 40.0, 80.0])
def test_a_probability_that_rounds_to_1_leaves_the_others_theirs(
    gap: float, upper: Any, dtype: Any, form: str
) -> None:
    """1 is no bound, but what rounded to it was taken for full: the others got 0."""
    z = np.array([gap, 0, 1, 0.5], dtype)
    csoftmax = pyentmax.csoftmax.reference if form else pyentmax.csoftmax
    rtol = 64 * np.finfo(dtype).eps
    np.testing.assert_allclose(csoftmax(z, upper), pyentmax.softmax(z), rtol=rtol)
    ties = np.array([gap, gap, 0], dtype)
    np.testing.assert_allclose(csoftmax(ties, [0.5, 0.5, 1]), pyentmax.softmax(ties), rtol=rtol)


@every_name
def test_bounds_of_many_rows_get_all_of_their_gradient_in_half_precision(name: str) -> None:
    """Added up in float16, where 2048 + 1 is 2048, it was 2048 at most."""
    upper = np.array([0.5, 1, 1], np.float16)
    z, g = (np.full((5000, 3), [x, 0, 0], np.float16) for x in (2, 1))
    got = vjp_upper(name, forward_of(name)(z, upper), g, upper, z)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, np.array([5000, 0, 0], np.float16))


@every_name
def test_bad_bounds_are_named_before_anything_is_written(name: str) -> None:
    forward, out = forward_of(name), np.full((2, 3), 7.0)
    z = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"upper is infeasible: .*at least 1, got a sum of 0\.9; "):
        forward(z, [[1, 1, 1], [0.3, 0.3, 0.3]], out=out)
    with pytest.raises(ValueError, match=r"got a sum of 0\.99999999999"):
        forward(z, 1 / 3 - 1e-12, out=out)
    with pytest.raises(ValueError, match=r"got a sum of 0\.5"):
        forward(z, 0.5, mask=[[True] * 3, [False, False, True]], out=out)
    with pytest.raises(ValueError, match=r"upper must be at least 0, got -0\.25"):
        forward(z, [1, 1, -0.25], out=out)
    with pytest.raises(ValueError, match="upper must be at least 0, got nan"):
        forward(z, [1, 1, np.nan], out=out)
    with pytest.raises(
        ValueError, match=r"upper of shape \(2,\) does not broadcast to z, of shape"
    ):
        forward(z, [1, 1], out=out)
    with pytest.raises(ValueError, match=r"upper of shape \(4, 2, 3\) does not broadcast to z"):
        forward(z, np.ones((4, 2, 3)), out=out)
    with pytest.raises(TypeError, match="upper must hold real numbers, got dtype complex128"):
        forward(z, 1j, out=out)
    with pytest.raises(TypeError, match=r"upper is a numpy\.ma array"):
        forward(z, np.ma.array([1, 1, 1]), out=out)
    assert (out == 7).all()
    for function in (MAPPINGS[name].jvp, MAPPINGS[name].vjp):
        with pytest.raises(ValueError, match="upper must be at least 0, got -1"):
            function(z + 1 / 3, z, -1)
        with pytest.raises(ValueError, match=r"upper of shape \(2,\) does not broadcast to p"):
            function(z, z, [1, 1])
    with pytest.raises(ValueError, match=r"z must have the shape of p, \(2, 3\), got \(3,\)"):
        pyentmax.csparsemax_vjp_upper(z, z, 1, z[0])


@every_name
def test_has_no_loss(name: str) -> None:
    with pytest.raises(ValueError, match=f"and {name} has none: choose one of softmax, "):
        pyentmax.fenchel_young_loss([[0.0, 1.0]], [1], name, upper=1)


ROWS = hnp.arrays(np.float64, st.integers(1, 9), elements=st.floats(-30, 30))


@every_name
@given(data=st.data())
def test_properties(name: str, data: st.DataObject) -> None:
    z = data.draw(ROWS)
    upper = data.draw(hnp.arrays(np.float64, z.shape, elements=st.floats(0, 1)))
    assume(upper.sum() > 1.001)
    forward = forward_of(name)
    p = forward(z, upper)
    order = np.array(data.draw(st.permutations(range(z.size))))
    np.testing.assert_allclose(forward(z[order], upper[order]), p[order], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(forward(z + 8.0, upper), p, rtol=1e-11, atol=1e-13)
    other = data.draw(hnp.arrays(np.float64, z.shape, elements=st.floats(-30, 30)))
    assert (p - forward(other, upper)) @ (z - other) >= -1e-11
    np.testing.assert_array_equal(
        MAPPINGS[name].support(z, upper),
        upper > 0 if name == "csoftmax" else p > 0,
    )
    # Loosening one bound takes from all others.
    loose = upper.copy()
    loose[0] += 0.25
    assert (forward(z, loose)[1:] <= p[1:] + 1e-13).all()
    jacobian = MAPPINGS[name].jacobian(p, upper)
    np.testing.assert_array_equal(jacobian, jacobian.T)
    assert np.linalg.eigvalsh(jacobian).min() >= -1e-13
    np.testing.assert_allclose(jacobian.sum(axis=0), 0, rtol=0, atol=1e-13)
    u, v = (data.draw(hnp.arrays(np.float64, z.shape, elements=st.floats(-2, 2))) for _ in "uv")
    record = MAPPINGS[name]
    dual = u @ record.jvp(p, v, upper) - v @ record.vjp(p, u, upper)
    assert abs(dual) <= 1e-12


@pytest.mark.parametrize("bound", [0.0, 1e-3])
@pytest.mark.parametrize("top", [1e4, 1e30])
@every_name
def test_the_rest_keeps_its_digits_beside_a_full_entry(name: str, top: float, bound: float) -> None:
    """Exhausted or full, an entry that scores far more only takes its bound off the rest."""
    z, upper = np.array([top, 0.3, 0.1, -0.4], np.float32), np.array([bound, 1, 1, 1], np.float32)
    p = MAPPINGS[name].forward(z, upper)
    rest = z[1:].astype(np.float64)
    left = 1 - float(upper[0])
    exact = left * pyentmax.softmax(rest)
    if name == "csparsemax":
        exact = left * pyentmax.sparsemax(rest / left)
    np.testing.assert_allclose(p[1:], exact, rtol=3e-7, atol=0)
    assert p[0] == upper[0]
    np.testing.assert_array_equal(MAPPINGS[name].support(z, upper), p > 0)


def test_exhausted_bounds_are_told_from_low_scores_beside_a_full_entry() -> None:
    z, upper = np.array([1e9, 0.3, 0.1, -0.4, 0.2]), np.array([0.5, 1, 1, 0, 0], np.float32)
    z = z.astype(np.float32)
    p = pyentmax.csparsemax(z, upper)
    g = pyentmax.csparsemax_vjp_upper(p, np.array([0, 1, 1, 3, 3], np.float32), upper, z)
    np.testing.assert_array_equal(g, [-1, 0, 0, 0, 2])


@every_name
def test_a_bound_is_rounded_the_way_p_was(name: str) -> None:
    """In two steps, of which the first ties where the bound itself would not."""
    z, v = np.array([3, 0, 0], np.float16), np.array([1, 0, 0], np.float16)
    upper = np.array([0.5 + 2**-12 + 2**-40, 1, 1])
    p = MAPPINGS[name].forward(z, upper)
    assert MAPPINGS[name].jvp(p, v, upper).tolist() == [0, 0, 0]


@every_name
@pytest.mark.parametrize("bound", [np.nan, -1.0])
def test_a_score_of_minus_infinity_rules_its_bound_out_in_derivatives_too(
    name: str, bound: float
) -> None:
    z, v, upper = np.array([0.1, 0, -np.inf]), np.array([1.0, -1, 9]), np.array([1, 1, bound])
    p = MAPPINGS[name].forward(z, upper)
    np.testing.assert_array_equal(
        MAPPINGS[name].jvp(p, v, upper), MAPPINGS[name].jvp(p, v, np.ones(3))
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_free_entry_that_has_nearly_all_that_is_left_loses_no_digits(dtype: Any) -> None:
    # The kernel of short rows took it for one of many: its product was 0, or all rounding.
    for p, v, upper in (
        ([0.6, 0.4, 1.7e-18], [0.3, 1.7, -0.6], [0.6, 1, 1]),
        ([0.5, 0.3, 0.2, 1e-18], [9, 1.7, -0.6, 0.1], [0.5, 1, 0.2, 1]),
        ([0.999, 1e-3, 1e-20], [5, 1, 2], [0.999, 1, 1]),
    ):
        given = [np.array(x, dtype) for x in (p, v, upper)]
        exact = pyentmax.csoftmax_jacobian(given[0], given[2]).astype(float) @ given[1].astype(
            float
        )
        for product in (
            pyentmax.csoftmax_vjp,
            pyentmax.csoftmax_jvp,
            pyentmax.csoftmax_vjp.reference,
        ):
            np.testing.assert_allclose(product(*given), exact, rtol=8 * np.finfo(dtype).eps)
