"""fusedmax and oscarmax on CuPy arrays: their kernels, emulated, held to the CPU's contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import emulated_cupy
import numpy as np
import pytest
from emulation import REVERSED, unavailable
from fake_cupy import moved
from kernel_calls import call_kernel
from kernel_twins import check, check_rows
from number_types import FLOAT16, FLOAT32, FLOAT64, NumberType
from score_rows import score_rows

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

NAMES = ["fusedmax", "oscarmax"]
every_kernel = pytest.mark.parametrize("name", [*NAMES, "fusedmax_jvp", "oscarmax_jvp"])


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[emulated_cupy.Emulation]:
    with emulated_cupy.installed() as emulation:
        emulation.schedule = REVERSED
        yield emulation


@every_kernel
@pytest.mark.parametrize("number", [FLOAT32, FLOAT64, FLOAT16], ids=str)
def test_every_kind_of_row(name: str, number: NumberType) -> None:
    for n in (1, 2, 3, 17, 130):
        for seed in range(2):
            check_rows(name, None, number, score_rows(n, seed), seed)


@every_kernel
def test_no_race_and_no_overrun(name: str) -> None:
    with emulated_cupy.installed(checked=True):
        check_rows(name, None, FLOAT32, score_rows(33))


@pytest.mark.parametrize("name", NAMES)
def test_wrong_strengths_are_nan_and_long_rows_the_bodys(name: str) -> None:
    p = call_kernel(name, moved(np.eye(3)), moved(np.array([-1.0, np.nan, 0.1]))).get()
    assert np.isnan(p).all(axis=-1).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="strength must be at least 0, got -1"):
        call_kernel(name, moved(np.eye(3)), -1)
    long = moved(np.zeros((1, 4097)))
    assert call_kernel(name, long) is NotImplemented
    assert call_kernel(f"{name}_jvp", long, long) is NotImplemented


@pytest.mark.parametrize("number", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("large", [1e3, 1e8, 1e17, 1e28])
def test_strengths_that_swamp_1_raise_no_low_score_and_tell_groups_apart(
    large: float, number: NumberType
) -> None:
    def check_row(row: list[float]) -> None:
        z = np.array([row], number.stored)
        check("fusedmax", None, number, (z, np.ones(z.shape, bool), np.array([large])))

    # Two edges raise a low score by 2λ, and two lower a peak by as much.
    check_row([0, 100 * large, 0, 100 * large, 0])
    # Of runs that lie λ below the largest score, the difference of 1/4 is left.
    low = -16 * large
    check_row([0.5, 0, low, 0.25, 0, low, 0])
    check_row([0, low, 0.2, low, 0.1])


@pytest.mark.parametrize("name", NAMES)
def test_gaps_beyond_the_largest_float(name: str) -> None:
    z: Any = np.tile([1.7e308, -1.7e308, 0], (3, 1))
    given = z, np.ones(z.shape, bool), np.array([1e308, 1.6e308, 1.75e308])
    check(name, None, FLOAT64, given)
