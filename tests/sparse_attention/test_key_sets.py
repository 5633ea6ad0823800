"""A set of keys as mask: as the mask of bools, in every form, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.engine.backends import choice
from pyentmax.sparse_attention.key_sets import key_sets

sparse = pytest.importorskip("scipy.sparse")

HEADS, T, S = 6, 30, 40
has_kernels = pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")


def normal(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_weights_of_a_call_are_sets_of_each_head() -> None:
    query, key, value = normal(HEADS, T, 8), normal(HEADS, S, 8, seed=1), normal(HEADS, S, 5)
    _, weights = pe.attention(query, key, value, return_weights=True)
    found = pe.attention(query, key, value, 1, mask=weights, return_weights=True)
    mask = weights.to_dense() != 0
    expected = pe.attention(query, key, value, 1, mask=mask, return_weights=True)
    gradients = (pe.attention_vjp(w, query, key, value, x, 1) for x, w in (found, expected))
    pairs = zip((found[0], *next(gradients)), (expected[0], *next(gradients)), strict=True)
    for x, y in pairs:
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-11)


def test_nan_stays_in_the_rows_that_see_it() -> None:
    mask = np.random.default_rng(0).random((T, S)) < 0.2
    mask[7] = False
    query, key, value = normal(HEADS, T, 8), normal(HEADS, S, 8, seed=1), normal(HEADS, S, 5)
    key[:, 3] = np.nan
    output, weights = pe.attention(
        query, key, value, mask=sparse.csr_array(mask), return_weights=True
    )
    np.testing.assert_array_equal(np.isnan(output).all(-1), np.broadcast_to(mask[:, 3], (HEADS, T)))
    assert not np.isnan(output).any(-1)[:, ~mask[:, 3]].any()
    assert not output[:, 7].any()
    seen = np.isnan(weights.to_dense())
    np.testing.assert_array_equal(seen, np.broadcast_to(mask & mask[:, 3:4], seen.shape))


@pytest.mark.parametrize(("t", "s", "k"), [(0, 5, 2), (5, 0, 0), (5, 5, 0), (3, 5, 2)])
def test_empty_sets_and_shapes(t: int, s: int, k: int) -> None:
    query, key, value = normal(2, t, 4), normal(2, s, 4), normal(2, s, 3)
    keys = np.full((t, k), -1)
    output, weights = pe.attention(query, key, value, mask=keys, return_weights=True)
    assert output.shape == (2, t, 3)
    assert not output.any()
    gradients = pe.attention_vjp(weights, query, key, value, output + 1, mask=keys)
    assert not any(x.any() for x in gradients)


@has_kernels  # the bodies take minutes for it
def test_no_array_of_all_scores() -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    x = normal(1, 20_000, 4, dtype=np.float32)
    keys = (np.arange(20_000)[:, None] + [[0, 5, 9]]) % 20_000
    tracemalloc.start()
    output, weights = pe.attention(x, x, x, 1, mask=keys, return_weights=True)
    pe.attention_vjp(weights, x, x, x, output, 1, mask=keys)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # scores would take 1.6e9 bytes


X = normal(2, 4, 8)
WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "bools as integers": (np.eye(4, dtype=int), {}, ValueError, r"mean mask.astype\(bool\)"),
    "rows": (np.zeros((3, 2), int), {}, ValueError, r"expected shape \(…, 4, k\)"),
    "beyond": (np.full((4, 2), 4), {}, ValueError, "expected 0 to 3"),
    "below": (np.full((4, 2), -2), {}, ValueError, "-1 for none, got -2"),
    "repeated": (np.full((4, 2), 3), {}, ValueError, "got key 3 twice"),
    "coo": (sparse.coo_array(np.eye(4, dtype=bool)), {}, TypeError, "of format coo"),
    "weights of CSR": (sparse.csr_array(np.eye(4)), {}, TypeError, "expected a boolean CSR"),
    "shape": (sparse.csr_array(np.ones((4, 5), bool)), {}, ValueError, r"shape \(4, 4\), got"),
    "batch": (np.zeros((3, 4, 1), int), {}, ValueError, "does not broadcast"),
    "packed": (np.zeros((4, 1), int), {"cu_seqlens": [0, 4]}, ValueError, "one sequence"),
    "mapping": (np.zeros((4, 1), int), {"mapping": "topk_softmax", "k": 2}, ValueError, "bools"),
    "below 1": (np.zeros((4, 1), int), {"alpha": 0.5}, ValueError, "alpha >= 1"),
    "bias": (np.zeros((4, 1), int), {"bias": np.ones((4, 4))}, ValueError, "for each entry"),
    "bias heads": (np.zeros((4, 1), int), {"bias": np.ones((3, 4, 1))}, ValueError, "broadcast"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sets_are_refused(name: str) -> None:
    mask, options, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        pe.attention(X, X, X, mask=mask, **options)


def test_csr_is_checked_and_left_as_it_is() -> None:
    matrix = sparse.csr_array((np.ones(2, bool), [1, 1], [0, 2, 2, 2, 2]), shape=(4, 4))
    with pytest.raises(ValueError, match="got key 1 twice"):
        pe.attention(X, X, X, mask=matrix)
    matrix.indices[:] = 3, 0
    matrix.indptr[:] = 0, 2, 2, 2, 2
    pe.attention(X, X, X, mask=matrix)
    assert matrix.indices.tolist() == [3, 0]  # sorted in a copy
    matrix.indices[0] = 9
    with pytest.raises(ValueError, match="expected keys from 0 to 3, got 0 to 9"):
        pe.attention(X, X, X, mask=matrix)


def test_sets_go_with_plain_arrays_alone() -> None:
    keys = np.zeros((4, 1), int)
    with pytest.raises(ValueError, match="ScreenedRows as key"):
        pe.attention(X, pe.ScreenedRows(X), X, mask=keys)
    dask = pytest.importorskip("dask.array")
    lazy = dask.from_array(X, chunks=(1, 4, 8))
    with pytest.raises(TypeError, match="got Dask arrays"):
        pe.attention(lazy, lazy, lazy, mask=keys)


@has_kernels
def test_sets_that_lie_outside_are_an_error() -> None:
    n, stops = 2 * T, np.arange(2, 2 * T + 1, 2)
    query, key, columns = normal(T, 8), normal(S, 8), np.arange(n, dtype=np.int32) % S
    out = np.empty(S - 1, np.int64), np.empty(n, np.int32), np.empty(n), np.empty(n)
    with pytest.raises(ValueError, match="outside"):
        choice.kernels()["rows_transposed"](
            normal(n), normal(n), columns, stops - 2, stops, out=out
        )
    out = np.zeros(n + 32), np.zeros(n + 32, np.int32), np.zeros(T, np.int64), np.zeros(T)
    rest = np.empty(0), np.full(T, 1.5), np.full(T, -np.inf)
    for keys, ends in ((key[: S - 1], stops), (key, stops + 1), (key, stops[::-1].copy())):
        with pytest.raises(ValueError, match="outside"):
            choice.kernels()["given_keys"](query, keys, columns, ends, *rest, out=out)


@pytest.mark.parametrize("rows", [[[0, 2], [1, 3]], [[-1, 2], [-1, -1]], [[2, -1], [3, 1]]])
def test_numbers_in_any_order_are_one_set(rows: Any) -> None:
    listed = np.array(rows)
    sets = key_sets(listed, 2, 4)
    assert sets is not None
    expected = [sorted(x[x >= 0]) for x in listed]
    assert [x.tolist() for x in np.split(sets.indices, sets.ends[:-1])] == expected
    np.testing.assert_array_equal(sets.in_order(listed), sets.indices)
