"""Attention tile by tile on a GPU: what runs for CuPy's arrays.

The way is that of `tiles`, with what a GPU is good at: a tile of scores is a product of matrices,
the mapping's kernel makes weights of it, and a further product the output. Of the weights what is
not zero stays, in compressed sparse rows on the device. Backward a tile's weights are spread again,
and the products of `dense` follow, tile by tile, in an order that is always the same.

No array is larger than a tile of `TILE` scores but those of the caller, their copies and gradients,
and the weights that are not zero.

The host waits for the device to learn whether all is finite, and for each tile whose weights are to
be kept, to learn how many they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyentmax.calls.devices import array_module, on_device, to_host
from pyentmax.sparse_attention.arguments import Inputs, RowMapping, Setting
from pyentmax.sparse_attention.dense import on_support
from pyentmax.sparse_attention.tiles import Heads, Tile, tiles
from pyentmax.sparse_attention.weights import AttentionWeights, places

TILE = 1 << 24  # scores


def takes(inputs: Inputs) -> bool:
    """Whether the arrays are of a library like CuPy, on a device, and not empty.

    Arrays that answer NumPy's functions but belong to no such library take the way of `dense`.
    """
    arrays = inputs.query, inputs.key, inputs.value
    if not all(on_device(x) and x.size and array_module(x) is not np for x in arrays):
        return False
    return math.prod(inputs.shape) > 0


def forward(inputs: Inputs, setting: Setting, keep: bool) -> tuple[Any, AttentionWeights | None]:
    """The output, and the weights if they are to be kept."""
    call = _Call(inputs, setting)
    output = call.empty(call.heads, call.t, inputs.value.shape[-1])
    data, indices, counts = [], [], []
    for tile in call.tiles:
        query, key = call.queries(call.query, tile), call.keys(call.key, tile)
        scores = np.matmul(query * call.scale, _transposed(key))
        weights = call.mapping_of(tile).forward(scores, call.seen(tile))
        product = call.product(weights, call.keys(call.value, tile), call.finite_value)
        output[tile.start : tile.stop, tile.top : tile.bottom] = product
        if keep:
            rows = weights.reshape(-1, tile.keys)
            kept = rows != 0
            row, column = np.nonzero(kept)
            data.append(rows[row, column])
            indices.append(column.astype(np.int32))
            counts.append(np.sum(kept, axis=-1))
    shaped = output.reshape((*inputs.batch, *output.shape[1:]))
    if not keep:
        return shaped, None
    indptr = call.xp.zeros(call.heads * call.t + 1, dtype=np.int64)
    indptr[1:] = np.cumsum(np.concatenate(counts))
    weights = np.concatenate(data), np.concatenate(indices), indptr
    return shaped, AttentionWeights(inputs.shape, *weights)


def backward(
    inputs: Inputs, setting: Setting, weights: AttentionWeights, g: Any
) -> tuple[Any, Any, Any]:
    """Gradients of query, of the full batch shape, and of key and value, of theirs."""
    call = _Call(inputs, setting)
    support, finite_g = _Support(weights), _are_finite(g)[0]
    g = Heads(g, inputs.batch, contiguous=False)
    g_query = call.empty(call.heads, call.t, inputs.query.shape[-1])
    g_key, g_value = np.zeros_like(call.key.own), np.zeros_like(call.value.own)
    for tile in call.tiles:
        query, key = call.queries(call.query, tile), call.keys(call.key, tile)
        g_output = call.queries(g, tile)
        p = support.spread(tile, call.t)
        slopes = np.matmul(g_output, _transposed(call.keys(call.value, tile)))
        g_scores = call.mapping_of(tile).vjp(p, np.where(p != 0, slopes, 0), call.seen(tile))
        g_scores = g_scores * call.scale
        product = call.product(g_scores, key, call.finite_key)
        g_query[tile.start : tile.stop, tile.top : tile.bottom] = product
        _add(g_key, call.key, tile, call.product(_transposed(g_scores), query, call.finite_query))
        _add(g_value, call.value, tile, call.product(_transposed(p), g_output, finite_g))
    return (
        g_query.reshape((*inputs.batch, *g_query.shape[1:])),
        g_key.reshape(inputs.key.shape),
        g_value.reshape(inputs.value.shape),
    )


def along(
    inputs: Inputs, setting: Setting, weights: AttentionWeights, tangents: tuple[Any, Any, Any]
) -> Any:
    """How the output changes along the tangents of query, key and value."""
    call, support = _Call(inputs, setting), _Support(weights)
    finite = _are_finite(tangents[2])[0]
    d_query, d_key, d_value = (Heads(x, inputs.batch, contiguous=False) for x in tangents)
    output = call.empty(call.heads, call.t, inputs.value.shape[-1])
    for tile in call.tiles:
        p = support.spread(tile, call.t)
        query, key = call.queries(call.query, tile), call.keys(call.key, tile)
        moved = np.matmul(call.queries(d_query, tile), _transposed(key))
        moved = moved + np.matmul(query, _transposed(call.keys(d_key, tile)))
        moved = np.where(p != 0, moved * call.scale, 0)
        d_weights = call.mapping_of(tile).jvp(p, moved, call.seen(tile))
        product = call.product(d_weights, call.keys(call.value, tile), call.finite_value)
        product = product + call.product(p, call.keys(d_value, tile), finite)
        output[tile.start : tile.stop, tile.top : tile.bottom] = product
    return output.reshape((*inputs.batch, *output.shape[1:]))


def of_alpha(inputs: Inputs, setting: Setting, weights: AttentionWeights, g: Any) -> Any:
    """What each head contributes to the gradient of α, of the batch shape."""
    call, support = _Call(inputs, setting), _Support(weights)
    g = Heads(g, inputs.batch, contiguous=False)
    each = call.xp.zeros(call.heads, dtype=call.dtype)
    for tile in call.tiles:
        p = support.spread(tile, call.t)
        slopes = np.matmul(call.queries(g, tile), _transposed(call.keys(call.value, tile)))
        slopes = np.where(p != 0, slopes, 0)
        alpha = call.xp.zeros((tile.stop - tile.start, 1)) + call.parameters(tile)[0]
        mapping = RowMapping(setting.record, (alpha,), (False,))
        each[tile.start : tile.stop] += mapping.vjp_alpha(p, slopes, None)[:, 0]
    return each.reshape(inputs.batch)


class _Call:
    """Arrays and setting of a call, head by head."""

    def __init__(self, inputs: Inputs, setting: Setting) -> None:
        self._setting, self._batch, self.dtype = setting, inputs.batch, inputs.dtype
        self.xp = array_module(inputs.query)
        self.t, s = inputs.shape[-2:]
        self.heads, self.scale = math.prod(inputs.batch), setting.scale
        self.query, self.key, self.value = (
            Heads(x, inputs.batch, contiguous=False)
            for x in (inputs.query, inputs.key, inputs.value)
        )
        queries = min(self.t, max(1, TILE // s))
        self.tiles = tiles(inputs.shape, setting.reach, queries, TILE)
        arrays = inputs.query, inputs.key, inputs.value
        self.finite_query, self.finite_key, self.finite_value = _are_finite(*arrays)
        self._mask = setting.own_mask
        if self._mask is not None:
            self._mask = Heads(self._mask, inputs.batch, contiguous=False)
        self._parameters = [
            self._parameter(value, bound)
            for value, bound in zip(setting.mapping.values, setting.mapping.bounds, strict=True)
        ]

    def empty(self, *shape: int) -> Any:
        """An array to be written, on the device."""
        return self.xp.empty(shape, dtype=self.dtype)

    def queries(self, rows: Heads, tile: Tile) -> Any:
        """Of an array with a row for each query those of a tile."""
        return rows.some(tile.start, tile.stop)[:, tile.top : tile.bottom]

    def keys(self, rows: Heads, tile: Tile) -> Any:
        """Of an array with a row for each key those that a tile looks at."""
        return rows.some(tile.start, tile.stop)[:, : tile.keys]

    def product(self, weights: Any, rows: Any, finite: bool) -> Any:
        """Their product, in which a weight of 0 takes nothing, not even from a NaN."""
        return np.matmul(weights, rows) if finite else on_support(weights, rows)

    def seen(self, tile: Tile) -> Any:
        """What the queries of a tile see, causality included; None for everything."""
        mask = None if self._mask is None else self._mask.cut(tile)
        if self._setting.reach is None:
            return mask
        last = self.xp.arange(tile.top, tile.bottom)[:, None] + self._setting.reach
        causal = self.xp.arange(tile.keys) <= last
        return np.broadcast_to(causal, (*tile.shape, tile.keys)) if mask is None else mask & causal

    def parameters(self, tile: Tile) -> tuple[Any, ...]:
        """The mapping's parameters for a tile: a number, or one for each head."""
        some = slice(tile.start, tile.stop)
        return tuple(
            value.cut(tile)
            if isinstance(value, Heads)
            else value[some]
            if getattr(value, "ndim", 0)
            else value
            for value in self._parameters
        )

    def mapping_of(self, tile: Tile) -> RowMapping:
        """The mapping with the parameters of a tile."""
        mapping = self._setting.mapping
        return RowMapping(mapping.record, self.parameters(tile), mapping.bounds)

    def _parameter(self, value: Any, bound: bool) -> Any:
        if value.size == 1:  # a number goes wherever it is needed
            return value.reshape(()) if on_device(value) else value.item()
        if bound:
            return Heads(value, self._batch, contiguous=False)
        return np.broadcast_to(value[..., 0], self._batch).reshape(self.heads, 1)


class _Support:
    """Weights, to be spread tile by tile."""

    def __init__(self, weights: AttentionWeights) -> None:
        self._weights, self._ends = weights, to_host(weights.indptr)

    def spread(self, tile: Tile, t: int) -> Any:
        """All weights of a tile, zeros included."""
        first = tile.start * t + tile.top
        stop = first + math.prod(tile.shape)
        weights = self._weights
        entries = slice(int(self._ends[first]), int(self._ends[stop]))
        data, columns = weights.data[entries], weights.indices[entries]
        dense = np.zeros_like(data, shape=(stop - first, tile.keys))
        dense[places(weights.indptr[first : stop + 1], data), columns] = data
        return dense.reshape(*tile.shape, tile.keys)


def _are_finite(*arrays: Any) -> list[bool]:
    """Whether each array holds finite numbers only."""
    answers: list[bool] = to_host(np.stack([np.isfinite(x).all() for x in arrays])).tolist()
    return answers


def _add(total: Any, heads: Heads, tile: Tile, products: Any) -> None:
    """Add what each head of a tile contributes to the gradient of its keys or values."""
    width = products.shape[1]
    for i, number in enumerate(heads.number[tile.start : tile.stop].tolist()):
        total[number, :width] += products[i]


def _transposed(matrix: Any) -> Any:
    return np.swapaxes(matrix, -1, -2)
