"""Every kernel of every build keeps the contract of accuracy, on rows of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_contract import assert_contract, results, truth
from kernel_operands import KERNELS_OF_ROWS, _cpu, operands
from kernel_rows import FLOATS, LENGTHS, rows_of_every_kind
from stages import deep, sample, slow

QUICK = [2, 17, 64, 300]
OTHERS = sorted({*LENGTHS} - {*QUICK})
every_dtype = pytest.mark.parametrize("dtype", FLOATS)
every_kernel = pytest.mark.parametrize("name", KERNELS_OF_ROWS)


def assert_all_builds_keep_it(name, z, rng):
    operand = operands(name, z, rng)
    best = truth(name, operand)
    for build, kernels in _cpu.BUILDS.items():
        try:
            assert_contract(name, results(kernels[name], operand), operand, best)
        except AssertionError as error:
            raise AssertionError(f"{name}, {z.dtype}, n = {z.shape[1]}: {build}") from error


@every_dtype
@pytest.mark.parametrize("lengths", [QUICK, *slow(OTHERS, [2100, 5000])], ids=str)
@every_kernel
def test_rows_of_every_kind(name, lengths, dtype):
    for n in lengths:
        rng = np.random.default_rng(n)
        assert_all_builds_keep_it(name, rows_of_every_kind(rng, n, dtype), rng)


@pytest.mark.slow
@every_dtype
@every_kernel
def test_every_short_length(name, dtype):
    for n in range(1, 71, 3):
        rng = np.random.default_rng(n + 1000)
        z = (rng.standard_normal((40, n)) * rng.choice([0.3, 2], (40, 1))).astype(dtype)
        assert_all_builds_keep_it(name, z, rng)


@pytest.mark.parametrize("name", sample(KERNELS_OF_ROWS, 8))
@given(
    z=st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.tuples(st.integers(1, 2), st.integers(1, 40)),
            elements=st.floats(-30, 30, width=np.dtype(dtype).itemsize * 8)
            | st.sampled_from([-np.inf, 0.0, -0.0, 0.125, 0.25, 1.0]),
        )
    ),
    seed=st.integers(0, 1000),
)
def test_rows_found_by_hypothesis(name, z, seed):
    assert_all_builds_keep_it(name, z, np.random.default_rng(seed))


@pytest.mark.deep
@every_dtype
@pytest.mark.parametrize("part", deep(*range(8)))
@every_kernel
def test_a_million_random_rows(name, part, dtype):
    rng = np.random.default_rng(part)
    for _ in range(125):
        n = int(rng.integers(1, 130))
        z = 10 ** rng.uniform(-3, 2, (1000, 1)) * rng.standard_normal((1000, n))
        z = np.where(rng.random((1000, 1)) < 0.2, np.round(z), z).astype(dtype)
        assert_all_builds_keep_it(name, z, rng)
