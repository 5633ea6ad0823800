"""Dask arrays: every function plans itself chunk by chunk, and gives what it gives in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parameter_values import EXAMPLES
from stages import sample

import pyentmax as pe
from pyentmax.regularized import separable_mapping

da = pytest.importorskip("dask.array", reason="dask is not installed")

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((6, 8, 5)).astype(np.float32)
V = RNG.standard_normal(Z.shape).astype(np.float32)
MASK = RNG.random(Z.shape[1:]) < 0.7
LAZY = da.from_array(Z, chunks=(4, 3, 5))  # of whole rows along the last axis
LAZY_V = da.from_array(V, chunks=(3, 8, 5))
PARAMETERS = EXAMPLES | {"alpha": 1.7, "upper": 0.6, "budget": 1.5}


def assert_lazily_equal(found: Any, expected: Any, rtol: float = 0) -> None:
    for one, other in zip(
        found if isinstance(found, tuple) else (found,),
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    ):
        assert isinstance(one, da.Array)
        assert (one.shape, one.dtype) == (np.shape(other), other.dtype)
        np.testing.assert_allclose(one.compute(), other, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", sample(pe.MAPPINGS, 7))
def test_mapping_products_and_support(name: str) -> None:
    record = pe.MAPPINGS[name]
    values = [PARAMETERS[parameter] for parameter in record.parameters]
    p, lazy_p = record(Z, *values), record(LAZY, *values)
    assert_lazily_equal(lazy_p, p)
    assert lazy_p.chunks == LAZY.chunks
    for function in (record, record.reference, record.support):
        for axis in (0,) if record.one_axis else (0, (0, 2), None):
            whole = LAZY.rechunk(-1 if axis is None else {0: -1})
            assert_lazily_equal(function(whole, *values, axis), function(Z, *values, axis))
    assert_lazily_equal(record.jvp(lazy_p, LAZY_V, *values), record.jvp(p, V, *values))
    assert_lazily_equal(record.jacobian(lazy_p, *values), record.jacobian(p, *values))
    if record.regularizer.is_defined:
        assert_lazily_equal(record.regularizer(lazy_p, *values), record.regularizer(p, *values))
    if record.parameter_vjp.is_defined:
        found = record.parameter_vjp.at_scores(da.asarray(Z), lazy_p, LAZY_V, *values)
        expected = record.parameter_vjp.at_scores(Z, p, V, *values)
        # Sums over chunks round in another order.
        assert_lazily_equal(found, expected, rtol=1e-5)


@pytest.mark.parametrize("mask", [MASK, MASK[0], da.from_array(MASK, chunks=(3, 5))], ids=type)
def test_masks_broadcast(mask: Any) -> None:
    assert_lazily_equal(pe.entmax15(LAZY, mask=mask), pe.entmax15(Z, mask=np.asarray(mask)))
    p, lazy_p = pe.sparsemax(Z), pe.sparsemax(LAZY)
    expected = pe.sparsemax.jvp(p, V, mask=np.asarray(mask))
    assert_lazily_equal(pe.sparsemax.jvp(lazy_p, V, mask=mask), expected)


@pytest.mark.parametrize("shape", [(), (8,), (6, 1), (6, 8)])
def test_parameters_follow_their_rows(shape: tuple[int, ...]) -> None:
    alpha = 1 + RNG.random(shape)
    p = pe.entmax(Z, alpha)
    for value in (alpha, da.asarray(alpha)):
        assert_lazily_equal(pe.entmax(LAZY, value), p)
        product, gradient = pe.MAPPINGS["entmax"].vjps(da.asarray(p), LAZY_V, value)
        expected = pe.MAPPINGS["entmax"].vjps(p, V, alpha)
        assert_lazily_equal(product, expected[0])
        assert_lazily_equal(gradient, expected[1], rtol=1e-5)


@pytest.mark.parametrize("name", ["sparsemax", "normmax"])
@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_losses(name: str, reduction: str) -> None:
    labels, weight = RNG.integers(0, 5, Z.shape[:-1]), RNG.random(8)
    values = (2.0,) if name == "normmax" else ()
    for y in (labels, pe.softmax(Z)):
        options = {"reduction": reduction, "weight": weight, "mask": MASK | (np.arange(5) < 5)}
        for loss in (getattr(pe, name).loss, getattr(pe, name).loss_and_grad):
            found = loss(LAZY, da.asarray(y), *values, **options)
            assert_lazily_equal(found, loss(Z, y, *values, **options), rtol=2e-6)
    with pytest.raises(TypeError, match='reduction="none" or "sum"'):
        getattr(pe, name).loss(LAZY, labels, *values)


def test_losses_of_own_mapping() -> None:
    cubic = separable_mapping("cubic", lambda p: p**3 / 3, np.sqrt, lambda p: 2 * p)
    labels = RNG.integers(0, 5, Z.shape[:-1])
    found = pe.fenchel_young_loss(LAZY, labels, cubic, reduction="none")
    assert_lazily_equal(found, pe.fenchel_young_loss(Z, labels, cubic, reduction="none"), 1e-6)
    with pytest.raises(TypeError, match="z is lazy"):
        pe.one_vs_all_loss(LAZY, labels)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int64, np.longdouble, ">f4"])
def test_dtypes(dtype: Any) -> None:
    z = (3 * Z).astype(dtype)
    assert_lazily_equal(pe.sparsemax(da.from_array(z, chunks=LAZY.chunks)), pe.sparsemax(z))


def test_rows_in_several_chunks_are_refused() -> None:
    expected = r"axis of 8 entries in 3 chunks; array\.rechunk\(\{axis: -1\}\)"
    with pytest.raises(ValueError, match=expected):
        pe.softmax(LAZY, axis=1)


@pytest.mark.parametrize("mask", [MASK[0], da.from_array(MASK[0], chunks=5), None])
def test_unknown_lengths_cannot_be_aligned(mask: Any) -> None:
    unknown = LAZY[:, 0][LAZY[:, 0, 0] < np.inf]
    with pytest.raises(ValueError, match=r"\(nan, 5\).* call \.compute_chunk_sizes\(\)"):
        pe.softmax(unknown, mask=unknown > 0 if mask is None else mask)
    assert_lazily_equal(pe.softmax(unknown).compute_chunk_sizes(), pe.softmax(Z[:, 0]))


def test_values_are_checked_when_a_chunk_is_computed() -> None:
    with pytest.raises(ValueError, match="alpha must be above 0"):
        pe.entmax(LAZY, 0.0)  # a single number at once, by the call that tells the dtype
    planned = pe.entmax(LAZY, da.full(8, 0.0))
    with pytest.raises(ValueError, match="alpha must be above 0"):
        planned.compute()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pe.softmax(LAZY, out=np.empty_like(Z)), "out must be left out"),
        (lambda: pe.softmax(Z, mask=LAZY > 0), "mask is lazy"),
        (lambda: pe.softmax.jvp(Z, LAZY), "v is lazy"),
        (lambda: pe.entmax(Z, LAZY[..., 0]), "alpha is lazy"),
        (lambda: pe.softmax.loss(Z, LAZY), "y is lazy"),
        (lambda: pe.csr("sparsemax", LAZY[0]), "z is lazy"),
        (
            lambda: pe.softmax(pytest.importorskip("xarray").DataArray(LAZY)),
            "z is lazy, a DataArray",
        ),
    ],
)
def test_what_would_compute_an_array_whole_is_refused(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_arrays_that_do_not_fit_are_refused_at_once() -> None:
    for call in (
        lambda: pe.softmax(LAZY, mask=np.ones(7, bool)),
        lambda: pe.entmax(LAZY, np.full(5, 1.5)),
        lambda: pe.softmax.jvp(LAZY, V[0]),
    ):
        with pytest.raises(ValueError, match="of shape|the shape of p"):
            call()


def test_xarray_passes_chunks_on() -> None:
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    frame = xr.DataArray(LAZY, dims=("a", "b", "word"))
    found = xr.apply_ufunc(
        pe.entmax15, frame, input_core_dims=[["word"]], output_core_dims=[["word"]], dask="allowed"
    )
    assert_lazily_equal(found.data, pe.entmax15(Z))
