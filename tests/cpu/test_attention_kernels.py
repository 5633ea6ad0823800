"""The kernels of attention read nothing wild; test_attention_table.py asks what they compute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyentmax as pe

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

HEADS, M, N = 2, 5, 600


def rows() -> tuple[Any, Any, Any, Any]:
    """Weights, columns, starts and ends, of rows of which one is empty and one full."""
    rng = np.random.default_rng(1)
    weights = pe.entmax15(rng.standard_normal((HEADS, M, N)) * np.geomspace(0.3, 8, M)[:, None])
    weights[0, 3], weights[1, 0] = 0, 1 / N
    found, sizes = np.nonzero(weights), np.count_nonzero(weights, axis=-1)
    ends = np.cumsum(sizes).reshape(HEADS, M)
    return weights[found], found[-1].astype(np.int32), ends - sizes, ends


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
    out = np.zeros(48), np.zeros(48, np.int32), np.zeros((1, 3), np.int64), np.zeros((1, 3))
    operands = z, mask, np.array([2, 4, 4]), np.array([1.5]), np.array([-np.inf])
    values, columns, ends, _ = _cpu.rows_entmax(*operands, out=out)
    assert ends.tolist() == [[2, 5, 9]]
    assert columns[:9].tolist() == [0, 1, 1, 2, 3, 0, 1, 2, 3]
    np.testing.assert_array_equal(values[:9], [0.5, 0.5, *[np.nan] * 3, *[0.25] * 4])


BROKEN = {
    "a column beyond": lambda w, c, s, e: (w, np.where(c == c.max(), N, c).astype(np.int32), s, e),
    "a column below": lambda w, c, s, e: (w, np.where(c == c.min(), -1, c).astype(np.int32), s, e),
    "a row beyond": lambda w, c, s, e: (w, c, s, e + (e == e.max())),
    "a row below": lambda w, c, s, e: (w, c, s - 10**12, e),
    "a row backwards": lambda w, c, s, e: (w, c, e, s),
    "entries apart": lambda w, c, s, e: (w.repeat(2)[::2], c.repeat(2)[::2], s, e),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("build", _cpu.BUILDS)
def test_rows_that_lie_outside_are_an_error(build: str, fault: str) -> None:
    w, columns, starts, ends = BROKEN[fault](*rows())
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
