"""Derivatives: by finite differences, by duality, by the dense Jacobian, in many digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from exact_rows import DIGITS, exact_row
from finite_differences import central_difference
from mapping_cases import Case, parametrized
from on_gpu import MARKS
from stages import slow

import pyentmax
from pyentmax import MAPPINGS, check_jacobian, check_vjp

ENTMAX = [Case("entmax", (alpha,)) for alpha in (0.4, 1, 1 + 1e-8, 1.1, 1.5, 2, 2.5, 4)]
NORMMAX = [Case("normmax", (alpha,)) for alpha in (1.05, 1.2, 2, 4, 10)]
CASES = [Case("softmax"), Case("sparsemax"), Case("entmax15"), *ENTMAX, *NORMMAX]
CASES += [Case("topk_softmax", (3,)), Case("topk_sparsemax", (3,))]
CASES += [Case("fusedmax", (strength,)) for strength in (0, 0.03, 0.1, 0.4)]
CASES += [Case("oscarmax", (strength,)) for strength in (0, 0.05, 0.2)]
CASES += [Case("csoftmax", (0.6,)), Case("csparsemax", (0.6,)), Case("budget_sparsemax", (1.7,))]
# Some bounds exhausted, some loose.
BOUNDS = np.array([0.1, 0.9, 0.3, 0.2, 1.5])
CASES += [Case("csoftmax", (BOUNDS,)), Case("csparsemax", (BOUNDS,))]
OWN_CASES = [Case("tsallis"), Case("cosh"), Case("cubic")]
GPU_CASES = [pytest.param(case._replace(form="gpu"), marks=MARKS) for case in CASES]
every_case = parametrized([*CASES, *OWN_CASES, *GPU_CASES])
# A user's own Ω takes a bisection for each value.
against_differences = parametrized([*CASES, *slow(*((case,) for case in OWN_CASES))])
half_of_them = parametrized([*CASES[::2], *slow(*((case,) for case in [*CASES[1::2], *OWN_CASES]))])
BETAS = [0, 1e-12, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5, 1, 3]


def has_bounds_per_entry(case: Case) -> bool:
    return any(np.ndim(value) for value in case.params)


@against_differences
def test_jacobian_against_differences(case: Case) -> None:
    z = np.random.default_rng(0).standard_normal((4, 5)) * [[1], [0.4], [0.1], [2]]
    check_jacobian(case.forward, z, case.jacobian, rtol=1e-5).raise_if_failed()


@half_of_them
def test_vjp_against_differences(case: Case) -> None:
    """deep-spin/entmax's arbitrary-axis gradient test differentiates a simplex of length one."""
    if has_bounds_per_entry(case):
        case = case._replace(params=(BOUNDS[:, None],))
    z = np.random.default_rng(1).standard_normal((5, 2))
    mask = np.array([True, True, True, False, True])[:, None]
    check_vjp(
        lambda z: case.forward(z, 0, mask=mask),
        z,
        lambda p, v: case.vjp(p, v, 0, mask=mask),
        rtol=1e-5,
    ).raise_if_failed()


@every_case
def test_jvp_and_jacobian_agree_and_are_dual(case: Case) -> None:
    rng = np.random.default_rng(2)
    p = case.forward(rng.standard_normal((6, 5)) * 2)
    u, v = rng.standard_normal((2, 6, 5))
    jacobian, product = case.jacobian(p), case.jvp(p, v)
    assert jacobian.shape == (6, 5, 5)
    tolerance = 1e-12 * np.abs(jacobian).max()
    expected = (jacobian @ v[..., None])[..., 0]
    np.testing.assert_allclose(product, expected, rtol=0, atol=tolerance)
    if case.name in MAPPINGS:
        body = case._replace(form="reference").jvp(p, v)
        np.testing.assert_allclose(body, expected, rtol=0, atol=tolerance)
    dual = np.sum(case.vjp(p, u) * v)
    np.testing.assert_allclose(np.sum(u * product), dual, rtol=1e-10, atol=tolerance)
    assert case.jacobian(p.astype(np.float16)).dtype == np.float16
    if not has_bounds_per_entry(case):  # these lie along the last axis
        moved = case.jacobian(p.T, 0)
        np.testing.assert_allclose(moved, jacobian, rtol=0, atol=tolerance)
        np.testing.assert_allclose(case.jvp(p.T, v.T, 0).T, product, rtol=0, atol=tolerance)


@every_case
def test_direction_off_support_is_ignored(case: Case) -> None:
    rng = np.random.default_rng(3)
    z, v = rng.standard_normal((2, 4, 5))
    mask = np.ones((4, 5), bool)
    mask[:, 0], mask[3] = False, False
    p = case.forward(z, mask=mask)
    clean = case.jvp(p, np.where(mask, v, 0))
    assert (clean[~mask] == 0).all()
    for rubbish in (np.nan, np.inf):
        spoiled = np.where(mask, v, rubbish)
        np.testing.assert_array_equal(case.jvp(p, spoiled), clean)
        own = np.where(mask, p, 0.5)  # a p of one's own making, say
        np.testing.assert_array_equal(case.jvp(own, spoiled, mask=mask), clean)
    off = np.where(p > 0, v, np.nan)
    np.testing.assert_array_equal(case.jvp(p, off), case.jvp(p, np.where(p > 0, v, 0)))
    assert (case.jacobian(p)[3] == 0).all()


@every_case
def test_derivatives_of_nan_dead_and_empty_rows(case: Case) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        z = np.array([[np.nan] * 5, [1, 0.9, 0.4, 0.8, 0], [-np.inf] * 5], dtype)
        p, ones = case.forward(z), np.ones((3, 5), dtype)
        for found in (case.jvp(p, ones), case.jacobian(p)):
            assert found.dtype == dtype
            assert np.isnan(found[0]).all()
            assert np.isfinite(found[1]).all()
            assert (found[2] == 0).all()
        assert case.jvp(p, ones.astype(np.float64)).dtype == np.float64
    assert case.jacobian(p[:0]).shape == (0, 5, 5)


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", "<f2"])
def test_results_have_native_byte_order(dtype: str) -> None:
    z = np.array([1.0, 0.8, 0.1], dtype)
    p = pyentmax.softmax(z)
    for found in (p, pyentmax.softmax.vjp(z, z), pyentmax.softmax.loss(z, 0), pyentmax.entmax(z)):
        assert found.dtype == np.dtype(dtype).newbyteorder("=")


def test_bad_operands_are_named() -> None:
    with pytest.raises(ValueError, match=r"v must have the shape of p, \(3,\), got \(2,\)"):
        pyentmax.entmax15.jvp([1.0, 0, 0], [1.0, 0])
    with pytest.raises(TypeError, match="v must hold real numbers"):
        pyentmax.softmax.jvp([0.5, 0.5], [1j, 0])
    for gradient in (pyentmax.entmax.parameter_vjp, pyentmax.csoftmax.parameter_vjp):  # g, not v
        with pytest.raises(ValueError, match=r"g must have the shape of p, \(2,\), got \(3,\)"):
            gradient([0.5, 0.5], [1.0, 0, 0], 1.5)
        with pytest.raises(TypeError, match="g must hold real numbers"):
            gradient([0.5, 0.5], [1j, 0], 1.5)
    with pytest.raises(ValueError, match=r"z must have the shape of p, \(2, 3\), got \(3,\)"):
        pyentmax.csparsemax.parameter_vjp.at_scores(np.zeros(3), np.eye(2, 3), np.eye(2, 3), 1)
    with pytest.raises(ValueError, match="p is 0-dimensional"):
        pyentmax.sparsemax.jvp(1.0, 1.0)


# --- in a parameter -------------------------------------------------------------------------------

# Where mappings are smooth in their parameter but for rare kinks.
RANGES = {
    "entmax": (1.1, 1.9),
    "csoftmax": (0.3, 0.5),
    "csparsemax": (0.3, 0.5),
    "budget_sparsemax": (0.5, 2.9),
    "fusedmax": (0.02, 0.2),
    "oscarmax": (0.01, 0.1),
}
with_parameter = pytest.mark.parametrize(
    "name", [name for name, record in MAPPINGS.items() if record.parameter_vjp.is_defined]
)


@with_parameter
@pytest.mark.parametrize("masked", [False, True])
def test_parameter_vjp_against_differences(name: str, masked: bool) -> None:
    record = MAPPINGS[name]
    rng = np.random.default_rng(10)
    z, g = rng.standard_normal((2, 2, 3, 7)) / 2
    mask = rng.random(z.shape) < 0.8 if masked else np.ones(z.shape, bool)
    mask[..., :4] = True
    spoiled = np.where(mask, g, np.nan)
    options = {"mask": mask} if masked else {}
    shapes = [(), (1, 1), (3,), (2, 1), (2, 3)]
    if record.parameters == ("upper",):
        shapes = [(), (7,), (3, 1), (2, 1, 7), (2, 3, 7)]
    for shape in shapes:
        value = rng.uniform(*RANGES[name], shape)
        p = record(z, value, **options)
        scores = np.where(mask, z, np.nan)
        got = record.parameter_vjp.at_scores(scores, p, spoiled, value, **options)
        assert got.shape == shape
        numeric = central_difference(lambda x: record(z, x, **options), value, g)
        np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8)
    if record.parameters != ("upper",):
        across = {"mask": np.moveaxis(mask, -1, 0)} if masked else {}
        moved = (np.moveaxis(a, -1, 0) for a in (p, spoiled))
        got_across = record.parameter_vjp(*moved, value, 0, **across)
        np.testing.assert_allclose(got_across, got, rtol=1e-12)


@with_parameter
def test_parameter_vjp_of_nan_and_dead_rows(name: str) -> None:
    record, value = MAPPINGS[name], RANGES[name][1]
    for dtype in (np.float16, np.float32, np.float64):
        z = np.array([[np.nan, 0, 0], [0.3, 0.2, 0.1], [-np.inf] * 3], dtype)
        each = np.full((3, 1) if record.parameters == ("upper",) else 3, value)
        p, gradient = record(z, each), record.parameter_vjp.at_scores
        slope = gradient(z, p, np.ones_like(z), each)
        assert slope.dtype == dtype
        assert np.isnan(slope.ravel()).tolist() == [True, False, False]
        assert slope.ravel()[2] == 0
        empty = gradient(z[:0], p[:0], p[:0], value)
        assert empty == 0


@pytest.mark.parametrize("beta", [-0.95, -0.3, -1e-8, *BETAS])
@pytest.mark.parametrize("d", [2, 5, 12])
def test_grad_alpha_against_many_digits(beta: float, d: int) -> None:
    """The published formula is wrong in every digit at β = 1e−8 (MATH: error ε/β²)."""
    z = np.random.default_rng(d).standard_normal(d) / (1 + beta)
    with mpmath.workdps(DIGITS):
        alpha, h = 1 + mpmath.mpf(beta), mpmath.mpf(10) ** -12
        base, one, two = (exact_row(z, alpha + k * h)[0] for k in range(3))
        rows = zip(base, one, two, strict=True)
        exact = np.array([float((4 * b - 3 * a - c) / (2 * h)) for a, b, c in rows])
    p = np.array([float(x) for x in base])
    error = np.abs(pyentmax.entmax.parameter_slope(p, 1 + beta) - exact).max()
    assert error <= 1e-9 * np.abs(exact).max()


@pytest.mark.parametrize("beta", [-0.9, *BETAS, 50, np.inf])
def test_grad_alpha_of_uniform_row_is_zero(beta: float) -> None:
    for d in (1, 2, 3, 7, 10, 1000):
        p = np.append(np.full(d, 1 / d), 0)
        np.testing.assert_array_equal(pyentmax.entmax.parameter_slope(p, 1 + beta), 0)
    assert np.isfinite(pyentmax.entmax.parameter_slope([1 - 1e-300, 1e-300, 0.0], 1 + beta)).all()


@pytest.mark.parametrize("alpha", [0.1, 0.6, 1, 1.05, 1.5, 2, 2.0001, 3, 10])
def test_grad_alpha_against_differences(alpha: float) -> None:
    z = np.random.default_rng(5).standard_normal((20, 6)) / alpha
    h = 1e-5
    below, above = pyentmax.entmax(z, alpha - h), pyentmax.entmax(z, alpha + h)
    numeric = (above - below) / (2 * h)
    slope = pyentmax.entmax.parameter_slope(pyentmax.entmax(z, alpha), alpha)
    # Rows where an entry is just entering or leaving have a kink in α.
    same = (above > 0) == (below > 0)
    steady = same.all(axis=-1)
    assert steady.sum() >= 15
    np.testing.assert_allclose(slope[steady], numeric[steady], rtol=0, atol=1e-6)
