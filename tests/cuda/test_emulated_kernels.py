"""The kernels of rows, emulated: each type, each way to hold a row, held to the CPU's contract."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from compiled_functions import FUNCTIONS
from crowded_rows import crowded_rows, crowds_at_the_threshold
from emulation import IN_ORDER, REVERSED, compiled, unavailable
from kernel_arguments import SOURCES, Arguments
from kernel_runs import (
    BLOCK,
    BOUNDED_FORMS,
    FORMS,
    KERNELS,
    LANES,
    LOSS_FORMS,
    SHORT,
    SHORT_CHECKED,
    STREAM,
    RowLayout,
)
from kernel_twins import check, check_rows, operands, run
from number_types import FLOAT32, TYPES, NumberType
from score_rows import score_rows

import pyentmax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

FORWARD = [name for name in KERNELS if KERNELS[name].family == "forward"]
PRODUCTS = [name for name in KERNELS if name.endswith("_jvp")]
CHECKED = ("entmax", "entmax_jvp", "csparsemax", "entmax_loss_and_grad")  # one of a family


def every_kernel(names: Iterable[str] = KERNELS, *, checked: bool = False) -> Any:
    """Parametrise a test by kernel, form and type, those that are not short being marked deep."""
    short = SHORT_CHECKED if checked else SHORT
    return pytest.mark.parametrize(
        ("name", "form", "number"),
        [
            pytest.param(
                name, form, number, id=f"{name}-{form}-{number}",
                marks=[] if (form, number) in short and (not checked or name in CHECKED)
                else pytest.mark.deep,
            )
            for name in names
            for form in KERNELS[name].forms
            for number in TYPES
        ],
    )  # fmt: skip


every_form = pytest.mark.parametrize("form", FORMS, ids=str)


@every_kernel()
def test_every_kind_of_row(name: str, form: RowLayout, number: NumberType) -> None:
    for n, schedule in zip(form.lengths, [IN_ORDER, REVERSED, 1, 2, 3, 4], strict=False):
        for seed in range(2 if n < 600 else 1):
            check_rows(name, form, number, score_rows(n, seed), seed, schedule=schedule)


@pytest.mark.parametrize("name", PRODUCTS)
@every_form
def test_masked_entries_do_not_move(name: str, form: RowLayout) -> None:
    rng = np.random.default_rng(0)
    p, v, *further = operands(name, score_rows(form.lengths[-2])[:12].astype(np.float32), rng)
    mask = rng.random(p.shape) < 0.6
    (found,) = run(name, form, FLOAT32, (np.where(mask, p, np.nan), v, *further), mask=mask)
    (expected,) = run(name, form, FLOAT32, (np.where(mask, p, 0), v, *further))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", [name for name in KERNELS if "_loss" in name])
@pytest.mark.parametrize("form", LOSS_FORMS, ids=str)
def test_a_loss_alone_is_that_beside_its_gradient(name: str, form: RowLayout) -> None:
    z = score_rows(form.lengths[-2]).astype(np.float32)
    given = operands(name, z, np.random.default_rng(0))
    both = run(name, form, FLOAT32, given)
    np.testing.assert_array_equal(run(name, form, FLOAT32, given, alone=True)[:2], both[:2])


# Rows that a kernel may get wrong: for n entries, scores and what a kernel takes behind the mask.
def below_the_largest(n: int, alpha: float, level: float) -> tuple[Any, ...]:
    """What rounding adds to a sum comes from the crowd, not from the largest."""
    z = np.full((1, n), level)
    z[0, 0] = 0
    return z, alpha


def chosen_by_score(n: int) -> tuple[Any, ...]:
    """Their gaps to the largest are the same numbers."""
    z, small = np.full((2, n), -9.0), 2.0**-26
    z[0, : min(n, 4)] = [16, small, 0, small][: min(n, 4)]
    z[1, :3] = [1, 0.5, 0.5 + 2.0**-24]
    return z, 2


def full_at_many_scales(n: int) -> tuple[Any, ...]:
    """In float32 the rest was shared evenly from the fifth scale on."""
    z = np.full((2, n), -1e31)
    z[:, :8] = [1e38, 1e29, 1e20, 1e11, 1e2, 0.5, 0.45, 0.4]
    return z, np.full(z.shape, 0.15, np.float32)


def far_apart(n: int, scale: float) -> tuple[Any, ...]:
    """A rounding of the level is more than any p: bounds fill one after the other."""
    rng = np.random.default_rng(n)
    z = scale * rng.standard_normal((12, n))
    return z, rng.uniform(1 / n, 4 / n, z.shape).astype(np.float32)


def of_all_sizes(n: int, budget: bool) -> tuple[Any, ...]:
    """Halving the difference of two levels would take hundreds of passes."""
    rng = np.random.default_rng(n)
    z = rng.choice([-1, 1], (12, n)) * 10 ** rng.uniform(-37, 36, (12, n))
    return z, 0.3 * n if budget else np.full(z.shape, 3 / n, np.float32)


def zeros_of_either_sign(n: int) -> tuple[Any, ...]:
    """Which of them is the largest, threads did not agree on."""
    rng = np.random.default_rng(n)
    return rng.choice([0.0, -0.0, -0.5], (40, n)), rng.integers(1, n, 40)


def tied_for_the_kth(n: int) -> tuple[Any, ...]:
    """Scores that tie, or all but tie, for one place or another."""
    rng = np.random.default_rng(n)
    steps, first = rng.integers(0, 5, (4, n)), np.arange(n) == rng.integers(n)
    rows = [
        -steps[0] / 64.0,  # ties within the support
        np.where(first, 0.25, -steps[1] / 4.0),  # and outside, and at its very edge
        np.where(first, 0.75, 1e-9 * steps[2]),  # other scores, but in float32 the same gaps
        np.where(first, 0.75, np.where(steps[3] % 2, 0.0, -0.0)),
        np.where(rng.random(n) < 0.2, 0.5, -np.inf),
    ]
    k = np.unique(np.maximum([1, 2, 3, 4, n // 3, n // 2 + 1, n - 1, n], 1))
    return np.tile(rows, (len(k), 1)), np.repeat(k, len(rows))


HARD = [
    *(("entmax", BLOCK, below_the_largest(*row)) for row in [
        (508, 1.828375494727526, -0.5869228), (497, 1.7709446004324905, -0.75844795),
        (600, 1.9, -1.0)]),
    ("entmax", STREAM, below_the_largest(4096, 1.95, -0.9)),
    *((name, form, (crowds_at_the_threshold(form.lengths[-1], alpha, np.float32), alpha))
      for form in (LANES, BLOCK, STREAM) for name, alpha in [
          ("sparsemax", 2), *(("entmax", a) for a in (1.75, 1.99, 1.9999, 2))]),
    *(("topk_sparsemax", form, (crowds_at_the_threshold(n, 2, np.float32), n))
      for form in (LANES, BLOCK, STREAM) for n in form.lengths[-1:]),
    *((name, BLOCK, (crowded_rows(2048, np.float32), *further)) for name, *further in [
        ("softmax",), ("sparsemax",), ("entmax15",), ("entmax", 1.25), ("normmax", 1.7),
        ("topk_softmax", 3), ("topk_sparsemax", 3)]),
    *((name, BOUNDED_FORMS[-1], (crowded_rows(2048, np.float32), further)) for name, further in [
        ("csoftmax", np.full((24, 2048), 0.9, np.float32)), ("budget_sparsemax", 1.5),
        ("csparsemax", np.full((24, 2048), 0.9, np.float32))]),
    *((name, form, chosen_by_score(form.lengths[-1]))
      for name in ("topk_softmax", "topk_sparsemax") for form in FORMS),
    *(("topk_softmax", form, zeros_of_either_sign(form.lengths[-2])) for form in FORMS),
    *((name, form, full_at_many_scales(form.lengths[-2]))
      for name in ("csoftmax", "csparsemax") for form in BOUNDED_FORMS),
    *((name, form, far_apart(form.lengths[-2], scale)) for scale in (1e8, 1e16)
      for name in ("csoftmax", "csparsemax") for form in BOUNDED_FORMS),
    *((name, form, of_all_sizes(form.lengths[-1], name == "budget_sparsemax"))
      for name in ("csoftmax", "csparsemax", "budget_sparsemax") for form in BOUNDED_FORMS),
]  # fmt: skip


def check_hard(
    name: str, form: RowLayout, number: NumberType, rows: tuple[Any, ...], **how: Any
) -> Any:
    z, *further = rows[0].astype(number.computed), *rows[1:]
    further = [np.broadcast_to(x, len(z)) if np.ndim(x) < 2 else x for x in further]
    return check(name, form, number, (z, np.ones(z.shape, bool), *further), **how)


@pytest.mark.parametrize(
    ("name", "form", "rows"),
    HARD,
    ids=[f"{i}-{name}-{form}" for i, (name, form, _) in enumerate(HARD)],
)
def test_hard_rows(name: str, form: RowLayout, rows: tuple[Any, ...]) -> None:
    check_hard(name, form, FLOAT32, rows)


@every_kernel(["topk_sparsemax"])
def test_ties_for_the_kth_place(name: str, form: RowLayout, number: NumberType) -> None:
    """Whatever the number of those that tie, the first are chosen, in place too."""
    for n, schedule in zip(form.lengths[1:], [REVERSED, 1, IN_ORDER, 2, 3], strict=False):
        how = {"schedule": schedule, "room": 24}
        (p,) = check_hard(name, form, number, tied_for_the_kth(n), **how)
        (same,) = check_hard(name, form, number, tied_for_the_kth(n), in_place=True, **how)
        np.testing.assert_array_equal(same, p)


# --- what has no twin: a kernel may not raise, and a row lies anywhere ----------------------------

INVALID = {
    "entmax": [0.5, np.nan, -np.inf],
    "normmax": [1.0, np.nan, 0.5],
    "topk_softmax": [0, 1.5],
    "topk_sparsemax": [0, 1.5, np.nan, -np.inf],
    "entmax_jvp": [0.5, np.nan],
    "entmax_grad_alpha": [0.5, np.nan],
    "normmax_jvp": [1.0, np.nan],
}


@pytest.mark.parametrize("name", INVALID)
@every_form
def test_an_invalid_parameter_makes_its_row_nan(name: str, form: RowLayout) -> None:
    wrong, n = INVALID[name], form.lengths[1]
    rows = np.full((2 * len(wrong), n), 1 / n, np.float32)
    parameter = np.full(len(rows), 2.0)
    parameter[::2] = wrong
    second = {"forward": [np.ones(rows.shape, bool)], "derivative": [rows]}
    second = [] if name.endswith("alpha") else second[KERNELS[name].family]
    (found,) = run(name, form, FLOAT32, (rows, *second, parameter))
    assert np.isnan(found).all(axis=1).tolist() == [True, False] * len(wrong)
    assert not np.isnan(found[1::2]).any()


@pytest.mark.parametrize("form", BOUNDED_FORMS, ids=str)
def test_what_no_row_can_satisfy_is_nan(form: RowLayout) -> None:
    n = form.lengths[1]
    z, mask = np.zeros((5, n), np.float32), np.ones((5, n), bool)
    z[3] = -np.inf
    upper = np.full((5, n), 2 / n, np.float32)
    upper[0], upper[1, 0] = 0.9 / n, -1
    for name in ("csoftmax", "csparsemax"):
        (p,) = run(name, form, FLOAT32, (z, mask, upper))
        assert np.isnan(p).all(axis=1).tolist() == [True, True, False, False, False]
        np.testing.assert_allclose(p[2:4], [[1 / n] * n, [0] * n], rtol=0, atol=1e-6)
    budget = np.array([-1.0, n + 1.0, n, 1.0, 0])
    (p,) = run("budget_sparsemax", form, FLOAT32, (z, mask, budget))
    assert np.isnan(p).all(axis=1).tolist() == [True, True, False, False, False]
    np.testing.assert_array_equal(p[2:], [[1] * n, [0] * n, [0] * n])


@pytest.mark.parametrize("form", LOSS_FORMS, ids=str)
def test_a_label_out_of_range_is_nan_where_it_counts(form: RowLayout) -> None:
    n = form.lengths[1]
    z, mask = np.zeros((12, n), np.float32), np.ones((12, n), bool)
    label, weight = np.resize([-1, n, 0, n + 2**32], 12), np.resize([1, 1, 1, 1, 0, 0], 12)
    loss, _, gradient = run("entmax15_loss_and_grad", form, FLOAT32, (z, mask, label, weight))
    wrong = (weight != 0) & ((label < 0) | (label >= n))
    for found in (np.isnan(loss), np.isnan(gradient).all(axis=1), np.isnan(gradient).any(axis=1)):
        np.testing.assert_array_equal(found, wrong)


@pytest.mark.parametrize("name", ["entmax_jvp", "normmax_jvp", "entmax_grad_alpha"])
@every_form
def test_what_is_beyond_floats_is_infinite_as_in_the_body(name: str, form: RowLayout) -> None:
    p, v = np.zeros((2, 6, 5, form.lengths[1] + 2), np.float32)
    p[..., -3:] = np.array([[0.9, 0.05, 0.05], [0.5, 0.5, 0], [1, 0, 0], [0.5, 0.3, 0.2],
                            [0.45, 0.45, 0.1], [0.6, 0.39, 0.01]])[:, None]  # fmt: skip
    v[..., -3:] = [[1, 2, 4], [1, 2, 2], [2, 2, 2], [-1, 0, 1], [0, 0, 1]]
    given = [x.reshape(30, -1) for x in ([p, v] if name.endswith("jvp") else [p])]
    for alpha in (20, 100, 1000, 1e5, 1e38, 3e38, 1e39, 1.7e308, np.inf):
        (out,) = run(name, form, FLOAT32, (*given, alpha))
        expected = FUNCTIONS[name].reference(*given, alpha)
        assert not np.isnan(out).any()
        far = np.isinf(expected)
        np.testing.assert_array_equal(out[far], expected[far])
        # Powers of p are off by as many ε as their logarithms are large.
        room = 64 * 2.0**-23 * min(1 + 5 * alpha, 1e4)
        size = np.abs(np.where(far, 0, expected)).max(axis=-1, keepdims=True)
        close = np.abs(np.where(far, 0, out) - np.where(far, 0, expected)) <= room * size + 1e-37
        assert close.all(), (alpha, out[~close.all(axis=-1)], expected[~close.all(axis=-1)])


@every_kernel(["sparsemax"])
def test_rows_lie_anywhere(name: str, form: RowLayout, number: NumberType) -> None:
    """Along any axis, backwards, with gaps, unaligned, broadcast, in place; gaps are left alone."""

    def launch(z: np.ndarray, p: np.ndarray, schedule: int = IN_ORDER) -> None:
        KERNELS[name].run(form, number, [z, None, p], schedule=schedule)

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
            launch(laid, apart, 1)
            np.testing.assert_array_equal(laid, values)  # inputs are never overwritten
            launch(laid, laid, 2)
            np.testing.assert_array_equal(laid, apart)
            allowed = np.maximum(number.ulp(expected), 1e-6)
            assert (np.abs(number.exact(laid) - expected) <= allowed).all()
            assert (room[outside] == 7).all()
    together = np.empty_like(values)
    launch(np.broadcast_to(values[:, :1, :1], values.shape), together)
    np.testing.assert_array_equal(together, np.broadcast_to(together[:, :1, :1], together.shape))


@pytest.mark.parametrize("name", [*FORWARD, "entmax15_jvp"])
@pytest.mark.parametrize(("room", "words"), [(0, 0), (0, 200), (40, 0), (40, 200), (600, 3)])
def test_long_rows_with_any_storage(name: str, room: int, words: int) -> None:
    """Whatever fits on the chip of a row too long for it."""
    z = score_rows(1100).astype(np.float32)
    check_rows(name, STREAM, FLOAT32, z, room=room, words=words, schedule=REVERSED)


@every_kernel(checked=True)
def test_no_race_and_no_overrun(name: str, form: RowLayout, number: NumberType) -> None:
    """In place, too."""
    z = score_rows(form.lengths[-2])[:11]
    how = {"checked": True, "room": 24, "words": 9}
    check_rows(name, form, number, z, schedule=REVERSED, **how)
    in_place = KERNELS[name].family != "loss"
    check_rows(name, form, number, z, 1, schedule=1, in_place=in_place, **how)


@pytest.mark.deep
@every_kernel(checked=True)
def test_no_race_and_no_overrun_at_length(name: str, form: RowLayout, number: NumberType) -> None:
    for n in form.lengths:
        for schedule in (IN_ORDER, REVERSED, 1, 2, 3):
            for room, words in [(0, 0), (24, 5), (600, 1 << 10)][: 3 if form is STREAM else 1]:
                how = {"checked": True, "room": room, "words": words}
                check_rows(name, form, number, score_rows(n), schedule=schedule, **how)


@pytest.mark.parametrize("number", TYPES, ids=str)
def test_rescaling(number: NumberType) -> None:
    names = [f"rescale<{each.cuda}>" for each in TYPES]
    library = compiled((SOURCES / "losses.cu").read_text(), names, include=[SOURCES],
                       file_name="losses.cu", checked=True)  # fmt: skip
    for factor in (0.25, 1.0):
        gradient = number.rounded(np.random.default_rng(0).standard_normal((5, 300)))
        expected = number.rounded(number.exact(gradient) * factor)
        make = Arguments(gradient.shape)
        arguments = [make.operand(gradient), make.batch(), make.parameter(np.array([factor] * 5))]
        library.launch(f"rescale<{number.cuda}>", 3, 128, arguments, arrays=make.arrays)
        np.testing.assert_array_equal(gradient, expected)
