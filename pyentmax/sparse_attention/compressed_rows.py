"""Matrices in compressed sparse rows: how they come from scores, and products with them.

Each function has a compiled kernel of its name. Its body here states what the kernel computes, and
runs without kernels. All take plain arrays and write to ``out``.

Rows stand in the order of heads and queries, one after the other: row (h, r) has the entries
``starts[h, r]`` up to ``ends[h, r]`` of the arrays of weights and columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.backends.choice import writes_out
from pyentmax.mappings.entmax import entmax, entmax_grad_alpha, entmax_jvp

# A kernel writes whole vectors, so that the last may end beyond the last entry.
OVERHANG = 16


@writes_out
def entmax_rows(
    scores: Any, mask: Any, visible: Any, alpha: Any, *, out: tuple[Any, Any, Any]
) -> None:
    """The non-zeros of α-entmax of scores (h, m, n), their columns, and the ends of rows (h, m).

    Row r sees its first ``visible[r]`` columns where the mask is True. Each head has an α. ``out``
    has room for all entries and `OVERHANG` more. A row with a NaN gets NaN in every column that it
    sees.
    """
    values, columns, ends = out
    if not scores.shape[-1]:
        ends[...] = 0
        return
    seen = mask & (np.arange(scores.shape[-1]) < visible[:, None])
    weights = np.where(seen, entmax.reference(scores, alpha[:, None], mask=seen), 0)
    found = np.nonzero(weights)
    count = len(found[-1])
    values[:count], columns[:count] = weights[found], found[-1]
    ends[...] = np.cumsum(np.count_nonzero(weights, axis=-1)).reshape(ends.shape)


@writes_out
def rows_dots(columns: Any, starts: Any, ends: Any, g: Any, v: Any, *, out: Any) -> None:
    """g_i · v_j for each entry (i, j), of g (h, m, e) and v (h, n, e)."""
    h, i, entries = _places(starts, ends, columns, v.shape[-2])
    out[entries] = np.einsum("ce,ce->c", g[h, i], v[h, columns[entries]])


@writes_out
def rows_product(w: Any, columns: Any, starts: Any, ends: Any, x: Any, *, out: Any) -> None:
    """Σ_j w_ij x_j for each row i, of x (…, n, e) with as many heads as `starts` has."""
    h, i, entries = _places(starts, ends, columns, x.shape[-2])
    heads = out.reshape(-1, *out.shape[-2:])
    heads[...] = 0
    # The arrays of no columns do not determine the number of heads.
    x = np.broadcast_to(x, (*starts.shape[:-1], *x.shape[-2:])).reshape(len(heads), *x.shape[-2:])
    np.add.at(heads, (h, i), w[entries, None] * x[h, columns[entries]])


@writes_out
def columns_product(
    w: Any, columns: Any, starts: Any, ends: Any, x: Any, first: Any, *, out: Any
) -> None:
    """Σ_i w_ij x_i for the columns j from `first` on, those of `out`, (…, b, e)."""
    h, i, entries = _places(starts, ends, columns)
    heads = out.reshape(-1, *out.shape[-2:])
    heads[...] = 0
    j = columns[entries] - int(first)
    kept = (j >= 0) & (j < heads.shape[1])
    x = x.reshape(len(heads), *x.shape[-2:])
    np.add.at(heads, (h[kept], j[kept]), (w[entries, None] * x[h, i])[kept])


@writes_out
def rows_entmax_jvp(
    p: Any, v: Any, starts: Any, ends: Any, alpha: Any, factor: Any, *, out: Any
) -> None:
    """J v of α-entmax for each row, p and v being its non-zeros, times a factor."""
    for h, head in enumerate(zip(starts, ends, strict=True)):
        for start, end in zip(*head, strict=True):
            if start < end:
                row = entmax_jvp.reference(p[start:end], v[start:end], alpha[h])
                out[start:end] = row * factor


@writes_out
def rows_entmax_vjp(
    p: Any,
    columns: Any,
    starts: Any,
    ends: Any,
    g: Any,
    v: Any,
    k: Any,
    alpha: Any,
    factor: Any,
    *,
    out: tuple[Any, Any],
) -> None:
    """Gradients of the scores, factor · J d with d_ij = g_i · v_j, and of queries, by `rows_dots`,
    `rows_entmax_jvp` and `rows_product`.
    """
    g_scores, g_query = out
    dots = np.empty_like(p)
    rows_dots.reference(columns, starts, ends, g, v, out=dots)
    rows_entmax_jvp.reference(p, dots, starts, ends, alpha, factor, out=g_scores)
    rows_product.reference(g_scores, columns, starts, ends, k, out=g_query)


@writes_out
def rows_entmax_vjp_alpha(p: Any, g: Any, starts: Any, ends: Any, alpha: Any, *, out: Any) -> None:
    """Σ g ∘ ∂p/∂α over each row, p and g being its non-zeros."""
    for h, head in enumerate(zip(starts, ends, strict=True)):
        for r, (start, end) in enumerate(zip(*head, strict=True)):
            slope = entmax_grad_alpha.reference(p[start:end], alpha[h]) if start < end else 0
            out[h, r] = np.sum(slope * g[start:end])


@writes_out
def rows_spread(w: Any, columns: Any, starts: Any, ends: Any, first: Any, *, out: Any) -> None:
    """All entries, zeros included, of the columns from `first` on, those of `out`, (…, m, b)."""
    h, i, entries = _places(starts, ends, columns)
    heads = out.reshape(-1, *out.shape[-2:])
    heads[...] = 0
    j = columns[entries] - int(first)
    kept = (j >= 0) & (j < heads.shape[-1])
    heads[h[kept], i[kept], j[kept]] = w[entries][kept]


@writes_out
def rows_page_scores(
    query: Any, pages: Any, look: Any, visible: Any, least: Any, *, out: tuple[Any, Any, Any]
) -> None:
    """Scores, not below ``least`` (h, r), of queries (h, r, d) with pages of keys (h, n, d, s).

    Query (h, r) visits the pages where ``look``, (h, r, n), is true, and their keys among the first
    ``visible``, (h, r). The remaining scores, including NaN, go to ``out`` with the numbers of
    their keys and the end of each row. ``out`` has room for all keys of visited pages.
    """
    values, columns, ends = out
    size, count = pages.shape[-1], 0
    for place in np.ndindex(ends.shape):
        numbers = np.flatnonzero(look[place])
        # Feature after feature, so that a score depends on no other page.
        scores = np.zeros((len(numbers), size), pages.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for i, weight in enumerate(query[place]):
                scores += weight * pages[place[0], numbers, i]
        keys = numbers[:, None] * size + np.arange(size)
        kept = (keys < visible[place]) & ~(scores < least[place])
        stop = count + int(np.count_nonzero(kept))
        values[count:stop], columns[count:stop] = scores[kept], keys[kept]
        ends[place] = count = stop


def _places(starts: Any, ends: Any, columns: Any, n: int | None = None) -> tuple[Any, Any, slice]:
    """Head and row of each entry, and the slice of entries.

    Raises a ValueError, as the kernels do, if rows lie outside of the arrays, or columns are not
    below `n`.
    """
    starts, ends = (np.reshape(x, (-1, np.shape(x)[-1])) for x in (starts, ends))
    if not starts.size:
        return np.empty(0, np.int64), np.empty(0, np.int64), slice(0, 0)
    entries = slice(int(starts[0, 0]), int(ends[-1, -1]))
    fit = (starts >= 0).all() and (ends >= starts).all() and (ends <= len(columns)).all()
    if fit and n is not None and (keys := columns[entries]).size:
        fit = keys.min() >= 0 and keys.max() < n
    if not fit:
        raise ValueError("compressed rows: a row or a column lies outside of the matrix")
    h, i = np.indices(starts.shape).reshape(2, -1)
    sizes = (ends - starts).ravel()
    return h.repeat(sizes), i.repeat(sizes), entries
