"""The arguments of attention, checked and arranged: dtypes, batch shapes, heads, mask, mapping.

The last batch axis shows where there are fewer key heads than query heads. With H query heads and n
key heads, query head h goes with key head h // (H/n), as with `enable_gqa` in PyTorch. That axis is
split into (n, H/n) here, and into (n, 1) for the keys, after which batch shapes broadcast as usual.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.calls.devices import array_module, is_dask, on_device, on_device_of, to_host
from pyentmax.engine.calls.dtypes import KERNEL_DTYPES, as_floating
from pyentmax.engine.calls.rows import as_mask, broadcasts, reduce_to
from pyentmax.reference.fenchel_young import record_and_parameters, record_of
from pyentmax.reference.mapping import AnyMapping as Mapping
from pyentmax.reference.mappings.entmax import ALPHA, entmax
from pyentmax.reference.mappings.entmax15 import entmax15
from pyentmax.reference.mappings.softmax import softmax
from pyentmax.reference.mappings.sparsemax import sparsemax
from pyentmax.reference.mappings.topk_softmax import topk_softmax
from pyentmax.reference.mappings.topk_sparsemax import topk_sparsemax
from pyentmax.sparse_attention.bias import (
    DistanceBias,
    ScoreBias,
    array_of,
    check_distances,
)
from pyentmax.sparse_attention.key_sets import KeySets, key_sets
from pyentmax.sparse_attention.weights import AttentionWeights, check_weights

ENTMAX_FAMILY = entmax, softmax, entmax15, sparsemax  # α-entmax of any α, and of 1, 1.5 and 2
TOP_K = topk_softmax, topk_sparsemax
BOUNDS = ("upper",)  # parameters with a number for each score
Shape = tuple[int, ...]


class Sequence(NamedTuple):
    """The queries and keys of one of the sequences that are packed behind each other.

    Attributes
    ----------
    top, bottom, first, stop : int
        its first query and the one after its last, and the same of its keys
    reach : int or None
        query t, counted over all sequences, sees the sequence's keys 0 … t + reach at most
    shift : int
        how much further its numbers lie in a row of numbers by distance
    """

    top: int
    bottom: int
    first: int
    stop: int
    reach: int | None
    shift: int


class Arguments:
    """The arguments of one call, with batch shapes that broadcast, in the dtype to compute in.

    Attributes
    ----------
    query, key, value : arrays of shape (…, T, d), (…, S, d), (…, S, dᵥ)
    batch : tuple of int
        what their batch shapes broadcast to, heads split in two where they are grouped
    outer : tuple of int
        the same as the caller sees it
    shape, outer_shape : tuple of int
        those of the scores and weights, batch + (T, S) and outer + (T, S)
    result_dtype : dtype
    mapping : RowMapping
    is_entmax : bool
        whether the mapping is the α-entmax of `support_alpha`
    support_alpha : float, array that broadcasts to the batch shape, or None
        the α whose entmax has the mapping's Jacobian on the support, if there is one
    mask : bool array that broadcasts to batch + (T, S), or None
    sets : KeySets, or None
        the keys that each query sees, in place of a mask of bools
    set_numbers : list of int
        which of the sets' matrices each head has
    sequences : list of Sequence
        one, unless several are packed
    scale : number, or array that broadcasts against batch + (T, 1)
        of the queries, in their dtype
    sink : array that broadcasts against batch + (1,), or None
        the score of a sink
    bias : ScoreBias or None
        what is added to the scores
    screen : copies, bounds and scales of `ScreenedRows`, or None
    """

    screen: tuple[Any, ...] | None = None

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        alpha: Any = 1.5,
        *,
        mapping: str | Mapping | None = None,
        mask: Any = None,
        causal: bool = False,
        offset: Any = 0,
        scale: Any = None,
        sink: Any = None,
        bias: Any = None,
        cu_seqlens: Any = None,
        **parameters: Any,
    ) -> None:
        self.mapping: RowMapping
        self._arrange(query, key, value)
        record = entmax if mapping in (None, "entmax") else record_of(mapping)
        self._set_mapping(record, alpha, parameters)
        self.mask = None
        self.sets: KeySets | None = None if mask is None else key_sets(mask, *self.shape[-2:])
        if self.sets is not None:
            self._check_sets(cu_seqlens)
        elif mask is not None:
            mask = as_mask(mask, "where a key may be seen")
            self.mask = self._per_score(on_device_of(mask, self.query, "mask"), "mask")
        by_slopes = isinstance(bias, DistanceBias) and bias.is_alibi
        t, s = self.shape[-2:]
        packed = None if cu_seqlens is None else _places(cu_seqlens, t, s)
        count = None if packed is None else len(packed)
        offsets = _offsets(offset, count, causal, by_slopes)
        least, most = (min(offsets), max(offsets)) if by_slopes else (0, 0)
        self.sequences: list[Sequence] = []
        for (top, bottom, first, stop), own in zip(packed or [(0, t, 0, s)], offsets, strict=True):
            # An offset beyond all keys changes nothing more, and has to fit into arrays' integers.
            reach = max(top - bottom, min(own, stop - first)) - top if causal else None
            shift = top - first + (most - own if by_slopes else 0)
            self.sequences.append(Sequence(top, bottom, first, stop, reach, shift))
        if self.sets is not None and causal:
            self.sets = self.sets.up_to(np.arange(t) + (self.sequences[0].reach or 0))
        self.scale: Any = self._checked_scale(scale)
        self.sink = None
        if sink is not None:
            if not self.is_entmax and self.mapping.record not in TOP_K:
                raise ValueError(
                    "sink: expected α-entmax, softmax, entmax15, sparsemax, topk_softmax or "
                    f"topk_sparsemax as mapping, got {self.mapping.record.name}"
                )
            sink, _ = as_floating(sink, "sink")
            sink = self.per_head(on_device_of(sink, self.query, "sink"), "sink")
            self.sink = sink.astype(self.dtype, copy=False)[..., None]
            self.mapping = replace(self.mapping, sink=self.sink)
        self._distances: Any = None
        if by_slopes:
            distances = array_module(self.query).arange(1 - t - most, s - least)
            self._distances = np.abs(distances).astype(self.dtype)
        self.bias: Any = None if bias is None else self._checked_bias(bias)

    def _check_sets(self, cu_seqlens: Any) -> None:
        assert self.sets is not None
        if on_device(self.query):
            raise TypeError("a set of keys as mask: expected NumPy arrays, got arrays on a GPU")
        if cu_seqlens is not None:
            raise ValueError("a set of keys as mask: expected one sequence, got cu_seqlens")
        if not self.is_entmax or not np.all(np.asarray(self.support_alpha) >= 1):
            raise ValueError(
                "a set of keys as mask: expected α-entmax with alpha >= 1, got "
                f"{self.mapping.record.name}; pass a mask of bools"
            )
        batch = self.sets.ends.shape[:-1]
        numbers = self.per_head(np.arange(math.prod(batch)).reshape(batch), "a set of keys as mask")
        self.set_numbers: Any = np.broadcast_to(numbers, self.batch).ravel()

    def _set_mapping(self, record: Mapping, alpha: Any, parameters: dict[str, Any]) -> None:
        self.is_entmax: bool = record in ENTMAX_FAMILY
        self.support_alpha: Any = record.support_alpha
        if record is entmax and not parameters:
            is_valid = isinstance(alpha, (int, float)) and alpha > 0
            self.support_alpha = np.asarray(alpha) if is_valid else self.per_head(alpha, "alpha")
            if not is_valid and not on_device(alpha):
                ALPHA.checked(alpha, self.query, self.outer)
            self.mapping = RowMapping(record, (self.support_alpha[..., None],))
            return
        if "alpha" in record.parameters:
            parameters = {**parameters, "alpha": alpha}
        _, given = record_and_parameters(record, parameters)
        values = [
            self._per_score(value, name)
            if name in BOUNDS
            else self.per_head(value, name)[..., None]
            for name, value in zip(record.parameters, given, strict=True)
        ]
        self.mapping = RowMapping(record, tuple(values))

    def _checked_scale(self, scale: Any) -> Any:
        if scale is None:
            return self.dtype.type(1 / math.sqrt(max(self.query.shape[-1], 1)))
        if not isinstance(scale, float) and has_gradient(scale):
            return self.per_query(scale, "scale")
        if not hasattr(scale, "__float__"):
            raise TypeError(f"scale must be a number or an array, got {scale!r}")
        number = float(scale)
        if not math.isfinite(number):
            raise ValueError(f"scale must be finite, got {number}")
        return self.dtype.type(number)

    def _checked_bias(self, bias: Any) -> ScoreBias:
        array, _ = as_floating(array_of(bias), "bias")
        array = on_device_of(array, self.query, "bias").astype(self.dtype, copy=False)
        if self.sets is not None and not isinstance(bias, DistanceBias):
            array = self.sets.in_order(array)
            _fitting(array, (*self.outer, array.shape[-1]), "bias", "the batch and the entries")
            return ScoreBias.of_entries(self._split_outer(array, 1)[..., None, :])
        if not isinstance(bias, DistanceBias):
            return ScoreBias.of_scores(self._per_score(array, "bias"))
        if bias.is_alibi:
            array = -self.per_head(array, "bias")[..., None] * self._distances
            return ScoreBias.of_distances(array[..., None, :], self.shape[-2])
        check_distances(array.shape, *self.shape[-2:])
        _fitting(array, (*self.outer, array.shape[-1]), "bias", "the batch and the distances")
        return ScoreBias.of_distances(self._split_outer(array, 1)[..., None, :], self.shape[-2])

    def bias_gradient(self, rows: Any, bias: Any) -> Any:
        """The gradient of the caller's bias, from that of the rows of a `ScoreBias`."""
        if self._distances is not None:
            rows = -(rows * self._distances).sum(axis=-1)
        shape = np.shape(array_of(bias))
        if self.sets is not None and not isinstance(bias, DistanceBias):
            rows = self.sets.as_stored(rows, shape)
        return rows.reshape(shape).astype(self.result_dtype, copy=False)[()]

    def _arrange(self, query: Any, key: Any, value: Any) -> None:
        arrays: list[Any] = []
        result_dtypes: list[Any] = []
        for name, array in (("query", query), ("key", key), ("value", value)):
            dtype = getattr(array, "dtype", None)
            if type(array) is not np.ndarray or dtype not in KERNEL_DTYPES:
                if is_dask(array):
                    raise TypeError(
                        f"{name}: expected an array in memory, got a Dask array, which only "
                        "attention itself takes, without its weights"
                    )
                array, dtype = as_floating(array, name)
            if arrays and type(array) is not type(arrays[0]):
                array = on_device_of(array, arrays[0], name)
            arrays.append(array)
            result_dtypes.append(dtype)
        query, key, value = arrays
        self.result_dtype: np.dtype[Any] = np.result_type(*result_dtypes)
        self.dtype: np.dtype[Any] = np.result_type(query.dtype, key.dtype, value.dtype)
        query = query.astype(self.dtype, copy=False)
        key, value = key.astype(self.dtype, copy=False), value.astype(self.dtype, copy=False)
        self._shapes = query.shape, key.shape, value.shape
        self.outer, self._groups = check_shapes(*self._shapes)
        self.batch: tuple[int, ...] = self.outer
        if self._groups:
            self.batch = (*self.outer[:-1], self._groups, self.outer[-1] // self._groups)
        self.query, self.key, self.value = query, key, value
        if self._groups:
            self.query, self.key, self.value = map(self._split_heads, (query, key, value))
        self.shape: tuple[int, ...] = (*self.batch, query.shape[-2], key.shape[-2])
        self.outer_shape: tuple[int, ...] = (*self.outer, *self.shape[-2:])

    def per_head(self, value: Any, name: str) -> Any:
        """A parameter that broadcasts against the batch shape, with its heads split."""
        return self._split_outer(_fitting(value, self.outer, name, "the batch shape"), 0)

    def per_query(self, value: Any, name: str) -> Any:
        """An array that broadcasts against the queries, batch + (T,), in the dtype to compute in.

        It has a last axis of length 1.
        """
        value, _ = as_floating(value, name)
        value = on_device_of(value, self.query, name).astype(self.dtype, copy=False)
        value = _fitting(value, self.outer_shape[:-1], name, "the queries, of shape")
        return self._split_outer(value, 1)[..., None]

    def _per_score(self, value: Any, name: str) -> Any:
        """An array that broadcasts against the scores, of shape (…, 1 or T, 1 or S)."""
        value = _fitting(value, self.outer_shape, name, "the scores, of shape")
        matrices = np.broadcast_to(value, (1,) * (2 - value.ndim) + value.shape)
        return self._split_outer(matrices, 2)

    def output_like(self, g: Any, name: str) -> Any:
        """An array of the output's shape, such as its gradient, in the dtype to compute in."""
        shape = (*self.outer, self.query.shape[-2], self.value.shape[-1])
        g, dtype = as_floating(g, name)
        if g.shape != shape:
            raise ValueError(f"{name} must have the shape of the output, {shape}, got {g.shape}")
        self.result_dtype = np.promote_types(self.result_dtype, dtype)
        g = on_device_of(g, self.query, name).astype(self.dtype, copy=False)
        return self._split_outer(g, 2)

    def gradient(self, gradient: Any, which: int) -> Any:
        """A gradient of query, key or value as the caller's: summed where it was broadcast."""
        like = (self.query, self.key, self.value)[which]
        if gradient.size != like.size:
            gradient = gradient.reshape((*self.batch, *like.shape[-2:]))
            gradient = reduce_to(gradient, like.shape)
        return gradient.reshape(self._shapes[which]).astype(self.result_dtype, copy=False)

    def parameter_gradient(self, each: Any, like: Any) -> Any:
        """A parameter's gradient, in its shape: the sum over heads, or queries, that share it."""
        each = each.reshape((*self.outer, *each.shape[len(self.batch) :]))
        return reduce_to(each, np.shape(like)).astype(self.result_dtype, copy=False)[()]

    def output(self, output: Any) -> Any:
        """The output in the caller's shape and dtype."""
        return output.reshape((*self.outer, *output.shape[-2:])).astype(
            self.result_dtype, copy=False
        )

    def check_weights(self, weights: Any) -> AttentionWeights:
        """The caller's weights, if they belong to these inputs, in the dtypes of the kernels."""
        check_weights(weights, self.outer_shape)
        xp = array_module(weights.data)
        data = xp.asarray(weights.data, self.dtype, order="C")
        indices = xp.asarray(weights.indices, np.int32, order="C")
        indptr = xp.asarray(weights.indptr, np.int64, order="C")
        sink = weights.sink
        if sink is not None:
            sink = self.per_query(sink, "weights.sink").reshape(self.shape[:-1])
        return AttentionWeights(self.shape, data, indices, indptr, sink, weights.dense_heads)

    def _split_heads(self, array: Any) -> Any:
        if array.ndim < 3:
            return array
        n, heads = self._groups, array.shape[-3]
        split = (heads, 1) if heads in (1, n) else (n, heads // n)
        return array.reshape((*array.shape[:-3], *split, *array.shape[-2:]))

    def _split_outer(self, array: Any, core: int) -> Any:
        at = array.ndim - core - 1
        if not self._groups or at < 0:
            return array
        split = self.batch[-2:] if array.shape[at] != 1 else (1, 1)
        return array.reshape((*array.shape[:at], *split, *array.shape[at + 1 :]))


@dataclass(frozen=True)
class RowMapping:
    """A mapping with its parameters, applied to scores of shape batch + (T, S).

    Attributes
    ----------
    record : Mapping
    values : tuple of arrays
        the parameters, of shapes that broadcast against batch + (T,), or to the scores for bounds
    sink : array that broadcasts against batch + (T,), or None
        one more score, which rows of weights and what the derivatives take have as the last
    """

    record: Mapping
    values: tuple[Any, ...]
    sink: Any = None

    @property
    def skips_zeros(self) -> bool:
        """Whether the Jacobian's product is 0 where a weight is, and depends on no entry there."""
        return self.record is entmax or self.record.support_alpha is not None

    def forward(self, scores: Any, mask: Any) -> Any:
        """Weights; none in a row without keys."""
        if self.sink is not None:
            return self._with_sink(scores, self.chosen(scores, mask))
        if scores.shape[-1] == 0:
            return np.zeros_like(scores)
        weights = self.record(scores, *self.values, mask=mask)
        # The mapping makes all of a row with a NaN NaN; here what is masked stays 0.
        return weights if mask is None else np.where(mask, weights, 0)

    def chosen(self, scores: Any, mask: Any) -> Any:
        """The mask of the scores that compete with a sink: for top-k, of those that it keeps."""
        if self.record.parameters != ("k",) or scores.shape[-1] == 0:
            return mask
        return replace(self, sink=None).forward(scores, mask) != 0

    def _with_sink(self, scores: Any, mask: Any) -> Any:
        last = np.zeros_like(scores, shape=(*scores.shape[:-1], 1))
        longer = np.concatenate([scores, last + self.sink[..., None]], axis=-1)
        if mask is not None:
            mask = np.concatenate([mask, last == 0], axis=-1)
        record, values = self.record, self.values
        if record.parameters == ("k",):
            record, values = (softmax if record.support_alpha == 1 else sparsemax), ()
        return replace(self, record=record, values=values, sink=None).forward(longer, mask)

    def vjp(self, weights: Any, g: Any, mask: Any) -> Any:
        """Jᵀ g, row by row."""
        if weights.shape[-1] == 0:
            return np.zeros_like(weights)
        return self.record.vjp(weights, g, *self.values, mask=mask)

    def vjp_alpha(self, weights: Any, g: Any) -> Any:
        """The gradient of the parameter α, of its shape."""
        (alpha,) = self.values
        return self.record.parameter_vjp(weights, g, alpha)


def _fitting(value: Any, shape: tuple[int, ...], name: str, what: str) -> Any:
    """An array that broadcasts to a shape without widening it."""
    value = np.asarray(value) if not hasattr(value, "__array_function__") else value
    if value.ndim and not broadcasts(value.shape, shape):
        raise ValueError(f"{name} of shape {value.shape} does not broadcast to {what} {shape}")
    return value


def check_shapes(query: Shape, key: Shape, value: Shape) -> tuple[Shape, int]:
    """`batch_shapes` of arrays, or tensors, of these shapes; a ValueError unless they fit."""
    for shape, name in ((query, "query"), (key, "key"), (value, "value")):
        if len(shape) < 2:
            raise ValueError(
                f"{name} must have at least two axes, positions and features, got shape "
                f"{tuple(shape)}"
            )
    for i, what, names, first, second in (
        (-1, "features", "query and key", query, key),
        (-2, "positions", "key and value", key, value),
    ):
        if first[i] != second[i]:
            raise ValueError(
                f"{names} must have the same number of {what}, got shapes {tuple(first)} and "
                f"{tuple(second)}"
            )
    batch = query[:-2]
    if batch == key[:-2] == value[:-2]:
        return tuple(batch), 0
    return batch_shapes(batch, key[:-2], value[:-2])


def batch_shapes(query: Shape, key: Shape, value: Shape) -> tuple[Shape, int]:
    """The batch shape of attention, and how many heads of keys or values its heads share, or 0.

    The arguments are the batch shapes of three arrays, or of tensors of a graph.
    """
    groups = 0
    if query and query[-1] > 0:
        fewer = [other[-1] for other in (key, value) if other and other[-1] not in (1, query[-1])]
        if fewer and fewer[0] == fewer[-1] > 0 and query[-1] % fewer[0] == 0:
            groups = fewer[0]
    batch: list[int] = []
    for i in range(-max(map(len, (query, key, value))), 0):
        sizes = [shape[i] for shape in (query, key, value) if len(shape) >= -i]
        if groups and i == -1:
            sizes = sizes[:1]
        widest = sizes[0]
        for size in sizes[1:]:
            if size == widest:  # first: of a size that a graph leaves open nothing else is known
                continue
            widest, size = (size, 1) if widest == 1 else (widest, size)
            if size != 1:
                raise ValueError(
                    f"the batch shapes of query {tuple(query)}, key {tuple(key)} and value "
                    f"{tuple(value)} must broadcast, or keys and values must have one number of "
                    "heads, the last of these axes, that divides the queries'"
                )
        batch.append(widest)
    return tuple(batch), groups


def _offsets(offset: Any, count: int | None, causal: Any, by_slopes: bool) -> list[int]:
    """The offset of each of so many packed sequences, or of one."""
    if np.ndim(causal) or causal not in (False, True):
        raise TypeError(f"causal must be True or False, got {causal!r}; a shift goes to offset")
    offset = to_host(offset) if on_device(offset) else offset
    if count is not None and np.ndim(offset):
        if np.shape(offset) != (count,):
            raise ValueError(
                f"offset: expected a number, or one for each of {count} sequences, got shape "
                f"{np.shape(offset)}"
            )
        each: list[Any] = np.asarray(offset).tolist()
    else:
        each = [offset] * (count or 1)
    try:
        offsets = list(map(operator.index, each))
    except TypeError:
        raise TypeError(f"offset must be a whole number, got {offset!r}") from None
    if any(offsets) and not causal and not by_slopes:
        raise ValueError(f"offset shifts the causal mask, got {offset} with causal=False")
    return offsets


def pair_of(cu_seqlens: Any) -> tuple[Any, Any]:
    """Starts of sequences among the queries, and among the keys."""
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


def _places(cu_seqlens: Any, t: int, s: int) -> list[tuple[int, int, int, int]]:
    """First and last query, first and last key of each sequence."""
    edges = []
    for cu, size, of in zip(pair_of(cu_seqlens), (t, s), ("queries", "keys"), strict=True):
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
    places = [(*q, *k) for q, k in zip(pairwise(edges[0]), pairwise(edges[1]), strict=True)]
    return places or [(0, 0, 0, 0)]  # of no sequence, and so of no position


def has_gradient(value: Any) -> bool:
    """Whether the scale, sink or bias is an array, which has a gradient, and not a number."""
    value = value.array if isinstance(value, DistanceBias) else value
    return not (value is None or np.isscalar(value))
