"""Attention over a given set of keys for each query.

The scores of a set lie in the cache until its weights are known, and no other score is computed: a
pass over the keys of a set and one over its values. What follows is as for the zeros of α-entmax:
the derivatives go over the weights that are not zero (`tiles`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from pyentmax.engine.backends import threads
from pyentmax.engine.backends.choice import writes_out
from pyentmax.reference.mappings.entmax import entmax
from pyentmax.sparse_attention.arguments import Arguments
from pyentmax.sparse_attention.compressed_rows import OVERHANG, rows_product
from pyentmax.sparse_attention.tiles import TiledAttention
from pyentmax.sparse_attention.weights import AttentionWeights, indptr_of

ROOM = 1 << 16  # entries of some neighbouring sets, whose weights lie in the cache together

NonZeros = tuple[Any, Any, Any, Any]  # values, columns, ends of rows, weights of sinks


@writes_out
def given_keys(
    query: Any, key: Any, columns: Any, stops: Any, bias: Any, alpha: Any, sink: Any,
    *, out: NonZeros,
) -> None:  # fmt: skip
    """The non-zeros of α-entmax of query · keyᵀ + bias over the columns of each query's set.

    Sets follow each other up to their `stops`, (m,). The bias has a number for each entry, or none
    at all. ``out`` has room for all entries and `OVERHANG` more, as in `few_queries`. A row with a
    NaN in its set gets NaN in every column of the set.
    """
    values, found, ends, sinks = out
    count = start = 0
    for r, stop in enumerate(stops):
        scores = key[columns[start:stop]] @ query[r]
        if bias.size:
            scores = scores + bias[start:stop]
        scores = np.append(scores, sink[r])
        unmasked = np.append(np.ones(stop - start, bool), sink[r] != -np.inf)
        weights = np.where(unmasked, entmax.reference(scores, alpha[r], mask=unmasked), 0)
        support = np.flatnonzero(weights[:-1])
        some = slice(count, count + len(support))
        values[some], found[some] = weights[support], columns[start:stop][support]
        sinks[r], count, start = weights[-1], some.stop, stop
        ends[r] = count


def forward(problem: Arguments, keep: bool) -> tuple[Any, AttentionWeights | None]:
    """The output, and the weights if they are to be kept."""
    call, sets, t = TiledAttention(problem), problem.sets, problem.shape[-2]
    assert sets is not None
    indptr = sets.indptr
    pieces: list[tuple[int, int, int, int]] = []  # head, first and last query, where they begin
    for head, number in enumerate(problem.set_numbers):
        starts = indptr[number * t : (number + 1) * t + 1]
        marks = np.arange(starts[0], starts[-1], ROOM)
        cuts = {0, t, *(np.searchsorted(starts, marks, side="right") - 1).tolist()}
        pieces += [(head, *rows, int(number) * t) for rows in pairwise(sorted(cuts))]
    sizes = [int(indptr[row + bottom] - indptr[row + top]) for _, top, bottom, row in pieces]
    firsts = indptr_of(np.array(sizes, np.int64))
    output = call.zeros(shape=(call.n_heads, t, problem.value.shape[-1]))
    counts = np.zeros((call.n_heads, t), np.int64)
    sinks = call.zeros(shape=counts.shape)
    data, indices = (
        np.empty(firsts[-1] * keep, problem.dtype),
        np.empty(firsts[-1] * keep, np.int32),
    )
    few_zeros, product = (
        (given_keys, rows_product)
        if call.has_kernels
        else (given_keys.reference, rows_product.reference)
    )

    def start() -> Callable[[int], None]:
        room = max(sizes, default=0) + OVERHANG
        values, columns = np.empty(room, problem.dtype), np.empty(room, np.int32)

        def run(i: int) -> None:
            head, top, bottom, row = pieces[i]
            query, key, value = (
                x.some(head, head + 1)[0] for x in (call.query, call.key, call.value)
            )
            stops = indptr[row + top : row + bottom + 1]
            entries = slice(int(stops[0]), int(stops[-1]))
            own = sets.indices[entries]
            edges = np.zeros(bottom - top + 1, np.int64)
            few_zeros(
                query[top:bottom], key, own, stops[1:] - stops[0],
                call.entry_bias(head, top, stops, entries),
                np.full(bottom - top, call.alphas[head]),
                np.full(bottom - top, call.sinks[head]),
                out=(values, columns, edges[1:], sinks[head, top:bottom]),
            )  # fmt: skip
            out = output[head, top:bottom]
            product(values, columns, edges[:-1], edges[1:], value, out=out)
            counts[head, top:bottom] = np.diff(edges)
            if keep:
                stored = slice(int(firsts[i]), int(firsts[i] + edges[-1]))
                data[stored], indices[stored] = values[: edges[-1]], columns[: edges[-1]]

        return run

    threads.run_pieces(range(len(pieces)), start, call.workers)
    output = output.reshape((*problem.batch, *output.shape[1:]))
    if not keep:
        return output, None
    if counts.sum() < len(data):
        kept = [int(counts[head, top:bottom].sum()) for head, top, bottom, _ in pieces]
        places = [slice(int(i), int(i) + k) for i, k in zip(firsts, kept, strict=False)]
        data, indices = (np.concatenate([x[place] for place in places]) for x in (data, indices))
    sink = sinks.reshape(problem.outer_shape[:-1]) if call.has_sink else None
    parts = data, indices, indptr_of(counts.ravel())
    return output, AttentionWeights(problem.outer_shape, *parts, sink)
