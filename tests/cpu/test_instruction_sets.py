"""The kernels for several instruction sets: whichever runs, it keeps the contract of accuracy."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from kernel_contract import assert_contract
from kernel_operands import BASELINE, KERNELS_OF_ROWS, operands, rows_of_every_kind
from stages import sample, slow

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")


@pytest.mark.parametrize("name", sample(KERNELS_OF_ROWS))
@pytest.mark.parametrize(
    ("instruction_set", "dtype"),
    [(build, np.float32) for build in _cpu.BUILDS]
    # In double precision the baseline is what the others are compared with.
    + slow(*[(build, np.float64) for build in _cpu.BUILDS if build != BASELINE]),
)
def test_every_build_keeps_the_contract(instruction_set, name, dtype):
    rng = np.random.default_rng(0)
    for z in rows_of_every_kind(rng, dtype):
        given = operands(name, z, rng)
        assert_contract(name, _cpu.BUILDS[instruction_set][name](*given), given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["softmax_jvp", "sparsemax_jvp", "entmax15_jvp"])
def test_zeros_of_either_sign_make_the_same_product_beside_one_entry(name, dtype):
    for n in (5, 300, 600):
        p = np.full(n, -0.0, dtype)
        p[0] = 1
        for kernels in _cpu.BUILDS.values():
            product = kernels[name](p, np.arange(n, dtype=dtype))
            np.testing.assert_array_equal(np.signbit(product[1:]), False)


def test_all_builds_hold_the_same_kernels():
    for kernels in _cpu.BUILDS.values():
        assert kernels.keys() == _cpu.BUILDS[BASELINE].keys()
        for name, kernel in kernels.items():
            assert kernel.__name__ == name


@pytest.mark.skipif(platform.machine() != "x86_64", reason="one build elsewhere")
def test_the_baseline_of_x86_64_asks_nothing_of_the_machine():
    assert BASELINE == "x86-64 baseline (SSE2)"


def imported_with(wanted):
    environment = {**os.environ, "PYENTMAX_INSTRUCTION_SET": wanted}
    program = (
        "from pyentmax import _cpu; print(_cpu.INSTRUCTION_SET);"
        "print(_cpu.entmax15 is _cpu.BUILDS[_cpu.INSTRUCTION_SET]['entmax15'])"
    )
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "place"), [("", 0), ("baseline", -1)])
def test_the_variable_chooses_what_runs(wanted, place):
    done = imported_with(wanted)
    assert done.stdout.splitlines() == [list(_cpu.BUILDS)[place], "True"], done.stderr


@pytest.mark.slow
def test_an_unknown_instruction_set_is_an_error():
    assert "must be baseline or empty, got 'avx9'" in imported_with("avx9").stderr
