"""One call of attention as an object: built once, then asked for output, weights and derivatives.

`AttentionProblem` is what the array functions, the tape's operation and PyTorch's ask. With packed
sequences, `PackedProblem` has the same methods: it holds a problem for each sequence, so that time
and memory are the sums of the parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import to_host
from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.sparse_attention import few_queries, tiles
from pyentmax.sparse_attention.arguments import BOUNDS, Arguments, check_shapes, has_gradient
from pyentmax.sparse_attention.bias import DistanceBias, array_of, check_distances
from pyentmax.sparse_attention.screened_rows import ScreenedRows
from pyentmax.sparse_attention.weights import AttentionWeights, check_weights, indptr_of

LEARNED = ("scale", "sink", "bias")  # what has a gradient where it is an array
Place = tuple[int, int, int, int]  # first and last query, first and last key of a sequence

# Keys that no query sees may hold infinities and NaN, whose products warn.
QUIET: dict[str, Any] = {"over": "ignore", "under": "ignore", "invalid": "ignore"}


class AttentionProblem(Arguments):
    """The arguments of a call, checked and arranged, and what is computed from them.

    Gradients have the shapes and dtypes of the caller's arrays.
    """

    def __init__(self, query: Any, key: Any, value: Any, alpha: Any = 1.5, **options: Any) -> None:
        screened = key if isinstance(key, ScreenedRows) else None
        super().__init__(query, key if screened is None else screened.rows, value, alpha, **options)
        if screened is not None:
            self._set_screen(screened)
        self._alpha = alpha
        self._learned: Any = options.get("scale"), options.get("sink"), options.get("bias")

    def _set_screen(self, screened: ScreenedRows) -> None:
        alpha = self.support_alpha if self.is_entmax else np.nan
        if not np.all((np.asarray(alpha) > 1) & (np.asarray(alpha) <= 2)):
            raise ValueError(
                "ScreenedRows as key: expected α-entmax with 1 < alpha <= 2, got "
                f"{self.mapping.record.name} with alpha={alpha}; pass key.rows for other mappings"
            )
        arrays = screened.copies, screened.bounds
        self.screen = arrays if not self._groups else tuple(map(self._split_heads, arrays))

    def _check_derivative(self) -> None:
        if self.screen is not None:
            raise TypeError(
                "ScreenedRows have no derivatives: pass their rows as key, as in key.rows"
            )

    def forward(
        self, return_weights: bool = False, *, whole: bool = True
    ) -> tuple[Any, AttentionWeights | None]:
        """The output, and the weights or None.

        Unless `whole`, the weights are what `vjp` and `vjp_alpha` need: those of heads with few
        zeros are not stored.
        """
        with np.errstate(**QUIET):
            if few_queries.serves(self):
                output, weights = few_queries.forward(self, return_weights)
            else:
                output, weights = tiles.forward(self, return_weights, whole)
        return self.output(output), weights

    def vjp(
        self, weights: AttentionWeights, g: Any, *, with_bias: bool = True, g_weights: Any = None
    ) -> tuple[Any, ...]:
        """Gradients of query, key and value, then of scale, sink and bias that are arrays.

        `g_weights`, an array like ``weights.data``, is the gradient of the weights themselves.
        """
        self._check_derivative()
        with_bias = with_bias and has_gradient(self._learned[2])
        weights, g = self.check_weights(weights), self.output_like(g, "g")
        with np.errstate(**QUIET):
            *gradients, g_scale, g_sink, g_bias = tiles.vjp(self, weights, g, with_bias, g_weights)
        gradients = [self.gradient(x, i) for i, x in enumerate(gradients)]
        scale, sink, bias = self._learned
        if has_gradient(scale):
            gradients.append(self.parameter_gradient(g_scale, scale))
        if has_gradient(sink):
            gradients.append(self.parameter_gradient(g_sink, sink))
        if with_bias:
            gradients.append(self.bias_gradient(g_bias, bias))
        return tuple(gradients)

    def jvp(self, weights: AttentionWeights, *directions: Any) -> Any:
        """The change of the output in a direction of query, key, value, scale, sink and bias."""
        self._check_derivative()
        *tangents, d_scale, d_sink, d_bias = directions
        weights = self.check_weights(weights)
        moved = (
            self.tangent(tangents[0], 0),
            self.tangent(tangents[1], 1),
            self.tangent(tangents[2], 2),
        )
        if d_scale is not None:
            d_scale = self.per_query(d_scale, "d_scale")
        if d_sink is not None:
            d_sink = self.per_head(as_floating(d_sink, "d_sink")[0], "d_sink").astype(self.dtype)
        if d_bias is not None:
            bias = self._learned[2]
            by_distance = isinstance(bias, DistanceBias)
            d_bias = self.checked_bias(bias.with_array(d_bias) if by_distance else d_bias)
        with np.errstate(**QUIET):
            return self.output(tiles.jvp(self, weights, moved, d_scale, d_sink, d_bias))

    def vjp_alpha(self, weights: AttentionWeights, g: Any, g_weights: Any = None) -> Any:
        """The gradient of α."""
        weights, g = self.check_weights(weights), self.output_like(g, "g")
        with np.errstate(**QUIET):
            each = tiles.vjp_alpha(self, weights, g, g_weights)
        return self.parameter_gradient(each, self._alpha)


class PackedProblem:
    """The sequences that lie behind each other along the positions, each a problem of its own."""

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        alpha: Any = 1.5,
        *,
        cu_seqlens: Any,
        offset: Any = 0,
        **options: Any,
    ) -> None:
        query, key, value = (
            np.asarray(x) if not hasattr(x, "shape") else x for x in (query, key, value)
        )
        shapes = [x.shape for x in (query, key, value)]
        self._outer, _ = check_shapes(*shapes)
        self._sizes = shapes[0][-2], shapes[1][-2]
        self._places = _sequences(cu_seqlens, *self._sizes)
        if not self._places:  # of no sequence, and so of no position
            self._places = [(0, 0, 0, 0)]
        offsets = _offsets(offset, len(self._places))
        self._options = options
        self._parts = []
        for place, own in zip(self._places, offsets, strict=True):
            q, k, v = (self._cut(x, place, i > 0) for i, x in enumerate((query, key, value)))
            each = {name: self._part(name, x, place) for name, x in options.items()}
            self._parts.append(AttentionProblem(q, k, v, alpha, offset=own, **each))

    def forward(
        self, return_weights: bool = False, *, whole: bool = True
    ) -> tuple[Any, AttentionWeights | None]:
        """The output, and the weights or None; unless `whole`, what derivatives need of them."""
        output: Any = None
        weights: list[Any] = []
        for part, place in zip(self._parts, self._places, strict=True):
            own, own_weights = part.forward(return_weights, whole=whole)
            output = self._like(own, self._sizes[0]) if output is None else output
            self._cut(output, place)[...] = own
            weights.append(own_weights)
        return output, self._joined(weights) if return_weights else None

    def vjp(
        self, weights: AttentionWeights, g: Any, *, with_bias: bool = True, g_weights: Any = None
    ) -> tuple[Any, ...]:
        """Gradients of query, key and value, then of scale, sink and bias that are arrays.

        `g_weights`, an array like ``weights.data``, is the gradient of the weights themselves.
        """
        learned = [name for name in LEARNED if has_gradient(self._options.get(name))]
        learned = [name for name in learned if with_bias or name != "bias"]
        # Written to their places at once: a sequence then reuses the memory of the one before.
        totals: list[Any] = []
        for (part, *each, g_own), place in zip(
            self._each(weights, g, g_weights), self._places, strict=True
        ):
            gradients = part.vjp(*each, with_bias=with_bias, g_weights=g_own)
            if not totals:
                totals = [self._like(x, self._sizes[i > 0]) for i, x in enumerate(gradients[:3])]
                shapes = (np.shape(array_of(self._options[name])) for name in learned)
                totals += [np.zeros_like(totals[0], shape=shape) for shape in shapes]
            for i in range(3):
                self._cut(totals[i], place, i > 0)[...] = gradients[i]
            for name, total, x in zip(learned, totals[3:], gradients[3:], strict=True):
                total[_index(name, self._options[name], self._sizes, place)] += x
        return (*totals[:3], *(total[()] for total in totals[3:]))

    def vjp_alpha(self, weights: AttentionWeights, g: Any, g_weights: Any = None) -> Any:
        """The gradient of α."""
        first, *rest = [part.vjp_alpha(*each) for part, *each in self._each(weights, g, g_weights)]
        return sum(rest, first)

    def jvp(self, weights: AttentionWeights, *directions: Any) -> Any:
        """The change of the output in a direction of query, key, value, scale, sink and bias."""
        moved = []
        directions = tuple(np.asarray(x) if isinstance(x, (list, tuple)) else x for x in directions)
        for part, own, place in zip(self._parts, self._split(weights), self._places, strict=True):
            operands = (
                None if x is None else self._cut(x, place, i > 0)
                for i, x in enumerate(directions[:3])
            )
            more = (
                None if x is None else array_of(self._part(name, self._direction(name, x), place))
                for name, x in zip(LEARNED, directions[3:], strict=True)
            )
            moved.append(part.jvp(own, *operands, *more))
        return np.concatenate(moved, axis=-2)

    def _direction(self, name: str, x: Any) -> Any:
        """A direction as the argument that it is one of."""
        whole = self._options.get(name)
        return whole.with_array(x) if isinstance(whole, DistanceBias) else x

    def _each(self, weights: AttentionWeights, g: Any, g_weights: Any) -> Iterator[tuple[Any, ...]]:
        """Problem, weights, and gradients of output and weights, of each sequence."""
        gradients: Any = repeat(None)
        if g_weights is not None:
            whole = replace(weights, data=g_weights, sink=None)
            gradients = (part.data for part in self._split(whole))
        parts = zip(self._parts, self._split(weights), self._places, gradients, strict=False)
        for part, own, place, g_own in parts:
            yield part, own, self._cut(g, place), g_own

    def _like(self, part: Any, size: int) -> Any:
        """An array for the positions of all sequences, of whose arrays one is passed."""
        return np.empty_like(part, shape=(*part.shape[:-2], size, part.shape[-1]))

    def _cut(self, array: Any, place: Place, keys: bool = False) -> Any:
        """The positions of a sequence, of an array with one axis of features behind them."""
        return array[..., slice(*place[2:]) if keys else slice(*place[:2]), :]

    def _part(self, name: str, value: Any, place: Place) -> Any:
        """What belongs to a sequence of an argument."""
        index = _index(name, value, self._sizes, place)
        if index == (...,):
            return value
        array = array_of(value)
        array = np.asarray(array) if not hasattr(array, "__array_function__") else array
        part = array[index]
        return value.with_array(part) if isinstance(value, DistanceBias) else part

    def _joined(self, parts: list[AttentionWeights]) -> AttentionWeights:
        """The weights of all rows, head by head, the keys counted from the first of all."""
        heads, t = math.prod(self._outer), self._sizes[0]
        counts = np.zeros_like(parts[0].indptr, shape=(heads, t))
        for part, (top, bottom, _, _) in zip(parts, self._places, strict=True):
            counts[:, top:bottom] = np.diff(part.indptr).reshape(heads, bottom - top)
        indptr = indptr_of(counts.ravel())
        ends, size = to_host(indptr), sum(part.data.size for part in parts)
        data = np.empty_like(parts[0].data, shape=size)
        indices = np.empty_like(parts[0].indices, shape=size)
        for part, (top, bottom, first, _) in zip(parts, self._places, strict=True):
            own = to_host(part.indptr)[:: max(bottom - top, 1)]
            for head in range(heads if bottom > top else 0):
                to = slice(ends[head * t + top], ends[head * t + bottom])
                of = slice(own[head], own[head + 1])
                data[to] = part.data[of]
                indices[to] = part.indices[of] + np.int32(first)
        sink = None
        if parts[0].sink is not None:
            sink = np.concatenate([part.sink for part in parts], axis=-1)
        marks = [part.dense_heads for part in parts]
        dense_heads = None
        if any(own is not None for own in marks):
            none = np.zeros(heads, bool)
            dense_heads = np.concatenate([none if own is None else own for own in marks])
        shape = (*self._outer, *self._sizes)
        return AttentionWeights(shape, data, indices, indptr, sink, dense_heads)

    def _split(self, weights: AttentionWeights) -> Iterator[AttentionWeights]:
        """The weights of each sequence."""
        check_weights(weights, (*self._outer, *self._sizes))
        heads, t, ends = math.prod(self._outer), self._sizes[0], to_host(weights.indptr)
        counts = np.diff(weights.indptr).reshape(heads, t)
        dense_heads: Any = repeat(None)
        if weights.dense_heads is not None:
            dense_heads = weights.dense_heads.reshape(len(self._places), heads)
        for (top, bottom, first, stop), marks in zip(self._places, dense_heads, strict=False):
            own = [slice(ends[h * t + top], ends[h * t + bottom]) for h in range(heads)]
            own = own or [slice(0, 0)]
            data = np.concatenate([weights.data[entries] for entries in own])
            indices = np.concatenate([weights.indices[entries] for entries in own])
            indptr = indptr_of(counts[:, top:bottom].ravel())
            shape = (*self._outer, bottom - top, stop - first)
            sink = None if weights.sink is None else weights.sink[..., top:bottom]
            yield AttentionWeights(shape, data, indices - np.int32(first), indptr, sink, marks)


def pair_of(cu_seqlens: Any) -> tuple[Any, Any]:
    """Where sequences begin among the queries, and among the keys."""
    both = cu_seqlens if isinstance(cu_seqlens, tuple) else (cu_seqlens, cu_seqlens)
    if len(both) != 2:
        raise ValueError(f"cu_seqlens: expected one array or two, got {len(both)}")
    return both


def check_edges(array: Any, is_whole: bool) -> None:
    """Raise a TypeError unless an array, or a tensor, holds integers and has one axis."""
    if not is_whole or array.ndim != 1:
        raise TypeError(
            f"cu_seqlens must be whole numbers with one axis, got {array.dtype} of shape "
            f"{tuple(array.shape)}"
        )


def _sequences(cu_seqlens: Any, t: int, s: int) -> list[Place]:
    """First and last query, first and last key of each sequence."""
    edges = []
    both = pair_of(cu_seqlens)
    for cu, size, of in zip(both, (t, s), ("queries", "keys"), strict=True):
        array = np.asarray(to_host(cu))
        check_edges(array, array.dtype.kind in "iu")
        if not len(array) or array[0] != 0 or array[-1] != size or (np.diff(array) < 0).any():
            raise ValueError(
                f"cu_seqlens of the {of} must rise from 0 to their number, {size}, got {array}"
            )
        edges.append(array.tolist())
    if len(edges[0]) != len(edges[1]):
        raise ValueError(
            "cu_seqlens: expected as many sequences of queries as of keys, got "
            f"{len(edges[0]) - 1} and {len(edges[1]) - 1}"
        )
    return [(*q, *k) for q, k in zip(pairwise(edges[0]), pairwise(edges[1]), strict=True)]


def _offsets(offset: Any, count: int) -> list[Any]:
    if not np.ndim(offset):
        return [offset] * count
    if np.shape(offset) != (count,):
        raise ValueError(
            f"offset: expected a number, or one for each of {count} sequences, got shape "
            f"{np.shape(offset)}"
        )
    return list(np.asarray(offset).tolist())


def _index(name: str, value: Any, sizes: tuple[int, int], place: Place) -> tuple[Any, ...]:
    """Where in an argument a sequence's part is: all of it, unless it belongs to positions."""
    shape, (top, bottom, first, stop) = np.shape(array_of(value)), place
    axes: list[tuple[int, slice]] = []
    if isinstance(value, DistanceBias):
        if not value.is_alibi:
            check_distances(shape, *sizes)
            start = sizes[0] - (bottom - top)
            axes = [(shape[-1], slice(start, start + max(bottom - top + stop - first - 1, 0)))]
    elif name == "scale":
        axes = [(sizes[0], slice(top, bottom))]
    elif name in ("mask", "bias", *BOUNDS):
        axes = [(sizes[0], slice(top, bottom)), (sizes[1], slice(first, stop))]
    index: list[Any] = [...]
    for own, (size, cut) in zip(shape[-2:][::-1], axes[::-1], strict=False):
        if own not in (1, size):
            raise ValueError(
                f"{name} of shape {shape} does not broadcast to {size} packed positions"
            )
        index.insert(1, cut if own == size else slice(None))
    return tuple(index)


def attention_problem(
    query: Any, key: Any, value: Any, alpha: Any = 1.5, *, cu_seqlens: Any = None, **options: Any
) -> AttentionProblem | PackedProblem:
    """The problem of a call; with cu_seqlens, of packed sequences."""
    if cu_seqlens is None:
        return AttentionProblem(query, key, value, alpha, **options)
    if isinstance(key, ScreenedRows):
        raise ValueError("ScreenedRows as key: expected one sequence, got cu_seqlens")
    return PackedProblem(query, key, value, alpha, cu_seqlens=cu_seqlens, **options)
