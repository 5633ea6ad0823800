"""budget_sparsemax within other bounds than 0 and 1: SLSQP, differences, masks, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from finite_differences import central_difference
from scipy.optimize import minimize

import pyentmax as pe
from pyentmax import budget_sparsemax, budget_sparsemax_vjp_bounds

RNG = np.random.default_rng(57)
Z = RNG.normal(scale=1.5, size=(12, 5))
LOWER = RNG.random(Z.shape) * 0.3
UPPER = LOWER + RNG.random(Z.shape)
SHARE = np.linspace(0.05, 0.95, len(Z))
BUDGET = LOWER.sum(axis=1) + SHARE * (UPPER - LOWER).sum(axis=1)
G = RNG.normal(size=Z.shape)
BOUNDS: dict[str, Any] = {"lower": LOWER, "upper": UPPER}


def nearest(z: np.ndarray, budget: float, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """argmin ‖p − z‖² within the bounds, Σp = budget, by a generic solver."""
    total = {"type": "eq", "fun": lambda p: p.sum() - budget, "jac": np.ones_like}
    found = minimize(
        lambda p: ((p - z) ** 2).sum() / 2,
        (lower + upper) / 2,
        jac=lambda p: p - z,
        bounds=list(zip(lower, upper, strict=True)),
        constraints=total,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 300},
    )
    result: np.ndarray = found.x
    return result


def test_bounded_budget_equals_a_generic_solver() -> None:
    p = budget_sparsemax(Z, BUDGET, **BOUNDS)
    expected = [nearest(*row) for row in zip(Z, BUDGET, LOWER, UPPER, strict=True)]
    np.testing.assert_allclose(p, expected, rtol=0, atol=1e-7)
    np.testing.assert_allclose(p.sum(axis=1), BUDGET, rtol=1e-14)
    assert ((p == LOWER).any(axis=1) | (p == UPPER).any(axis=1)).any()
    columns = budget_sparsemax(Z.T, BUDGET, 0, lower=LOWER.T, upper=UPPER.T)
    np.testing.assert_array_equal(columns.T, p)
    np.testing.assert_array_equal(pe.budget_sparsemax_support(Z, BUDGET, **BOUNDS), p > 0)
    out = np.empty_like(Z)
    assert budget_sparsemax(Z, BUDGET, out=out, **BOUNDS) is out
    np.testing.assert_array_equal(out, p)


def test_default_bounds_as_arrays_change_nothing() -> None:
    for dtype, tolerance in ((np.float16, 1e-3), (np.float32, 1e-6), (np.float64, 1e-14)):
        z = Z.astype(dtype)
        expected, p = (budget_sparsemax(z, 2, **b) for b in ({}, {"lower": 0.0, "upper": 1.0}))
        assert p.dtype == dtype
        np.testing.assert_allclose(p, expected, rtol=0, atol=tolerance)
        free = {"lower": 0.0, "upper": 1.0}
        np.testing.assert_array_equal(
            pe.budget_sparsemax_vjp(p, z, 2, **free), pe.budget_sparsemax_vjp(p, z, 2)
        )


@pytest.mark.parametrize("infinite", [False, True])
def test_bounded_derivatives_equal_differences(infinite: bool) -> None:
    bounds = {"lower": LOWER, "upper": np.full_like(UPPER, np.inf) if infinite else UPPER}

    def moved(z: Any = Z, budget: Any = BUDGET, **changed: Any) -> Any:
        return budget_sparsemax(z, budget, **{**bounds, **changed})

    p, tolerance = budget_sparsemax(Z, BUDGET, **bounds), {"rtol": 0, "atol": 1e-8}
    found = pe.budget_sparsemax_vjp(p, G, BUDGET, **bounds)
    np.testing.assert_allclose(found, central_difference(moved, Z, G), **tolerance)
    found = pe.budget_sparsemax_vjp_budget(p, G, BUDGET, **bounds)
    expected = central_difference(lambda budget: moved(budget=budget), BUDGET, G)
    np.testing.assert_allclose(found, expected, **tolerance)
    in_lower, in_upper = budget_sparsemax_vjp_bounds(p, G, Z, **bounds)
    expected = central_difference(lambda lower: moved(lower=lower), LOWER, G)
    np.testing.assert_allclose(in_lower, expected, **tolerance)
    if not infinite:
        expected = central_difference(lambda upper: moved(upper=upper), UPPER, G)
        np.testing.assert_allclose(in_upper, expected, **tolerance)
    jacobian = pe.budget_sparsemax_jacobian(p, BUDGET, **bounds)
    found = pe.budget_sparsemax_jvp(p, G, BUDGET, **bounds)
    np.testing.assert_allclose(np.einsum("bij,bj->bi", jacobian, G), found, rtol=0, atol=1e-14)


def test_equal_bounds_ask_the_scores_which_holds() -> None:
    z, lower = np.array([3.0, 1.0, 0.5, -2.0]), np.array([0.5, 0.0, 0.0, 0.25])
    upper = np.array([0.5, 1.0, 1.0, 0.25])  # the first wants more, the last less
    p = budget_sparsemax(z, 1.5, lower=lower, upper=upper)
    g = np.array([5.0, 1.0, 2.0, 3.0])
    in_lower, in_upper = budget_sparsemax_vjp_bounds(p, g, z, lower=lower, upper=upper)
    np.testing.assert_allclose(in_lower, [0, 0, 0, 1.5], rtol=0, atol=1e-15)
    np.testing.assert_allclose(in_upper, [3.5, 0, 0, 0], rtol=0, atol=1e-15)


def test_masks_rule_bounds_out_with_their_entries() -> None:
    mask = np.ones(Z.shape, bool)
    mask[:, 1], mask[3] = False, False
    z, bounds = np.where(mask, Z, np.nan), {k: np.where(mask, b, np.nan) for k, b in BOUNDS.items()}
    live = np.delete(np.arange(5), 1)
    low, high = LOWER[:, live], UPPER[:, live]
    budget = low.sum(axis=1) + SHARE * (high - low).sum(axis=1)
    p = budget_sparsemax(z, budget, mask=mask, **bounds)
    expected = budget_sparsemax(Z[:, live], budget, lower=low, upper=high)
    np.testing.assert_allclose(np.delete(p[:, live], 3, 0), np.delete(expected, 3, 0), rtol=1e-14)
    assert not p[~mask].any()
    gradients = budget_sparsemax_vjp_bounds(p, G, z, mask=mask, **bounds)
    for found, other in zip(
        gradients,
        budget_sparsemax_vjp_bounds(expected, G[:, live], Z[:, live], lower=low, upper=high),
        strict=True,
    ):
        assert not found[~mask].any()
        np.testing.assert_allclose(
            np.delete(found[:, live], 3, 0), np.delete(other, 3, 0), rtol=1e-12
        )
    broken = budget_sparsemax([[np.nan, 0.0], [1.0, 0.0]], 0.75, lower=0.25)
    np.testing.assert_array_equal(broken, [[np.nan, np.nan], [0.5, 0.25]])


@pytest.mark.parametrize(
    ("budget", "bounds", "message"),
    [
        (3, {"upper": 0.5}, r"budget must lie between .* got 3 outside of \[0, 2.5\]"),
        (0.5, {"lower": 0.2}, r"got 0.5 outside of \[1, "),
        (1, {"lower": -0.1}, "lower must be at least 0, got -0.1"),
        (1, {"lower": np.nan}, "lower must be at least 0, got nan"),
        (1, {"lower": 0.5, "upper": 0.25}, "upper must be at least lower, got 0.25 where .* 0.5"),
        (1, {"upper": np.ones(3)}, r"upper of shape \(3,\) does not broadcast"),
        (-1, {"upper": 0.5}, "budget must be at least 0"),
        (np.ones(3), {"upper": 0.5}, "budget of shape"),
    ],
)
def test_infeasible_bounds_are_refused(budget: Any, bounds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        budget_sparsemax(Z, budget, **bounds)
