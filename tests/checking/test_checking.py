"""The checks pass what is right, fail what is wrong, say where, and admit what they cannot see."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from checking_functions import DIFFERENTIABLE, NOT_DIFFERENTIABLE

import pyentmax
from pyentmax import MAPPINGS, check_gradient, check_jacobian, check_vjp

Z = np.random.default_rng(0).standard_normal((3, 5))
MAPPED: list[tuple[Any, ...]] = [
    ("softmax",),
    ("sparsemax",),
    ("entmax", 4.0),
    ("fusedmax", 0.2),
    ("budget_sparsemax", 1.25),
    ("normmax", 2.0),
]


def wrong_jacobians(right: np.ndarray, p: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """A right Jacobian with one mistake each."""
    yield "zero", 0 * right
    yield "sign", -right
    yield "1% more", 1.01 * right
    one_entry = right.copy()
    one_entry[0, -1] += 0.02 * np.abs(right).max()
    yield "one entry", one_entry
    missing = right.copy()
    missing[np.argmax(p)] = missing[:, np.argmax(p)] = 0
    yield "an entry of the support missing", missing
    yield "the average missing", np.diag(np.diag(right))


# --- right and wrong derivatives ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mapped", "dtype"),
    [
        *((mapped, np.float64) for mapped in MAPPED),
        *((mapped, np.float32) for mapped in MAPPED[:2]),
    ],
    ids=str,
)
def test_right_jacobians_pass_and_wrong_ones_fail(mapped: tuple[Any, ...], dtype: Any) -> None:
    z = np.array([0.31, 0.14, -0.22, -1.1])
    name, *params = mapped
    mapping = MAPPINGS[name]

    def forward(z: Any) -> Any:
        return mapping(z.astype(dtype), *params)

    p = forward(z)
    right = np.asarray(mapping.jacobian(p, *params), float)
    check_jacobian(forward, z, lambda _: right).raise_if_failed()
    check_vjp(forward, z, lambda _, v: right.T @ v).raise_if_failed()
    for what, wrong in wrong_jacobians(right, p):
        if np.abs(wrong - right).max() > 0.005 * np.abs(right).max():
            report = check_jacobian(forward, z, lambda _, wrong=wrong: wrong)
            assert report.verdict == "failed", what
            assert not report


@pytest.mark.parametrize("size", [1e-4, 1.0])
def test_wrong_entry_is_named(size: float) -> None:
    def wrong(p: Any) -> Any:
        jacobian = pyentmax.softmax.jacobian(p)
        jacobian[1, 3, 2] += size
        return jacobian

    report = check_jacobian(pyentmax.softmax, Z, wrong)
    assert report.verdict == "failed"
    assert report.where == (1, 3, 2)
    np.testing.assert_allclose(report.largest_error, size, rtol=1e-4)
    np.testing.assert_allclose(report.analytic - report.numeric, size, rtol=1e-4)
    assert report.differences.shape == (3, 5, 5)
    with pytest.raises(AssertionError, match=r"(?s)Jacobian: FAILED.*at \[1, 3, 2\].*numeric"):
        report.raise_if_failed()


def test_mapping_is_checked_with_its_own_jacobian() -> None:
    check_jacobian(pyentmax.entmax15, Z).raise_if_failed()
    wrong: Any = partial(pyentmax.sparsemax)
    with pytest.raises(TypeError, match="jacobian must be a function, got None"):
        check_jacobian(wrong, Z)
    wrong.jacobian = pyentmax.softmax.jacobian
    assert check_jacobian(wrong, Z).verdict == "failed"


def test_passing_report_names_the_largest_absolute_error() -> None:
    report = check_jacobian(pyentmax.entmax15, Z, pyentmax.entmax15.jacobian).raise_if_failed()
    assert report.raise_if_failed() is report
    assert 0 < report.largest_error == np.abs(report.differences).max() < 1e-9
    assert abs(report.differences[report.where]) == report.largest_error
    assert report.largest_error <= report.estimate + report.tolerance
    exact = check_gradient(lambda z: z @ [0.0, 2, -1], [1.0, 2, 4], lambda z: [0.0, 2, -1])
    assert (exact.largest_error, exact.analytic) == (0, 2), "0 = 0 would prove little"


def test_gradient_of_a_loss() -> None:
    def loss(z: Any) -> Any:
        return pyentmax.softmax.loss(z, [0, 1, 2])

    def gradient(z: Any) -> Any:
        return pyentmax.softmax.loss_and_grad(z, [0, 1, 2])[1]

    check_gradient(loss, Z, gradient).raise_if_failed()
    for factor in (1.001, -1, np.nan):
        report = check_gradient(loss, Z, lambda z, f=factor: f * gradient(z))
        assert report.verdict == "failed"
    assert report.largest_error == np.inf


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e300])
def test_tolerance_is_relative_to_the_derivative(scale: float) -> None:
    """A gradient of 1e-9 with the wrong sign once passed."""
    z = np.array([0.5, 0.1, -0.3, 2.0])

    def loss(z: Any) -> Any:
        return scale * (z * z).sum()

    check_gradient(loss, z, lambda z: 2 * scale * z).raise_if_failed()
    for factor in (-2, 0, 2.001):
        assert check_gradient(loss, z, lambda z, f=factor: f * scale * z).verdict == "failed"


def test_jvp_and_vjp_that_are_not_dual_fail() -> None:
    report = check_vjp(pyentmax.entmax15, Z, pyentmax.entmax15.vjp, pyentmax.entmax15.jvp)
    assert report.raise_if_failed().duality is not None
    assert 0 < report.duality < 1e-14
    assert "JVP-VJP gap" in str(report)
    for factor in (1 + 1e-6, np.nan):
        wrong = partial(lambda p, u, f: f * pyentmax.softmax.jvp(p, u), f=factor)
        report = check_vjp(pyentmax.softmax, Z, pyentmax.softmax.vjp, wrong)
        assert report.verdict == "failed", "though the VJP itself is right"
        assert report.largest_error < report.tolerance
    assert check_vjp(pyentmax.softmax, Z, pyentmax.softmax.vjp).duality is None

    def in_float32(p: Any, u: Any, factor: float = 1) -> Any:
        return np.float32(factor) * pyentmax.softmax.jvp(p, u)

    def forward(z: Any) -> Any:
        return pyentmax.softmax(z.astype(np.float32))

    check_vjp(forward, Z, in_float32, in_float32).raise_if_failed()
    assert not check_vjp(forward, Z, in_float32, partial(in_float32, factor=1.01)).passed


@pytest.mark.parametrize("axis", [-1, 0])
def test_long_rows_are_checked_along_random_directions(axis: int) -> None:
    z = np.moveaxis(np.random.default_rng(3).standard_normal((2, 300)), -1, axis)

    def jacobian(p: Any, off: float = 0.0) -> Any:
        right = pyentmax.entmax15.jacobian(p, axis)
        right[1, 7, 200] += off
        return right

    forward = partial(pyentmax.entmax15, axis=axis)
    report = check_jacobian(forward, z, jacobian, axis).raise_if_failed()
    assert report.differences.shape == (16, 2, 300)
    assert check_jacobian(forward, z, partial(jacobian, off=1e-3), axis).where[1:] == (1, 7)
    numeric = [
        check_vjp(forward, z, partial(pyentmax.entmax15.vjp, axis=axis), rng=seed).numeric
        for seed in (1, 1, 2)
    ]
    assert numeric[0] == numeric[1] != numeric[2]


def test_five_scores_take_at_most_320_evaluations() -> None:
    points = []

    def counting(z: Any) -> Any:
        points.append(z)
        return pyentmax.entmax15(z)

    check_jacobian(counting, [0.9, 0.6, 0.4, -0.3, -1.1], pyentmax.entmax15.jacobian)
    assert len(points) <= 320


# --- hard functions -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", DIFFERENTIABLE)
def test_hard_functions_are_judged_right(make: Any) -> None:
    for seed in range(2):
        drawn = make(np.random.default_rng([seed, 35]))
        right = drawn.gradient(drawn.z)
        report = check_gradient(drawn.loss, drawn.z, lambda _, right=right: right)
        assert report.verdict != "failed", (seed, str(report))
        assert not report.kink, (seed, str(report))
        more = right + 0.02 * np.abs(right).max()
        assert not check_gradient(drawn.loss, drawn.z, lambda _, more=more: more).passed, seed


@pytest.mark.parametrize("name", NOT_DIFFERENTIABLE)
def test_where_no_derivative_exists_nothing_passes(name: str) -> None:
    for seed in range(2):
        drawn = NOT_DIFFERENTIABLE[name](np.random.default_rng([seed, 35]))
        report = check_gradient(drawn.loss, drawn.z, drawn.gradient)
        assert report.verdict == "unresolved", (seed, str(report))


@pytest.mark.parametrize(("d", "offset"), [(5, 1e6), (300, 1e4)])
def test_offset_of_the_scores_does_not_matter(d: int, offset: float) -> None:
    """A step that followed |z| reached over many kinks."""
    z = np.random.default_rng(4).standard_normal((3, d)) + offset
    check_jacobian(pyentmax.sparsemax, z, pyentmax.sparsemax.jacobian).raise_if_failed()
    check_vjp(pyentmax.entmax15, z, pyentmax.entmax15.vjp).raise_if_failed()


@pytest.mark.parametrize("d", [60, 257])
def test_sums_of_many_float32_entries(d: int) -> None:
    """Along one of 16 random directions the error seemed small by chance."""
    for seed in range(4):
        z = np.random.default_rng([seed, d]).standard_normal(d)
        report = check_gradient(
            lambda z: np.sum(np.sin(z.astype(np.float32)), dtype=np.float64), z, np.cos
        )
        assert report.verdict != "failed", str(report)


# --- flat functions, noise, and what cannot be seen -----------------------------------------------


@pytest.mark.parametrize("value", [0.0, 12345.0, 1e10, np.float32(0.3)])
def test_constant_function_confirms_only_0(value: Any) -> None:
    check_gradient(lambda z: value, Z[0], np.zeros_like).raise_if_failed()
    for slope in (0.1, 1e6):
        assert not check_gradient(lambda z: value, Z[0], lambda z, s=slope: 0 * z + s).passed


@pytest.mark.parametrize("offset", [2e7, 3e3, 1e20])
@pytest.mark.parametrize("factor", [-1, 0, 1])
def test_slopes_below_the_rounding_of_fn_are_unresolved(offset: float, factor: int) -> None:
    """A float32 loss with a large constant, or summed over many samples, does not move."""
    scale = 1e-4 if offset == 3e3 else 1

    def loss(z: Any) -> Any:
        return np.float32(offset) + np.float32(scale * np.sum(z**2))

    report = check_gradient(loss, Z[0], lambda z: factor * 2 * scale * z)
    assert report.verdict == "unresolved" or (factor, offset) == (0, 3e3), str(report)


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "normmax"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_saturated_and_masked_rows_pass(name: str, dtype: Any) -> None:
    mapping, d = MAPPINGS[name], 4

    def forward(z: Any, mask: Any) -> Any:
        return mapping(z.astype(dtype), mask=mask)

    for z in ([40.0, 0, 1, 2], [800.0, 0, 1, 2]):
        saturated = partial(forward, mask=None)
        check_jacobian(saturated, z, mapping.jacobian).raise_if_failed()
        check_vjp(saturated, z, mapping.vjp).raise_if_failed()
        assert not check_jacobian(saturated, z, lambda p: np.full((d, d), 1e-3)).passed
    z = np.array([[0.3, 0.1, -0.2, 0.5], [1.0, 2, 3, 4]])
    masked = partial(forward, mask=[[True, True, False, True], [False] * d])
    check_jacobian(masked, z, mapping.jacobian).raise_if_failed()


@pytest.mark.parametrize(("dtype", "offset"), [(np.float64, 1e17), (np.float32, 1e6)])
def test_scores_too_large_for_the_steps_are_unresolved(dtype: Any, offset: float) -> None:
    """z + h rounds to z, and the function seems flat."""
    z = np.array([0.5, 1.5]) + offset
    for jacobian in (pyentmax.softmax.jacobian, lambda p: np.zeros((2, 2))):
        report = check_jacobian(lambda z: pyentmax.softmax(z.astype(dtype)), z, jacobian)
        assert report.verdict == "unresolved"
        assert "too large" in report.reason


def test_noise_that_hides_the_derivative_is_unresolved() -> None:
    noise = np.random.default_rng(7)

    def fn(z: Any) -> Any:
        return pyentmax.softmax(z) + 1e-2 * noise.standard_normal(z.shape)

    for jacobian in (pyentmax.softmax.jacobian, lambda p: np.zeros((5, 5))):
        report = check_jacobian(fn, Z[0], jacobian)
        assert report.verdict == "unresolved"
        assert "too noisy" in str(report)
    with pytest.raises(AssertionError, match="UNRESOLVED"):
        report.raise_if_failed()


def test_epsilon_of_a_function_that_computes_in_float16() -> None:
    """Small steps see no change between two values of float16, and would confirm a slope of 0."""

    def loss(z: Any) -> Any:
        return float(pyentmax.softmax.loss(z.astype(np.float16), 1))

    z = np.random.default_rng(0).standard_normal(3)
    for factor in (0, 1):
        report = check_gradient(
            loss,
            z,
            lambda z, f=factor: f * pyentmax.softmax.loss_and_grad(z, 1)[1],
            epsilon=np.finfo(np.float16).eps,
        )
        assert not report.passed
        assert report.verdict == "unresolved" or factor == 0


# --- kinks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "z", "kink"),
    [
        (np.abs, [0.0, 1.0], True),
        (np.abs, [1e-13, 1.0], True),  # nearer than the smallest step
        (np.abs, [1e-4, 1.0], False),
        (lambda z: np.clip(z, -1, 1), [1.0, 0.5], True),
        (np.sign, [0.0, 1.0], True),
        (lambda z: np.abs(np.sign(z)), [0.0, 1.0], True),  # only at 0 itself
        (lambda z: (z > 0) * 1e-3 + z, [0.0, 1.0], True),
        (lambda z: 1e4 + z * z + 1e-3 * np.abs(z - 1), [1.0, 2.0], True),
        (lambda z: np.maximum(z, 0) ** 2, [0.0, 1.0], False),  # twice the slope, but no jump
        (lambda z: np.tanh(1e4 * z), [0.0, 1e-7], False),
        (lambda z: np.exp(30 * z), [0.3, 1.0], False),
        (lambda z: 1e6 + 1e-3 * np.sin(z), [0.3, 1.0], False),
        (lambda z: z.astype(np.float32) * np.float32(0.7), [1e-6, 1e-8], False),
    ],
)
def test_kink_is_where_slopes_on_two_sides_differ(function: Any, z: Any, kink: bool) -> None:
    for report in (
        check_jacobian(function, z, lambda p: np.zeros((2, 2))),
        check_gradient(lambda z: np.sum(function(z)), z, np.zeros_like),
    ):
        assert report.kink == kink
        assert not kink or (report.verdict == "unresolved" and "on a kink" in str(report))


def test_kinks_of_mappings() -> None:
    def check_sparsemax(z: Any) -> Any:
        return check_jacobian(pyentmax.sparsemax, z, pyentmax.sparsemax.jacobian)

    assert check_sparsemax([1.0, 0.0]).kink
    for distance in (1e-2, 1e-4, -1e-4):
        assert check_sparsemax([1 + distance, 0.0]).passed
    top = partial(pyentmax.topk_softmax, k=1)
    assert check_jacobian(top, [1.0, 1.0], pyentmax.softmax.jacobian).kink
    z = [1.6, 1.2, 0.0]  # 1.5-entmax reaches 0 with slope 0: p = (0.8², 0.6², 0²)
    smooth = check_jacobian(pyentmax.entmax15, z, pyentmax.entmax15.jacobian, atol=1e-5)
    assert smooth.passed
    assert not smooth.kink


@pytest.mark.parametrize("scale", [1e-3, 1e-2])
def test_right_jacobian_among_many_kinks_passes(scale: float) -> None:
    for seed in range(2):
        z = scale * np.random.default_rng(seed).standard_normal(300)
        assert check_jacobian(pyentmax.sparsemax, z, pyentmax.sparsemax.jacobian).passed
        wrong = 1.01 * pyentmax.sparsemax.jacobian(pyentmax.sparsemax(z))
        assert not check_jacobian(pyentmax.sparsemax, z, lambda _, wrong=wrong: wrong).passed


# --- functions that are not defined everywhere, and what they may do ------------------------------


@pytest.mark.parametrize("z", [0.2, 1e-2, 1e-6])
def test_function_that_raises_outside_its_domain(z: float) -> None:
    for log in (lambda z: math.log(z[0]), lambda z: np.log(z).sum()):
        check_gradient(log, [z], lambda z: 1 / z).raise_if_failed()
        assert not check_gradient(log, [z], lambda z: 1.01 / z).passed
    with pytest.raises(ValueError, match="math domain error|positive"):
        check_gradient(lambda z: math.log(z[0]), [-z], lambda z: 1 / z)


@pytest.mark.filterwarnings("error")
def test_values_that_are_not_finite_are_unresolved() -> None:
    for value in (np.inf, np.nan):
        report = check_gradient(lambda z, v=value: np.full_like(z, v), Z[0], np.ones_like)
        assert report.verdict == "unresolved"
        assert "NaN or infinite" in report.reason
    bounded = check_gradient(
        lambda z: np.where(z > 1, np.inf, z * z), [1.0, 0.3], lambda z: [7.0, -5]
    )
    assert not bounded.passed
    assert math.isfinite(bounded.tolerance)


@pytest.mark.parametrize("d", [3, 300])
def test_functions_may_reuse_their_arrays(d: int) -> None:
    """The zero Jacobian passed where all values were one array."""
    z = np.random.default_rng(0).standard_normal(d)
    before, p, product = z.copy(), np.empty(d), np.empty(d)

    def forward(z: Any) -> Any:
        z *= 3
        return pyentmax.softmax(z, out=p)

    def vjp(p: Any, v: Any) -> Any:
        product[:] = 3 * pyentmax.softmax.vjp(p, v)
        return product

    assert check_jacobian(forward, z, lambda p: 3 * pyentmax.softmax.jacobian(p)).passed
    assert not check_jacobian(forward, z, lambda p: np.zeros((d, d))).passed
    assert check_vjp(forward, z, vjp, vjp).passed
    np.testing.assert_array_equal(z, before)


def test_derivatives_get_p_in_the_dtype_of_fn() -> None:
    """In float64 an entry at its bound was not at the bound any more."""
    z, upper = np.array([2, 0.1, 0.05]), np.array([0.35, 0.9, 0.9])
    check_jacobian(
        lambda x: pyentmax.csparsemax(x.astype(np.float32), upper),
        z,
        lambda p: pyentmax.csparsemax.jacobian(p, upper),
    ).raise_if_failed()


class OnDevice:
    """An array that NumPy's functions must not take to the host, as CuPy's: only .get() does."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> OnDevice:
        assert func is np.asarray, "only to place arrays next to this one"
        return OnDevice(np.array(args[0]))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("implicit copy to the host")

    def get(self) -> np.ndarray:
        return self.values


def test_device_arrays_stay_on_the_device_inside_the_functions() -> None:
    def on_device(function: Any) -> Any:
        return lambda *arrays: OnDevice(function(*(a.values for a in arrays)))

    z, vjp = OnDevice(Z), on_device(pyentmax.softmax.vjp)
    forward = on_device(pyentmax.softmax)
    check_jacobian(forward, z, on_device(pyentmax.softmax.jacobian)).raise_if_failed()
    check_vjp(forward, z, vjp, vjp).raise_if_failed()
    square = on_device(lambda z: np.sum(z**2))
    check_gradient(square, z, on_device(lambda z: 2 * z)).raise_if_failed()


# --- wrong arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_jacobian(np.copy, Z, np.copy), r"have shape \(3, 5, 5\), got \(3, 5\)"),
        (lambda: check_jacobian(np.sum, Z, np.diag), r"of z's shape \(3, 5\), got \(\)"),
        (lambda: check_vjp(np.copy, Z, lambda p, v: p[0]), r"of z, \(3, 5\), got \(5,\)"),
        (lambda: check_vjp(np.copy, Z, np.add, lambda p, u: 1), r"of p, \(3, 5\), got \(\)"),
        (lambda: check_gradient(np.sum, [-np.inf], np.copy), "non-empty array of finite scores"),
        (lambda: check_jacobian(np.copy, Z, np.diag, 2), "axis 2 is out of bounds"),
        (lambda: check_gradient(np.sum, Z, [1]), "^gradient must be a function, got"),
        (lambda: check_gradient(np.sum, Z, np.copy, rtol=np.nan), "^rtol must be .* got nan"),
        (lambda: check_gradient(np.sum, Z, np.copy, epsilon=-1), "^epsilon must be .* got -1"),
        (lambda: check_gradient(lambda z: None, Z, np.copy), "^the loss must hold real .*None"),
        (lambda: check_gradient(np.sum, ["3"], np.copy), "^z must hold real numbers"),
        (lambda: check_gradient(np.sum, Z + 1j, np.copy), "^z must hold real .*complex128"),
        (lambda: check_jacobian(np.copy, Z, lambda p: 1j), "^the Jacobian must hold real"),
        (lambda: check_vjp(np.ma.asarray, Z, np.add), "^fn's output is .* mask would be lost"),
    ],
)
def test_wrong_argument_is_named(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()
