"""Attention tile by tile: what runs for NumPy's arrays.

A tile is some queries of one head before all keys that they may see, or several whole heads where
these are small. Its scores come from BLAS into a buffer that fits the processor's cache, and while
they lie there, the threshold of each row is found and its non-zeros are written down. No zero is,
and no array of T × S scores ever exists.

Backward the same non-zeros say which products are needed (`dense` has the derivation):

    d_ij = g_i · v_j on the support,  ds = scale · J d,  ∂L/∂Q = ds K

tile by tile, and then, a block of keys at a time,

    ∂L/∂K = dsᵀ Q,  ∂L/∂V = Pᵀ G.

Every sum is taken in an order that depends on the shapes and the support alone. So threads that
share the tiles, or the blocks of keys, give the same bits as one.

Where a tile has few zeros, products of whole matrices are faster than those over the support, and
take their place, tile by tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from pyentmax.backends import choice, threads
from pyentmax.calls.rows import KERNEL_DTYPES
from pyentmax.sparse_attention import compressed_rows as rows
from pyentmax.sparse_attention.arguments import Inputs, RowMapping, Setting
from pyentmax.sparse_attention.weights import AttentionWeights, CollectedRows, pack_rows
from pyentmax.system.blas import one_blas_thread

Piece = TypeVar("Piece")

# Scores in a tile: what is worked on has to stay in a cache of a megabyte or so.
TILE = 1 << 18
# Queries that are multiplied with keys at a time, and multiplications. Products that small OpenBLAS
# computes from where the matrices lie. Larger ones it copies first, and with few features, that
# takes half as long again.
SIDE = 64
PRODUCTS = 1 << 19
EVERYTHING = np.broadcast_to(np.True_, (1 << 19, 1 << 19, 1 << 24))  # a mask that hides nothing
QUERIES = 256  # of one head that go together backward
KEYS = 1024  # whose gradients, which have to stay in the cache, go together
WORK = 1 << 18  # scores for which a further thread pays
# The share of non-zeros from which a product of whole matrices is faster.
DENSE_DOTS, DENSE_ROWS, DENSE_COLUMNS = 0.4, 0.5, 0.4


def takes(inputs: Inputs) -> bool:
    """Whether tiles can compute with these arrays: of the host, not empty, of a kernel's dtype."""
    arrays = inputs.query, inputs.key, inputs.value
    if not all(isinstance(x, np.ndarray) and x.size for x in arrays) or not math.prod(inputs.shape):
        return False
    return inputs.dtype in KERNEL_DTYPES or not choice.kernels()


class Heads:
    """Matrices of some shape, one for each head, of which several heads may share one.

    Attributes
    ----------
    own : array of the matrices that there are
    number : array of int
        which of them is each head's
    """

    def __init__(self, array: Any, batch: tuple[int, ...], *, contiguous: bool = True) -> None:
        if contiguous:
            array = np.ascontiguousarray(array)
        else:  # what was broadcast is the same many times
            array = array[tuple(slice(0, 1 if step == 0 else None) for step in array.strides)]
        self.own = array.reshape(-1, *array.shape[-2:])
        self.number = np.arange(len(self.own))
        self._is_shared = array.shape[:-2] != batch
        if self._is_shared:
            numbers = self.number.reshape(array.shape[:-2])
            self.number = np.broadcast_to(numbers, batch).ravel()

    def some(self, start: int, stop: int) -> Any:
        """The matrices of the heads from start to stop; a view where they lie side by side."""
        if not self._is_shared:
            return self.own[start:stop]
        numbers = self.number[start:stop]
        first = int(numbers[0])
        if stop == start + 1:
            return self.own[first : first + 1]
        if (numbers == first).all():
            one = self.own[first : first + 1]
            return np.broadcast_to(one, (len(numbers), *one.shape[1:]))
        if (np.diff(numbers) == 1).all():
            return self.own[first : first + len(numbers)]
        if not isinstance(self.own, np.ndarray):
            return np.stack([self.own[i] for i in numbers.tolist()])
        return self.own[numbers]

    def cut(self, tile: Tile) -> Any:
        """Of a mask or bounds, whose axes may be of length 1, what belongs to a tile."""
        some = self.some(tile.start, tile.stop)
        if some.shape[1] > 1:
            some = some[:, tile.top : tile.bottom]
        if some.shape[2] > 1:
            some = some[:, :, : tile.keys]
        return np.broadcast_to(some, (*tile.shape, tile.keys))


class Buffers:
    """Memory of one thread for tile after tile, since fresh memory is slow."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._kept: dict[str, Any] = {}

    def empty(self, name: str, shape: tuple[int, ...]) -> Any:
        """An array of that shape, whose values last until the name is used again."""
        size, kept = math.prod(shape), self._kept.get(name)
        if kept is None or kept.size < size:
            kept = self._kept[name] = np.empty(size, self._dtype)
        return kept[:size].reshape(shape)


@dataclass(frozen=True)
class Tile:
    """The queries `top` to `bottom` of the heads `start` to `stop`.

    Attributes
    ----------
    number : int
        in order
    keys : int
        how many there are to look at: as many as the last query sees
    share : float
        of all work
    """

    number: int
    start: int
    stop: int
    top: int
    bottom: int
    keys: int
    share: float

    @property
    def shape(self) -> tuple[int, int]:
        """Heads and queries."""
        return self.stop - self.start, self.bottom - self.top

    @property
    def size(self) -> int:
        """Scores."""
        return math.prod(self.shape) * self.keys


def tiles(shape: tuple[int, ...], reach: int | None, queries: int, room: int = TILE) -> list[Tile]:
    """The tiles of weights of that shape, with so many queries of a head in each, or some more.

    A tile with more of them, or with several heads, has `room` scores at most.
    """
    heads, (t, s) = math.prod(shape[:-2]), shape[-2:]
    at_once = max(1, room // max(1, t * s)) if queries >= t else 1
    places = [
        (start, min(start + at_once, heads), top, bottom)
        for start in range(0, heads, at_once)
        for top, bottom in _cuts(t, reach, queries, room)
    ]
    keys = [s if reach is None else min(max(bottom + reach, 0), s) for *_, bottom in places]
    work = [(b - a) * (d - c) * n for (a, b, c, d), n in zip(places, keys, strict=True)]
    total = max(1, sum(work))
    return [
        Tile(i, *place, n, part / total)
        for i, (place, n, part) in enumerate(zip(places, keys, work, strict=True))
    ]


def _cuts(t: int, reach: int | None, queries: int, room: int) -> list[tuple[int, int]]:
    """Where tiles begin and end: more queries go together as long as causality hides most keys."""
    found, top = [], 0
    while top < t:
        size = queries
        if reach is not None:
            while 2 * size <= QUERIES and 2 * size * (top + 2 * size + reach) <= room:
                size *= 2
        found.append((top, min(top + size, t)))
        top += size
    return found


class Call:
    """Arrays and setting of a call, head by head."""

    def __init__(self, inputs: Inputs, setting: Setting) -> None:
        self.inputs, self.setting, self.dtype = inputs, setting, inputs.dtype
        self.batch, (self.t, self.s) = inputs.batch, inputs.shape[-2:]
        self.heads = math.prod(self.batch)
        self.query = Heads(inputs.query, self.batch)
        self.key = Heads(inputs.key, self.batch)
        self.value = Heads(inputs.value, self.batch)
        self.alpha = self._of_heads(setting.alpha)

    @cached_property
    def mask(self) -> Heads | None:
        """The caller's mask."""
        mask = self.setting.own_mask
        return None if mask is None else Heads(mask, self.batch, contiguous=False)

    @cached_property
    def _parameters(self) -> list[Any]:
        # Of shape (…, 1) where there is a number for each head, else as the scores.
        setting = self.setting
        return [
            Heads(value, self.batch, contiguous=False)
            if bound
            else self._of_heads(value[..., 0])[:, None]
            for value, bound in zip(setting.mapping.values, setting.mapping.bounds, strict=True)
        ]

    def _of_heads(self, value: Any) -> Any:
        if np.ndim(value) == 0:
            return np.full(self.heads, value, np.float64)
        return np.broadcast_to(np.asarray(value, np.float64), self.batch).reshape(self.heads)

    def visible(self, tile: Tile) -> Any:
        """How many keys each query of a tile sees at most."""
        reach = self.setting.reach
        if reach is None:
            return np.full(tile.shape[1], tile.keys)
        return np.clip(np.arange(tile.top, tile.bottom) + reach + 1, 0, tile.keys)

    def mask_of(self, tile: Tile) -> Any:
        """The caller's mask for a tile, of its shape and stride 0 where there is none."""
        if self.mask is not None:
            return self.mask.cut(tile)
        return EVERYTHING[: tile.shape[0], : tile.shape[1], : tile.keys]

    def seen(self, tile: Tile) -> Any:
        """What the queries of a tile see, causality included; None for everything."""
        if self.setting.reach is None:
            return None if self.mask is None else self.mask_of(tile)
        return self.mask_of(tile) & (np.arange(tile.keys) < self.visible(tile)[:, None])

    def mapping_of(self, tile: Tile) -> RowMapping:
        """The mapping with the parameters of a tile."""
        mapping, some = self.setting.mapping, slice(tile.start, tile.stop)
        values = tuple(
            value.cut(tile) if isinstance(value, Heads) else value[some]
            for value in self._parameters
        )
        return RowMapping(mapping.record, values, mapping.bounds)


def forward(inputs: Inputs, setting: Setting, keep: bool) -> tuple[Any, AttentionWeights | None]:
    """The output, and the weights if they are to be kept."""
    call = Call(inputs, setting)
    width = inputs.value.shape[-1]
    queries = min(call.t, max(SIDE, TILE // call.s // SIDE * SIDE))
    todo = tiles(inputs.shape, setting.reach, queries)
    output = np.empty((call.heads, call.t, width), call.dtype)
    kept = CollectedRows(call.heads * call.t, call.dtype) if keep else None
    largest = max((tile.size for tile in todo), default=0)
    _share(todo, lambda: _Forward(call, largest, output, kept).run, setting.workers, inputs.shape)
    weights = None if kept is None else kept.weights(inputs.shape)
    return output.reshape((*inputs.batch, call.t, width)), weights


class _Forward:
    """What one thread needs to work on tiles forward."""

    def __init__(self, call: Call, largest: int, output: Any, kept: CollectedRows | None) -> None:
        self._call, self._output, self._kept = call, output, kept
        self._scores = np.empty(largest, call.dtype)
        self._values = np.empty(largest + rows.OVERHANG, call.dtype)
        self._columns = np.empty(largest + rows.OVERHANG, np.int32)
        self._keys: tuple[int, int, Any] = (-1, -1, None)

    def run(self, tile: Tile) -> None:
        """Output and weights of a tile."""
        call, some = self._call, slice(tile.start, tile.stop)
        output = self._output[some, tile.top : tile.bottom]
        query = call.query.some(tile.start, tile.stop)[:, tile.top : tile.bottom]
        scores = self._scores[: tile.size].reshape(*tile.shape, tile.keys)
        _multiply(query, self._key_blocks(tile), scores)
        ends = np.empty(tile.shape, np.int64)
        value = call.value.some(tile.start, tile.stop)[:, : tile.keys]
        if call.setting.entmax and not (call.alpha[some] == 1).all():
            values, columns = self._values[: tile.size + rows.OVERHANG], self._columns
            columns = columns[: tile.size + rows.OVERHANG]
            mask, visible, alpha = call.mask_of(tile), call.visible(tile), call.alpha[some]
            rows.entmax_rows(scores, mask, visible, alpha, out=(values, columns, ends))
            dense = None
        else:
            dense = call.mapping_of(tile).forward(scores, call.seen(tile))
            pack_rows(dense, self._values, self._columns, ends)
        count = int(ends[-1, -1]) if ends.size else 0
        values, columns = self._values[:count], self._columns[:count]
        starts = _starts(ends)
        if _is_dense(count, tile, DENSE_ROWS) and np.isfinite(value).all():
            if dense is None:
                dense = scores
                rows.rows_spread(values, columns, starts, ends, np.int64(0), out=dense)
            np.matmul(dense, value, out=output)
        else:
            rows.rows_product(values, columns, starts, ends, value, out=output)
        if self._kept is not None:
            first = tile.start * call.t + tile.top
            self._kept.add(tile.number, tile.share, first, values, columns, ends.ravel())

    def _key_blocks(self, tile: Tile) -> Any:
        start, stop, blocks = self._keys
        if (start, stop) != (tile.start, tile.stop):
            call = self._call
            blocks = _in_blocks(call.key.some(tile.start, tile.stop), call.setting.scale)
            self._keys = tile.start, tile.stop, blocks
        return blocks


def _in_blocks(keys: Any, scale: float) -> Any:
    """Keys (h, S, d), scaled, as columns of contiguous matrices, of shape (h, blocks, d, size)."""
    heads, s, d = keys.shape
    size = min(s, max(SIDE // 4, PRODUCTS // (SIDE * d)))
    if s % size:
        padded = np.zeros((heads, -(-s // size) * size, d), keys.dtype)
        padded[:, :s] = keys
        keys = padded
    blocks = np.swapaxes(keys.reshape(heads, -1, size, d), -1, -2).copy()
    blocks *= keys.dtype.type(scale)
    return blocks


def _multiply(query: Any, blocks: Any, out: Any) -> None:
    """Products of queries (h, m, d) with as many of the keys as `out` (h, m, n) has columns."""
    heads, m, d = query.shape
    n, size = out.shape[-1], blocks.shape[-1]
    if not n:
        return
    whole, columns = n // size, n // size * size
    edges = (0, m // SIDE * SIDE, m)
    for top, bottom, side in zip(edges, edges[1:], (SIDE, max(m % SIDE, 1)), strict=False):
        if top == bottom:
            continue
        left = query[:, top:bottom].reshape(heads, -1, 1, side, d)
        to = out[:, top:bottom].reshape(heads, -1, side, n)
        if whole:
            squares = to[..., :columns].reshape(heads, -1, side, whole, size)
            np.matmul(left, blocks[:, None, :whole], out=np.swapaxes(squares, 2, 3))
        if columns < n:
            rest = blocks[:, None, whole, :, : n - columns]
            np.matmul(left[:, :, 0], rest, out=to[..., columns:])


def backward(
    inputs: Inputs, setting: Setting, weights: AttentionWeights, g: Any
) -> tuple[Any, Any, Any]:
    """Gradients of query, of the full batch shape, and of key and value, of theirs."""
    call = _OnSupport(inputs, setting, weights)
    g_heads = Heads(g, inputs.batch)
    g_query = np.empty((call.heads, call.t, inputs.query.shape[-1]), call.dtype)
    g_scores = np.empty_like(weights.data)

    def of_queries(tile: Tile, buffers: Buffers) -> None:
        part, to = call.part(tile, buffers), g_query[tile.start : tile.stop, tile.top : tile.bottom]
        found = g_scores[part.entries]
        if setting.support_alpha is not None and not _is_dense(part.p.size, tile, DENSE_DOTS):
            call.g_scores_and_query(part, g_heads, found, to)
            return
        call.g_scores(part, call.dots(part, g_heads, call.value), found)
        call.product(part, found, call.key, to)

    _share(call.tiles, lambda: call.with_buffers(of_queries), setting.workers, inputs.shape)
    to_key, to_value = (g_scores, call.query), (weights.data, g_heads)
    if np.array_equal(call.key.number, call.value.number):
        both = _Columns(call, call.key, [to_key, to_value])
        sums, (g_key, g_value) = [both], both.outputs
    else:
        sums = [_Columns(call, call.key, [to_key]), _Columns(call, call.value, [to_value])]
        (g_key,), (g_value,) = (some.outputs for some in sums)
    _share(
        [block for some in sums for block in some.blocks()],
        lambda: call.with_buffers(lambda block, buffers: block.of.run(block, buffers)),
        setting.workers,
        inputs.shape,
    )
    return (
        g_query.reshape((*inputs.batch, *g_query.shape[1:])),
        g_key.reshape(inputs.key.shape),
        g_value.reshape(inputs.value.shape),
    )


def along(
    inputs: Inputs,
    setting: Setting,
    weights: AttentionWeights,
    tangents: tuple[Any, Any, Any],
) -> Any:
    """How the output changes along the tangents of query, key and value."""
    call = _OnSupport(inputs, setting, weights)
    d_query, d_key, d_value = (Heads(tangent, inputs.batch) for tangent in tangents)
    output = np.empty((call.heads, call.t, inputs.value.shape[-1]), call.dtype)

    def run(tile: Tile, buffers: Buffers) -> None:
        part = call.part(tile, buffers)
        out = output[tile.start : tile.stop, tile.top : tile.bottom]
        moved = call.dots(part, d_query, call.key).copy()
        moved += call.dots(part, call.query, d_key)
        d_weights = np.empty_like(part.p)
        call.g_scores(part, moved, d_weights, forward=True)
        call.product(part, d_weights, call.value, out)
        more = np.empty_like(out)
        call.product(part, part.p, d_value, more)
        out += more

    _share(call.tiles, lambda: call.with_buffers(run), setting.workers, inputs.shape)
    return output.reshape((*inputs.batch, *output.shape[1:]))


def of_alpha(inputs: Inputs, setting: Setting, weights: AttentionWeights, g: Any) -> Any:
    """What each head contributes to the gradient of α, of the batch shape."""
    call = _OnSupport(inputs, setting, weights)
    g_heads = Heads(g, inputs.batch)
    each = np.empty((call.heads, call.t), call.dtype)

    def run(tile: Tile, buffers: Buffers) -> None:
        part = call.part(tile, buffers)
        some = slice(tile.start, tile.stop)
        products = call.dots(part, g_heads, call.value)
        operands = part.p, products, part.starts, part.ends, call.alpha[some]
        rows.rows_entmax_vjp_alpha(*operands, out=each[some, tile.top : tile.bottom])

    _share(call.tiles, lambda: call.with_buffers(run), setting.workers, inputs.shape)
    return each.sum(axis=1).reshape(inputs.batch)


@dataclass(frozen=True)
class _Part:
    """A tile's non-zeros: weights, columns, where rows start and end, and which of all they are."""

    tile: Tile
    p: Any
    columns: Any
    starts: Any
    ends: Any
    entries: slice
    buffers: Buffers

    def spread(self, w: Any, name: str = "spread") -> Any:
        """All entries of a matrix with that support, in a buffer of that name."""
        dense = self.buffers.empty(name, (*self.tile.shape, self.tile.keys))
        rows.rows_spread(w, self.columns, self.starts, self.ends, np.int64(0), out=dense)
        return dense

    def pick(self, dense: Any) -> Any:
        """Of a matrix what stands on the support, in a buffer."""
        found = self.buffers.empty("on the support", self.p.shape)
        rows.rows_pick(self.columns, self.starts, self.ends, dense, out=found)
        return found


class _OnSupport(Call):
    """A call whose weights are known."""

    def __init__(self, inputs: Inputs, setting: Setting, weights: AttentionWeights) -> None:
        super().__init__(inputs, setting)
        self.weights = weights
        self.tiles = tiles(inputs.shape, setting.reach, min(max(self.t, 1), QUERIES))

    def with_buffers(self, work: Callable[[Piece, Buffers], None]) -> Callable[[Piece], None]:
        """The work of one thread."""
        buffers = Buffers(self.dtype)
        return lambda piece: work(piece, buffers)

    def part(self, tile: Tile, buffers: Buffers) -> _Part:
        """A tile's non-zeros."""
        first = tile.start * self.t + tile.top
        indptr = self.weights.indptr[first : first + math.prod(tile.shape) + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        places = indptr - indptr[0]
        starts, ends = places[:-1].reshape(tile.shape), places[1:].reshape(tile.shape)
        p, columns = self.weights.data[entries], self.weights.indices[entries]
        return _Part(tile, p, columns, starts, ends, entries, buffers)

    def dots(self, part: _Part, left: Heads, right: Heads) -> Any:
        """x_i · y_j on the support, in a buffer."""
        tile = part.tile
        x = left.some(tile.start, tile.stop)[:, tile.top : tile.bottom]
        y = right.some(tile.start, tile.stop)[:, : max(tile.keys, 1)]
        if _is_dense(part.p.size, tile, DENSE_DOTS):
            products = part.buffers.empty("products", (*tile.shape, tile.keys))
            return part.pick(np.matmul(x, np.swapaxes(y, -1, -2), out=products))
        found = part.buffers.empty("on the support", part.p.shape)
        rows.rows_dots(part.columns, part.starts, part.ends, x, y, out=found)
        return found

    def g_scores_and_query(self, part: _Part, g: Heads, g_scores: Any, g_query: Any) -> None:
        """The gradients of a tile's scores and queries at once."""
        tile = part.tile
        some, keys = (tile.start, tile.stop), slice(max(tile.keys, 1))
        x = g.some(*some)[:, tile.top : tile.bottom]
        y, z = self.value.some(*some)[:, keys], self.key.some(*some)[:, keys]
        alpha, factor = self.alpha[tile.start : tile.stop], np.float64(self.setting.scale)
        operands = part.p, part.columns, part.starts, part.ends, x, y, z, alpha, factor
        rows.rows_entmax_vjp(*operands, out=(g_scores, g_query))

    def product(self, part: _Part, w: Any, right: Heads, out: Any) -> None:
        """Σ_j w_ij y_j."""
        tile = part.tile
        y = right.some(tile.start, tile.stop)[:, : tile.keys]
        if _is_dense(w.size, tile, DENSE_ROWS) and np.isfinite(y).all():
            np.matmul(part.spread(w), y, out=out)
        else:
            rows.rows_product(w, part.columns, part.starts, part.ends, y, out=out)

    def g_scores(self, part: _Part, v: Any, out: Any, *, forward: bool = False) -> None:
        """Scale · Jᵀ v on the support, or J v."""
        tile, scale = part.tile, self.setting.scale
        if self.setting.support_alpha is not None:
            alpha = self.alpha[tile.start : tile.stop]
            operands = part.p, v, part.starts, part.ends, alpha, np.float64(scale)
            rows.rows_entmax_jvp(*operands, out=out)
            return
        mapping = self.mapping_of(tile)
        product = mapping.jvp if forward else mapping.vjp
        dense, direction = part.spread(part.p), part.spread(v, "direction")
        out[...] = part.pick(product(dense, direction, self.seen(tile)))
        out *= scale


@dataclass(frozen=True)
class _Block:
    """The keys `top` to `bottom` of the matrices `start` to `stop`, and which of the sums."""

    of: _Columns
    start: int
    stop: int
    top: int
    bottom: int
    terms: tuple[int, ...]


@dataclass(frozen=True)
class _Stretch:
    """Queries that follow each other, and where the entries of their rows start and end."""

    top: int
    bottom: int
    entries: slice
    starts: Any
    ends: Any
    dense: bool


class _Columns:
    """Σ_i w_ij x_i for each key j, over all queries of the heads that share the key.

    `terms` has several w, each with its x, for which the keys are shared alike.
    """

    def __init__(self, call: _OnSupport, keys: Heads, terms: list[tuple[Any, Heads]]) -> None:
        self._call, self._terms = call, terms
        self._own, self._number = len(keys.own), keys.number
        self.outputs = [
            np.empty((self._own, call.s, x.own.shape[-1]), call.dtype) for _, x in terms
        ]
        # Heads that share keys mostly follow each other, as many for each.
        self._each = call.heads // max(1, self._own)
        regular = np.arange(self._own) if self._each == 1 else np.arange(call.heads) // self._each
        self._is_regular = np.array_equal(keys.number, regular)

    def blocks(self) -> list[_Block]:
        """What can be worked on apart."""
        call, own = self._call, self._own
        size = self._each * call.t * call.s
        at_once = max(1, TILE // max(1, size)) if self._is_regular and call.s <= KEYS else 1
        terms = tuple(range(len(self._terms)))
        together = [terms] if call.setting.workers == 1 else [(term,) for term in terms]
        return [
            _Block(self, start, min(start + at_once, own), top, min(top + KEYS, call.s), some)
            for some in together
            for start in range(0, own, at_once)
            for top in range(0, call.s, KEYS)
        ]

    def run(self, block: _Block, buffers: Buffers) -> None:
        """The sums of a block, in the order of heads and queries."""
        spans = [(block.start * self._each, block.stop * self._each)]
        if not self._is_regular:
            heads = np.flatnonzero(self._number == block.start)
            runs = np.split(heads, np.flatnonzero(np.diff(heads) > 1) + 1)
            spans = [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]
        matrices, first = block.stop - block.start, True
        for start, stop in spans:
            for stretch in self._stretches(start, stop, matrices):
                for term in block.terms:
                    w, x = self._terms[term]
                    x = x.some(start, stop)
                    x = x.reshape(matrices, -1, x.shape[-1])[:, stretch.top : stretch.bottom]
                    out = self.outputs[term][block.start : block.stop, block.top : block.bottom]
                    more = out if first else buffers.empty("more", out.shape)
                    self._sum(stretch, w[stretch.entries], x, block.top, more, buffers)
                    if not first:
                        out += more
                first = False
        if first:
            for term in block.terms:
                self.outputs[term][block.start : block.stop, block.top : block.bottom] = 0

    def _stretches(self, start: int, stop: int, matrices: int) -> Iterator[_Stretch]:
        """Queries that follow each other and have alike many non-zeros."""
        call = self._call
        t, length = call.t, (stop - start) // matrices * call.t
        indptr = call.weights.indptr[start * t : stop * t + 1]
        if matrices > 1 or length <= QUERIES:
            is_dense = (indptr[-1] - indptr[0]) > DENSE_COLUMNS * (stop - start) * t * call.s
            edges, dense = [0, length], [bool(is_dense)]
        else:
            tops = np.arange(0, length, QUERIES)
            sizes = indptr[np.minimum(tops + QUERIES, length)] - indptr[tops]
            share = 1.0 if call.setting.reach is None else 0.5
            many = sizes > DENSE_COLUMNS * share * QUERIES * call.s
            changes = np.flatnonzero(np.diff(many)) + 1
            edges = [0, *(int(tops[i]) for i in changes), length]
            dense = [bool(many[i]) for i in (0, *changes)]
        for top, bottom, many_here in zip(edges, edges[1:], dense, strict=False):
            places = indptr if len(edges) == 2 else indptr[top : bottom + 1]
            entries = slice(int(places[0]), int(places[-1]))
            places = places - places[0]
            shape = (matrices, bottom - top)
            starts, ends = places[:-1].reshape(shape), places[1:].reshape(shape)
            yield _Stretch(top, bottom, entries, starts, ends, many_here)

    def _sum(self, stretch: _Stretch, w: Any, x: Any, top: int, out: Any, buffers: Buffers) -> None:
        """The sums over a stretch of queries, for the keys from `top` on."""
        columns, first = self._call.weights.indices[stretch.entries], np.int64(top)
        starts, ends = stretch.starts, stretch.ends
        if not (stretch.dense and np.isfinite(x).all()):
            rows.columns_product(w, columns, starts, ends, x, first, out=out)
            return
        for i in range(0, starts.shape[1], QUERIES):
            some = slice(i, i + QUERIES)
            spread = buffers.empty("spread", (*starts[:, some].shape, out.shape[-2]))
            rows.rows_spread(w, columns, starts[:, some], ends[:, some], first, out=spread)
            if i == 0:
                np.matmul(np.swapaxes(spread, -1, -2), x[:, some], out=out)
            else:
                product = buffers.empty("product", out.shape)
                out += np.matmul(np.swapaxes(spread, -1, -2), x[:, some], out=product)


def _starts(ends: Any) -> Any:
    """Where rows start that follow each other, from their ends."""
    starts = np.zeros_like(ends)
    starts.reshape(-1)[1:] = ends.reshape(-1)[:-1]
    return starts


def _is_dense(count: int, tile: Tile, share: float) -> bool:
    return count > share * tile.size


def _share(
    pieces: list[Piece],
    start: Callable[[], Callable[[Piece], None]],
    workers: int,
    shape: tuple[int, ...],
) -> None:
    """Work on all pieces, on several threads where that pays, each with one thread of BLAS."""
    count = min(math.prod(shape) // WORK, workers)
    with one_blas_thread():
        threads.each(pieces, start, count)
