"""Losses where digits are lost easily, labels out of reach, and calls with and without options.

What holds of all rows is in test_kernel_contract.py, what holds of losses in
tests/claims.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from kernel_rows import FLOATS
from on_gpu import MARKS, on_gpu
from stages import slow

import pyentmax as pe

LOSSES: list[tuple[str, dict[str, Any]]] = [("softmax", {}), ("sparsemax", {}), ("entmax15", {})]
LOSSES += [("entmax", {"alpha": 1.2}), ("entmax", {"alpha": 3}), ("topk_sparsemax", {"k": 3})]
every_dtype = pytest.mark.parametrize("dtype", FLOATS)
every_loss = pytest.mark.parametrize(("name", "params"), LOSSES, ids=str)


def loss_and_grad(name: str) -> Any:
    return getattr(pe, name).loss_and_grad


@every_dtype
@pytest.mark.parametrize("n", [2, 5, 300, 5000])
def test_small_losses_keep_their_digits(n: int, dtype: type) -> None:
    """Close to the margin the loss is tiny; in closed form here, as the others are all equal.

    Off the label, each of m others has u = δ; sparsemax: o = mδ, L = (m²δ² + mδ²)/2; 1.5-entmax:
    1 − u_y² = mδ², L = 2/3 (o² (2 + u_y) + mδ³). Softmax: L = log1p(m e^{−gap}).
    """
    m, eps = n - 1, np.finfo(dtype).eps
    for delta in (2.0**-10, 2.0**-16, 2.0**-20):
        if m * delta > 0.25:
            continue
        z = np.zeros(n, dtype)
        z[n // 2] = 1 - delta - m * delta  # x = δ − u_y with u_y = 1 − mδ
        d = (1 - float(z[n // 2])) / (m + 1)
        # A rounding of the gap moves each u by as much, hence the loss by that relative to u.
        for name, params in (("sparsemax", {}), ("topk_sparsemax", {"k": n})):
            loss, grad = loss_and_grad(name)(z, n // 2, **params)
            np.testing.assert_allclose(loss, (m * m + m) * d * d / 2, rtol=8 * eps / d)
            np.testing.assert_allclose(grad[n // 2], -m * d, rtol=8 * eps / d)
        u = np.sqrt(1 - m * delta**2)
        z[n // 2] = 2 * (u - delta)
        loss, grad = pe.entmax15.loss_and_grad(z, n // 2)
        h = np.longdouble(z[n // 2]) / 2  # m d² + (d + h)² = 1
        d = (1 - h * h) / (h + np.sqrt(h * h + (m + 1) * (1 - h * h)))
        o = m * d * d / (1 + d + h)
        expected = (o * o * (2 + d + h) + m * d**3) * 2 / 3
        np.testing.assert_allclose(float(loss), float(expected), rtol=float(16 * eps / d))
        np.testing.assert_allclose(float(grad[n // 2]), float(-m * d * d), rtol=float(16 * eps / d))
    for gap in (20, 60, 80):
        z = np.zeros(n, dtype)
        z[0] = gap
        loss, grad = pe.softmax.loss_and_grad(z, 0)
        rest = m * np.exp(-float(gap))
        np.testing.assert_allclose(loss, np.log1p(rest), rtol=16 * eps)
        np.testing.assert_allclose(-grad[0], rest / (1 + rest), rtol=16 * eps)


@every_dtype
@pytest.mark.parametrize("alpha", [1.001, 1.2, 1.75, 3])
@pytest.mark.parametrize("n", [2, *slow(300)])
def test_small_losses_of_any_alpha_keep_their_digits(n: int, alpha: float, dtype: type) -> None:
    """Of p = (1 − q, q): x_2 = (q^β − (1 − q)^β)/β; L = q^α/α + ∫ s^{β−1} (1 − s) ds from 1 − q."""
    for q in (0.2, 1e-2, 1e-4):
        with mpmath.workdps(50):
            beta, p = mpmath.mpf(alpha) - 1, 1 - mpmath.mpf(q)
            gap = (p**beta - mpmath.mpf(q) ** beta) / beta
            divergence = (1 - p**beta) / beta - (1 - p ** (1 + beta)) / (1 + beta)
            expected = float(mpmath.mpf(q) ** (1 + beta) / (1 + beta) + divergence)
        z = np.full(n, -np.inf, dtype)
        z[0], z[1] = 0, -gap
        # Rounding the gap moves q by s = q^(1 − β) times that.
        moved = alpha * np.finfo(dtype).eps * (1 + float(gap) / q ** float(beta))
        loss, grad = pe.entmax.loss_and_grad(z, 0, alpha)
        np.testing.assert_allclose(loss, expected, rtol=16 * moved)
        np.testing.assert_allclose(grad[:2], [-q, q], rtol=16 * moved)


@every_loss
@pytest.mark.parametrize("n", [6, 300])
def test_a_label_out_of_reach_or_ruled_out(name: str, params: dict[str, Any], n: int) -> None:
    z = np.zeros((2, n))
    z[0, 1], z[1, 2] = -np.inf, -1e300
    loss, grad = loss_and_grad(name)(z, [1, 2], reduction="none", **params)
    np.testing.assert_array_equal(loss, [np.inf, 1e300])
    np.testing.assert_array_equal(grad[[0, 1], [1, 2]], -1)
    with pytest.raises(ValueError, match=f"labels must be in 0 … {n - 1}, got {n}"):
        loss_and_grad(name)(z, [0, n], **params)
    # Where nothing is left, the label is not looked at.
    z[1] = -np.inf
    loss, grad = loss_and_grad(name)(z, [0, n], **params)
    assert loss == loss_and_grad(name)(z[0], 0, **params)[0]
    assert (grad[1] == 0).all()


@every_dtype
@pytest.mark.parametrize(("name", "params"), [*LOSSES, *slow(("normmax", {"alpha": 1.7}))], ids=str)
@pytest.mark.parametrize(("axis", "reduction"), [(-1, "mean"), (0, "none"), *slow((1, "sum"))])
@pytest.mark.parametrize(
    "run", [lambda f: f, pytest.param(on_gpu, marks=MARKS)], ids=["cpu", "gpu"]
)
def test_options_are_those_of_the_body(
    name: str, params: dict[str, Any], axis: int, reduction: Any, dtype: type, run: Any
) -> None:
    rng, function = np.random.default_rng(3), loss_and_grad(name)
    z = rng.standard_normal((4, 5, 6)).astype(dtype)
    batch = np.moveaxis(z, axis, -1).shape[:-1]
    y, weight = rng.integers(0, z.shape[axis], batch), rng.integers(0, 3, batch) / 2
    mask = rng.random(z.shape) < 0.7
    mask[1] = mask[:, 2, 3] = False  # an entry of every row, or rows with nothing left
    ignored = np.where(rng.random(batch) < 0.3, -100, y)
    given: dict[str, Any] = {"axis": axis, "reduction": reduction, **params}
    cases: list[tuple[Any, dict[str, Any]]] = [
        (y, {}), (y.astype(np.uint8), {"mask": mask}), (np.asfortranarray(y), {"weight": weight}),
        (y, {"weight": 3}), (y, {"weight": weight, "mask": mask}),
        (ignored, {"mask": mask, "weight": weight, "ignore_index": -100}),
        (np.full(batch, -100), {"ignore_index": -100}),
    ]  # fmt: skip
    atol = 20 * np.finfo(dtype).eps
    for labels, options in cases:
        found = run(function)(z, labels, **given, **options)
        for one, other in zip(
            found, function.reference(z, labels, **given, **options), strict=True
        ):
            assert (np.shape(one), one.dtype) == (np.shape(other), other.dtype)
            np.testing.assert_allclose(one, other, rtol=atol, atol=atol)
        only = run(getattr(pe, name).loss)(z, labels, **given, **options)
        np.testing.assert_array_equal(only, found[0])


@every_dtype
@pytest.mark.parametrize("n", [3, 40, 300, 700])
def test_a_weight_lifts_nothing_out_of_what_is_masked(n: int, dtype: type) -> None:
    z, mask = np.zeros((40, n), dtype), np.ones((40, n), bool)
    mask[:, 1], z[:, 2] = False, -3000
    for weight in (1, 2, 50, 1e6, 1e30):
        _, gradient = pe.softmax.loss_and_grad(
            z, np.zeros(40, int), mask=mask, weight=weight, reduction="none"
        )
        assert not gradient[:, 1:3].any()
