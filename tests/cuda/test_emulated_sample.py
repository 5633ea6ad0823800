"""One kernel of each family under emulation, in the first stage; the second has all the others.

What is run and how it is judged comes from the tests of the second stage.
"""

from __future__ import annotations

import numpy as np
import pytest
from emulated_cupy import installed
from emulation import IN_ORDER, REVERSED, unavailable
from kernel_runs import LANES
from number_types import FLOAT32
from score_rows import score_rows
from test_emulated_derivatives import case as derivative_case
from test_emulated_derivatives import check as check_derivative
from test_emulated_derivatives import launch as launch_derivative
from test_emulated_forward import check, launch
from test_emulated_launches import check as check_as_launched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(unavailable()), reason=unavailable()),
]


def test_a_mapping() -> None:
    for n, schedule in ((7, IN_ORDER), (128, REVERSED)):
        z = score_rows(n).astype(np.float32)
        p = np.empty_like(z)
        launch("sparsemax", LANES, FLOAT32, z, p, schedule=schedule)
        check("sparsemax", FLOAT32, z, p)


def test_a_derivative() -> None:
    p, v = derivative_case("sparsemax_jvp", FLOAT32, 16)
    out = np.empty_like(p)
    launch_derivative("sparsemax_jvp", LANES, FLOAT32, p, v, out)
    check_derivative("sparsemax_jvp", FLOAT32, p, v, out)


def test_a_public_function_runs_its_kernel() -> None:
    with installed() as gpu:
        check_as_launched(gpu, "sparsemax", [score_rows(40)[:6].astype(np.float32)], axis=-1)
        assert len(gpu.launches) == 1
