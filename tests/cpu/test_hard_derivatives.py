"""Derivatives of rows where digits are lost easily: one entry dominates, or powers span all floats.

What holds of all rows is in test_kernel_contract.py; more is in
tests/claims.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernel_contract import exact_product
from kernel_operands import _cpu
from kernel_rows import FLOATS
from stages import slow

every_dtype = pytest.mark.parametrize("dtype", FLOATS)


def exact(p, v, alpha):
    return exact_product(p, v.astype(np.float64), np.full((len(p), 1), float(alpha)))


@every_dtype
@pytest.mark.parametrize("alpha", [1, 1.2, 1.5, 1.9])
@pytest.mark.parametrize("n", [3, 64, 200, *slow(2, 1500)])
def test_products_keep_their_digits_where_one_entry_dominates(n, alpha, dtype):
    """Its own product is a small difference, if taken as the formula has it."""
    rng = np.random.default_rng(n)
    p = (rng.random((20, n)) * 10.0 ** rng.uniform(-6, -1, (20, 1)) / n).astype(dtype)
    p[np.arange(20), rng.integers(0, n, 20)] = 1
    v = rng.standard_normal(p.shape).astype(dtype)
    product, size = exact(p, v, alpha)
    own = {1: ["softmax_jvp"], 1.5: ["entmax15_jvp"]}.get(alpha, [])
    for kernels in _cpu.BUILDS.values():
        found = [kernels["entmax_jvp"](p, v, alpha), kernels["entmax_vjps"](p, v, alpha)[0]]
        for one in (*found, *(kernels[name](p, v) for name in own)):
            assert (np.abs(one - product) <= 32 * np.finfo(dtype).eps * size).all()


@every_dtype
def test_jacobians_are_symmetric_and_keep_their_digits(dtype):
    """To the last bit, and where one entry dominates: a diagonal of differences would have none."""
    for n in (1, 2, 8, 40):
        s = 10.0 ** np.random.default_rng(n).uniform(-9, 0, (20, n))
        s[:, n // 2] = 1
        s = s.astype(dtype)
        identity = np.broadcast_to(np.eye(n), (20, n, n)).reshape(-1, n)
        columns = exact_product(np.repeat(s, n, axis=0), identity, np.ones((20 * n, 1)))[0]
        for kernels in _cpu.BUILDS.values():
            found = kernels["separable_jacobian"](s)
            np.testing.assert_array_equal(found, found.swapaxes(-1, -2))
            exact = columns.reshape(20, n, n)
            np.testing.assert_allclose(
                found.astype(exact.dtype), exact, rtol=8 * np.finfo(dtype).eps
            )


@every_dtype
@pytest.mark.parametrize("name", ["softmax_jvp", "sparsemax_jvp", "entmax15_jvp"])
def test_zeros_of_either_sign_make_the_same_product_beside_one_entry(name, dtype):
    for n in (5, 300, 600):
        p = np.full(n, -0.0, dtype)
        p[0] = 1
        for kernels in _cpu.BUILDS.values():
            product = kernels[name](p, np.arange(n, dtype=dtype))
            np.testing.assert_array_equal(np.signbit(product[1:]), False)


@pytest.mark.parametrize("alpha", [1.01, 1.1, 1.33, 1.5 + 1e-6, 1.75, 1.99])
@pytest.mark.parametrize("n", [17, *slow(64, 300, 600)])
def test_products_of_floats_of_every_size(n, alpha):
    """Denormal or far above 1, dense or sparse: powers span all exponents."""
    rng = np.random.default_rng(n)
    exponents = np.array([-147, -140, -127, -126, -100, -33, -32, -31, -1, 0, 1, 31, 64, 100])
    p = np.exp2(exponents[:, None] + 3 * rng.random((14, n))).astype(np.float32)
    p = p[(2 - alpha) * exponents > -110]  # below, sums of s are denormal and have few digits
    sparse = p * (rng.random(p.shape) < 0.4)
    sparse[:, 3:8] = p[:, 3:8]  # some are left: one alone has no product to compare
    v = rng.standard_normal(p.shape).astype(np.float32)
    for rows in (p, sparse):
        product, size = exact(rows, v, alpha)
        for build, kernels in _cpu.BUILDS.items():
            found = kernels["entmax_jvp"](rows, v, alpha)
            allowed = 32 * np.finfo(np.float32).eps * size + 2.0**-148
            assert (np.abs(found - product) <= allowed).all(), build
            assert not found[rows == 0].any()


@pytest.mark.parametrize("alpha", [1 + 1e-9, 1.01, 1.1, 1.17])
@pytest.mark.parametrize("n", [2, 40, *slow(200, 600)])
def test_derivatives_keep_the_smallest_probabilities(n, alpha):
    """Down to denormal ones, whose power is as small: the gradient in α divides by it."""
    p = np.zeros((30, n), np.float32)
    p[:, 0], p[:, n // 2] = 1, np.geomspace(1e-39, 1e-30, 30)
    v = (np.arange(n) + 1).astype(np.float32)
    for kernels in _cpu.BUILDS.values():
        product, of_alpha = kernels["entmax_vjps"](p, v, alpha)
        of_all, of_alpha_in_double = kernels["entmax_vjps"](p.astype(float), v, alpha)
        room = 16 * np.finfo(np.float32).eps * np.abs(of_all)
        room += np.finfo(np.float32).smallest_subnormal * n
        for found in (product, kernels["entmax_jvp"](p, v, alpha)):
            assert (np.abs(found - of_all) <= room).all()
        np.testing.assert_allclose(of_alpha, of_alpha_in_double, rtol=1e-4, atol=1e-37)


@every_dtype
def test_slopes_in_alpha_of_a_uniform_row_are_exactly_0(dtype):
    for n in (1, 2, 3, 10, 130, 1000):
        p = np.zeros(n + 3, dtype)
        p[1 : n + 1] = 1 / n
        v = np.random.default_rng(n).standard_normal(n + 3).astype(dtype)
        for alpha in (1, 1.2, 1.5, 2):
            assert not _cpu.entmax_grad_alpha(p, alpha).any()
            assert not _cpu.entmax_vjps(p, v, alpha)[1], (n, alpha)
