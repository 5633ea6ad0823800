"""Derivatives of rows where digits are lost easily: one entry dominates, or powers span all floats.

What holds of all rows is in test_kernel_contract.py; more is in
tests/reference/mappings/test_steep_derivatives.py.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from kernel_contract import exact_product
from kernel_operands import _cpu
from kernel_rows import FLOATS
from stages import sample, slow

import pyentmax as pe
from pyentmax.reference.mappings.entmax import entmax_vjps

every_dtype = pytest.mark.parametrize("dtype", FLOATS)
EVERY_ALPHA = [1, 1 + 1e-9, 1.1, 1.5, 1.9, 2, 3, 20, np.inf]


def forward(z, alpha):
    return _cpu.entmax(z, np.broadcast_to(True, z.shape), alpha)


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


def exact_slope(p, alpha):
    """∂p/∂α of one row in 80 digits by the published form, or its limit at α = 1."""
    with mpmath.workdps(80):
        p = [mpmath.mpf(float(value)) for value in p]
        total = mpmath.fsum(p)
        p = [value / total for value in p]
        beta = mpmath.mpf(alpha) - 1
        logs = [mpmath.log(value) for value in p]
        h = [-value * log for value, log in zip(p, logs, strict=True)]
        if beta == 0:
            second = mpmath.fsum(value * log**2 for value, log in zip(p, logs, strict=True))
            return [float(x * (second - log**2) / 2) for x, log in zip(p, logs, strict=True)]
        s = [value ** (1 - beta) for value in p]
        share = [value / mpmath.fsum(s) for value in s]
        entropy = mpmath.fsum(h)
        return [
            float((value - w) / beta**2 + (x - w * entropy) / beta)
            for value, w, x in zip(p, share, h, strict=True)
        ]


@pytest.mark.parametrize(
    "beta", sample([0, 1e-12, 1e-9, 1e-6, 1e-3, 0.03, 0.1, 0.33, 0.5, 0.9, 1, 1.2, 3], 7)
)
def test_slopes_in_alpha_have_eleven_digits(beta):
    """The published form loses all of them at β = 1e-8."""
    rng = np.random.default_rng(3)
    for n, spread in ((2, 1), (5, 3), (40, 8), (300, 1)):
        # Sums to 1 within the last digits; nothing in the formula asks for more of p.
        p = np.exp(spread * rng.standard_normal(n))
        p /= p.sum()
        v, slope = rng.standard_normal(n), np.array(exact_slope(p, 1 + beta))
        for kernels in _cpu.BUILDS.values():
            got, (_, along) = (
                kernels["entmax_grad_alpha"](p, 1 + beta),
                kernels["entmax_vjps"](p, v, 1 + beta),
            )
            np.testing.assert_allclose(got, slope, rtol=1e-10, atol=1e-12 * np.abs(slope).max())
            assert abs(along - slope @ v) <= 1e-11 * np.abs(slope * v).sum()


@every_dtype
@pytest.mark.parametrize("alpha", EVERY_ALPHA)
def test_both_gradients_are_those_that_come_one_by_one(alpha, dtype):
    rng = np.random.default_rng(4)
    for n in (1, 7, 20, 128, 130, 1000):
        p = forward((rng.standard_normal((5, n)) * 2).astype(dtype), alpha)
        v = rng.standard_normal((5, n)).astype(dtype)
        of_z, of_alpha = _cpu.entmax_vjps(p, v, alpha)
        np.testing.assert_array_equal(of_z, _cpu.entmax_jvp(p, v, alpha))
        np.testing.assert_array_equal(of_alpha, _cpu.entmax_vjp_alpha(p, v, alpha))


@every_dtype
def test_slopes_in_alpha_of_a_uniform_row_are_exactly_0(dtype):
    for n in (1, 2, 3, 10, 130, 1000):
        p = np.zeros(n + 3, dtype)
        p[1 : n + 1] = 1 / n
        v = np.random.default_rng(n).standard_normal(n + 3).astype(dtype)
        for alpha in (1, 1.2, 1.5, 2):
            assert not _cpu.entmax_grad_alpha(p, alpha).any()
            assert not _cpu.entmax_vjps(p, v, alpha)[1], (n, alpha)


@pytest.mark.parametrize("alpha", [1, 1.2, 1.5, 2, 3, np.inf])
def test_rows_without_support_and_with_nan(alpha):
    nan = np.nan
    p = np.array([[0.0, 0, 0], [1, 0, 0], [nan, nan, nan], [0.5, 0.5, 0], [0.75, 0.25, 0]])
    v = np.array([[1.0, nan, 2], [3, nan, np.inf], [1, 2, 3], [1, 3, nan], [nan, 3, 1]])
    of_z, of_alpha = _cpu.entmax_vjps(p, v, alpha)
    for product in (of_z, _cpu.entmax_jvp(p, v, alpha)):
        np.testing.assert_array_equal(product[:2], 0)
        assert np.isnan(product[2]).all()
        s = 0 if np.isinf(alpha) else 0.5 ** (2 - alpha)
        np.testing.assert_allclose(product[3], s * np.array([-1, 1, 0]), rtol=1e-15)
    np.testing.assert_array_equal(of_alpha[[0, 1, 3]], 0)
    assert np.isnan(of_alpha[2])
    assert np.isnan(of_alpha[4]) or np.isinf(alpha)


@pytest.mark.parametrize("dtype", [np.float16, *FLOATS])
def test_public_gradients_are_the_bodies_on_every_axis_and_mask(dtype):
    rng = np.random.default_rng(8)
    z, v = rng.standard_normal((2, 4, 50, 3)).astype(dtype)
    mask = rng.random(z.shape) < 0.8
    v[~mask] = np.nan
    for axis, alphas in (
        (1, (1.3, np.array([1, 1.2, 1.5]), np.array([[1.1], [1.6], [2], [3]], np.float32))),
        (-1, (1.9, np.linspace(1, 2, 200).reshape(4, 50))),
        ((0, 2), (1.25, np.linspace(1, 2, 50))),
        (None, (1.5,)),
    ):
        for alpha in alphas:
            p = pe.entmax(z, alpha, axis, mask=mask)
            got = entmax_vjps(p, v, alpha, axis, mask=mask)
            expected = entmax_vjps.reference(p, v, alpha, axis, mask=mask)
            alone = pe.entmax_vjp_alpha(p, v, alpha, axis, mask=mask)
            np.testing.assert_array_equal(alone, got[1])
            size = np.abs(expected[1]).max() + 1
            for a, b, atol in zip(got, expected, (1, size * z.size**0.5), strict=True):
                assert a.dtype == b.dtype
                assert np.shape(a) == np.shape(b)
                np.testing.assert_allclose(a, b, rtol=0, atol=64 * np.finfo(dtype).eps * atol)
    with pytest.raises(ValueError, match="alpha must be above 0, got 0"):
        entmax_vjps(p, v, 0)
    with pytest.raises(ValueError, match=r"alpha of shape \(7,\) does not broadcast"):
        entmax_vjps(p, v, np.full(7, 1.5))
