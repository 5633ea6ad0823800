"""Products in pieces: the whole product, and no piece that BLAS would share among threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.sparse_attention import products

SHAPES = [(1, 4096, 7), (64, 4096, 64), (100, 1000, 70), (300, 64, 1000), (65, 3000, 1), (3, 2, 5)]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The multiplications of each product that BLAS computes."""
    recorded: list[int] = []
    whole = np.matmul

    def recording(x: Any, y: Any, **options: Any) -> Any:
        recorded.append(math.prod(x.shape[-2:]) * y.shape[-1])
        return whole(x, y, **options)

    monkeypatch.setattr(np, "matmul", recording)
    return recorded


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_pieces_give_the_whole_product(
    m: int, k: int, n: int, transposed: bool, sizes: list[int]
) -> None:
    rng = np.random.default_rng(m)
    x, y = rng.standard_normal((2, m, k)), rng.standard_normal((k, n))
    if transposed:
        x = np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)
    np.testing.assert_allclose(products.matmul(x, y), x @ y, rtol=0, atol=1e-12 * k)
    assert max(sizes) <= products.LIMIT


@pytest.mark.parametrize(
    ("m", "d", "s", "n"), [(64, 64, 300, 300), (70, 3, 50, 17), (5, 900, 40, 33)]
)
def test_blocks_of_keys_give_all_scores(m: int, d: int, s: int, n: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(m)
    query, key = rng.standard_normal((2, m, d)), rng.standard_normal((2, s, d))
    out = np.full((2, m, n), np.nan)
    products.multiply_blocks(query, products.in_blocks(key), out)
    expected = query @ key[:, :n].swapaxes(1, 2)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12 * d)
    assert max(sizes) <= products.LIMIT


@pytest.mark.parametrize("scale", [0.01, 3.0], ids=["dense", "sparse"])
def test_long_inputs_match_the_three_lines(scale: float) -> None:
    rng = np.random.default_rng(0)
    query, key, value, g = rng.standard_normal((4, 2, 400, 32))
    output, weights = pe.attention(query, key, value, scale=scale, return_weights=True)
    p = pe.entmax15(scale * query @ key.swapaxes(1, 2))
    assert (weights.density > 0.4) == (scale < 1)
    np.testing.assert_allclose(output, p @ value, rtol=0, atol=1e-11)
    g_scores = scale * pe.entmax15_vjp(p, g @ value.swapaxes(1, 2))
    expected = g_scores @ key, g_scores.swapaxes(1, 2) @ query, p.swapaxes(1, 2) @ g
    gradients = pe.attention_vjp(weights, query, key, value, g, scale=scale)
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=0, atol=1e-10)


def test_attention_leaves_the_threads_of_blas_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    pools = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    for pool in pools:
        monkeypatch.setattr(type(pool), "set_num_threads", pytest.fail)
    x = np.ones((2, 300, 16))
    before = [pool.num_threads for pool in pools]
    output, weights = pe.attention(x, x, x, return_weights=True, workers=2)
    pe.attention_vjp(weights, x, x, x, output, workers=2)
    assert [pool.num_threads for pool in pools] == before
