"""Losses of output layers: equal to those of all scores, whatever is kept of a chunk."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from stages import slow

import pyentmax
from pyentmax import fenchel_young_loss_and_grad, linear_loss
from pyentmax.engine.backends import choice
from pyentmax.reference import linear_loss as module

CLASSES = 90
CASES: list[tuple[str, dict[str, Any]]] = [
    ("softmax", {}),
    ("sparsemax", {}),
    ("entmax15", {}),
    ("entmax", {"alpha": 1.3}),
    ("entmax", {"alpha": np.linspace(1, 3, 5)}),
    ("normmax", {"alpha": 2.0}),
    ("topk_sparsemax", {"k": 3}),
    ("fusedmax", {"strength": 0.5}),
    ("oscarmax", {"strength": 0.1}),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum"},
    {"label_smoothing": 0.1},
    {"ignore_index": 2},
    {"weight": np.array([[1], [0.5], [0], [3]])},
    {"weight": np.linspace(0, 2, 20).reshape(4, 5)},
    {"ignore_index": 2, "label_smoothing": 0.3, "weight": np.linspace(1, 2, 5)},
]


def layer(scale: float, bias: str = "", seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Inputs (4, 5, 6), rows, labels and a bias, by which some classes are masked."""
    rng = np.random.default_rng(seed)
    x, rows = scale * rng.normal(size=(4, 5, 6)), rng.normal(size=(CLASSES, 6))
    y = rng.integers(0, CLASSES - 20, (4, 5))
    y[0, 1:4] = 2
    b: Any = rng.normal(size=CLASSES) if bias else None
    if bias == "masked":
        b[-20:] = -np.inf
    return x, rows, y, b


def by_all_scores(x: Any, rows: Any, y: Any, name: str, *, bias: Any, **options: Any) -> Any:
    """Loss and gradients in x, rows and bias from all scores."""
    z = x @ rows.T + (0 if bias is None else bias)
    loss, g = fenchel_young_loss_and_grad(z, y, name, **options)
    flat = g.reshape(-1, len(rows))
    return loss, g @ rows, flat.T @ x.reshape(-1, x.shape[-1]), flat.sum(axis=0)


@pytest.fixture(params=["pieces", "whole"])
def small_pieces(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also pieces of three rows, so that those of a chunk differ, held until there are few."""
    if request.param == "pieces":
        monkeypatch.setattr(module, "PIECE", 3 * CLASSES)
        monkeypatch.setattr(module, "MOST_HELD", 20)
        monkeypatch.setattr(module, "BLOCK_BYTES", 7 * 6 * 8)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("scale", [5, *slow(0.01, 1, 30)])
@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_losses_and_gradients_equal_those_of_all_scores(
    name: str, parameters: dict[str, Any], scale: float
) -> None:
    for bias, chosen in (("", OPTIONS[:2]), ("some", OPTIONS[2:4]), ("masked", OPTIONS[4:])):
        x, rows, y, b = layer(scale, bias)
        x[1] *= 20 / scale  # one sequence is sharp
        for options in chosen:
            if name == "topk_sparsemax" and "label_smoothing" in options:
                continue
            given: Any = (x, rows, y, name)
            expected = by_all_scores(x, rows, y, name, bias=b, **options, **parameters)
            for chunk in (None, 10):
                both = {"bias": b, "chunk": chunk, **options, **parameters}
                found = pyentmax.linear_loss_and_grad(*given, **both)
                assert len(found) == (3 if b is None else 4)
                for one, other in zip(found, expected, strict=False):
                    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * max(1, scale))
                np.testing.assert_array_equal(linear_loss(*given, **both), found[0])


def test_distributions_equal_those_of_all_scores() -> None:
    x, rows, _, b = layer(1, "masked")
    y = np.random.default_rng(1).dirichlet(np.ones(CLASSES), (4, 5))
    y[..., -20:] = 0
    y /= y.sum(axis=-1, keepdims=True)
    for options in (OPTIONS[0], OPTIONS[2], OPTIONS[5]):
        expected = by_all_scores(x, rows, y, "entmax15", bias=b, **options)
        found = pyentmax.linear_loss_and_grad(x, rows, y, bias=b, chunk=6, **options)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.skipif(not choice.kernels(), reason="needs the kernels")
@pytest.mark.parametrize(("scale", "dense"), [(30, False), (0.01, True)])
def test_products_run_over_the_support_where_it_is_small(scale: float, dense: bool) -> None:
    products = []

    def matmul(a: Any, b: Any, out: Any) -> None:
        products.append(a.shape)
        np.matmul(a, b, out=out)

    x, rows, y, _ = layer(scale)
    module.passes(x, rows, y, "entmax15", {}, None, module.Options(), None, matmul=matmul)
    assert products == [(20, 6)] + dense * [(20, CLASSES), (CLASSES, 20)]


@pytest.mark.parametrize("scale", [0.01, 1, 30])
def test_workers_change_no_bit(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 3 * CLASSES)
    monkeypatch.setattr(module, "BLOCK_BYTES", 500)
    x, rows, y, b = layer(scale, "masked")
    x[1] *= 20 / scale
    given: list[Any] = [array.astype(np.float32) for array in (x, rows)]
    each: list[dict[str, Any]] = [{}, {"label_smoothing": 0.1}]
    for options in each:
        found = []
        for n in (1, 2, 5):
            with pyentmax.set_workers(n):
                found += [pyentmax.linear_loss_and_grad(*given, y, bias=b, chunk=9, **options)]
        for other in found[1:]:
            for part, same in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("scale", [0.01, 1, 30])
def test_narrow_dtypes_are_returned_and_accurate(dtype: Any, scale: float) -> None:
    x, rows, y, b = layer(scale, "some")
    x, rows, b = (array.astype(dtype) for array in (x, rows, b))
    expected = by_all_scores(x.astype(float), rows.astype(float), y, "entmax15", bias=b)
    found = pyentmax.linear_loss_and_grad(x, rows, y, bias=b)
    tolerance = 8 * float(np.finfo(dtype).eps)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * max(1, scale))


def test_edges() -> None:
    x, rows, y, _ = layer(1)
    nothing = pyentmax.linear_loss_and_grad(x[:0], rows, y[:0])
    assert nothing[0] == 0
    assert nothing[1].shape == (0, 5, 6)
    assert not nothing[2].any()
    ignored = pyentmax.linear_loss_and_grad(x, rows, np.full((4, 5), -1), ignore_index=-1)
    masked = pyentmax.linear_loss_and_grad(x, rows, y, bias=np.full(CLASSES, -np.inf))
    for found in (ignored, masked):
        assert not any(part.any() for part in found)
    loss, in_x, in_rows = pyentmax.linear_loss_and_grad(x, rows[:1], 0 * y)  # one class
    assert loss == 0
    assert not in_x.any()
    assert not in_rows.any()
    single = by_all_scores(x[..., :1], rows[:, :1], y, "sparsemax", bias=None)
    found = pyentmax.linear_loss_and_grad(x[..., :1], rows[:, :1], y, "sparsemax")
    for one, other in zip(found, single, strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    one_row = pyentmax.linear_loss_and_grad(x[0, 0], rows, y[0, 0])
    assert one_row[0].shape == ()
    assert one_row[1].shape == (6,)
    assert linear_loss(x, rows, y, reduction="none").shape == (4, 5)


def test_label_on_a_masked_class_has_infinite_loss() -> None:
    x, rows, y, b = layer(1, "masked")
    y[0, 0] = CLASSES - 1
    for smoothing in (0.0, 0.1):
        assert linear_loss(x, rows, y, bias=b, label_smoothing=smoothing) == np.inf


def test_ignored_rows_may_hold_anything() -> None:
    x, rows, y, _ = layer(2)
    y[1:3] = -1
    expected = pyentmax.linear_loss_and_grad(x, rows, y, ignore_index=-1)
    x[1:3] = np.nan
    found = pyentmax.linear_loss_and_grad(x, rows, y, ignore_index=-1)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    x[0, 0] = np.nan
    assert np.isnan(linear_loss(x, rows, y, ignore_index=-1))
    each = linear_loss(x, rows, y, ignore_index=-1, reduction="none")
    assert np.isnan(each).sum() == 1


def test_classes_beyond_support_and_labels_get_no_gradient() -> None:
    x, rows, y, _ = layer(5)
    _, _, in_rows = pyentmax.linear_loss_and_grad(x, rows, y, "sparsemax")
    touched: Any = pyentmax.sparsemax(x @ rows.T).reshape(-1, CLASSES).any(axis=0)
    touched[y.ravel()] = True
    assert not touched.all()
    np.testing.assert_array_equal(in_rows.any(axis=1), touched)


def test_memory_is_that_of_a_chunk() -> None:
    rng = np.random.default_rng(0)
    x, rows = rng.normal(size=(600, 8)), rng.normal(size=(4000, 8))
    y = rng.integers(0, 4000, 600)
    for scale in (1e-3, 10):
        tracemalloc.start()
        with pyentmax.set_workers(1):
            pyentmax.linear_loss_and_grad(scale * x, rows, y, chunk=20)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # All scores take 19 MB. NumPy's bodies copy a chunk more often than kernels do.
        assert most < (5e6 if choice.kernels() else 1e7)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"x": np.zeros((2, 4))}, ValueError, r"x must have the shape \(…, d\) and rows"),
        ({"rows": np.zeros((0, 3))}, ValueError, "at least one class"),
        ({"bias": np.zeros(4)}, ValueError, r"bias must have the shape \(5,\)"),
        ({"y": np.array([0, 5])}, ValueError, "labels must be in 0 … 4, got 5"),
        ({"y": np.array([0.0, 1.0])}, ValueError, "y must be integer labels of shape"),
        ({"y": np.full((2, 5), 0.2), "ignore_index": 1}, ValueError, "ignore_index is for integer"),
        ({"mapping": "csoftmax", "upper": 1}, ValueError, "must have an Ω"),
        ({"mapping": "entmax"}, TypeError, "takes the parameters"),
        ({"mapping": "entmax", "alpha": -1}, ValueError, "alpha must be"),
        ({"mapping": "entmax", "alpha": np.ones(3)}, ValueError, "alpha of shape"),
        ({"weight": -np.ones(2)}, ValueError, "weight must be"),
        ({"chunk": 0}, ValueError, "chunk must be at least 1"),
        ({"chunk": 1.5}, TypeError, "chunk must be a whole number"),
        ({"reduction": "none"}, ValueError, "reduction must be mean or sum for gradients"),
        ({"x": np.zeros((2, 3), complex)}, TypeError, "x must hold real numbers"),
    ],
)
def test_wrong_arguments_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"x": np.zeros((2, 3)), "rows": np.zeros((5, 3)), "y": np.array([0, 1]), **changes}
    with pytest.raises(error, match=message):
        pyentmax.linear_loss_and_grad(**given)


def test_underflow_is_not_an_error() -> None:
    """As in mappings and losses: products of subnormal states are subnormal, or 0."""
    x, rows = np.full((2, 3), 1e-310), np.full((4, 3), 0.1)
    with np.errstate(all="raise"):
        for mapping in ("softmax", "entmax15", "sparsemax"):
            pyentmax.linear_loss_and_grad(x, rows, [0, 1], mapping, label_smoothing=0.1)
