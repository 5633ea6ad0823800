"""Products of whole matrices: every build computes what NumPy does, without BLAS's threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.sparse_attention import products

SHAPES = [(1, 1, 1), (7, 5, 3), (9, 600, 33), (130, 300, 70), (33, 64, 1100), (3, 0, 2), (0, 4, 4)]
ROOM = {np.float32: 1e-6, np.float64: 1e-15}  # times the number of terms, of order 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["rows", "columns", "spaced"])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_every_build_multiplies_matrices_of_any_strides(
    m: int, k: int, n: int, order: str, dtype: Any
) -> None:
    _cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")
    rng = np.random.default_rng(m)
    x, y = rng.standard_normal((2, m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    expected = x @ y
    if order == "columns":
        x, y = x.swapaxes(1, 2).copy().swapaxes(1, 2), y.T.copy().T
    elif order == "spaced":
        x, y = np.repeat(x, 2, axis=2)[..., ::2], np.repeat(y, 3, axis=1)[:, ::3]
    for build in _cpu.BUILDS.values():
        wide = np.full((2, m, n + 3), 7, dtype)  # rows that do not follow each other
        build["product"](x, y, out=wide[..., :n])
        np.testing.assert_allclose(wide[..., :n], expected, rtol=0, atol=ROOM[dtype] * (k + 1))
        assert (wide[..., n:] == 7).all()


def test_matmul_broadcasts_batch_shapes() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 1, 5, 4)), rng.standard_normal((2, 4, 6))
    np.testing.assert_allclose(products.matmul(x, y), x @ y, rtol=0, atol=1e-14)


def test_attention_leaves_the_threads_of_blas_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    pools = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    for pool in pools:
        monkeypatch.setattr(type(pool), "set_num_threads", pytest.fail)
    x = np.ones((2, 300, 16))
    before = [pool.num_threads for pool in pools]
    with pe.set_workers(2):
        output, weights = pe.attention(x, x, x, return_weights=True)
        pe.attention_vjp(weights, x, x, x, output)
    assert [pool.num_threads for pool in pools] == before
