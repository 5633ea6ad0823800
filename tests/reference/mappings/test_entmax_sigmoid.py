"""α-sigmoid and the one-vs-all losses: many digits, the problem they solve, differences, edges."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from finite_differences import central_difference
from scipy.special import expit
from stages import sample, slow

import pyentmax as pe
from pyentmax.reference.mappings import entmax_sigmoid as module

ALPHAS = [0.05, 0.8, 1.0, 1 + 1e-8, 1.001, 1.1, 1.5, 1.75, 2.0, 2.2, 7.5, 50.0]
DTYPES = [np.float32, np.float64]
DIGITS = 50
ROUNDINGS = 64  # of a derivative: each power takes a few, and there are some ten


@cache
def smaller(a: Any, alpha: Any) -> Any:
    """The smaller probability for the scores [a, 0] by a bracketing solver, in many digits."""
    a, beta = mpmath.mpf(a), mpmath.mpf(alpha) - 1
    if beta == 0:
        return 1 / (1 + mpmath.exp(a))
    if beta * a >= 1:
        return mpmath.mpf(0)
    if a == 0:
        return mpmath.mpf(1) / 2

    power = min(beta, 1)  # of u = q^power, in which the left side is nearly a line
    ends = (mpmath.mpf(0), mpmath.mpf(2) ** -power)
    if beta < 0:
        ends = (max(1 - beta * a, ends[1]), ends[1] - beta * a)

    def excess(u: Any) -> Any:
        q = u ** (1 / power)
        return (1 - q) ** beta - q**beta - beta * a

    solver = "anderson" if beta < 10 else "bisect"
    return mpmath.findroot(excess, ends, solver=solver, tol=1e-90, maxsteps=200) ** (1 / power)


def exact(z: Any, alpha: Any) -> Any:
    """p in many digits."""
    q = smaller(abs(mpmath.mpf(z)), alpha)
    return 1 - q if z > 0 else q


def exact_loss(z: Any, y: Any, alpha: Any) -> Any:
    """The loss by its definition, in many digits."""
    z, y, alpha = mpmath.mpf(z), mpmath.mpf(y), mpmath.mpf(alpha)

    def entropy(p: Any) -> Any:
        parts = [x for x in (p, 1 - p) if x > 0]
        if alpha == 1:
            return -sum(x * mpmath.log(x) for x in parts)
        return sum(x - x**alpha for x in parts) / (alpha * (alpha - 1))

    p = exact(z, alpha)
    return p * z + entropy(p) - entropy(y) - y * z


def scores(alpha: float, dtype: Any) -> Any:
    """Scores inside the support, at its edge, near 0, and beyond; p(z) is 1 − p(−z)."""
    edge = 1 / (alpha - 1) if alpha > 1.02 else 40.0
    shares = [1e-30, 0.01, 0.3, 0.9, 0.9999, 1 - 1e-6, 1.0, 1e8]
    return np.append(-edge * np.array(shares), [0, edge / 2]).astype(dtype)


@pytest.fixture(autouse=True)
def many_digits() -> Any:
    with mpmath.workdps(DIGITS):
        yield


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", sample(ALPHAS))
def test_accuracy_keeps_the_contract(alpha: float, dtype: Any) -> None:
    z, epsilon = scores(alpha, dtype), float(np.finfo(dtype).eps)
    tiny = float(np.finfo(dtype).tiny)  # below which floats have fewer digits
    for function in (pe.entmax_sigmoid, pe.entmax_sigmoid.reference):
        found = function(z, alpha)
        assert found.dtype == dtype
        for x, p in zip(z.tolist(), found.tolist(), strict=True):
            right, range_ = exact(x, alpha), max(1, min(abs(x), 1 / max(alpha - 1, 1e-300)))
            if alpha <= 2:
                s = right ** (2 - mpmath.mpf(alpha)) if right else 0
                assert abs(p - right) <= 4 * epsilon * right + 16 * epsilon * s * range_ + tiny
            else:  # exact for scores moved by a little
                moved = 8 * epsilon * range_
                low, high = exact(x - moved, alpha), exact(x + moved, alpha)
                assert low - 4 * epsilon <= p <= high + 4 * epsilon


@pytest.mark.parametrize("alpha", [1, 1.3, 1.5, 2, 3])
def test_equals_entmax_of_two_scores_and_textbook(alpha: float) -> None:
    z = np.linspace(-3, 3, 41)
    pairs = np.stack([z, np.zeros_like(z)], axis=-1)
    np.testing.assert_allclose(
        pe.entmax_sigmoid(z, alpha), pe.entmax(pairs, alpha)[:, 0], rtol=1e-14, atol=1e-15
    )
    if alpha > 1:
        book = [module.textbook(x, alpha) for x in z]
        np.testing.assert_allclose(pe.entmax_sigmoid(z, alpha), book, rtol=1e-12, atol=1e-14)
        book = [module.textbook_loss(x, 0.3, alpha) for x in z]
        found = pe.entmax_sigmoid_loss(z, np.full(41, 0.3), alpha, reduction="none")
        np.testing.assert_allclose(found, book, rtol=1e-12, atol=1e-14)
    else:
        np.testing.assert_allclose(pe.entmax_sigmoid(z, 1), expit(z), rtol=1e-14, atol=1e-15)


def assert_close(found: Any, right: list[Any]) -> None:
    epsilon = float(np.finfo(found.dtype).eps)
    for x, y in zip(found.tolist(), right, strict=True):
        assert abs(x - y) <= ROUNDINGS * epsilon * (abs(y) + 1), (x, y)


@pytest.mark.parametrize("alpha", [1.25, *slow(1.0, 2.5, 1 + 1e-8, 1.001, 1.5, 2.0)])
def test_derivatives_against_many_digits(alpha: float) -> None:
    """Of the exact p by differences of 50 digits: in z and in α."""
    edge = min(1 / (alpha - 1), 30) if alpha > 1 else 30
    z = edge * np.array([-0.99, -0.6, -0.01, -1e-6, 0.0])  # those of −z are the same
    h = mpmath.mpf(10) ** -15
    first, by_alpha = [], []
    for x in z.tolist():
        first.append((exact(x + h, alpha) - exact(x - h, alpha)) / (2 * h))
        up, down = mpmath.mpf(alpha) + h, mpmath.mpf(alpha) - (h if alpha > 1 else 0)
        by_alpha.append((exact(x, up) - exact(x, down)) / (up - down))
    p = pe.entmax_sigmoid(z, alpha)
    assert_close(pe.entmax_sigmoid_jvp(p, np.ones_like(z), alpha), first)
    atol = 1e-13 if alpha > 1 else 1e-12  # a one-sided difference, at 1
    found = pe.entmax_sigmoid_grad_alpha(p, alpha)
    np.testing.assert_allclose(found, [float(x) for x in by_alpha], rtol=1e-12, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.slow
@pytest.mark.parametrize("alpha", [4.0, 30.0, 100.0, 1000.0])
def test_large_alpha_derivative_near_0_keeps_digits(alpha: float, dtype: Any) -> None:
    """For α = 50 and a score of 2e-21 it was −8192 in float32, not 2e-7."""
    z = -np.geomspace(1e-30, 0.5 / (alpha - 1), 12).astype(dtype)
    h = mpmath.mpf(10) ** -15
    right = [(exact(x, alpha + h) - exact(x, alpha - h)) / (2 * h) for x in z.tolist()]
    assert_close(pe.entmax_sigmoid_grad_alpha(pe.entmax_sigmoid(z, alpha), alpha), right)


@pytest.mark.parametrize("product", [pe.entmax_sigmoid_jvp, pe.entmax_sigmoid_vjp])
def test_products_are_slopes_times_direction(product: Any) -> None:
    z, v = np.random.default_rng(0).standard_normal((2, 3, 4))
    alpha = np.array([1, 1.3, 2, 2.7])
    p = pe.entmax_sigmoid(z, alpha)
    expected = pe.entmax_sigmoid_jvp(p, np.ones_like(p), alpha) * v
    np.testing.assert_allclose(product(p, v, alpha), expected, rtol=1e-15, atol=0)
    np.testing.assert_array_equal(product([0.0, 1.0], [np.nan, np.inf]), 0)


def test_vjp_alpha_has_shape_of_alpha() -> None:
    rng = np.random.default_rng(0)
    z, g = rng.normal(size=(2, 2, 3, 4))
    for shape in ((), (4,), (3, 1), (2, 1, 4)):
        alpha = 1.1 + rng.random(shape)
        found = pe.entmax_sigmoid_vjp_alpha(pe.entmax_sigmoid(z, alpha), g, alpha)
        assert found.shape == shape
        slope = central_difference(lambda a: pe.entmax_sigmoid(z, a), alpha, g)
        # Central differences: the step's square, and rounding over the step.
        np.testing.assert_allclose(found, slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", sample(ALPHAS, 3))
def test_losses_against_many_digits(alpha: float, dtype: Any) -> None:
    """Of labels to a few roundings, however small; of probabilities, to those of the terms."""
    edge = 1 / (alpha - 1) if alpha > 1.02 else 40
    z = (edge * np.array([-0.9999, -0.9, -0.5, -0.1, 0, 1e-3, 0.3, 0.7, 0.99, 2])).astype(dtype)
    epsilon, y = float(np.finfo(dtype).eps), np.array([[0.0], [0.25], [1.0]], dtype)
    targets = np.broadcast_to(y, (3, len(z)))
    for function in (pe.entmax_sigmoid_loss, pe.entmax_sigmoid_loss.reference):
        found = function(np.tile(z, (3, 1)), targets, alpha, reduction="none")
        for (i, j), loss in np.ndenumerate(found):
            x, target = float(z[j]), float(y[i, 0])
            right = exact_loss(x, target, alpha)
            # What rounding β z moves a score by, times the slope.
            moved = 8 * epsilon * max(abs(x), 1) * abs(exact(x, alpha) - target)
            # Above α = 2, p is exact for scores moved by 8ε.
            steep = 64 * epsilon**2 if alpha <= 2 else 64 * epsilon**2 + epsilon / 8
            between = 0 if target in (0, 1) else 16 * epsilon * max(abs(x), 1)
            room = ROUNDINGS * epsilon * right + moved + steep + between
            assert abs(float(loss) - right) <= room


@pytest.mark.parametrize("dtype", DTYPES)
def test_entry_does_not_depend_on_its_place(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    alphas = np.array([1, 1.2, 1.5, 1.7, 2, 3, 2.5, 40, np.inf])
    z, alpha = (0.5 * rng.standard_normal((70, 9))).astype(dtype), rng.permuted(alphas)
    together = pe.entmax_sigmoid(z, alpha)
    for column, a in enumerate(alpha):
        np.testing.assert_array_equal(together[:, column], pe.entmax_sigmoid(z[:, column], a))
        alone = [pe.entmax_sigmoid(x, a) for x in z[:5, column]]
        np.testing.assert_array_equal(together[:5, column], alone)
    least = np.array([-1, 1], dtype) * np.finfo(dtype).smallest_subnormal
    np.testing.assert_array_equal(pe.entmax_sigmoid(least, np.inf), [0, 1])
    many = np.resize(z, (1 << 16, 2))
    y = (many > 0).astype(dtype)
    cases: Any = ((pe.entmax_sigmoid, ()), (pe.one_vs_all_loss_and_grad, (y,)))
    for function, targets in cases:
        found = []
        for workers in (1, 2):
            with pe.set_workers(workers):
                found.append(function(many, *targets, 1.3))
        np.testing.assert_equal(*found)


# --- what every function takes --------------------------------------------------------------------

ELEMENTWISE = ["entmax_sigmoid", "entmax_sigmoid_grad_alpha"]


@pytest.mark.parametrize("alpha", [1, 1.01, 1.5, 1.7, 2, 3, 1e300, np.inf])
@pytest.mark.parametrize("dtype", [np.float16, *DTYPES])
def test_special_scores(alpha: float, dtype: Any) -> None:
    most = np.finfo(dtype).max
    z = np.array([-np.inf, -most, 0, most, np.inf, np.nan], dtype)
    with np.errstate(all="raise"):
        p = pe.entmax_sigmoid(z, alpha)
    np.testing.assert_array_equal(p, np.array([0, 0, 0.5, 1, 1, np.nan], dtype), strict=True)
    for name in ELEMENTWISE[1:]:
        with np.errstate(all="raise", over="ignore"):  # the slope at 0 is beyond floats for large α
            found = getattr(pe, name)(p, alpha)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found[[0, 1, 3, 4]], 0)
        assert np.isnan(found).tolist() == [False] * 5 + [True]
    for y, right in ((1, [np.inf, None, 0, 0]), (0, [0, 0, None, np.inf])):
        losses = pe.entmax_sigmoid_loss(z[[0, 1, 3, 4]], np.full(4, y), alpha, reduction="none")
        for loss, expected in zip(losses, right, strict=True):
            assert loss == expected if expected is not None else loss > 1e4


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_shapes_dtypes_layouts_masks_and_out(name: str) -> None:
    function = getattr(pe, name)
    z = np.random.default_rng(0).uniform(0.1, 0.9, size=(4, 6))  # scores, or probabilities
    expected = function(z, 1.3)
    np.testing.assert_allclose(function(z.astype(np.float32), 1.3), expected, rtol=1e-4, atol=1e-6)
    half = function(z.astype(np.float16), 1.3)
    again = function(z.astype(np.float16).astype(np.float32), 1.3).astype(np.float16)
    np.testing.assert_array_equal(half, again)
    z.flags.writeable = False
    np.testing.assert_array_equal(function(z[::2, ::-1].T, 1.3), expected[::2, ::-1].T)
    assert function(np.zeros((0, 3)), 1.3).shape == (0, 3)
    # NumPy's powers of its scalars may differ in the last bit.
    np.testing.assert_allclose(function(0.25, 1.3), function([0.25], 1.3)[0], rtol=1e-15, atol=0)
    assert function([0, 1], 1.3).dtype == np.float64
    mask = np.arange(6) < 4
    masked = function(np.where(mask, z, np.nan), 1.3, mask=mask)
    np.testing.assert_array_equal(masked, np.where(mask, expected, 0))
    if name == "entmax_sigmoid":
        same = z.copy()
        assert function(same, 1.3, out=same) is same
        np.testing.assert_array_equal(same, expected)


def test_bad_arguments_are_named() -> None:
    z = np.zeros((2, 3))
    wrong: list[tuple[type[Exception], str, Any, Any]] = [
        (ValueError, "alpha must be above 0, got 0", pe.entmax_sigmoid, (z, 0)),
        (
            ValueError,
            r"alpha of shape \(2,\) does not .* entries",
            pe.entmax_sigmoid,
            (z, [1.5, 2]),
        ),
        (ValueError, r"v must have the shape of p, \(2, 3\)", pe.entmax_sigmoid_jvp, (z, z[0])),
        (TypeError, "z must hold real numbers", pe.entmax_sigmoid, ([1j],)),
        (ValueError, "labels must be in 0 … 2, got 3", pe.one_vs_all_loss, (z, [0, 3])),
        (ValueError, r"targets y must be in \[0, 1\], got 2", pe.one_vs_all_loss, (z, z + 2)),
        (ValueError, r"integer labels of shape \(2,\) or", pe.one_vs_all_loss, (z, [0.0, 1.0])),
    ]
    for error, message, function, given_ in wrong:
        with pytest.raises(error, match=message):
            function(*given_)


# --- one-vs-all -----------------------------------------------------------------------------------


def per_entry(z: Any, y: Any, alpha: Any) -> Any:
    """The losses and gradients of α-entmax over two classes, a score and 0."""
    pairs, targets = (np.stack(p, axis=-1) for p in ((z, np.zeros_like(z)), (y, 1 - y)))
    loss, grad = pe.entmax_loss_and_grad(pairs, targets, alpha, reduction="none")
    return loss, grad[..., 0]


@pytest.mark.parametrize("alpha", [1, 1.3, 1.5, 2])
def test_one_vs_all_sums_over_classes(alpha: float) -> None:
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(5, 2, 4)), rng.integers(0, 4, (5, 2))
    one_hot = (labels[..., None] == np.arange(4)).astype(float)
    several, between = rng.integers(0, 2, z.shape), rng.random(z.shape)
    weight, kept = rng.random((5, 2)), rng.random(z.shape) < 0.7
    for y, dense in ((labels, one_hot), (several, several), (several > 0, several), (between,) * 2):
        loss, grad = per_entry(z, dense.astype(float), alpha)
        for mask in (None, kept):
            live = np.ones_like(kept) if mask is None else mask
            rows, slopes = (loss * live).sum(-1), grad * live
            total = (weight * live.any(-1)).sum()
            cases = {
                "none": (weight * rows, weight[..., None] * slopes),
                "sum": ((weight * rows).sum(), weight[..., None] * slopes),
                "mean": ((weight * rows).sum() / total, weight[..., None] * slopes / total),
            }
            for reduction, expected in cases.items():
                options: Any = {"reduction": reduction, "weight": weight, "mask": mask}
                found = pe.one_vs_all_loss_and_grad(z, y, alpha, **options)
                for mine, right in zip(found, expected, strict=True):
                    np.testing.assert_allclose(mine, right, rtol=1e-12, atol=1e-14)
                alone = pe.one_vs_all_loss(z, y, alpha, **options)
                np.testing.assert_array_equal(alone, found[0])


def assert_equal_pairs(found: Any, expected: Any) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_ignored_targets_count_nothing() -> None:
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(4, 3)), np.array([0, -100, 2, -100])
    loss, grad = pe.one_vs_all_loss_and_grad(z, labels, ignore_index=-100)
    assert_equal_pairs((loss, grad[::2]), pe.one_vs_all_loss_and_grad(z[::2], labels[::2]))
    np.testing.assert_array_equal(grad[1::2], 0)
    # Of several labels, single ones may be unknown.
    several = np.array([[1, -1, 0], [-1, -1, -1], [0, 1, 1], [1, 1, 1]])
    expected = pe.one_vs_all_loss_and_grad(z, np.maximum(several, 0), mask=several != -1)
    for scores_ in (z, np.where(several == -1, np.nan, z)):
        found = pe.one_vs_all_loss_and_grad(scores_, several, ignore_index=-1)
        assert_equal_pairs(found, expected)
    each = pe.entmax_sigmoid_loss(z, several, ignore_index=-1, reduction="none")
    np.testing.assert_array_equal(each[several == -1], 0)
    assert float(pe.one_vs_all_loss(z, np.full((4, 3), -1), ignore_index=-1)) == 0
    zero = pe.one_vs_all_loss(z, [0, 9, 1, 9], weight=[1, 0, 1, 0])
    np.testing.assert_array_equal(zero, pe.one_vs_all_loss(z[::2], [0, 1]))


def test_axes_smoothing_and_alpha_per_class() -> None:
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(3, 4, 2)), rng.integers(0, 4, (3, 2))
    alpha = np.array([1, 1.3, 1.5, 2])
    last = pe.one_vs_all_loss_and_grad(np.moveaxis(z, 1, -1), labels, alpha)
    along = pe.one_vs_all_loss_and_grad(z, labels, alpha[:, None], axis=1)
    assert_equal_pairs(along, (last[0], np.moveaxis(last[1], -1, 1)))
    one_hot = (labels[:, None] == np.arange(4)[:, None]).astype(float)
    smooth = pe.one_vs_all_loss_and_grad(z, labels, axis=1, label_smoothing=0.2)
    expected = pe.one_vs_all_loss_and_grad(z, 0.8 * one_hot + 0.1, axis=1)
    assert_equal_pairs(smooth, expected)
    both = pe.one_vs_all_loss(z, z > 0, axis=(1, 2), reduction="none")
    np.testing.assert_allclose(
        both, pe.entmax_sigmoid_loss(z, z > 0, reduction="none").sum((1, 2)), rtol=1e-13, atol=1e-15
    )


def test_sigmoid_loss_averages_over_entries() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(3, 4)).astype(np.float16), rng.integers(0, 2, (3, 4))
    loss, grad = pe.entmax_sigmoid_loss_and_grad(z, y)
    assert loss.dtype == grad.dtype == np.float16
    each = pe.entmax_sigmoid_loss(z.astype(float), y, reduction="none")
    np.testing.assert_allclose(loss, each.mean(), rtol=1e-3, atol=1e-4)
    weight = rng.random((3, 4))
    found = pe.entmax_sigmoid_loss(z.astype(float), y, weight=weight)
    np.testing.assert_allclose(found, np.average(each, weights=weight), rtol=1e-13, atol=0)
    assert pe.entmax_sigmoid_loss(0.0, 1, 2) == 0.25
    assert float(pe.entmax_sigmoid_loss(np.zeros((0, 2)), np.zeros((0, 2)))) == 0


@pytest.mark.parametrize("kind", [int, bool, float])
def test_targets_of_another_shape_are_refused(kind: type) -> None:
    """Of scores in one column, whole targets without it were taken for labels: 0 became 1."""
    for z in (np.array([[5.0], [-5.0]]), np.array([3.0])):
        for loss in (pe.entmax_sigmoid_loss, pe.entmax_sigmoid_loss.reference):
            shape = re.escape(str(z.shape))
            with pytest.raises(ValueError, match=rf"^y must have the shape of z, {shape}, got \("):
                loss(z, np.zeros(z.shape[:-1], kind))
        right = pe.entmax_sigmoid_loss(z, np.zeros(z.shape, kind), reduction="none")
        np.testing.assert_array_equal(right, np.maximum(z, 0))
