"""Every CUDA kernel, emulated, in every layout of a row: the truth of the claims, and no race."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import emulated_cupy
import fake_cupy
import numpy as np
import pytest
import rows
import truth
from emulation import IN_ORDER, REVERSED, compiled, unavailable
from fake_cupy import moved
from stages import deep
from test_values import TIES, assert_loss_right, assert_right, hard_rows

import pyentmax as pe
from pyentmax.engine.backends.cuda import launch
from pyentmax.engine.backends.cuda.launch import Kernel, RowLayout, source
from pyentmax.engine.backends.cuda.operands import launches

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

LANES, WARP, COLUMNS = (
    RowLayout(kind, (lanes, 16)) for kind, lanes in (("lanes", 8), ("lanes", 32), ("columns", 32))
)
BLOCK, HELD, STREAM = (
    RowLayout("block", (4, 16)),
    RowLayout("held", (2,)),
    RowLayout("stream", (2,)),
)
BOUNDED = [RowLayout("lanes", (8,)), RowLayout("lanes", (32,)), RowLayout("block", (4,))]
LENGTHS: dict[RowLayout, tuple[int, ...]] = {  # worth a test, with the most where there is one
    LANES: (1, 7, 127, 128), WARP: (3, 257, 512), COLUMNS: (3, 257, 512),
    BLOCK: (513, 2047, 2048), HELD: (1, 33, 515, 4096), STREAM: (1, 33, 515, 4096),
    BOUNDED[0]: (2, 7, 127), BOUNDED[1]: (3, 257, 512), BOUNDED[2]: (513, 1000),
}  # fmt: skip
CASES: list[tuple[Any, ...]] = [("softmax",), ("sparsemax",), ("entmax15",), ("entmax", 1.25)]
CASES += [("entmax", 3), ("normmax", 1.7), ("topk_softmax", 3), ("topk_sparsemax", 3)]
CASES += [("csoftmax", 0.625), ("csparsemax", 0.625), ("budget_sparsemax", 1.5)]
VALUES = dict(case for case in CASES if len(case) == 2)
FLOATS = {np.float32: "float", np.float64: "double", np.float16: "__half"}


def layouts(name: str) -> list[RowLayout]:
    """The ways that a mapping's kernel has to hold a row."""
    return BOUNDED if name in truth.BOUNDED else [LANES, WARP, BLOCK, HELD, STREAM, COLUMNS]


def every_layout(cases: Sequence[tuple[Any, ...]], dtypes: Sequence[Any]) -> Any:
    """Each case in each layout, in float32; of other types some, and the rest in the deep stage."""
    first = {np.float64: ("lanes",), np.float16: ("block", "columns")}
    table = [
        pytest.param(case, layout, dtype, id=f"{'-'.join(map(str, case))}-{layout.kind}"
                     f"{layout.sizes[0]}-{FLOATS[dtype]}",
                     marks=[] if layout.kind in first.get(dtype, layout.kind) else pytest.mark.deep)
        for case in cases
        for layout in layouts(case[0])
        for dtype in dtypes
    ]  # fmt: skip
    return pytest.mark.parametrize(("case", "layout", "dtype"), table)


def together(name: str) -> tuple[str, ...]:
    """All layouts of a kernel, by the name of one."""
    if name.startswith("rescale"):
        return (name,)
    [(family, member, number)] = re.findall(r"([a-z]+)_[a-z]+<(\w+), (\w+)", name)
    forms = BOUNDED if family == "bounded" else layouts("")[: 5 if family == "loss" else 6]
    names = [
        f"{family}_{form.kind}<{', '.join([member, number, *map(str, form.sizes)])}>"
        for form in forms
    ]
    return (*names, *({name} - {*names}))


@contextmanager
def held_by(
    layout: RowLayout, *, room: int = 64, words: int = 1024, schedule: int = REVERSED,
    checked: bool = False,
) -> Iterator[Any]:  # fmt: skip
    """Rows are held in one way, with that much of shared memory beside."""
    form = layout._replace(kind="lanes") if layout.kind == "columns" else layout
    of_product = dict(zip(BOUNDED, (LANES, WARP, BLOCK), strict=True)).get(form, form)

    def chosen(kernel: Kernel, *_: Any) -> RowLayout:
        return form if kernel.family == "bounded" else of_product

    with emulated_cupy.installed(checked=checked) as gpu, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "form", chosen)
        patch.setattr(launch, "storage", lambda *_: (room, words))
        patch.setattr(launch, "room_beside", lambda *_: room)
        gpu.schedule, gpu.together = schedule, together
        yield gpu
        assert gpu.launches
        kinds = {re.split("[_<]", launched.name)[1] for launched in gpu.launches}
        assert kinds <= {layout.kind, *FLOATS.values()}, "rescale<float> has no layout"


def called(layout: RowLayout, function: Any, *arrays: Any, **options: Any) -> Any:
    """The result for rows, which lie side by side if they are held as columns."""
    across = layout.kind == "columns"

    def turned(x: Any) -> Any:
        return x.T if across and isinstance(x, np.ndarray) and x.ndim == 2 else x

    there = [moved(np.ascontiguousarray(turned(x)) if np.ndim(x) else x) for x in arrays]
    options = {key: moved(turned(x)) for key, x in options.items()}
    fake_cupy.copies.reset()
    found = function(*there, axis=0 if across else -1, **options)
    assert fake_cupy.copies.to_host == fake_cupy.copies.to_device == 0
    return (
        tuple(turned(x.get()) for x in found) if isinstance(found, tuple) else turned(found.get())
    )


def scores(case: tuple[Any, ...], n: int, dtype: Any) -> tuple[list[str], np.ndarray]:
    """Rows of every kind, but for subnormal numbers, which may be zeros on a device."""
    bounded = case[0] in truth.BOUNDED and n < 7
    return rows.batch(n, dtype, ("tiny", *(("half is -inf",) if bounded else ())))


def check(case: tuple[Any, ...], layout: RowLayout, dtype: Any, n: int) -> None:
    """A mapping, its product and slope, its loss and gradient, for rows of n entries."""
    name, *value = case
    mapping = getattr(pe, name)
    names, z = scores(case, n, dtype)
    p = called(layout, mapping, z, *value)
    assert p.dtype == dtype
    assert_right(case, p, truth.forward(name, z, *value), z, names)
    mask = rows.masks(z.shape)
    hidden = np.where(mask, z, dtype(-np.inf))
    masked = called(layout, mapping, np.where(mask, z, np.nan), *value, mask=mask)
    assert_right(case, masked, truth.forward(name, hidden, *value), hidden, names)
    v = np.random.default_rng(n).standard_normal(z.shape).astype(dtype)
    for here in (p, masked):
        assert_product(called(layout, mapping.jvp, here, v, *value), mapping.jvp, here, v, *value)
    spoilt = np.where(mask, masked, dtype(np.nan))
    product = called(layout, mapping.jvp, spoilt, v, *value, mask=mask)
    assert_product(product, mapping.jvp, masked, v, *value, mask=mask)
    if name == "entmax":
        slope = mapping.parameter_slope
        assert_product(called(layout, slope, p, *value), slope, p, *value)
    if name in ("topk_softmax", *truth.BOUNDED) or layout is COLUMNS:
        return
    names, z = rows.batch(n, dtype, ("tiny", "largest floats", "half is -inf", *rows.SPOILT))
    y = np.where(np.arange(len(z)) % 2, z.argmax(axis=-1), np.arange(len(z)) % n)
    best = truth.loss(name, z, np.eye(n)[y], *value), truth.forward(name, z, *value)
    found = called(layout, mapping.loss_and_grad, z, y, *value, reduction="none")
    if dtype != np.float16:  # whose roundings the table of losses does not know
        assert_loss_right(case, found, (names, z, y, *best))
    alone = called(layout, mapping.loss, z, y, *value, reduction="none")
    np.testing.assert_array_equal(alone, found[0])


def assert_product(found: Any, function: Any, *given: Any, **options: Any) -> None:
    """A derivative, as the rule gives it in double precision."""
    wide = [x.astype(float) if isinstance(x, np.ndarray) else x for x in given]
    best = function.reference(*wide, **options)
    least = 1e-3 if len(given) > 1 and np.ndim(given[1]) else 0.1  # a slope in α cancels
    size = np.nanmax(np.abs(best), axis=-1, keepdims=True, initial=least)
    room = 128 * np.finfo(np.float32 if found.itemsize == 2 else found.dtype).eps * size
    if found.itemsize == 2:
        room = room + np.finfo(found.dtype).eps * size
    right = (np.abs(found - best) <= room) | (np.isnan(found) & np.isnan(best))
    assert right.all(), (found[~right][:3], best[~right][:3])


@every_layout(CASES, [np.float32, np.float64, np.float16])
def test_truth_in_every_layout(case: Any, layout: RowLayout, dtype: Any) -> None:
    for n, schedule in zip(LENGTHS[layout], itertools.cycle([IN_ORDER, REVERSED, 1, 2])):
        if n > 1 or case[0] not in truth.BOUNDED:
            with held_by(layout, schedule=schedule):
                check(case, layout, dtype, n)


CHECKED = [("entmax", 1.25), ("csparsemax", 0.625)]


@pytest.mark.parametrize(
    "case", [*CHECKED, *deep(*([case] for case in CASES if case not in CHECKED))]
)
def test_no_race_and_no_overrun(case: tuple[Any, ...]) -> None:
    """One of each family; the others are deep. What a block has no room for is read again."""
    for layout in layouts(case[0]):
        with held_by(layout, checked=True, room=24, words=9, schedule=1):
            check(case, layout, np.float32, LENGTHS[layout][-2])


@pytest.mark.deep
@every_layout(CASES, [np.float32])
def test_no_race_and_no_overrun_at_length(case: Any, layout: RowLayout, dtype: Any) -> None:
    for n, schedule in itertools.product(LENGTHS[layout], (IN_ORDER, REVERSED, 1, 2, 3)):
        for room, words in [(0, 0), (24, 5), (600, 1 << 10)][: 3 if layout is STREAM else 1]:
            if n > 1 or case[0] not in truth.BOUNDED:
                with held_by(layout, checked=True, room=room, words=words, schedule=schedule):
                    check(case, layout, dtype, n)


@pytest.mark.parametrize("layout", [LANES, BLOCK, STREAM, *BOUNDED], ids=str)
def test_hard_rows(layout: RowLayout) -> None:
    """What a kernel once got wrong on the CPU, or here."""
    with held_by(layout):
        for name, value, scores in hard_rows():
            subnormal = name in ("entmax", "normmax") and np.min(np.abs(scores)) < 1e-37
            if layout not in layouts(name) or name in ("fusedmax", "oscarmax") or subnormal:
                continue
            if layout is LANES and len(scores) > LENGTHS[LANES][-1]:
                continue
            with np.errstate(over="ignore"):
                z = np.array([scores], np.float32)
            if np.isinf(z).sum() > np.isinf(scores).sum() or (name, value) == ("normmax", np.inf):
                continue
            given = [] if value is None else [value]
            if name[:2] == "cs":
                given = [np.asarray(value, np.float32)[()]]
            if name == "entmax" and value < 1:
                continue  # the rule's
            p = called(layout, getattr(pe, name), z, *given)
            best = truth.forward(name, z, *given)
            assert_right((name, *given), p, best, z, [(name, value, scores)])


@pytest.mark.parametrize("layout", [BLOCK, STREAM], ids=str)
def test_ties_near_the_threshold(layout: RowLayout) -> None:
    with held_by(layout):
        for n, alpha, level in [row for row in TIES if isinstance(row[0], int)]:
            if n > LENGTHS[layout][-1]:
                continue
            z = np.full((1, n), level, np.float32)
            z[0, 0] = 0
            p = called(layout, pe.entmax, z, alpha)
            assert_right(("entmax", alpha), p, truth.forward("entmax", z, alpha), z)


def test_zeros_of_either_sign_tie() -> None:
    """Which of them is the largest, threads did not agree on."""
    for layout in layouts("topk_softmax"):
        rng = np.random.default_rng(0)
        z = rng.choice(np.array([0.0, -0.0, -0.5], np.float32), (20, LENGTHS[layout][-2]))
        with held_by(layout):
            for name, k in (("topk_softmax", 1), ("topk_softmax", 5), ("topk_sparsemax", 40)):
                p = called(layout, getattr(pe, name), z, k)
                assert_right((name, k), p, truth.forward(name, z, k), z)


def test_long_rows_with_any_storage() -> None:
    """Whatever fits on the chip of a row too long for it."""
    for case in CASES[:-3]:
        names, z = scores(case, 1100, np.float32)
        best = truth.forward(case[0], z, *case[1:])
        for room, words in ((0, 0), (0, 200), (40, 0), (40, 200), (600, 3)):
            with held_by(STREAM, room=room, words=words):
                p = called(STREAM, getattr(pe, case[0]), z, *case[1:])
                assert_right(case, p, best, z, names)


def test_bfloat16_is_float32_rounded() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed").bfloat16
    for layout in (COLUMNS, BLOCK, STREAM):
        z = rows.batch(LENGTHS[layout][-2], np.float32, ("tiny", "largest floats"))[1]
        z = z.astype(bfloat16)
        with held_by(layout):
            found = called(layout, pe.entmax, z, 1.25)
            wide = called(layout, pe.entmax, z.astype(np.float32), 1.25)
        assert found.dtype == bfloat16
        np.testing.assert_array_equal(
            found.astype(np.float32), wide.astype(bfloat16).astype(np.float32)
        )


INVALID = {"entmax": [0.5, np.nan], "normmax": [1, np.nan], "topk_softmax": [0, 1.5],
           "topk_sparsemax": [0, np.nan], "budget_sparsemax": [-1, np.nan]}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_parameter_makes_its_row_nan(name: str) -> None:
    """A kernel may not raise: nobody waits for it."""
    for layout in layouts(name):
        p = np.full((4, LENGTHS[layout][1]), 1 / LENGTHS[layout][1], np.float32)
        given = np.array([2, INVALID[name][0], INVALID[name][1], 2])
        with held_by(layout):
            calls = [called(layout, getattr(pe, name), p, given)]
            if name in ("entmax", "normmax"):
                calls.append(called(layout, getattr(pe, name).jvp, p, p, given))
        for found in calls:
            assert np.isnan(found).all(axis=1).tolist() == [False, True, True, False]
            assert not np.isnan(found[[0, 3]]).any()


@pytest.mark.parametrize("layout", layouts("sparsemax"), ids=str)
def test_rows_lie_anywhere(layout: RowLayout) -> None:
    """Along any axis, backwards, with gaps, unaligned, in place; gaps are left alone."""
    n = LENGTHS[layout][1]
    z = np.random.default_rng(0).standard_normal((2, 3, 5, n)).astype(np.float32)
    best = pe.sparsemax.reference(z)
    kind = layout._replace(kind="lanes") if layout is COLUMNS else layout
    with emulated_cupy.installed() as gpu, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "form", lambda *_: kind)
        patch.setattr(launch, "storage", lambda *_: (64, 1024))
        patch.setattr(launch, "room_beside", lambda *_: 64)
        gpu.together = together
        for schedule, order in enumerate([(0, 1, 2, 3), (3, 0, 1, 2), (0, 3, 2, 1), (2, 1, 0, 3)]):
            gpu.schedule = schedule
            for step, start in [(1, 0), (1, 1), (2, 1), (-1, 0)]:
                shape = [z.shape[axis] for axis in order]
                room = np.full([*shape[:-1], 2 * shape[-1] + 1], 7, z.dtype)
                laid = fake_cupy.asarray(room)
                part = laid[..., start:][..., ::step][..., : shape[-1]]
                part = part.transpose(*np.argsort(order).tolist())
                part[...] = fake_cupy.asarray(z)
                apart = pe.sparsemax(part)
                np.testing.assert_array_equal(part.get(), z)  # inputs are never overwritten
                assert pe.sparsemax(part, out=part) is part
                np.testing.assert_array_equal(part.get(), apart.get())
                np.testing.assert_allclose(part.get(), best, rtol=0, atol=1e-6)
                part[...] = 7
                assert (laid.get() == 7).all()


def test_rescaling() -> None:
    """A gradient's rows, by a number each: the kernel that follows a mean of losses."""
    names = [f"rescale<{name}>" for name in (*FLOATS.values(), "BFloat16")]
    library = compiled(source("losses.cu"), names, checked=True)
    bits = np.random.default_rng(0).integers(0x3C00, 0x4400, (5, 300)).astype(np.uint16)
    for name, dtype in zip(names, (*FLOATS, np.uint16), strict=True):
        for factor in (0.25, 1.0):  # a quarter takes 2 from bfloat16's exponent
            gradient = bits.copy() if dtype is np.uint16 else (bits / 1024).astype(dtype)
            expected = (
                gradient - (256 if factor < 1 else 0) if dtype is np.uint16 else gradient * factor
            )
            factors = np.full(5, factor)
            ((_, batch, arrays, numbers),) = launches(gradient.shape, [gradient], [factors])
            given = [x[()] for x in (*arrays, batch, *numbers)]
            library.launch(name, 3, 128, given, arrays=[gradient, factors])
            np.testing.assert_array_equal(gradient, expected.astype(dtype))
