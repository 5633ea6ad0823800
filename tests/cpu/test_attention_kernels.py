"""The kernels of attention: every build computes what their twins do, and reads nothing wild."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.sparse_attention import compressed_rows, products

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

BUILDS = list(_cpu.BUILDS)
NAMES = [
    "rows_entmax",
    "rows_dots",
    "rows_product",
    "columns_product",
    "rows_jvp",
    "rows_vjp",
    "rows_vjp_alpha",
    "rows_spread",
    "product",
]
TWINS = {
    name: getattr(products if name == "product" else compressed_rows, name).reference
    for name in NAMES
}
HEADS, M, N = 2, 5, 600
WIDTHS = [1, 64, 147]
ROOM = {np.float32: 3e-5, np.float64: 1e-13}  # sums of some hundred products of order 1


def scores(rng: np.random.Generator, dtype: Any) -> np.ndarray:
    z = rng.standard_normal((HEADS, M, N)) * np.geomspace(0.3, 8, M)[:, None]
    z[0, 1, :7] = np.sort(z[0, 1, :7])
    z[1, 2, 5] = -np.inf
    z[1, 3] = np.round(z[1, 3])
    return z.astype(dtype)


def rows(dtype: Any, alpha: float = 1.5) -> tuple[Any, Any, Any, Any]:
    """Weights, columns, starts and ends, of rows some of which are empty or full."""
    rng = np.random.default_rng(1)
    weights = compressed_entmax(rng, dtype, alpha)
    weights[0, 3] = 0
    weights[1, 0] = rng.dirichlet(np.ones(N))
    found = np.nonzero(weights)
    sizes = np.count_nonzero(weights, axis=-1)
    ends = np.cumsum(sizes).reshape(HEADS, M)
    return weights[found], found[-1].astype(np.int32), ends - sizes, ends


def compressed_entmax(rng: np.random.Generator, dtype: Any, alpha: float) -> np.ndarray:
    z = scores(rng, dtype)
    return _cpu.entmax(z, np.ones(z.shape, bool), np.full(z.shape[:-1], alpha))


def calls(name: str, dtype: Any) -> Any:
    """Operands and empty results for a kernel."""
    rng = np.random.default_rng(2)
    if name == "rows_entmax":
        z = scores(rng, dtype)
        mask = rng.random(z.shape) < 0.9
        mask[1, 4] = False
        visible = np.array([N, 7, 1, 300, 256])
        for alpha in ([1.5, 2], [1.2, 1.9], [1, 2.5], [np.inf, 1.5]):
            results = (
                np.zeros(z.size + 32, dtype),
                np.zeros(z.size + 32, np.int32),
                np.zeros((HEADS, M), np.int64),
                np.zeros((HEADS, M), dtype),
            )
            alphas, everywhere = np.array(alpha, float), np.broadcast_to(True, z.shape)
            for sink in np.array([[-np.inf, 0.5], [20, -np.inf]], dtype):
                yield (z, mask, visible, alphas, sink), results
                yield (z, everywhere, np.full(M, N), alphas, sink), results
        return
    for alpha in (1.0, 1.33, 1.5, 2.0, 3.0):
        w, columns, starts, ends = rows(dtype, alpha)
        sinks = np.where(np.arange(M) % 2, 0, rng.random((HEADS, M))).astype(dtype)
        w = w.copy()  # so that with its sink each row sums to 1, which kernel and twin both use
        for start, end, sink in zip(starts.flat, ends.flat, sinks.flat, strict=True):
            w[start:end] *= 1 - sink
        if name == "rows_vjp":
            for e, d in ((64, 50), (3, 1)):
                g, v, k = (
                    rng.standard_normal((HEADS, *shape)).astype(dtype)
                    for shape in ((M, e), (N, e), (N, d))
                )
                operands = w, columns, starts, ends, g, v, k, np.full(HEADS, alpha)
                out = np.zeros_like(w), np.zeros((HEADS, M, d), dtype), np.zeros_like(sinks)
                yield (*operands, sinks), out
        if name in ("rows_jvp", "rows_vjp_alpha"):
            v = rng.standard_normal(w.shape).astype(dtype)
            alphas = np.full(HEADS, alpha)
            if name == "rows_jvp":
                yield (w, v, starts, ends, alphas, sinks), np.zeros_like(w)
            else:
                yield (w, v, starts, ends, alphas, sinks), np.zeros((HEADS, M), dtype)
    for width in WIDTHS:
        x = rng.standard_normal((HEADS, M, width)).astype(dtype)
        y = rng.standard_normal((HEADS, N, width)).astype(dtype)
        if name == "rows_dots":
            yield (columns, starts, ends, x, y), np.zeros_like(w)
        elif name == "rows_product":
            yield (w, columns, starts, ends, y), np.zeros_like(x)
            yield (w, columns, starts, ends, y[0]), np.zeros_like(x)
        elif name == "columns_product":
            for first, size in ((0, N), (100, 64), (599, 1)):
                out = np.zeros((HEADS, size, width), dtype)
                yield (w, columns, starts, ends, x, np.int64(first)), out
        elif name == "product":
            yield (x, y.swapaxes(-1, -2)), np.zeros((HEADS, M, N), dtype)
            yield (x.swapaxes(-1, -2), x[0]), np.zeros((HEADS, width, width), dtype)
    if name == "rows_spread":
        yield (w, columns, starts, ends, np.int64(0)), np.ones((HEADS, M, N), dtype)
        yield (w, columns, starts, ends, np.int64(90)), np.ones((HEADS, M, 120), dtype)


def results(function: Any, operands: Any, out: Any) -> list[np.ndarray]:
    out = tuple(x.copy() for x in (out if isinstance(out, tuple) else (out,)))
    function(*operands, out=out if len(out) > 1 else out[0])
    if len(out) > 2 and out[2].dtype == np.int64:
        count = out[2].flat[-1]  # what lies behind the last end means nothing
        return [out[0][:count], out[1][:count], *out[2:]]
    return list(out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("build", BUILDS)
def test_a_kernel_computes_what_its_twin_does(build: str, name: str, dtype: Any) -> None:
    for operands, out in calls(name, dtype):
        found = results(_cpu.BUILDS[build][name], operands, out)
        expected = results(TWINS[name], operands, out)
        if name == "rows_entmax":  # in all entries, as one may be at the threshold
            dense = []
            np.testing.assert_allclose(found.pop(), expected.pop(), rtol=0, atol=ROOM[dtype])
            for values, columns, ends in (found, expected):
                sizes = np.diff(ends.ravel(), prepend=0)
                dense.append(np.zeros((HEADS * M, N)))
                dense[-1][np.arange(HEADS * M).repeat(sizes), columns] = values
                for start, end in zip(ends.ravel() - sizes, ends.ravel(), strict=True):
                    assert (np.diff(columns[start:end]) > 0).all()
            np.testing.assert_allclose(*dense, rtol=0, atol=ROOM[dtype])
        else:
            for one, other in zip(found, expected, strict=True):
                scale = max(1, np.nanmax(np.abs(other), initial=0))
                np.testing.assert_allclose(one, other, rtol=0, atol=ROOM[dtype] * scale)


ROWS_THAT_GROW = """
import numpy as np
from pyentmax import _cpu

keys, size = 300, 257  # of a scratch for 300 scores; shorter rows may need more than it
z = np.random.default_rng(0).standard_normal((1, size, keys)).astype(np.float32)
visible = np.arange(size)
seen = np.arange(keys) < visible[:, None]
for alpha in (1.0, 3.0):
    out = [np.empty(z.size + 17, dtype) for dtype in (np.float32, np.int32)]
    out += [np.empty((1, size), dtype) for dtype in (np.int64, np.float32)]
    for sink in [-np.inf] * 10 + [-9.0] * 10 + [-np.inf]:
        _cpu.rows_entmax(z, seen[None], visible, [alpha], np.float32([sink]), out=tuple(out))
    values, columns, ends, _ = out
    rows = np.repeat(np.arange(size), np.diff(ends[0], prepend=0))
    dense = np.zeros_like(z[0])
    dense[rows, columns[: len(rows)]] = values[: len(rows)]
    p = _cpu.entmax(z[0], seen, np.full(size, alpha))
    assert np.abs(dense - p).max() < 1e-6, alpha
"""


@pytest.mark.slow
def test_rows_that_see_a_part_of_the_keys_stay_within_their_memory() -> None:
    # In a process of its own: where they do not, it is the allocator that finds out.
    package = str(Path(str(pe.__file__)).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", ROWS_THAT_GROW],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr}"


def test_a_row_with_a_nan_has_one_wherever_it_sees() -> None:
    z = np.zeros((1, 3, 5))
    z[0, 1, 2], z[0, 2, 4] = np.nan, np.inf
    mask = np.ones(z.shape, bool)
    mask[0, 1, 0] = False
    out = np.zeros(32), np.zeros(32, np.int32), np.zeros((1, 3), np.int64), np.zeros((1, 3))
    operands = z, mask, np.array([2, 4, 4]), np.array([1.5]), np.array([-np.inf])
    values, columns, ends, _ = results(_cpu.rows_entmax, operands, out)
    assert ends.tolist() == [[2, 5, 9]]
    assert columns.tolist() == [0, 1, 1, 2, 3, 0, 1, 2, 3]
    np.testing.assert_array_equal(values, [0.5, 0.5, *[np.nan] * 3, *[0.25] * 4])


BROKEN = {
    "a column beyond": lambda w, c, s, e: (w, np.where(c == c.max(), N, c).astype(np.int32), s, e),
    "a column below": lambda w, c, s, e: (w, np.where(c == c.min(), -1, c).astype(np.int32), s, e),
    "a row beyond": lambda w, c, s, e: (w, c, s, e + (e == e.max())),
    "a row below": lambda w, c, s, e: (w, c, s - 10**12, e),
    "a row backwards": lambda w, c, s, e: (w, c, e, s),
    "entries apart": lambda w, c, s, e: (w.repeat(2)[::2], c.repeat(2)[::2], s, e),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("build", BUILDS)
def test_rows_that_lie_outside_are_an_error(build: str, fault: str) -> None:
    w, columns, starts, ends = BROKEN[fault](*rows(np.float64))
    x, y = np.ones((HEADS, M, 64)), np.ones((HEADS, N, 64))
    first, alpha = np.int64(0), np.full(HEADS, 1.5)
    kernels = _cpu.BUILDS[build]
    attempts = {
        "rows_dots": ((columns, starts, ends, x, y), np.zeros(len(w))),
        "rows_product": ((w, columns, starts, ends, y), x),
        "columns_product": ((w, columns, starts, ends, x, first), y),
        "rows_jvp": ((w, w, starts, ends, alpha, x[..., 0]), np.zeros(len(w))),
        "rows_vjp": (
            (w, columns, starts, ends, x, y, y, alpha, x[..., 0]),
            (np.zeros(len(w)), x.copy(), x[..., 0].copy()),
        ),
        "rows_vjp_alpha": ((w, w, starts, ends, alpha, x[..., 0]), np.zeros((HEADS, M))),
        "rows_spread": ((w, columns, starts, ends, first), np.zeros((HEADS, M, N))),
    }
    for name, (operands, out) in attempts.items():
        if "column" in fault and name in ("rows_jvp", "rows_vjp_alpha"):
            continue  # which look at no columns
        if "a column" in fault and name in ("columns_product", "rows_spread"):
            continue  # which look at those of a block only
        with pytest.raises(ValueError, match="outside of the matrix|must be contiguous"):
            kernels[name](*operands, out=out)


def test_columns_that_do_not_rise_are_an_error() -> None:
    columns = np.array([5, 200, 6, 7, 8], np.int32)  # which looks sorted to a search in halves
    operands = np.ones(5), columns, np.array([0]), np.array([5]), np.ones((1, 2)), np.int64(3)
    with pytest.raises(ValueError, match="must rise"):
        _cpu.columns_product(*operands, out=np.zeros((80, 2)))


def test_results_without_room_for_all_entries_are_an_error() -> None:
    z = np.zeros((1, 2, 40))
    out = np.zeros(96), np.zeros(96, np.int32), np.zeros((1, 2), np.int64), np.zeros((1, 2))
    operands = z, z == 0, np.array([40, 40]), np.array([1.5]), np.array([0.0])
    with pytest.raises(ValueError, match="room for all entries"):
        _cpu.rows_entmax(*operands, out=out)
