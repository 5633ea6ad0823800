"""The forward kernels on the CPU: each type, each way to hold a row, against the NumPy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import IN_ORDER, REVERSED, unavailable
from kernel_runs import FORMS, FORWARD, STREAM, Form
from number_types import FLOAT32, FLOAT64, TYPES, NumberType
from score_rows import score_rows

import pyentmax

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

ALPHAS = [1.0, 1 + 1e-9, 1.05, 1.5, 1.9, 2.0, 2.5, 4.0, np.inf]


def launch(name: str, form: Form, number: NumberType, z: np.ndarray, p: np.ndarray, *,
           mask: np.ndarray | None = None, parameter: Any = 1.25, **how: Any) -> None:  # fmt: skip
    """Map z, stored in the type, to p: rows along the last axis."""
    FORWARD[name].run(form, number, [z, mask, p], parameter=parameter, **how)


def check(name: str, number: NumberType, z: np.ndarray, p: np.ndarray, mask: Any = None,
          alpha: Any = 1.25) -> None:  # fmt: skip
    """p is what the NumPy body gives in float64 for the scores as they are stored."""
    parameters = [alpha] if name == "entmax" else []
    expected = getattr(pyentmax, name).reference(number.exact(z), *parameters, mask=mask)
    got = number.exact(p)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    allowed = {FLOAT32: 1e-6, FLOAT64: 1e-14}.get(number)
    if allowed is None:
        # One ulp; but two roundings of a score in float32 may move smaller results by more, and
        # those below 2^-126 may be flushed to zero.
        order = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5, "entmax": alpha}[name]
        slope = expected ** np.maximum(2 - np.asarray(order)[..., None], 0)
        moved = 2 * float(np.finfo(np.float32).eps) * np.where(expected > 0, slope, 0)
        allowed = np.maximum(np.maximum(number.ulp(expected), 2.0**-126), moved)
    low, high = expected - allowed, expected + allowed
    if name == "entmax":
        steep_low, steep_high = _steep_bounds(expected, np.asarray(alpha)[..., None], number)
        low, high = np.minimum(low, steep_low - allowed), np.maximum(high, steep_high + allowed)
    wrong = (got < low) | (got > high)
    worst = np.unravel_index(wrong.argmax(), wrong.shape)
    assert not wrong.any(), f"{got[worst]} for {expected[worst]} at {worst} of {z.shape}"


def _steep_bounds(p: np.ndarray, alpha: Any, number: NumberType) -> tuple[np.ndarray, np.ndarray]:
    """Where p may lie for scores moved by 8ε, and τ with them: all that is promised for α > 2."""
    with np.errstate(invalid="ignore"):
        beta = np.where((alpha > 2) & np.isfinite(alpha), alpha - 1, 1)
        move = np.where(beta > 1, 16 * beta * np.finfo(number.computed).eps, 0)
        power = p**beta
        return np.maximum(power - move, 0) ** (1 / beta), (power + move) ** (1 / beta)


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("number", TYPES, ids=str)
def test_every_kind_of_row(name: str, form: Form, number: NumberType) -> None:
    for n, schedule in zip(form.lengths, [IN_ORDER, REVERSED, 1, 2, 3, 4], strict=False):
        z = number.rounded(score_rows(n))
        p = np.empty_like(z)
        launch(name, form, number, z, p, schedule=schedule)
        check(name, number, z, p)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("number", TYPES, ids=str)
def test_an_alpha_for_each_row(form: Form, number: NumberType) -> None:
    alpha = np.array(ALPHAS)[:, None]
    for n, schedule in zip(form.lengths, [REVERSED, 1, IN_ORDER, 2, 3, 4], strict=False):
        z = number.rounded(np.broadcast_to(score_rows(n), (len(ALPHAS), 15, n)))
        p = np.empty_like(z)
        launch("entmax", form, number, z, p, parameter=alpha, schedule=schedule)
        check("entmax", number, z, p, alpha=alpha)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_invalid_alpha_makes_its_row_nan(form: Form) -> None:
    z = score_rows(form.lengths[1])[:6].astype(np.float32)
    p, alpha = np.empty_like(z), np.array([0.5, 1.0, np.nan, 3.0, -np.inf, 2.0])
    launch("entmax", form, FLOAT32, z, p, parameter=alpha)
    assert np.isnan(p[::2]).all()
    check("entmax", FLOAT32, z[1::2], p[1::2], alpha=alpha[1::2])


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_masked_scores_may_hold_anything(name: str, form: Form) -> None:
    n = form.lengths[-2]
    z = score_rows(n)
    mask = np.random.default_rng(0).random(z.shape) < 0.6
    mask[0], mask[1] = False, True
    z[~mask] = np.where(np.arange(z[~mask].size) % 3, np.inf, np.nan)
    z = z.astype(np.float32)
    p = np.empty_like(z)
    launch(name, form, FLOAT32, z, p, mask=mask)
    check(name, FLOAT32, z, p, mask)
    launch(name, form, FLOAT32, z, p, mask=mask[2])  # one for all rows
    check(name, FLOAT32, z, p, mask[2])


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("number", [FLOAT32, FLOAT64], ids=str)
def test_rows_lie_anywhere(form: Form, number: NumberType) -> None:
    """Along any axis, backwards, with gaps, unaligned, broadcast, in place; gaps are left alone."""
    n = form.lengths[1]
    values = number.rounded(np.random.default_rng(0).standard_normal((2, 3, 5, n)))
    expected = pyentmax.sparsemax.reference(number.exact(values))
    for order in [(0, 1, 2, 3), (3, 0, 1, 2), (0, 3, 2, 1), (2, 1, 0, 3)]:
        for step, start in [(1, 0), (1, 1), (2, 1), (-1, 0)]:
            shape = [values.shape[axis] for axis in order]
            room = np.full([*shape[:-1], 2 * shape[-1] + 1], 7, values.dtype)
            part = room[..., start:][..., ::step][..., : shape[-1]]
            laid = part.transpose(np.argsort(order))
            laid[...] = values
            outside = np.ones(room.shape, bool)
            outside[..., start:][..., ::step][..., : shape[-1]] = False
            apart = np.empty_like(values)
            launch("sparsemax", form, number, laid, apart, schedule=1)
            np.testing.assert_array_equal(laid, values)  # inputs are never overwritten
            launch("sparsemax", form, number, laid, laid, schedule=2)
            np.testing.assert_array_equal(laid, apart)
            np.testing.assert_allclose(laid, expected, rtol=0, atol=1e-6)
            assert (room[outside] == 7).all()
    together = np.empty_like(values)
    launch("sparsemax", form, number, np.broadcast_to(values[:, :1, :1], values.shape), together)
    np.testing.assert_array_equal(together, np.broadcast_to(together[:, :1, :1], together.shape))


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize(("room", "words"), [(0, 0), (0, 200), (40, 0), (40, 200), (600, 3)])
def test_long_rows_with_any_storage(name: str, room: int, words: int) -> None:
    """Whatever fits on the chip of a row too long for it: the result is the same."""
    z = score_rows(1100).astype(np.float32)
    p, most = np.empty_like(z), np.empty_like(z)
    launch(name, STREAM, FLOAT32, z, p, room=room, words=words, schedule=REVERSED)
    check(name, FLOAT32, z, p)
    launch(name, STREAM, FLOAT32, z, most, room=1200, words=200)
    np.testing.assert_allclose(p, most, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_order_of_threads_does_not_matter(name: str, form: Form) -> None:
    z = score_rows(form.lengths[2]).astype(np.float32)
    results = [np.empty_like(z) for _ in range(5)]
    for schedule, p in zip([IN_ORDER, REVERSED, 1, 2, 3], results, strict=True):
        launch(name, form, FLOAT32, z, p, schedule=schedule)
    for p in results[1:]:
        np.testing.assert_array_equal(p, results[0])


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("number", TYPES, ids=str)
def test_no_race_and_no_overrun(name: str, form: Form, number: NumberType) -> None:
    n = form.lengths[-2]
    z = number.rounded(score_rows(n))[:11]
    mask = np.arange(n) % 5 > 0
    for schedule in (REVERSED, 1):
        p = np.empty_like(z)
        launch(name, form, number, z, p, mask=mask, schedule=schedule, checked=True, room=24)
        check(name, number, z, p, mask)
