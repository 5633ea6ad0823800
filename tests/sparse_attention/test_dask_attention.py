"""Attention of Dask arrays: the output of one call for each chunk of heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_cases import BOOLS, expected, make, names

import pyentmax as pe

da = pytest.importorskip("dask.array", reason="dask is not installed")

QUERY, KEY, VALUE = make("of their own, all, 1.5, , , ", 5, 7).arrays
LAZY = [da.from_array(x, chunks=(1, 2, -1, -1)) for x in (QUERY, KEY, VALUE)]


@pytest.mark.parametrize("name", names(keys=BOOLS)[::4])
def test_output_is_that_of_arrays_in_memory(name: str) -> None:
    case = make(name, 5, 7)
    lazy = [da.from_array(x, chunks=(1, max(1, x.shape[1] // 2), -1, -1)) for x in case.arrays]
    output, right = pe.attention(*lazy, **case.options), expected(case)[0]["output"]
    assert isinstance(output, da.Array)
    assert (output.shape, output.dtype) == (right.shape, right.dtype)
    np.testing.assert_allclose(output.compute(), right, rtol=0, atol=1e-12)
    bounds: dict[str, Any] = {"mapping": "csparsemax", "upper": np.full(7, 0.4)}
    found = pe.attention(*LAZY, **bounds).compute()
    np.testing.assert_allclose(found, pe.attention(QUERY, KEY, VALUE, **bounds), rtol=0, atol=1e-12)


def test_half_precision_is_kept() -> None:
    output = pe.attention(*(x.astype(np.float16) for x in LAZY))
    assert output.dtype == output.compute().dtype == np.float16


def test_nothing_is_computed_at_once() -> None:
    def fail(block: Any) -> Any:
        raise AssertionError("computed")

    query = da.zeros((2, 3, 4), chunks=(1, 3, 4)).map_blocks(fail, dtype=float, meta=np.empty(0))
    output = pe.attention(query, query, query)
    with pytest.raises(AssertionError, match="computed"):
        output.compute()


def test_weights_derivatives_and_cut_heads_are_refused() -> None:
    with pytest.raises(TypeError, match="return_weights=True: expected arrays in memory"):
        pe.attention(*LAZY, return_weights=True)
    output, weights = pe.attention(QUERY, KEY, VALUE, return_weights=True)
    with pytest.raises(TypeError, match="query: expected an array in memory, got a Dask array"):
        pe.attention_vjp(weights, *LAZY, output)
    with pytest.raises(ValueError, match="expected whole rows in a chunk"):
        pe.attention(LAZY[0], LAZY[1].rechunk({-2: 3}), LAZY[2])
