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
    pieces: list[tuple[int, int, Any]] = []  # head, first query, where the sets begin and end
    for head, number in enumerate(problem.set_numbers):
        edges = indptr[number * t : (number + 1) * t + 1]
        marks = np.arange(edges[0], edges[-1], ROOM)
        cuts = {0, t, *(np.searchsorted(edges, marks, side="right") - 1).tolist()}
        pieces += [(head, top, edges[top : end + 1]) for top, end in pairwise(sorted(cuts))]
    sizes = [int(stops[-1] - stops[0]) for *_, stops in pieces]
    firsts = indptr_of(np.array(sizes, np.int64))
    output = call.zeros(shape=(call.n_heads, t, problem.value.shape[-1]))
    counts, kept = np.zeros((call.n_heads, t), np.int64), np.zeros(len(pieces), np.int64)
    sinks = call.zeros(shape=counts.shape)
    data, indices = (np.empty(firsts[-1] * keep, x) for x in (problem.dtype, np.int32))
    nonzeros, product = given_keys, rows_product
    if not call.has_kernels:
        nonzeros, product = given_keys.reference, rows_product.reference

    def start() -> Callable[[int], None]:
        room = max(sizes, default=0) + OVERHANG
        values, columns = np.empty(room, problem.dtype), np.empty(room, np.int32)

        def run(i: int) -> None:
            head, top, stops = pieces[i]
            m, rows = len(stops) - 1, slice(top, top + len(stops) - 1)
            query, key, value = (
                x.some(head, head + 1)[0] for x in (call.query, call.key, call.value)
            )
            entries, edges = slice(int(stops[0]), int(stops[-1])), np.zeros(m + 1, np.int64)
            nonzeros(
                query[rows], key, sets.indices[entries], stops[1:] - stops[0],
                call.entry_bias(head, top, stops, entries), np.full(m, call.alphas[head]),
                np.full(m, call.sinks[head]), out=(values, columns, edges[1:], sinks[head, rows]),
            )  # fmt: skip
            product(values, columns, edges[:-1], edges[1:], value, out=output[head, rows])
            counts[head, rows], kept[i] = np.diff(edges), edges[-1]
            if keep:
                stored = slice(firsts[i], firsts[i] + kept[i])
                data[stored], indices[stored] = values[: kept[i]], columns[: kept[i]]

        return run

    threads.run_pieces(range(len(pieces)), start, call.workers)
    output = output.reshape((*problem.batch, *output.shape[1:]))
    if not keep:
        return output, None
    if kept.sum() < len(data):
        places = [slice(i, i + n) for i, n in zip(firsts, kept, strict=False)]
        data, indices = (np.concatenate([x[place] for place in places]) for x in (data, indices))
    sink = sinks.reshape(problem.outer_shape[:-1]) if call.has_sink else None
    parts = data, indices, indptr_of(counts.ravel())
    return output, AttentionWeights(problem.outer_shape, *parts, sink)
