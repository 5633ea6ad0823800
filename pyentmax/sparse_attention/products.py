"""Products of matrices in pieces that BLAS computes on the thread that asks for them.

OpenBLAS shares a product of more than 2¹⁸ multiplications among its threads. Here several threads
work on tiles already, and on a busy machine such a product waits for the slowest core: one of half
a millisecond was measured to take sixteen. Pieces below that size cost a tenth to a third more than
whole products on an idle core, whatever number of threads BLAS has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LIMIT = 1 << 18  # multiplications that OpenBLAS leaves on one thread
SIDE = 64  # rows and columns of a piece


def matmul(x: Any, y: Any) -> Any:
    """``x @ y``; arrays that are not NumPy's are multiplied by their own library, as a whole."""
    (m, k), n = x.shape[-2:], y.shape[-1]
    if not isinstance(x, np.ndarray) or m * k * n <= LIMIT:
        return np.matmul(x, y)
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x = np.broadcast_to(x, (*batch, m, k))
    out = np.empty((*batch, m, n), np.result_type(x, y))
    whole, columns = m // SIDE * SIDE, min(n, SIDE)
    inner = LIMIT // (SIDE * max(columns, 32))
    for top, bottom, side in ((0, whole, SIDE), (whole, m, m - whole)):
        if top == bottom:
            continue
        rows = x[..., top:bottom, :].reshape(*batch, -1, side, k)
        sums = out[..., top:bottom, :].reshape(*batch, -1, side, n)
        for j in range(0, n, columns):
            some, y_some = sums[..., j : j + columns], y[..., None, :, j : j + columns]
            np.matmul(rows[..., :inner], y_some[..., :inner, :], out=some)
            for i in range(inner, k, inner):
                some += np.matmul(rows[..., i : i + inner], y_some[..., i : i + inner, :])
    return out


def in_blocks(keys: Any) -> Any:
    """Keys (n, S, d) as columns of small contiguous matrices, of shape (n, blocks, d, size)."""
    n, s, d = keys.shape
    size = min(s, max(16, LIMIT // (SIDE * d)))
    if s % size:
        keys = np.pad(keys, ((0, 0), (0, -s % size), (0, 0)))
    return np.swapaxes(keys.reshape(n, -1, size, d), -1, -2).copy()


def multiply_blocks(query: Any, blocks: Any, out: Any) -> None:
    """Scores (h, m, n) of queries (h, m, d) with the first n keys of `in_blocks`."""
    heads, m, d = query.shape
    n, size = out.shape[-1], blocks.shape[-1]
    most = max(1, min(SIDE, LIMIT // (size * d)))
    whole, edge = n // size, n // size * size
    for top, bottom, side in ((0, m // most * most, most), (m // most * most, m, m % most)):
        if top == bottom:
            continue
        left = query[:, top:bottom].reshape(heads, -1, 1, side, d)
        to = out[:, top:bottom].reshape(heads, left.shape[1], side, n)
        if whole:
            squares = to[..., :edge].reshape(*to.shape[:-1], whole, size)
            np.matmul(left, blocks[:, None, :whole], out=np.swapaxes(squares, 2, 3))
        if edge < n:
            rest = blocks[:, None, whole, :, : n - edge]
            np.matmul(left[:, :, 0], rest, out=to[..., edge:])
