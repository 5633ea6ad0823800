"""Tiles of attention: which heads share them, what threads share, what is not stored."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from attention_cases import normal

import pyentmax as pe
from pyentmax.sparse_attention import tiles
from pyentmax.sparse_attention.problem import AttentionProblem

pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")


def test_heads_of_a_sequence_share_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four heads and three sequences there are three tiles."""
    seen, forward = [], tiles._Kernels.forward

    def counted(self: Any, tile: Any, out: Any) -> Any:
        seen.append(tile)
        return forward(self, tile, out)

    monkeypatch.setattr(tiles._Kernels, "forward", counted)
    x = normal(np.random.default_rng(3), (2, 2, 60, 4))
    pe.attention(x, x, x, cu_seqlens=[0, 25, 36, 60], return_weights=True)
    assert [tile.shape[0] for tile in seen] == [4, 4, 4]


def test_concurrent_callers_get_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/test_processes.py tests forked children, where a hang can be ended."""
    monkeypatch.setattr(tiles, "WORK", 1)
    rng = np.random.default_rng(6)
    query, key, value = (normal(rng, (2, 300, n), np.float32) for n in (16, 16, 20))
    query[:, 150:] *= 0.01  # dense tiles, too

    def both_passes(workers: int) -> list[Any]:
        options: dict[str, Any] = {"alpha": [1.4, 2.0], "causal": True, "offset": 200}
        with pe.set_workers(workers):
            output, weights = pe.attention(query, key[:1], value, return_weights=True, **options)
            gradients = pe.attention_vjp(weights, query, key[:1], value, np.cos(output), **options)
        return [output, weights.data, weights.indices, weights.indptr, *gradients]

    alone = both_passes(1)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(both_passes, [1, 2, 1, 3, 2, 2]):
            for one, other in zip(found, alone, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("marks", [[False, True], [True, False]])
def test_heads_of_one_key_may_differ(marks: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    query, key, value, g = (normal(rng, (h, 80, 8)) for h in (2, 1, 1, 2))
    problem = AttentionProblem(query, key, value, scale=0.02)
    _, stored = problem.forward(True)
    monkeypatch.setattr(tiles, "_dense_heads", lambda *_: np.array(marks))
    _, weights = problem.forward(True, whole=False)
    assert stored is not None
    assert weights is not None
    assert weights.data.size == stored.data.size / 2
    for gradient, expected in zip(problem.vjp(weights, g), problem.vjp(stored, g), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-12)


def peak(t: int) -> int:
    """Bytes that both passes of one dense head take at most."""
    query, key, value, g = normal(np.random.default_rng(4), (4, 1, t, 8), np.float32)
    tracemalloc.start()
    problem = AttentionProblem(query, key, value, scale=0.01)
    _, weights = problem.forward(True, whole=False)
    assert weights is not None
    problem.vjp(weights, g)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_memory_of_dense_heads_is_linear() -> None:
    peak(64)  # what is loaded once
    assert peak(4096) < 2.2 * peak(2048) < 30e6
