"""budget_sparsemax: optimality, accuracy, edge budgets, derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bounded_oracles import best_box_projection, central_difference, exact_boxes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize

import pyentmax
from pyentmax import MAPPINGS, budget_sparsemax, check_jacobian, check_vjp


def test_against_every_active_set() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        z, k = rng.standard_normal(5) * 1.5, rng.choice([0.3, 1, 1.7, 2, 3.5, 4.9])
        p = budget_sparsemax(z, k)
        np.testing.assert_allclose(
            p, best_box_projection(z, np.ones(5), k), rtol=0, atol=1e-14, err_msg=f"{z!r}, {k}"
        )


def test_against_a_generic_convex_solver() -> None:
    rng = np.random.default_rng(1)
    for k in (0.5, 2, 4.2):
        z = rng.standard_normal(7)
        solution = minimize(
            lambda p, z=z: p @ p / 2 - p @ z,
            np.full(7, k / 7),
            jac=lambda p, z=z: p - z,
            bounds=[(0, 1)] * 7,
            constraints={"type": "eq", "fun": lambda p, k=k: p.sum() - k},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 300},
        )
        np.testing.assert_allclose(budget_sparsemax(z, k), solution.x, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_accuracy_in_many_digits(scale: float, dtype: type) -> None:
    rng = np.random.default_rng(2)
    epsilon = float(np.finfo(dtype).eps)
    for k in (0.25, 1, 3, 7.5, 11):
        for offset in (0.0, 1e4, -1e4):
            z = (rng.standard_normal(12) * scale + offset).astype(dtype)
            p = budget_sparsemax(z, k)
            assert p.dtype == dtype
            exact = np.array([float(x) for x in exact_boxes(z.astype(float), np.ones(12), k)])
            reach = max(1.0, float(z.max() - z[exact > 0].min()))
            assert (np.abs(p - exact) <= 4 * epsilon * exact + 16 * epsilon * reach).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 3, 10, 1000, 50_000])
def test_sums_to_the_budget_between_zero_and_one(d: int, dtype: type) -> None:
    rng = np.random.default_rng(d)
    for scale in (1e-3, 1.0, 1e3):
        z = (rng.standard_normal(d) * scale).astype(dtype)
        for k in (1e-3, 1, d / 3, d - 0.5, d):
            p = budget_sparsemax(z, k)
            assert ((p >= 0) & (p <= 1)).all()
            allowed = 4 * np.finfo(dtype).eps * np.sqrt(d) * k
            assert abs(p.sum(dtype=float) - float(dtype(k))) <= allowed


def test_whole_budgets_take_the_largest_where_scores_are_apart() -> None:
    z = np.array([5.0, -3.0, 2.0, 9.0, 0.0])
    np.testing.assert_array_equal(budget_sparsemax(z, 1), [0, 0, 0, 1, 0])
    np.testing.assert_array_equal(budget_sparsemax(z, 2), [1, 0, 0, 1, 0])
    np.testing.assert_array_equal(budget_sparsemax(z, 3), [1, 0, 1, 1, 0])
    np.testing.assert_array_equal(budget_sparsemax(z, 5), [1, 1, 1, 1, 1])
    np.testing.assert_array_equal(budget_sparsemax(z, 2.5), [1, 0, 0.5, 1, 0])
    np.testing.assert_allclose(budget_sparsemax([0.0, -1e17, -1e17], 2), [1, 0.5, 0.5], rtol=1e-15)


def test_a_budget_of_one_is_sparsemax() -> None:
    z = np.random.default_rng(3).standard_normal((4, 6))
    np.testing.assert_allclose(budget_sparsemax(z, 1), pyentmax.sparsemax(z), rtol=0, atol=1e-15)


def test_choosing_is_the_complement_of_leaving() -> None:
    """p(z, k) = 1 − p(−z, d − k)."""
    z = np.random.default_rng(4).standard_normal((4, 6))
    for k in (0.5, 2, 3.3):
        np.testing.assert_allclose(
            budget_sparsemax(z, k), 1 - budget_sparsemax(-z, 6 - k), rtol=0, atol=1e-14
        )


@pytest.mark.parametrize("axis", [0, 1, -2, (0, 2), None])
def test_budgets_broadcast_over_the_batch(axis: Any) -> None:
    rng = np.random.default_rng(5)
    z, g = rng.standard_normal((2, 3, 4, 5))
    batch = z.sum(axis=axis).shape
    budget = rng.uniform(0.5, 2.9, batch)
    p = budget_sparsemax(z, budget, axis)
    np.testing.assert_allclose(p.sum(axis=axis), budget, rtol=1e-14)
    for shape in {batch, batch[-1:], (1,) * len(batch), ()}:
        shared = rng.uniform(0.5, 2.9, shape)
        full = np.broadcast_to(shared, batch)
        p = budget_sparsemax(z, shared, axis)
        np.testing.assert_array_equal(p, budget_sparsemax(z, full, axis))
        got = pyentmax.budget_sparsemax_vjp_budget(p, g, shared, axis)
        assert got.shape == shape
        numeric = central_difference(lambda k: budget_sparsemax(z, k, axis), shared, g)
        np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("budget", [0.4, 1, 2.6, 4])
def test_derivatives_by_finite_differences(budget: float) -> None:
    rng = np.random.default_rng(6)
    record = MAPPINGS["budget_sparsemax"]
    for _ in range(3):
        z = rng.standard_normal((2, 6)) / 2
        check_jacobian(
            lambda z: record.forward(z, budget), z, lambda p: record.jacobian(p, budget)
        ).raise_if_failed()
        check_vjp(
            lambda z: record.forward(z, budget), z, lambda p, v: record.vjp(p, v, budget)
        ).raise_if_failed()


def test_at_a_corner_nothing_moves() -> None:
    z, g = np.array([5.0, -3.0, 2.0]), np.array([1.0, 2.0, 4.0])
    p = budget_sparsemax(z, 2)
    np.testing.assert_array_equal(p, [1, 0, 1])
    assert (pyentmax.budget_sparsemax_jvp(p, g, 2) == 0).all()
    assert pyentmax.budget_sparsemax_vjp_budget(p, g, 2) == 0


def test_mask_and_edge_rows() -> None:
    z = np.array([[2.0, 1.9, 1.8, 9.0], [np.nan, 0, 0, 0], [np.inf, 0, 0, 0], [0.0] * 4])
    mask = np.array([True, True, True, False])
    mask = mask & np.array([[True], [True], [True], [False]])
    g = np.where(mask, [1.0, 2.0, 6.0, 0.0], np.nan)
    p = budget_sparsemax(z, 2, mask=mask)
    np.testing.assert_allclose(p[0], [23 / 30, 2 / 3, 17 / 30, 0], rtol=1e-14)
    assert np.isnan(p[1:3]).all()
    assert (p[3] == 0).all()
    product = pyentmax.budget_sparsemax_vjp(p, g, 2, mask=mask)
    np.testing.assert_allclose(product[0], [-2, -1, 3, 0], rtol=1e-14)
    assert np.isnan(product[1:3, :3]).all()
    assert (product[3] == 0).all()
    slope = pyentmax.budget_sparsemax_vjp_budget(p, g, [2] * 4, mask=mask)
    np.testing.assert_array_equal(slope, [3, np.nan, np.nan, 0])
    on = pyentmax.budget_sparsemax_support(z, 2, mask=mask)
    np.testing.assert_array_equal(on, [[True, True, True, False]] + [[False] * 4] * 3)
    # A row with nothing left has no budget to break; all that is left may be taken.
    dead = np.full((1, 3), -np.inf)
    np.testing.assert_array_equal(budget_sparsemax(dead, 2), [[0, 0, 0]])
    np.testing.assert_array_equal(budget_sparsemax([3.0, -np.inf, 1.0], 2), [1, 0, 1])


@pytest.mark.parametrize("form", ["", ".reference"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_budget_of_nothing_takes_nothing(form: str, dtype: type) -> None:
    def run(name: str, *args: Any, **kwargs: Any) -> Any:
        function = getattr(pyentmax, name)
        return (function.reference if form else function)(*args, **kwargs)

    z = np.array([[1, 0.5, 0], [3, 1, 0.5], [np.nan, 0, 0], [np.inf, 0, 0]], dtype)
    g = np.array([1, 2, 4], dtype)
    p = run("budget_sparsemax", z[:2], 0)
    np.testing.assert_array_equal(p, np.zeros((2, 3)))
    assert p.dtype == dtype
    for name in ("budget_sparsemax_jvp", "budget_sparsemax_vjp"):
        np.testing.assert_array_equal(run(name, p, np.stack([g, g]), 0), np.zeros((2, 3)))
    assert not run("budget_sparsemax_vjp_budget", p[0], g, 0)
    assert not pyentmax.budget_sparsemax_jacobian(p, 0).any()
    assert not pyentmax.budget_sparsemax_support(z[:2], 0).any()
    # Beside other budgets, under a mask, in rows that are spoilt whatever the budget is.
    mixed = run("budget_sparsemax", z, [0, 2, 0, 1])
    np.testing.assert_array_equal(mixed[0], 0)
    np.testing.assert_array_equal(mixed[1], run("budget_sparsemax", z[1], 2))
    assert np.isnan(mixed[2:]).all()
    masked = run("budget_sparsemax", z[:2], [0.0, -0.0], mask=[[True, False, True], [False] * 3])
    np.testing.assert_array_equal(masked, np.zeros((2, 3)))


@pytest.mark.parametrize("form", ["", ".reference"])
def test_a_budget_that_rounds_to_nothing_takes_nothing(form: str) -> None:
    z = np.array([1, 0.5, 0], np.float32)
    function = budget_sparsemax.reference if form else budget_sparsemax
    np.testing.assert_array_equal(function(z, 1e-46), np.zeros(3))


def test_dtypes() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        z = np.array([2, 1.25, 1, -3], dtype)
        p = budget_sparsemax(z, 2)
        assert p.dtype == dtype
        np.testing.assert_array_equal(p, [1, 0.625, 0.375, 0])
        assert pyentmax.budget_sparsemax_vjp_budget(p, z, 2).dtype == dtype
    assert budget_sparsemax([3, 1, 0], 2).dtype == np.float64


def test_bad_budgets_are_named_before_anything_is_written() -> None:
    z, out = np.zeros((2, 3)), np.full((2, 3), 7.0)
    for wrong in (-1e-9, -1, np.nan):
        with pytest.raises(ValueError, match=f"budget must be at least 0, got {wrong}"):
            budget_sparsemax(z, [1, wrong], out=out)
    most = "budget must be at most the number of a row's unmasked entries, "
    with pytest.raises(ValueError, match=most + r"3, got 3\.5"):
        budget_sparsemax(z, 3.5, out=out)
    with pytest.raises(ValueError, match=most + "3, got inf"):
        budget_sparsemax(z, np.inf, out=out)
    with pytest.raises(ValueError, match=most + "2, got 3"):
        budget_sparsemax(z, [1, 3], mask=[[True] * 3, [True, True, False]], out=out)
    with pytest.raises(ValueError, match=r"budget of shape \(3,\) .*batch shape \(2,\)"):
        budget_sparsemax(z, [1, 1, 1], out=out)
    assert (out == 7).all()
    with pytest.raises(ValueError, match="budget must be at least 0, got -1"):
        pyentmax.budget_sparsemax_jvp(z, z, -1)
    with pytest.raises(ValueError, match="and budget_sparsemax has none"):
        pyentmax.fenchel_young_loss(z, [0, 1], "budget_sparsemax", budget=1)


@given(data=st.data())
def test_properties(data: st.DataObject) -> None:
    z = data.draw(hnp.arrays(np.float64, st.integers(1, 9), elements=st.floats(-20, 20)))
    k = data.draw(st.one_of(st.integers(1, z.size), st.floats(0.01, z.size)))
    p = budget_sparsemax(z, k)
    assert abs(p.sum() - k) <= 1e-14 * k
    # The point nearest to z: no feasible point lies on z's side of the plane through p.
    other = budget_sparsemax(
        data.draw(hnp.arrays(np.float64, z.shape, elements=st.floats(-20, 20))), k
    )
    assert (z - p) @ (other - p) <= 1e-11
    more = min(float(z.size), k + data.draw(st.floats(0, 2)))
    assert (budget_sparsemax(z, more) >= p - 1e-13).all()
    jacobian = pyentmax.budget_sparsemax_jacobian(p, k)
    np.testing.assert_array_equal(jacobian, jacobian.T)
    np.testing.assert_allclose(jacobian @ jacobian, jacobian, rtol=0, atol=1e-14)
    np.testing.assert_allclose(jacobian.sum(axis=0), 0, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("full", "budget"), [([1e9], 2), ([1e30], 2), ([3e38, -3e38], 2), ([1e9, 20.0], 3)]
)
def test_the_rest_keeps_its_digits_beside_full_entries(full: list[float], budget: float) -> None:
    z = np.array([*full, 0.3, 0.1, -0.4], np.float32)
    p = budget_sparsemax(z, budget)
    exact = [np.float32(x > 1) for x in full] + [0.6, 0.4, 0]
    np.testing.assert_allclose(p, exact, rtol=3e-7, atol=0)
