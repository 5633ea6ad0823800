"""What is done across the lanes of a vector, compiled for each instruction set on its own."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

SOURCES = Path(__file__).parents[2] / "cython_ext"
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
LANES = 16
# By a part of the build's name, what builds/ defines for it.
FLAGS = {
    "x86-64-v4": ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-DHAS_AVX512=1"],
    "x86-64-v3": ["-mavx2", "-mfma", "-mbmi2", "-DHAS_AVX2=1"],
}
PROGRAM = """
#include "rows/lanes.h"
int f32(const float *x, float floor) { return any_above_f32(x, floor); }
int f64(const double *x, double floor) { return any_above_f64(x, floor); }
"""


def any_above(folder: Path, flags: list[str]) -> dict[Any, Callable[[np.ndarray, float], bool]]:
    """The C function for each dtype."""
    if shutil.which(COMPILER) is None:
        pytest.skip("needs a C compiler")
    library = folder / "lanes.so"
    command = [COMPILER, "-O2", "-std=c11", "-shared", "-fPIC", "-w", *flags, f"-I{SOURCES}"]
    command += ["-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=PROGRAM, text=True, check=True)
    functions = ctypes.CDLL(str(library))
    kinds = (
        (np.float32, functions.f32, ctypes.c_float),
        (np.float64, functions.f64, ctypes.c_double),
    )
    return {
        dtype: lambda x, floor, f=function, c=real: bool(
            f(x.ctypes.data_as(ctypes.c_void_p), c(floor))
        )
        for dtype, function, real in kinds
    }


@pytest.mark.slow
@pytest.mark.parametrize("build", list(_cpu.BUILDS))
def test_a_nan_is_above_nothing_and_hides_no_other_lane(build, tmp_path):
    flags = next((flags for part, flags in FLAGS.items() if part in build), [])
    for dtype, above in any_above(tmp_path, flags).items():
        for nan in range(LANES):
            x = np.full(LANES, -1, dtype)
            x[nan] = np.nan
            assert not above(x, 0)
            for other in set(range(LANES)) - {nan}:
                x[other] = 1
                assert above(x, 0), (dtype, nan, other)
                x[other] = -1
