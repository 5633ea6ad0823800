"""Kernels over operands that keep no promise: any numbers come out, but nothing leaves its row.

The operands and the checks are in broken_promises.py, which runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from broken_promises import LONG, ROWS, SHORT, takes_rows
from kernel_rows import FLOATS

import pyentmax as pe

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

KERNELS = [name for name, kernel in next(iter(_cpu.BUILDS.values())).items() if takes_rows(kernel)]
PARTS = 6  # each an interpreter of its own
SCRIPT = Path(__file__).with_name("broken_promises.py")

needs_protection = pytest.mark.skipif(os.name == "nt", reason="pages are protected by mprotect")


def run_over_broken_rows(*kernels: str, lengths: list[int], seeds: int = 1) -> None:
    command = [sys.executable, str(SCRIPT), *kernels, "--seeds", str(seeds), "--lengths"]
    package = str(Path(str(pe.__file__)).parents[1])
    done = subprocess.run(
        [*command, *map(str, lengths)],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{kernels} ended with {done.returncode}:\n{done.stderr}"


@needs_protection
@pytest.mark.parametrize(
    "seeds", [pytest.param(1, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.deep)]
)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_kernel_leaves_its_row_whatever_it_holds(part: int, seeds: int) -> None:
    run_over_broken_rows(*KERNELS[part::PARTS], lengths=SHORT, seeds=seeds)
    run_over_broken_rows(*KERNELS[part::PARTS], lengths=LONG, seeds=-(-seeds // 6))


LOG_P = np.log([0.09, 0.245, 0.665])


@pytest.mark.parametrize(
    ("product", "p", "v", "parameters"),
    [
        (pe.softmax.jvp, [-1.0], [1.0], ()),
        (pe.softmax.jvp, LOG_P, [1.0, 1.0, 1.0], ()),
        (pe.softmax.jvp, LOG_P, [1.0, 2.0, 4.0], ()),
        (pe.softmax.jvp, [0.0, -1e-20, 0.0], [1.0, 2.0, 4.0], ()),
        (pe.softmax.jvp, [1e-323, 0.0], [1.0, 2.0], ()),
        (pe.softmax.jvp, [5e-324, 2e-323, 0.0], [1.0, 2.0, 3.0], ()),
        (pe.sparsemax.jvp, [-1.0, 0.0], [1.0, 1.0], ()),
        (pe.sparsemax.jvp, [-1.0, -2.0], [1.0, 3.0], ()),
        (pe.topk_softmax.jvp, [-1.0, 0.0], [1.0, 1.0], (1,)),
        (pe.csoftmax.jvp, [-1.0, 0.0], [1.0, 1.0], (1.0,)),
        (pe.csparsemax.jvp, [-1.0, 0.0], [1.0, 1.0], (1.0,)),
        (pe.budget_sparsemax.jvp, [-1.0, 0.0], [1.0, 1.0], (1.0,)),
        (pe.entmax.jvp, [7.0, 2.0, 1e-3], [1.0, 2.0, 4.0], (1.3,)),
    ],
)
def test_a_product_of_what_is_no_distribution_is_that_of_the_formula(
    product, p, v, parameters
) -> None:
    p, v = np.array(p), np.array(v)
    expected = product.reference(p, v, *parameters)
    for n in (len(p), 40, 300):  # in a short row, in whole lanes, in chunks
        here, there = np.zeros((2, n))
        here[: len(p)], there[: len(p)] = p, v
        found = product(here, there, *parameters)
        np.testing.assert_allclose(found[: len(p)], expected, rtol=1e-14, atol=1e-323)
        assert not found[len(p) :].any()


@pytest.mark.parametrize("dtype", [np.float16, *FLOATS])
@pytest.mark.parametrize("alpha", [100.0, 1000.0, 1e6])
def test_weights_of_entries_above_1_vanish_for_a_large_alpha(dtype, alpha) -> None:
    """They wrapped around, to numbers of up to 2e290."""
    for p in (np.array([2.3, 4.6]), np.linspace(1.5, 3, 9), np.linspace(1.5, 3, 300)):
        p, v = p.astype(dtype), np.arange(len(p), dtype=dtype)
        for product in (pe.entmax.jvp, pe.entmax.vjp):
            # The least has the largest weight, 1.5^-98 at the most.
            assert float(np.abs(product(p, v, alpha)).max()) < 1e-13


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15", "csoftmax", "csparsemax"])
def test_kernels_and_bodies_agree_where_p_sums_to_anything(name, dtype) -> None:
    rng = np.random.default_rng(1)
    product, eps = getattr(pe, name).jvp, np.finfo(dtype).eps
    bounds = (np.inf,) if name.startswith("c") else ()
    for n in (1, 5, 33, 300):
        p = (rng.random((ROWS, n)) * 10.0 ** rng.integers(-9, 9, (ROWS, 1))).astype(dtype)
        p[:, 1:] *= rng.random((ROWS, n - 1)) < 0.6
        v = rng.standard_normal(p.shape).astype(dtype)
        found, expected = product(p, v, *bounds), product.reference(p, v, *bounds)
        room = 32 * eps * np.abs(p).max(axis=-1, keepdims=True) ** (name != "sparsemax")
        assert (np.abs(found - expected) <= np.maximum(room, 32 * eps)).all()


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
def test_a_direction_without_a_number_on_the_support_spoils_the_row(name) -> None:
    # The Jacobian of a certain row is 0, but 0 times a NaN or ∞ is a NaN, and the body says so.
    product = getattr(pe, name).jvp
    for bad in (np.nan, np.inf):
        for n in (3, 40, 300):
            p, v = np.zeros(n), np.ones(n)
            p[1], v[1] = 1, bad
            expected = np.where(p > 0, np.nan, 0)
            np.testing.assert_array_equal(product(p, v), expected)
            np.testing.assert_array_equal(product.reference(p, v), expected)
