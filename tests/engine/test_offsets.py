"""Rows of different lengths by `offsets=`: every function against itself on each row."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from parameter_values import EXAMPLES
from stages import slow

import pyentmax as pe
from pyentmax import keep
from pyentmax.reference.mappings.entmax import entmax_vjps

RNG = np.random.default_rng(57)
LENGTHS = [3, 0, 1, 7, 3, 40, 0, 2, 7, 300, 1, 0]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
ROWS, LENGTH = len(LENGTHS), int(OFFSETS[-1])
SHAPES = {0: (LENGTH, 2), -1: (3, LENGTH)}
OWN: dict[str, dict[str, Any]] = {
    "entmax": {"alpha": 1.3},
    "oscarmax": {"strength": 0.02},
    "normmax": {"alpha": 2.5},
}
PARAMETERS: dict[str, dict[str, Any]] = {
    name: {parameter: EXAMPLES[parameter] for parameter in record.parameters} | OWN.get(name, {})
    for name, record in pe.MAPPINGS.items()
}
MAPPINGS = sorted(pe.MAPPINGS)
WITH_LOSS = [name for name in MAPPINGS if pe.MAPPINGS[name].omega is not None]


def scores(axis: int, dtype: Any = np.float64) -> Any:
    return RNG.normal(scale=1.5, size=SHAPES[axis]).astype(dtype)


def row(array: Any, r: int, axis: int) -> Any:
    """The r-th row of what is per entry."""
    return np.take(array, np.arange(OFFSETS[r], OFFSETS[r + 1]), axis=axis)


def number(array: Any, r: int, axis: int) -> Any:
    return np.take(array, r, axis=axis)


def each_row(
    axis: int, whole: Any, of_row: Any, *, per_row: bool = False, **tolerance: Any
) -> None:
    """The whole result is what `of_row` gives for every row that is not empty."""
    for r in np.flatnonzero(LENGTHS):
        found = number(whole, r, axis) if per_row else row(whole, r, axis)
        expected = of_row(int(r))
        assert found.shape == expected.shape
        if found.dtype == bool:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(
                found, expected, **{"rtol": 1e-12, "atol": 1e-12} | tolerance
            )


@pytest.mark.parametrize("kernels", [True, *slow(False)])
@pytest.mark.parametrize("axis", SHAPES)
@pytest.mark.parametrize("name", MAPPINGS)
def test_mappings_products_and_supports(name: str, axis: int, kernels: bool) -> None:
    z, record, parameters = scores(axis), pe.MAPPINGS[name], PARAMETERS[name]
    v, mask = scores(axis), RNG.random(z.shape) < 0.8
    if name in ("csoftmax", "csparsemax"):  # a bound of 1 on one entry is feasible
        mask[...] = True

    def run(function: Any) -> Any:
        return function if kernels else function.reference

    forward, options = run(record.forward), {"axis": axis, **parameters}
    p = forward(z, **options, mask=mask, offsets=OFFSETS)
    masked = lambda r: row(mask, r, axis)  # noqa: E731
    each_row(axis, p, lambda r: forward(row(z, r, axis), **options, mask=masked(r)))
    if record.support is not None:
        support = run(record.support)
        found = support(z, **options, mask=mask, offsets=OFFSETS)
        each_row(axis, found, lambda r: support(row(z, r, axis), **options, mask=masked(r)))
    for product in (record.jvp, record.vjp):
        found = run(product)(p, v, **options, mask=mask, offsets=OFFSETS)
        of_row = lambda r: run(product)(row(p, r, axis), row(v, r, axis), **options, mask=masked(r))  # noqa: B023, E731
        each_row(axis, found, of_row)
    if record.log is not None:
        log = run(record.log)
        found = log(z, **options, mask=mask, offsets=OFFSETS)
        each_row(axis, found, lambda r: log(row(z, r, axis), **options, mask=masked(r)))


@pytest.mark.parametrize("axis", SHAPES)
@pytest.mark.parametrize("name", WITH_LOSS)
def test_losses_and_gradients(name: str, axis: int) -> None:
    z, parameters = scores(axis), PARAMETERS[name]
    mask = RNG.random(z.shape) < 0.9
    batch = np.delete(z.shape, axis).tolist()
    batch.insert(axis % z.ndim, ROWS)
    lengths = np.expand_dims(LENGTHS, tuple(i for i in range(z.ndim) if i != axis % z.ndim))
    y = (RNG.random(batch) * lengths).astype(int)
    y[np.broadcast_to(lengths == 0, batch)] = -1
    for r in np.flatnonzero(LENGTHS):  # labels are kept, or their loss is infinite
        index = [slice(None)] * z.ndim
        index[axis] = slice(OFFSETS[r], OFFSETS[r + 1])
        label = np.expand_dims(number(y, r, axis), axis)
        np.put_along_axis(mask[tuple(index)], label, True, axis)
    weight = RNG.random(batch)
    if name in ("csoftmax", "csparsemax"):
        mask[...] = True
    form: dict[str, Any] = {"mapping": name, "axis": axis, "ignore_index": -1} | parameters
    loss, smoothing = pe.fenchel_young_loss_and_grad, 0.1 if name == "softmax" else 0.0
    form["label_smoothing"] = smoothing
    whole, gradient = loss(
        z, y, **form, mask=mask, weight=weight, offsets=OFFSETS, reduction="none"
    )

    def of_row(r: int) -> Any:
        given = {"mask": row(mask, r, axis), "weight": number(weight, r, axis)}
        return loss(row(z, r, axis), number(y, r, axis), **form, **given, reduction="none")

    each_row(axis, whole, lambda r: of_row(r)[0], per_row=True)
    each_row(axis, gradient, lambda r: of_row(r)[1])
    assert (whole[np.broadcast_to(lengths == 0, batch)] == 0).all()
    share = np.where(y == -1, 0, weight)
    for reduction, total in (("sum", 1.0), ("mean", share.sum())):
        given = {"mask": mask, "weight": weight, "offsets": OFFSETS, "reduction": reduction}
        reduced, slope = loss(z, y, **form, **given)
        np.testing.assert_allclose(reduced, whole.sum() / total, rtol=1e-12)
        np.testing.assert_allclose(slope, gradient / total, rtol=1e-9, atol=1e-15)
        assert pe.fenchel_young_loss(z, y, **form, **given) == pytest.approx(reduced, abs=0)


def test_distributions_as_targets() -> None:
    z = scores(-1)
    q = pe.sparsemax(scores(-1), offsets=OFFSETS)
    loss, gradient = pe.entmax15_loss_and_grad(z, q, offsets=OFFSETS, reduction="none")
    of_row = lambda r: pe.entmax15_loss_and_grad(row(z, r, -1), row(q, r, -1), reduction="none")  # noqa: E731
    each_row(-1, loss, lambda r: of_row(r)[0], per_row=True)
    each_row(-1, gradient, lambda r: of_row(r)[1])
    np.testing.assert_allclose(
        gradient, pe.entmax15(z, offsets=OFFSETS) - q, rtol=1e-12, atol=1e-12
    )
    mean = pe.entmax15_loss(z, q, offsets=OFFSETS)
    np.testing.assert_allclose(mean, loss.sum() / (3 * np.count_nonzero(LENGTHS)), rtol=1e-12)


def test_one_vs_all_losses() -> None:
    z = scores(-1)
    z[:, 2], y, alpha = -np.inf, RNG.integers(-1, 2, z.shape), 1 + RNG.random(z.shape)
    y[:, 2] = 0
    call: Any = partial(pe.one_vs_all_loss_and_grad, ignore_index=-1)
    loss, gradient = call(z, y, alpha, offsets=OFFSETS, reduction="none")
    of_row = lambda r: call(*(row(x, r, -1) for x in (z, y, alpha)), reduction="none")  # noqa: E731
    each_row(-1, loss, lambda r: of_row(r)[0], per_row=True)
    each_row(-1, gradient, lambda r: of_row(r)[1])
    starts = OFFSETS[:-1][np.diff(OFFSETS) > 0]
    counts = np.add.reduceat(y != -1, starts, axis=-1) > 0
    mean = pe.one_vs_all_loss(z, y, alpha, offsets=OFFSETS, ignore_index=-1)
    np.testing.assert_allclose(mean, loss.sum() / counts.sum(), rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (ROWS,), (3, 1), (3, ROWS)])
def test_gradients_in_parameters_have_their_shape(shape: tuple[int, ...]) -> None:
    z, g = scores(-1), scores(-1)
    alpha = 1.1 + 0.8 * RNG.random(shape)
    p = pe.entmax(z, alpha, offsets=OFFSETS)
    slope = pe.entmax_grad_alpha(p, alpha, offsets=OFFSETS)
    each = np.add.reduceat(slope * g, OFFSETS[:-1][np.array(LENGTHS) > 0], axis=1)
    filled = np.zeros((3, ROWS))
    filled[:, np.array(LENGTHS) > 0] = each
    axes = tuple(i for i in (0, 1) if len(shape) + i < 2 or shape[i + len(shape) - 2] == 1)
    expected = filled.sum(axis=axes, keepdims=True).reshape(shape)
    np.testing.assert_allclose(
        pe.entmax_vjp_alpha(p, g, alpha, offsets=OFFSETS), expected, rtol=1e-12
    )
    in_z, in_alpha = entmax_vjps(p, g, alpha, offsets=OFFSETS)
    np.testing.assert_allclose(in_alpha, expected, rtol=1e-12)
    np.testing.assert_allclose(
        in_z, pe.entmax_vjp(p, g, alpha, offsets=OFFSETS), rtol=1e-12, atol=1e-14
    )
    strength = 0.1 * np.ones(shape)
    p = pe.fusedmax(z, strength, offsets=OFFSETS)
    assert pe.fusedmax_vjp_strength(p, g, strength, offsets=OFFSETS).shape == shape


def test_bounds_belong_to_entries() -> None:
    z, g = scores(0), scores(0)
    upper = 0.5 + RNG.random((LENGTH, 1))
    upper[np.isin(np.arange(LENGTH), OFFSETS)] = 1.0
    p = pe.csparsemax(z, upper, axis=0, offsets=OFFSETS)
    each_row(0, p, lambda r: pe.csparsemax(row(z, r, 0), row(upper, r, 0), axis=0))
    found = pe.csparsemax_vjp_upper(p, g, upper, z, axis=0, offsets=OFFSETS)
    of_row = lambda r: pe.csparsemax_vjp_upper(  # noqa: E731
        row(p, r, 0), row(g, r, 0), row(upper, r, 0), row(z, r, 0), axis=0
    )
    each_row(0, found, of_row)


def test_parameters_by_row_and_head() -> None:
    z = scores(0)
    alpha = 1 + RNG.random((ROWS, 2))
    p = pe.entmax(z, alpha, axis=0, offsets=OFFSETS)
    each_row(0, p, lambda r: pe.entmax(row(z, r, 0), alpha[r], axis=0))
    k = RNG.integers(1, 9, (ROWS, 1))
    p = pe.topk_softmax(z, k, axis=0, offsets=OFFSETS)
    each_row(0, p, lambda r: pe.topk_softmax(row(z, r, 0), int(k[r, 0]), axis=0))
    kept = keep.top_k(z, k, axis=0, offsets=OFFSETS)
    each_row(0, kept, lambda r: keep.top_k(row(z, r, 0), int(k[r, 0]), axis=0))


def test_fusedmax_sees_no_neighbour_across_a_cut() -> None:
    z = np.array([0.0, 1.0, 1.0, 0.0])
    p = pe.fusedmax(z, 0.2, offsets=[0, 2, 4])
    np.testing.assert_array_equal(p[:2], pe.fusedmax(z[:2], 0.2))
    assert np.abs(p - pe.fusedmax(z, 0.2)).max() > 0.1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.bool_])
def test_dtypes_and_out(dtype: Any) -> None:
    z = (scores(0) * 2).astype(dtype)
    p = pe.entmax15(z, axis=0, offsets=OFFSETS)
    assert p.dtype == pe.entmax15(z, axis=0).dtype
    each_row(0, p, lambda r: pe.entmax15(row(z, r, 0), axis=0), rtol=1e-6, atol=1e-7)
    out = np.empty(z.T.shape, p.dtype).T
    assert pe.entmax15(z, axis=0, offsets=OFFSETS, out=out) is out
    np.testing.assert_array_equal(out, p)
    if z.dtype == p.dtype:
        assert pe.entmax15(z, axis=0, offsets=OFFSETS, out=z) is z
        np.testing.assert_array_equal(z, p)
    with pytest.raises(ValueError, match="out must have the shape"):
        pe.entmax15(p, axis=0, offsets=OFFSETS, out=p[1:])


def test_a_broken_row_breaks_no_other() -> None:
    z = scores(-1)
    expected = pe.entmax(z, 1.25, offsets=OFFSETS)
    z[1, OFFSETS[3]] = np.nan
    z[2, OFFSETS[5] : OFFSETS[6]] = -np.inf
    p = pe.entmax(z, 1.25, offsets=OFFSETS)
    assert np.isnan(p[1, OFFSETS[3] : OFFSETS[4]]).all()
    assert (p[2, OFFSETS[5] : OFFSETS[6]] == 0).all()
    same = np.ones_like(z, dtype=bool)
    same[1, OFFSETS[3] : OFFSETS[4]] = same[2, OFFSETS[5] : OFFSETS[6]] = False
    np.testing.assert_array_equal(p[same], expected[same])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_edges(dtype: Any) -> None:
    z = RNG.normal(size=5)
    np.testing.assert_array_equal(pe.sparsemax(z, offsets=np.array([0, 5], dtype)), pe.sparsemax(z))
    every = np.arange(6, dtype=dtype)
    np.testing.assert_array_equal(pe.sparsemax(z, offsets=every), np.ones(5))
    nothing = np.zeros(4, dtype)
    assert pe.sparsemax(z[:0], offsets=nothing).shape == (0,)
    assert pe.sparsemax(np.zeros((2, 0), np.float32), offsets=nothing).dtype == np.float32
    assert pe.sparsemax(z[:0], offsets=nothing[:1]).shape == (0,)
    assert pe.csoftmax(z[:0], 0.1, offsets=nothing).shape == (0,)
    assert pe.topk_softmax(z[:0], [1, 2, 3], offsets=nothing).shape == (0,)
    for reduction, expected in (("none", np.zeros(3)), ("mean", 0.0), ("sum", 0.0)):
        options: Any = {"reduction": reduction, "ignore_index": 7, "offsets": nothing}
        loss, gradient = pe.entmax_loss_and_grad(z[:0], [7, 7, 7], 1.2, **options)
        np.testing.assert_array_equal(loss, expected)
        assert gradient.shape == (0,)


def test_empty_rows_have_no_label() -> None:
    z, offsets = np.zeros(4), [0, 2, 2, 4]
    with pytest.raises(ValueError, match="label of an empty row must be ignore_index, got 0"):
        pe.sparsemax_loss(z, [0, 0, 1], offsets=offsets)
    assert pe.sparsemax_loss(z, [0, -1, 1], offsets=offsets, ignore_index=-1) == 0.25
    assert pe.sparsemax_loss(z, [0, 0, 1], offsets=offsets, weight=[1, 0, 1]) == 0.25
    with pytest.raises(ValueError, match="labels must be in 0 … 1, got 2"):
        pe.sparsemax_loss(z, [0, -1, 2], offsets=offsets, ignore_index=-1)


@pytest.mark.parametrize("dtype", [">i8", ">i4", "<u8", ">u4"])
def test_offsets_of_a_file_may_have_any_byte_order(dtype: str) -> None:
    z, v, offsets = np.arange(5.0), np.ones(5), np.array([0, 2, 5])
    other = offsets.astype(dtype)
    p = pe.sparsemax(z, offsets=other)
    np.testing.assert_array_equal(p, pe.sparsemax(z, offsets=offsets))
    pe.sparsemax_vjp(p, v, offsets=other)
    pe.sparsemax_loss(z, [0, 1], offsets=other)


@pytest.mark.parametrize(
    ("offsets", "error", "message"),
    [
        ([0.0, 4.0], TypeError, "offsets must be int32 or int64, got float64"),
        (np.array([0, 4], np.int16), TypeError, "offsets must be int32 or int64, got int16"),
        ([[0, 4]], ValueError, r"one axis, got shape \(1, 2\)"),
        (4, ValueError, r"one axis, got shape \(\)"),
        ([0, 3, 2, 4], ValueError, "offsets must not fall, got 3 and then 2"),
        ([1, 4], ValueError, "from 0 to 4, the length of the axis, got 1 to 4"),
        ([0, 3], ValueError, "from 0 to 4, the length of the axis, got 0 to 3"),
        ([0, 5], ValueError, "from 0 to 4, the length of the axis, got 0 to 5"),
    ],
)
def test_offsets_that_are_none(offsets: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pe.softmax(np.zeros(4), offsets=offsets)
    with pytest.raises(error, match=message):
        pe.softmax_loss(np.zeros(4), [0], offsets=offsets)


def test_what_offsets_do_not_go_with() -> None:
    z, offsets = np.zeros((4, 2)), [0, 1, 4]
    for axis in (None, (0, 1), (0,)):
        with pytest.raises(TypeError, match="axis must be one int with offsets"):
            pe.softmax(z, axis, offsets=offsets)
    with pytest.raises(TypeError, match="offsets"):
        pe.softmax_jacobian(z, 0, offsets=offsets)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="class_weight is not for offsets"):
        pe.softmax_loss(z, [[0, 0]] * 2, 0, offsets=offsets, class_weight=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"alpha of shape \(4, 1\) does not broadcast to \(2, 2\)"):
        pe.entmax(z, np.ones((4, 1)), 0, offsets=offsets)
    with pytest.raises(ValueError, match=r"y must be integer labels of shape \(2, 2\)"):
        pe.softmax_loss(z, [0, 0], 0, offsets=offsets)
    dask = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="offsets is not for Dask arrays"):
        pe.softmax(dask.zeros((4, 2)), 0, offsets=offsets)
