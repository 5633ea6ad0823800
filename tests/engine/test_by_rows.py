"""Rows of different lengths: `by_rows` against the function on each row, to the last bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax import by_rows, keep
from pyentmax.reference.mappings.entmax import entmax

RNG = np.random.default_rng(57)
LENGTHS = np.array([3, 0, 1, 7, 3, 40, 0, 2, 7, 300, 1, 0])
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
ROWS, LENGTH = len(LENGTHS), int(OFFSETS[-1])
FULL = np.flatnonzero(LENGTHS)


def scores(dtype: Any = np.float64) -> Any:
    return RNG.normal(scale=1.5, size=LENGTH).astype(dtype)


def row(array: Any, r: int) -> Any:
    return array[OFFSETS[r] : OFFSETS[r + 1]]


def assert_same(whole: Any, of_row: Any, *, per_row: bool = False) -> None:
    """The result has for every row that is not empty what `of_row` gives."""
    for r in FULL:
        np.testing.assert_array_equal(whole[r] if per_row else row(whole, r), of_row(int(r)))


def test_gradients_in_parameters_come_per_row() -> None:
    z, g = scores(), scores()
    alpha = 1.1 + 0.8 * RNG.random(ROWS)
    p = by_rows(pe.entmax, (z,), OFFSETS, (alpha,))
    slope = by_rows(pe.entmax.parameter_slope, (p,), OFFSETS, (alpha,))
    in_z, in_alpha = by_rows(entmax.vjps, (p, g), OFFSETS, (alpha,))
    expected = np.zeros(ROWS)
    expected[FULL] = np.add.reduceat(slope * g, OFFSETS[FULL])
    np.testing.assert_allclose(in_alpha, expected, rtol=1e-12)
    np.testing.assert_allclose(in_z, by_rows(pe.entmax.vjp, (p, g), OFFSETS, (alpha,)), rtol=1e-12)
    with pytest.raises(ValueError, match=r"function must return an entry for each score"):
        by_rows(partial(pe.entmax.parameter_vjp, alpha=1.5), (p, g), OFFSETS)


def test_keep_sets_and_functions_of_ones_own() -> None:
    z, k = scores(), RNG.integers(1, 9, ROWS)
    kept = by_rows(keep.top_k, (z,), OFFSETS, (k,))
    assert_same(kept, lambda r: keep.top_k(row(z, r), int(k[r])))
    np.testing.assert_array_equal(
        by_rows(np.cumsum, (np.arange(5),), [0, 2, 2, 5], (1,)), [0, 1, 2, 5, 9]
    )


def test_fusedmax_sees_no_neighbour_across_a_cut() -> None:
    z = np.array([0.0, 1.0, 1.0, 0.0])
    p = by_rows(pe.fusedmax, (z,), [0, 2, 4], (0.2,))
    np.testing.assert_array_equal(p[:2], pe.fusedmax(z[:2], 0.2))
    assert np.abs(p - pe.fusedmax(z, 0.2)).max() > 0.1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.bool_])
def test_dtypes_and_strides(dtype: Any) -> None:
    z = (np.repeat(scores(), 2) * 2).astype(dtype)[::2]
    p = by_rows(pe.entmax15, (z,), OFFSETS)
    assert p.dtype == pe.entmax15(z).dtype
    assert_same(p, lambda r: pe.entmax15(row(z, r)))


def test_a_broken_row_breaks_no_other() -> None:
    z = scores()
    expected = by_rows(pe.entmax, (z,), OFFSETS, (1.25,))
    z[OFFSETS[3]] = np.nan
    z[OFFSETS[5] : OFFSETS[6]] = -np.inf
    p = by_rows(pe.entmax, (z,), OFFSETS, (1.25,))
    assert np.isnan(row(p, 3)).all()
    assert (row(p, 5) == 0).all()
    row(expected, 3)[:], row(expected, 5)[:] = np.nan, 0
    np.testing.assert_array_equal(p, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, ">i8", "<u4"])
def test_edges(dtype: Any) -> None:
    z = RNG.normal(size=5)
    whole, every = np.array([0, 5], dtype), np.arange(6).astype(dtype)
    np.testing.assert_array_equal(by_rows(pe.sparsemax, (z,), whole), pe.sparsemax(z))
    np.testing.assert_array_equal(by_rows(pe.sparsemax, (z,), every), np.ones(5))
    nothing = np.zeros(4, dtype)
    assert by_rows(pe.sparsemax, (z[:0].astype("f4"),), nothing).dtype == np.float32
    assert by_rows(pe.sparsemax, (z[:0],), nothing[:1]).shape == (0,)
    loss = partial(pe.entmax15.loss_and_grad, reduction="none")
    losses, gradient = by_rows(loss, (z[:0],), nothing, (np.zeros(3, int),))
    assert losses.tolist() == [0, 0, 0]
    assert gradient.shape == (0,)


def test_labels_belong_to_their_row() -> None:
    loss = partial(pe.sparsemax.loss, reduction="none")
    found = by_rows(loss, (np.zeros(4),), [0, 2, 2, 4], (np.array([0, 7, 1]),))
    assert found.tolist() == [0.25, 0.0, 0.25]
    with pytest.raises(ValueError, match="labels must be in 0 … 1, got 2"):
        by_rows(loss, (np.zeros(4),), [0, 2, 2, 4], (np.array([0, 0, 2]),))


@pytest.mark.parametrize(
    ("offsets", "error", "message"),
    [
        ([0.0, 4.0], TypeError, "offsets must be int32 or int64, got float64"),
        (np.array([0, 4], np.int16), TypeError, "offsets must be int32 or int64, got int16"),
        ([[0, 4]], ValueError, r"one axis, got shape \(1, 2\)"),
        (4, ValueError, r"one axis, got shape \(\)"),
        ([0, 3, 2, 4], ValueError, "offsets must not fall, got 3 and then 2"),
        ([1, 4], ValueError, "from 0 to 4, the number of entries, got 1 to 4"),
        ([0, 3], ValueError, "from 0 to 4, the number of entries, got 0 to 3"),
        ([0, 5], ValueError, "from 0 to 4, the number of entries, got 0 to 5"),
    ],
)
def test_wrong_offsets_are_refused(offsets: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        by_rows(pe.softmax, (np.zeros(4),), offsets)


def test_wrong_arrays_are_refused() -> None:
    z, offsets = np.zeros(4), [0, 1, 4]
    with pytest.raises(ValueError, match=r"entries\[0\] must have the shape \(n,\), got \(4, 2\)"):
        by_rows(pe.softmax, (np.zeros((4, 2)),), offsets)
    with pytest.raises(ValueError, match=r"entries must be of one shape \(n,\), got"):
        by_rows(pe.softmax.jvp, (z, z[1:]), offsets)
    with pytest.raises(ValueError, match=r"per_row\[0\] must have the shape \(2,\)"):
        by_rows(pe.entmax, (z,), offsets, (np.ones(4),))
    with pytest.raises(ValueError, match='reduction="none"'):
        by_rows(pe.softmax.loss, (z,), offsets, (np.zeros(2, int),))
    dask = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="is a Dask array"):
        by_rows(pe.softmax, (dask.zeros(4),), offsets)
