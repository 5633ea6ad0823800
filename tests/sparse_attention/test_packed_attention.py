"""Packed sequences: one call equals a call for each of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.sparse_attention import tiles

QUERIES, KEYS = [0, 3, 3, 8, 9], [0, 4, 6, 6, 11]  # the second has no query, the third no key
ROOM = 1e-14  # few queries alone go another way, which rounds elsewhere


def arrays(heads: int = 2, key_heads: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(shape)
        for shape in ((2, heads, 9, 3), (2, key_heads, 11, 3), (2, key_heads, 11, 2))
    ]


def test_heads_of_a_sequence_share_a_tile(monkeypatch: Any) -> None:
    """Of four heads and three sequences there are three tiles, whose rows are put in order."""
    pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")
    rng = np.random.default_rng(3)
    query, key, value = (rng.standard_normal((2, 2, 60, 4)) for _ in range(3))
    sink, edges, seen = np.array([0.3, -0.5]), [0, 25, 36, 60], []
    forward = tiles._Kernels.forward

    def counted(self: Any, tile: Any, out: Any) -> Any:
        seen.append(tile)
        return forward(self, tile, out)

    monkeypatch.setattr(tiles._Kernels, "forward", counted)
    output, weights = pe.attention(
        query, key, value, sink=sink, cu_seqlens=edges, return_weights=True
    )
    assert len(seen) == 3
    dense = weights.to_dense()
    np.testing.assert_allclose(dense @ value, output, rtol=0, atol=ROOM)
    np.testing.assert_allclose(dense.sum(axis=-1) + weights.sink, 1, rtol=0, atol=ROOM)
    for start, stop in itertools.pairwise(edges):
        own, part = slice(start, stop), (query, key, value)
        expected, alone = pe.attention(
            *(x[:, :, own] for x in part), sink=sink, return_weights=True
        )
        np.testing.assert_allclose(output[:, :, own], expected, rtol=0, atol=ROOM)
        np.testing.assert_allclose(dense[:, :, own, own], alone.to_dense(), rtol=0, atol=ROOM)
        np.testing.assert_allclose(weights.sink[:, :, own], alone.sink, rtol=0, atol=ROOM)


@pytest.mark.parametrize(
    ("cu_seqlens", "error", "message"),
    [
        ([0, 5, 3, 9], ValueError, "of the queries must rise from 0 to their number, 9"),
        ([1, 9], ValueError, "must rise from 0"),
        ([0, 8], ValueError, "must rise from 0 to their number, 9"),
        (([0, 9], [0, 3, 11]), ValueError, "as many sequences of queries as of keys, got 1 and 2"),
        (([0, 9], [0, 12]), ValueError, "of the keys must rise from 0 to their number, 11"),
        (([0, 9],), ValueError, "one array or two, got 1"),
        ([0.0, 9.0], TypeError, "whole numbers with one axis"),
    ],
)
def test_wrong_sequences_are_refused(cu_seqlens: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        pe.attention(*arrays(), cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="mask of shape .* does not broadcast to the scores"):
        pe.attention(*arrays(), cu_seqlens=(QUERIES, KEYS), mask=np.ones(12, bool))
    with pytest.raises(ValueError, match="a number, or one for each of 4 sequences"):
        pe.attention(*arrays(), cu_seqlens=(QUERIES, KEYS), causal=True, offset=[1, 2])
