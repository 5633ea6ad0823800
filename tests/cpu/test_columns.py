"""Rows that lie across the memory give what they give side by side, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_operands import BASELINE, KERNELS_OF_ROWS, operands, rows_of_every_kind
from kernel_rows import FLOATS
from stages import deep, sample, slow

import pyentmax

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")


def outputs(kernel, given, layout):
    """What a kernel writes into arrays of a layout; what they held before is no number."""
    shapes = [array.shape for array in as_tuple(kernel(*given))]
    dtype = given[0].dtype
    made = [np.full(shape, np.nan, dtype if len(shape) > 1 else float) for shape in shapes]
    kinds = kernel.types[0 if dtype == np.float32 else 1].split("->")[1]
    made = [layout(x.astype(kind)) for x, kind in zip(made, kinds, strict=True)]
    return as_tuple(kernel(*given, out=tuple(made)))


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("dtype", [np.float32, *slow(np.float64)])
@pytest.mark.parametrize("name", sample(KERNELS_OF_ROWS))
def test_every_kernel_takes_and_writes_columns(name, dtype):
    rng = np.random.default_rng(1)
    kernel = getattr(_cpu, name)
    for z in rows_of_every_kind(rng, dtype):
        given = operands(name, z, rng)
        expected = outputs(kernel, given, np.ascontiguousarray)
        across = [np.asfortranarray(x) for x in given]
        some = [np.asfortranarray(x) if rng.random() < 0.5 else x for x in given]
        for inputs in (across, some):
            for layout in (np.asfortranarray, np.ascontiguousarray):
                for got, wanted in zip(outputs(kernel, inputs, layout), expected, strict=True):
                    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [17, *slow(1, 2, 300), *deep(5000)])
@pytest.mark.parametrize("rows", [1, 16, 17, *slow(3, 4, 15, 40, 700)])
def test_any_number_of_columns_masked_in_place_and_in_part(rows, n, dtype):
    rng = np.random.default_rng(rows + n)
    z = rng.standard_normal((n, rows)).astype(dtype)
    alpha = rng.choice([1.2, 1.5, 1.75], rows)
    for mask in (None, rng.random((n, rows)) < 0.7, rng.random((n, 1)) < 0.7, np.arange(rows) > 0):
        whole = None if mask is None else np.broadcast_to(mask, z.shape).T.copy()
        expected = pyentmax.entmax(z.T.copy(), alpha, mask=whole).T
        np.testing.assert_array_equal(pyentmax.entmax(z, alpha, axis=0, mask=mask), expected)
        place = z.copy()
        pyentmax.entmax(place, alpha, axis=0, mask=mask, out=place)
        np.testing.assert_array_equal(place, expected)
        wide = np.full((n, rows + 5), 7, dtype)  # whose other columns stay as they are
        pyentmax.entmax(z, alpha, axis=0, mask=mask, out=wide[:, 2:-3])
        np.testing.assert_array_equal(wide[:, 2:-3], expected)
        np.testing.assert_array_equal(wide[:, [0, 1, -3, -2, -1]], 7)


def test_a_row_in_the_middle_of_four_axes():
    z = np.random.default_rng(2).standard_normal((3, 50, 2, 33)).astype(np.float32)
    p = pyentmax.sparsemax(z, axis=1)
    np.testing.assert_array_equal(p, np.moveaxis(pyentmax.sparsemax(np.moveaxis(z, 1, -1)), -1, 1))


def test_all_builds_take_columns():
    assert all(kernels.keys() == _cpu.BUILDS[BASELINE].keys() for kernels in _cpu.BUILDS.values())
    z = np.asfortranarray(np.random.default_rng(3).standard_normal((64, 200)))
    mask = np.ones(200, dtype=bool)
    for kernels in _cpu.BUILDS.values():
        expected = kernels["softmax"](z.copy("C"), mask)
        np.testing.assert_array_equal(kernels["softmax"](z, mask), expected)
