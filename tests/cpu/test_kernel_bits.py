"""A row gives the same bits wherever it lies: among any others, in any layout, masked any way."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_operands import (
    BASELINE,
    ENTRY_BY_ENTRY,
    KERNELS_OF_ROWS,
    _cpu,
    assert_agree,
    operands,
    results,
)
from kernel_rows import FLOATS, LAYOUTS, rows_of_every_kind
from stages import slow

import pyentmax

every_dtype = pytest.mark.parametrize("dtype", FLOATS)
every_kernel = pytest.mark.parametrize("name", KERNELS_OF_ROWS)
MASKED = [name for name in KERNELS_OF_ROWS if "?" in _cpu.BUILDS[BASELINE][name].types[0][:2]]
MAPPINGS = [name for name in MASKED if "loss" not in name]


def batch(name, n, dtype, seed=0):
    """Operands for more rows than a tile holds, each with values of its own."""
    rng = np.random.default_rng((seed, n))
    return operands(name, rows_of_every_kind(rng, n, dtype), rng)


@every_dtype
@pytest.mark.parametrize("lengths", [(2, 64, 300), *slow([17, 31, 129, 385, 1000, 2100])], ids=str)
@every_kernel
def test_all_builds_agree(name, lengths, dtype):
    for n in lengths:
        given = batch(name, n, dtype)
        expected = results(_cpu.BUILDS[BASELINE][name], given)
        for kernels in _cpu.BUILDS.values():
            assert_agree(name, results(kernels[name], given), expected, given)


@every_dtype
@pytest.mark.parametrize("n", [7, 129, *slow(300, 2100)])
def test_special_alphas_are_those_mappings_to_the_last_bit(n, dtype):
    z = np.random.default_rng(n).standard_normal((33, n)).astype(dtype)
    mask = np.broadcast_to(True, z.shape)
    for alpha, name in ((1, "softmax"), (1.5, "entmax15"), (2, "sparsemax")):
        expected = getattr(_cpu, name)(z, mask)
        for given in (alpha, np.full(33, alpha)):
            np.testing.assert_array_equal(_cpu.entmax(z, mask, given), expected)


# A mask that is one True for all must stay so: the kernels look for it, and read rows in place.


def changed(given, change):
    return tuple(change(x) if any(x.strides) else x for x in given)


def taken(given, rows):
    """Some rows, or one of them."""
    every = np.broadcast_to(True, given[0][rows].shape)
    return tuple(x[rows] if any(x.strides) else every for x in given)


def assert_same(found, expected, told):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=str(told))


@every_dtype
@pytest.mark.parametrize("lengths", [(5, 64), *slow([1, 20, 128, 129, 300, 512, 700, 2100])])
@every_kernel
def test_rows_depend_on_no_other(name, lengths, dtype):
    """Easy and hard, sound and spoilt rows share a tile, and what is prepared for an α."""
    kernel = getattr(_cpu, name)
    for n in lengths:
        given = batch(name, n, dtype)
        whole = results(kernel, given)
        size = len(given[0])
        order = np.random.default_rng(n).permutation(size)
        for rows in (order, order[: size // 3], *(order[i : i + 1] for i in range(6))):
            some = results(kernel, taken(given, rows))
            assert_same(some, [x[rows] for x in whole], (n, rows))
        if name not in ENTRY_BY_ENTRY:  # a single row has no axis of rows
            one = results(kernel, taken(given, 3))
            assert_same(one, [x[3] for x in whole], n)


@every_dtype
@pytest.mark.parametrize("heads", [12, *slow(6, 599)])
@pytest.mark.parametrize("name", ["entmax", "entmax_jvp", "entmax_vjps", "entmax_loss_and_grad"])
def test_rows_of_heads_are_those_of_each_head(name, heads, dtype):
    """A window of rows is done in the order of α, and rows of several α share a tile."""
    kernel, alpha = getattr(_cpu, name), 1 + np.random.default_rng(heads).random(heads)
    alpha[:6] = 2.5, 1.25, np.inf, 1.5, 4 / 3, 5 / 3
    for n in (20, 64, 384):
        rng = np.random.default_rng(n)
        z = (rng.choice([0.1, 1, 5], (600, 1)) * rng.standard_normal((600, n))).astype(dtype)
        *given, _ = operands(name, z, rng)
        whole = results(kernel, (*given, np.resize(alpha, 600)))
        for head in range(min(heads, 12)):
            own = results(kernel, (*(x[head::heads] for x in given), alpha[head]))
            assert_same(own, [x[head::heads] for x in whole], (n, alpha[head]))


def canvases(kernel, given, layout):
    """Arrays of a layout to write results to; what they hold before is no number."""
    made = []
    for x in results(kernel, given):
        made.append(layout(np.full(x.shape, 1 if x.dtype == bool else np.nan, x.dtype)))
    return tuple(made)


@every_dtype
@pytest.mark.parametrize("n", [45, *slow(17, 300)])
@every_kernel
def test_any_layout_gives_the_same(name, n, dtype):
    kernel = getattr(_cpu, name)
    given = batch(name, n, dtype)
    expected = results(kernel, given)
    for layout, change in LAYOUTS.items():
        others = changed(given, change)
        before = [x.copy() for x in others]
        assert_same(results(kernel, others), expected, layout)
        for k, x in enumerate(others):
            mixed = (*given[:k], x, *given[k + 1 :])
            assert_same(results(kernel, mixed), expected, (layout, k))
        assert_same(others, before, "an operand was overwritten")
    several = len(given) > 1 and name not in ENTRY_BY_ENTRY
    for k, x in enumerate(given if several else ()):  # one for all rows
        shared, each = [*given], [*given]
        shared[k], each[k] = x[0], np.repeat(x[:1], len(x), axis=0)
        assert_same(results(kernel, shared), results(kernel, each), k)


@every_dtype
@pytest.mark.parametrize("n", [129, *slow(3, 17, 64, 300, 1000, 2100)])
@every_kernel
def test_columns_to_and_from(name, n, dtype):
    """Rows that lie across the memory are copied, some at a time, results of them too."""
    kernel, given = getattr(_cpu, name), batch(name, n, dtype)
    expected = results(kernel, given)
    rng = np.random.default_rng(1)
    across = changed(given, np.asfortranarray)
    some = changed(given, lambda x: np.asfortranarray(x) if rng.random() < 0.5 else x)
    for inputs in (across, some):
        for layout in (np.asfortranarray, np.ascontiguousarray):
            out = canvases(kernel, given, layout)
            assert_same(results(kernel, inputs, out=out), expected, layout)
            assert_same(out, expected, layout)


@every_dtype
@pytest.mark.parametrize("n", [33, *slow(5, 300)])
@every_kernel
def test_out_is_written_and_nothing_beside(name, n, dtype):
    kernel, given = getattr(_cpu, name), batch(name, n, dtype)
    expected = results(kernel, given)
    for step in (2, -2):
        frames = [np.ones((*x.shape[:-1], 2 * x.shape[-1]), x.dtype) for x in expected]
        out = tuple(frame[..., ::step] for frame in frames)
        kernel(*given, out=out)
        assert_same(out, expected, step)
        for frame in frames:
            np.testing.assert_array_equal(frame[..., (1 if step > 0 else 0) :: 2], 1)
    if name not in MAPPINGS:  # no other has an `out` that may be its input
        return
    z, some, *further = given
    z = np.where(np.isnan(z), dtype(0), z)
    for mask in (some, np.broadcast_to(True, z.shape)):
        expected, place = kernel(z, mask, *further), z.copy()
        np.testing.assert_array_equal(kernel(place, mask, *further, out=place), expected)
        moved = np.concatenate([z.ravel(), np.zeros(5, dtype)])  # overlaps by some places
        there = moved[5:].reshape(z.shape)
        kernel(moved[:-5].reshape(z.shape), mask, *further, out=there)
        np.testing.assert_array_equal(there, expected)


@every_dtype
@pytest.mark.parametrize("n", [40, *slow(1, 5, 16, 300)])
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_is_minus_infinity_over_anything(name, n, dtype):
    kernel, rng = getattr(_cpu, name), np.random.default_rng(n)
    z, mask, *further = batch(name, n, dtype)
    mask = rng.random(z.shape) < 0.6
    mask[0], mask[1] = False, True
    whole, left = np.ones(z.shape, bool), np.where(mask, z, dtype(-np.inf))
    expected = results(kernel, (left, whole, *further))
    layouts = mask, np.asfortranarray(mask), mask[::-1].copy()[::-1], mask.repeat(2, 1)[:, ::2]
    for rubbish in (np.nan, np.inf, 0):
        spoilt = np.where(mask, z, dtype(rubbish))
        for same in layouts:
            assert_same(results(kernel, (spoilt, same, *further)), expected, rubbish)
    one_for_all = rng.random(n) < 0.7
    for mask, same in (
        (np.broadcast_to(False, z.shape), np.zeros(z.shape, bool)),
        (one_for_all, np.tile(one_for_all, (len(z), 1))),
    ):
        each = results(kernel, (z, same, *further))
        assert_same(results(kernel, (z, mask, *further)), each, "shared")
        if name in MAPPINGS:
            zero = -np.inf if name.startswith("log_") else 0
            assert (each[0][~same & ~np.isnan(each[0])] == zero).all()


@every_dtype
@pytest.mark.parametrize("n", [37, *slow(4, 16, 300, 2000)])
@pytest.mark.parametrize("name", MASKED)
def test_nan_and_infinity_spoil_their_own_row_and_no_other(name, n, dtype):
    """At each place of a row, also beside scores that are out of reach."""
    kernel, rng = getattr(_cpu, name), np.random.default_rng(n)
    z = rng.standard_normal((min(n, 67) + 2, n)).astype(dtype)
    z[1::3] -= 1e4 * (rng.random(z[1::3].shape) < 0.9).astype(dtype)
    _, _, *further = operands(name, z, rng)
    if "_loss" in name:
        further[1] = np.ones_like(further[1])  # every row counts
    whole = np.ones(z.shape, bool)
    clean = results(kernel, (z, whole, *further))
    bad_rows = np.arange(len(z) - 2)
    places = rng.permutation(n)[: len(bad_rows)]
    for bad in (np.nan, np.inf):
        spoilt = z.copy()
        spoilt[bad_rows, places] = bad
        found = results(kernel, (spoilt, whole, *further))
        for one, before in zip(found, clean, strict=True):
            if one.dtype == dtype:
                assert np.isnan(one[:-2]).all()
            np.testing.assert_array_equal(one[-2:], before[-2:])


@every_kernel
def test_empty_batches_and_rows(name):
    if name in ENTRY_BY_ENTRY:
        return
    kernel, given = getattr(_cpu, name), batch(name, 4, np.float64)
    for x, expected in zip(
        results(kernel, tuple(x[:0] for x in given)), results(kernel, given), strict=True
    ):
        assert x.shape == (0, *expected.shape[1:])
    rows = tuple(x[..., :0] if x.ndim > 1 else x for x in given)
    assert results(kernel, rows)[0].shape[0] == len(given[0])


@every_dtype
@pytest.mark.parametrize("n", [17, *slow(1, 2, 300, 5000)])
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
