"""csoftmax, csparsemax and budget_sparsemax: optimality, accuracy, bounds, derivatives in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bounded_oracles import (
    exact_boxes,
    exact_csoftmax,
    random_problems,
)
from stages import slow

import pyentmax
from pyentmax import MAPPINGS, budget_sparsemax, csparsemax
from pyentmax.reference.thresholds import water_fill

NAMES = ["csoftmax", "csparsemax"]
every_name = pytest.mark.parametrize("name", NAMES)
with_budget = pytest.mark.parametrize("name", [*NAMES, "budget_sparsemax"])
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
every_form = pytest.mark.parametrize("form", ["", "reference"])
BUDGETS = [0.25, 1, 1.7, 2, 3.5, 4.9]


def forward_of(name: str, form: str = "") -> Any:
    forward: Any = MAPPINGS[name]
    return forward.reference if form else forward


def vjp_upper(name: str, p: Any, g: Any, upper: Any, z: Any, axis: Any = -1, **options: Any) -> Any:
    """Either mapping's gradient in the bounds; only csparsemax needs z."""
    return MAPPINGS[name].parameter_vjp.at_scores(z, p, g, upper, axis, **options)


def problems(name: str, count: int, d: int, seed: int, scale: float = 1.5) -> Iterator[Any]:
    """Scores, the mapping's parameter, its bounds and the sum of p."""
    for number, (z, upper) in enumerate(random_problems(count, d, seed, scale)):
        if name == "budget_sparsemax":
            budget = BUDGETS[number % len(BUDGETS)]
            yield z, budget, np.ones(d), budget
        else:
            yield z, upper, upper, 1


@every_dtype
@pytest.mark.parametrize("scale", [1.0, *slow(1e-3, 30.0, 1e3)])
@with_budget
def test_accuracy_in_many_digits(name: str, scale: float, dtype: type) -> None:
    """Within 4ε p + 16ε s max(1, max_S |z − max z|), and a few ε of the remaining mass."""
    epsilon = float(np.finfo(dtype).eps)
    for z, value, upper, total in problems(name, 2, 8, seed=2, scale=scale):
        for offset in (0.0, 1e4):
            scores, bounds = (z + offset).astype(dtype), upper.astype(dtype)
            p = forward_of(name)(scores, bounds if np.ndim(value) else value)
            assert p.dtype == dtype
            wide = scores.astype(float), bounds.astype(float)
            exact = exact_csoftmax(*wide) if name == "csoftmax" else exact_boxes(*wide, total)
            exact = np.array([float(x) for x in exact])
            s = exact if name == "csoftmax" else np.ones_like(exact)
            reach = max(1.0, float(wide[0].max() - wide[0][exact > 0].min()))
            allowed = 4 * epsilon * (1 + exact) + 16 * epsilon * s * reach
            assert (np.abs(p - exact) <= allowed).all()


@every_dtype
@pytest.mark.parametrize("d", [1, 2, 3, 10, 1000, *slow(50_000)])
def test_sums_within_bounds(d: int, dtype: type) -> None:
    rng = np.random.default_rng(d)
    room = 4 * np.finfo(dtype).eps * np.sqrt(d)
    for scale in (1e-3, 1.0, 1e3):
        z = (rng.standard_normal(d) * scale).astype(dtype)
        for upper in (
            np.full(d, 1.5 / d),
            rng.random(d) * 6 / d + (d < 10),
            np.full(d, np.inf),
            pyentmax.softmax(z.astype(float)),  # every entry reaches its bound at once
        ):
            bounds = upper.astype(dtype)
            missing = max(0.0, 1 - bounds.sum(dtype=float))
            for name in NAMES:
                p = forward_of(name)(z, bounds)
                assert ((p >= 0) & (p <= bounds)).all()
                assert abs(p.sum(dtype=float) - 1) <= room + missing
        for k in (1e-3, 1, d / 3, d - 0.5, d):
            p = budget_sparsemax(z, k)
            assert ((p >= 0) & (p <= 1)).all()
            assert abs(p.sum(dtype=float) - float(dtype(k))) <= room * k


def test_rounding_exceeds_no_bound() -> None:
    """a + (b − a) may round to above b: here both operations are ties."""
    ulp = 2.0**-53
    a, b = np.array([1.5 * ulp]), np.array([0.5 + 5 * ulp])
    assert a + (b - a) > b
    filling = water_fill(np.array([0.0, 1.0]), lambda t: np.where(t >= 1, b, a), b)
    np.testing.assert_array_equal(filling.p, b)


# --- scores of very different sizes ---


@every_form
@every_dtype
@every_name
def test_distant_scores_share_remaining_mass(name: str, dtype: type, form: str) -> None:
    """Next to a full score of 1e21 the others' gaps to it are all the same number."""
    p = np.array([0.4, 0.4, 0.2, 0, 0])
    order = np.random.default_rng(0).permutation(5)
    for exponent in np.arange(1, 38, 4.5):
        for lower in (1e3, 1e8, 1e13):
            z = np.array([10.0**exponent, 0, -lower, -2 * lower, -(lower**2)], dtype)
            found = forward_of(name, form)(z[order], 0.4)
            np.testing.assert_allclose(found, p[order], rtol=1e-5, err_msg=f"{z}")


@every_form
@every_dtype
@every_name
def test_long_rows_of_distant_scores_fill_one_after_the_other(
    name: str, dtype: type, form: str
) -> None:
    """At scores of 1e16 the level may be less than a rounding of the level of a sample."""
    rng = np.random.default_rng(7)
    z = (rng.standard_normal((20, 3000)) * 1e16).astype(dtype)
    upper = (rng.random(z.shape) * 10 ** rng.uniform(-2.5, 0.5, size=(20, 1))).astype(dtype)
    upper[rng.random(z.shape) < 0.2] = 0
    order = np.argsort(-z, axis=-1)
    bound = np.take_along_axis(upper, order, axis=-1).astype(np.float64)
    full = np.clip(1 - (np.cumsum(bound, axis=-1) - bound), 0, bound)
    p = np.take_along_axis(forward_of(name, form)(z, upper), order, axis=-1)
    np.testing.assert_allclose(p, full, rtol=0, atol=1e3 * np.finfo(dtype).eps)


@every_form
@every_dtype
@every_name
def test_one_rounding_above_all_others_is_full(name: str, dtype: type, form: str) -> None:
    """What was left of the level was infinite, as the level was, and the largest score got 0."""
    rng = np.random.default_rng(1)
    z = np.full((400, 8), 1e30, dtype)
    z[:, 0] = np.nextafter(z[:, 0], dtype(np.inf))
    upper = rng.uniform(1 / 8, 1 / 2, z.shape).astype(dtype)
    p = forward_of(name, form)(z, upper)
    np.testing.assert_array_equal(p[:, 0], upper[:, 0])
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=0, atol=8 * np.finfo(dtype).eps)


@every_form
@every_dtype
@every_name
def test_many_full_scales_keep_remaining_digits(name: str, dtype: type, form: str) -> None:
    """The NumPy body took four scales off and shared the rest evenly."""
    scales, gaps = [1e38, 1e29, 1e20, 1e11, 1e2], np.array([0.5, 0.45, 0.4])
    z = np.array([*scales, *gaps, -1e4, -1e13, -1e22, -1e31], dtype)
    rest = 0.25 * pyentmax.softmax(gaps) if name == "csoftmax" else gaps - (gaps.sum() - 0.25) / 3
    p = forward_of(name, form)(z, 0.15)
    np.testing.assert_allclose(p, [*[0.15] * 5, *rest, *[0] * 4], rtol=1e-5, atol=1e-30)


def test_low_scores_are_used_once_rest_is_full() -> None:
    """exp(z) underflows and z − u absorbs u: gaps count from the next score."""
    upper, far = np.array([0.25, 0.25, 1.0, 1.0]), np.array([0.0, -1.0, -1e17, -1e17])
    for name in NAMES:
        for z in (far, far / 1e14, far * 1e290):
            np.testing.assert_allclose(forward_of(name)(z, upper), [0.25] * 4, rtol=1e-14)
        np.testing.assert_array_equal(forward_of(name)([1e308, -1e308], [0.5, 0.5]), [0.5, 0.5])
        p = forward_of(name)([0.0, -5.0, -9.0], [0.5, 0, 1])
        np.testing.assert_allclose(p, [0.5, 0, 0.5], rtol=1e-15)


@every_form
@every_dtype
@pytest.mark.parametrize("upper", [1.0, [1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 1.0, np.inf]])
def test_probability_rounded_to_1_is_not_full(upper: Any, dtype: type, form: str) -> None:
    """1 never binds, but an entry that rounded to it counted as full: the others got 0."""
    rtol = 64 * np.finfo(dtype).eps
    for gap in (10.0, 20.0, 40.0, 80.0):
        z, ties = np.array([gap, 0, 1, 0.5], dtype), np.array([gap, gap, 0], dtype)
        p = forward_of("csoftmax", form)(z, upper)
        np.testing.assert_allclose(p, pyentmax.softmax(z), rtol=rtol)
        p = forward_of("csoftmax", form)(ties, [0.5, 0.5, 1])
        np.testing.assert_allclose(p, pyentmax.softmax(ties), rtol=rtol)


# --- special values of the bounds and of the budget ---


@every_name
def test_bounds_that_sum_to_one_are_p(name: str) -> None:
    z = np.random.default_rng(5).standard_normal(7)
    for dtype in (np.float16, np.float32, np.float64):
        upper = np.full(7, 1 / 7).astype(dtype)
        epsilon = np.finfo(dtype).eps
        np.testing.assert_array_equal(forward_of(name)(z.astype(dtype), upper), upper)
        just = upper * dtype(1 - 5 * epsilon)
        np.testing.assert_array_equal(forward_of(name)(z.astype(dtype), just), just)
        with pytest.raises(ValueError, match="upper is infeasible"):
            forward_of(name)(z.astype(dtype), upper * dtype(1 - 40 * epsilon))


def test_whole_budget_takes_largest_distant_scores() -> None:
    z = np.array([5.0, -3.0, 2.0, 9.0, 0.0])
    np.testing.assert_array_equal(budget_sparsemax(z, 1), [0, 0, 0, 1, 0])
    np.testing.assert_array_equal(budget_sparsemax(z, 3), [1, 0, 1, 1, 0])
    np.testing.assert_array_equal(budget_sparsemax(z, 5), [1, 1, 1, 1, 1])
    np.testing.assert_array_equal(budget_sparsemax(z, 2.5), [1, 0, 0.5, 1, 0])
    np.testing.assert_allclose(budget_sparsemax([0.0, -1e17, -1e17], 2), [1, 0.5, 0.5], rtol=1e-15)
    for top, budget in (([1e9], 2), ([1e30], 2), ([3e38, -3e38], 2), ([1e9, 20.0], 3)):
        z = np.array([*top, 0.3, 0.1, -0.4], np.float32)
        exact = [np.float32(x > 1) for x in top] + [0.6, 0.4, 0]
        np.testing.assert_allclose(budget_sparsemax(z, budget), exact, rtol=3e-7, atol=0)


@every_form
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zero_budget_gives_zeros(form: str, dtype: type) -> None:
    z = np.array([[1, 0.5, 0], [3, 1, 0.5], [np.nan, 0, 0], [np.inf, 0, 0]], dtype)
    forward = forward_of("budget_sparsemax", form)
    p = forward(z[:2], 0)
    np.testing.assert_array_equal(p, np.zeros((2, 3)))
    assert not pyentmax.budget_sparsemax.jvp(p, z[:2], 0).any()
    assert not pyentmax.budget_sparsemax.parameter_vjp(p, z[:2], [0, 0]).any()
    assert not pyentmax.budget_sparsemax.jacobian(p, 0).any()
    mixed = forward(z, [0, 2, 0, 1])
    np.testing.assert_array_equal(mixed[0], 0)
    np.testing.assert_array_equal(mixed[1], forward(z[1], 2))
    assert np.isnan(mixed[2:]).all()
    np.testing.assert_array_equal(forward(z[0].astype(np.float32), 1e-46), np.zeros(3))


# --- shapes, masks, types, errors ---


@every_name
@pytest.mark.parametrize("axis", [0, (2, 0), None])
def test_bounds_broadcast_against_scores(name: str, axis: Any) -> None:
    rng, jvp = np.random.default_rng(6), MAPPINGS[name].jvp
    z, g = rng.standard_normal((2, 2, 3, 4))
    for shape in ((2, 3, 4), (1, 3, 1), (4,), ()):
        upper = rng.uniform(0.55, 0.9, shape)
        full = np.broadcast_to(upper, z.shape)
        p = forward_of(name)(z, upper, axis)
        np.testing.assert_array_equal(p, forward_of(name)(z, full.copy(), axis))
        assert (p <= full).all()
        expected = jvp(p, g, full, axis)
        np.testing.assert_allclose(jvp(p, g, upper, axis), expected, rtol=1e-15)
        got, each = (vjp_upper(name, p, g, u, z, axis) for u in (upper, full))
        assert got.shape == shape
        extra = tuple(range(3 - len(shape)))
        shared = tuple(i + len(extra) for i, n in enumerate(shape) if n == 1)
        expected = np.sum(each, axis=extra + shared, keepdims=True).reshape(shape)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


@every_name
def test_mask_rules_out_bounds_too(name: str) -> None:
    rng = np.random.default_rng(7)
    z, g = rng.standard_normal((2, 4, 6))
    mask = rng.random((4, 6)) < 0.7
    mask[1, :3] = True
    mask[0] = mask[mask.sum(axis=-1) < 3] = False
    upper = rng.uniform(0.35, 0.5, (4, 6))
    forward, jvp = forward_of(name), MAPPINGS[name].jvp
    ruled_out, clean = np.where(mask, z, -np.inf), np.where(mask, g, 0)
    p = forward(ruled_out, upper)
    assert (p[0] == 0).all()
    expected = vjp_upper(name, p, clean, upper, ruled_out, mask=mask)
    for rubbish in (np.nan, -1.0, np.inf):
        spoiled = np.where(mask, upper, rubbish)
        scores, direction = np.where(mask, z, np.nan), np.where(mask, g, np.nan)
        np.testing.assert_array_equal(forward(scores, spoiled, mask=mask), p)
        np.testing.assert_array_equal(forward(ruled_out, spoiled), p)
        np.testing.assert_array_equal(jvp(p, direction, spoiled, mask=mask), jvp(p, clean, upper))
        got = vjp_upper(name, p, direction, spoiled, scores, mask=mask)
        np.testing.assert_array_equal(got, expected)
        on = MAPPINGS[name].support(scores, spoiled, mask=mask)
        np.testing.assert_array_equal(on, p > 0)
    assert (expected[~mask] == 0).all()
    assert np.any(expected != 0)


@with_budget
def test_dead_row_is_feasible_whatever_its_bounds(name: str) -> None:
    too_much = 2 if name == "budget_sparsemax" else 0.1
    np.testing.assert_array_equal(forward_of(name)([[-np.inf] * 3], too_much), [[0, 0, 0]])


@every_name
def test_bounds_of_other_dtypes(name: str) -> None:
    z, upper = np.array([1.0, 0.8, 0.1]), np.array([0.4, 0.4, 0.4])
    for dtype in (np.float16, np.float32, np.float64):
        for bounds in (upper, upper.astype(np.float32), upper.tolist(), upper.astype(np.float16)):
            p = forward_of(name)(z.astype(dtype), bounds)
            assert p.dtype == dtype
            coarse = max(np.finfo(x).eps for x in (dtype, np.asarray(bounds).dtype))
            # Both bounds may be off by half of it, the rest by their sum, and then p is rounded.
            np.testing.assert_allclose(p, [0.4, 0.4, 0.2], rtol=3 * coarse)
            # An entry at its bound is recognised in each precision.
            assert (MAPPINGS[name].jvp(p, np.array([1, -1, 2], dtype), bounds) == 0).all()
            got = vjp_upper(name, p, np.array([1, 0, 0], dtype), bounds, z.astype(dtype))
            np.testing.assert_allclose(got, [1, 0, 0], rtol=0, atol=1e-6)
            assert got.dtype == dtype
    # Rounded in two steps, of which the first ties where the bound itself would not.
    z, v = np.array([3, 0, 0], np.float16), np.array([1, 0, 0], np.float16)
    upper = np.array([0.5 + 2**-12 + 2**-40, 1, 1])
    p = forward_of(name)(z, upper)
    assert MAPPINGS[name].jvp(p, v, upper).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *((name, [[1, 1, 1], [0.3, 0.3, 0.3]], r"upper is infeasible: .*got a sum of 0\.9; ")
          for name in NAMES),
        ("csoftmax", 1 / 3 - 1e-12, r"got a sum of 0\.99999999999"),
        ("budget_sparsemax", 3.5, r"budget must be at most the number .*, 3, got 3\.5"),
    ],
)  # fmt: skip
def test_infeasible_bounds_write_nothing(name: str, value: Any, message: str) -> None:
    out, z = np.full((2, 3), 7.0), np.zeros((2, 3))
    with pytest.raises(ValueError, match=message):
        forward_of(name)(z, value, out=out)
    mask = [[True] * 3, [True, True, False]]
    with pytest.raises(ValueError, match=r"unmasked entries.* (2, got 3|sum of 0\.8;)"):
        forward_of(name)(z, [1, 3] if "budget" in name else 0.4, mask=mask, out=out)
    assert (out == 7).all()


# --- derivatives ---


@every_name
def test_exhausted_bound_has_right_derivative(name: str) -> None:
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


def test_exhausted_bounds_differ_from_low_scores() -> None:
    z = np.array([1e9, 0.3, 0.1, -0.4, 0.2], np.float32)
    upper = np.array([0.5, 1, 1, 0, 0], np.float32)
    p = csparsemax(z, upper)
    g = pyentmax.csparsemax.parameter_vjp.at_scores(
        z, p, np.array([0, 1, 1, 3, 3], np.float32), upper
    )
    np.testing.assert_array_equal(g, [-1, 0, 0, 0, 2])


@every_name
def test_without_free_entries_nothing_moves(name: str) -> None:
    z, upper, g = [0.5, 0.2, 0.1, -1.0], [0.5, 0.5, 0.0, 0.0], np.array([3.0, 1.0, 2.0, 7.0])
    p = forward_of(name)(z, upper)
    np.testing.assert_array_equal(p, [0.5, 0.5, 0, 0])
    # τ is then the score at which the last full entry leaves its bound, 0.2 − 0.5.
    expected = [3, 1, 2, 7] if name == "csoftmax" else [3, 1, 2, 0]
    np.testing.assert_array_equal(vjp_upper(name, p, g, upper, z), expected)
    assert (MAPPINGS[name].jvp(p, g, upper) == 0).all()
    p, v = budget_sparsemax([5.0, -3.0, 2.0], 2), g[:3]
    assert (pyentmax.budget_sparsemax.jvp(p, v, 2) == 0).all()
    assert pyentmax.budget_sparsemax.parameter_vjp(p, v, 2) == 0


@every_name
def test_shared_half_bounds_get_all_gradient(name: str) -> None:
    """Added up in float16, where 2048 + 1 is 2048, it was 2048 at most."""
    upper = np.array([0.5, 1, 1], np.float16)
    z, g = (np.full((5000, 3), [x, 0, 0], np.float16) for x in (2, 1))
    got = vjp_upper(name, forward_of(name)(z, upper), g, upper, z)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, np.array([5000, 0, 0], np.float16))


# --- properties ---


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["csoftmax", "csparsemax", "budget_sparsemax"])
def test_ordinary_rows_agree_with_rows_far_below_a_full_entry(name: str, dtype: type) -> None:
    """These go in their own precision, those in double: the others share what is left alike."""
    rng = np.random.default_rng(1)
    for d in (3, 40, 600, 1500):
        z = rng.standard_normal((6, d)).astype(dtype)
        far = np.concatenate([np.full((6, 1), 1000, dtype), z], axis=-1)
        if name == "budget_sparsemax":
            p, shifted = pyentmax.budget_sparsemax(z, 2), pyentmax.budget_sparsemax(far, 3)
            size = 3.0
        else:
            upper = (rng.uniform(1, 2, (6, d)) * 2 / d).astype(dtype)
            bounds = np.concatenate([np.full((6, 1), 0.5, dtype), upper / 2], axis=-1)
            p = getattr(pyentmax, name)(z, upper)
            z_far = far if name == "csoftmax" else np.concatenate([far[:, :1], z / 2], axis=-1)
            shifted, size = 2 * getattr(pyentmax, name)(z_far, bounds), 1.0
        atol = 64 * size * np.finfo(dtype).eps
        np.testing.assert_allclose(p, shifted[:, 1:], rtol=0, atol=atol)
