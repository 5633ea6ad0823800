"""The kernels of mappings with upper bounds on the CPU, against the NumPy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crowded_rows import crowded_rows
from emulation import IN_ORDER, REVERSED, unavailable
from kernel_runs import (
    BOUNDED,
    BOUNDED_BLOCK,
    BOUNDED_FORMS,
    DERIVATIVES,
    FORMS,
    Form,
    form_and_type,
    one_of,
)
from number_types import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, NumberType
from score_rows import score_rows

import pyentmax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]


def case(name: str, number: NumberType, n: int, mask: Any = True) -> tuple[np.ndarray, Any, Any]:
    """Scores, bounds for each entry (None for a budget), and the parameter of each row.

    Bounds sum to a little more than 1 or a lot, budgets go up to all there is, of what a row has.
    """
    rng = np.random.default_rng(n)
    z = number.rounded(score_rows(n))
    exact = number.exact(z)
    there = (exact > -np.inf) & mask
    if name == "budget_sparsemax":
        count = np.maximum(there.sum(axis=-1), 1)
        return z, None, np.minimum(np.resize([0.3, 1.0, 2.5, 1e9, 7.0], len(z)), count)
    weights = rng.exponential(size=z.shape) * (rng.random(z.shape) < 0.9) + 1e-3
    upper = weights / np.where(there, weights, 0).sum(axis=-1, keepdims=True).clip(1e-3)
    upper *= np.resize([1 + 1e-4, 1.5, 4.0, 300.0], len(z))[:, None]
    least = 1 - 8 * float(np.finfo(number.computed).eps) * n**0.5
    return z, upper.astype(number.computed), np.full(len(z), least)


def run(name: str, form: Form, number: NumberType, z: np.ndarray, upper: Any, parameter: Any,
        mask: Any = None, **how: Any) -> np.ndarray:  # fmt: skip
    p = how.pop("p", np.empty_like(z))
    BOUNDED[name].run(form, number, [z, mask, upper, p], parameter=parameter, **how)
    return p


def check(name: str, number: NumberType, z: np.ndarray, upper: Any, parameter: Any, p: np.ndarray,
          mask: Any = None) -> None:  # fmt: skip
    body = getattr(pyentmax, name).reference
    bound = parameter if upper is None else upper.astype(np.float64)
    expected, got = body(number.exact(z), bound, mask=mask), number.exact(p)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    # Sums of a budget are as large as the budget, and so are their roundings.
    size = 1.0 if upper is not None else np.maximum(parameter, 1)[:, None]
    allowed = {FLOAT32: 1e-6, FLOAT64: 1e-14}.get(number)
    if allowed is None:
        allowed = np.maximum(number.ulp(expected), 2 * float(np.finfo(np.float32).eps))
    wrong = np.abs(got - expected) > allowed * size
    worst = np.unravel_index(wrong.argmax(), wrong.shape)
    assert not wrong.any(), f"{got[worst]} for {expected[worst]} at {worst} of {z.shape}"


@pytest.mark.parametrize("name", BOUNDED)
@form_and_type(BOUNDED_FORMS)
def test_every_kind_of_row(name: str, form: Form, number: NumberType) -> None:
    for n, schedule in zip(form.lengths, [IN_ORDER, REVERSED, 1, 2, 3, 4], strict=False):
        z, upper, parameter = case(name, number, n)
        p = run(name, form, number, z, upper, parameter, schedule=schedule)
        check(name, number, z, upper, parameter, p)


@pytest.mark.parametrize("name", BOUNDED)
def test_crowded_rows_sum_to_what_they_should(name: str) -> None:
    n = BOUNDED_BLOCK.lengths[-1]
    z = crowded_rows(n, np.float32)
    upper, total = (None, 1.5) if name == "budget_sparsemax" else (np.full_like(z, 0.9), 1.0)
    p = run(name, BOUNDED_BLOCK, FLOAT32, z, upper, total)
    off = np.abs(p.sum(axis=-1, dtype=np.float64) - total)
    assert off.max() <= 4 * np.finfo(np.float32).eps * np.sqrt(n) * total


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("form", BOUNDED_FORMS, ids=str)
def test_masked_entries_count_for_nothing(name: str, form: Form) -> None:
    n = form.lengths[-2]
    mask = np.random.default_rng(0).random((15, n)) < 0.7
    mask[3], mask[:, 0] = False, False
    z, upper, parameter = case(name, FLOAT32, n, mask)
    z[:, 0] = np.nan
    if upper is not None:
        upper[:, 0] = np.nan
    p = run(name, form, FLOAT32, z, upper, parameter, mask)
    upper = None if upper is None else np.where(np.isnan(upper), 1, upper)
    check(name, FLOAT32, z, upper, parameter, p, mask)


@pytest.mark.parametrize("form", BOUNDED_FORMS, ids=str)
def test_what_no_row_can_satisfy_is_nan(form: Form) -> None:
    n = form.lengths[1]
    z = np.zeros((4, n), np.float32)
    z[3] = -np.inf
    upper = np.full((4, n), 2 / n, np.float32)
    upper[0], upper[1, 0] = 0.9 / n, -1
    for name in ("csoftmax", "csparsemax"):
        p = run(name, form, FLOAT32, z, upper, 1 - 1e-6)
        assert np.isnan(p).all(axis=1).tolist() == [True, True, False, False]
        np.testing.assert_allclose(p[2:], [[1 / n] * n, [0] * n], rtol=0, atol=1e-6)
    budget = np.array([-1.0, n + 1.0, n, 1.0])
    p = run("budget_sparsemax", form, FLOAT32, z, None, budget)
    assert np.isnan(p).all(axis=1).tolist() == [True, True, False, False]
    np.testing.assert_array_equal(p[2:], [[1] * n, [0] * n])


@pytest.mark.parametrize("form", BOUNDED_FORMS, ids=str)
def test_a_budget_of_nothing_takes_nothing(form: Form) -> None:
    z, _, budget = case("budget_sparsemax", FLOAT32, form.lengths[-2])
    budget[::2] = 0
    p = run("budget_sparsemax", form, FLOAT32, z, None, budget)
    check("budget_sparsemax", FLOAT32, z, None, budget, p)
    assert not p[::2][np.isfinite(z[::2].max(axis=-1))].any()


@pytest.mark.parametrize("form", BOUNDED_FORMS, ids=str)
def test_each_of_many_scales_that_are_full_leaves_the_next_its_digits(form: Form) -> None:
    """In float32 the rest was shared evenly from the fifth scale on."""
    n = form.lengths[-2]
    z = np.full((2, n), -1e31, np.float32)
    z[:, :8] = [1e38, 1e29, 1e20, 1e11, 1e2, 0.5, 0.45, 0.4]
    upper = np.full(z.shape, 0.15, np.float32)
    for name in ("csoftmax", "csparsemax"):
        p = run(name, form, FLOAT32, z, upper, 1 - 1e-6)
        check(name, FLOAT32, z, upper, None, p)


@pytest.mark.parametrize(("name", "rule"), [("csoftmax", "softmax"), ("csparsemax", "sparsemax")])
@form_and_type(FORMS)
def test_entries_at_their_bounds_do_not_move(
    name: str, rule: str, form: Form, number: NumberType
) -> None:
    """The Jacobians are softmax's and sparsemax's, of what is free."""
    z, upper, _ = case(name, number, form.lengths[-2])
    sound = np.isfinite(number.exact(z).max(axis=-1))
    z, upper = z[sound], upper[sound]
    p = number.rounded(getattr(pyentmax, name).reference(number.exact(z), upper.astype(float)))
    v = number.rounded(np.random.default_rng(0).standard_normal(p.shape))
    out = np.empty_like(p)
    DERIVATIVES[f"{rule}_jvp"].run(form, number, [p, v, upper, None, out])
    # A half p that is at its bound is the bound rounded.
    stored = number.exact(number.rounded(upper.astype(float)))
    body = getattr(pyentmax, f"{name}_jvp").reference
    expected = body(number.exact(p), number.exact(v), stored)
    tolerance = {FLOAT16: 4e-3, BFLOAT16: 4e-2}.get(number, 2e-6)
    np.testing.assert_allclose(number.exact(out), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", one_of(BOUNDED, "csparsemax"))
@form_and_type(BOUNDED_FORMS, checked=True)
def test_no_race_and_no_overrun(name: str, form: Form, number: NumberType) -> None:
    z, upper, parameter = (
        None if x is None else x[:11] for x in case(name, number, form.lengths[-2])
    )
    apart = run(name, form, number, z, upper, parameter, schedule=REVERSED, checked=True)
    check(name, number, z, upper, parameter, apart)
    p = z.copy()
    run(name, form, number, p, upper, parameter, schedule=1, checked=True, p=p)
    np.testing.assert_array_equal(p, apart)
