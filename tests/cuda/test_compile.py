"""The kernels compile for data-centre GPUs and keep to what these have: no GPU is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from nvrtc import Used, compiled, ptx, unavailable

from pyentmax.engine.backends.cuda import functions
from pyentmax.engine.backends.cuda.launch import (
    STATIC_SHARED,
    Kernel,
    Limits,
    RowLayout,
    shared_form,
    source,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

# Shared memory, in bytes, of a block and of a multiprocessor: an A100's and an H100's or H200's.
ARCHITECTURES = {"sm_80": Limits(166912, 167936), "sm_90": Limits(232448, 233472)}
KERNELS = [kernel for kernel in vars(functions).values() if isinstance(kernel, Kernel)]
TYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "float64": np.float64}

# Registers of a thread, at most, by what holds a row. A multiprocessor has 65,536: at 64, half of
# the threads that it can run are there at once, at 32 all. Doubles take two each.
REGISTERS = {
    ("forward", "lanes"): 96,
    ("forward", "columns"): 128,
    ("forward", "block"): 64,
    ("forward", "held"): 64,
    ("forward", "stream"): 64,
    ("derivative", "lanes"): 128,
    ("derivative", "columns"): 128,
    ("derivative", "block"): 128,
    ("derivative", "held"): 64,
    ("derivative", "stream"): 64,
    ("loss", "lanes"): 96,
    ("loss", "block"): 64,
    ("loss", "held"): 64,
    ("loss", "stream"): 64,
    ("bounded", "lanes"): 96,
    ("bounded", "block"): 96,
}


def forms(kernel: Kernel, itemsize: int, arch: str) -> list[RowLayout]:
    """All that rows of some length need."""
    lengths = (2**power * part // 8 for power in range(3, 22) for part in range(8, 16))
    limits = ARCHITECTURES[arch]
    found = list(dict.fromkeys(kernel.form(n, itemsize, limits) for n in lengths))
    if kernel.family in ("forward", "derivative"):
        found += [form._replace(kind="columns") for form in found if form.kind == "lanes"]
    return found


def check(kernel: Kernel, form: RowLayout, dtype: np.dtype[Any], used: Used) -> None:
    assert used.spilled == 0, used
    assert used.stack == 0, used
    assert used.shared <= STATIC_SHARED - 1024, used  # the driver takes 1 KB for itself
    budget = REGISTERS[kernel.family, form.kind] * (2 if dtype == np.float64 else 1)
    assert used.registers <= min(budget, 65536 // form.threads), used


def check_all(kernel: Kernel, some: list[RowLayout], dtype: np.dtype[Any], arch: str) -> None:
    names = {kernel.name(form, dtype): form for form in some}
    found = compiled(source(kernel.file), list(names), arch, kernel.file)
    assert set(found) == set(names)
    for name, used in found.items():
        check(kernel, names[name], dtype, used)


def representative() -> Iterator[Any]:
    """Each kernel once, and sparsemax in every way to hold a row; the rest by turns."""
    lengths, types = (40, 5000, 28000, 200000), list(TYPES.values())
    cases = [(kernel, lengths[turn % 4], "") for turn, kernel in enumerate(KERNELS)]
    cases += [(functions.SPARSEMAX, n, "") for n in (300, 3000, *lengths)]
    cases += [(functions.ENTMAX, 1000, "columns"), (functions.SPARSEMAX_JVP, 250, "columns")]
    for turn, (kernel, n, kind) in enumerate(cases):
        dtype, arch = np.dtype(types[turn // 4 % 3]), list(ARCHITECTURES)[turn % 2]
        form = kernel.form(n, dtype.itemsize, ARCHITECTURES[arch])
        form = form._replace(kind=kind or form.kind)
        name = f"{kernel.name(form, dtype)}-{arch}".replace(" ", "")
        yield pytest.param(kernel, form, dtype, arch, id=name)


@pytest.mark.parametrize(("kernel", "form", "dtype", "arch"), [*representative()])
def test_kernels_compile_within_their_budgets(
    kernel: Kernel, form: RowLayout, dtype: np.dtype[Any], arch: str
) -> None:
    check_all(kernel, [form], dtype, arch)


@pytest.mark.deep
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.member)
def test_every_instance_compiles_within_its_budget(kernel: Kernel, dtype: str, arch: str) -> None:
    number = np.dtype(TYPES[dtype])
    check_all(kernel, forms(kernel, number.itemsize, arch), number, arch)


@pytest.mark.deep
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.member)
def test_every_instance_for_bfloat16_compiles(kernel: Kernel) -> None:
    """It differs from float16 in its two conversions alone."""
    names = [
        kernel.name(form, np.dtype(np.float16)).replace("__half", "BFloat16")
        for form in forms(kernel, 2, "sm_90")
    ]
    for used in compiled(source(kernel.file), names, "sm_90", kernel.file).values():
        assert used.spilled == 0, used


def test_kernels_with_a_row_for_each_thread_compile():
    for file, kernels in (
        ("fused.cu", ("smooth", "pool", "run_products")),
        ("losses.cu", ("rescale",)),
    ):
        for kernel in kernels:
            names = [f"{kernel}<{t}>" for t in ("float", "double")]
            for used in compiled(source(file), names, "sm_90", file).values():
                assert used.spilled == used.stack == 0, used
                assert used.registers <= 64, used


def test_rows_are_read_and_written_16_bytes_at_once():
    for kernel in (functions.SPARSEMAX, functions.SPARSEMAX_JVP):
        for dtype, vector in ((np.float32, "v4.f32"), (np.float16, "v4.u32")):
            form = kernel.form(64, np.dtype(dtype).itemsize, ARCHITECTURES["sm_90"])
            name = kernel.name(form, np.dtype(dtype))
            text = ptx(source(kernel.file), [name], "sm_90", kernel.file)
            assert f"ld.global.{vector}" in text or f"ld.{vector}" in text
            assert f"st.global.{vector}" in text or f"st.{vector}" in text


def test_rows_in_shared_memory_move_16_bytes_at_once():
    for dtype, vector in ((np.float32, "v4.f32"), (np.float16, "v4.u32")):
        form = shared_form(50000, np.dtype(dtype).itemsize, ARCHITECTURES["sm_90"])
        name = functions.SPARSEMAX.name(form, np.dtype(dtype))
        text = ptx(source("sparsemax.cu"), [name], "sm_90", "sparsemax.cu")
        assert f"ld.global.{vector}" in text or f"ld.{vector}" in text
        for move in ("st.shared", "ld.shared"):
            assert f"{move}.{vector}" in text
        assert f"st.global.{vector}" in text or f"st.{vector}" in text
