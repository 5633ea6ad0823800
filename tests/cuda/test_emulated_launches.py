"""CuPy arrays in, CUDA kernels underneath: the launcher, with emulated kernels for the GPU's."""

from __future__ import annotations

import inspect
import itertools
import re
from typing import Any

import emulated_cupy
import fake_cupy
import numpy as np
import pytest
from compiled_functions import FUNCTIONS
from emulation import REVERSED, unavailable
from fake_cupy import moved
from stages import deep

import pyentmax
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
# Losses, fusedmax and oscarmax have tests of their own.
NAMES = [name for name in KERNELS if not re.search("_loss|fusedmax|oscarmax", name)]
# One of each family of kernels, for what does not depend on the mapping.
SOME = ["entmax", "csparsemax", "normmax_jvp"]
MAPPINGS = [name for name in NAMES if name in pyentmax.MAPPINGS]
MASKED = [name for name in NAMES if name != "entmax_grad_alpha" and name[:2] != "cs"]
HOPPER = Limits(*emulated_cupy.LIMITS.values())
A100, L40 = Limits(166912, 167936), Limits(101376, 102400)
VALUES: dict[str, Any] = {"alpha": 1.3, "k": 3, "upper": 0.75, "budget": 1.5}
TOLERANCE = {"float16": 1e-3, "float32": 2e-6}


@pytest.fixture(autouse=True)
def fresh(gpu: emulated_cupy.Emulation) -> None:
    gpu.schedule = REVERSED
    gpu.launches.clear()


def inputs(
    name: str, shape: tuple[int, ...], dtype: Any, axis: Any = -1, mask: Any = None
) -> list[np.ndarray]:
    """Scores for a mapping; probabilities along the axis and directions for a derivative."""
    z = 2 * RNG.standard_normal(shape)
    if name in MAPPINGS:
        return [z.astype(dtype)]
    mapping = pyentmax.MAPPINGS[name.partition("_jvp")[0].partition("_grad")[0]]
    p = mapping.reference(z, axis=axis, mask=mask, **parameters(name)).astype(dtype)
    return [p, RNG.standard_normal(shape).astype(dtype)] if name.endswith("_jvp") else [p]


def parameters(name: str) -> dict[str, Any]:
    wanted = {*inspect.signature(FUNCTIONS[name]).parameters}
    if "budget" in wanted:  # other bounds than 0 and 1 have no kernel
        wanted.discard("upper")
    return {key: value for key, value in VALUES.items() if key in wanted}


def check(gpu: emulated_cupy.Emulation, name: str, arrays: list[np.ndarray], **options: Any) -> Any:
    """The function gives on the device what the NumPy body gives, without any copy to or fro."""
    function = FUNCTIONS[name]
    body = function.reference
    wide = [a.astype(np.float64) for a in arrays]
    expected = body(*wide, **{k: v for k, v in options.items() if k != "out"})
    on_device = [moved(a) for a in arrays]
    moved_options = {key: moved(value) for key, value in options.items()}
    fake_cupy.copies.reset()
    found = function(*on_device, **moved_options)
    assert fake_cupy.copies.to_host == fake_cupy.copies.to_device == 0
    assert isinstance(found, fake_cupy.ndarray)
    assert found.shape == expected.shape
    tolerance = TOLERANCE.get(arrays[0].dtype.name, 1e-13) * max(1, np.nanmax(np.abs(expected)))
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=tolerance)
    for array, there in zip(arrays, on_device, strict=True):
        np.testing.assert_array_equal(there.get(), array)
    return found


@pytest.mark.parametrize("name", [*SOME, "entmax_grad_alpha"])
@pytest.mark.parametrize("axis", [1, (0, 2), *deep(-1, 0, None)], ids=str)
def test_every_axis_takes_one_launch(gpu: emulated_cupy.Emulation, name: str, axis: Any) -> None:
    arrays = inputs(name, (5, 4, 2), np.float32, axis)
    found = check(gpu, name, arrays, axis=axis, **parameters(name))
    assert found.dtype == np.float32
    assert len(gpu.launches) == 1


def test_masks_and_a_parameter_for_each_row(gpu: emulated_cupy.Emulation) -> None:
    z = inputs("entmax", (3, 4, 6), np.float32)[0]
    z[0, 0, 0] = np.nan
    mask = RNG.random((4, 6)) < 0.7
    mask[0, 0], mask[1] = False, False  # the NaN, and a whole row
    alpha = np.array([[1.0], [1.5], [3.0]])
    found = check(gpu, "entmax", [z], alpha=alpha, mask=mask)
    assert not found.get()[:, 1].any()
    assert [launch.name for launch in gpu.launches] == ["forward_lanes<Entmax, float, 8, 4>"]
    for axis in (0, (0, 2)):
        check(gpu, "entmax", [z], alpha=1.25, axis=axis, mask=mask)
        check(gpu, "softmax", [z], axis=axis, mask=mask)


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
        pyentmax.sparsemax(array, axis)
        pyentmax.sparsemax.jvp(array, array, axis)
        assert [re.split("[_<]", launch.name)[1] for launch in gpu.launches] == [kind, kind]


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("dtype", [np.float32, *deep(np.float16)])
def test_columns_with_a_mask(gpu: emulated_cupy.Emulation, name: str, dtype: Any) -> None:
    mask = RNG.random((70, 37)) < 0.8
    arrays = inputs(name, mask.shape, dtype, 0, mask)
    if not name.endswith("_jvp"):
        arrays[0][~mask] = np.nan
    check(gpu, name, arrays, axis=0, mask=mask, **parameters(name))


def boundaries(itemsize: int) -> list[int]:
    """Lengths at which the form changes, and the next ones."""
    lengths = range(1, 130000)
    forms = [SPARSEMAX.form(n, itemsize, HOPPER) for n in lengths]
    last = [n for n, this, after in zip(lengths, forms, forms[1:], strict=False) if this != after]
    return [1, *last, last[-1] + 1]


@pytest.mark.parametrize("dtype", [np.float32, *deep(np.float16, np.float64)])
def test_every_form_holds_its_longest_row(gpu: emulated_cupy.Emulation, dtype: Any) -> None:
    for n in boundaries(np.dtype(dtype).itemsize):
        rows = 3 if n < 20000 else 1
        check(gpu, "sparsemax", inputs("sparsemax", (rows, n), dtype))
        check(gpu, "sparsemax", [inputs("sparsemax", (n, 3), dtype)[0][:, :rows]], axis=0)
    assert {launch.name.partition("<")[0] for launch in gpu.launches} == {
        "forward_lanes",
        "forward_columns",
        "forward_block",
        "forward_held",
        "forward_stream",
    }


def test_shared_memory_is_asked_for_in_time(gpu: emulated_cupy.Emulation) -> None:
    """48 KB are there without asking, and what a kernel declares counts among them."""
    z = inputs("sparsemax", (1, 6140), np.float64)
    check(gpu, "sparsemax", z)
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
    p = pyentmax.sparsemax(view, 1)
    assert gpu.allocations == before + 1
    assert len(gpu.launches) > 1
    np.testing.assert_allclose(
        p.get(), pyentmax.sparsemax.reference(view.get(), 1), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("name", MAPPINGS)
def test_results_go_where_out_says(gpu: emulated_cupy.Emulation, name: str) -> None:
    z, options = inputs(name, (4, 6), np.float32)[0], parameters(name)
    expected = getattr(pyentmax, name).reference(z, **options)
    wide = fake_cupy.asarray(np.full((4, 13), 7, np.float32))
    for out in (wide[:, 1::2], fake_cupy.asarray(np.empty((4, 6))), wide[:, ::-1][:, ::2][:, 1:]):
        device = fake_cupy.asarray(z)
        before = gpu.allocations
        assert getattr(pyentmax, name)(device, out=out, **options) is out
        numbers = 2 * ("upper" in options)  # the one bound goes to the device, and to its type
        assert gpu.allocations == before + numbers + (out.dtype != z.dtype)
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=1e-6)
    assert (wide.get()[:, 12] == 7).all()
    shared = fake_cupy.asarray(np.concatenate([z, z], axis=1))  # overlapping its input
    getattr(pyentmax, name)(shared[:, :6], out=shared[:, 3:9], **options)
    np.testing.assert_allclose(shared.get()[:, 3:9], expected, rtol=0, atol=1e-6)


def test_what_is_wrong_is_said_before_anything_runs(gpu: emulated_cupy.Emulation) -> None:
    z = fake_cupy.asarray(np.zeros((2, 3), np.float32))
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
            pyentmax.entmax(z, *arguments, **options)
    assert not gpu.launches
    p = pyentmax.entmax(z, fake_cupy.asarray(np.array([0.0, 1.5])))  # not looked at: that waits
    assert np.isnan(p.get()).all(axis=1).tolist() == [True, False]


def test_alpha_below_1_has_no_kernel(gpu: emulated_cupy.Emulation) -> None:
    host = inputs("entmax", (4, 6), np.float32)[0]
    z, labels = fake_cupy.asarray(host), fake_cupy.asarray(np.arange(4))
    p, loss = pyentmax.entmax(z, 0.5), pyentmax.entmax.loss(z, labels, 0.5)
    product = pyentmax.entmax.jvp(p, z, 0.5)
    assert not gpu.launches
    expected = pyentmax.entmax(host, 0.5)
    np.testing.assert_allclose(p.get(), expected, rtol=1e-5)
    np.testing.assert_allclose(
        product.get(), pyentmax.entmax.jvp(expected, host, 0.5), rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(loss.get(), pyentmax.entmax.loss(host, np.arange(4), 0.5), rtol=1e-5)


@pytest.mark.parametrize("name", SOME)
def test_no_race_and_no_overrun_as_launched(name: str) -> None:
    with emulated_cupy.installed(checked=True) as gpu:
        check(gpu, name, inputs(name, (6, 50), np.float32), **parameters(name))
