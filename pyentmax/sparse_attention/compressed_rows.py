"""Matrices in compressed sparse rows: how they come from scores, and products with them.

Each function has a compiled kernel of its name. Its body here states what the kernel computes, and
runs without kernels. All take plain arrays and write to ``out``.

Rows stand in the order of heads and queries, one after the other: row (h, r) has the entries
``starts[h, r]`` up to ``ends[h, r]`` of the arrays of weights and columns.

A sink is one more score of each row, behind the others, which has no column: its weight stands in
an array of its own, (h, r). It is 0 where there is no sink.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.choice import writes_out
from pyentmax.reference.mappings.entmax import entmax

# A kernel writes whole vectors, so that the last may end beyond the last entry and the sink.
OVERHANG = 32


@writes_out
def rows_entmax(
    scores: Any, mask: Any, visible: Any, alpha: Any, sink: Any, *, out: tuple[Any, Any, Any, Any]
) -> None:
    """The non-zeros of α-entmax of scores (h, m, n), their columns, the ends of rows (h, m), and
    the weights of sinks (h, m).

    Row r sees its first ``visible[r]`` columns where the mask is True. Each head has an α, and the
    score of a sink, −∞ for none. ``out`` has room for all entries and `OVERHANG` more. A row with a
    NaN gets NaN in every column that it sees.
    """
    values, columns, ends, sinks = out
    unmasked = mask & (np.arange(scores.shape[-1]) < visible[:, None])
    last = np.broadcast_to(sink[:, None, None], (*scores.shape[:-1], 1))
    unmasked = np.concatenate([unmasked, last != -np.inf], axis=-1)
    scores = np.concatenate([scores, last], axis=-1)
    weights = np.where(unmasked, entmax.reference(scores, alpha[:, None], mask=unmasked), 0)
    sinks[...], weights = weights[..., -1], weights[..., :-1]
    support = np.nonzero(weights)
    count = len(support[-1])
    values[:count], columns[:count] = weights[support], support[-1]
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
    inside = (j >= 0) & (j < heads.shape[1])
    x = x.reshape(len(heads), *x.shape[-2:])
    np.add.at(heads, (h[inside], j[inside]), (w[entries, None] * x[h, i])[inside])


@writes_out
def rows_jvp(p: Any, v: Any, starts: Any, ends: Any, alpha: Any, p_sink: Any, *, out: Any) -> None:
    """J v of α-entmax for each row, of the non-zeros p and v, which is 0 for sinks."""
    _rows_jvp(p, v, starts, ends, alpha, p_sink, out)


def _rows_jvp(p: Any, v: Any, starts: Any, ends: Any, alpha: Any, p_sink: Any, out: Any) -> Any:
    """The same; returns the entries of sinks, (h, m)."""
    sinks = np.zeros_like(p, shape=starts.shape)
    for h, r in np.ndindex(starts.shape):
        row = slice(int(starts[h, r]), int(ends[h, r]))
        longer_p, longer_v = np.append(p[row], p_sink[h, r]), np.append(v[row], 0)
        product = entmax.jvp.reference(longer_p, longer_v, alpha[h])
        out[row], sinks[h, r] = product[:-1], product[-1]
    return sinks


@writes_out
def rows_vjp(
    p: Any,
    columns: Any,
    starts: Any,
    ends: Any,
    g: Any,
    v: Any,
    k: Any,
    alpha: Any,
    p_sink: Any,
    *,
    out: tuple[Any, Any, Any],
) -> None:
    """Gradients of the scores, J d with d_ij = g_i · v_j and 0 for sinks, of queries, and of sinks,
    by `rows_dots`, `rows_jvp` and `rows_product`.
    """
    g_scores, g_query, g_sink = out
    dots = np.empty_like(p)
    rows_dots.reference(columns, starts, ends, g, v, out=dots)
    g_sink[...] = _rows_jvp(p, dots, starts, ends, alpha, p_sink, g_scores)
    rows_product.reference(g_scores, columns, starts, ends, k, out=g_query)


@writes_out
def rows_vjp_alpha(
    p: Any, g: Any, starts: Any, ends: Any, alpha: Any, p_sink: Any, *, out: Any
) -> None:
    """Σ g ∘ ∂p/∂α over each row, p and g being its non-zeros, and g 0 for sinks."""
    for h, r in np.ndindex(starts.shape):
        row = slice(int(starts[h, r]), int(ends[h, r]))
        slope = entmax.parameter_slope.reference(np.append(p[row], p_sink[h, r]), alpha[h])
        out[h, r] = np.sum(slope[:-1] * g[row])


@writes_out
def rows_spread(w: Any, columns: Any, starts: Any, ends: Any, first: Any, *, out: Any) -> None:
    """All entries, zeros included, of the columns from `first` on, those of `out`, (…, m, b)."""
    h, i, entries = _places(starts, ends, columns)
    heads = out.reshape(-1, *out.shape[-2:])
    heads[...] = 0
    j = columns[entries] - int(first)
    inside = (j >= 0) & (j < heads.shape[-1])
    heads[h[inside], i[inside], j[inside]] = w[entries][inside]


@writes_out
def rows_transposed(
    w: Any, x: Any, columns: Any, starts: Any, ends: Any, *, out: tuple[Any, Any, Any, Any]
) -> None:
    """Entries column after column: where each column ends, the rows, and two weights of each.

    Those of a column go from top to bottom.
    """
    column_ends, rows, to_w, to_x = out
    _, i, entries = _places(starts, ends, columns, len(column_ends))
    order = np.argsort(columns[entries], kind="stable")
    count = len(order)
    rows[:count], to_w[:count], to_x[:count] = i[order], w[entries][order], x[entries][order]
    column_ends[...] = np.cumsum(np.bincount(columns[entries], minlength=len(column_ends)))


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
