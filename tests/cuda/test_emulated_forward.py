"""The forward kernels on the CPU: each type, each way to hold a row, against the NumPy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crowded_rows import (
    assert_as_exact,
    crowded_rows,
    crowds_at_the_threshold,
    entmax_in_long_doubles,
)
from emulation import IN_ORDER, REVERSED, unavailable
from kernel_runs import BLOCK, FORMS, FORWARD, LANES, STREAM, Form, form_and_type, one_of
from number_types import FLOAT32, FLOAT64, NumberType
from score_rows import score_rows

import pyentmax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

USUAL = {"entmax": 1.25, "normmax": 1.7, "topk_softmax": 3, "topk_sparsemax": 3}
VALUES = {
    "entmax": [1.0, 1 + 1e-9, 1.05, 1.5, 1.9, 2.0, 2.5, 4.0, np.inf],
    "normmax": [1.01, 1.5, 2.0, 3.0, 20.0, np.inf],
    "topk_softmax": [1, 2, 5, 100, 1000000],
    "topk_sparsemax": [1, 2, 5, 100, 1000000],
}
INVALID = {
    "entmax": [0.5, np.nan, -np.inf],
    "normmax": [1.0, np.nan, 0.5],
    "topk_softmax": [0, 1.5],
    "topk_sparsemax": [0, 1.5, np.nan, -np.inf],
}


def launch(name: str, form: Form, number: NumberType, z: np.ndarray, p: np.ndarray, *,
           mask: np.ndarray | None = None, parameter: Any = None, **how: Any) -> None:  # fmt: skip
    """Map z, stored in the type, to p: rows along the last axis."""
    parameter = USUAL.get(name, 0.0) if parameter is None else parameter
    parameter = np.asarray(parameter, float) if np.ndim(parameter) else parameter
    FORWARD[name].run(form, number, [z, mask, p], parameter=parameter, **how)


def check(name: str, number: NumberType, z: np.ndarray, p: np.ndarray, mask: Any = None,
          parameter: Any = None) -> None:  # fmt: skip
    """p is what the NumPy body gives in float64 for the scores as they are stored."""
    parameter = USUAL.get(name) if parameter is None else parameter
    parameters = [] if parameter is None else [parameter]
    expected = getattr(pyentmax, name).reference(number.exact(z), *parameters, mask=mask)
    got = number.exact(p)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    # Results below 2^-126 may be flushed to zero, which only bfloat16 can tell from them.
    half = np.maximum(number.ulp(expected), 2.0**-126)
    allowed = {FLOAT32: 1e-6, FLOAT64: 1e-14}.get(number, half)
    low, high = bounds(name, expected, parameter, number)
    wrong = (got < low - allowed) | (got > high + allowed)
    worst = np.unravel_index(wrong.argmax(), wrong.shape)
    assert not wrong.any(), f"{got[worst]} for {expected[worst]} at {worst} of {z.shape}"


def bounds(name: str, p: np.ndarray, parameter: Any, number: NumberType) -> list[np.ndarray]:
    """Where p may lie for scores moved by a few ε, and τ with them.

    That is all that is promised for α > 2; and for half types, where one of float32's ε can be more
    than an ulp of a small p.
    """
    orders = {"sparsemax": 2.0, "topk_sparsemax": 2.0, "entmax15": 1.5}
    orders |= {"entmax": parameter, "normmax": parameter}
    alpha = np.asarray(orders.get(name, 1.0))[..., None]
    half = number is not FLOAT32 and number is not FLOAT64
    move = np.finfo(number.computed).eps * np.where(alpha > 2, 16.0, 2.0 * half)
    with np.errstate(invalid="ignore", divide="ignore"):
        beta = np.where(np.isfinite(alpha), np.maximum(alpha - 1, 1e-6), 1)
        size = 1.0
        if name == "normmax":  # (p/‖p‖)^β = z − τ there, and p^β = β (z − τ) elsewhere
            top = p.max(axis=-1, keepdims=True)
            size = top * ((p / top) ** alpha).sum(axis=-1, keepdims=True) ** (1 / alpha)
        move = np.where(np.isfinite(alpha), move * (1 if name == "normmax" else beta), 0)
        power = (p / size) ** beta
        ends = [np.maximum(power + side * move, 0) ** (1 / beta) * size for side in (-1, 1)]
        return [
            np.where(p > 0, np.minimum(ends[0], p), 0),
            np.where(p.sum(axis=-1, keepdims=True) > 0, np.maximum(ends[1], p), p),
        ]


@pytest.mark.parametrize("name", FORWARD)
@form_and_type(FORMS)
def test_every_kind_of_row(name: str, form: Form, number: NumberType) -> None:
    for n, schedule in zip(form.lengths, [IN_ORDER, REVERSED, 1, 2, 3, 4], strict=False):
        z = number.rounded(score_rows(n))
        p = np.empty_like(z)
        launch(name, form, number, z, p, schedule=schedule)
        check(name, number, z, p)


@pytest.mark.parametrize("name", FORWARD)
def test_crowded_rows_sum_to_one(name: str) -> None:
    n = BLOCK.lengths[-1]
    z = crowded_rows(n, np.float32)
    p = np.empty_like(z)
    launch(name, BLOCK, FLOAT32, z, p)
    off = np.abs(p.sum(axis=-1, dtype=np.float64) - 1)
    assert off.max() <= 4 * np.finfo(np.float32).eps * np.sqrt(n)


@pytest.mark.parametrize(
    ("n", "alpha", "level"),
    [
        (508, 1.828375494727526, -0.5869228),
        (497, 1.7709446004324905, -0.75844795),
        (600, 1.9, -1.0),
        (4096, 1.95, -0.9),
    ],
)
def test_a_crowd_near_the_threshold_is_moved_and_not_the_largest(
    n: int, alpha: float, level: float
) -> None:
    # What rounding adds to a sum comes from the crowd: divided out of all, it spoils the largest.
    z = np.full((1, n), level, np.float32)
    z[0, 0] = 0
    p = np.empty_like(z)
    launch("entmax", STREAM if n > 4000 else BLOCK, FLOAT32, z, p, parameter=alpha)
    exact = pyentmax.entmax.reference(z.astype(float), alpha)
    eps = np.finfo(np.float32).eps
    allowed = 4 * eps * exact + 16 * eps * max(1, -level) * exact ** (2 - alpha)
    assert (np.abs(p - exact) <= allowed).all(), np.max(np.abs(p - exact) / allowed)


@pytest.mark.parametrize("form", [LANES, BLOCK, STREAM], ids=lambda form: form.name)
@pytest.mark.parametrize(
    ("name", "alpha"),
    [("sparsemax", 2), ("topk_sparsemax", 2), *(("entmax", a) for a in (1.75, 1.99, 1.9999, 2))],
)
def test_a_crowd_in_or_out_of_the_support_by_rounding_gets_its_share(
    name: str, alpha: float, form: Form
) -> None:
    n = form.lengths[-1]
    z = crowds_at_the_threshold(n, alpha, np.float32)
    p = np.empty_like(z)
    launch(name, form, FLOAT32, z, p, parameter=n if name == "topk_sparsemax" else alpha)
    assert_as_exact(p, entmax_in_long_doubles(z, alpha), z, alpha)


@pytest.mark.parametrize("name", VALUES)
@form_and_type(FORMS)
def test_a_parameter_for_each_row(name: str, form: Form, number: NumberType) -> None:
    parameter = np.array(VALUES[name])[:, None]
    for n, schedule in zip(form.lengths, [REVERSED, 1, IN_ORDER, 2, 3, 4], strict=False):
        rows = score_rows(n)[:: 1 if n < 600 else 2]
        z = number.rounded(np.broadcast_to(rows, (len(parameter), *rows.shape)))
        p = np.empty_like(z)
        launch(name, form, number, z, p, parameter=parameter, schedule=schedule)
        check(name, number, z, p, parameter=parameter)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_invalid_parameter_makes_its_row_nan(name: str, form: Form) -> None:
    wrong, right = INVALID[name], VALUES[name][1]
    z = np.repeat(score_rows(form.lengths[1])[1:2], 2 * len(wrong), axis=0).astype(np.float32)
    p, parameter = np.empty_like(z), np.full(len(z), float(right))
    parameter[::2] = wrong
    launch(name, form, FLOAT32, z, p, parameter=parameter)
    assert np.isnan(p[::2]).all()
    check(name, FLOAT32, z[1::2], p[1::2], parameter=right)


@pytest.mark.parametrize("name", ["topk_softmax", "topk_sparsemax"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_k_are_chosen_by_score_and_not_by_gap(name: str, form: Form) -> None:
    n, small = form.lengths[-1], 2.0**-26
    z = np.full((2, n), -9, np.float32)
    z[0, : min(n, 4)] = [16, small, 0, small][: min(n, 4)]
    z[1, :3] = [1, 0.5, 0.5 + 2.0**-24]
    p = np.empty_like(z)
    launch(name, form, FLOAT32, z, p, parameter=2.0)
    if name == "topk_softmax":
        np.testing.assert_array_equal(np.flatnonzero(p[0]), [0, 1, 3])
    np.testing.assert_array_equal(np.flatnonzero(p[1]), [0, 2])


def rows_with_ties(n: int) -> np.ndarray:
    """Rows in which scores tie, or all but tie, for one place or another; float64."""
    rng = np.random.default_rng(n)
    steps = rng.integers(0, 5, (4, n))
    first = np.arange(n) == rng.integers(n)
    rows = [
        -steps[0] / 64.0,  # ties within the support
        np.where(first, 0.25, -steps[1] / 4.0),  # and outside, and at its very edge
        np.where(first, 0.75, 1e-9 * steps[2]),  # other scores, but in float32 the same gaps
        np.where(first, 0.75, np.where(steps[3] % 2, 0.0, -0.0)),
        np.where(rng.random(n) < 0.2, 0.5, -np.inf),
    ]
    return np.array(rows)


@form_and_type(FORMS)
def test_ties_for_the_kth_place(form: Form, number: NumberType) -> None:
    """Whatever the number of those that tie, p is the body's at every index, in place too."""
    for n, schedule in zip(form.lengths[1:], [REVERSED, 1, IN_ORDER, 2, 3], strict=False):
        k = np.unique(np.maximum([1, 2, 3, 4, n // 3, n // 2 + 1, n - 1, n], 1))
        k = k.astype(float)[:, None]
        rows = rows_with_ties(n)
        z = number.rounded(np.broadcast_to(rows, (len(k), *rows.shape)))
        p = np.empty_like(z)
        launch("topk_sparsemax", form, number, z, p, parameter=k, schedule=schedule, room=24)
        check("topk_sparsemax", number, z, p, parameter=k)
        assert ((number.exact(p) != 0).sum(axis=-1) <= k).all()
        launch("topk_sparsemax", form, number, z, z, parameter=k, schedule=schedule, room=24)
        np.testing.assert_array_equal(z, p)


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


@form_and_type(FORMS)
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
            allowed = np.maximum(number.ulp(expected), 1e-6)
            assert (np.abs(number.exact(laid) - expected) <= allowed).all()
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


@pytest.mark.parametrize("name", one_of(FORWARD, "entmax"))
@form_and_type(FORMS, checked=True)
def test_no_race_and_no_overrun(name: str, form: Form, number: NumberType) -> None:
    n = form.lengths[-2]
    z = number.rounded(score_rows(n))[:11]
    mask = np.arange(n) % 5 > 0
    for schedule in (REVERSED, 1):
        p = np.empty_like(z)
        launch(name, form, number, z, p, mask=mask, schedule=schedule, checked=True, room=24)
        check(name, number, z, p, mask)


@pytest.mark.deep
@pytest.mark.parametrize("name", FORWARD)
@form_and_type(FORMS, checked=True)
def test_no_race_and_no_overrun_at_length(name: str, form: Form, number: NumberType) -> None:
    for n in form.lengths:
        z = number.rounded(score_rows(n))
        mask = np.random.default_rng(n).random(z.shape) < 0.9
        for schedule in (IN_ORDER, REVERSED, 1, 2, 3):
            for room, words in [(0, 0), (24, 5), (600, 1 << 10)]:
                p = np.empty_like(z)
                launch(name, form, number, z, p, mask=mask, schedule=schedule, checked=True,
                       room=room, words=words)  # fmt: skip
                check(name, number, z, p, mask)
                if form is not STREAM:
                    break
