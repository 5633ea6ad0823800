"""Attention tile by tile, forward and backward.

The scores of a tile (`tiling`) are computed into a buffer that fits the processor's cache, its
weights are found there, and only those that are not zero are kept. No array of T × S scores ever
exists.

Where most weights are zero, kernels sum over the support alone (`dense` says why that is enough):
tile by tile d_ij = g_i · v_j, ∂L/∂S = J d and ∂L/∂Q, and then, a block of keys at a time, ∂L/∂K and
∂L/∂V. Where too many of them are not zero (`route`), and for arrays that the kernels do not
take (CuPy's, other dtypes, an installation without kernels), the functions of `dense` compute with
all of a tile's weights. Those of a head of which a few queries show that are not stored: each
derivative computes them again, so that memory is linear at any density.

Every sum is taken in an order that depends on the shapes and the support alone. So threads that
share the work give the same bits as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.calls.devices import array_module, on_device, to_host
from pyentmax.reference.sparse_output import pack
from pyentmax.sparse_attention import dense
from pyentmax.sparse_attention.arguments import BOUNDS, Arguments, RowMapping, Sequence
from pyentmax.sparse_attention.compressed_rows import OVERHANG
from pyentmax.sparse_attention.route import DENSE
from pyentmax.sparse_attention.tiling import KEYS, QUERIES, ROWS, SAMPLE, Heads, Tile, Tiling, runs
from pyentmax.sparse_attention.weights import AttentionWeights

WORK = 1 << 18  # scores from which a further thread pays
TRUE = np.ones(1, bool)  # the mask of a tile without a mask, with strides of 0


class TiledAttention(Tiling):
    """Apply the mapping to the tiles of a call, and find the stored weights of each.

    Attributes
    ----------
    query, key, value : Heads
        the queries times the scale
    alphas, sinks : arrays
        the α of each head, for the kernels, and the score of its sink, −∞ for none
    has_sink : bool
    weights : AttentionWeights
    sink_weights : array (heads, T)
        those of sinks, 0 for none
    workers : int
        threads to use at most
    rows_at_once : int
        queries of a piece of the backward pass over the support; fewer where threads share them
    """

    def __init__(self, problem: Arguments, weights: AttentionWeights | None = None) -> None:
        super().__init__(problem)
        query = problem.query
        if self.has_kernels:  # at once as the kernels take it
            self.query: Heads = self.heads(np.multiply(query, problem.scale, order="C"))
        else:
            self.query = self.heads(query * problem.scale)
        self.key: Heads = self.heads(problem.key)
        self.value: Heads = self.heads(problem.value)
        self._bias = None if problem.bias is None else self.heads(problem.bias.rows)
        self._parameters = tuple(
            map(self._parameter, problem.mapping.values, problem.mapping.record.parameters)
        )
        scores = self.n_heads * self.t * self.s
        if len(problem.sequences) > 1:
            scores = self.n_heads * sum([(b - t) * (s - f) for t, b, f, s, *_ in problem.sequences])
        elif (sets := problem.sets) is not None:
            scores = self.n_heads * len(sets.indices) // max(1, math.prod(sets.ends.shape[:-1]))
        self.workers, self.rows_at_once = 1, ROWS
        if self.has_kernels and scores >= 2 * WORK:
            self.workers = min(scores // WORK, threads.get_workers())
        if self.workers > 1:
            self.rows_at_once = max(QUERIES, min(ROWS, self.n_heads * self.t // (4 * self.workers)))
        self.only_dense: bool = not self.has_kernels or problem.support_alpha is None
        if problem.sets is not None or not self.only_dense:
            self.alphas: Any = np.empty(problem.batch)
            self.alphas[...] = problem.support_alpha
            self.alphas = self.alphas.reshape(self.n_heads)
        self.has_sink: bool = problem.sink is not None
        no_sink = np.full(1, -np.inf, problem.dtype)
        sink = no_sink if problem.sink is None else problem.sink[..., 0]
        self.sinks: Any = np.broadcast_to(sink, problem.batch or 1).reshape(self.n_heads)
        if weights is not None:
            if weights.dense_heads is not None:
                self.again = np.asarray(weights.dense_heads, bool)
            self.weights, self._indptr = weights, weights.indptr
            if not self.has_kernels:
                self._indptr = to_host(weights.indptr)
            if self.has_sink and weights.sink is None:
                raise ValueError(
                    "sink: expected weights of attention with a sink, got weights without"
                )
            self.has_sink, shape = weights.sink is not None, (self.n_heads, self.t)
            sinks = weights.sink if self.has_sink else self.zeros(shape=shape)
            self.sink_weights: Any = sinks.reshape(shape)

    def _parameter(self, value: Any, name: str) -> Any:
        if value.size == 1:
            return value.item() if isinstance(value, np.ndarray) else value.reshape(())
        if name in BOUNDS:
            return self.per_score(value)
        return np.broadcast_to(value[..., 0], self.problem.batch).reshape(self.n_heads, 1)

    def bias(self, tile: Tile) -> Any:
        """The bias of a tile's scores; None if there is none."""
        if self._bias is None:
            return None
        return self.problem.bias.tile(self._bias.some(tile.start, tile.stop), tile)

    def entry_bias(self, head: int, top: int, stops: Any, entries: slice) -> Any:
        """The bias of the scores of sets' entries, of queries from `top` on; empty for none.

        Their sets go from one of `stops` to the next.
        """
        if self._bias is None:
            return np.empty(0, self.problem.dtype)
        bias, sets = self.problem.bias, self.problem.sets
        rows = self._bias.some(head, head + 1)[0, 0]
        assert sets is not None
        if not bias.by_distance:
            return rows[entries]
        query = np.repeat(np.arange(top, top + len(stops) - 1), np.diff(stops))
        shift = self.problem.sequences[0].shift
        return rows[bias.places(query, sets.indices[entries], shift)]

    def bias_gradient(self, g_scores: Any, sums: Iterable[Any]) -> Any:
        """The gradient of the rows of numbers that are added, from those of the weights' scores.

        `sums` are those of the heads whose weights are not stored.
        """
        row, sequences = self.weights.rows, self.problem.sequences
        shift: Any = sequences[0].shift
        if len(sequences) > 1:
            shifts = (np.full(own.bottom - own.top, own.shift) for own in sequences)
            shift = array_module(row).asarray(np.concatenate(list(shifts)))[row % self.t]
        head, query, key = row // self.t, row % self.t, self.weights.indices
        total = self._bias_sums(head, query, key, shift, g_scores)
        return sum(sums, total).reshape(self.problem.bias.rows.shape)

    def bias_sums(self, tile: Tile, g_scores: Any) -> Any:
        """The same of all scores of a tile."""
        places = np.ogrid[tile.start : tile.stop, tile.top : tile.bottom, tile.columns]
        head, query, key = (np.broadcast_to(x, tile.shape).ravel() for x in places)
        g_scores = g_scores[..., : tile.keys].ravel()
        return self._bias_sums(head, query, key, tile.sequence.shift, g_scores)

    def _bias_sums(self, head: Any, query: Any, key: Any, shift: Any, g_scores: Any) -> Any:
        assert self._bias is not None
        (n, _, size), own = self._bias.own.shape, head
        if self._bias.is_shared:
            head = array_module(head).asarray(self._bias.number)[head]
        problem = self.problem
        if problem.sets is None or problem.bias.by_distance:
            places = problem.bias.places(query, key, shift)
        else:
            places = problem.sets.places(problem.set_numbers[own] * self.t + query, key)
        places = head * size + places
        return np.bincount(places, weights=g_scores, minlength=n * size)

    def mapping(self, tile: Tile) -> RowMapping:
        """The mapping with the parameters of a tile's heads."""
        values = tuple(
            [
                x.scores(tile)
                if isinstance(x, Heads)
                else (x[tile.heads] if getattr(x, "ndim", 0) else x)
                for x in self._parameters
            ]
        )
        sink = None if self.problem.sink is None else self.sinks[tile.heads, None]
        return replace(self.problem.mapping, values=values, sink=sink)

    def entries(self, start: int, stop: int) -> tuple[slice, Any]:
        """The entries of the rows from start to stop, and where the rows begin among them."""
        ends = self._indptr[start : stop + 1]
        return slice(int(ends[0]), int(ends[-1])), ends - ends[0]

    def part(self, tile: Tile) -> tuple[AttentionWeights, slice, tuple[Any, Any]]:
        """The weights of a tile, which of all entries they are, and where their rows begin, end."""
        first = tile.start * self.t + tile.top
        stop = first + tile.shape[0] * tile.shape[1]
        entries, indptr = self.entries(first, stop)
        if not self.has_kernels and on_device(self.weights.indptr):
            indptr = self.weights.indptr[first : stop + 1] - entries.start
        data, indices = self.weights.data[entries], self.weights.indices[entries]
        if tile.sequence.first:
            indices = indices - np.int32(tile.sequence.first)
        sink = self.sink_weights[tile.rows] if self.has_sink else None
        shape = tile.shape[:2]
        places = indptr[:-1].reshape(shape), indptr[1:].reshape(shape)
        return AttentionWeights(tile.shape, data, indices, indptr, sink), entries, places

    def all_weights(self, tile: Tile) -> Any:
        """All weights of a tile, zeros included, and those of sinks last."""
        if not self.again[tile.start]:
            part, _, places = self.part(tile)
            return self.spread(part, places)
        query, key, _, mapping, _ = self.dense_operands(tile)
        return dense.weights(query, key, mapping, self.attention_mask(tile), self.bias(tile))

    def spread(self, part: AttentionWeights, places: tuple[Any, Any]) -> Any:
        """All weights of a tile whose weights are stored, and those of sinks last."""
        *shape, keys = part.shape
        out = np.empty_like(part.data, shape=(*shape, keys + self.has_sink))
        if self.has_sink:
            out[..., keys] = part.sink
        if not self.has_kernels:
            out[..., :keys] = part.to_dense()
        else:
            operands = part.data, part.indices, *places, np.int64(0)
            choice.kernels()["rows_spread"](*operands, out=out[..., :keys])
        return out

    def added(
        self, part: AttentionWeights, entries: slice, places: tuple[Any, Any], g_weights: Any
    ) -> Any:
        """The term to add to the gradient of all weights of a tile, in the shape of `spread`."""
        if g_weights is None:
            return None
        data = np.ascontiguousarray(g_weights[entries], self.problem.dtype)
        sink = None if part.sink is None else np.zeros_like(part.sink)
        return self.spread(replace(part, data=data, sink=sink), places)

    def dense_operands(self, tile: Tile) -> tuple[Any, ...]:
        """Query, key and value of a tile, its mapping, and the mask that derivatives take."""
        arrays = self.query.queries(tile), self.key.keys(tile), self.value.keys(tile)
        return *arrays, self.mapping(tile), None if self.has_sink else self.attention_mask(tile)

    def groups(self, each: int = 1) -> Iterator[tuple[int, int, bool]]:
        """First and last of neighbouring heads, and whether few of their weights are zero.

        `each` heads stay together. A group has as many of these as a tile has room for, or one.
        """
        scores, again = int(self.visible.sum()), self.again.reshape(-1, each)
        edges = self._indptr[:: each * self.t] if self.t else np.zeros(len(again) + 1, np.int64)
        stored = np.count_nonzero(~again, axis=1)
        few_zeros = self.only_dense | again.all(axis=1)
        few_zeros |= np.diff(edges) > DENSE * (stored * scores)
        at_once = max(1, self.rows_at_once // max(1, each * self.t))
        return runs(few_zeros, each, {True: self.at_once(each), False: at_once})


def forward(
    problem: Arguments, keep: bool, whole: bool = True
) -> tuple[Any, AttentionWeights | None]:
    """The output, and the weights if they are to be kept; all of them, or as derivatives need."""
    call, columns = TiledAttention(problem), None
    if call.has_kernels:
        columns = replace(call.key, own=call.key.own.swapaxes(1, 2).copy())
        if not (call.only_dense or keep and whole):
            call.again = _dense_heads(call, columns)
    tiles = call.tiles(0, call.n_heads, in_order=False)
    output = call.zeros(shape=(call.n_heads, call.t, problem.value.shape[-1]))
    parts: list[Any] = [None] * len(tiles)

    def start() -> Callable[[int], None]:
        kernels = None if columns is None else _Kernels(call, columns, tiles)

        def run(i: int) -> None:
            tile = tiles[i]
            out, again, first = output[tile.rows], call.again[tile.start], tile.sequence.first
            if kernels is not None and not again:
                weights = kernels.forward(tile, out)
                if keep:  # the buffers are used again
                    data, keys = weights.data.copy(), weights.indices + np.int32(first)
                    parts[i] = replace(weights, data=data, indices=keys)
                return
            arrays = call.query.queries(tile), call.key.keys(tile), call.value.keys(tile)
            options = call.mapping(tile), call.attention_mask(tile), call.bias(tile)
            out[...], all_weights = dense.forward(*arrays, *options)
            if keep:
                sink = all_weights[..., -1] if call.has_sink else None
                stored = all_weights[..., : 0 if again else tile.keys]
                weights = AttentionWeights.from_dense(stored, sink)
                parts[i] = replace(weights, indices=weights.indices + np.int32(first))

        return run

    threads.run_pieces(range(len(tiles)), start, call.workers)
    output = output.reshape((*problem.batch, *output.shape[1:]))
    if not keep:
        return output, None
    if not parts:
        sink = call.zeros(shape=(0,)) if call.has_sink else None
        parts = [AttentionWeights.from_dense(call.zeros(shape=(0, call.s)), sink)]
    order = None if len(problem.sequences) == 1 else _order(call, tiles)
    weights = AttentionWeights.joined(problem.outer_shape, parts, order)
    return output, weights if whole else replace(weights, dense_heads=call.again)


def _order(call: TiledAttention, tiles: list[Tile]) -> Any:
    """The place of each row of the weights among those of the tiles."""
    numbers = np.arange(call.n_heads * call.t).reshape(call.n_heads, call.t)
    return np.argsort(np.concatenate([numbers[tile.rows].ravel() for tile in tiles]))


def _dense_heads(call: TiledAttention, columns: Heads) -> Any:
    """The heads with few zeros among their weights, judged by some queries in their middle."""
    longest = max(call.problem.sequences, key=lambda own: (own.bottom - own.top, own.stop))
    are_dense, length = np.zeros(call.n_heads, bool), longest.bottom - longest.top
    top = longest.top + (length - SAMPLE) // 2
    visible = int(call.visible[top : top + SAMPLE].sum())
    if length < 4 * SAMPLE or not visible:
        return are_dense
    heads = min(call.n_heads, call.at_once(queries=SAMPLE))
    samples = [
        call.tile(head, min(head + heads, call.n_heads), top, top + SAMPLE, longest)
        for head in range(0, call.n_heads, heads)
    ]

    def start() -> Callable[[Tile], None]:
        kernels = _Kernels(call, columns, samples)

        def look(tile: Tile) -> None:
            weights = kernels.forward(
                tile, np.empty((*tile.shape[:2], call.value.own.shape[-1]), call.problem.dtype)
            )
            are_dense[tile.heads] = np.diff(weights.indptr[::SAMPLE]) > DENSE * visible

        return look

    threads.run_pieces(samples, start, call.workers)
    return are_dense


class _Kernels:
    """The forward pass of one thread, with buffers for one tile after the other.

    Fresh memory for each tile would cost more than the work on it.
    """

    def __init__(self, call: TiledAttention, columns: Heads, tiles: list[Tile]) -> None:
        self._call, self._keys = call, columns
        size = max(map(attrgetter("size"), tiles), default=0)
        self._scores = np.empty(size, call.problem.dtype)
        self._values = np.empty(size + OVERHANG, call.problem.dtype)
        self._columns = np.empty(size + OVERHANG, np.int32)

    def forward(self, tile: Tile, out: Any) -> AttentionWeights:
        """The weights of a tile, views of the buffers; the output is written to `out`."""
        call, problem, (heads, queries, keys) = self._call, self._call.problem, tile.shape
        size, kernels = tile.size, choice.kernels()
        scores = self._scores[:size].reshape(tile.shape)
        matrices = self._keys.own[tile.heads]
        if self._keys.is_shared:
            matrices = self._keys.some(tile.start, tile.stop)
        columns = matrices[..., tile.columns]
        kernels["product"](call.query.queries(tile), columns, out=scores)
        if problem.bias is not None:
            scores += call.bias(tile)
        values = self._values[: size + OVERHANG]
        places = self._columns[: size + OVERHANG]
        indptr = np.zeros(heads * queries + 1, np.int64)
        starts, ends = indptr[:-1].reshape(heads, queries), indptr[1:].reshape(heads, queries)
        all_weights = sinks = rest = None
        alpha: Any = 1  # softmax, or a mapping without a kernel for rows
        if problem.is_entmax or call.has_sink:
            alpha = call.alphas[tile.heads]
        if np.any(alpha != 1) or call.has_sink and not keys:
            mask = None if call.mask is None else call.mask.scores(tile)
            if not problem.is_entmax:
                mask = call.mapping(tile).chosen(scores, call.attention_mask(tile))
            if mask is None:
                mask = np.ndarray(tile.shape, bool, TRUE, strides=(0, 0, 0))
            sinks = np.zeros((heads, queries), out.dtype)
            visible = call.visible[tile.top : tile.bottom]
            operands = scores, mask, visible, alpha, call.sinks[tile.heads]
            kernels["rows_entmax"](*operands, out=(values, places, ends, sinks))
        else:
            mapping = replace(call.mapping(tile), sink=None)
            all_weights = mapping.forward(scores, call.attention_mask(tile))
            if call.has_sink:
                sinks, rest = _softmax_sink(all_weights, scores, call.sinks[tile.heads])
                all_weights[rest == 0] = 0
            flat = np.ascontiguousarray(all_weights.reshape(heads * queries, keys))
            pack(flat, values, places, indptr[1:], 0)
        count = int(indptr[-1])
        sinks = sinks if call.has_sink else None
        weights = AttentionWeights(tile.shape, values[:count], places[:count], indptr, sinks)
        value, entries = call.value.keys(tile), (weights.data, weights.indices, starts, ends)
        if count <= DENSE * size:
            kernels["rows_product"](*entries, value, out=out)
        else:
            if all_weights is None:
                all_weights = scores
                kernels["rows_spread"](*entries, np.int64(0), out=scores)
            out[...] = dense.on_support(all_weights, value)
        if rest is not None:
            out *= rest[..., None]
            weights.data[...] *= np.repeat(rest, np.diff(indptr))
        return weights


def _softmax_sink(weights: Any, scores: Any, sink: Any) -> tuple[Any, Any]:
    """The weight of a sink beside softmax of (h, m, n) scores, or of some of them, and the rest.

    They are σ(s − log Σe^z) and 1 minus that; log Σe^z = z_j − log p_j, read from the largest p_j.
    """
    at = weights.argmax(axis=-1)[..., None]
    p, z = (np.take_along_axis(x, at, axis=-1)[..., 0] for x in (weights, scores))
    with np.errstate(divide="ignore"):
        total = np.where(p == 0, np.finfo(z.dtype).min, z - np.log(p))  # p is 0 without a key
    above = sink[:, None] - total
    return 1 / (1 + np.exp(-above)), 1 / (1 + np.exp(above))


def vjp(
    problem: Arguments,
    weights: AttentionWeights,
    g: Any,
    with_bias: bool,
    g_weights: Any = None,
) -> tuple[Any, ...]:
    """Gradients of query, key and value, of their own matrices or of all heads.

    `g` is the gradient of the output, and `g_weights` what is added to that of the weights.

    Then that of scale, of shape batch + (T,), or None for a number, that of the sink, of the batch
    shape, and that of the rows of the bias; None instead where there is none.
    """
    call, kernels = TiledAttention(problem, weights), choice.kernels()
    heads_g, each = call.heads(g), _heads_per_key(call)
    t, s, owners = call.t, call.s, call.n_heads // each
    g_query = call.zeros(shape=(call.n_heads, t, problem.query.shape[-1]))
    g_key = call.zeros(shape=(owners, s, problem.key.shape[-1]))
    g_value = call.zeros(shape=(owners, s, problem.value.shape[-1]))
    g_scores, g_sink = np.empty_like(weights.data), call.zeros(shape=(call.n_heads, t))

    def sparse_tile(tile: Tile) -> None:
        part, entries, places = call.part(tile)
        out = g_scores[entries], g_query[tile.rows], g_sink[tile.rows]
        arrays = heads_g.queries(tile), call.value.keys(tile), call.key.keys(tile)
        parameters = call.alphas[tile.heads], call.sink_weights[tile.rows]
        if g_weights is None:
            kernels["rows_vjp"](part.data, part.indices, *places, *arrays, *parameters, out=out)
            return
        dots = np.empty_like(part.data)
        kernels["rows_dots"](part.indices, *places, *arrays[:2], out=dots)
        dots += g_weights[entries]
        kernels["rows_jvp"](part.data, dots, *places, *parameters, out=out[0])
        kernels["rows_product"](out[0], part.indices, *places, arrays[2], out=out[1])
        # A row of the Jacobian sums to 0, so that the sink gets what the others lose.
        sums = np.bincount(part.rows, weights=out[0], minlength=out[2].size)
        out[2][...] = -sums.reshape(out[2].shape)

    def sum_columns(piece: tuple[int, int, Sequence, int, Any, Heads, Any]) -> None:
        first, stop, own, top, w, x, out = piece
        entries, indptr = call.entries(first * each * t, stop * each * t)
        queries, n = slice(own.top, own.bottom), stop - first
        starts = indptr[:-1].reshape(n, each, t)[..., queries].reshape(n, -1)
        ends = indptr[1:].reshape(n, each, t)[..., queries].reshape(n, -1)
        operands = w[entries], weights.indices[entries], starts, ends
        x = x.some(first * each, stop * each)[:, queries].reshape(*starts.shape, x.own.shape[-1])
        out = out[first:stop, top : min(top + KEYS, own.stop)]
        kernels["columns_product"](*operands, x, np.int64(top), out=out)

    def dense_tiles(piece: tuple[int, int, bool]) -> None:
        """Heads with all of their weights; those of stored weights only if they are asked for."""
        start, stop, stored = piece
        for tile in call.tiles(start, stop):
            again = call.again[tile.start]
            if not (again or stored):
                continue
            *arrays, mapping, mask = call.dense_operands(tile)
            part, entries, places = call.part(tile)
            operands = [*arrays, heads_g.queries(tile), mapping, mask]
            operands.append(call.added(part, entries, places, g_weights))
            gradients = dense.vjp(call.all_weights(tile), *operands)
            g_query[tile.rows] = gradients[0]
            if call.has_sink:
                g_sink[tile.rows] = gradients[3][..., -1]
            if with_bias and again:
                of_bias[start] = of_bias.get(start, 0) + call.bias_sums(tile, gradients[3])
            elif with_bias:
                rows = gradients[3].reshape(tile.shape[0] * tile.shape[1], -1)
                g_scores[entries] = rows[part.rows, part.indices]
            for i in range(tile.start, tile.stop):
                g_key[i // each, tile.columns] += gradients[1][i - tile.start]
                g_value[i // each, tile.columns] += gradients[2][i - tile.start]

    def sum_transposed(owner: int) -> None:
        """The same for all keys of an owner, column after column of the transposed weights."""
        rows_of_owner = slice(owner * each, (owner + 1) * each)
        entries, indptr = call.entries(rows_of_owner.start * t, rows_of_owner.stop * t)
        w, indices = (g_scores[entries], weights.data[entries]), weights.indices[entries]
        edges, places = np.zeros(s + 1, np.int64), np.empty_like(indices)
        moved = np.empty_like(w[0]), np.empty_like(w[1])
        out = edges[1:], places, *moved
        kernels["rows_transposed"](*w, indices, indptr[:-1], indptr[1:], out=out)
        for x, heads, gradient in zip(moved, (call.query, heads_g), (g_key, g_value), strict=True):
            operand = heads.some(rows_of_owner.start, rows_of_owner.stop)
            operand = operand.reshape(each * t, operand.shape[-1])
            kernels["rows_product"](x, places, edges[:-1], edges[1:], operand, out=gradient[owner])

    by_queries: list[Tile] = []
    by_owner: list[int] = []
    by_keys: list[Any] = []
    by_heads: list[Any] = []  # which add to the gradients of keys and values
    of_bias: dict[int, Any] = {}
    blocks = call.blocks()
    for start, stop, few_zeros in call.groups(each):
        if few_zeros:
            by_heads.append((start, stop, True))
            continue
        for owner in range(start, stop, each):
            if call.again[owner : owner + each].any():
                by_heads.append((owner, owner + each, False))
        by_queries += call.rows(start, stop, call.rows_at_once)
        if problem.sets is not None:
            by_owner += range(start // each, stop // each)
            continue
        for term in ((g_scores, call.query, g_key), (weights.data, heads_g, g_value)):
            for block in blocks:
                by_keys.append((start // each, stop // each, *block, *term))
    threads.run_pieces(by_queries, lambda: sparse_tile, call.workers)
    threads.run_pieces(by_keys, lambda: sum_columns, call.workers)
    threads.run_pieces(by_owner, lambda: sum_transposed, call.workers)
    threads.run_pieces(by_heads, lambda: dense_tiles, call.workers)
    g_query = g_query.reshape((*problem.batch, t, problem.query.shape[-1]))
    g_scale = None
    if problem.scale.ndim:
        g_scale = np.einsum("...td,...td->...t", g_query, problem.query)
    g_query *= problem.scale
    return (
        g_query,
        g_key,
        g_value,
        g_scale,
        g_sink.sum(axis=1).reshape(problem.batch) if call.has_sink else None,
        call.bias_gradient(g_scores, [of_bias[i] for i in sorted(of_bias)]) if with_bias else None,
    )


def _heads_per_key(call: TiledAttention) -> int:
    """The number of neighbouring heads that share keys and values; 1 if others share some."""
    each = max(1, call.n_heads // max(1, len(call.key.own)))
    neighbours = np.arange(call.n_heads) // each
    alike = (call.key.number == neighbours) & (call.value.number == neighbours)
    return each if alike.all() else 1


def vjp_alpha(problem: Arguments, weights: AttentionWeights, g: Any, g_weights: Any = None) -> Any:
    """The contribution of each head to the gradient of α, of the batch shape."""
    call, kernels = TiledAttention(problem, weights), choice.kernels()
    heads_g = call.heads(g)
    each = call.zeros(shape=(call.n_heads, call.t))

    def run(tile: Tile, dense_tile: bool) -> None:
        part, entries, places = call.part(tile)
        out = each[tile.rows]
        arrays = heads_g.queries(tile), call.value.keys(tile)
        if dense_tile:
            mapping = call.mapping(tile)
            zeros = np.zeros_like(part.data, shape=(tile.shape[0], 1), dtype=np.float64)
            mapping = replace(mapping, values=(zeros + mapping.values[0],))
            operands = arrays[1], arrays[0], mapping, call.added(part, entries, places, g_weights)
            out[:, 0] = dense.vjp_alpha(call.all_weights(tile), *operands)[:, 0]
            return
        dots = np.empty_like(part.data)
        kernels["rows_dots"](part.indices, *places, *arrays, out=dots)
        if g_weights is not None:
            dots += g_weights[entries]
        parameters = call.alphas[tile.heads], call.sink_weights[tile.rows]
        kernels["rows_vjp_alpha"](part.data, dots, *places, *parameters, out=out)

    pieces = [
        (tile, dense_tile)
        for start, stop, dense_tile in call.groups()
        for tile in call.tiles(start, stop)
        if tile.keys
    ]
    threads.run_pieces(pieces, lambda: lambda piece: run(*piece), call.workers)
    return each.sum(axis=1).reshape(problem.batch)
