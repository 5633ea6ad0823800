"""Heads with few zeros: their weights are not stored, but computed again for the derivatives."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from pyentmax import set_workers
from pyentmax.sparse_attention import DistanceBias, tiles
from pyentmax.sparse_attention.problem import AttentionProblem

pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

SCALES = np.array([0.02, 5.0, 0.05, 3.0])[:, None]  # the first and the third head are dense


def operands(key_heads: int, t: int = 200) -> tuple[Any, ...]:
    rng = np.random.default_rng(key_heads)
    query, key, value = (rng.standard_normal((h, t, 8)) for h in (4, key_heads, key_heads))
    return query, key, value, rng.standard_normal((4, t, 8))


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"mask": np.arange(200) < 150},
        {"sink": np.array([0.1, 0.2, -1.0, 0.3])},
        {"bias": DistanceBias(np.linspace(-0.1, 0.1, 399))},
        {"bias": DistanceBias(slopes=np.array([1.0, 2.0, 3.0, 4.0]) / 1e4), "causal": True},
        {"alpha": np.array([1.0, 1.3, 1.5, 2.0])},
        {"cu_seqlens": np.array([0, 90, 200])},
    ],
    ids=str,
)
def test_gradients_are_those_of_stored_weights(options: dict[str, Any], key_heads: int) -> None:
    query, key, value, g = operands(key_heads)
    with set_workers(3):
        problem = AttentionProblem(query, key, value, scale=SCALES, **options)
    output, stored = problem.forward(True)
    again, weights = problem.forward(True, whole=False)
    alone, _ = problem.forward()
    assert stored is not None
    assert weights is not None
    marks = weights.dense_heads.reshape(-1, 4)
    assert marks[:, [0, 2]].all()
    assert not marks[:, [1, 3]].any()
    assert weights.data.size < stored.data.size / 2
    np.testing.assert_allclose(again, output, rtol=0, atol=1e-13)
    assert (alone == again).all()
    gradients = problem.vjp(weights, g), problem.vjp(stored, g)
    for gradient, expected in zip(*gradients, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-12)
    of_alpha = problem.vjp_alpha(weights, g), problem.vjp_alpha(stored, g)
    np.testing.assert_allclose(*of_alpha, rtol=1e-10, atol=1e-12)


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
