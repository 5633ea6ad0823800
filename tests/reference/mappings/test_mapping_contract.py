"""The contract that every mapping keeps: axes, dtypes, masks, edge rows, parameters, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mapping_cases import CASES, GPU_CASES, Case, every_case, parametrized
from parameter_values import EXAMPLES

import pyentmax
from pyentmax import MAPPINGS

on_any_array = parametrized([*CASES, *GPU_CASES])


def scores(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def rows_of(a: np.ndarray, axis: Any) -> np.ndarray:
    """The entries along the axis, or along several as they lie in memory, as rows."""
    axes = range(a.ndim) if axis is None else np.atleast_1d(axis) % a.ndim
    last = range(-len(axes), 0)
    moved = np.moveaxis(a, sorted(axes), last)
    return moved.reshape(*moved.shape[: -len(axes)], -1)


@on_any_array
def test_rows_lie_along_any_axes(case: Case) -> None:
    z = scores(2, 3, 4)
    several: list[Any] = [(0, 1), (1, 0), (-1, 0), (2, 1, 0), None]
    for axis in [0, 1, -2, -3, *([] if case.record.one_axis else several)]:
        p = case.forward(z, axis)
        assert p.shape == z.shape
        rows = rows_of(z, axis).copy()
        np.testing.assert_allclose(rows_of(p, axis), case.forward(rows), rtol=1e-13, atol=1e-15)
        np.testing.assert_array_equal(case.support(z, axis), case.forward(z, axis) > 0)


@on_any_array
def test_dtypes(case: Case) -> None:
    z = np.array([[2, 1, 0], [1, 1, 0]])
    for dtype in (">f8", np.int8, np.int64, np.uint16, bool):
        p = case.forward(z.astype(dtype))
        assert p.dtype == np.float64
        np.testing.assert_array_equal(p, case.forward(z.astype(dtype).astype(np.float64)))
    gpu = case.form == "gpu"
    for dtype in (np.float16, np.float32, *([] if gpu else [np.longdouble])):
        p = case.forward(z.astype(dtype))
        assert p.dtype == dtype
        # What sums may lose in the type computed in, then what rounding to half precision does.
        computed = np.float32 if dtype is np.float16 else dtype
        lost = 16 * max(np.finfo(computed).eps, np.finfo(np.float64).eps)
        rounded = np.finfo(dtype).eps / 2 if dtype is np.float16 else 0
        expected = case.forward(z.astype(float))
        atol = 2 * np.finfo(np.float32).eps * gpu  # of scores at the threshold
        np.testing.assert_allclose(p.astype(float), expected, rtol=float(lost + rounded), atol=atol)


@on_any_array
def test_lists_large_integers_and_empty_batches(case: Case) -> None:
    z = np.array([[2**24 + 1, 2**24, 2**24 - 1], [2**24, 2**24, 2**24 + 1]])
    np.testing.assert_array_equal(case.forward(z), case.forward(z - 2**24))
    np.testing.assert_array_equal(case.forward([[3.0], [-7.0]]), [[1.0], [1.0]])
    assert case.forward(np.zeros((0, 4))).shape == (0, 4)
    assert case.forward(np.zeros((4, 0, 3)), axis=0).shape == (4, 0, 3)


@on_any_array
def test_memory_layouts_and_out(case: Case) -> None:
    z = scores(6, 8)
    before, expected = z.copy(), case.forward(z)
    z.flags.writeable = False
    for same in (z, np.asfortranarray(z), z[::-1][::-1], z.astype(">f8")):
        np.testing.assert_allclose(case.forward(same), expected, rtol=1e-13)
    np.testing.assert_allclose(
        case.forward(z[::2, ::-2]), case.forward(z[::2, ::-2].copy()), rtol=1e-13
    )
    for axis in (0, 1):
        expected = case.forward(z, axis)
        for out in (np.empty((6, 8)), np.empty((6, 16))[:, ::2], z.copy()):
            given = out if out.flags.c_contiguous else z
            np.copyto(out, z)
            assert case.forward(given, axis, out=out) is out
            np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(z, before)


@on_any_array
def test_mask_equals_minus_infinity(case: Case) -> None:
    z = scores(4, 6)
    mask = np.random.default_rng(1).random((4, 6)) < 0.6
    mask[:, 2], mask[3] = True, False
    expected = case.forward(np.where(mask, z, -np.inf))
    assert (expected[~mask] == 0).all()
    np.testing.assert_array_equal(case.support(z, mask=mask), expected > 0)
    for rubbish in (0, np.nan, np.inf, 1e300):
        spoiled = np.where(mask, z, rubbish)
        np.testing.assert_allclose(case.forward(spoiled, mask=mask), expected, rtol=1e-13)
        p = case.forward(spoiled.T, 0, mask=mask.T)
        np.testing.assert_allclose(p, expected.T, rtol=1e-13, atol=1e-300)
    z = scores(2, 3, 4)
    for shape in [(4,), (3, 1), (2, 1, 4), (1,), ()]:
        mask = np.ones(shape, bool)
        if mask.ndim:
            mask.reshape(-1)[0] = False
        full = np.broadcast_to(mask, z.shape).copy()
        np.testing.assert_array_equal(case.forward(z, mask=mask), case.forward(z, mask=full))


@on_any_array
def test_edge_rows_leave_other_rows_alone(case: Case) -> None:
    z = np.append(scores(3, 3), [[-np.inf] * 3], axis=0)
    z[1, 0], z[2, 1] = np.nan, np.inf
    for p in (case.forward(z), case.forward(z.T, axis=0).T):
        np.testing.assert_allclose(p[0], case.forward(z[0]), rtol=1e-13)
        assert np.isnan(p[1:3]).all()
        np.testing.assert_array_equal(p[3], 0)
    assert not case.support(z)[1:].any()
    part = case.forward([1.0, 0.5, -np.inf])
    np.testing.assert_allclose(part, np.append(case.forward([1.0, 0.5]), 0), rtol=1e-13)


@on_any_array
def test_ties_and_offset_of_a_billion(case: Case) -> None:
    z = np.array([0.0, 0.5, -0.25])
    for offset in (1e9, -1e9):
        np.testing.assert_array_equal(case.forward(z + offset), case.forward(z))
    p = case.forward(np.array([1.0, 1.0, -1e9]))
    np.testing.assert_allclose(p, [0.5, 0.5, 0], rtol=1e-15, atol=4e-18)  # at α = ½
    assert p[0] == p[1]
    if case.name != "topk_sparsemax":  # which keeps two of them
        np.testing.assert_allclose(case.forward(np.zeros(7)), np.full(7, 1 / 7), rtol=1e-15)


@on_any_array
def test_float16_rows_near_minus_1000(case: Case) -> None:
    """deep-spin/entmax: NaN."""
    z = np.array([0, -1, -2, -4], np.float16)
    for offset in np.float16([0, -1000]):
        p = case.forward(z + offset)
        assert p.dtype == np.float16
        expected = case.forward(z.astype(np.float64)).astype(np.float16)
        atol = 3 * np.finfo(np.float32).eps * (case.form == "gpu")
        np.testing.assert_allclose(p.astype(float), expected, rtol=0, atol=atol)


@on_any_array
def test_tiny_and_huge_scores_are_finite(case: Case) -> None:
    for z in ([1e308, -1e308, 0.0], [5e-324, 0.0], [-1e308, -1e308], [3e38, 1e-30, -3e38]):
        p = case.forward(np.array(z))
        assert np.isfinite(p).all()
        assert abs(p.sum() - 1) < 1e-14


@every_case
def test_bad_input_is_named(case: Case) -> None:
    z, frozen = scores(2, 3), np.empty((2, 3))
    frozen.flags.writeable = False
    wrong: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (ValueError, "z is 0-dimensional", 1.0, {}),
        (ValueError, r"z of shape \(2, 0\) has no entry along axis -1", np.zeros((2, 0)), {}),
        (np.exceptions.AxisError, "axis 2 is out of bounds", z, {"axis": 2}),
        (ValueError, "repeated axis", z, {"axis": (0, -2)}),
        (TypeError, "z must hold real numbers, got dtype complex128", z + 1j, {}),
        (TypeError, "z must hold real numbers, got dtype object", z.astype(object), {}),
        (TypeError, r"z is a numpy\.ma array.*mask=", np.ma.array(z), {}),
        (TypeError, "mask must be boolean.*got dtype int64", z, {"mask": np.ones((2, 3), int)}),
        (ValueError, r"mask of shape \(2,\) does not .* to z", z, {"mask": np.ones(2, bool)}),
        (ValueError, r"out must have the shape of z, \(2, 3\), got", z, {"out": frozen.T.copy()}),
        (TypeError, "out of dtype int64 cannot hold", z, {"out": np.empty((2, 3), np.int64)}),
        (TypeError, "out must be an array to write to, got list", z, {"out": [0.0]}),
        (ValueError, "out is read-only", z, {"out": frozen}),
    ]
    for error, message, given, options in wrong:
        with pytest.raises(error, match=message):
            case.forward(given, **options)


# --- parameters -----------------------------------------------------------------------------------

# By the parameter's name, or the mapping's where that narrows what is valid.
PER_ROW: dict[str, list[float]] = {
    "alpha": [0.3, 1, 1.0001, 1.2, 1.5, 2, 2.5, 4, np.inf],
    "normmax": [1.2, 2, 7, np.inf],
    "budget": [0, 0.5, 1, 1.7, 2.9],
    "k": [1, 2, 3, 7, np.inf],
    "strength": [0, 0.02, 1, np.inf],
}


def of_parameter(table: dict[str, Any], name: str) -> Any:
    return table.get(name) or table.get(MAPPINGS[name].parameters[0])


@pytest.mark.parametrize("axis", [0, -2, (0, 2), None])
@pytest.mark.parametrize("name", [n for n, r in MAPPINGS.items() if r.parameters])
def test_parameter_broadcasts_over_batch(name: str, axis: Any) -> None:
    record, values = MAPPINGS[name], of_parameter(PER_ROW, name)
    if values is None or (record.one_axis and not isinstance(axis, int)):
        return
    z, v = np.random.default_rng(1).standard_normal((2, 3, 4, 5))
    batch = z.sum(axis=axis).shape
    given = np.random.default_rng(2).choice(values, batch)
    p, on = record(z, given, axis), record.support(z, given, axis)
    product, jacobian = record.jvp(p, v, given, axis), record.jacobian(p, given, axis)
    for value in np.unique(given):
        rows = np.expand_dims(given == value, () if axis is None else axis)
        same = np.broadcast_to(rows, z.shape)
        for found, expected in (
            (p, record(z, value, axis)),
            (on, record.support(z, value, axis)),
            (product, record.jvp(p, v, value, axis)),
        ):
            np.testing.assert_allclose(found[same], expected[same], rtol=1e-12, atol=1e-15)
        alone = record.jacobian(p, value, axis)[given == value]
        np.testing.assert_allclose(jacobian[given == value], alone, rtol=1e-12, atol=1e-15)
    if len(batch) == 2:
        column = given[:, :1]
        full = np.broadcast_to(column, batch)
        np.testing.assert_array_equal(record(z, column, axis), record(z, full, axis))


BAD: dict[str, list[tuple[Any, str]]] = {
    "alpha": [
        *((x, f"alpha must be above 0, got {x}") for x in (0, -1, np.nan, -np.inf)),
        ([1.5, 0], "alpha must be above 0, got 0"),
        ([[1.5, 1.5]], r"alpha of shape \(1, 2\) .*batch shape \(2,\)"),
    ],
    "normmax": [(x, f"alpha must be above 1, got {x}") for x in (1, 0.5, -2, np.nan)],
    "budget": [
        ([1, -1e-9], "budget must be at least 0, got -1e-09"),
        ([1, np.nan], "budget must be at least 0, got nan"),
    ],
    "k": [
        (0, "k must be at least 1, got 0"),
        (np.nan, "k must be at least 1, got nan"),
        ([2, 0], "k must be at least 1, got 0"),
        (1.5, "k must be a whole number, got 1.5"),
    ],
    "strength": [
        (-0.1, "strength must be at least 0, got -0.1"),
        ([0.1, np.nan], "strength must be at least 0, got nan"),
    ],
    "upper": [
        ([1, 1, -0.25], r"upper must be at least 0, got -0\.25"),
        ([1, 1, np.nan], "upper must be at least 0, got nan"),
        ([1, 1], r"upper of shape \(2,\) does not broadcast to [zp], of shape"),
        (np.ones((4, 2, 3)), r"upper of shape \(4, 2, 3\) does not broadcast to [zp]"),
    ],
}


@pytest.mark.parametrize("name", [n for n, r in MAPPINGS.items() if r.parameters])
def test_bad_parameter_writes_nothing(name: str) -> None:
    record = MAPPINGS[name]
    [parameter] = record.parameters
    z, p, out = np.zeros((2, 3)), np.full((2, 3), 1 / 3), np.full((2, 3), 7.0)
    bad = list(of_parameter(BAD, name))
    if parameter != "upper":
        bad += [([1.5] * 3, rf"{parameter} of shape \(3,\) .*batch shape \(2,\)")]
    for value, message in bad:
        with pytest.raises(ValueError, match=message):
            record(z, value, out=out)
        with pytest.raises(ValueError, match=message):
            record.support(z, value)
        with pytest.raises(ValueError, match=message):
            record.jvp(p, z, value)
        with pytest.raises(ValueError, match=message):
            record.jacobian(p, value)
        if record.loss.is_defined:
            with pytest.raises(ValueError, match=message):
                record.loss(z, [0, 1], value)
        if record.parameter_vjp.is_defined:
            with pytest.raises(ValueError, match=message):
                record.parameter_vjp.at_scores(z, p, z, value)
    with pytest.raises(TypeError, match=f"{parameter} must hold real numbers"):
        record(z, 2j, out=out)
    assert (out == 7).all()


# --- supports and records -------------------------------------------------------------------------


@every_case
def test_scores_at_the_threshold_are_unsupported(case: Case) -> None:
    # The last score of each row is at the threshold of sparsemax, or of 1.5-entmax, to the bit.
    z = np.array([[0.0, -np.inf, -1], [0, 0, -0.5], [0, -np.inf, -2], [-1, -np.inf, -3]])
    p = case.forward(z)
    np.testing.assert_array_equal(case.support(z), p > 0)
    if case.record.support_alpha == 2 and case.params in ((), (1,), (2,), (0,)):
        np.testing.assert_array_equal(p[:, 2], 0)
    if case.name == "entmax15":
        np.testing.assert_array_equal(p[2:, 2], 0)


def test_support_of_underflowing_entries() -> None:
    z = np.array([0.0, -200.0, -np.inf], dtype=np.float32)
    assert pyentmax.softmax(z)[1] == 0
    assert pyentmax.softmax.support(z).tolist() == [True, True, False]
    for alpha, on in [(1, True), (1 + 1e-9, True), (1.001, True), (1.006, False), (4, False)]:
        assert pyentmax.entmax(z, alpha)[1] == 0
        assert pyentmax.entmax.support(z, alpha).tolist() == [True, on, False]


def test_records_hold_the_public_functions() -> None:
    without_loss = {"csoftmax", "csparsemax", "budget_sparsemax", "topk_softmax"}
    regularized = {"softmax", "sparsemax", "entmax15", "entmax", "normmax"}
    assert set(MAPPINGS) >= regularized | without_loss | {"topk_sparsemax", "fusedmax", "oscarmax"}
    for name, record in MAPPINGS.items():
        assert record.name == name
        assert record is getattr(pyentmax, name)
        params = tuple(EXAMPLES[parameter] for parameter in record.parameters)
        p = record([0.0, -200.0], *params)
        on = name == "topk_softmax" or not record.sparse
        assert record.support([0.0, -200.0], *params).tolist() == [True, on]
        assert not record.regularizer.is_defined or name not in without_loss
        if not record.regularizer.is_defined:
            named = dict(zip(record.parameters, params, strict=True))
            with pytest.raises(ValueError, match=f"and {name} has none: choose one of softmax, "):
                pyentmax.fenchel_young_loss([[0.0, 1.0]], [1], name, **named)
        else:
            assert record.regularizer(p, *params).shape == ()


def test_every_public_function_has_an_example() -> None:
    for name in pyentmax.__all__:
        value = getattr(pyentmax, name)
        if callable(value) and "." not in getattr(value, "__qualname__", ""):
            assert ">>>" in value.__doc__ or isinstance(value, type), f"{name} has no example"
