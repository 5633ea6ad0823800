"""α-sigmoid and the one-vs-all losses: many digits, the problem they solve, edges."""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import expit
from stages import sample

import pyentmax as pe

ALPHAS = [0.05, 0.8, 1.0, 1 + 1e-8, 1.001, 1.1, 1.5, 1.75, 2.0, 2.2, 7.5, 50.0]
DTYPES = [np.float32, np.float64]
DIGITS = 50
ROUNDINGS = 64  # each power takes a few, and there are some ten


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


def sigmoid_loss(z: Any, y: Any, alpha: Any = 1.5) -> Any:
    """The loss of each entry, as a row of one class."""
    return pe.one_vs_all_loss(z[..., None], y[..., None], alpha, reduction="none")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", sample(ALPHAS))
def test_accuracy_keeps_the_contract(alpha: float, dtype: Any) -> None:
    z, epsilon = scores(alpha, dtype), float(np.finfo(dtype).eps)
    tiny = float(np.finfo(dtype).tiny)  # below which floats have fewer digits
    found = pe.entmax_sigmoid(z, alpha)
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


@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_closed_forms(alpha: float) -> None:
    z = np.linspace(-3, 3, 41)
    right = {1: expit(z), 2: np.clip((1 + z) / 2, 0, 1), 3: np.clip(0.5 + z, 0, 1)}[alpha]
    np.testing.assert_allclose(pe.entmax_sigmoid(z, alpha), right, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", sample(ALPHAS, 3))
def test_losses_against_many_digits(alpha: float, dtype: Any) -> None:
    """To the roundings of the terms that the loss is made of."""
    edge = 1 / (alpha - 1) if alpha > 1.02 else 40
    z = (edge * np.array([-0.9999, -0.9, -0.5, -0.1, 0, 1e-3, 0.3, 0.7, 0.99, 2])).astype(dtype)
    epsilon, y = float(np.finfo(dtype).eps), np.array([[0.0], [0.25], [1.0]], dtype)
    targets = np.broadcast_to(y, (3, len(z)))
    found = sigmoid_loss(np.tile(z, (3, 1)), targets, alpha)
    for (i, j), loss in np.ndenumerate(found):
        x, target = float(z[j]), float(y[i, 0])
        right = exact_loss(x, target, alpha)
        # What rounding β z moves a score by, times the slope.
        moved = 8 * epsilon * max(abs(x), 1) * abs(exact(x, alpha) - target)
        # Above α = 2, p is exact for scores moved by 8ε.
        steep = 64 * epsilon**2 if alpha <= 2 else 64 * epsilon**2 + epsilon / 8
        between = 16 * epsilon * max(abs(x), 1)  # of Ω*(z) + Ω(y) − y z, which cancel
        room = ROUNDINGS * epsilon * right + moved + steep + between
        assert abs(float(loss) - right) <= room


@pytest.mark.parametrize("alpha", [1, 1.01, 1.5, 1.7, 2, 3, 1e300, np.inf])
@pytest.mark.parametrize("dtype", [np.float16, *DTYPES])
def test_special_scores(alpha: float, dtype: Any) -> None:
    most = np.finfo(dtype).max
    z = np.array([-np.inf, -most, 0, most, np.inf, np.nan], dtype)
    p = pe.entmax_sigmoid(z, alpha)
    np.testing.assert_array_equal(p, np.array([0, 0, 0.5, 1, 1, np.nan], dtype), strict=True)
    losses = sigmoid_loss(z[[0, 1, 3, 4]], np.array([0, 0, 1, 1]), alpha)
    np.testing.assert_array_equal(losses, 0)
    with np.errstate(over="ignore"):  # of their sum
        assert (sigmoid_loss(z[[0, 1, 3, 4]], np.array([1, 1, 0, 0]), alpha) > 1e4).all()


def test_shapes_and_bad_arguments() -> None:
    assert pe.entmax_sigmoid(0.0) == 0.5
    assert pe.entmax_sigmoid(np.zeros((2, 0, 3))).shape == (2, 0, 3)
    z = np.linspace(-1, 1, 12).reshape(3, 4)
    alpha = np.array([1.0, 1.3, 2.0, 3.0])
    np.testing.assert_array_equal(
        pe.entmax_sigmoid(z, alpha)[:, 1], pe.entmax_sigmoid(z[:, 1], 1.3)
    )
    with pytest.raises(ValueError, match="alpha must be above 0"):
        pe.entmax_sigmoid(z, 0)
    with pytest.raises(ValueError, match=r"alpha of shape \(3,\) does not broadcast"):
        pe.entmax_sigmoid(z, alpha[:3])
    with pytest.raises(ValueError, match=r"alpha of shape \(3,\) does not broadcast to the entr"):
        pe.one_vs_all_loss(z, [0, 1, 2], alpha[:3])
    with pytest.raises(ValueError, match=r"targets y must be in \[0, 1\], got 2"):
        pe.one_vs_all_loss(z, np.full((3, 4), 2))
    with pytest.raises(ValueError, match="labels must be in 0 … 3, got 4"):
        pe.one_vs_all_loss(z, [0, 4, 1])


def per_entry(z: Any, y: Any, alpha: Any) -> Any:
    """The losses and gradients of α-entmax over two classes, a score and 0."""
    pairs, targets = (np.stack(p, axis=-1) for p in ((z, np.zeros_like(z)), (y, 1 - y)))
    loss, grad = pe.entmax.loss_and_grad(pairs, targets, alpha, reduction="none")
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
    np.testing.assert_allclose(both, sigmoid_loss(z, z > 0).sum((1, 2)), rtol=1e-13, atol=1e-15)
