"""Products, Jacobians, slopes in parameters and gradients are the differences of the truth."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import rows
import truth
from backends import ARRAYS, BACKENDS, CASES, LOSSES, SECOND, for_each

import pyentmax as pe

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
SMOOTH = [case for case in CASES if case[1:] != (np.inf,)]
LEARNED = [case for case in SMOOTH if pe.MAPPINGS[case[0]].parameter_vjp.is_defined]
KINDS = ("random", "flat", "sharp", "rising", "falling", "far above 0", "one leads", "crowd")
NEAR = {"rtol": 1e-12, "atol": 1e-14}


def pattern(case: tuple[Any, ...], p: np.ndarray) -> np.ndarray:
    """Which entries have nothing, are free or full, and which neighbours are fused."""
    name, *value = case
    bound = {"csoftmax": value, "csparsemax": value, "budget_sparsemax": [1]}.get(name, [2])[0]
    fused = np.sign(np.diff(p.astype(float), axis=-1, append=0)) * (
        name in ("fusedmax", "oscarmax")
    )
    return (p > 0) + 2 * (p >= bound) + 4 * fused


@cache
def product(case: tuple[Any, ...], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows where nothing changes sides nearby, a direction, and the derivative along it."""
    name, *value = case
    table = rows.rows(n)
    z = np.stack([table[kind] for kind in KINDS])
    v = np.random.default_rng(9).standard_normal(z.shape)
    p = [truth.forward(name, z + t * v, *value) for t in (0, 3e-4, -3e-4)]
    fine = (pattern(case, p[0]) == pattern(case, p[1])) & (
        pattern(case, p[0]) == pattern(case, p[2])
    )
    z, v = z[fine.all(axis=-1)], v[fine.all(axis=-1)]
    assert len(z) >= 2, "nothing is learnt from too few rows"
    return z, v, truth.slope(lambda t: truth.forward(name, z + t * v.astype(truth.Wide), *value))


def assert_close(found: Any, best: Any, rtol: float) -> None:
    scale = np.abs(best).max(axis=-1, keepdims=True, initial=1e-3)
    assert (np.abs(found - best) <= rtol * scale).all(), (found, best)


def steep(case: tuple[Any, ...]) -> float:
    """What is asked of derivatives, relative to the largest: above α = 2, p has fewer digits."""
    return 1e-5 if case[0] in ("entmax", "normmax") and case[1] > 2 else 1e-8


@for_each(BACKENDS, SMOOTH, SECOND)
def test_products_with_the_jacobian(backend: Any, case: Any) -> None:
    name, *value = case
    for n in (6,) if name == "fusedmax" else (5, 33):
        z, v, best = product(case, n)
        assert_close(backend.vjp(name, z, v, *value), best, steep(case))
        if not backend.is_arrays:
            continue
        p = backend.call(name, z, *value)
        jacobian = backend.call(f"{name}.jacobian", p, *value)
        assert_close(backend.call(f"{name}.jvp", p, v, *value), best, steep(case))
        assert_close(np.einsum("bij,bj->bi", jacobian, v), best, steep(case))
        scale = 1e-12 * np.abs(jacobian).max()
        np.testing.assert_array_equal(jacobian, jacobian.swapaxes(-1, -2))
        np.testing.assert_allclose(jacobian.sum(axis=-1), 0, rtol=0, atol=scale)
        assert np.linalg.eigvalsh(jacobian).min() >= -scale
        if n < 7 and name != "oscarmax":
            book = [pe.MAPPINGS[name].jacobian.textbook(row, *value) for row in p]
            if case != ("entmax", 1):
                np.testing.assert_allclose(jacobian, book, rtol=1e-9, atol=scale)


@for_each(ARRAYS, SMOOTH, SECOND)
def test_directions_off_the_support_are_ignored(backend: Any, case: Any) -> None:
    name, *value = case
    z = np.random.default_rng(3).standard_normal((4, 5))
    mask = np.ones((4, 5), bool)
    mask[:, 0], mask[3] = False, False
    p, v = backend.call(name, z, *value, mask=mask), np.cos(z)
    clean = backend.call(f"{name}.jvp", p, np.where(p > 0, v, 0), *value)
    assert (clean[p == 0] == 0).all()
    for rubbish in (np.nan, np.inf):
        spoilt = np.where(p > 0, v, rubbish)
        np.testing.assert_array_equal(backend.call(f"{name}.jvp", p, spoilt, *value), clean)
        own = np.where(mask, p, 0.5)
        found = backend.call(f"{name}.jvp", own, np.where(mask, v, rubbish), *value, mask=mask)
        np.testing.assert_array_equal(
            found, backend.call(f"{name}.jvp", p, np.where(mask, v, 0), *value)
        )
        columns = own.T, np.where(mask, v, rubbish).T, *value, 0
        across = backend.call(f"{name}.jvp", *columns, mask=mask.T)
        np.testing.assert_allclose(across.T, found, **NEAR)
    jacobian = backend.call(f"{name}.jacobian", p, *value)
    assert (jacobian[3] == 0).all()
    p[1] = np.nan
    assert np.isnan(backend.call(f"{name}.jvp", p, v, *value)[1]).all()
    assert np.isnan(backend.call(f"{name}.jacobian", p, *value)[1]).all()


def parameter_slopes(case: tuple[Any, ...], z: Any, v: Any) -> np.ndarray:
    """Σ v ∘ ∂p/∂parameter of each row, or of each entry for bounds."""
    name, value = case
    if name[:2] != "cs":
        return truth.slope(
            lambda t: (v * truth.forward(name, z, truth.Wide(value) + t)).sum(axis=-1)
        )
    bounds, each = np.full(z.shape, value, truth.Wide), np.eye(z.shape[-1])
    columns = [
        truth.slope(lambda t, e=e: (v * truth.forward(name, z, bounds + t * e)).sum(axis=-1))
        for e in each
    ]
    return np.stack(columns, axis=-1)


@for_each(ARRAYS, LEARNED, SECOND)
def test_gradients_in_the_parameter(backend: Any, case: Any) -> None:
    name, value = case
    z, v, jv = product(case, 5)
    if name in ("fusedmax", "oscarmax") and value == 0:
        return  # a kink: test_gradient_at_strength_0
    if name == "budget_sparsemax":  # where nothing is free there are two slopes
        free = (jv != 0).any(axis=-1)
        z, v, jv = z[free], v[free], jv[free]
    if case[1] in (1e-9,):
        return  # differences would need an α below 0
    best = parameter_slopes(case, z, v).astype(float)
    given = np.full(best.shape, float(value))
    p = backend.call(name, z, given)
    slope = f"{name}.parameter_vjp.at_scores"
    room = {"rtol": 1e-7, "atol": 1e-7 * max(1, np.abs(best).max())}
    found = backend.call(slope, z, p, v, given)
    assert found.shape == given.shape
    np.testing.assert_allclose(found, best, **room)
    shared = backend.call(slope, z, p, v, value)
    np.testing.assert_allclose(shared, best.sum(), **room)
    across = backend.call(slope, z.T, p.T, v.T, given.T if name[:2] == "cs" else given, 0)
    np.testing.assert_allclose(across, found.T, **NEAR)
    mask = np.arange(5) != 1
    masked = backend.call(name, z, given, mask=mask)
    clean = backend.call(slope, np.where(mask, z, -np.inf), masked, np.where(mask, v, 0), given)
    if name[:2] != "fu":  # to which a masked entry is a wall, and one of −∞ unknown
        found = backend.call(
            slope, np.where(mask, z, np.nan), masked, np.where(mask, v, np.nan), given, mask=mask
        )
        np.testing.assert_allclose(found, clean, **NEAR)
    if pe.MAPPINGS[name].vjps.is_defined:
        of_z, of_value = backend.call(f"{name}.vjps", p, v, given)
        assert_close(of_z, jv, steep(case))
        np.testing.assert_allclose(of_value, best, **room)
    if pe.MAPPINGS[name].parameter_slope.is_defined:
        each = backend.call(f"{name}.parameter_slope", p, given)
        np.testing.assert_allclose((each * v).sum(axis=-1), best, **room)


@for_each(ARRAYS, [("fusedmax", 0.0), ("oscarmax", 0.0)])
def test_gradient_at_strength_0_is_that_to_the_right(backend: Any, case: Any) -> None:
    z, g = np.random.default_rng(11).standard_normal((2, 20, 6)) / 4
    z[:, 2], z[:, 5] = z[:, 1], z[:, 4]  # any strength fuses these
    p = [truth.forward(case[0], z, strength) for strength in (0, 1e-7)]
    right = (g * (p[1] - p[0])).sum(axis=-1) / 1e-7
    found = backend.call(f"{case[0]}.parameter_vjp", p[0].astype(float), g, np.zeros(20))
    np.testing.assert_allclose(found, right.astype(float), rtol=0, atol=1e-6)


@for_each(ARRAYS, [("csoftmax",), ("csparsemax",)])
def test_exhausted_bounds_have_the_derivative_to_the_right(backend: Any, case: Any) -> None:
    """A bound of 0 holds down what it would let through: for csparsemax, what is above τ."""
    rng = np.random.default_rng(12)
    z, g, upper = *rng.standard_normal((2, 8, 6)), rng.uniform(0.3, 0.9, (8, 6))
    upper[:, :2] = 0
    p = truth.forward(case[0], z, upper)
    found = backend.call(f"{case[0]}.parameter_vjp.at_scores", z, p.astype(float), g, upper)
    for i in range(2):
        loose = truth.forward(case[0], z, upper + 1e-9 * np.eye(6)[i])
        right = (g * (loose - p)).sum(axis=-1) / 1e-9
        np.testing.assert_allclose(found[:, i], right.astype(float), rtol=0, atol=1e-6)
        assert (found[:, i] != 0).any()
    full = [0.5, 0.5, 0.0, 0.0], [3.0, 1.0, 2.0, 7.0]  # nothing is free: the bounds share nothing
    given = [[0.5, 0.2, 0.1, -1.0], *full, full[0]]
    expected = [3, 1, 2, 7] if case[0] == "csoftmax" else [3, 1, 2, 0]
    np.testing.assert_array_equal(
        backend.call(f"{case[0]}.parameter_vjp.at_scores", *given), expected
    )
    assert not backend.call(f"{case[0]}.jvp", *full, full[0]).any()


OTHERS = [backend for backend in BACKENDS if not backend.is_arrays]


@for_each(OTHERS, [c for c in LEARNED if c[1] not in (0, 1e-9) and c[0] not in ("fusedmax",)])
def test_learned_parameters(backend: Any, case: Any) -> None:
    """Gradients of backends that differentiate by themselves are those of the array functions."""
    name, value = case
    z, g = np.random.default_rng(4).standard_normal((2, 3, 5))
    shapes = [(3, 5), (5,), ()] if name[:2] == "cs" else [(3,), (1,), ()]
    for shape in shapes:
        given = np.full(shape, float(value))
        p = backend.call(name, z, given)
        expected = pe.MAPPINGS[name].parameter_vjp.at_scores(z, p, g, given)
        found = backend.parameter_vjp(name, z, g, given)
        assert found.shape == shape
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@for_each(BACKENDS, [case for case in LOSSES if case in SMOOTH], SECOND)
@pytest.mark.parametrize("soft", [False, True])
def test_gradients_of_losses(backend: Any, case: Any, soft: bool) -> None:
    name, *value = case
    if case[1:] == (1e-9,):
        return  # losses of 1e9, whose differences have no digits
    z, v, _ = product(case, 6 if name == "fusedmax" else 5)
    y = z.argmax(axis=-1) if name == "topk_sparsemax" else np.arange(len(z)) % 3
    q = np.eye(z.shape[1])[y]
    if soft:
        q = 0.7 * q + 0.3 * truth.forward(name, z, *value).astype(float)
    weight = np.linspace(0.5, 2, len(z))

    def mean(t: Any) -> Any:
        each = truth.loss(name, z + t * v.astype(truth.Wide), q, *value)
        return (weight * each).sum() / weight.sum()

    target = q if soft else y
    loss, grad = backend.loss_and_grad(name, z, target, *value, weight=weight)
    np.testing.assert_allclose((grad * v).sum(), float(truth.slope(mean)), rtol=1e-8, atol=1e-8)
    best = float(mean(truth.Wide(0)))
    np.testing.assert_allclose(loss, best, rtol=1e-12, atol=1e-13 * max(1, abs(best)))
    if backend.is_arrays:
        alone = backend.call(f"{name}.loss", z, target, *value, weight=weight)
        np.testing.assert_array_equal(alone, loss)
        options = dict(zip(pe.MAPPINGS[name].parameters, value, strict=True))
        generic = pe.fenchel_young_loss(z, target, name, weight=weight, **options)
        np.testing.assert_allclose(generic, loss, rtol=1e-13, atol=1e-15)


# --- steep rows -----------------------------------------------------------------------------------


def exact_product(p: Any, v: Any, s: Any) -> tuple[np.ndarray, np.ndarray]:
    """s ∘ (v − s·v/Σs) in long doubles, and the size of its terms; relative to the largest s."""
    on = p > 0
    s = np.where(on, s, 0).astype(truth.Wide)
    v = np.where(on, v, 0).astype(truth.Wide)
    apart = np.where(on, v - np.take_along_axis(v, s.argmax(axis=-1)[:, None], -1), 0)
    share = s / s.sum(axis=-1, keepdims=True)
    mean = (share * apart).sum(axis=-1, keepdims=True)
    return s * (apart - mean), s * (
        np.abs(apart) + np.abs(share * apart).sum(axis=-1, keepdims=True)
    )


@for_each(ARRAYS, [("entmax", alpha) for alpha in (1, 1 + 1e-9, 1.2, 1.5, 1.9, 2, 3)])
@every_dtype
def test_products_where_powers_span_all_floats(backend: Any, case: Any, dtype: Any) -> None:
    """One entry dominates, or s = p^{2−α} spans hundreds of orders: no digit may cancel."""
    alpha, eps = case[1], float(np.finfo(dtype).eps) * truth.ROUNDINGS
    own = {1: ["softmax"], 1.5: ["entmax15"], 2: ["sparsemax"]}.get(alpha, [])
    for n in (3, 64, 300):
        rng = np.random.default_rng(n)
        p = rng.random((24, n)) * 10.0 ** rng.uniform(-6, -1, (24, 1)) / n
        p[np.arange(20), rng.integers(0, n, 20)] = 1
        p[20:] = 10.0 ** rng.uniform(-36, 0, (4, n)) * (rng.random((4, n)) < 0.5)
        p[20:, 0] = 1
        p = p.astype(dtype)
        v = rng.standard_normal(p.shape).astype(dtype)
        wide = np.where(p > 0, p, 1).astype(truth.Wide)
        best, size = exact_product(p, v, wide ** (2 - truth.Wide(alpha)))
        digits = 1 + abs(2 - alpha) * np.abs(np.log(wide))
        room = 32 * eps * size * digits.max(axis=-1, keepdims=True) + np.finfo(dtype).tiny
        found = [
            backend.call("entmax.jvp", p, v, alpha),
            backend.call("entmax.vjps", p, v, alpha)[0],
        ]
        found += [backend.call(f"{name}.jvp", p, v) for name in own]
        for one in found:
            assert (np.abs(one - best) <= room).all()
            assert (one[p == 0] == 0).all()


@pytest.mark.parametrize("alpha", [1, 1.5, 2, 3, 6, 20, 1000, 1e5])
@every_dtype
def test_jacobians_beyond_floats_are_infinite(alpha: float, dtype: Any) -> None:
    """Entries within the floats keep their digits; the others are ±∞, and never NaN."""
    tables = [
        [0.9, 0.05, 0.05], [0.5, 0.5, 0], [1, 0, 0], [0.5, 0.3, 0.2], [0.45, 0.45, 0.1],
        [0.6, 0.39, 0.01], [1 - 2.0**-40, 2.0**-40, 0],
    ]  # fmt: skip
    p, largest = np.array(tables, dtype), float(np.finfo(dtype).max)
    found = pe.entmax.jacobian(p, alpha)
    on, eps = p > 0, float(np.finfo(dtype).eps)
    with np.errstate(all="ignore"):
        s = np.where(on, np.where(on, p, 1).astype(truth.Wide) ** (2 - truth.Wide(alpha)), 0)
        total, pairs = s.sum(axis=-1)[:, None, None], s[:, :, None] * s[:, None, :]
        exact = -pairs / total
        others = np.stack([np.delete(s, i, -1).sum(-1) for i in range(3)], -1)
        exact[:, range(3), range(3)] = s * others / total[:, :, 0]
        beyond = np.abs(exact) > largest
        digits = 8 * eps * (1 - alpha * np.log(np.where(on, p, 1).min(axis=-1)))[:, None, None]
        allowed = digits * np.sqrt(pairs) + np.finfo(dtype).tiny
        allowed = np.where(np.isfinite(allowed), allowed, digits * np.abs(exact))
        right = np.where(beyond, found == np.sign(exact) * np.inf, np.abs(found - exact) <= allowed)
    assert (right | ~np.isfinite(exact)).all(), (found[~right], exact[~right])
    assert not np.isnan(found).any()
    for function in (pe.entmax.jvp, pe.entmax.jvp.reference):
        for v in ([1, 2, 4], [2, 2, 2], [0, 0, 1], [1, 0, 0]):
            along = np.broadcast_to(np.array(v, dtype), p.shape)
            product_ = function(p, along, alpha)
            assert not np.isnan(product_).any()
            with np.errstate(all="ignore"):
                best, size = exact_product(p, along, s)
                beyond, room = np.abs(best) > largest, digits[:, :, 0] * size
                right = np.abs(product_ - best) <= room + np.finfo(dtype).tiny
                right = np.where(beyond, product_ == np.sign(best) * np.inf, right)
            assert (right | ~np.isfinite(size)).all(), (v, product_[~right], best[~right])


BETAS = [-0.95, -0.3, -1e-8, 0, 1e-12, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5, 1, 1.5, 3]


@pytest.mark.parametrize("backend", ARRAYS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("beta", BETAS)
def test_slopes_in_alpha(backend: Any, beta: float) -> None:
    """The published formula is wrong in every digit at β = 1e−8 (MATH: error ε/β²)."""
    for d in (2, 5, 12):
        z = np.random.default_rng(d).standard_normal((1, d)) / (1 + beta)
        step = 1e-3 if beta >= 0 else 1e-2 * (1 + beta)
        best = truth.slope(lambda t: truth.forward("entmax", z, 1 + truth.Wide(beta) + t), step)  # noqa: B023
        p = truth.forward("entmax", z, 1 + truth.Wide(beta)).astype(float)
        found = backend.call("entmax.parameter_slope", p, 1 + beta)
        assert np.abs(found - best).max() <= 1e-7 * np.abs(best).max()
        if beta >= 0.1:  # where the printed form has these digits
            book = pe.entmax.parameter_slope.textbook(p[0], 1 + beta)
            np.testing.assert_allclose(found[0], book, rtol=0, atol=1e-13 / beta**2)
    for d in (1, 2, 3, 7, 130, 1000):  # a uniform row stays uniform
        p = np.append(np.full(d, 1 / d), 0)
        np.testing.assert_array_equal(backend.call("entmax.parameter_slope", p, 1 + beta), 0)
        assert not backend.call("entmax.vjps", p, np.cos(np.arange(d + 1.0)), 1 + beta)[1]


@pytest.mark.parametrize("backend", ARRAYS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("alpha", [1.5, 1.87, 1.95, 2.0, 2.001, 3.0])
@every_dtype
def test_slopes_in_alpha_with_denormal_probability(backend: Any, alpha: float, dtype: Any) -> None:
    """Up to α = 2, p^{−β} overflows there: NaN, or another digit everywhere."""
    beta, eps = truth.Wide(alpha) - 1, float(np.finfo(dtype).eps)
    for least in (np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny / 9):
        for others in ([0.75, 0.25], [0.5, 0.5], [1.0], [1 / 3] * 3):
            p = np.array([*others, least], dtype)
            wide = p.astype(truth.Wide)
            s, h = wide ** (1 - beta), -wide * np.log(wide)
            share = s / s.sum()
            best = (wide - share) / beta**2 + (h - share * h.sum()) / beta
            found = backend.call("entmax.parameter_slope", p, alpha)
            allowed = eps * (2 + 400 * np.abs(best).max())
            assert (np.abs(found - best) <= allowed).all()
            g = np.arange(len(p), dtype=dtype)
            total = backend.call("entmax.parameter_vjp", p, g, alpha)
            assert abs(total - best @ g) <= 6 * allowed


@for_each(ARRAYS, [("normmax", alpha) for alpha in (1.05, 1.5, 2, 3, 10)])
def test_normmax_near_a_corner(backend: Any, case: Any) -> None:
    """(I − p1ᵀ) diag(s) (I − 1pᵀ), with 1 − p_i as the sum of the others."""
    alpha, v = truth.Wide(case[1]), np.array([3.0, 1.0, -2.0])
    for p in ([1, 1e-18, 0], [1, 1e-18, 1e-30], [1 - 2**-28, 2**-29, 2**-29], [0.25, 0.25, 0.5]):
        wide = np.array(p, truth.Wide)
        norm = (wide**alpha).sum() ** (1 / alpha)
        s = (
            np.where(wide > 0, wide, 1) ** (2 - alpha)
            * norm ** (alpha - 1)
            / (alpha - 1)
            * (wide > 0)
        )
        apart = np.array([np.delete(wide, i).sum() for i in range(3)])
        part = np.where(np.eye(3, dtype=bool), apart, -wide)  # row k: ∂(log-gap k)/∂z
        exact = np.einsum("k,ki,kj->ij", s, part, part)
        found = backend.call("normmax.jacobian", np.array(p, float), case[1])
        size = np.sqrt(np.diag(exact)) * np.sqrt(np.diag(exact))[:, None]
        assert (np.abs(found - exact) <= 1e-13 * alpha * size + 1e-300).all()
        relative = v - v[int(np.argmax(p))]
        product_ = backend.call("normmax.jvp", np.array(p, float), v, case[1])
        room = 1e-13 * alpha * (np.abs(exact) @ np.abs(relative)) + 1e-300
        assert (np.abs(product_ - exact @ relative) <= room).all()
