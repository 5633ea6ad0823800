"""The checks pass what is right, catch what is wrong, and say where."""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from checking_cases import Case, cases, judged
from checking_functions import BROKEN, DIFFERENTIABLE, Drawn

import pyentmax
from pyentmax import check_gradient, check_jacobian, check_vjp

Z = np.random.default_rng(0).standard_normal((3, 5))


def test_right_derivatives_pass_with_room_to_spare() -> None:
    report = check_jacobian(pyentmax.entmax15, Z, pyentmax.entmax15_jacobian)
    assert report.passed
    assert report.largest_error < 1e-9
    assert report.raise_if_failed() is report
    assert check_vjp(pyentmax.softmax, Z, pyentmax.softmax_vjp).largest_error < 1e-9


def test_other_axes_of_the_jacobian() -> None:
    check_jacobian(
        lambda z: pyentmax.softmax(z, axis=0),
        Z,
        lambda p: pyentmax.softmax_jacobian(p, axis=0),
        axis=0,
    ).raise_if_failed()


@pytest.mark.parametrize("size", [1e-4, 1.0])
def test_one_wrong_entry_is_found_and_named(size: float) -> None:
    def wrong(p: Any) -> Any:
        jacobian = pyentmax.softmax_jacobian(p)
        jacobian[1, 3, 2] += size
        return jacobian

    report = check_jacobian(pyentmax.softmax, Z, wrong)
    assert not report.passed
    assert report.where == (1, 3, 2)
    np.testing.assert_allclose(report.largest_error, size, rtol=1e-4)
    np.testing.assert_allclose(report.analytic - report.numeric, size, rtol=1e-4)
    assert report.differences.shape == (3, 5, 5)
    with pytest.raises(AssertionError, match=r"(?s)Jacobian: FAILED.*at \[1, 3, 2\].*numeric"):
        report.raise_if_failed()


def test_a_wrong_vjp_and_a_nan_are_found() -> None:
    report = check_vjp(pyentmax.softmax, Z, lambda p, v: p * v)
    assert not report.passed
    report = check_vjp(pyentmax.softmax, Z, lambda p, v: np.full_like(p, np.nan))
    assert not report.passed
    assert report.largest_error == np.inf


def test_a_wrong_gradient_is_found() -> None:
    def loss(z: Any) -> Any:
        return pyentmax.softmax_loss(z, [0, 1, 2])

    def gradient(z: Any) -> Any:
        return pyentmax.softmax_loss_and_grad(z, [0, 1, 2])[1]

    check_gradient(loss, Z, gradient).raise_if_failed()
    assert not check_gradient(loss, Z, lambda z: 1.001 * gradient(z)).passed
    assert not check_gradient(loss, Z, lambda z: -gradient(z)).passed


def test_many_entries_are_checked_by_random_directions() -> None:
    z = np.random.default_rng(1).standard_normal((4, 100))
    report = check_vjp(pyentmax.softmax, z, pyentmax.softmax_vjp).raise_if_failed()
    assert len(report.where) == 1
    assert report.differences.shape == (16,)

    def wrong(p: Any, v: Any) -> Any:
        product = pyentmax.softmax_vjp(p, v)
        product[2, 50] += 1e-2
        return product

    assert not check_vjp(pyentmax.softmax, z, wrong).passed


def test_a_kink_is_reported() -> None:
    on_kink = [1.0, 0.0]  # sparsemax gives [1, 0], and any smaller gap gives both some
    report = check_jacobian(pyentmax.sparsemax, on_kink, pyentmax.sparsemax_jacobian)
    assert report.kink
    assert not report.passed
    assert "sits on a kink" in str(report)
    for off_kink in ([1.01, 0.0], [0.99, 0.0]):
        report = check_jacobian(pyentmax.sparsemax, off_kink, pyentmax.sparsemax_jacobian)
        assert report.passed
        assert not report.kink
        assert "kink" not in str(report)


def test_near_a_kink_small_steps_are_found() -> None:
    report = check_jacobian(pyentmax.sparsemax, [1 - 1e-4, 0.0], pyentmax.sparsemax_jacobian)
    assert report.passed
    assert report.step < 1e-4


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_derivatives_of_a_known_function(offset: float) -> None:
    """Richardson beats the plain central difference, whose error is 1e-10 at best."""
    report = check_gradient(lambda z: np.sin(z - offset).sum(), Z + offset, lambda z: np.cos(Z))
    assert report.passed
    assert report.largest_error < (1e-11 if offset == 0 else 1e-7)
    assert report.largest_error <= 100 * report.estimate + 1e-12


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("d", [5, 300])
def test_scores_with_an_offset_are_checked_as_without_it(name: str, offset: float, d: int) -> None:
    """A step that followed |z| bent over many kinks, failed right derivatives and saw kinks."""
    mapping = pyentmax.MAPPINGS[name]
    z = np.random.default_rng(4).standard_normal((3, d)) + offset
    for report in (
        check_jacobian(mapping.forward, z, mapping.jacobian),
        check_vjp(mapping.forward, z, mapping.vjp),
    ):
        assert report.raise_if_failed().passed
        assert not report.kink


@pytest.mark.parametrize(
    ("function", "z"),
    [
        (lambda z: pyentmax.topk_softmax(z, 1), [1.0, 1.0]),
        (lambda z: np.sign(z), [0.0, 1.0]),
        (lambda z: (z > 0) * 1e-3 + z, [0.0, 1.0]),
    ],
)
def test_a_jump_is_reported_where_its_two_sides_cancel_too(function: Any, z: Any) -> None:
    report = check_jacobian(function, z, lambda p: np.eye(2))
    assert report.kink
    assert not report.passed
    assert "or a jump" in str(report)


def without_0(z: Any) -> Any:
    return np.where(z == 0, 1, z)


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda z: z + 1.0 * (z == 0), 1.0),
        (lambda z: z + 1e-6 * (z == 0), 1.0),
        (lambda z: np.abs(np.sign(z)), 0.0),
        (lambda z: np.where(z == 0, 0.0, np.sin(z) / without_0(z)), 0.0),  # the limit is 1
        (lambda z: (z + (z == 0)).astype(np.float32), 1.0),
        (lambda z: np.sqrt(np.abs(z)), 0.0),
        (lambda z: z * np.sin(1 / without_0(z)), 0.0),
        (lambda z: np.where(z == 0, 0.0, z * np.cos(np.log(np.abs(without_0(z))))), 1.0),
    ],
)
@pytest.mark.parametrize("z", [[0.0], [0.0, 0.3]])
def test_no_report_passes_where_the_value_is_not_the_limit_or_there_is_no_slope(
    function: Any, slope: float, z: Any
) -> None:
    """The two sides are alike, so central differences cancel f(z), or agree on a slope of 0."""
    z = np.array(z)

    def first(x: Any) -> Any:
        return np.where(np.arange(len(z)) == 0, function(x), 0 * x)

    right = np.zeros(len(z))
    right[0] = slope
    for report in (
        check_jacobian(first, z, lambda p: np.diag(right)),
        check_vjp(first, z, lambda p, v: right * v),
        check_gradient(lambda x: first(x).sum(), z, lambda x: right),
    ):
        assert not report.passed
        assert report.kink or not report.resolved


@pytest.mark.parametrize("width", [1e-2, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("height", [1e-6, 1.0, 1e10])
def test_a_narrow_peak_is_no_value_off_its_limit(width: float, height: float) -> None:
    """Steps that rounding had made large enough reached beyond it on both sides."""
    for z in ([0.0], [0.0, 0.0]):
        assert check_gradient(
            lambda z: height * np.exp(-((z[0] / width) ** 2)), z, np.zeros_like
        ).raise_if_failed()


def test_a_value_that_is_right_where_digits_cancel_around_it_is_none_off_its_limit() -> None:
    """(1 - cos z)/z² is computed as 0 from 1e-8 on."""

    def function(z: Any) -> Any:
        return np.where(z == 0, 0.5, (1 - np.cos(z)) / without_0(z) ** 2)

    assert check_gradient(function, [0.0], np.zeros_like).raise_if_failed()


def test_no_report_passes_where_no_derivative_exists() -> None:
    """|z| at 0: central differences give the 0 that np.sign gives, and yet neither is right."""
    report = check_gradient(lambda z: np.abs(z).sum(), [0.0, 1.0, -1.0], np.sign)
    assert report.largest_error < report.tolerance
    assert report.kink
    assert not report.passed


def test_a_steep_smooth_function_has_no_kink_or_jump() -> None:
    for function in (lambda z: np.tanh(1e4 * z), lambda z: np.abs(z) ** 1.5 + z):
        assert not check_jacobian(function, [0.0, 1e-7], lambda p: np.eye(2)).kink


def test_the_generator_decides_the_directions() -> None:
    z = np.random.default_rng(2).standard_normal(400)

    def numeric(seed: int) -> float:
        rng = np.random.default_rng(seed)
        return check_vjp(pyentmax.softmax, z, pyentmax.softmax_vjp, rng=rng).numeric

    assert numeric(1) == numeric(1)
    assert numeric(1) != numeric(2)


@pytest.mark.parametrize("axis", [-1, 0])
def test_long_rows_are_checked_by_random_directions(axis: int) -> None:
    z = np.moveaxis(np.random.default_rng(3).standard_normal((2, 300)), -1, axis)

    def forward(z: Any) -> Any:
        return pyentmax.entmax15(z, axis)

    def jacobian(p: Any) -> Any:
        return pyentmax.entmax15_jacobian(p, axis)

    report = check_jacobian(forward, z, jacobian, axis).raise_if_failed()
    assert report.differences.shape == (16, 2, 300)

    def wrong(p: Any) -> Any:
        right = jacobian(p)
        right[1, 7, 200] += 1e-3
        return right

    assert check_jacobian(forward, z, wrong, axis).where[1:] == (1, 7)


def test_a_jvp_and_a_vjp_that_are_not_dual_are_found() -> None:
    report = check_vjp(pyentmax.entmax15, Z, pyentmax.entmax15_vjp, pyentmax.entmax15_jvp)
    assert report.raise_if_failed().duality is not None
    assert 0 < report.duality < 1e-14
    assert "JVP-VJP gap" in str(report)

    def wrong(p: Any, u: Any, factor: float) -> Any:
        return factor * pyentmax.softmax_jvp(p, u)

    for factor in (1 + 1e-6, np.nan):
        report = check_vjp(
            pyentmax.softmax,
            Z,
            pyentmax.softmax_vjp,
            partial(wrong, factor=factor),
        )
        assert not report.passed, "though the VJP itself is right"
        assert report.largest_error < report.tolerance
    assert check_vjp(pyentmax.softmax, Z, pyentmax.softmax_vjp).duality is None


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_held_to_each_other_in_their_own_precision(name: str, dtype: Any) -> None:
    """Right ones in float32 failed by a gap of 5e-6."""
    mapping = pyentmax.MAPPINGS[name]

    def forward(z: Any) -> Any:
        return mapping.forward(z.astype(dtype))

    def product(p: Any, u: Any, factor: float = 1) -> Any:
        return dtype(factor) * mapping.jvp(p.astype(dtype), u.astype(dtype))

    z = np.array([0.3, -1.0, 0.8])
    report = check_vjp(forward, z, product, product).raise_if_failed()
    assert report.duality_tolerance == (1e-10 if dtype is np.float64 else 2.0**-11)
    off = 1e-6 if dtype is np.float64 else 1e-2
    assert not check_vjp(forward, z, product, partial(product, factor=1 + off)).passed


@pytest.mark.parametrize(
    ("function", "z", "kink"),
    [
        (lambda z: np.maximum(z, 0), [0.0, 1.0], True),
        (lambda z: np.maximum(z, 0) ** 2, [0.0, 1.0], False),  # twice the slope, but no jump
        (np.abs, [1e-13, 1.0], True),  # nearer than the smallest step
        (np.abs, [1e-4, 1.0], False),
        (lambda z: np.clip(z, -1, 1), [1.0, 0.5], True),  # a bound, not a zero
        (lambda z: 1e-9 * np.sin(z), [0.3, 1.0], False),
        (lambda z: np.exp(30 * z), [0.3, 1.0], False),
        (lambda z: 1e6 + 1e-3 * np.sin(z), [0.3, 1.0], False),  # rounding is no bend
    ],
)
def test_a_kink_is_where_the_slopes_on_two_sides_differ(function: Any, z: Any, kink: bool) -> None:
    report = check_jacobian(function, z, lambda p: np.zeros((2, 2)))
    assert report.kink == kink
    report = check_gradient(lambda z: np.sum(function(z)), z, np.zeros_like)
    assert report.kink == kink


def test_leaving_the_support_smoothly_is_no_kink() -> None:
    """1.5-entmax reaches 0 with slope 0: the derivative exists, and is checked."""
    z = [1.6, 1.2, 0.0]  # p = (0.8², 0.6², 0²)
    assert pyentmax.entmax15(z)[2] < 1e-30
    report = check_jacobian(pyentmax.entmax15, z, pyentmax.entmax15_jacobian, atol=1e-5)
    assert report.passed
    assert not report.kink


class OnDevice:
    """An array that NumPy's functions must not take to the host, as CuPy's: only .get() does."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> OnDevice:
        assert func is np.asarray, "only to place arrays beside this one"
        return OnDevice(np.array(args[0]))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("implicit copy to the host")

    def get(self) -> np.ndarray:
        return self.values


def test_device_arrays_stay_on_the_device_inside_the_functions() -> None:
    def on_device(function: Any) -> Any:
        return lambda *arrays: OnDevice(function(*(a.values for a in arrays)))

    z = OnDevice(Z)
    forward = on_device(pyentmax.softmax)
    check_jacobian(forward, z, on_device(pyentmax.softmax_jacobian)).raise_if_failed()
    vjp = on_device(pyentmax.softmax_vjp)
    check_vjp(forward, z, vjp, vjp).raise_if_failed()
    check_gradient(
        on_device(lambda z: np.sum(z**2)), z, on_device(lambda z: 2 * z)
    ).raise_if_failed()


def picture(report: pyentmax.CheckReport) -> ElementTree.Element:
    """The report's HTML, parsed: it must be well-formed."""
    html = report._repr_html_()
    assert "http" not in html.replace('xmlns="http://www.w3.org/2000/svg"', ""), "no network"
    return ElementTree.fromstring(html)


SVG = "{http://www.w3.org/2000/svg}"


def cells(root: ElementTree.Element) -> list[list[ElementTree.Element]]:
    """The cells of each of the three maps: the rectangles with a tooltip."""
    return [
        [r for r in group.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
        for group in root.iter(f"{SVG}g")
    ]


def test_the_picture_shows_both_jacobians_and_their_difference() -> None:
    def wrong(p: Any) -> Any:
        jacobian = pyentmax.sparsemax_jacobian(p)
        jacobian[0, 2] += 0.25
        return jacobian

    report = check_jacobian(pyentmax.sparsemax, [0.3, 0.1, -2.0], wrong)
    root = picture(report)
    svg = next(root.iter(f"{SVG}svg"))
    assert svg.get("role") == "img"
    assert "heat maps of the analytic and the numeric values" in str(svg.get("aria-label"))
    titles = [group.findtext(f"{SVG}text") for group in root.iter(f"{SVG}g")]
    assert titles == ["analytic ∂pᵢ/∂zⱼ, i down, j across", "numeric", "difference"]
    maps = cells(root)
    assert [len(m) for m in maps] == [9, 9, 9]
    blue, white, red = "#2166ac", "#ffffff", "#a53c0a"
    numeric = [c.get("fill") for c in maps[1]]
    assert (numeric[0], numeric[1], numeric[2]) == (red, blue, white)
    difference = [c.get("fill") for c in maps[2]]
    assert difference == [white, white, red] + [white] * 6
    assert maps[0][2].findtext(f"{SVG}title") == (
        "[0, 2] analytic 0.25, numeric 0, difference 0.25"
    )
    words = " ".join(root.itertext())
    assert "Jacobian: ✗ FAILED" in words
    assert "2.50e-01" in words
    assert "±0.25, the largest" in words


def test_differences_within_the_tolerance_look_pale() -> None:
    report = check_jacobian(pyentmax.softmax, Z[0], pyentmax.softmax_jacobian)
    root = picture(report)
    assert {c.get("fill") for c in cells(root)[2]} <= {"#ffffff", "#fffffe", "#fefefe", "#feffff"}
    words = " ".join(root.itertext())
    assert "✓ passed" in words
    assert "the tolerance" in words


def test_of_large_and_many_jacobians_the_block_of_the_largest_error_is_shown() -> None:
    def wrong(p: Any) -> Any:
        jacobian = pyentmax.softmax_jacobian(p)
        jacobian[1, 90, 3] = np.nan
        return jacobian

    z = np.random.default_rng(4).standard_normal((2, 100))
    root = picture(check_jacobian(pyentmax.softmax, z, wrong))
    maps = cells(root)
    assert [len(m) for m in maps] == [256] * 3
    grey = [c.findtext(f"{SVG}title") for c in maps[2] if c.get("fill") == "#888"]
    assert [str(title)[:11] for title in grey] == ["[1, 90, 3] "]
    words = " ".join(root.itertext())
    assert "matrix [1] of a batch of (2,), rows 82–97 of 100, columns 0–15 of 100" in words
    assert len(check_jacobian(pyentmax.softmax, z, wrong)._repr_html_()) < 200_000


def test_gradients_are_shown_as_rows_and_kinks_noted() -> None:
    root = picture(check_gradient(lambda z: np.abs(z).sum(), [0.0, 1.0, -1.0], np.sign))
    assert [len(m) for m in cells(root)] == [3, 3, 3]
    assert "z sits on a kink" in " ".join(root.itertext())
    root = picture(check_gradient(lambda z: (z**2).sum(), Z, lambda z: 2 * z))
    assert [len(m) for m in cells(root)] == [15, 15, 15]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"Jacobian must have shape \(3, 5, 5\), got \(3, 5\)"):
        check_jacobian(pyentmax.softmax, Z, lambda p: p)
    with pytest.raises(ValueError, match=r"VJP must have the shape of z, \(3, 5\), got \(5,\)"):
        check_vjp(pyentmax.softmax, Z, lambda p, v: p[0])
    with pytest.raises(ValueError, match="z must be a non-empty array of finite scores"):
        check_vjp(pyentmax.softmax, [0.0, -np.inf], pyentmax.softmax_vjp)
    with pytest.raises(ValueError, match=r"must return an array of z's shape \(3, 5\), got \(5,\)"):
        check_jacobian(lambda z: z[0], Z, pyentmax.softmax_jacobian)
    with pytest.raises(ValueError, match=r"JVP must have the shape of p, \(3, 5\), got \(5,\)"):
        check_vjp(pyentmax.softmax, Z, pyentmax.softmax_vjp, lambda p, u: p[0])


@pytest.mark.parametrize("axis", [1.0, None, (0, 1), "last"])
def test_an_axis_that_is_no_integer_is_named(axis: Any) -> None:
    with pytest.raises(TypeError, match="^axis must be one integer, got ") as caught:
        check_jacobian(pyentmax.softmax, Z, pyentmax.softmax_jacobian, axis)
    assert repr(axis) in str(caught.value)
    check_jacobian(pyentmax.softmax, Z, pyentmax.softmax_jacobian, np.int64(1)).raise_if_failed()
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        check_jacobian(pyentmax.softmax, Z, pyentmax.softmax_jacobian, 2)


# --- functions that reuse their arrays ------------------------------------------------------------


@pytest.mark.parametrize("d", [3, 300])
def test_a_function_may_write_every_result_into_the_same_array(d: int) -> None:
    """The zero Jacobian passed, and the right one failed, where all values were one array."""
    z = np.random.default_rng(0).standard_normal(d)
    p, product = np.empty(d), np.empty(d)

    def forward(z: Any) -> Any:
        return pyentmax.softmax(z, out=p)

    def vjp(p: Any, v: Any) -> Any:
        product[:] = pyentmax.softmax_vjp(p, v)
        return product

    assert check_jacobian(forward, z, pyentmax.softmax_jacobian).passed
    assert not check_jacobian(forward, z, lambda p: np.zeros((d, d))).passed
    assert check_vjp(forward, z, vjp, vjp).passed
    assert not check_vjp(forward, z, lambda p, v: np.zeros(d)).passed


def test_a_function_that_works_in_place_leaves_the_callers_scores_alone() -> None:
    z = np.array([0.3, 0.1, -2.0])
    before = z.copy()

    def forward(z: Any) -> Any:
        z *= 3
        return pyentmax.softmax(z, out=z)

    def jacobian(p: Any) -> Any:
        right = 3 * (np.diag(p) - np.outer(p, p))
        p[:] = 0
        return right

    def gradient(z: Any) -> Any:
        z *= 2
        return z

    assert check_jacobian(forward, z, jacobian).passed
    np.testing.assert_array_equal(z, before)
    assert check_gradient(lambda z: np.sum(np.square(z, out=z)), z, gradient).passed
    np.testing.assert_array_equal(z, before)


# --- what would be dropped silently ---------------------------------------------------------------


def test_masks_and_imaginary_parts_are_refused_not_dropped() -> None:
    masked = np.ma.masked_greater([0.3, 0.1, -2.0], 0.2)
    with pytest.raises(TypeError, match=r"^z is a numpy\.ma array, and its mask would be lost"):
        check_jacobian(pyentmax.softmax, masked, pyentmax.softmax_jacobian)
    with pytest.raises(TypeError, match=r"^fn's output is a numpy\.ma array"):
        check_vjp(lambda z: np.ma.masked_greater(z, 0), Z, lambda p, v: v)
    with pytest.raises(TypeError, match=r"^the gradient is a numpy\.ma array"):
        check_gradient(np.sum, Z, lambda z: np.ma.ones(z.shape))
    with pytest.raises(TypeError, match="^the loss must hold real numbers, got .+1.0"):
        check_gradient(lambda z: [[1.0], [1.0, 2.0]], Z, np.zeros_like)
    with pytest.raises(TypeError, match="^z must hold real numbers, got dtype complex128"):
        check_gradient(np.sum, Z + 1j, np.ones_like)
    with pytest.raises(TypeError, match="^fn's output must hold real numbers, got dtype complex"):
        check_jacobian(lambda z: np.exp(1j * z), Z[0], lambda p: np.diag(1j * p))
    with pytest.raises(TypeError, match="^the Jacobian must hold real numbers"):
        check_jacobian(np.sin, Z[0], lambda p: np.eye(5) * 1j)
    with pytest.raises(TypeError, match="^the loss must hold real numbers"):
        check_gradient(lambda z: np.sum(z) * 1j, Z, np.ones_like)


# --- which step to believe ------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1e-1, 1e-2, 1e-3, 1e-4, 1e-6])
def test_large_steps_that_agree_by_saturation_are_not_believed(width: float) -> None:
    """Far from the bump the function is flat, and two steps of 0.06 and 0.016 agree on slope 0."""

    def bump(z: Any) -> Any:
        return np.exp(-((z / width) ** 2))

    def slope(z: Any) -> Any:
        return -2 * z / width**2 * bump(z)

    for z in ([width / 2], [-width], [0.2 * width, 3 * width]):
        assert check_gradient(bump, z, slope).raise_if_failed().passed
        for wrong in (lambda z: 0 * z, lambda z: 1.01 * slope(z), lambda z: -slope(z)):
            assert not check_gradient(bump, z, wrong).passed


@pytest.mark.parametrize("scale", [1e-3, 1e-2])
def test_among_many_kinks_the_right_jacobian_passes(scale: float) -> None:
    """In 7 of 40 rows of 300 scores at scale 0.01 the steps reached beyond the nearest kink."""
    for seed in range(10):
        z = scale * np.random.default_rng(seed).standard_normal(300)
        assert check_jacobian(pyentmax.sparsemax, z, pyentmax.sparsemax_jacobian).passed
        wrong = 1.01 * pyentmax.sparsemax_jacobian(pyentmax.sparsemax(z))
        assert not check_jacobian(pyentmax.sparsemax, z, lambda _, wrong=wrong: wrong).passed


@pytest.mark.parametrize("offset", [1e6, 1e8])
@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
def test_long_rows_far_from_0_are_checked(name: str, offset: float) -> None:
    """Steps along directions of any length were rounded at such scores, and seen as kinks."""
    mapping = pyentmax.MAPPINGS[name]
    z = 0.03 * np.random.default_rng(5).standard_normal(300) + offset
    report = check_jacobian(mapping.forward, z, mapping.jacobian)
    assert report.raise_if_failed().passed
    assert not check_jacobian(mapping.forward, z, lambda p: 1.01 * mapping.jacobian(p)).passed


@pytest.mark.parametrize("d", [5, 300])
@pytest.mark.parametrize("how", ["float32", "float64 of float32 values", "a sum in float64"])
def test_functions_that_compute_in_float32_are_checked(how: str, d: int) -> None:
    """Their rounding was taken for that of float64: right ones failed "on a kink"."""

    def loss(z: Any) -> Any:
        value = pyentmax.softmax_loss(np.asarray(z, np.float32), y, reduction="none")
        if how == "float32":
            return value
        return value.astype(np.float64) if "values" in how else (value / 3.0).astype(float).sum()

    def gradient(z: Any) -> Any:
        right = pyentmax.softmax_loss_and_grad(np.asarray(z), y, reduction="sum")[1]
        return right / 3 if how == "a sum in float64" else right

    rng = np.random.default_rng(6)
    y = rng.integers(d, size=2)
    z = rng.standard_normal((2, d))
    report = check_gradient(loss, z, gradient)
    assert report.raise_if_failed().passed
    assert not report.kink
    for wrong in (lambda z: 1.01 * gradient(z), lambda z: 0 * z, lambda z: -gradient(z)):
        assert not check_gradient(loss, z, wrong).passed


@pytest.mark.parametrize(
    ("loss", "gradient", "z"),
    [
        (lambda z: np.sum(z**2), lambda z: 2 * z, np.arange(100.0)),
        (lambda z: np.sum(z**2), lambda z: 2 * z, [300.0, 100.0, 201.0]),
        (lambda z: np.sum(np.abs(z)), np.sign, [4099.0, 2.0**-10]),
        (lambda z: 4099 + np.sum(np.exp(z)), np.exp, np.zeros(3)),
    ],
)
def test_whole_values_at_whole_scores_are_not_taken_for_float32(
    loss: Any, gradient: Any, z: Any
) -> None:
    """328350 fits into float32: squares to sum failed, or passed gradients off by 1e-3."""
    check_gradient(loss, z, gradient).raise_if_failed()
    assert not check_gradient(loss, z, lambda z: (1 + 5e-6) * gradient(z)).passed


def test_steps_that_agree_by_chance_beyond_a_kink_are_not_believed() -> None:
    """Of 256 scores in float32, one met the same slope twice, 0.1% off, with steps too large."""
    case = Case("sparsemax", (), 256, 1e-3, 0.0, np.float32, 0)
    z = case.scores()
    right = np.asarray(case.jacobian(case.forward(z)), float)
    assert check_vjp(case.forward, z, lambda p, v: right.T @ v).raise_if_failed().passed


def test_noise_that_hides_the_derivative_is_said_and_passes_nothing() -> None:
    noise = np.random.default_rng(7)

    def fn(z: Any) -> Any:
        return pyentmax.softmax(z) + 1e-2 * noise.standard_normal(z.shape)

    for jacobian in (pyentmax.softmax_jacobian, lambda p: np.zeros((5, 5))):
        report = check_jacobian(fn, Z[0], jacobian)
        assert not report.passed
        assert not report.resolved
    assert "too noisy for differences" in str(report)
    assert "too noisy for differences" in " ".join(picture(report).itertext())


def test_points_at_which_a_function_is_not_defined_are_not_believed() -> None:
    report = check_gradient(lambda z: np.log(z).sum(), [1e-3, 2.0], lambda z: 1 / z)
    assert report.raise_if_failed().passed
    pole = 2.0**-4  # a step away: infinite there
    assert check_gradient(lambda z: (1 / z).sum(), [pole, 2.0], lambda z: -1 / z**2).passed


@pytest.mark.filterwarnings("error")
def test_a_function_that_is_nowhere_finite_fails_without_a_warning() -> None:
    for value in (np.inf, np.nan):
        report = check_gradient(lambda z, v=value: np.full_like(z, v), Z[0], np.ones_like)
        assert not report.passed
        assert not report.resolved


def test_values_that_are_not_finite_are_said_to_be_so() -> None:
    """The note spoke of noise."""
    report = check_gradient(lambda z: np.sum(z**1.5), [0.0], np.zeros_like)
    assert not report.passed
    assert "NaN or infinite at z or right beside it" in str(report)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-9, 1e-6, 1e-3])
def test_beside_a_place_where_the_function_is_infinite_nothing_wrong_passes(
    value: float, distance: float
) -> None:
    """The tolerance was infinite there, too: a penalty with z on its bound let anything pass."""

    def bounded(z: Any) -> Any:
        return np.where(z > 1 + distance, value, z * z)

    z, v = np.array([1.0, 0.3]), np.array([1.0, -2.0])
    for wrong in (-2 * z, 1.01 * 2 * z, np.array([7.0, -5.0])):
        assert not check_gradient(bounded, z, lambda _, w=wrong: w).passed
        assert not check_jacobian(bounded, z, lambda _, w=wrong: np.diag(w)).passed
        assert not check_vjp(bounded, z, lambda p, v, w=wrong: w * v).passed
    report = check_gradient(bounded, z, lambda z: 2 * z)
    assert math.isfinite(report.tolerance)
    assert report.passed or distance < 1e-6
    steep = check_gradient(lambda z: 4.4e255 * np.exp(z / 1.4e-8), v[:1] * 3e-9, np.zeros_like)
    assert not steep.passed


# --- calibration ----------------------------------------------------------------------------------

BAD = ("FALSE ALARM", "KINK, FALSELY")


def assert_calibrated(chosen: list[Case], unresolved: float, in_float32: int = 0) -> None:
    """Nothing is missed; in float64 no false alarm, and at most this share unresolved.

    In float32 there may be so many false alarms: p, and with it the derivative that is held to be
    right, has few digits where p is near 0.
    """
    told = [(case, judged(case)) for case in chosen]
    assert not [(c, kind) for c, kinds in told for kind in kinds if kind.startswith("MISSED")]
    alarms = [(c, kind) for c, kinds in told for kind in BAD if kinds[kind]]
    assert not [alarm for alarm in alarms if alarm[0].dtype is np.float64]
    assert len(alarms) <= in_float32, alarms
    double = [kinds["passed"] for case, kinds in told if case.dtype is np.float64]
    assert sum(double) >= 2 * (1 - unresolved) * len(double)


def test_no_false_alarm_and_nothing_missed() -> None:
    chosen = cases((2, 5, 30), (0.01, 1.0, 30.0), (0.0, 1e6))
    chosen = [chosen[i] for i in np.random.default_rng(8).permutation(len(chosen))[:24]]
    assert_calibrated(chosen, unresolved=0.05)


@pytest.mark.deep
@pytest.mark.parametrize("d", [2, 3, 10, 100, 256, 257, 600, 2000])
def test_no_false_alarm_and_nothing_missed_at_any_size(d: int) -> None:
    chosen = cases((d,), (1e-3, 0.1, 1.0, 100.0), (0.0, 1e2, 1e4, 1e8))
    count = {600: 60, 2000: 20}.get(d, 120)
    chosen = [chosen[i] for i in np.random.default_rng(d).permutation(len(chosen))[:count]]
    assert_calibrated(chosen, unresolved=0.1, in_float32=2)


@pytest.mark.parametrize("scale", [1e160, 1e300])
def test_values_whose_squares_are_beyond_floats_are_differentiated_like_others(scale):
    z = np.array([0.5, 0.1, -0.3, 2.0])

    def function(x):
        return scale * (x * x).sum()

    assert check_gradient(function, z, lambda x: 2 * scale * x).passed
    assert not check_gradient(function, z, lambda x: 2.001 * scale * x).passed


# --- functions that look flat ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [
        (lambda z: 1e10 + 1e-4 * np.sin(z).sum(), lambda z: -1e-4 * np.cos(z)),
        (lambda z: np.sum((1 + 1e-5 * np.sin(z)).astype(np.float32)), np.zeros_like),
        (lambda z: 12345.0, lambda z: np.full(3, 0.1)),  # fits float32, as 10¹⁰ does
        (lambda z: 1e10, lambda z: np.full(3, 1e5)),
    ],
)
def test_what_cannot_be_told_of_a_function_that_looks_flat_is_not_passed(
    loss: Any, wrong: Any
) -> None:
    report = check_gradient(loss, np.array([0.5, 1.2, -0.7]), wrong)
    assert not report.passed
    assert not report.resolved


@pytest.mark.parametrize("value", [0.0, 12345.0, 1e10, 1e14, np.float32(0.3)])
def test_a_gradient_of_zeros_of_a_constant_passes(value: Any) -> None:
    report = check_gradient(lambda z: value, Z[0], np.zeros_like)
    assert report.raise_if_failed().resolved


@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "softmax"])
def test_saturated_mappings_in_float32_pass(name: str) -> None:
    mapping = pyentmax.MAPPINGS[name]

    def forward(z: Any) -> Any:
        return mapping.forward(z.astype(np.float32))

    z = [30.0, 0.0, 1.0]
    assert check_jacobian(forward, z, mapping.jacobian).raise_if_failed().passed
    assert check_vjp(forward, z, mapping.vjp).raise_if_failed().passed
    assert not check_jacobian(forward, z, lambda p: np.full((3, 3), 1e-3)).passed


def in_float16(z: Any) -> float:
    return float(pyentmax.softmax_loss(z.astype(np.float16), 1))


def in_float32_near_1(z: Any) -> Any:
    return np.sum((1 + 1e-4 * np.sin(z)).astype(np.float32).astype(float))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "gradient"),
    [
        (in_float16, lambda z: pyentmax.softmax_loss_and_grad(z, 1)[1]),
        (in_float32_near_1, lambda z: 1e-4 * np.cos(z)),
    ],
)
def test_between_two_stairs_of_coarse_rounding_no_slope_of_0_is_seen(
    loss: Any, gradient: Any
) -> None:
    """What rounds inside more coarsely than the steps are was flat for all small ones."""
    for seed in range(6):
        z = np.random.default_rng(seed).standard_normal(3)
        report = check_gradient(loss, z, gradient)
        assert report.passed or not report.resolved
        assert not report.kink
        assert not check_gradient(loss, z, np.zeros_like).passed


def test_the_noise_of_float32_inside_is_no_kink() -> None:
    """Neighbouring points were rounded alike, and the noise that they showed was a third of it."""
    weights = np.arange(5.0)
    z = np.array([-0.0656635472010598, 0.2900875727047861, 0.4194690285720402])
    z = np.append(z, [-0.18575134155358108, 0.06389117844595439])
    right = pyentmax.softmax_vjp(pyentmax.softmax(z), weights)

    def loss(z: Any) -> Any:
        return pyentmax.softmax(z.astype(np.float32)).astype(float) @ weights

    report = check_gradient(loss, z, lambda _: right).raise_if_failed()
    assert not report.kink
    assert not check_gradient(loss, z, lambda _: 1.01 * right).passed


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: check_jacobian(3, Z, np.diag), TypeError, "^fn must be a function, got 3"),
        (
            lambda: check_vjp(pyentmax.softmax, Z, None),
            TypeError,
            "^vjp must be a function, got None",
        ),
        (lambda: check_vjp(np.copy, Z, np.copy, 1.0), TypeError, "^jvp must be a function"),
        (lambda: check_gradient(np.sum, Z, [1]), TypeError, "^gradient must be a function"),
        (lambda: check_gradient(np.sum, Z, np.ones_like, rng=3), TypeError, "^rng must be a gen"),
        (lambda: check_gradient(np.sum, Z, np.ones_like, rtol="1"), ValueError, "^rtol .*got '1'"),
        (lambda: check_gradient(np.sum, Z, np.ones_like, atol=-1), ValueError, "^atol .*got -1"),
        (lambda: check_gradient(np.sum, Z, np.ones_like, rtol=np.nan), ValueError, "^rtol .*nan"),
        (lambda: check_gradient(lambda z: None, Z, np.ones_like), TypeError, "^the loss .*None"),
        (lambda: check_gradient(lambda z: {}, Z, np.ones_like), TypeError, "^the loss .*{}"),
        (lambda: check_gradient(np.sum, ["a"], np.ones_like), TypeError, "^z must hold real num"),
        (lambda: check_gradient(np.sum, ["3"], np.ones_like), TypeError, "^z must hold real num"),
    ],
)
def test_an_argument_of_another_kind_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("factor", [1.0, 1.02, 1.1])
def test_float16_shows_too_little_unless_less_is_asked_for(factor: float) -> None:
    """A gradient that was 10% too large passed, as resolved: 64 ε of float16 are 6%."""

    def loss(z: Any) -> Any:
        return np.float16(np.exp(z).sum())

    z = np.array([0.8216181435011584, 0.33043707618338714, -1.303157231604361])
    report = check_gradient(loss, z, lambda z: factor * np.exp(z))
    assert not report.resolved
    assert not report.passed
    asked = check_gradient(loss, z, lambda z: factor * np.exp(z), rtol=0.07)
    assert asked.resolved
    assert asked.passed
    assert not check_gradient(loss, z, lambda z: 1.5 * np.exp(z), rtol=0.07).passed


def test_a_report_equals_itself_alone() -> None:
    """To compare two was an error about arrays."""
    reports = [check_gradient(lambda z: z @ z, [1.0, 2.0], lambda z: 2 * z) for _ in range(2)]
    assert reports[0] == reports[0]
    assert reports[0] != reports[1]


def test_what_grows_by_a_whole_number_of_ulps_is_not_exact() -> None:
    """Near a zero of b z + c the points taken to measure its rounding lay on a line, and the
    smallest step was believed: 1.3e-5 off."""
    b, c, z = 1.5073045810612087, -4.4304534289633, 2.9393219443105876
    report = check_gradient(lambda z: b * z + c, [z], lambda _: np.array([b]))
    assert report.raise_if_failed().step > 1e-8
    assert not check_gradient(
        lambda z: b * z + c, [z], lambda _: np.array([b * (1 + 1.3e-5)])
    ).passed
    rng = np.random.default_rng(0)
    for _ in range(100):
        b, zero = rng.uniform(0.3, 5), rng.uniform(0.3, 9)
        z = zero + 10 ** rng.uniform(-9, -1)
        check_near_their_zero(b, -b * zero, zero, z)


def check_near_their_zero(b: float, c: float, zero: float, z: float) -> None:
    for function, slope in (
        (lambda z: b * z + c, lambda _: np.array([b])),
        (lambda z: np.sin(b * z + c), lambda z: b * np.cos(b * z + c)),
        (lambda z: np.log(z / zero), lambda z: 1 / z),
    ):
        assert check_gradient(function, [z], slope).raise_if_failed()


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_a_small_difference_of_large_numbers_has_their_rounding(d: int) -> None:
    """Slopes close to a multiple of a quarter: a step showed that multiple, and a wrong one passed.

    All values are multiples of one power of 2, by which they may be off.
    """
    rng = np.random.default_rng(d)
    for _ in range(40):
        b = rng.integers(1, 20) / 4 * (1 + 10 ** rng.uniform(-6, -2) * rng.choice([-1, 1]))
        zero = 10 ** rng.uniform(-1, 4)
        z = zero + 10 ** rng.uniform(-6, -1) * rng.standard_normal(d)

        def function(z: Any, b: float = b, zero: float = zero) -> Any:
            return b * z - b * zero

        assert check_jacobian(function, z, lambda _, b=b: b * np.eye(d)).raise_if_failed()


def test_digits_lost_at_tiny_scores_are_noticed() -> None:
    """exp(z) - 1 - z is exactly linear over the smallest steps, which showed a slope of -1e-6."""
    report = check_gradient(lambda z: np.exp(z) - 1 - z, [1e-6], np.expm1)
    assert report.raise_if_failed().estimate < 1e-9
    assert not check_gradient(lambda z: np.exp(z) - 1 - z, [1e-6], np.zeros_like).passed


def test_float32_inside_a_function_of_float64_scores_is_noticed() -> None:
    """sin(z) in float32 stands still over the small steps: the slope of sin(z) z was sin(z)."""

    def function(z: Any) -> Any:
        return np.sin(z.astype(np.float32)).astype(float) * z

    z = [1.3]
    right = check_gradient(function, z, lambda z: np.sin(z) + z * np.cos(z))
    assert right.raise_if_failed().estimate < 1e-3
    assert not check_gradient(function, z, np.sin).passed


def test_a_cusp_beside_a_slope_is_noticed() -> None:
    """The root was taken for rounding, which at these scores hid the cusp."""
    assert check_gradient(lambda z: z + np.sqrt(np.abs(z - 1000.1)), [1000.1], np.ones_like).kink


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


@pytest.mark.parametrize(
    ("function", "right", "wrong", "z"),
    [
        (  # 1 - σ(30) is a multiple of 2⁻⁵³ and some 10⁻¹³
            lambda z: -np.log(1 - sigmoid(z)),
            sigmoid,
            lambda z: sigmoid(z) * [1, 0],
            [0.0, 30.0],
        ),
        (
            lambda z: np.sin(z) + np.round(np.sin(z), 4),
            lambda z: 2 * np.cos(z),
            np.cos,
            [0.3, 1.0],
        ),
        (
            lambda z: np.cos(z) + np.sin(z.astype(np.float16)).astype(float),
            lambda z: np.cos(z) - np.sin(z),
            lambda z: -np.sin(z),
            [0.3, 1.0],
        ),
    ],
)
def test_stairs_beside_what_is_smooth_are_no_slope_of_0(
    function: Any, right: Any, wrong: Any, z: Any
) -> None:
    """Stairs were looked for only where nothing else moved."""
    for gradient in (right, wrong):
        assert not check_gradient(lambda z: function(z).sum(), z, gradient).resolved
        report = check_jacobian(function, z, lambda p, g=gradient: np.diag(g(np.array(z))))
        assert not report.passed
        assert not report.resolved


def test_jumps_further_away_are_no_stairs() -> None:
    """Top-k of a batch has many."""
    for seed in range(4):
        z = np.random.default_rng(seed).standard_normal((16, 16))
        check_vjp(
            lambda z: pyentmax.topk_softmax(z, 5),
            z,
            lambda p, v: pyentmax.topk_softmax_vjp(p, v, 5),
        ).raise_if_failed()
        check_gradient(
            lambda z: np.sum(np.where(np.abs(z) > 0.5, z, 0)), z, lambda z: (np.abs(z) > 0.5) * 1.0
        ).raise_if_failed()


def test_a_crowd_of_kinks_is_no_rounding() -> None:
    """Sorting 255 scores has kinks at all distances."""
    for seed in (22, 28):
        rng = np.random.default_rng([8, seed])
        z, w = rng.normal(size=(2, 255))
        right = np.empty(255)
        right[np.argsort(z)] = w
        report = check_gradient(lambda z, w=w: w @ np.sort(z), z, lambda z, right=right: right)
        assert report.passed or not report.resolved
        if report.kink:  # one there is, as near as is said
            assert np.min(np.diff(np.sort(z))) < 2 * report.finest


@pytest.mark.parametrize("z", [0.2, 1e-2, 1e-6])
def test_a_function_that_raises_an_error_outside_its_domain_is_checked(z: float) -> None:
    """That of math.log at a step from z ended the check, where np.log's NaN did not."""
    assert check_gradient(lambda z: math.log(z[0]), [z], lambda z: 1 / z).raise_if_failed()
    assert not check_gradient(lambda z: math.log(z[0]), [z], lambda z: 1.01 / z).passed
    with pytest.raises(ValueError, match="math domain error|positive"):
        check_gradient(lambda z: math.log(z[0]), [-z], lambda z: 1 / z)


def test_errors_of_any_library_mean_that_a_function_is_not_defined_there() -> None:
    """Those of PyTorch's Cholesky, which are RuntimeErrors, ended the check."""

    class LibraryError(RuntimeError):
        pass

    def root(z: Any) -> Any:
        if z[0] < 0:
            raise LibraryError
        return np.sqrt(z)

    z = np.array([0.02])
    check_gradient(root, z, lambda z: 0.5 / np.sqrt(z)).raise_if_failed()
    with pytest.raises(LibraryError):
        check_gradient(root, -z, lambda z: z)


def test_a_matrix_that_is_nearly_singular_is_checked() -> None:
    matrix = np.array([[1.0, 0.99], [0.99, 1.0]])

    def half_log_determinant(a: Any) -> Any:
        return np.sum(np.log(np.diag(np.linalg.cholesky((a + a.T) / 2))))

    check_gradient(half_log_determinant, matrix, lambda a: np.linalg.inv(a) / 2).raise_if_failed()


def single_in_double(name: str) -> tuple[Any, Any]:
    """A function whose entries are float32 and whose sum is float64, and its gradient."""

    def elu(z: Any) -> Any:
        return np.where(z > 0, z, np.expm1(np.minimum(z, 0)))

    def huber(z: Any) -> Any:
        return np.where(np.abs(z) < 1, z * z / 2, np.abs(z) - z.dtype.type(0.5))

    functions: dict[str, tuple[Any, Any]] = {
        "sin": (np.sin, np.cos),
        "square": (np.square, lambda z: 2 * z),
        "elu": (elu, lambda z: np.exp(np.minimum(z, 0))),
        "huber": (huber, lambda z: np.clip(z, -1, 1)),
        "squared ReLU": (lambda z: np.maximum(z, 0) ** 2, lambda z: 2 * np.maximum(z, 0)),
    }
    function, slope = functions[name]
    return lambda z: np.sum(function(z.astype(np.float32)), dtype=np.float64), slope


@pytest.mark.parametrize("d", [60, 257, 1000])
@pytest.mark.parametrize("name", ["sin", "square", "elu", "huber", "squared ReLU"])
def test_right_gradients_of_many_entries_in_float32_do_not_fail(name: str, d: int) -> None:
    """Up to half of them did from 257 entries on: along one of 16 random directions the error
    seemed small by chance. Of smooth ones, 1% had a kink, where few stairs passed for a slope."""
    loss, gradient = single_in_double(name)
    for seed in range(12):
        z = np.random.default_rng([seed, d]).standard_normal(d) * (0.1, 1, 3)[seed % 3]
        report = check_gradient(loss, z, gradient)
        assert report.passed or not report.resolved, str(report)
        assert not check_gradient(loss, z, lambda z: 1.01 * gradient(z)).passed


@pytest.mark.parametrize("seed", [661, 2933, 2902, 1904])
def test_rounding_of_a_sum_that_cancels_is_seen(seed: int) -> None:
    loss, gradient = single_in_double("sin")
    z = np.random.default_rng(seed).standard_normal(400) * 0.1
    z -= np.mean(z)  # so that the sum is small, and its rounding is not
    assert check_gradient(loss, z, gradient).raise_if_failed()


@pytest.mark.parametrize("name", ["sin", "elu", "huber"])
@pytest.mark.parametrize("d", [2, 100, 300])
def test_rounding_is_told_at_scores_that_are_0(name: str, d: int) -> None:
    """No share of 0 is a step: stairs in float32 were none, and the one slope passed for 0."""
    loss, gradient = single_in_double(name)
    for seed in range(12):
        rng = np.random.default_rng([seed, d])
        z = np.zeros(d)
        z[rng.permutation(d)[: 1 + seed % 2]] = rng.standard_normal()
        right, dropped = gradient(z), np.where(z == 0, gradient(z), 0)
        report = check_gradient(loss, z, lambda _, g=right: g)
        assert report.passed or not report.resolved, str(report)
        assert not check_gradient(loss, z, lambda _, g=dropped: g).passed


@pytest.mark.parametrize(("ulps", "slope"), [(1000, 0.01), (3000, 0.1), (30_000, 0.01)])
def test_a_ripple_beside_a_large_constant_is_no_rounding(ulps: int, slope: float) -> None:
    height = 1e5 * 2.0**-52 * ulps
    waves = slope / height
    alarms = 0
    for z in 0.3 + 0.0123 * np.arange(40):
        report = check_gradient(
            lambda z: 1e5 + np.sum(np.sin(z) + height * np.sin(waves * z)),
            [z],
            lambda z: np.cos(z) + slope * np.cos(waves * z),
        )
        alarms += report.resolved and not report.passed
        if abs(np.cos(waves * z)) > 0.3:
            smooth = check_gradient(
                lambda z: 1e5 + np.sum(np.sin(z) + height * np.sin(waves * z)), [z], np.cos
            )
            assert not smooth.passed
    assert alarms <= 4


@pytest.mark.parametrize("constant", [1e3, 1e6])
@pytest.mark.parametrize("d", [2, 60])
@pytest.mark.parametrize("whole", [False, True])
def test_a_part_in_float32_beside_a_large_constant(constant: float, d: int, whole: bool) -> None:
    """It was taken for a ripple: the right gradient was called a kink, FAILED or unresolved."""
    unresolved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z, w = rng.standard_normal(d), rng.standard_normal(d)
        z = np.rint(2 * z) if whole else z

        def function(x: Any, w: Any = w) -> Any:
            single = np.arctan(x.astype(np.float32)).astype(float)
            double = 0 if whole else (x + 1) ** 2
            return (w * single + double).sum() + constant

        double = 0 * z if whole else 2 * (z + 1)
        report = check_gradient(function, z, lambda z, w=w, g=double: w / (1 + z * z) + g)
        unresolved += not report.resolved
        assert report.passed or not report.resolved, str(report)
        assert not check_gradient(function, z, lambda _, g=double: g).passed
    assert unresolved <= 1


@pytest.mark.parametrize("slope", [10, 100])
@pytest.mark.parametrize("d", [30, 60, 257, 1000])
def test_a_mean_in_float32_beside_a_steep_part_is_no_ripple(d: int, slope: float) -> None:
    """What float64 rounds off a sum was taken for it: a third of the right gradients failed, and
    those passed that left all of the mean out."""
    for seed in range(12):
        z = np.rint(2 * np.random.default_rng(seed).standard_normal(d))

        def function(x: Any) -> Any:
            single = 1 / (1 + np.exp(-x.astype(np.float32)))
            return (single.astype(float) / d + slope * x).sum()

        mean = 0.25 / np.cosh(z / 2) ** 2 / d
        check_gradient(function, z, lambda _, g=mean: slope + g).raise_if_failed()
        assert not check_gradient(function, z, lambda z: slope + 0 * z).passed


@pytest.mark.parametrize("constant", [12345, 10**6, 10**9])
def test_a_whole_constant_does_not_make_a_flat_function_short(constant: float) -> None:
    """It fits float32, and so a wrong slope was one that float32 hides: it passed."""
    z = np.array([-0.04, -0.03])
    for wrong in (1e-3, 0.1):
        report = check_gradient(
            lambda z: constant + np.sum(np.maximum(z, 0) ** 2), z, lambda _, g=wrong: [g, 0]
        )
        assert not report.passed


@pytest.mark.parametrize(("constant", "kink"), [(100, 1e-4), (12345, 1e-3), (10**9, 0.05)])
def test_a_kink_beside_a_constant_is_seen_down_to_its_cube_root(
    constant: float, kink: float
) -> None:
    """Those that are ten times as large as the guide's limit."""
    report = check_gradient(
        lambda x: (x * x + kink * abs(x - 1)).sum() + constant, [1.0], lambda x: 2 * x
    )
    assert not report.passed
    assert report.kink


@pytest.mark.parametrize("scale", [1e-4, 1e-6, 1e-8])
def test_a_straight_line_in_float32_has_no_kink_near_0(scale: float) -> None:
    """Its rounding falls with the step, as a kink's bend does: up to a third had one."""
    for seed in range(30):
        z = np.random.default_rng(seed).standard_normal(1) * scale
        check_gradient(
            lambda x: x.astype(np.float32) * np.float32(0.7), z, lambda _: [0.7]
        ).raise_if_failed()


def test_derivatives_are_given_p_in_the_dtype_that_the_function_returned() -> None:
    """In float64 an entry at its bound was not at it any more, nor two products the same."""
    z, upper = np.array([2, 0.1, 0.05]), np.array([0.35, 0.9, 0.9])
    check_jacobian(
        lambda x: pyentmax.csparsemax(x.astype(np.float32), upper),
        z,
        lambda p: pyentmax.csparsemax_jacobian(p, upper),
    ).raise_if_failed()
    for name in ("normmax", "fusedmax", "entmax15"):
        mapping, jacobian, vjp, jvp = (
            getattr(pyentmax, f"{name}{what}") for what in ("", "_jacobian", "_vjp", "_jvp")
        )
        for seed in range(10):
            z = np.random.default_rng(seed).standard_normal(5)

            def single(x: Any, mapping: Any = mapping) -> Any:
                return mapping(x.astype(np.float32))

            for report in (check_jacobian(single, z, jacobian), check_vjp(single, z, vjp, jvp)):
                assert report.passed or not report.resolved, str(report)


@pytest.mark.parametrize(
    ("fn", "z", "wrong"),
    [
        (lambda z: z + 1e7, [0.3, 0.1, -2], np.zeros((3, 3), np.float32)),
        (lambda z: z + 1e6, [0.3, 0.1, -2], 1.2 * np.eye(3, dtype=np.float32)),
        (pyentmax.softmax, [7, 0, 0], np.zeros((3, 3), np.float16)),
    ],
)
def test_a_short_jacobian_of_a_function_in_float64_is_held_to_float64(
    fn: Any, z: Any, wrong: Any
) -> None:
    assert not check_jacobian(fn, z, lambda p: wrong).passed


@pytest.mark.parametrize("constant", [0.1, 1000])
def test_what_is_curved_beside_stairs_of_float32_is_no_ripple(constant: float) -> None:
    """How it bends counted as a ripple of the slopes, and the measured rounding was forgotten."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        d, steep = int(rng.integers(1, 9)), 10 ** rng.uniform(0, 2)
        z = np.rint(4 * rng.standard_normal(d)) / 2

        def function(x: Any, d: int = d, steep: float = steep) -> Any:
            single = np.log1p(x.astype(np.float32) ** 2).astype(float)
            return (single / d + steep * np.exp(x)).sum() + constant

        part = 2 * z / (1 + z * z) / d
        report = check_gradient(function, z, lambda z, s=steep, p=part: s * np.exp(z) + p)
        assert report.passed or not report.resolved, str(report)
        left_out = check_gradient(function, z, lambda z, s=steep: s * np.exp(z))
        assert not left_out.passed or np.abs(part).max() < left_out.estimate + left_out.tolerance


@pytest.mark.parametrize("constant", [0, 1000])
def test_stairs_at_whole_scores_are_seen_beside_what_is_curved(constant: float) -> None:
    """Points that happened to lie on a stair hid it from others: a wrong gradient passed."""
    passed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z, w = rng.standard_normal(2), rng.standard_normal(2)
        z = np.rint(2 * z)

        def function(x: Any, w: Any = w) -> Any:
            single = np.arctan(x.astype(np.float32)).astype(float)
            return (w * single + (x + 1) ** 2).sum() + constant

        report = check_gradient(function, z, lambda z, w=w: w / (1 + z * z) + 2 * (z + 1))
        assert report.passed or not report.resolved, str(report)
        assert not check_gradient(function, z, lambda z: 2 * (z + 1)).passed
        passed += report.passed
    assert passed >= 30


def test_a_function_of_several_shapes_is_named() -> None:
    def changing(z: Any) -> Any:
        return z if z[0] == 1 else z[:, None] * z

    with pytest.raises(ValueError, match=r"one shape for all z, got \(2,\) at z and \(2, 2\)"):
        check_jacobian(changing, [1.0, 2.0], np.diag)


@pytest.mark.parametrize("shape", [(30, 10), (20, 50)])
@pytest.mark.parametrize("name", ["sparsemax_loss", "entmax15_loss"])
def test_losses_of_many_rows_in_float32_pass(name: str, shape: tuple[int, int]) -> None:
    """Of sparsemax_loss, 8% failed."""
    loss, both = getattr(pyentmax, name), getattr(pyentmax, f"{name}_and_grad")
    for seed in range(15):
        rng = np.random.default_rng([seed, *shape])
        z, y = rng.standard_normal(shape), rng.integers(shape[1], size=shape[0])
        report = check_gradient(
            lambda z, y=y: loss(z.astype(np.float32), y), z, lambda z, y=y: both(z, y)[1]
        )
        assert report.passed, str(report)


def test_a_ripple_or_a_table_is_no_rounding_however_small() -> None:
    """Where it is less than float32 rounds to, its slopes tell the two apart."""

    def ripple(z: Any) -> Any:
        return np.sum(z + 1e-6 * np.sin(1e6 * z))

    z = np.array([1.0])
    check_gradient(ripple, z, lambda z: 1 + np.cos(1e6 * z)).raise_if_failed()
    assert not check_gradient(ripple, z, np.ones_like).passed

    knots = np.linspace(-5, 5, 100_001)
    table = np.sin(20 * knots)
    z = np.array([1.00002])
    after = np.searchsorted(knots, z)
    slope = (table[after] - table[after - 1]) / (knots[after] - knots[after - 1])
    check_gradient(lambda z: np.interp(z, knots, table).sum(), z, lambda _: slope).raise_if_failed()


def test_a_kink_in_float32_is_said_to_be_as_near_as_it_was_seen() -> None:
    """finest was a step at which rounding hid everything, and kinks were far outside of it."""
    rng = np.random.default_rng(0)
    kinks = 0
    for _ in range(150):
        z = float(np.float32(rng.uniform(-3, 3)))
        kink = float(np.float32(z + 10 ** rng.uniform(-5, -1)))
        height = np.float32(10 ** rng.uniform(-1, 1))

        def function(x: Any, kink: float = kink, height: Any = height) -> Any:
            return np.sum(height * np.maximum(x.astype(np.float32) - np.float32(kink), 0))

        report = check_gradient(function, [z], np.zeros_like)
        assert report.passed or report.kink or not report.resolved
        if report.kink:
            kinks += 1
            assert kink - z < 4 * report.finest
    assert kinks


def drawn_functions(makers: Any, count: int) -> list[tuple[str, int, Drawn]]:
    return [
        (make.__name__, seed, make(np.random.default_rng([seed, 35])))
        for make in makers
        for seed in range(count)
    ]


def assert_hard_ones_are_told_right_from_wrong(count: int) -> None:
    for name, seed, drawn in drawn_functions(DIFFERENTIABLE, count):
        right = drawn.gradient(drawn.z)
        report = check_gradient(drawn.loss, drawn.z, lambda z, right=right: right)
        assert report.passed or not report.resolved, (name, seed, str(report))
        assert not report.kink, (name, seed, str(report))
        more = right + 0.02 * np.max(np.abs(right))
        if np.max(np.abs(more - right)) > 1e-7:
            report = check_gradient(drawn.loss, drawn.z, lambda z, more=more: more)
            assert not report.passed, (name, seed, str(report))


def assert_no_gradient_passes_where_there_is_none(count: int) -> None:
    for name, seed, drawn in drawn_functions(BROKEN, count):
        report = check_gradient(drawn.loss, drawn.z, drawn.gradient)
        assert not report.passed, (name, seed, str(report))
        assert report.kink or not report.resolved, (name, seed, str(report))


def test_functions_that_are_hard_on_differences() -> None:
    assert_hard_ones_are_told_right_from_wrong(15)
    assert_no_gradient_passes_where_there_is_none(15)


@pytest.mark.deep
def test_many_functions_that_are_hard_on_differences() -> None:
    assert_hard_ones_are_told_right_from_wrong(300)
    assert_no_gradient_passes_where_there_is_none(300)
