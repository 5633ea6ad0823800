"""Matrices in compressed sparse rows: how they come from scores, and products with them.

Rows stand in the order of heads and queries, one after the other: row (h, r) has the entries
``starts[h, r]`` up to ``ends[h, r]`` of the arrays of weights w and columns.

A sink is one more score of each row, behind the others, which has no column: its weight stands in
an array of its own, (h, r). It is 0 where there is no sink.

Kernels compute this, called by their names in `choice.kernels`, and write to ``out``. Without
kernels `dense` computes with all weights, so that only `rows_product` has a body, for sets of keys.

    rows_entmax(scores, mask, visible, α, sink)        → w, columns, ends, weights of sinks
        of row r's first ``visible[r]`` columns where the mask is True; −∞ for no sink, and in a
        row with a NaN that in every column that it sees
    rows_dots(columns, starts, ends, g, v)             → g_i · v_j for each entry (i, j)
    columns_product(w, columns, starts, ends, x, b)    → Σ_i w_ij x_i for the columns j from b on
    rows_jvp(w, v, starts, ends, α, sink)              → J v of α-entmax, v being 0 for sinks
    rows_vjp(w, columns, starts, ends, g, v, k, α, sink)
        → the gradients of scores, J d with d_ij = g_i · v_j, of queries, and of sinks
    rows_vjp_alpha(w, g, starts, ends, α, sink)        → Σ g ∘ ∂p/∂α over each row
    rows_spread(w, columns, starts, ends, b)           → entries, zeros too, of columns from b on
    rows_transposed(w, x, columns, starts, ends)
        → where each column ends, and from top to bottom the rows and the two weights of its entries
"""

from __future__ import annotations

from typing import Any

from pyentmax.engine.backends.choice import writes_out

# A kernel writes whole vectors, so that the last may end beyond the last entry and the sink.
OVERHANG = 32


@writes_out
def rows_product(w: Any, columns: Any, starts: Any, ends: Any, x: Any, *, out: Any) -> None:
    """Σ_j w_ij x_j for each row i, of x (…, n, e); without kernels of one head."""
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        out[i] = (w[start:end, None] * x[columns[start:end]]).sum(axis=0)
