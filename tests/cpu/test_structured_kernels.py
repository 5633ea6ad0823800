"""The compiled structured and bounded mappings against their NumPy bodies.

The bodies have been checked against optimality conditions, generic solvers and brute force in
tests/mappings/. Here they run in float64 on what a kernel was given: no algorithm is shared but the
dynamic program of fusedmax, whose results are checked by their optimality conditions once more.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_rows import FLOATS, awkward_layouts, rows_of_every_kind
from stages import deep, slow

import pyentmax

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

NAMES = ["fusedmax", "oscarmax", "csoftmax", "csparsemax", "budget_sparsemax", "normmax"]
STRENGTHS = [0, 1e-3, 0.05, 0.7, 20, np.inf]
LENGTHS = [2, 33, *slow(1, 3, 8, 128, 129, 300), *deep(1000)]


def parameters(name: str, z: np.ndarray, mask: Any = True) -> Any:
    """Parameters that fit scores in rows: one of each kind per row, by turns."""
    rng = np.random.default_rng(z.shape[-1])
    live = np.broadcast_to(mask, z.shape) & (z > -np.inf)
    places = live.sum(axis=-1)
    if name in ("fusedmax", "oscarmax"):
        strength = np.resize(STRENGTHS, z.shape[:-1])
        return strength / (1 if name == "fusedmax" else z.shape[-1])
    if name == "normmax":
        return np.resize([1.02, 1.5, 2, 4, np.inf], z.shape[:-1])
    if name == "budget_sparsemax":
        return np.maximum(places, 1) * np.resize([0.01, 0.3, 0.5, 0.9, 1], z.shape[:-1])
    tightness = np.resize([1, 1.2, 3, 1000], z.shape[:-1])[..., None]
    upper = rng.random(z.shape) + 0.01
    upper = upper * tightness / np.maximum((upper * live).sum(axis=-1, keepdims=True), 1e-9)
    upper = np.where(rng.random(z.shape) < 0.1, 0, upper)
    short = (upper * live).sum(axis=-1, keepdims=True)
    return (upper / np.minimum(np.where(short > 0, short, 1), 1) + 1e-6 * (short == 0)).astype(
        z.dtype
    ) * z.dtype.type(1 + 1e-5) + (short == 0).astype(z.dtype)


def mapping(name: str) -> Any:
    return getattr(pyentmax, name)


def every_row(dtype: Any, n: int) -> np.ndarray:
    rows = list(rows_of_every_kind(np.random.default_rng(n), n))
    return np.array(rows + rows[::-1]).astype(dtype)


def reach(name: str, z: np.ndarray, parameter: Any) -> Any:
    """How far apart scores can be that share probability: what rounding is relative to."""
    finite = np.where(np.isfinite(z), z, np.nan)
    width = np.nanmax(finite, axis=-1) - np.nanmin(finite, axis=-1)
    if name in ("fusedmax", "oscarmax"):
        weight = parameter * (4 if name == "fusedmax" else z.shape[-1])
        width = np.minimum(width, 1 + weight)
    return np.maximum(width, 1)[..., None]


def assert_same(name: str, z: np.ndarray, parameter: Any, mask: Any = None) -> np.ndarray:
    p = mapping(name)(z, parameter, mask=mask)
    exact = mapping(name).reference(
        z.astype(np.float64), np.asarray(parameter).astype(np.float64), mask=mask
    )
    assert p.dtype == z.dtype
    allowed = 64 * np.finfo(z.dtype).eps * reach(name, z, np.asarray(parameter, np.float64))
    wrong = ~(np.abs(p - exact) <= allowed)
    assert not wrong.any(), (
        f"{name}, {z.dtype}: {p[wrong][:3]} where the body has {exact[wrong][:3]}, "
        f"in rows {np.unique(np.nonzero(wrong)[0])} of {z.shape}"
    )
    return p


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_forward_on_rows_of_every_kind(name: str, n: int, dtype: Any) -> None:
    for turn in range(6):
        z = np.roll(every_row(dtype, n), turn, axis=0)
        p = assert_same(name, z, parameters(name, z))
        total = 1 if name != "budget_sparsemax" else parameters(name, z).astype(dtype)
        error = np.abs(p.sum(axis=-1, dtype=np.float64) - total) / total
        assert error.max() <= 8 * np.finfo(dtype).eps * np.sqrt(n)
        assert (p >= 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [2, 40, *slow(1, 5, 300)])
@pytest.mark.parametrize("name", NAMES)
def test_random_masks(name: str, n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    z = (rng.standard_normal((60, n)) * rng.choice([0.1, 1, 5], (60, 1))).astype(dtype)
    mask = rng.random(z.shape) < rng.choice([0.2, 0.5, 0.9, 1], (60, 1))
    mask[np.arange(60), rng.integers(0, n, 60)] = True
    parameter = parameters(name, z, mask)
    p = assert_same(name, z, parameter, mask)
    assert (p[~mask] == 0).all()
    spoilt = np.where(mask, z, np.nan).astype(dtype)
    np.testing.assert_array_equal(mapping(name)(spoilt, parameter, mask=mask), p)
    lowest = np.where(mask, z, -np.inf).astype(dtype)
    np.testing.assert_array_equal(mapping(name)(lowest, parameter), p)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [5, 40, *slow(1, 2, 128, 300)])
@pytest.mark.parametrize("name", NAMES)
def test_jvp(name: str, n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    z = every_row(dtype, n)
    mask = rng.random(z.shape) < 0.8
    mask[:, 0] = True
    parameter = parameters(name, z, mask)
    p = mapping(name)(z, parameter, mask=mask)
    v = rng.standard_normal(z.shape).astype(dtype)
    jvp = mapping(f"{name}_jvp")
    product = jvp(p, v, parameter, mask=mask)
    assert product.dtype == dtype
    exact = jvp.reference(p.astype(float), v.astype(float), parameter, mask=mask)
    allowed = 32 * np.finfo(dtype).eps * np.abs(v).max()
    np.testing.assert_allclose(product, exact, rtol=0, atol=allowed)
    assert (product[p == 0] == 0).all()
    anything = np.where(p == 0, np.nan, v).astype(dtype)
    np.testing.assert_array_equal(jvp(p, anything, parameter, mask=mask), product)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [5, 40, *slow(1, 2, 300)])
@pytest.mark.parametrize("name", ["csoftmax", "csparsemax"])
def test_vjp_upper(name: str, n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    z = every_row(dtype, n)
    mask = rng.random(z.shape) < 0.8
    mask[:, 0] = True
    upper = parameters(name, z, mask)
    p = mapping(name)(z, upper, mask=mask)
    g = rng.standard_normal(z.shape).astype(dtype)
    scores = (z,) if name == "csparsemax" else ()
    vjp = mapping(f"{name}_vjp_upper")
    product = vjp(p, g, upper, *scores, mask=mask)
    assert product.dtype == dtype
    wide = [a.astype(float) for a in (p, g, upper, *scores)]
    allowed = 32 * np.finfo(dtype).eps * np.abs(g).max()
    np.testing.assert_allclose(product, vjp.reference(*wide, mask=mask), rtol=0, atol=allowed)
    p[2:4], z[2:4] = [[0], [np.nan]], [[-np.inf], [np.nan]]
    product = vjp(p, g, upper, *scores)
    assert (product[2] == 0).all()
    assert np.isnan(product[3]).all()
    z, shared = every_row(dtype, n), np.full((n,), 2 / n, dtype)
    p, scores = mapping(name)(z, shared), (z,) if name == "csparsemax" else ()
    product = vjp(p, g, shared, *scores)
    assert product.shape == (n,)
    each = vjp(p, g, np.broadcast_to(shared, z.shape), *scores)
    allowed = 8 * np.finfo(dtype).eps * np.abs(each).sum(axis=0)
    assert (np.abs(product - each.sum(axis=0)) <= allowed).all()


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("name", NAMES)
def test_every_axis_and_parameters_that_broadcast(name: str, axis: int) -> None:
    z = np.random.default_rng(1).standard_normal((3, 4, 5))
    n = z.shape[axis]
    for parameter in {
        "csoftmax": (0.5, np.full((5,), 0.6), np.full((4, 1), 0.7)),
        "csparsemax": (0.5, np.full((5,), 0.6), np.full((4, 1), 0.7)),
        "budget_sparsemax": (1, np.full(np.delete(z.shape, axis)[-1], n / 2)),
        "normmax": (2, np.linspace(1.1, 3, np.delete(z.shape, axis)[-1])),
    }.get(name, (0.1, np.linspace(0, 1, np.delete(z.shape, axis)[-1]))):
        p = mapping(name)(z, parameter, axis)
        np.testing.assert_allclose(
            p, mapping(name).reference(z, parameter, axis), rtol=0, atol=1e-14
        )
        jvp = mapping(f"{name}_jvp")
        np.testing.assert_allclose(
            jvp(p, z, parameter, axis), jvp.reference(p, z, parameter, axis), rtol=0, atol=1e-14
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_memory_layouts_and_out(name: str, dtype: Any) -> None:
    z = np.random.default_rng(2).standard_normal((7, 45)).astype(dtype)
    mask = np.random.default_rng(3).random(z.shape) < 0.8
    parameter = parameters(name, z, mask)
    p = mapping(name)(z, parameter, mask=mask)
    product = mapping(f"{name}_jvp")(p, z, parameter)
    for layout, other in awkward_layouts(z):
        got = mapping(name)(other, parameter, mask=mask)
        np.testing.assert_array_equal(got, p, err_msg=layout)
    for layout, other in awkward_layouts(p):
        got = mapping(f"{name}_jvp")(other, z, parameter)
        np.testing.assert_array_equal(got, product, err_msg=layout)
    if name in ("csoftmax", "csparsemax"):
        for layout, upper in awkward_layouts(parameter):
            got = mapping(name)(z, upper, mask=mask)
            np.testing.assert_array_equal(got, p, err_msg=layout)
    same = z.copy()
    mapping(name)(same, parameter, mask=mask, out=same)
    np.testing.assert_array_equal(same, p)
    frame = np.zeros((7, 90), dtype)
    mapping(name)(z, parameter, mask=mask, out=frame[:, ::-2])
    np.testing.assert_array_equal(frame[:, ::-2], p)
    np.testing.assert_array_equal(frame[:, ::2], 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [3, 40, *slow(1, 200)])
@pytest.mark.parametrize("name", NAMES)
def test_spoilt_rows_and_their_neighbours(name: str, n: int, dtype: Any) -> None:
    z = np.random.default_rng(n).standard_normal((20, n)).astype(dtype)
    parameter = {"fusedmax": 0.1, "oscarmax": 0.1, "normmax": 2}.get(name, 1)
    clean = mapping(name)(z, parameter)
    z[3], z[7, n // 2], z[11, 0], z[12] = -np.inf, np.nan, np.inf, np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = mapping(name)(z, parameter)
        product = mapping(f"{name}_jvp")(p, z, parameter)
    assert (p[3] == 0).all()
    assert np.isnan(p[[7, 11, 12]]).all()
    assert (product[3] == 0).all()
    assert np.isnan(product[[7, 11, 12]]).all()
    sound = np.delete(np.arange(20), [3, 7, 11, 12])
    np.testing.assert_array_equal(p[sound], clean[sound])


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_and_empty_batches(name: str) -> None:
    z = np.random.default_rng(4).standard_normal((5, 9)).astype(np.float16)
    parameter = {"fusedmax": 0.2, "oscarmax": 0.2, "normmax": 1.7}.get(name, 1)
    p = mapping(name)(z, parameter)
    assert p.dtype == np.float16
    in_float = mapping(name)(z.astype(np.float32), parameter)
    np.testing.assert_array_equal(p, in_float.astype(np.float16))
    for shape in ((0, 4), (3, 0, 4)):
        assert mapping(name)(np.zeros(shape), parameter).shape == shape
        empty = np.zeros(shape)
        assert mapping(f"{name}_jvp")(empty, empty, parameter).shape == shape


scores = st.sampled_from(FLOATS).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        st.integers(1, 24),
        elements=st.floats(-20, 20, width=np.dtype(dtype).itemsize * 8)
        | st.sampled_from([-3.0, 0.0, 0.5, 1.0]),
    )
)


@pytest.mark.parametrize("name", ["fusedmax", "oscarmax"])
@given(z=scores, strength=st.floats(0, 10) | st.sampled_from([0.0, 0.25, 0.5, 1e6, np.inf]))
def test_smoothing_by_hypothesis(name: str, z: np.ndarray, strength: float) -> None:
    strength = float(np.float32(strength))
    p = assert_same(name, z[None], np.array([strength]))[0]
    np.testing.assert_array_equal(mapping(name)(z, strength), p)


@pytest.mark.parametrize("name", ["csoftmax", "csparsemax"])
@given(z=scores, data=st.data())
def test_bounds_by_hypothesis(name: str, z: np.ndarray, data: Any) -> None:
    elements = st.floats(0, 1, width=32) | st.sampled_from([0.0, 0.25, 0.5, 1.0])
    upper = data.draw(hnp.arrays(z.dtype, z.shape, elements=elements))
    upper[data.draw(st.integers(0, z.size - 1))] = 1
    p = assert_same(name, z[None], upper[None])[0]
    assert (p <= upper).all()


@given(z=scores, share=st.floats(0.01, 1))
def test_budgets_by_hypothesis(z: np.ndarray, share: float) -> None:
    p = assert_same("budget_sparsemax", z[None], np.array([z.size * float(np.float32(share))]))
    assert (p <= 1).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("strength", [1e-4, 0.01, 0.2, 3])
@pytest.mark.parametrize("n", [50, 3000])
def test_fused_runs_meet_the_optimality_conditions(n: int, strength: float, dtype: Any) -> None:
    """The dual variables are running sums of u − z: within ±λ, and ±λ where u steps.

    With every score in the support p is u less a constant, so that p shows u.
    """
    for seed, steps in ((1, 0.3 / n), (2, 0.05 / n)):
        z = np.random.default_rng(seed).standard_normal((3, n)).cumsum(axis=-1)
        z = (z * steps / np.sqrt(n)).astype(dtype)
        weight = strength * steps
        p = pyentmax.fusedmax(z, weight)
        assert (p > 0).all()
        rise = p.astype(np.longdouble) - z
        dual = np.cumsum(rise - rise.mean(axis=-1, keepdims=True), axis=-1)
        tolerance = 8 * np.finfo(dtype).eps
        assert np.abs(dual).max() <= weight + tolerance
        step = np.sign(np.diff(p))
        loose = np.abs(np.diff(p)) > 4 * np.finfo(dtype).eps * p.max()
        assert np.abs((dual[:, :-1] - weight * step)[loose]).max(initial=0) <= tolerance


@pytest.mark.parametrize("dtype", FLOATS)
def test_groups_are_equal_to_the_last_bit(dtype: Any) -> None:
    z = (np.random.default_rng(5).standard_normal((40, 260)) / 100).astype(dtype)
    strength = float(np.float32(1e-3))
    p, exact = (
        f(z.astype(d), strength)
        for d, f in ((dtype, pyentmax.fusedmax), (float, pyentmax.fusedmax.reference))
    )
    same = (np.diff(exact) == 0) & (exact[:, 1:] > 0)
    assert 0.02 < same.mean() < 0.98
    assert (np.diff(p)[same] == 0).all()
    strength /= 100
    p, exact = (
        f(z.astype(d), strength)
        for d, f in ((dtype, pyentmax.oscarmax), (float, pyentmax.oscarmax.reference))
    )
    for row, exact_row in zip(p, exact, strict=True):
        groups = [exact_row == value for value in np.unique(exact_row[exact_row > 0])]
        assert max(group.sum() for group in groups) > 1
        assert all(len(np.unique(row[group])) == 1 for group in groups)
    for name in ("fusedmax", "oscarmax"):
        for strength in (1e3, 1e30, np.inf):
            p = mapping(name)(z, strength)
            assert (p == p[:, :1]).all()
            np.testing.assert_allclose(p, 1 / 260, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["fusedmax", "oscarmax"])
def test_rows_that_are_hard_to_smooth(name: str, dtype: Any) -> None:
    n = 1100
    i = np.arange(n)
    rows = [i, -i, i % 2, np.where(i % 2, i, -i), np.sqrt(i), np.sin(i / 7), i == 1000, i % 3 == 0]
    z = (np.array(rows) / n).astype(dtype)
    for strength in (1e-6, 1e-3, 0.1, 5, 1e6):
        strength = float(np.float32(strength / (1 if name == "fusedmax" else n)))
        assert_same(name, z, np.full(len(z), strength))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["csoftmax", "csparsemax"])
def test_bounds_that_are_hard_to_fill(name: str, dtype: Any) -> None:
    """Breakpoints in geometric order are passed one by one, and full entries hide the others."""
    n = 400
    i = np.arange(n)
    rows = [-i / 10, -i / 1000, np.where(i < 50, 100, 0) - i / 50, np.where(i < 20, 1e4, 0) + i]
    z = np.array(rows).astype(dtype)
    bounds = [
        np.exp(-i / 11) / 9,
        np.full(n, 1.5 / n),
        np.where(i < 50, 0.01, 1),
        np.where(i < 20, 1e-4, 0.01),
    ]
    for upper in bounds:
        if upper.sum() > 1:
            assert_same(name, z, np.broadcast_to(upper, z.shape).astype(dtype))
    # Each score bounded just below what softmax gives it, but for the last.
    z = (-i / 4).astype(dtype)
    upper = np.append(pyentmax.softmax(z.astype(float))[:-1] * 0.9, 1).astype(dtype)
    assert_same(name, z[None], upper[None])


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_left_far_below_full_entries_keeps_its_digits(dtype: Any) -> None:
    z = np.array([3e4, 2e4, 0.5, 0.25, -1.0], dtype)
    upper = np.array([0.25, 0.5, 1, 1, 1], dtype)
    for name, unbounded in (("csoftmax", pyentmax.softmax), ("csparsemax", pyentmax.sparsemax)):
        p = mapping(name)(z, upper)
        np.testing.assert_array_equal(p[:2], upper[:2])
        if name == "csoftmax":
            np.testing.assert_allclose(p[2:], unbounded(z[2:]) / 4, rtol=4 * np.finfo(dtype).eps)
        else:
            np.testing.assert_allclose(p[2:], [0.25, 0, 0], rtol=0, atol=2 * np.finfo(dtype).eps)
