"""The kernels on a GPU, in every form that holds a row: skipped, saying why, where none computes.

What the emulation shows on the CPU, with the same lengths; `tests/device/test_on_a_gpu.py` has the
library around them. With PYENTMAX_TEST_NO_POOL=1 each array is an allocation of its own, so that
compute-sanitizer sees where a kernel leaves one (`make gpu`).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax.engine.backends.cuda.functions import (
    BUDGET_SPARSEMAX,
    ENTMAX,
    KERNELS,
    SPARSEMAX,
    SPARSEMAX_JVP,
)
from pyentmax.engine.backends.cuda.launch import _limits
from pyentmax.engine.calls.devices import device_module

try:
    cupy = device_module("cuda")
except (ImportError, ValueError) as error:
    pytest.skip(str(error), allow_module_level=True)

if os.environ.get("PYENTMAX_TEST_NO_POOL"):
    cupy.cuda.set_allocator(None)

DTYPES = [np.float32, np.float16, np.float64]
TOLERANCE = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-13}
VALUES: dict[str, Any] = {"alpha": 1.3, "k": 3, "budget": 0.75, "strength": 0.05, "upper": 0.75}
NAMES = [name for name in KERNELS if name in pyentmax.MAPPINGS]


def parameters(name: str) -> list[Any]:
    return [VALUES[parameter] for parameter in pyentmax.MAPPINGS[name].parameters]


def boundaries(itemsize: int) -> list[int]:
    """Lengths at which the form changes, the next ones, and one that fits on no chip."""
    lengths, limits = range(1, 120000), _limits(cupy.cuda.Device().id)
    kernels = (SPARSEMAX, ENTMAX, SPARSEMAX_JVP, BUDGET_SPARSEMAX)
    forms = [[kernel.form(n, itemsize, limits) for kernel in kernels] for n in lengths]
    last = [n for n, this, after in zip(lengths, forms, forms[1:], strict=False) if this != after]
    return sorted({n + extra for n in last for extra in (0, 1)} | {1, 130001})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_every_form(name: str, dtype: Any) -> None:
    record, params, rng = pyentmax.MAPPINGS[name], parameters(name), np.random.default_rng(0)
    tolerance = TOLERANCE[np.dtype(dtype).name]
    for n in boundaries(np.dtype(dtype).itemsize):
        if n < 4 or (n > 4096 and name in ("fusedmax", "oscarmax")):
            continue
        for scale in (0.1, 3.0):
            z = (scale * rng.standard_normal((5, n))).astype(dtype)
            v = rng.standard_normal((5, n)).astype(dtype)
            z[1, 2], z[2] = np.nan, -np.inf
            found = record(cupy.asarray(z), *params).get()
            expected = record(z.astype(np.float64), *params)
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=str(n))
            sound = expected[3:].astype(dtype)
            product = record.jvp(cupy.asarray(sound), cupy.asarray(v[3:]), *params).get()
            wide = record.jvp(sound.astype(np.float64), v[3:].astype(np.float64), *params)
            most = 10 * tolerance * max(1.0, np.abs(wide).max())
            np.testing.assert_allclose(product, wide, rtol=0, atol=most, err_msg=str(n))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("fusedmax", "oscarmax")])
@pytest.mark.parametrize("n", [12000, 20001, 57000])
def test_rows_in_shared_memory(name: str, n: int) -> None:
    params, rng = parameters(name), np.random.default_rng(0)
    record = pyentmax.MAPPINGS[name]
    z, v = rng.standard_normal((2, 2, n)).astype(np.float32)
    p = record(cupy.asarray(z), *params)
    exact = record(z.astype(np.float64), *params)
    np.testing.assert_allclose(p.get(), exact, rtol=0, atol=1e-6)
    product = record.jvp(p, cupy.asarray(v), *params).get()
    wide = record.jvp(p.get().astype(np.float64), v.astype(np.float64), *params)
    np.testing.assert_allclose(product, wide, rtol=0, atol=1e-5 * max(1.0, np.abs(wide).max()))


@pytest.mark.parametrize(
    "name", ["softmax", "sparsemax", "entmax15", "entmax", "normmax", "topk_sparsemax"]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_losses_in_every_form(name: str, dtype: Any) -> None:
    function, params = getattr(pyentmax, name).loss_and_grad, parameters(name)
    rng = np.random.default_rng(0)
    for n in (9, 40, 700, 5000, 20000, 50000, 130001):
        z, y = rng.standard_normal((4, n)).astype(dtype), rng.integers(0, n, 4)
        found = function(cupy.asarray(z), cupy.asarray(y), *params, reduction="none")
        expected = function(z.astype(np.float64), y, *params, reduction="none")
        tolerance = TOLERANCE[np.dtype(dtype).name]
        for mine, theirs in zip(found, expected, strict=True):
            most = 10 * tolerance * max(1.0, np.abs(theirs).max())
            np.testing.assert_allclose(mine.get(), theirs, rtol=0, atol=most, err_msg=str(n))


@pytest.mark.parametrize("name", NAMES)
def test_strides_masks_and_results_in_place(name: str) -> None:
    params, rng = parameters(name), np.random.default_rng(0)
    z = rng.standard_normal((6, 70, 9)).astype(np.float32)
    mask = rng.random((70, 9)) < 0.8
    mask[:5] = True
    function = getattr(pyentmax, name)
    expected = function(z.astype(np.float64), *params, axis=1, mask=mask)
    on_gpu, mask_on_gpu = cupy.asarray(z), cupy.asarray(mask)
    found = function(on_gpu, *params, axis=1, mask=mask_on_gpu)
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=1e-6)
    turned = function(on_gpu[:, ::-1], *params, axis=1, mask=mask_on_gpu[::-1])
    if name != "fusedmax":  # sums in another order
        np.testing.assert_allclose(turned.get()[:, ::-1], expected, rtol=0, atol=1e-6)
    same = function(on_gpu, *params, axis=1, mask=mask_on_gpu, out=on_gpu)
    assert same is on_gpu
    np.testing.assert_array_equal(on_gpu.get(), found.get())


@pytest.mark.parametrize("name", NAMES)
def test_two_runs_give_the_same_bits(name: str) -> None:
    z = cupy.asarray(np.random.default_rng(0).standard_normal((64, 3000)).astype(np.float32))
    one, other = (getattr(pyentmax, name)(z, *parameters(name)) for _ in range(2))
    np.testing.assert_array_equal(one.get(), other.get())


@pytest.mark.filterwarnings("ignore:cupyx.allow_synchronize:UserWarning")  # may go one day
def test_kernels_run_on_the_current_stream_and_nobody_waits() -> None:
    cupyx = pytest.importorskip("cupyx")
    z = cupy.asarray(np.random.default_rng(0).standard_normal((8, 100)).astype(np.float32))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, cupyx.allow_synchronize(False):  # raises where the host waits
        p = pyentmax.entmax(z, 1.5)
        pyentmax.entmax.jvp(p, z, 1.5)
        pyentmax.sparsemax.loss_and_grad(z, cupy.zeros(8, np.int64))
    stream.synchronize()
    np.testing.assert_allclose(p.get(), pyentmax.entmax15(z.get()), rtol=0, atol=1e-6)


def test_bfloat16_where_there_is_one() -> None:
    types = pytest.importorskip("ml_dtypes", reason="ml_dtypes, which has bfloat16, is missing")
    z = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    try:
        on_gpu = cupy.asarray(z).astype(types.bfloat16)
    except (TypeError, ValueError) as error:
        pytest.skip(f"this CuPy has no bfloat16: {error}")
    p = pyentmax.sparsemax(on_gpu)
    assert p.dtype == types.bfloat16
    wide = on_gpu.astype(np.float32).get().astype(np.float64)
    np.testing.assert_allclose(
        p.astype(np.float32).get(), pyentmax.sparsemax(wide), rtol=0, atol=2**-8
    )
