"""Fenchel-Young losses: definition, gradient, margin, options, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from exact_rows import exact_row
from stages import slow

import pyentmax
from pyentmax import MAPPINGS, check_gradient, fenchel_young_loss

CASES: list[tuple[str, dict[str, float]]] = [("softmax", {}), ("sparsemax", {}), ("entmax15", {})]
CASES += [("normmax", {"alpha": alpha}) for alpha in (1.1, 5)]
CASES += [("entmax", {"alpha": alpha}) for alpha in (1, 1 + 1e-9, 1.2, 1.5, 2, 3, np.inf)]


def test_class_weights_are_weights_of_labels() -> None:
    z, y = np.random.default_rng(0).normal(size=(4, 3)), np.array([0, 1, 2, -100])
    weight = np.array([0.5, 2, 1])[np.where(y == -100, 0, y)]
    found = pyentmax.softmax.loss(z, y, weight=weight, ignore_index=-100)
    each = pyentmax.softmax.loss(z[:3], y[:3], reduction="none")
    np.testing.assert_allclose(found, np.average(each, weights=[0.5, 2, 1]), rtol=1e-14)


every_case = pytest.mark.parametrize(
    ("name", "params"), CASES, ids=[f"{n}{list(p.values())}" for n, p in CASES]
)


def loss_of(name: str) -> Callable[..., Any]:
    return getattr(pyentmax, name).loss


def loss_and_grad_of(name: str) -> Callable[..., Any]:
    return getattr(pyentmax, name).loss_and_grad


def random_problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels, distributions."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(5) / 2, size=(3, 4))
    return rng.standard_normal((3, 4, 5)) * 2, rng.integers(0, 5, (3, 4)), q


@every_case
def test_equals_the_definition(name: str, params: dict[str, float]) -> None:
    z, labels, q = random_problem()
    record, values = MAPPINGS[name], tuple(params.values())
    p = record(z, *values)
    conjugate = np.sum(p * z, axis=-1) - record.regularizer(p, *values)
    for y, target in ((labels, np.eye(5)[labels]), (q, q)):
        expected = conjugate + record.regularizer(target, *values) - np.sum(target * z, axis=-1)
        got = loss_of(name)(z, y, **params, reduction="none")
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
        body = loss_of(name).reference(z, y, **params, reduction="none")
        np.testing.assert_allclose(body, expected, rtol=1e-12, atol=1e-13)
        for mapping in (name, record):
            generic = fenchel_young_loss(z, y, mapping, reduction="none", **params)
            np.testing.assert_array_equal(generic, got)
        for reduction in ("mean", "sum"):
            total = loss_of(name)(z, y, **params, reduction=reduction)
            np.testing.assert_allclose(total, getattr(np, reduction)(expected), rtol=1e-12)


@pytest.mark.parametrize(("name", "params"), [CASES[0], CASES[-2], *slow(*CASES[1:-2])])
@pytest.mark.parametrize("soft", [False, True])
def test_gradient_by_finite_differences(name: str, params: dict[str, float], soft: bool) -> None:
    z, labels, q = (a[0, :3] for a in random_problem(1))
    mask = np.random.default_rng(1).random((3, 5)) < 0.6
    np.put_along_axis(mask, labels[:, None], True, axis=-1)
    allowed = np.where(mask, q, 0)
    y = allowed / allowed.sum(axis=-1, keepdims=True) if soft else labels
    options: dict[str, Any] = {
        "reduction": "sum" if soft else "mean",
        "weight": np.array([1.0, 0.0, 0.5]),
        "mask": mask,
        "label_smoothing": 0.1,
        **params,
    }
    check_gradient(
        lambda z: loss_of(name)(z, y, **options),
        z,
        lambda z: loss_and_grad_of(name)(z, y, **options)[1],
    ).raise_if_failed()


@every_case
def test_gradient_is_p_minus_q(name: str, params: dict[str, float]) -> None:
    z, labels, q = random_problem(2)
    p = MAPPINGS[name](z, *params.values())
    for y, target in ((labels, np.eye(5)[labels]), (q, q)):
        loss, grad = loss_and_grad_of(name)(z, y, **params)
        assert loss == loss_of(name)(z, y, **params)
        np.testing.assert_allclose(grad, (p - target) / 12, rtol=0, atol=1e-16)
        _, grad = loss_and_grad_of(name)(z, y, **params, reduction="none")
        np.testing.assert_allclose(grad, p - target, rtol=0, atol=1e-15)


@every_case
def test_no_digits_are_lost_to_an_offset(name: str, params: dict[str, float]) -> None:
    for dtype in (np.float32, np.float64):
        z = np.array([[0.0, 0.5, -1.0, 0.25]] * 4, dtype)
        expected = loss_of(name)(z, np.arange(4), **params, reduction="none")
        for offset in (2.0**13, -(2.0**13)):
            shifted = (z + dtype(offset)).astype(dtype)
            got = loss_of(name)(shifted, np.arange(4), **params, reduction="none")
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("alpha", [1, 1.001, 1.5, 1.9])
def test_accuracy_against_many_digits(alpha: float) -> None:
    z = np.random.default_rng(5).standard_normal(8)
    p, _ = exact_row(z, alpha)
    with mpmath.workdps(30):
        y, beta = [mpmath.mpf(float(x)) for x in z], mpmath.mpf(alpha) - 1
        if beta == 0:
            entropy = -sum(x * mpmath.log(x) for x in p)
        else:
            entropy = sum(x - x ** (1 + beta) for x in p) / ((1 + beta) * beta)
        conjugate = sum(x * t for x, t in zip(p, y, strict=True)) + entropy
        exact = [float(conjugate - t) for t in y]
    for dtype, tolerance in ((np.float64, 2e-15), (np.float32, 1e-6)):
        rows = np.broadcast_to(z.astype(dtype), (8, 8))
        got = pyentmax.entmax.loss(rows, np.arange(8), alpha, reduction="none")
        np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance)


def test_omega_that_is_not_zero_at_corners() -> None:
    """Losses of others assume Ω(e_y) = 0 for labels: with ½‖p‖² theirs are off by ½."""

    @pyentmax.mapping()
    def euclidean(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
        return z, None, axis, mask, out

    euclidean.rule(pyentmax.sparsemax.body)
    euclidean.regularizer.rule(lambda p: np.sum(p * p, axis=-1) / 2)
    z, labels, q = random_problem(7)
    for y in (labels, q):
        loss, grad = pyentmax.fenchel_young_loss_and_grad(z, y, euclidean)
        expected, slope = pyentmax.sparsemax.loss_and_grad(z, y)
        np.testing.assert_allclose(loss, expected, rtol=1e-13)
        np.testing.assert_allclose(grad, slope, rtol=1e-13, atol=1e-16)


@every_case
def test_any_axis(name: str, params: dict[str, float]) -> None:
    z, labels, q = random_problem(8)
    for axis in (0, 1, -2, -3):
        options: dict[str, Any] = {**params, "reduction": "none"}
        scores = np.moveaxis(z, -1, axis)
        for y, moved in ((labels, labels), (q, np.moveaxis(q, -1, axis))):
            loss, grad = loss_and_grad_of(name)(z, y, **options)
            got, got_grad = loss_and_grad_of(name)(scores, moved, axis=axis, **options)
            np.testing.assert_allclose(got, loss, rtol=1e-13, atol=1e-15)
            np.testing.assert_allclose(np.moveaxis(got_grad, axis, -1), grad, rtol=0, atol=1e-15)


@every_case
def test_weights_and_ignored_rows(name: str, params: dict[str, float]) -> None:
    z, labels, _ = random_problem(9)
    loss = loss_of(name)
    each = loss(z, labels, **params, reduction="none")
    weight = np.random.default_rng(9).random((3, 4))
    weight[0, 0] = 0
    np.testing.assert_allclose(
        loss(z, labels, **params, weight=weight), np.sum(weight * each) / weight.sum(), rtol=1e-14
    )
    column = weight[:, :1] + 1
    np.testing.assert_allclose(
        loss(z, labels, **params, weight=column, reduction="sum"), np.sum(column * each), rtol=1e-14
    )
    ignored = labels.copy()
    ignored[1], ignored[2, 3] = -100, -100
    spoiled = z.copy()
    spoiled[1], spoiled[2, 3] = np.nan, np.inf
    got, grad = loss_and_grad_of(name)(spoiled, ignored, **params, ignore_index=-100)
    counted = ignored != -100
    np.testing.assert_allclose(got, each[counted].mean(), rtol=1e-14)
    assert (grad[~counted] == 0).all()
    assert np.isfinite(grad).all()
    nothing, grad = loss_and_grad_of(name)(z, np.full((3, 4), -1), **params, ignore_index=-1)
    assert nothing == 0
    assert (grad == 0).all()
    empty, grad = loss_and_grad_of(name)(np.zeros((0, 5)), np.zeros(0, int), **params)
    assert empty == 0
    assert grad.shape == (0, 5)


@every_case
def test_mask(name: str, params: dict[str, float]) -> None:
    z, labels, _ = random_problem(10)
    mask = np.random.default_rng(10).random(z.shape) < 0.6
    np.put_along_axis(mask, labels[..., None], True, axis=-1)
    expected = loss_and_grad_of(name)(np.where(mask, z, -np.inf), labels, **params)
    got = loss_and_grad_of(name)(np.where(mask, z, np.nan), labels, **params, mask=mask)
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])
    assert np.isfinite(got[0])
    assert (got[1][~mask] == 0).all()
    # Smoothing spreads over what is left, else it would cost infinity.
    assert np.isfinite(loss_of(name)(z, labels, **params, mask=mask, label_smoothing=0.1))
    # A row with nothing left counts nothing; a target ruled out costs infinity.
    dead = mask.copy()
    dead[0, 0] = False
    each = loss_of(name)(z, labels, **params, mask=mask, reduction="none")
    got = loss_and_grad_of(name)(z, labels, **params, mask=dead)
    np.testing.assert_allclose(got[0], each.ravel()[1:].mean(), rtol=1e-14)
    assert (got[1][0, 0] == 0).all()
    away = np.arange(5) != 0
    assert loss_of(name)(np.zeros(5), 0, **params, mask=away) == np.inf


@every_case
@pytest.mark.parametrize("how", ["mask", "weight"])
def test_targets_of_uncounted_rows_are_ignored(
    name: str, params: dict[str, float], how: str
) -> None:
    z, labels, q = random_problem(14)
    counts = np.ones((3, 4), bool)
    counts[0, 1] = counts[2, 2] = False
    options = {"mask": counts[..., None]} if how == "mask" else {"weight": counts}
    strange_labels = np.where(counts, labels, [-1, 7, 99, -100])
    strange = np.where(counts[..., None], q, [[[0.0]], [[np.nan]], [[-3.0]]])
    for y, right in ((strange_labels, labels), (strange, q)):
        loss, grad = loss_and_grad_of(name)(z, y, **params, **options, reduction="none")
        expected, wanted = loss_and_grad_of(name)(z, right, **params, **options, reduction="none")
        np.testing.assert_array_equal(loss, expected)
        np.testing.assert_array_equal(grad, wanted)
        assert (loss[~counts] == 0).all()
    with pytest.raises(ValueError, match="must be"):
        loss_of(name)(z, strange_labels, **params)
    with pytest.raises(ValueError, match="must be"):
        loss_of(name)(z, strange, **params)


@every_case
def test_distributions_may_hold_anything_under_the_mask(
    name: str, params: dict[str, float]
) -> None:
    z, _, q = random_problem(15)
    mask = np.arange(5) != 3
    q = np.where(mask, q, 0)
    q /= q.sum(axis=-1, keepdims=True)
    expected = loss_and_grad_of(name)(z, q, **params, mask=mask)
    for filler in (np.nan, np.inf, -1.0):
        got = loss_and_grad_of(name)(z, np.where(mask, q, filler), **params, mask=mask)
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])


def test_options_that_do_not_fit_are_refused() -> None:
    z, labels, q = random_problem()
    hidden, masked, loss = np.zeros(z.shape, bool), np.ma.array, pyentmax.softmax.loss
    wrong: list[tuple[type[Exception], str, Any]] = [
        (TypeError, r"y is a numpy\.ma array.*ignore_index", lambda: loss(z, masked(labels))),
        (TypeError, r"y is a numpy\.ma array", lambda: loss(z, masked(q, mask=hidden))),
        (TypeError, r"mask is a numpy\.ma array; .*True where",
         lambda: loss(z, labels, mask=masked(~hidden))),
        (TypeError, r"weight is a numpy\.ma array; .*\.filled",
         lambda: loss(z, labels, weight=masked(np.ones((3, 4))))),
        (TypeError, r"out is a numpy\.ma array; .*plain",
         lambda: pyentmax.softmax(z, out=masked(np.zeros(z.shape)))),
        (TypeError, r"z is a numpy\.ma array; .*mask=", lambda: loss(masked(z), labels)),
        (ValueError, r"ignore_index is for integer labels.*weight=0",
         lambda: loss(z, q, ignore_index=-1)),
        (TypeError, r"label_smoothing must be a number in \[0, 1\], got str",
         lambda: loss(z, labels, label_smoothing="a")),
        (ValueError, "weight must be finite in float64, got inf",
         lambda: loss(z, labels, weight=np.inf)),
        (ValueError, r"weight must be finite in float32, got 1e\+39",
         lambda: loss(np.float32([[5, 0]]), [0], weight=[1e39], reduction="sum")),
        (TypeError, r"mapping must be a Mapping or the name.*got a function",
         lambda: fenchel_young_loss(z, labels, random_problem)),
        (ValueError, "mapping must be one of softmax, .*got 'hardmax'",
         lambda: fenchel_young_loss([[1.0]], [0], "hardmax")),
        (TypeError, r"entmax takes the parameters \(alpha\), got \(\)",
         lambda: fenchel_young_loss([[1.0]], [0], "entmax")),
        (TypeError, r"softmax takes the parameters \(\), got \(k\)",
         lambda: fenchel_young_loss([[1.0]], [0], "softmax", k=3)),
    ]  # fmt: skip
    for error, message, call in wrong:
        with pytest.raises(error, match=message):
            call()
    assert pyentmax.sparsemax.loss(np.float32([[5, 0]]), [0], weight=[1e39]) == 0


@every_case
def test_nan_rows_leave_other_losses_alone(name: str, params: dict[str, float]) -> None:
    z = np.array([[0.0, 1.0], [np.nan, 1.0], [np.inf, 0.0]])
    loss, grad = loss_and_grad_of(name)(z, [0, 0, 0], **params, reduction="none")
    assert np.isnan(loss).tolist() == [False, True, True]
    assert np.isnan(grad).all(axis=-1).tolist() == [False, True, True]


@every_case
def test_label_smoothing_is_a_smoothed_target(name: str, params: dict[str, float]) -> None:
    z, labels, q = random_problem(11)
    for y, target in ((labels, np.eye(5)[labels]), (q, q)):
        np.testing.assert_allclose(
            loss_of(name)(z, y, **params, label_smoothing=0.3),
            loss_of(name)(z, 0.7 * target + 0.3 / 5, **params),
            rtol=1e-13,
        )


@every_case
def test_dtypes(name: str, params: dict[str, float]) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        z = np.array([[-1000, -1001, -1002]], dtype)
        loss, grad = loss_and_grad_of(name)(z, [1], **params)
        assert (loss.dtype, grad.dtype) == (dtype, dtype)
        # Half precision is rounded once, in the end.
        digits = np.finfo(dtype).eps * (1 if dtype is np.float16 else 16)
        np.testing.assert_allclose(loss, loss_of(name)([[0, -1, -2]], [1], **params), rtol=digits)
    assert loss_of(name)([[0, -1, -2]], np.array([1], np.uint8), **params).dtype == np.float64


@every_case
def test_bad_input_is_named(name: str, params: dict[str, float]) -> None:
    z, labels, q = random_problem()
    negative = np.eye(5)[labels] * 2 - np.eye(5)[(labels + 1) % 5]
    wrong: list[tuple[str, Any, dict[str, Any]]] = [
        ("reduction must be one of mean, sum, none, got 'avg'", labels, {"reduction": "avg"}),
        (r"label_smoothing must be in \[0, 1\], got 2", labels, {"label_smoothing": 2}),
        (r"labels must be in 0 … 4, got 5.*ignore_index", np.full((3, 4), 5), {}),
        (r"got -100; rows to leave out", np.full((3, 4), -100), {"ignore_index": -1}),
        (r"y must be integer labels of shape \(3, 4\) or", labels[0], {}),
        (r"got dtype float64 and shape \(3, 4\)", labels.astype(float), {}),
        (r"must be ≥ 0 and sum to 1 within 0\.004", q * 0.99, {}),
        (r"smallest entry of -1", negative, {}),
        ("weight must be at least 0, got -1", labels, {"weight": -1}),
        (r"weight of shape \(3,\) does not broadcast", labels, {"weight": np.ones(3)}),
    ]
    for message, y, options in wrong:
        with pytest.raises(ValueError, match=message):
            loss_of(name)(z, y, **params, **options)


def test_distributions_in_bfloat16_are_accepted() -> None:
    """1/13 is off by nearly 2⁻⁸ of itself, and so is the sum; own results were refused."""
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    for d in (1, 2, 3, 13, 100, 299):
        uniform = np.full(d, 1 / d).astype(dtype)
        np.testing.assert_allclose(
            loss_of("softmax")(np.zeros(d), uniform), 0, rtol=0, atol=2.0**-8 * 6
        )
    z = np.random.default_rng(0).standard_normal((2000, 8)).astype(dtype)
    for name in ("softmax", "sparsemax", "entmax15"):
        assert np.isfinite(loss_of(name)(z, MAPPINGS[name](z)))


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15", "entmax"])
def test_regularisers_in_bfloat16_stay_in_it(name: str) -> None:
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    omega = MAPPINGS[name].regularizer
    assert omega is not None
    values = omega(np.eye(3).astype(dtype))
    assert values.dtype == dtype
    assert not np.signbit(values).any()


@pytest.mark.parametrize("form", ["", ".reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [2.0**-1040, 1e-50, 1e30, 3e38, 1.7e308])
def test_mean_depends_on_ratios_of_weights(size: float, dtype: type, form: str) -> None:
    z = np.array([[1, 0.5, 0], [0, 2, 0.3], [-np.inf] * 3], dtype)
    for name in ("softmax", "sparsemax", "entmax15"):
        loss = getattr(pyentmax, name).loss_and_grad
        loss = loss.reference if form else loss
        for ratios in ([1, 1, 0], [0.25, 1, 0.5], [1, 0, 0]):
            expected, gradient = loss(z, [0, 1, 2], weight=ratios)
            found, its = loss(z, [0, 1, 2], weight=size * np.array(ratios))
            np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps)
            np.testing.assert_allclose(its, gradient, rtol=0, atol=4 * np.finfo(dtype).eps)
    # A row that counts nothing takes no part, however much it weighs.
    loss = pyentmax.softmax.loss.reference if form else pyentmax.softmax.loss
    alone = loss(z[:2], [0, 1])
    together = loss(z, [0, 1, 2], weight=[size * 1e-60, size * 1e-60, size])
    if size * 1e-60 > 1e-300:
        np.testing.assert_allclose(together, alone, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("form", ["", ".reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masked_scores_add_nothing_to_losses(form: str, dtype: type) -> None:
    for n in (1, 4, 200, 3000):
        z = np.full((3, n), -np.inf, dtype)
        z[:, 0] = 0
        for function in (pyentmax.softmax.loss, pyentmax.softmax.loss_and_grad):
            function = function.reference if form else function
            heavy = 1e30  # what is below the least float is seen beside no such weight
            found = function(z, [0, 0, 0], reduction="none", weight=[1, 1, heavy])
            for result in found if isinstance(found, tuple) else (found,):
                np.testing.assert_array_equal(result, 0)


def test_rows_of_weight_0_change_no_bit() -> None:
    """The mean was scaled by a ratio of two sums, equal but for the order of their terms."""
    rng = np.random.default_rng(3)
    for length in range(5, 30, 5):
        z = rng.standard_normal((length, 32, 9)).astype(np.float32)
        y = rng.integers(9, size=(length, 32))
        lengths = rng.integers(1, length + 1, 32)
        weight = (np.arange(length) < lengths[:, None]).astype(np.float32).T  # in Fortran's order
        rounded = weight / weight.sum()
        expected = pyentmax.entmax15.loss_and_grad(z, y, weight=rounded, reduction="sum")
        got = pyentmax.entmax15.loss_and_grad(z, y, weight=weight)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other)
