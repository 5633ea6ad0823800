"""The compiled losses of labels: beside the NumPy body, exact values, edges and options."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_rows import FLOATS, LENGTHS, awkward_layouts, rows_of_every_kind
from stages import deep, slow

import pyentmax
from pyentmax import check_gradient
from pyentmax.backends import threads

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

ALPHAS = {"softmax": 1, "sparsemax": 2, "entmax15": 1.5}
ALPHAS |= {f"entmax, {alpha}": alpha for alpha in (1.001, 1.2, 1.75)}
NAMES = list(ALPHAS)
ALPHAS["entmax, 1.33"] = 1.33  # for rows that are nearly all in the support
QUICK = (2, 17, 129)  # the other lengths in the slow stage
every_name = pytest.mark.parametrize("name", NAMES)
every_dtype = pytest.mark.parametrize("dtype", FLOATS)


def loss_of(name: str, suffix: str = "_loss") -> Any:
    mapping, _, alpha = name.partition(", ")
    function = getattr(pyentmax, mapping + suffix)
    if not alpha:
        return function
    with_alpha = functools.partial(function, alpha=float(alpha))
    with_alpha.reference = functools.partial(function.reference, alpha=float(alpha))  # type: ignore
    return with_alpha


def loss_and_grad(name: str) -> Any:
    return loss_of(name, "_loss_and_grad")


class Exact(NamedTuple):
    """What holds for a row whatever its label, in the widest floats."""

    probabilities: np.ndarray
    conjugate: np.longdouble  # Ω*(z) for scores with their maximum at 0
    slopes: np.ndarray


def exact(name: str, z: np.ndarray) -> Exact:
    """The probabilities p by bisection, Ω*(z) = p·z − Ω(p), and s = p^{2−α} on the support."""
    x, beta = np.asarray(z, np.longdouble), np.longdouble(ALPHAS[name]) - 1
    x = x - x.max()
    if beta == 0:
        rest = np.sum(np.exp(np.delete(x, np.argmax(x))))
        p = np.exp(x) / (1 + rest)
        return Exact(p, np.log1p(rest), p)

    def powers(c: np.longdouble) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.exp(np.log1p(np.maximum(beta * (x - c), -1)) / beta)

    low, high = np.longdouble(0), np.longdouble(min(np.log(len(x)) + 1, 1 / beta))
    for _ in range(70):
        middle = (low + high) / 2
        low, high = (middle, high) if np.sum(powers(middle)) >= 1 else (low, middle)
    p = powers(low)
    p /= p.sum()
    entropy = np.sum(p - p ** (1 + beta)) / (beta * (1 + beta))
    conjugate = np.sum(p * np.where(p == 0, 0, x)) + entropy
    return Exact(p, conjugate, np.where(p > 0, p ** (1 - beta), 0))


def assert_accurate(name: str, z: np.ndarray, y: int, loss: Any, grad: Any, row: Exact) -> None:
    eps = np.finfo(z.dtype).eps
    x = np.asarray(z, np.longdouble)
    x = x - x.max()
    expected, slope = row.conjugate - x[y], row.probabilities - (np.arange(len(x)) == y)
    reach = float(max(1, np.max(np.where(slope != 0, -x, 0))))
    context = f"{name}, label {y}, z = {np.array2string(z, threshold=40)}"
    assert loss >= 0, context
    assert abs(loss - expected) <= 8 * eps * expected + 4 * eps * reach, context
    s = np.maximum(row.slopes, 16 * eps)  # an entry on the threshold may be in or out
    allowed = 4 * eps * np.abs(slope) + 16 * eps * s * reach
    allowed[y] += 4 * eps * np.sqrt(len(z)) * abs(slope[y])  # the sum of all the others
    assert (np.abs(grad - slope) <= allowed).all(), context


@every_dtype
@every_name
@pytest.mark.parametrize("n", [*QUICK, *slow(*(n for n in [*LENGTHS, 5000] if n not in QUICK))])
def test_rows_of_every_kind(name: str, dtype: type, n: int) -> None:
    rng = np.random.default_rng(n)
    for z in rows_of_every_kind(rng, n):
        z = z.astype(dtype)
        row = exact(name, z)
        for y in {0, n - 1, int(np.argmax(z)), int(rng.integers(n))}:
            loss, grad = loss_and_grad(name)(z, y)
            assert (loss.dtype, grad.dtype) == (dtype, dtype)
            assert_accurate(name, z, y, loss, grad, row)
            assert loss == loss_of(name)(z, y)


def test_long_rows_with_most_entries_in_the_support() -> None:
    rng = np.random.default_rng(0)
    for z in (0.1 * rng.standard_normal((3, 2500))).astype(np.float32):
        z[0] = -3  # off the support
        row = exact("entmax, 1.33", z)
        for y in (0, int(np.argmax(z)), 1500):
            loss, grad = loss_and_grad("entmax, 1.33")(z, y)
            assert_accurate("entmax, 1.33", z, y, loss, grad, row)
            assert loss == loss_of("entmax, 1.33")(z, y)


@every_name
@given(
    z=st.sampled_from(FLOATS).flatmap(
        lambda dtype: hnp.arrays(
            dtype, 9, elements=st.floats(-50, 50, width=np.dtype(dtype).itemsize * 8)
        )
    ),
    y=st.integers(0, 8),
)
def test_rows_found_by_hypothesis(name: str, z: np.ndarray, y: int) -> None:
    assert_accurate(name, z, y, *loss_and_grad(name)(z, y), exact(name, z))


@every_dtype
@pytest.mark.parametrize("n", [2, 5, 300, 5000])
def test_small_losses_keep_their_digits(dtype: type, n: int) -> None:
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
        loss, grad = pyentmax.sparsemax_loss_and_grad(z, n // 2)
        gap = float(z[n // 2])
        d = (1 - gap) / (m + 1)
        # A rounding of the gap moves each u by as much, hence the loss by that relative to u.
        np.testing.assert_allclose(loss, (m * m + m) * d * d / 2, rtol=8 * eps / d)
        np.testing.assert_allclose(grad[n // 2], -m * d, rtol=8 * eps / d)
        u = np.sqrt(1 - m * delta**2)
        z[n // 2] = 2 * (u - delta)
        loss, grad = pyentmax.entmax15_loss_and_grad(z, n // 2)
        h = np.longdouble(z[n // 2]) / 2  # m d² + (d + h)² = 1
        d = (1 - h * h) / (h + np.sqrt(h * h + (m + 1) * (1 - h * h)))
        o = m * d * d / (1 + d + h)
        expected = (o * o * (2 + d + h) + m * d**3) * 2 / 3
        np.testing.assert_allclose(float(loss), float(expected), rtol=float(16 * eps / d))
        np.testing.assert_allclose(float(grad[n // 2]), float(-m * d * d), rtol=float(16 * eps / d))
    for gap in (20, 60, 80):
        z = np.zeros(n, dtype)
        z[0] = gap
        loss, grad = pyentmax.softmax_loss_and_grad(z, 0)
        rest = m * np.exp(-float(gap))
        np.testing.assert_allclose(loss, np.log1p(rest), rtol=16 * eps)
        np.testing.assert_allclose(-grad[0], rest / (1 + rest), rtol=16 * eps)


@every_dtype
@pytest.mark.parametrize("alpha", [1.001, 1.2, 1.75, 3])
@pytest.mark.parametrize("n", [2, *slow(300)])
def test_small_losses_of_any_alpha_keep_their_digits(dtype: type, alpha: float, n: int) -> None:
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
        loss, grad = pyentmax.entmax_loss_and_grad(z, 0, alpha)
        np.testing.assert_allclose(loss, expected, rtol=16 * moved)
        np.testing.assert_allclose(grad[:2], [-q, q], rtol=16 * moved)


@every_dtype
@every_name
@pytest.mark.parametrize(
    ("axis", "reduction"),
    [
        (-1, "mean"), (0, "none"),
        *slow((0, "mean"), (1, "mean"), (-1, "none"), (-3, "none")),
        *deep((1, "none"), (-3, "mean"), *((axis, "sum") for axis in (0, 1, -1, -3))),
    ],
)  # fmt: skip
def test_options_are_those_of_the_body(name: str, dtype: type, axis: int, reduction: str) -> None:
    rng = np.random.default_rng(3)
    z = rng.standard_normal((4, 5, 6)).astype(dtype)
    d = z.shape[axis]
    batch = np.moveaxis(z, axis, -1).shape[:-1]
    y = rng.integers(0, d, batch)
    mask = rng.random(z.shape) < 0.7
    mask[1] = False  # for axis 0 an entry of every row, else rows with nothing left
    mask[:, 2, 3] = False
    ignored = np.where(rng.random(batch) < 0.3, -100, y)
    weight = rng.integers(0, 3, batch) / 2
    for labels in (y, y.astype(np.uint8), np.asfortranarray(y)):
        for options in (
            {},
            {"mask": mask},
            {"weight": weight},
            {"weight": 3},
            {"weight": weight, "mask": mask},
        ):
            compare_with_the_body(name, z, labels, axis=axis, reduction=reduction, **options)
    options = {"mask": mask, "weight": weight, "ignore_index": -100}
    compare_with_the_body(name, z, ignored, axis=axis, reduction=reduction, **options)
    nothing = np.full(batch, -100)
    compare_with_the_body(name, z, nothing, axis=axis, reduction=reduction, ignore_index=-100)


def compare_with_the_body(name: str, z: Any, y: Any, **options: Any) -> None:
    function = loss_and_grad(name)
    loss, grad = function(z, y, **options)
    expected, wanted = function.reference(z, y, **options)
    only = loss_of(name)(z, y, **options)
    np.testing.assert_array_equal(only, loss)
    assert np.shape(loss) == np.shape(expected)
    assert (loss.dtype, grad.dtype) == (expected.dtype, wanted.dtype)
    eps = np.finfo(z.dtype).eps
    np.testing.assert_allclose(loss, expected, rtol=20 * eps, atol=20 * eps)
    np.testing.assert_allclose(grad, wanted, rtol=20 * eps, atol=20 * eps)


@every_name
@pytest.mark.parametrize("n", [6, 300])
def test_a_label_out_of_reach_or_ruled_out(name: str, n: int) -> None:
    z = np.zeros((2, n))
    z[0, 1], z[1, 2] = -np.inf, -1e300
    loss, grad = loss_and_grad(name)(z, [1, 2], reduction="none")
    np.testing.assert_array_equal(loss, [np.inf, 1e300])
    np.testing.assert_array_equal(grad[[0, 1], [1, 2]], -1)
    with pytest.raises(ValueError, match=f"labels must be in 0 … {n - 1}, got {n}"):
        loss_and_grad(name)(z, [0, n])
    # Where nothing is left, the label is not looked at.
    z[1] = -np.inf
    loss, grad = loss_and_grad(name)(z, [0, n])
    assert loss == loss_and_grad(name)(z[0], 0)[0]
    assert (grad[1] == 0).all()


@every_name
@every_dtype
@pytest.mark.parametrize("n", [4, 300])
def test_a_spoilt_row_is_nan_and_no_other(name: str, dtype: type, n: int) -> None:
    z = np.random.default_rng(5).standard_normal((6, n)).astype(dtype)
    y = np.arange(6) % n
    clean = loss_and_grad(name)(z, y, reduction="none")
    z[1, 0], z[3, n - 1] = np.nan, np.inf
    loss, grad = loss_and_grad(name)(z, y, reduction="none")
    for got, expected in zip((loss, grad), clean, strict=True):
        assert np.isnan(got[[1, 3]]).all()
        np.testing.assert_array_equal(got[[0, 2, 4, 5]], expected[[0, 2, 4, 5]])
    assert np.isnan(loss_and_grad(name)(z, y)[0])
    weight = np.array([1, 0, 1, 0, 1, 1])
    assert np.isfinite(loss_and_grad(name)(z, y, weight=weight)[0])


@every_name
@pytest.mark.parametrize("reduction", ["mean", *slow("sum", "none")])
def test_gradient_by_finite_differences(name: str, reduction: str) -> None:
    # Sparsemax has kinks; entries 0.07 apart keep away from them.
    rng = np.random.default_rng(6)
    z = rng.permuted(np.tile(np.linspace(0, 0.56, 9), (3, 1)), axis=1)
    y, weight = rng.integers(0, 9, 3), np.array([2, 0, 0.5])
    options: dict[str, Any] = {"reduction": reduction, "weight": weight}
    check_gradient(
        lambda z: loss_of(name)(z, y, **options),
        z,
        lambda z: loss_and_grad(name)(z, y, **options)[1],
    ).raise_if_failed()


@every_dtype
@every_name
def test_memory_layout_changes_nothing(name: str, dtype: type) -> None:
    z = np.random.default_rng(7).standard_normal((7, 45)).astype(dtype)
    y, mask = np.arange(7), np.random.default_rng(8).random((7, 45)) < 0.8
    expected = loss_and_grad(name)(z, y), loss_and_grad(name)(z, y, mask=mask)
    for layout, other in awkward_layouts(z):
        before = other.copy()
        got = loss_and_grad(name)(other, y), loss_and_grad(name)(other, y, mask=mask)
        for (loss, grad), (wanted_loss, wanted) in zip(got, expected, strict=True):
            assert loss == wanted_loss, layout
            np.testing.assert_array_equal(grad, wanted, err_msg=layout)
        np.testing.assert_array_equal(other, before, err_msg=f"{layout}: was overwritten")


@every_name
def test_half_precision_and_empty_batches(name: str) -> None:
    z = np.random.default_rng(9).standard_normal((3, 20)).astype(np.float16)
    loss, grad = loss_and_grad(name)(z, [0, 1, 2])
    expected, wanted = loss_and_grad(name)(z.astype(np.float32), [0, 1, 2])
    assert loss == expected.astype(np.float16)
    np.testing.assert_array_equal(grad, wanted.astype(np.float16))
    loss, grad = loss_and_grad(name)(np.zeros((0, 4)), np.zeros(0, int))
    assert loss == 0
    assert grad.shape == (0, 4)


@every_name
def test_threads_give_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "ENTRIES_PER_WORKER", 1)
    monkeypatch.setattr(threads, "SECONDS_PER_WORKER", 0)
    z = np.random.default_rng(10).standard_normal((3, 7, 400))
    y = np.random.default_rng(11).integers(0, 400, (3, 7))
    for reduction in ("mean", "none"):
        one = loss_and_grad(name)(z, y, reduction=reduction, workers=1)
        many = loss_and_grad(name)(z, y, reduction=reduction, workers=3)
        for got, expected in zip(many, one, strict=True):
            np.testing.assert_array_equal(got, expected)


@every_name
@every_dtype
@pytest.mark.parametrize("shape", [(9,), (40, 9), (3, 5, 300)])
@pytest.mark.parametrize("reduction", ["mean", *slow("sum", "none")])
def test_an_ordinary_call_is_that_with_all_options_left_out(
    name: str, dtype: type, shape: tuple[int, ...], reduction: str
) -> None:
    # A mask keeps a call from being ordinary, and a full one changes nothing.
    z = np.random.default_rng(12).standard_normal(shape).astype(dtype)
    y = np.random.default_rng(13).integers(0, shape[-1], shape[:-1])
    full = np.ones(shape, bool)
    dead = z.copy()
    dead[..., 1] = -np.inf
    dead.reshape(-1, shape[-1])[0] = -np.inf  # counts nothing in the mean
    for scores in (z, dead):
        for labels in (y, y.astype(np.uint8) if shape[-1] < 256 else y, np.asarray(y, np.int32)):
            got = loss_and_grad(name)(scores, labels, reduction=reduction)
            expected = loss_and_grad(name)(scores, labels, reduction=reduction, mask=full)
            for one, other in zip(got, expected, strict=True):
                assert type(one) is type(other)
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            only = loss_of(name)(scores, labels, reduction=reduction)
            np.testing.assert_array_equal(only, got[0])
        for ignored in (int(y.flat[0]), -100):
            options: dict[str, Any] = {"reduction": reduction, "ignore_index": ignored}
            got = loss_and_grad(name)(scores, y, **options)
            expected = loss_and_grad(name)(scores, y, mask=full, **options)
            for one, other in zip(got, expected, strict=True):
                assert type(one) is type(other)
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)


@every_dtype
@pytest.mark.parametrize("n", [5, 40, 200, 700, 2100])
def test_a_row_of_a_loss_hangs_on_no_other(dtype: type, n: int) -> None:
    # α of all kinds, dense rows and sparse ones in one batch: blocks of any composition.
    rng = np.random.default_rng(14)
    z = (rng.standard_normal((70, n)) * rng.choice([0.05, 1, 10], (70, 1))).astype(dtype)
    y = np.where(rng.random(70) < 0.5, z.argmax(axis=-1), rng.integers(0, n, 70))
    z[3], z[20, 0], z[40] = -np.inf, np.nan, 1
    mixed = rng.choice([1.05, 1.25, 1.3, 1.6, 5 / 3, 1.9, 1.5, 2, 2.5], 70)
    for alpha in (np.full(70, 1.25), np.full(70, 1.3), np.full(70, 1.9), mixed):
        loss, grad = pyentmax.entmax_loss_and_grad(z, y, alpha, reduction="none")
        for i in (0, 1, 3, 17, 20, 33, 40, 69):
            alone = pyentmax.entmax_loss_and_grad(z[i], y[i], alpha[i], reduction="none")
            np.testing.assert_array_equal(alone[0], loss[i])
            np.testing.assert_array_equal(alone[1], grad[i])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [3, 40, 300, 700])
def test_a_weight_lifts_nothing_out_of_what_is_masked(n, dtype):
    z, mask = np.zeros((40, n), dtype), np.ones((40, n), bool)
    mask[:, 1], z[:, 2] = False, -3000
    for weight in (1, 2, 50, 1e6, 1e30):
        _, gradient = pyentmax.softmax_loss_and_grad(
            z, np.zeros(40, int), mask=mask, weight=weight, reduction="none"
        )
        assert not gradient[:, 1:3].any()
