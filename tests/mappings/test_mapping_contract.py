"""The contract that every mapping keeps: axes, dtypes, masks, edge rows, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mapping_oracles import EXAMPLES, FORWARDS, ORDERED, STRUCTURED, SUPPORTS

import pyentmax
from pyentmax import MAPPINGS

ALL = {name: forward for name, (forward, _) in FORWARDS.items()} | STRUCTURED
UNORDERED = {name: forward for name, forward in ALL.items() if name not in ORDERED}
every_forward = pytest.mark.parametrize("forward", ALL.values(), ids=ALL.keys())
unordered = pytest.mark.parametrize("forward", UNORDERED.values(), ids=UNORDERED.keys())
Forward = Callable[..., Any]


def scores(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


@every_forward
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_any_axis(forward: Forward, axis: int) -> None:
    z = scores(3, 4, 5)
    expected = np.moveaxis(forward(np.moveaxis(z, axis, -1).copy()), -1, axis)
    np.testing.assert_allclose(forward(z, axis=axis), expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(forward(z, axis=axis).sum(axis=axis), 1, rtol=1e-14)


@unordered
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (-1, 0), (2, 1, 0)])
def test_several_axes_are_one_row(forward: Forward, axes: tuple[int, ...]) -> None:
    z = scores(2, 3, 4)
    p = forward(z, axis=axes)
    assert p.shape == z.shape
    rest = [a for a in range(3) if a not in {x % 3 for x in axes}]
    for index in np.ndindex(*(z.shape[a] for a in rest)):
        row: list[Any] = [slice(None)] * 3
        for a, i in zip(rest, index, strict=True):
            row[a] = i
        part = tuple(row)
        np.testing.assert_allclose(p[part].ravel(), forward(z[part].ravel()), rtol=1e-13)


@every_forward
@pytest.mark.parametrize(
    ("dtype", "answer"),
    [
        (np.float16, np.float16),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.longdouble, np.longdouble),
        (">f8", np.float64),
        (np.int8, np.float64),
        (np.int64, np.float64),
        (np.uint16, np.float64),
        (bool, np.float64),
    ],
)
def test_dtypes(forward: Forward, dtype: Any, answer: Any) -> None:
    z = np.array([[2, 1, 0], [1, 1, 0]]).astype(dtype)
    p = forward(z)
    assert p.dtype == answer
    expected = forward(z.astype(np.float64))
    if answer is np.float64:  # the type to compute in, whatever came: the same bits
        np.testing.assert_array_equal(p, expected)
    else:  # what the sums may lose, then what rounding to half precision does
        computed = np.float32 if answer is np.float16 else answer
        lost = 16 * max(np.finfo(computed).eps, np.finfo(np.float64).eps)
        rounded = np.finfo(answer).eps / 2 if answer is np.float16 else 0
        np.testing.assert_allclose(p.astype(float), expected, rtol=float(lost + rounded))


@every_forward
def test_large_integers_keep_their_differences(forward: Forward) -> None:
    z = np.array([[2**24 + 1, 2**24, 2**24 - 1], [2**24, 2**24, 2**24 + 1]])
    np.testing.assert_array_equal(forward(z), forward(z - 2**24))


@every_forward
def test_lists_scalars_and_empty_batches(forward: Forward) -> None:
    np.testing.assert_array_equal(forward([[3.0], [-7.0]]), [[1.0], [1.0]])
    assert forward(np.zeros((0, 4))).shape == (0, 4)
    assert forward(np.zeros((4, 0, 3)), axis=0).shape == (4, 0, 3)


@every_forward
def test_memory_layouts(forward: Forward) -> None:
    z = scores(6, 8)
    expected = forward(z)
    read_only = z.copy()
    read_only.flags.writeable = False
    for same in (np.asfortranarray(z), z[::-1][::-1], z.astype(">f8"), read_only):
        np.testing.assert_allclose(forward(same), expected, rtol=1e-13)
    np.testing.assert_allclose(forward(z[::2, ::-2]), forward(z[::2, ::-2].copy()), rtol=1e-13)


@every_forward
def test_inputs_are_not_overwritten(forward: Forward) -> None:
    z, mask = scores(3, 4), np.array([True, True, True, False])
    before = z.copy()
    forward(z)
    forward(z, axis=0)
    forward(z, mask=mask)
    np.testing.assert_array_equal(z, before)


@every_forward
def test_out(forward: Forward) -> None:
    z = scores(3, 4)
    for axis in (0, 1):
        expected = forward(z, axis=axis)
        out = np.empty((3, 4))
        assert forward(z, axis=axis, out=out) is out
        np.testing.assert_array_equal(out, expected)
        strided = np.empty((3, 8))[:, ::2]
        forward(z, axis=axis, out=strided)
        np.testing.assert_array_equal(strided, expected)
        same = z.copy()
        assert forward(same, axis=axis, out=same) is same
        np.testing.assert_array_equal(same, expected)


@every_forward
def test_mask_equals_minus_infinity(forward: Forward) -> None:
    z = scores(4, 6)
    mask = np.random.default_rng(1).random((4, 6)) < 0.6
    mask[:, 2] = True
    expected = forward(np.where(mask, z, -np.inf))
    np.testing.assert_allclose(forward(z, mask=mask), expected, rtol=1e-13)
    assert (expected[~mask] == 0).all()
    for rubbish in (np.nan, np.inf, 1e300):
        np.testing.assert_allclose(
            forward(np.where(mask, z, rubbish), mask=mask), expected, rtol=1e-13
        )
    np.testing.assert_allclose(
        forward(z.T, axis=0, mask=mask.T), expected.T, rtol=1e-13, atol=1e-300
    )


@every_forward
def test_mask_broadcasts(forward: Forward) -> None:
    z = scores(2, 3, 4)
    for shape in [(4,), (3, 1), (2, 1, 4), (1,), ()]:
        mask = np.ones(shape, bool)
        if mask.ndim:
            mask.reshape(-1)[0] = False
        full = np.broadcast_to(mask, z.shape)
        np.testing.assert_array_equal(forward(z, mask=mask), forward(z, mask=full.copy()))


@every_forward
def test_fully_masked_row_is_zero(forward: Forward) -> None:
    z = np.array([[-np.inf, -np.inf], [1.0, -np.inf], [5.0, 6.0]])
    p = forward(z, mask=np.array([[True], [True], [False]]))
    np.testing.assert_array_equal(p, [[0, 0], [1, 0], [0, 0]])


@every_forward
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_and_infinity_leave_other_rows_alone(forward: Forward, axis: int) -> None:
    z = scores(4, 3)
    bad = z.copy()
    bad[1, 0], bad[2, 1], bad[3, 2] = np.nan, np.inf, -np.inf
    p = forward(bad if axis else bad.T, axis=axis)
    p = p if axis else p.T
    assert np.isnan(p[1:3]).all()
    np.testing.assert_allclose(p[0], forward(z[0]), rtol=1e-13)
    np.testing.assert_allclose(p[3], np.append(forward(z[3, :2]), 0), rtol=1e-13)


@pytest.mark.parametrize("forward", [f for n, f in ALL.items() if n != "topk_sparsemax(2)"])
def test_ties_share_equally(forward: Forward) -> None:
    np.testing.assert_allclose(forward(np.zeros(7)), np.full(7, 1 / 7), rtol=1e-15)
    p = forward(np.array([1.0, 1.0, -1e9]))
    np.testing.assert_allclose(p, [0.5, 0.5, 0], rtol=1e-15)
    assert p[0] == p[1]


@every_forward
@pytest.mark.parametrize("offset", [1e9, -1e9])
def test_offset_of_a_billion(forward: Forward, offset: float) -> None:
    z = np.array([0.0, 0.5, -0.25])
    np.testing.assert_array_equal(forward(z + offset), forward(z))


@every_forward
def test_bad_input_is_named(forward: Forward) -> None:
    z = scores(2, 3)
    with pytest.raises(ValueError, match="z is 0-dimensional"):
        forward(1.0)
    with pytest.raises(ValueError, match=r"z of shape \(2, 0\) has no entry along axis -1"):
        forward(np.zeros((2, 0)))
    with pytest.raises(np.exceptions.AxisError, match="axis 2 is out of bounds"):
        forward(z, axis=2)
    with pytest.raises(ValueError, match="repeated axis"):
        forward(z, axis=(0, -2))
    with pytest.raises(TypeError, match="z must hold real numbers, got dtype complex128"):
        forward(z + 1j)
    with pytest.raises(TypeError, match="z must hold real numbers, got dtype object"):
        forward(z.astype(object))
    with pytest.raises(TypeError, match=r"z is a numpy\.ma array.*mask="):
        forward(np.ma.array(z))
    with pytest.raises(TypeError, match="mask must be boolean.*got dtype int64"):
        forward(z, mask=np.ones((2, 3), np.int64))
    with pytest.raises(ValueError, match=r"mask of shape \(2,\) does not broadcast to z"):
        forward(z, mask=np.ones(2, bool))
    with pytest.raises(ValueError, match=r"out must have the shape of z, \(2, 3\), got \(3, 2\)"):
        forward(z, out=np.empty((3, 2)))
    with pytest.raises(TypeError, match="out of dtype int64 cannot hold"):
        forward(z, out=np.empty((2, 3), np.int64))
    with pytest.raises(TypeError, match="out must be an array to write to, got list"):
        forward(z, out=[0.0])
    frozen = np.empty((2, 3))
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        forward(z, out=frozen)


@pytest.mark.parametrize("alpha", [0.999, 0, -1, np.nan, -np.inf])
def test_alpha_below_1_leaves_out_untouched(alpha: float) -> None:
    out = np.full((2, 3), 7.0)
    with pytest.raises(ValueError, match="alpha must be at least 1, got"):
        pyentmax.entmax(scores(2, 3), [1.5, alpha], out=out)
    assert (out == 7).all()


def test_alpha_must_fit_batch() -> None:
    with pytest.raises(ValueError, match=r"alpha of shape \(3,\) .*batch shape \(2,\)"):
        pyentmax.entmax(scores(2, 3), [1.5] * 3)
    with pytest.raises(ValueError, match=r"alpha of shape \(1, 2\) .*batch shape \(2,\)"):
        pyentmax.entmax(scores(2, 3), [[1.5, 1.5]])


@pytest.mark.parametrize("axis", [0, 1, 2, -2, (0, 2), None])
def test_alpha_broadcasts_over_batch(axis: Any) -> None:
    z = scores(4, 5, 6)
    batch = z.sum(axis=axis).shape
    alphas = np.array([1, 1.0001, 1.2, 1.5, 2, 2.5, 4, np.inf])
    alpha = np.resize(alphas, batch)
    p = pyentmax.entmax(z, alpha, axis)
    np.testing.assert_array_equal(pyentmax.entmax_support(z, alpha, axis), p > 0)
    for value in np.unique(alpha):
        rows = np.expand_dims(alpha == value, (0, 1, 2) if axis is None else axis)
        same = np.broadcast_to(rows, z.shape)
        expected = pyentmax.entmax(z, value, axis)
        np.testing.assert_allclose(p[same], expected[same], rtol=1e-13, atol=1e-15)
    if len(batch) == 2:
        column = alpha[:, :1]
        full = np.broadcast_to(column, batch)
        np.testing.assert_array_equal(
            pyentmax.entmax(z, column, axis), pyentmax.entmax(z, full, axis)
        )


@pytest.mark.parametrize("name", SUPPORTS)
def test_support_agrees_with_mapping(name: str) -> None:
    forward, support = ALL[name], SUPPORTS[name]
    z = scores(4, 5, 6) * 3
    mask = np.random.default_rng(2).random(z.shape) < 0.7
    for axis in (0, 1, -1) if name in ORDERED else (0, 1, -1, (0, 1)):
        on = support(z, axis=axis, mask=mask)
        assert on.dtype == bool
        np.testing.assert_array_equal(on, forward(z, axis=axis, mask=mask) > 0)
    dead = np.array([[-np.inf, -np.inf], [np.nan, 0.0], [np.inf, 0.0]])
    assert not support(dead).any()


@pytest.mark.parametrize("name", SUPPORTS)
def test_scores_at_the_threshold_are_unsupported(name: str) -> None:
    # The last score of each row is at the threshold of sparsemax, or of 1.5-entmax, to the bit.
    z = np.array([[0.0, -np.inf, -1], [0, 0, -0.5], [0, -np.inf, -2], [-1, -np.inf, -3]])
    np.testing.assert_array_equal(SUPPORTS[name](z), ALL[name](z) > 0)


def test_support_of_underflowing_entries() -> None:
    z = np.array([0.0, -200.0, -np.inf], dtype=np.float32)
    assert pyentmax.softmax(z)[1] == 0
    assert pyentmax.softmax_support(z).tolist() == [True, True, False]
    for alpha, on in [(1, True), (1 + 1e-9, True), (1.001, True), (1.006, False), (4, False)]:
        assert pyentmax.entmax(z, alpha)[1] == 0
        assert pyentmax.entmax_support(z, alpha).tolist() == [True, on, False]


def test_records_hold_the_public_functions() -> None:
    structured = {"topk_softmax", "topk_sparsemax", "fusedmax", "oscarmax"}
    bounded = {"csoftmax", "csparsemax", "budget_sparsemax"}
    regularized = {"softmax", "sparsemax", "entmax15", "entmax", "normmax"}
    assert set(MAPPINGS) == regularized | structured | bounded
    for name, record in MAPPINGS.items():
        assert record.name == name
        assert record.forward is getattr(pyentmax, name)
        for part in ("jvp", "vjp", "jacobian", "support"):
            assert getattr(record, part) is getattr(pyentmax, f"{name}_{part}")
        params = tuple(EXAMPLES[parameter] for parameter in record.parameters)
        p = record.forward([0.0, -200.0], *params)
        assert record.omega is None or record.omega(p, *params).shape == ()
        assert record.support([0.0, -200.0], *params).tolist() == [True, not record.sparse]


def test_every_public_function_has_an_example() -> None:
    for name in pyentmax.__all__:
        value = getattr(pyentmax, name)
        if callable(value):
            assert ">>>" in value.__doc__ or isinstance(value, type), f"{name} has no example"
