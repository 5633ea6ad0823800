"""The kernels on AArch64: the numbers of this machine's, and the same bits for every layout."""

from __future__ import annotations

import numpy as np
import pytest
from aarch64_kernels import INSTALL, AArch64Kernels, build, missing_tools
from kernel_operands import BASELINE, KERNELS_OF_ROWS, assert_agree, operands, results
from kernel_rows import FLOATS, LAYOUTS, rows_of_every_kind

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing_tools()), reason=f"needs {' and '.join(missing_tools())}: {INSTALL}"
    ),
]
KERNELS = _cpu.BUILDS[BASELINE]


@pytest.fixture(scope="module")
def aarch64(tmp_path_factory):
    flags = _cpu.BUILD_INFO.partition(", ")[2].split()  # those of the host's kernels
    kernels = AArch64Kernels(build(tmp_path_factory.mktemp("aarch64"), flags))
    yield kernels
    kernels.close()


def test_every_kernel_is_there(aarch64):
    assert aarch64.names == list(KERNELS)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", KERNELS_OF_ROWS)
def test_rows_of_every_kind_give_this_machines_numbers(aarch64, name, dtype):
    for i, n in enumerate((1, 3, 16, 45, 64, 130, 1000, 2100)):
        rng = np.random.default_rng(n)
        given = operands(name, rows_of_every_kind(rng, n, dtype), rng)
        found = aarch64(KERNELS[name], *given, spread=1 + i % 2)
        assert_agree(name, found, results(KERNELS[name], given), given)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", KERNELS_OF_ROWS)
def test_every_layout_gives_the_same_bits(aarch64, name, dtype):
    rng = np.random.default_rng(1)
    given = operands(name, rng.standard_normal((20, 45)).astype(dtype), rng)
    expected = aarch64(KERNELS[name], *given)
    for layout in LAYOUTS.values():
        first = layout(given[0])
        if first.dtype.isnative and first.flags.aligned:  # else NumPy copies before the kernel runs
            got = aarch64(KERNELS[name], first, *given[1:])
            for one, other in zip(got, expected, strict=True):
                np.testing.assert_array_equal(one, other)
