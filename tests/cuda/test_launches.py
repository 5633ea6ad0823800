"""CuPy arrays in, CUDA kernels underneath: which launches there are, with what memory."""

from __future__ import annotations

import itertools
import re

import emulated_cupy
import fake_cupy
import numpy as np
import pytest
import truth
from emulation import IN_ORDER, REVERSED, unavailable
from fake_cupy import moved
from test_values import assert_right, hard_rows

import pyentmax as pe
from pyentmax.engine.backends.cuda.functions import (
    ENTMAX,
    ENTMAX_LOSS,
    KERNELS,
    SPARSEMAX,
    SPARSEMAX_JVP,
)
from pyentmax.engine.backends.cuda.launch import (
    STATIC_SHARED,
    TWO_BLOCKS_WARPS,
    Kernel,
    Limits,
    shared_memory,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

RNG = np.random.default_rng(0)
HOPPER = Limits(*emulated_cupy.LIMITS.values())
A100, L40 = Limits(166912, 167936), Limits(101376, 102400)
VALUES = {"entmax": [1.3], "topk_sparsemax": [3], "csparsemax": [0.75], "budget_sparsemax": [1.5]}


@pytest.fixture(autouse=True)
def fresh(gpu: emulated_cupy.Emulation) -> None:
    gpu.schedule = REVERSED
    gpu.launches.clear()


def scores(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name", VALUES)
def test_every_axis_takes_one_launch(gpu: emulated_cupy.Emulation, name: str) -> None:
    function, value = getattr(pe, name), VALUES[name]
    host = scores(5, 4, 2)
    for axis in (1, (0, 2)):
        gpu.launches.clear()
        found = function(moved(host), *value, axis=axis)
        assert len(gpu.launches) == 1
        np.testing.assert_allclose(found.get(), function(host, *value, axis), rtol=0, atol=2e-6)


def test_rows_that_lie_side_by_side_are_read_together(gpu: emulated_cupy.Emulation) -> None:
    z = fake_cupy.asarray(RNG.standard_normal((3, 40, 9)).astype(np.float32))
    turned = z.transpose(2, 1, 0)
    for array, axis, kind in [
        (z, 1, "columns"),
        (z, 0, "columns"),
        (z, -1, "lanes"),
        (z[..., ::2], -1, "lanes"),
        (turned, 1, "lanes"),  # its neighbouring rows are far apart
        (turned, 0, "lanes"),
        (z[:, :, :1], 1, "lanes"),
    ]:
        gpu.launches.clear()
        pe.sparsemax(array, axis)
        pe.sparsemax.jvp(array, array, axis)
        assert [re.split("[_<]", launch.name)[1] for launch in gpu.launches] == [kind, kind]


def boundaries(itemsize: int) -> list[int]:
    """Lengths at which the form changes, and the next ones."""
    lengths = range(1, 130000)
    forms = [SPARSEMAX.form(n, itemsize, HOPPER) for n in lengths]
    last = [n for n, this, after in zip(lengths, forms, forms[1:], strict=False) if this != after]
    return [1, *last, last[-1] + 1]


def test_every_form_holds_its_longest_row(gpu: emulated_cupy.Emulation) -> None:
    for n in boundaries(4):
        z = scores(3 if n < 20000 else 1, n)
        best, across = pe.sparsemax.reference(z), moved(np.ascontiguousarray(z.T))
        for found in (pe.sparsemax(moved(z)).get(), pe.sparsemax(across, 0).get().T):
            np.testing.assert_allclose(found, best, rtol=0, atol=2e-6)
    assert {launch.name.partition("<")[0] for launch in gpu.launches} == {
        "forward_lanes",
        "forward_columns",
        "forward_block",
        "forward_held",
        "forward_stream",
    }


def test_shared_memory_is_asked_for_in_time(gpu: emulated_cupy.Emulation) -> None:
    """48 KB are there without asking, and what a kernel declares counts among them."""
    pe.sparsemax(moved(scores(1, 6140, dtype=float)))
    (launched,) = gpu.launches
    assert 48000 < launched.shared < 48 * 1024


@pytest.mark.parametrize("limits", [HOPPER, A100, L40])
@pytest.mark.parametrize(
    "kernel", [SPARSEMAX, ENTMAX, ENTMAX_LOSS, SPARSEMAX_JVP], ids=lambda kernel: kernel.member
)
def test_shared_memory_suffices_on_every_device(kernel: Kernel, limits: Limits) -> None:
    held = set()
    for itemsize in (2, 4, 8):
        for n in itertools.chain(range(1, 3000, 7), range(3000, 200000, 531)):
            form = kernel.form(n, itemsize, limits)
            shared, _ = shared_memory(kernel, form, n, itemsize, limits)
            assert 0 <= shared <= limits.block - STATIC_SHARED
            if form.kind == "held":
                held.add(itemsize)
                assert kernel.arrays * n * itemsize <= shared
                assert n * itemsize <= 32 * 16 * form.threads  # 32 packs of 16 bytes
                if form.sizes[0] <= TWO_BLOCKS_WARPS[itemsize]:
                    assert 2 * (shared + STATIC_SHARED) <= limits.multiprocessor
    assert held == {2, 4, 8}


def test_any_strides_without_a_copy(gpu: emulated_cupy.Emulation) -> None:
    """Five axes in an order that no three steps follow: several launches, and still no copy."""
    z = fake_cupy.asarray(RNG.standard_normal((2, 3, 2, 4, 2, 3)).astype(np.float32))
    view = z.transpose(5, 3, 1, 4, 0, 2)[:, :, ::-1]
    before = gpu.allocations
    p = pe.sparsemax(view, 1)
    assert gpu.allocations == before + 1
    assert len(gpu.launches) > 1
    np.testing.assert_allclose(p.get(), pe.sparsemax.reference(view.get(), 1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", VALUES)
def test_results_go_where_out_says(gpu: emulated_cupy.Emulation, name: str) -> None:
    function, value, z = getattr(pe, name), VALUES[name], scores(4, 6)
    expected = function.reference(z, *value)
    wide = moved(np.full((4, 13), 7, np.float32))
    for out in (wide[:, 1::2], moved(np.empty((4, 6))), wide[:, ::-1][:, ::2][:, 1:]):
        device = moved(z)
        before = gpu.allocations
        assert function(device, *value, out=out) is out
        numbers = 2 * (name == "csparsemax")  # the one bound goes to the device, and to its type
        assert gpu.allocations == before + numbers + (out.dtype != z.dtype)
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=1e-6)
    assert (wide.get()[:, 12] == 7).all()
    shared = moved(np.concatenate([z, z], axis=1))  # overlapping its input
    function(shared[:, :6], *value, out=shared[:, 3:9])
    np.testing.assert_allclose(shared.get()[:, 3:9], expected, rtol=0, atol=1e-6)
    for schedule, step in itertools.product((IN_ORDER, REVERSED), (1, -1)):  # and the next row
        gpu.schedule = schedule
        shared = moved(np.concatenate([z, z[:1]]))[::step]
        expected = function.reference(shared.get()[:4], *value)
        function(shared[:4], *value, out=shared[1:])
        np.testing.assert_allclose(shared.get()[1:], expected, rtol=0, atol=1e-6)


def test_what_is_wrong_is_said_before_anything_runs(gpu: emulated_cupy.Emulation) -> None:
    z, y = moved(scores(2, 3)), moved(np.zeros(2, int))
    for arguments, options, error, message in [
        ([0], {}, ValueError, "alpha must be above 0, got 0"),
        ([np.array([1.5, 2.0])], {}, TypeError, r"alpha must lie on the GPU.*cupy.asarray\(alpha"),
        ([fake_cupy.asarray(np.ones(3))], {}, ValueError, "alpha of shape .* does not broadcast"),
        ([], {"axis": 2}, ValueError, "axis 2 is out of bounds"),
        ([], {"mask": np.ones(3, bool)}, TypeError, "mask must lie on the GPU"),
        ([], {"mask": fake_cupy.asarray(np.ones(3))}, TypeError, "mask must be boolean"),
        ([], {"out": np.zeros((2, 3), np.float32)}, TypeError, "out"),
    ]:
        with pytest.raises(error, match=message):
            pe.entmax(z, *arguments, **options)
        if "out" not in options:
            with pytest.raises(error, match=message):
                pe.entmax.loss_and_grad(z, y, *arguments, **options)
    for options in ({"reduction": "median"}, {"label_smoothing": 2.0}):
        with pytest.raises(ValueError, match="must be"):
            pe.entmax.loss(z, y, **options)
    with pytest.raises(TypeError, match=r"y must lie on the GPU .*cupy\.asarray\(y\)"):
        pe.sparsemax.loss(z, np.zeros(2, int))
    for name in ("fusedmax", "oscarmax"):
        with pytest.raises(ValueError, match="strength must be at least 0, got -1"):
            getattr(pe, name)(z, -1)
    assert not gpu.launches


def test_what_is_wrong_in_an_array_is_nan(gpu: emulated_cupy.Emulation) -> None:
    """It is not looked at: that waits."""
    z = scores(6, 5)
    p = pe.entmax(moved(z), moved(np.array([0.0, 1.5] * 3)))
    assert np.isnan(p.get()).all(axis=1).tolist() == [True, False] * 3
    for name in ("fusedmax", "oscarmax"):
        p = getattr(pe, name)(moved(z), moved(np.array([-1.0, np.nan, 0.1] * 2)))
        assert np.isnan(p.get()).all(axis=1).tolist() == [True, True, False] * 2
    upper = np.full((6, 5), 0.4)
    upper[0], upper[1, 0] = 0.1, -1  # too little for a row; no bound
    for name in ("csoftmax", "csparsemax"):
        p = getattr(pe, name)(moved(z), moved(upper))
        assert np.isnan(p.get()).all(axis=1).tolist() == [True, True] + [False] * 4
    z[0, 1], z[1, 1] = np.nan, np.inf
    y, weight = np.array([0, 0, 5, -1, 1, 1]), np.array([1, 1, 1, 1, -1, 1.0])
    options = {"reduction": "none", "weight": moved(weight)}
    loss, gradient = pe.sparsemax.loss_and_grad(moved(z), moved(y), **options)
    assert np.isnan(loss.get()).tolist() == [True] * 5 + [False]
    assert np.isnan(gradient.get()).all(axis=-1).tolist() == [True] * 5 + [False]


def test_what_no_kernel_does_is_left_to_the_body(gpu: emulated_cupy.Emulation) -> None:
    host = scores(4, 6)
    z, y = moved(host), moved(np.arange(4))
    p, product = pe.entmax(z, 0.5), pe.entmax.jvp(moved(pe.softmax(host)), z, 0.5)
    losses = [pe.entmax.loss(z, y, 0.5), pe.sparsemax.loss(z, y, label_smoothing=0.1)]
    losses.append(pe.sparsemax.loss(z, moved(pe.softmax(host))))
    for name in ("fusedmax", "oscarmax"):  # too long for a thread
        long = scores(1, 4097)
        np.testing.assert_allclose(getattr(pe, name)(moved(long)).get(), getattr(pe, name)(long),
                                   rtol=0, atol=1e-6)  # fmt: skip
    none = ("loss_", "smooth", "pool", "run_products")
    assert not [x for x in gpu.launches if x.name.startswith(none) or "Entmax" in x.name]
    np.testing.assert_allclose(p.get(), pe.entmax(host, 0.5), rtol=1e-5)
    expected = pe.entmax.jvp(pe.softmax(host), host, 0.5)
    np.testing.assert_allclose(product.get(), expected, rtol=0, atol=1e-6)
    best = [pe.entmax.loss(host, np.arange(4), 0.5)]
    best += [pe.sparsemax.loss(host, np.arange(4), label_smoothing=0.1)]
    best += [pe.sparsemax.loss(host, pe.softmax(host))]
    np.testing.assert_allclose([x.get() for x in losses], best, rtol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
def test_a_row_without_any_score_counts_nothing_however_heavy(
    gpu: emulated_cupy.Emulation, name: str
) -> None:
    z, y, weight = scores(3, 5), np.array([0, 3, 0]), np.array([1e-60, 3e-60, 1.0])
    z[-1] = -np.inf
    loss = getattr(pe, name).loss_and_grad
    found, gradient = loss(moved(z), moved(y), weight=moved(weight))
    expected, its = loss.reference(z[:2], y[:2], weight=[1, 3])
    np.testing.assert_allclose(found.get(), expected, rtol=2e-6)
    np.testing.assert_allclose(gradient.get()[:2], its, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["fusedmax", "oscarmax"])
def test_hard_rows_for_a_thread_each(gpu: emulated_cupy.Emulation, name: str) -> None:
    """Strengths that swamp 1, and gaps beyond the largest float."""
    table = [(strength, [1.7e308, -1.7e308, 0.0]) for strength in (1e308, 1.6e308, 1.75e308)]
    table += [(value, row) for kind, value, row in hard_rows() if kind == name]
    for strength, row in table:
        z = np.array([row])
        p = getattr(pe, name)(moved(z), strength).get()
        with np.errstate(over="ignore"):
            assert_right((name, strength), p, truth.forward(name, z, strength), z, [(name, row)])
    assert gpu.launches


@pytest.mark.parametrize("name", ["fusedmax", "oscarmax"])
def test_no_race_and_no_overrun_as_launched(name: str) -> None:
    """Kernels with a row for each thread; the others are `test_kernels.py`'s."""
    assert {name, f"{name}_jvp"} <= KERNELS.keys()
    with emulated_cupy.installed(checked=True) as gpu:
        z = np.sort(scores(6, 33))
        for strength in (0.05, 1.0):
            p = getattr(pe, name)(moved(z), strength)
            best = getattr(pe, name).reference(z, strength)
            np.testing.assert_allclose(p.get(), best, rtol=0, atol=1e-6)
            product = getattr(pe, name).jvp(p, moved(np.cos(z)), strength)
            best = getattr(pe, name).jvp.reference(p.get(), np.cos(z), strength)
            np.testing.assert_allclose(product.get(), best, rtol=0, atol=1e-6)
        assert len(gpu.launches) >= 6
