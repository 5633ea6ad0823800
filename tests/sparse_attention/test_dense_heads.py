"""Heads with few zeros: their weights are not stored, but computed again for the derivatives."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from pyentmax.sparse_attention import tiles
from pyentmax.sparse_attention.problem import AttentionProblem

pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")


def operands(key_heads: int, t: int = 200) -> tuple[Any, ...]:
    rng = np.random.default_rng(key_heads)
    query, key, value = (rng.standard_normal((h, t, 8)) for h in (4, key_heads, key_heads))
    return query, key, value, rng.standard_normal((4, t, 8))


@pytest.mark.parametrize("marks", [[False, True], [True, False]])
def test_heads_of_one_key_may_differ(marks: list[bool], monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    query, key, value, g = (rng.standard_normal((h, 80, 8)) for h in (2, 1, 1, 2))
    problem = AttentionProblem(query, key, value, scale=0.02)
    _, stored = problem.forward(True)
    monkeypatch.setattr(tiles, "_dense_heads", lambda *_: np.array(marks))
    _, weights = problem.forward(True, whole=False)
    assert stored is not None
    assert weights is not None
    for gradient, expected in zip(problem.vjp(weights, g), problem.vjp(stored, g), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-12)


def peak(t: int) -> int:
    """Bytes that both passes of one dense head take at most."""
    query, key, value, g = (x[:1].astype(np.float32) for x in operands(4, t))
    tracemalloc.start()
    problem = AttentionProblem(query, key, value, scale=0.01)
    _, weights = problem.forward(True, whole=False)
    problem.vjp(weights, g)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_memory_of_dense_heads_is_linear() -> None:
    peak(64)  # what is loaded once
    assert peak(4096) < 2.2 * peak(2048) < 30e6
