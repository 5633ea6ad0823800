"""Attention on CuPy arrays, the mappings' kernels emulated, against attention on the host."""

from __future__ import annotations

from typing import Any

import fake_cupy
import numpy as np
import pytest
from emulation import unavailable

import pyentmax as pe
from pyentmax.sparse_attention import tiling

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

OPTIONS: list[dict[str, Any]] = [
    {"alpha": 1.5},
    {"alpha": 2.0, "causal": True},
    {"alpha": 1.3},
    {"mapping": "softmax"},
    {"mapping": "topk_softmax", "k": 4},
    {"alpha": 1.4, "sink": np.float32([0.1, 0.2, 0.3]), "scale": np.float32([[0.3], [0.5], [0.7]])},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_output_and_gradients(
    gpu: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiling, "DEVICE_TILE", 20 * 37)
    rng = np.random.default_rng(0)
    query, key, value, g = rng.standard_normal((4, 2, 3, 37, 8)).astype(np.float32)
    key, value = key[:, :1], value[:, :1]
    there = [fake_cupy.asarray(x) for x in (2 * query, key, value)]
    gpu.launches.clear()
    moved = {
        name: fake_cupy.asarray(x) if isinstance(x, np.ndarray) else x
        for name, x in options.items()
    }
    output, kept = pe.attention(*there, return_weights=True, **moved)
    # Tiles of 20 and 17 queries, one launch for the weights of each.
    assert len(gpu.launches) == 12
    gradients = pe.attention_vjp(kept, *there, fake_cupy.asarray(g), **moved)
    assert len(gpu.launches) == 24
    expected, weights = pe.attention(2 * query, key, value, return_weights=True, **options)
    wanted = pe.attention_vjp(weights, 2 * query, key, value, g, **options)
    pairs = [(output, expected), (kept.to_dense(), weights.to_dense())]
    for found, one in [*pairs, *zip(gradients, wanted, strict=True)]:
        np.testing.assert_allclose(found.get(), one, rtol=1e-5, atol=2e-5)
