"""The kernels on AArch64: within the contract of accuracy, and the same bits for every layout."""

from __future__ import annotations

import numpy as np
import pytest
from aarch64_kernels import INSTALL, AArch64Kernels, build, missing_tools
from kernel_contract import assert_contract
from kernel_operands import BASELINE, KERNELS_OF_ROWS, operands, rows_of_every_kind
from kernel_rows import FLOATS, awkward_layouts

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
def test_rows_of_every_kind_keep_the_contract(aarch64, name, dtype):
    rng = np.random.default_rng(0)
    for i, z in enumerate(rows_of_every_kind(rng, dtype)):
        given = operands(name, z, rng)
        assert_contract(name, aarch64(KERNELS[name], *given, spread=1 + i % 2), given)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", KERNELS_OF_ROWS)
def test_every_layout_gives_the_same_bits(aarch64, name, dtype):
    rng = np.random.default_rng(1)
    given = operands(name, rng.standard_normal((20, 45)).astype(dtype), rng)
    expected = aarch64(KERNELS[name], *given)
    for _, z in awkward_layouts(given[0][:, None] if given[0].ndim == 1 else given[0]):
        if z.dtype.isnative and z.flags.aligned:  # else NumPy copies before the kernel runs
            first = z[:, 0] if given[0].ndim == 1 else z
            got = aarch64(KERNELS[name], first, *given[1:])
            for one, other in zip(got, expected, strict=True):
                np.testing.assert_array_equal(one, other)
