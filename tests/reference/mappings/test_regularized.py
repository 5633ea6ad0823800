"""A user's own Ω: special cases, optimality, derivatives, and the records made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import xlogy
from stages import slow

import pyentmax
from pyentmax import check_jacobian
from pyentmax.regularized import (
    hessian_jacobian,
    regularized_argmax,
    separable_jacobian,
    separable_jvp,
    separable_mapping,
    separable_vjp,
)

BETA = 0.3
SHANNON = separable_mapping(
    "shannon", lambda p: xlogy(p, p), lambda t: np.exp(t - 1), lambda p: 1 / p, sparse=False
)
GINI = separable_mapping("gini", lambda p: p * p / 2, lambda t: t, np.ones_like)
TSALLIS = separable_mapping(
    "tsallis",
    lambda p: p ** (1 + BETA) / (BETA * (1 + BETA)),
    lambda t: np.maximum(BETA * t, 0) ** (1 / BETA),
    lambda p: p ** (BETA - 1),
)
# New ones: growing slopes, a slope that is steep at 0, a tiny and a huge scale, one with its own
# upper barrier (g'(1) = ∞: p log p + (1 − p) log(1 − p)).
COSH = separable_mapping("cosh", np.cosh, np.arcsinh, np.cosh)
CUBIC = separable_mapping("cubic", lambda p: p**3 / 3, np.sqrt, lambda p: 2 * p)
TINY = separable_mapping("tiny", lambda p: 1e-6 * p**2, lambda t: 5e5 * t, lambda p: 2e-6 + 0 * p)
HUGE = separable_mapping("huge", lambda p: 1e6 * p**2, lambda t: 5e-7 * t, lambda p: 2e6 + 0 * p)
FERMI = separable_mapping(
    "fermi",
    lambda p: xlogy(p, p) + xlogy(1 - p, 1 - p),
    lambda t: 1 / (1 + np.exp(-t)),
    lambda p: 1 / (p * (1 - p)),
    sparse=False,
)
OWN = {r.name: r for r in (SHANNON, GINI, TSALLIS, COSH, CUBIC, TINY, HUGE, FERMI)}

every_record = pytest.mark.parametrize(
    "record",
    [CUBIC, *slow(*(record for record in OWN.values() if record is not CUBIC))],
    ids=lambda record: record.name,
)
SPECIAL: list[tuple[Any, Callable[..., Any], Callable[..., Any]]] = [
    (SHANNON, pyentmax.softmax, pyentmax.softmax.jacobian),
    (GINI, pyentmax.sparsemax, pyentmax.sparsemax.jacobian),
    (
        TSALLIS,
        lambda z, **options: pyentmax.entmax(z, 1 + BETA, **options),
        lambda p, **options: pyentmax.entmax.jacobian(p, 1 + BETA, **options),
    ),
]
special_case = pytest.mark.parametrize(
    ("record", "forward", "jacobian"), SPECIAL, ids=[s[0].name for s in SPECIAL]
)


@special_case
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_sparsemax_and_entmax_are_special_cases(
    record: Any, forward: Any, jacobian: Any, dtype: type
) -> None:
    for scale in (1e-3, 1, 30):
        z = (np.random.default_rng(0).standard_normal((5, 12)) * scale).astype(dtype)
        p, tolerance = record(z), 40 * np.finfo(dtype).eps * max(1, scale)
        assert p.dtype == dtype
        np.testing.assert_allclose(p, forward(z), rtol=0, atol=tolerance)
        np.testing.assert_allclose(record.jacobian(p), jacobian(p), rtol=0, atol=tolerance)
        omega = record.regularizer(forward(z))
        np.testing.assert_allclose(record.regularizer(p), omega, rtol=0, atol=10 * tolerance)


@every_record
@given(
    z=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=8),
        elements=st.floats(-20, 20, allow_subnormal=False),
    )
)
def test_maximises_its_own_problem(record: Any, z: np.ndarray) -> None:
    """No step towards another point of the simplex, small or large, has a larger p·z − Ω(p)."""
    p = record(z)
    assert ((p >= 0) & (p <= 1)).all()
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-14)
    best = np.sum(p * z, axis=-1) - record.regularizer(p)
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1, 1.0):
        q = rng.dirichlet(np.ones(z.shape[-1]), size=z.shape[:-1])
        q = (1 - size) * p + size * q
        other = np.sum(q * z, axis=-1) - record.regularizer(q)
        scale = 1 + np.abs(z).max() + np.abs(record.regularizer(p))
        assert (best >= other - 1e-13 * scale).all()


def test_dense_support_and_omega_at_vertices() -> None:
    z = np.array([0.0, -2000.0, -np.inf])
    assert SHANNON(z)[1] == 0
    assert SHANNON.support(z).tolist() == [True, True, False]
    assert GINI.support(z).tolist() == [True, False, False]
    assert (SHANNON.omega_at_vertices, GINI.omega_at_vertices) == (0.0, 0.5)
    assert COSH.omega_at_vertices is None, "Ω(e_y) = cosh 1 + d − 1 depends on d"


@pytest.mark.slow
def test_hessian_form_of_random_quadratic() -> None:
    """Ω = ½ pᵀQp, solved by brute force and differentiated by differences of that solution."""
    rng = np.random.default_rng(7)
    found: set[int] = set()
    for _ in range(6):
        root = rng.standard_normal((4, 4))
        q = root @ root.T + 0.5 * np.eye(4)
        z = rng.standard_normal(4) * 2
        p = _quadratic_argmax(z, q)
        found.add(int((p > 0).sum()))
        jacobian = hessian_jacobian(p, lambda p, q=q: q)
        check_jacobian(
            lambda z, q=q: _quadratic_argmax(z, q), z, lambda p, j=jacobian: j
        ).raise_if_failed()
        for axis in (-1, 0):
            both = np.stack([p, p], axis=1 if axis == 0 else 0)
            rows = hessian_jacobian(both, lambda p, q=q: q, axis)
            np.testing.assert_allclose(rows, [jacobian] * 2, rtol=0, atol=1e-13)
    assert len(found) > 1, "supports of several sizes"


def _quadratic_argmax(z: np.ndarray, q: np.ndarray) -> np.ndarray:
    """By brute force over supports: the one whose KKT conditions hold."""
    d = len(z)
    for bits in range(1, 2**d):
        on = np.array([bits >> i & 1 for i in range(d)], bool)
        n = on.sum()
        system = np.block(
            [[q[np.ix_(on, on)], np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]]
        )
        *values, tau = np.linalg.solve(system, np.append(z[on], 1))
        p = np.zeros(d)
        p[on] = values
        if (p[on] > 0).all() and (z - q @ p <= tau + 1e-12).all():
            return p
    raise AssertionError("one support must fit")


def test_separable_derivatives_equal_hessian_form() -> None:
    z = np.random.default_rng(8).standard_normal((3, 6))
    for record, second in ((GINI, np.ones_like), (CUBIC, lambda p: 2 * p), (COSH, np.cosh)):
        p = record(z)

        def hessian(p: np.ndarray, second: Any = second) -> np.ndarray:
            return second(p)[..., None] * np.eye(6)

        np.testing.assert_allclose(
            hessian_jacobian(p, hessian), separable_jacobian(p, second), rtol=1e-12, atol=1e-13
        )
    zero_row = np.zeros((1, 6))
    np.testing.assert_array_equal(hessian_jacobian(zero_row, lambda p: np.eye(6)), 0)
    np.testing.assert_array_equal(separable_jacobian(zero_row, np.ones_like), 0)


def test_omega_of_integers_is_not_truncated() -> None:
    """⅓ at a corner of integers was 0."""
    assert CUBIC.regularizer.is_defined
    np.testing.assert_allclose(CUBIC.regularizer([[1, 0, 0], [0, 0, 1]]), 1 / 3, rtol=1e-15)
    assert CUBIC.regularizer(np.array([1, 0], np.float16)).dtype == np.float16


def test_entries_off_support_are_ignored() -> None:
    p, v = np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, np.nan])
    np.testing.assert_allclose(separable_jvp(p, v, lambda p: 1 / p), [0.25, -0.25, 0], rtol=1e-15)
    q = np.array([[2.0, 1, np.nan], [1, 2, np.nan], [np.nan, np.nan, np.nan]])
    assert np.isfinite(hessian_jacobian(p, lambda p: q)).all()
    mask = np.array([True, False, True])
    assert separable_vjp(p, v, np.ones_like, mask=mask).tolist() == [0, 0, 0]


def test_bad_functions_are_named() -> None:
    z = [0.0, 1.0]
    with pytest.raises(ValueError, match=r"omega_grad_inverse must rise .* but is 1 for no"):
        regularized_argmax(z, lambda t: -1 + 0 * t)
    with pytest.raises(ValueError, match=r"but is 1/d = 0.5 for no argument"):
        regularized_argmax(z, lambda t: 1 + 0 * t)
    # g = 2⁴⁰ p²/2 is strictly convex: the fault is its scale.
    message = r"must rise from 0 to 1 within \[-2\*\*30, 2\*\*30\], .* divide Ω and z"
    with pytest.raises(ValueError, match=message):
        regularized_argmax(z, lambda t: t / 2.0**40)
    with pytest.raises(ValueError, match=r"omega_hessian must return shape \(3, 3\).*got \(2, 2\)"):
        hessian_jacobian(np.ones(3) / 3, lambda p: np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        hessian_jacobian(np.ones(3) / 3, lambda p: np.zeros((3, 3)))
    with pytest.raises(ValueError, match="z is 0-dimensional"):
        regularized_argmax(1.0, np.sqrt)


def test_nan_row_has_nan_hessian_form() -> None:
    p = np.array([[np.nan] * 3, [0.5, 0.5, 0.0]])
    for hessian in (lambda p: np.eye(3), lambda p: 2 * p[..., None] * np.eye(3)):
        derivative = hessian_jacobian(p, hessian)
        assert np.isnan(derivative[0]).all()
        assert np.isfinite(derivative[1]).all()
