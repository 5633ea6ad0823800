"""Attention of Dask arrays: the output of one call for each chunk of heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe

da = pytest.importorskip("dask.array", reason="dask is not installed")

RNG = np.random.default_rng(0)
QUERY, KEY, VALUE = (
    RNG.standard_normal((2, n, t, d)) for n, t, d in [(4, 5, 3), (2, 7, 3), (2, 7, 6)]
)
LAZY = [
    da.from_array(x, chunks=(*chunks, -1, -1))
    for x, chunks in ((QUERY, (1, 2)), (KEY, (1, 1)), (VALUE, (2, 1)))
]
MASK = RNG.random((2, 1, 5, 7)) < 0.6


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": [1.2, 1.5, 1.7, 2.0]},
        {"alpha": 2.0, "causal": True, "offset": 2},
        {"mapping": "topk_softmax", "k": 3},
        {"sink": [0.1, 0.2, 0.3, 0.4], "scale": np.arange(20).reshape(4, 5) / 20},
        {"mapping": "csparsemax", "upper": np.full(7, 0.4)},
        {"mask": MASK},
        {"mask": MASK[0, 0, 0]},
        {"cu_seqlens": ([0, 2, 5], [0, 3, 7]), "causal": True, "offset": [0, 1]},
        {"bias": np.arange(35).reshape(5, 7) / 35},
        {"bias": pe.DistanceBias(np.arange(44).reshape(4, 11) / 44), "causal": True},
        {"bias": pe.DistanceBias(slopes=np.arange(4) / 4), "offset": 2},
        {"bias": pe.DistanceBias(slopes=0.5), "cu_seqlens": ([0, 2, 5], [0, 3, 7])},
    ],
    ids=str,
)
def test_output_is_that_of_arrays_in_memory(options: dict[str, Any]) -> None:
    output = pe.attention(*LAZY, **options)
    expected = pe.attention(QUERY, KEY, VALUE, **options)
    assert isinstance(output, da.Array)
    assert (output.shape, output.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(output.compute(), expected, rtol=0, atol=1e-12)


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
