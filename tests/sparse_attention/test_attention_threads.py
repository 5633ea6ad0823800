"""Attention shared by threads: the same bits for any number of threads, and of callers.

tests/test_processes.py tests forked children, where a hang can be ended.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from attention_cases import Case

from pyentmax import attention, attention_vjp, attention_vjp_alpha, set_workers
from pyentmax.sparse_attention import tiles, tiling


@pytest.fixture(autouse=True)
def _threads_at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "WORK", 1)


def case(dtype: Any = np.float32, t: int = 700) -> Case:
    """Two heads, of queries in several tiles, some of which are dense."""
    rng = np.random.default_rng(6)
    query, key, value = (rng.standard_normal((2, t, n)).astype(dtype) for n in (16, 16, 20))
    query[:, 300:] *= 0.01
    options = {"alpha": [1.4, 2.0], "causal": True, "offset": 200}
    return Case([query, key[:1], value], options, None, None)


def everything(case: Case, workers: int | None) -> list[np.ndarray]:
    with nullcontext() if workers is None else set_workers(workers):
        output, weights = attention(*case.arrays, return_weights=True, **case.options)
        g = np.cos(output)
        of_alpha = attention_vjp_alpha(weights, case.arrays[2], g, case.options["alpha"])
        gradients = attention_vjp(weights, *case.arrays, g, **case.options)
    return [output, weights.data, weights.indices, weights.indptr, *gradients, of_alpha]


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_concurrent_callers_get_same_bits() -> None:
    some = case(t=300)
    alone = everything(some, 1)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda workers: everything(some, workers), [1, 2, 1, 3, 2, 2]):
            assert_same(found, alone)


@pytest.mark.parametrize("offset", [-150, 0, 200])
def test_tile_size_does_not_change_results(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    some = case(np.float64, t=300)
    some.options["offset"] = offset
    expected = everything(some, 1)
    for size in (1 << 12, 1 << 15):  # of one height, and higher ones first
        monkeypatch.setattr(tiling, "TILE", size)
        for one, other in zip(everything(some, 1), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
