"""The compiled derivatives of α-entmax, in wider floats and in many digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from kernel_rows import FLOATS, LENGTHS, awkward_layouts
from stages import slow

import pyentmax
from pyentmax.mappings.entmax import entmax_vjps

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

ALPHAS = [1, 1 + 1e-9, 1.1, 1.33, 1.5, 1.9, 2, 2.5, 4]


def forward(z, alpha):
    return _cpu.entmax(z, np.broadcast_to(True, np.shape(z)), alpha)


def exact_product(p, v, alpha):
    """J v in the widest floats, and the sum of its terms' sizes.

    With J = diag(s) − ssᵀ/Σs it is (J v)_i = Σ_j s_i s_j (v_i − v_j)/Σs, where nothing cancels.
    """
    p, v = np.asarray(p, np.longdouble), np.asarray(v, np.longdouble)
    s = np.where(p > 0, np.where(p > 0, p, 1) ** (2 - np.longdouble(alpha)), 0)
    terms = s[:, None] * (s / s.sum()) * (v[:, None] - v)
    return terms.sum(axis=1), np.abs(terms).sum(axis=1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1.33, *slow(1, 2.5, 1 + 1e-9, 1.1, 1.5, 1.9, 2, 4)])
def test_jvp_is_the_dense_jacobian_times_v(alpha, dtype):
    for n in LENGTHS:
        rng = np.random.default_rng(n)
        z = rng.standard_normal((4, n)) * np.array([[0.01], [0.3], [1], [5]]) / alpha
        p, v = forward(z.astype(dtype), alpha), rng.standard_normal((4, n)).astype(dtype)
        exact, allowed = np.empty((4, n), np.longdouble), np.empty((4, 1))
        for i in range(4):
            exact[i], size = exact_product(p[i], v[i], alpha)
            # Of a probability near 0, α > 2 takes a power that digits of its logarithm go into.
            digits = 1 + max(0, alpha - 2) * np.log(1 / p[i][p[i] > 0].min())
            allowed[i] = 16 * np.finfo(dtype).eps * digits * size.max() + np.finfo(dtype).tiny
        for build, kernels in _cpu.BUILDS.items():
            product = kernels["entmax_jvp"](p, v, alpha)
            assert product.dtype == dtype
            assert (np.abs(product - exact) <= allowed).all(), (build, p, v)
            assert (product[p == 0] == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1, 1.2, 1.5, 1.9])
@pytest.mark.parametrize("n", [3, 200, *slow(1500)])
def test_jvp_keeps_its_digits_where_one_entry_dominates(n, alpha, dtype):
    rng = np.random.default_rng(n)
    p = (rng.random(n) * 1e-6 / n).astype(dtype)
    p[n // 2] = 1
    v = rng.standard_normal(n).astype(dtype)
    exact, size = exact_product(p, v, alpha)
    error = np.abs(_cpu.entmax_jvp(p, v, alpha) - exact)
    assert (error <= 32 * np.finfo(dtype).eps * size).all()


@pytest.mark.parametrize("alpha", [1.01, 1.1, 1.33, 1.5 + 1e-6, 1.75, 1.99])
@pytest.mark.parametrize("n", [17, *slow(64, 300, 600)])
def test_jvp_of_floats_of_every_size(n, alpha):
    """Denormal or far above 1, dense or sparse: the tables of powers span all exponents."""
    rng = np.random.default_rng(n)
    exponents = np.array([-147, -140, -127, -126, -100, -33, -32, -31, -1, 0, 1, 31, 64, 100])
    p = np.exp2(exponents[:, None] + 3 * rng.random((14, n))).astype(np.float32)
    p = p[(2 - alpha) * exponents > -110]  # below, sums of s are denormal and have few digits
    sparse = p * (rng.random(p.shape) < 0.4)
    sparse[:, 3:8] = p[:, 3:8]  # some are left: one alone has no product to compare
    v = rng.standard_normal(p.shape).astype(np.float32)
    for rows in (p, sparse):
        for build, kernels in _cpu.BUILDS.items():
            product = kernels["entmax_jvp"](rows, v, alpha)
            for i in range(len(p)):
                exact, size = exact_product(rows[i], v[i], alpha)
                allowed = 32 * np.finfo(np.float32).eps * size + 2.0**-148
                assert (np.abs(product[i] - exact) <= allowed).all(), (build, rows[i].max())
                assert not product[i][rows[i] == 0].any()


@pytest.mark.parametrize("n", [20, 64, 300])
def test_products_of_many_alphas_are_those_of_each(n):
    """Powers are prepared for several at once, and kept for rows that come back to one."""
    rng = np.random.default_rng(n)
    p = forward(rng.standard_normal((60, n)).astype(np.float32), 1.4)
    v = rng.standard_normal((60, n)).astype(np.float32)
    few, many = rng.uniform(1, 2, 5), rng.uniform(0.9, 2.5, 60)
    for alpha in (np.tile(few, 12), np.repeat(few, 12), rng.choice(few, 60), many):
        product, (of_z, of_alpha) = _cpu.entmax_jvp(p, v, alpha), _cpu.entmax_vjps(p, v, alpha)
        np.testing.assert_array_equal(of_z, product)
        for i, a in enumerate(alpha):
            np.testing.assert_array_equal(_cpu.entmax_jvp(p[i], v[i], a), product[i])
            np.testing.assert_array_equal(_cpu.entmax_vjps(p[i], v[i], a)[1], of_alpha[i])


@pytest.mark.parametrize("alpha", [1 + 1e-9, 1.01, 1.1, 1.17])
def test_derivatives_keep_the_smallest_probabilities(alpha):
    """Down to denormal ones, whose power is as small: the gradient in α divides by it."""
    for n in (2, 40, 200, 600):
        p = np.zeros((30, n), np.float32)
        p[:, 0], p[:, n // 2] = 1, np.geomspace(1e-39, 1e-30, 30)
        v = (np.arange(n) + 1).astype(np.float32)
        for kernels in _cpu.BUILDS.values():
            product, of_alpha = kernels["entmax_vjps"](p, v, alpha)
            same = kernels["entmax_jvp"](p, v, alpha)
            of_all, of_alpha_in_double = kernels["entmax_vjps"](p.astype(float), v, alpha)
            room = 16 * np.finfo(np.float32).eps * np.abs(of_all)
            tiny = np.finfo(np.float32).smallest_subnormal * n
            assert (np.abs(product - of_all) <= room + tiny).all()
            assert (np.abs(same - of_all) <= room + tiny).all()
            np.testing.assert_allclose(of_alpha, of_alpha_in_double, rtol=1e-4, atol=1e-37)


@pytest.mark.parametrize("alpha", [1.001, 1.2, 1.5, 1.9, 2.5])
def test_jvp_against_central_differences(alpha):
    rng = np.random.default_rng(9)
    z = 0.005 * rng.standard_normal((20, 12))
    v, step = rng.standard_normal(z.shape), 1e-6
    difference = (forward(z + step * v, alpha) - forward(z - step * v, alpha)) / (2 * step)
    p = forward(z, alpha)
    product = _cpu.entmax_jvp(p, v, alpha)
    smooth = (p > 1e-2).all(axis=-1)  # no kink within the step
    assert smooth.sum() > 5
    np.testing.assert_allclose(product[smooth], difference[smooth], rtol=0, atol=1e-7)


@pytest.mark.parametrize("alpha", [1, 1.2, 1.5, 2, 3, np.inf])
def test_rows_without_support_and_with_nan(alpha):
    nan = np.nan
    p = np.array([[0.0, 0, 0], [1, 0, 0], [nan, nan, nan], [0.5, 0.5, 0]])
    v = np.array([[1.0, nan, 2], [3, nan, np.inf], [1, 2, 3], [1, 3, nan]])
    product, slope = _cpu.entmax_jvp(p, v, alpha), _cpu.entmax_grad_alpha(p, alpha)
    np.testing.assert_array_equal(product[:2], 0)
    np.testing.assert_array_equal(slope[[0, 1, 3]], 0)
    assert np.isnan(product[2]).all()
    assert np.isnan(slope[2]).all()
    s = 0 if np.isinf(alpha) else 0.5 ** (2 - alpha)
    np.testing.assert_allclose(product[3], s * np.array([-1, 1, 0]), rtol=1e-15)


@pytest.mark.parametrize("alpha", [0.9, np.nan])
def test_no_alpha_is_no_number(alpha):
    p = np.full((2, 4), 0.25)
    assert np.isnan(_cpu.entmax_jvp(p, p, alpha)).all()
    assert np.isnan(_cpu.entmax_grad_alpha(p, alpha)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [5, 64, 128, 129, 700])
def test_every_row_has_its_own_alpha_and_every_layout_gives_the_same(n, dtype):
    rng = np.random.default_rng(n)
    alpha = rng.choice([1, 1.1, 1.3, 1.5, 1.9, 2, 3, np.inf], 40)
    p = forward(rng.standard_normal((40, n)).astype(dtype), alpha)
    v = rng.standard_normal((40, n)).astype(dtype)
    product, slope = _cpu.entmax_jvp(p, v, alpha), _cpu.entmax_grad_alpha(p, alpha)
    for i, a in enumerate(alpha):
        np.testing.assert_array_equal(_cpu.entmax_jvp(p[i], v[i], a), product[i])
        np.testing.assert_array_equal(_cpu.entmax_grad_alpha(p[i], a), slope[i])
    for (layout, p_), (_, v_) in zip(awkward_layouts(p), awkward_layouts(v), strict=True):
        np.testing.assert_array_equal(_cpu.entmax_jvp(p_, v_, alpha), product, err_msg=layout)
        np.testing.assert_array_equal(_cpu.entmax_grad_alpha(p_, alpha), slope, err_msg=layout)
    frame = np.zeros((40, 2 * n), dtype)
    _cpu.entmax_jvp(p, v, alpha, out=frame[:, ::-2])
    np.testing.assert_array_equal(frame[:, ::-2], product)


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
            return [value * (second - log**2) / 2 for value, log in zip(p, logs, strict=True)]
        s = [value ** (1 - beta) for value in p]
        share = [value / mpmath.fsum(s) for value in s]
        entropy = mpmath.fsum(h)
        return [
            (value - w) / beta**2 + (x - w * entropy) / beta
            for value, w, x in zip(p, share, h, strict=True)
        ]


BETAS = [0, 0.33, *slow(1e-12, 1e-9, 1e-6, 1e-3, 0.03, 0.1, 0.5, 0.9, 1, 1.2, 3)]


@pytest.mark.parametrize("build", _cpu.BUILDS)
@pytest.mark.parametrize("beta", BETAS)
def test_grad_alpha_has_twelve_digits(beta, build):
    rng = np.random.default_rng(3)
    for n, spread in ((2, 1), (5, 3), (40, 8), (300, 1)):
        # Sums to 1 within the last digits; nothing in the formula asks for more of p.
        p = np.exp(spread * rng.standard_normal(n))
        p /= p.sum()
        got = _cpu.BUILDS[build]["entmax_grad_alpha"](p, 1 + beta)
        expected = np.array([float(value) for value in exact_slope(p, 1 + beta)])
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1, 1 + 1e-9, 1.1, 1.5, 1.9, 2, 3, 20, np.inf])
def test_grad_alpha_agrees_with_the_body(alpha, dtype):
    rng = np.random.default_rng(4)
    for n in (1, 7, 128, 1000):
        p = forward((rng.standard_normal((5, n)) * 2).astype(dtype), alpha)
        got = pyentmax.entmax_grad_alpha(p, alpha)
        expected = pyentmax.entmax_grad_alpha.reference(p, alpha)
        assert got.dtype == dtype
        scale = np.abs(expected).max() + np.finfo(dtype).tiny
        np.testing.assert_allclose(got, expected, rtol=0, atol=100 * np.finfo(dtype).eps * scale)
        assert (got[p == 0] == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_grad_alpha_of_a_uniform_row_is_exactly_0(dtype):
    for n in (1, 2, 3, 10, 1000):
        for alpha in (1, 1.2, 1.5, 2):
            assert not _cpu.entmax_grad_alpha(np.full(n, 1 / n, dtype), alpha).any()


@pytest.mark.parametrize("build", _cpu.BUILDS)
@pytest.mark.parametrize("beta", BETAS)
def test_the_gradient_in_alpha_has_eleven_digits(beta, build):
    rng = np.random.default_rng(3)
    for n, spread in ((2, 1), (5, 3), (40, 8), (200, 1)):
        p = np.exp(spread * rng.standard_normal(n))
        p /= p.sum()
        v = rng.standard_normal(n)
        terms = np.array([float(value) for value in exact_slope(p, 1 + beta)]) * v
        _, got = _cpu.BUILDS[build]["entmax_vjps"](p, v, 1 + beta)
        assert abs(got - terms.sum()) <= 1e-11 * np.abs(terms).sum()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1, 1 + 1e-9, 1.1, 1.5, 1.9, 2, 3, 20, np.inf])
def test_both_gradients_are_those_that_come_one_by_one(alpha, dtype):
    rng = np.random.default_rng(4)
    for n in (1, 2, 7, 20, 128, 130, 1000):
        p = forward((rng.standard_normal((5, n)) * 2).astype(dtype), alpha)
        v = rng.standard_normal((5, n)).astype(dtype)
        of_z, of_alpha = _cpu.entmax_vjps(p, v, alpha)
        assert of_z.dtype == of_alpha.dtype == dtype
        np.testing.assert_array_equal(of_z, _cpu.entmax_jvp(p, v, alpha))
        np.testing.assert_array_equal(of_alpha, _cpu.entmax_vjp_alpha(p, v, alpha))
        slope = pyentmax.entmax_grad_alpha.reference(p.astype(np.float64), alpha)
        size = np.abs(slope * v).sum(axis=-1) + np.finfo(dtype).tiny
        # p of floats sums to 1 within ε, which all of ∂p/∂α shows where one entry has nearly all.
        allowed = 64 * np.finfo(dtype).eps * (size + np.abs(v).max(axis=-1))
        assert (np.abs(of_alpha - (slope * v).sum(axis=-1)) <= allowed).all(), n


@pytest.mark.parametrize("alpha", [1.001, 1.2, 1.5, 1.9, 2.5])
def test_the_gradient_in_alpha_against_central_differences(alpha):
    rng = np.random.default_rng(9)
    z = 0.005 * rng.standard_normal((20, 12))
    v, step = rng.standard_normal(z.shape), 1e-6
    change = (forward(z, alpha + step) - forward(z, alpha - step)) / (2 * step)
    p = forward(z, alpha)
    smooth = (p > 1e-2).all(axis=-1)  # no kink within the step
    assert smooth.sum() > 5
    _, got = _cpu.entmax_vjps(p, v, alpha)
    expected = (change * v).sum(axis=-1)
    np.testing.assert_allclose(got[smooth], expected[smooth], rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_gradient_in_alpha_of_a_uniform_row_is_exactly_0(dtype):
    for n in (1, 2, 3, 10, 130, 1000):
        p = np.zeros(n + 3, dtype)
        p[1 : n + 1] = 1 / n
        v = np.random.default_rng(n).standard_normal(n + 3).astype(dtype)
        for alpha in (1, 1.2, 1.5, 2):
            assert not _cpu.entmax_vjps(p, v, alpha)[1], (n, alpha)


@pytest.mark.parametrize("alpha", [1, 1.2, 1.5, 2, 3, np.inf])
def test_both_gradients_of_rows_without_support_and_with_nan(alpha):
    nan = np.nan
    p = np.array([[0.0, 0, 0], [1, 0, 0], [nan, nan, nan], [0.75, 0.25, 0], [0.75, 0.25, 0]])
    v = np.array([[1.0, nan, 2], [3, nan, np.inf], [1, 2, 3], [1, 3, nan], [nan, 3, 1]])
    of_z, of_alpha = _cpu.entmax_vjps(p, v, alpha)
    np.testing.assert_array_equal(of_z[:2], 0)
    np.testing.assert_array_equal(of_alpha[:2], 0)
    assert np.isnan(of_z[2]).all()
    assert np.isnan(of_alpha[2])
    slope = pyentmax.entmax_grad_alpha.reference(p[3], alpha)[:2]
    np.testing.assert_allclose(of_alpha[3], slope @ v[3, :2], rtol=1e-13)
    assert np.isnan(of_alpha[4]) or np.isinf(alpha)


@pytest.mark.parametrize("alpha", [0.9, np.nan])
def test_both_gradients_of_no_alpha_are_no_numbers(alpha):
    p = np.full((2, 4), 0.25)
    for gradient in (*_cpu.entmax_vjps(p, p, alpha), _cpu.entmax_vjp_alpha(p, p, alpha)):
        assert np.isnan(gradient).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [5, 64, 128, 129, 700])
def test_both_gradients_of_rows_with_their_own_alpha_in_every_layout(n, dtype):
    rng = np.random.default_rng(n)
    alpha = rng.choice([1, 1.1, 1.3, 1.5, 1.9, 2, 3, np.inf], 40)
    p = forward(rng.standard_normal((40, n)).astype(dtype), alpha)
    v = rng.standard_normal((40, n)).astype(dtype)
    both = _cpu.entmax_vjps(p, v, alpha)
    for i, a in enumerate(alpha):
        for row, whole in zip(_cpu.entmax_vjps(p[i], v[i], a), both, strict=True):
            np.testing.assert_array_equal(row, whole[i])
    for (layout, p_), (_, v_) in zip(awkward_layouts(p), awkward_layouts(v), strict=True):
        for part, whole in zip(_cpu.entmax_vjps(p_, v_, alpha), both, strict=True):
            np.testing.assert_array_equal(part, whole, err_msg=layout)
        alone = _cpu.entmax_vjp_alpha(p_, v_, alpha)
        np.testing.assert_array_equal(alone, both[1], err_msg=layout)
    frame, column = np.zeros((40, 2 * n), dtype), np.zeros(80, dtype)
    _cpu.entmax_vjps(p, v, alpha, out=(frame[:, ::-2], column[::2]))
    np.testing.assert_array_equal(frame[:, ::-2], both[0])
    np.testing.assert_array_equal(column[::2], both[1])


@pytest.mark.parametrize("dtype", [np.float16, *FLOATS])
def test_the_public_gradients_are_the_bodies_on_every_axis_and_mask(dtype):
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
            p = pyentmax.entmax(z, alpha, axis, mask=mask)
            got = entmax_vjps(p, v, alpha, axis, mask=mask)
            expected = entmax_vjps.reference(p, v, alpha, axis, mask=mask)
            alone = pyentmax.entmax_vjp_alpha(p, v, alpha, axis, mask=mask)
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


@pytest.mark.parametrize("dtype", FLOATS)
def test_public_functions_run_the_kernels_as_the_bodies_do_it(dtype):
    rng = np.random.default_rng(7)
    z, v = rng.standard_normal((2, 4, 50, 3)).astype(dtype)
    mask = rng.random(z.shape) < 0.8
    for alpha in (1.3, np.array([1, 1.2, 1.5]), np.array([[1.1], [1.6], [2], [3]])):
        p = pyentmax.entmax(z, alpha, 1)
        expected = pyentmax.entmax_jvp.reference(p, v, alpha, 1, mask=mask)
        got = pyentmax.entmax_jvp(p, v, alpha, 1, mask=mask)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=0, atol=64 * np.finfo(dtype).eps)
        np.testing.assert_allclose(
            pyentmax.entmax_grad_alpha(p, alpha, 1),
            pyentmax.entmax_grad_alpha.reference(p, alpha, 1),
            rtol=0,
            atol=1e3 * np.finfo(dtype).eps,
        )
    with pytest.raises(ValueError, match="alpha must be above 0, got 0"):
        pyentmax.entmax_jvp(p, v, 0)
    with pytest.raises(ValueError, match="alpha must be above 0, got 0"):
        pyentmax.entmax_grad_alpha(p, 0)
