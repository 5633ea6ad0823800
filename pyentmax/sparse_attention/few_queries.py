"""Attention of a few queries to many keys, as in decoding.

A step of decoding asks one query a head, and each key is needed for one product, or for those of
the queries that share it. So keys are not rearranged as for tiles (`tiles`): a kernel goes over
them as they lie, keeps the scores of a row in the cache until its threshold is known, and of the
values only those of the support are read. With `ScreenedRows` as keys, it does not read most of the
keys either. Without kernels such a call goes by tiles.

The kernels of `choice.kernels`, of (…, m, d) queries and (…, n, d) keys, write the non-zeros of
α-entmax of query · keyᵀ + bias to ``out``: values and columns, of shape (…, m · n + OVERHANG) for
each matrix, the ends of its rows among them, and the weights of sinks. A row with a NaN gets NaN in
every column that it sees.

    few_queries(query, key, mask, α, sink, bias)
        where the mask (…, m, n) is False, keys may hold anything; each row (…, m) has an α, and the
        score of a sink, −∞ for none
    candidates(query, key, columns, places, stops, mask, α, sink, bias)
        the same for keys of which each row has some candidates, and all others have no weight:
        those of a row are `columns` up to its place in `stops`, (…, m), and their keys are at
        `places` of keys (…, r, d)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.calls.dtypes import KERNEL_DTYPES
from pyentmax.sparse_attention.arguments import Arguments, Sequence
from pyentmax.sparse_attention.compressed_rows import OVERHANG
from pyentmax.sparse_attention.screened_rows import ScreenedRows, rows_at
from pyentmax.sparse_attention.weights import AttentionWeights, indptr_of

FEW = 8  # queries of a head, which the kernel reads keys for at once
WORK = 1 << 21  # numbers of keys from which a further thread pays
SCREENED_WORK = 10_000_000  # the same of screened keys, most of which are read in 8 bits

CORES = 2, 2, 2, 2, 1, 1, 2, 2, 2, 2  # axes of a matrix: of operands, and of a screen
TRUE = np.ones(1, bool)
ZERO = {dtype: np.zeros(1, dtype) for dtype in KERNEL_DTYPES}
NO_SINK = {dtype: np.full(1, -np.inf, dtype) for dtype in KERNEL_DTYPES}


@np.errstate(under="ignore")
def short_call(query: Any, key: Any, value: Any, alpha: Any) -> Any:
    """The output of a call without options, straight from the kernels; None for any other call.

    Checks and arrangements of the long way take longer than the kernels with 1,000 keys. These are
    calls that need none: plain arrays of one dtype and batch shape, few queries, a number as α. The
    kernels get the same operands there.
    """
    screened = key if type(key) is ScreenedRows else None
    key = key if screened is None else screened.rows
    array = np.ndarray
    if not (type(query) is array and type(key) is array and type(value) is array) or not (
        type(alpha) in (float, int) and 1 < alpha <= 2 and choice.kernels()
    ):
        return None
    dtype, batch = query.dtype, query.shape[:-2]
    if not (key.dtype == dtype == value.dtype and dtype in KERNEL_DTYPES):
        return None
    if not key.ndim == query.ndim == value.ndim > 1 or not query.size * key.size * value.size:
        return None
    (m, d), n = query.shape[-2:], key.shape[-2]
    if (
        m > FEW
        or not (key.shape == (*batch, n, d) and value.shape[:-1] == key.shape[:-1])
        or not key.strides[-1] == dtype.itemsize == value.strides[-1]
        or (
            key.size >= 2 * (WORK if screened is None else SCREENED_WORK)
            and threads.get_workers() > 1
        )
    ):
        return None
    query = np.ascontiguousarray(query * dtype.type(1 / math.sqrt(d)))
    mask = array((m, n), bool, TRUE, strides=(0, 0))
    bias = array((m, n), dtype, ZERO[dtype], strides=(0, 0))
    sink = array((m,), dtype, NO_SINK[dtype], strides=(0,))
    screen = None if screened is None else (screened.copies, screened.bounds, screened.scales)
    rows = mask, np.full(m, alpha, np.float64), sink, bias
    return _run_kernels(batch, query, key, value, *rows, screen=screen)[0]


def _run_kernels(
    batch: tuple[int, ...], query: Any, key: Any, value: Any, *rows: Any, screen: Any
) -> tuple[Any, ...]:
    """The output, and the first four of `nonzeros`."""
    values, columns, edges, sinks, _ = nonzeros(batch, query, key, *rows, screen=screen)
    places = columns
    if value.dtype != query.dtype:
        value, places = rows_at(value, columns, edges[..., 1:])
    output = np.empty((*batch, query.shape[-2], value.shape[-1]), query.dtype)
    product = choice.kernels()["rows_product"]
    product(values, places, edges[..., :-1], edges[..., 1:], value, out=output)
    return output, values, columns, edges, sinks


def nonzeros(
    batch: tuple[int, ...], query: Any, key: Any, mask: Any, alpha: Any, sink: Any, bias: Any,
    *, screen: tuple[Any, ...] | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Values and columns of weights, where rows begin and end, the weights of sinks, and where the
    candidates of a screen end.

    The operands are those of the kernel `few_queries`, and `batch` what their batch shapes
    broadcast to; a screen is copies, bounds and scales of keys.
    """
    m, n, dtype, kernels = query.shape[-2], key.shape[-2], query.dtype, choice.kernels()
    values = np.empty((*batch, m * n + OVERHANG), dtype)
    columns, stops = np.empty(values.shape, np.int32), None
    edges, sinks = np.zeros((*batch, m + 1), np.int64), np.empty((*batch, m), dtype)
    rows, out = (mask, alpha, sink, bias), (values, columns, edges[..., 1:], sinks)
    if screen is None:
        kernels["few_queries"](query, key, *rows, out=out)
    else:
        copies, bounds, scales = screen
        kept, stops = np.empty(columns.shape, np.int32), np.empty(sinks.shape, np.int64)
        kernels["screen_rows"](query * scales, copies, bounds, *rows, out=(kept, stops))
        key, places = rows_at(key, kept, stops)  # of a half type
        kernels["candidates"](query, key, kept, places, stops, *rows, out=out)
    return values, columns, edges, sinks, stops


def serves(problem: Arguments, keep: bool) -> bool:
    """Whether the queries are few, and the kernels take the arrays and the mapping.

    Of packed sequences no weights are kept, which would lie sequence by sequence.
    """
    arrays = problem.query, problem.key, problem.value
    served = (
        problem.shape[-2] <= FEW * len(problem.sequences)
        and max(own.bottom - own.top for own in problem.sequences) <= FEW
        and not (keep and len(problem.sequences) > 1)
        and problem.is_entmax
        and all(type(x) is np.ndarray and x.size for x in arrays)
        and problem.dtype in KERNEL_DTYPES
        and bool(choice.kernels())
    )
    if not served:
        return False
    alpha: Any = np.asarray(problem.support_alpha)
    least, most = (alpha.item(),) * 2 if alpha.size == 1 else (alpha.min(), alpha.max())
    return bool(least >= 1 and most > 1)


def forward(problem: Arguments, keep: bool) -> tuple[Any, AttentionWeights | None]:
    """The output, and the weights if they are to be kept."""
    if len(problem.sequences) == 1:
        return _forward(problem, FewQueries(problem, problem.sequences[0]), keep)
    output = np.zeros((*problem.shape[:-1], problem.value.shape[-1]), problem.dtype)
    for own in problem.sequences:
        if own.top < own.bottom and own.first < own.stop:
            output[..., own.top : own.bottom, :] = _forward(
                problem, FewQueries(problem, own), False
            )[0]
    return output, None


def _forward(
    problem: Arguments, call: FewQueries, keep: bool
) -> tuple[Any, AttentionWeights | None]:
    batch, (m, n) = call.shape[:-2], call.shape[-2:]
    operands = call.query, call.key, call.value, call.mask, call.alpha, call.sink, call.bias
    length = batch[call.axis] if batch else 1
    work = WORK if call.screen is None else SCREENED_WORK
    workers = min(length, math.prod(batch) * n * call.key.shape[-1] // work)
    workers = min(threads.get_workers(), workers) if workers > 1 else 1
    if workers < 2:
        output, values, columns, edges, sinks = _run_kernels(batch, *operands, screen=call.screen)
    else:
        pieces = min(length, 2 * workers)
        cuts = [length * i // pieces for i in range(pieces + 1)]
        parts: list[Any] = [None] * pieces
        whole = [
            np.broadcast_to(x, (*batch, *x.shape[x.ndim - core :]))
            for x, core in zip((*operands, *(call.screen or ())), CORES, strict=False)
        ]
        before = (slice(None),) * (len(batch) + call.axis)

        def run(i: int) -> None:
            some = [x[(*before, slice(cuts[i], cuts[i + 1]))] for x in whole]
            parts[i] = _run_kernels(some[0].shape[:-2], *some[:7], screen=some[7:] or None)

        threads.run_pieces(range(pieces), lambda: run, workers)
        output, values, columns, edges, sinks = (
            np.concatenate(each, axis=call.axis - core)
            for each, core in zip(zip(*parts, strict=True), (2, 1, 1, 1, 1), strict=True)
        )
    output = output.reshape((*problem.batch, -1, output.shape[-1]))
    if not keep:
        return output, None
    matrices = values.reshape(-1, m * n + OVERHANG), columns.reshape(-1, m * n + OVERHANG)
    counts = edges[..., -1].ravel()
    data, indices = (
        np.concatenate([x[:k] for x, k in zip(y, counts, strict=True)]) for y in matrices
    )
    sink = None if problem.sink is None else sinks.reshape(problem.outer_shape[:-1])
    indptr = indptr_of(np.diff(edges).ravel())
    return output, AttentionWeights(problem.outer_shape, data, indices, indptr, sink)


class FewQueries:
    """The operands of the kernels: of queries in one axis (…, m, d) where they share keys.

    Attributes
    ----------
    query, key, value, mask, bias : arrays (…, m or n, features), whose batch shapes broadcast
    alpha, sink : arrays (…, m)
    screen : copies (…, n, bytes), bounds (…, 3, n) and scales (…, 1, d) of keys, or None
    shape : the shape of the scores, batch + (m, n)
    axis : the axis of the batch to share among threads, counted from its end
    """

    def __init__(self, problem: Arguments, sequence: Sequence) -> None:
        self._problem, self._batch, self._sequence = problem, problem.batch, sequence
        top, bottom, first, stop, reach, _ = sequence
        self._t: int = bottom - top
        key, value = map(self._with_batch_axes, (problem.key, problem.value))
        self._shares = bool(self._batch) and key.shape[-3] == value.shape[-3] == 1
        visible = stop - first
        if reach is not None:
            visible = min(max(bottom + reach, 0), visible)
        keys = slice(first, first + visible)
        self.key, self.value = (self.of_keys(x)[..., keys, :] for x in (key, value))
        self.screen: tuple[Any, ...] | None = None
        if problem.screen is not None:
            copies, bounds, scales = map(self.of_keys, problem.screen)
            self.screen = copies[..., :visible, :], bounds[..., :visible], scales
        self.query: Any = np.ascontiguousarray(
            self._folded((problem.query * problem.scale)[..., top:bottom, :])
        )
        batch = self._batch[: len(self._batch) - self._shares]
        m = self._t * (self._batch[-1] if self._shares else 1)
        self.shape: tuple[int, ...] = (*batch, m, visible)
        self.axis: int = batch.index(max(batch)) - len(batch) if batch else -1
        alpha = np.asarray(problem.support_alpha, np.float64)[..., None, None]
        sink = problem.sink
        sink = np.full((1, 1), -np.inf, problem.dtype) if sink is None else sink[..., None]
        self.alpha, self.sink = (self._broadcast_queries(x, 1)[..., 0] for x in (alpha, sink))
        self.mask = self._broadcast_queries(self._mask(keys), visible)
        self.bias = self._broadcast_queries(self._bias(visible), visible)

    def _with_batch_axes(self, array: Any) -> Any:
        """Add an axis of length 1 for each axis of the batch shape that the array lacks."""
        missing = len(self._batch) + 2 - array.ndim
        return array.reshape((1,) * missing + array.shape)

    def of_keys(self, array: Any) -> Any:
        """An array (…, n, features) without the axis of the heads that share keys."""
        array = self._with_batch_axes(array)[..., 0, :, :] if self._shares else array
        in_order = array.shape[-1] < 2 or array.strides[-1] == array.itemsize
        return array if in_order else np.ascontiguousarray(array)

    def _folded(self, array: Any) -> Any:
        """An array (…, T, features) with the queries that share keys in one axis of length m, or
        of length 1 where all are alike.
        """
        if not self._shares:
            return array
        *outer, heads, t, features = self._with_batch_axes(array).shape
        if heads == t == 1:
            return self._with_batch_axes(array)[..., 0, :, :]
        all_heads = (*outer, self._batch[-1], self._t, features)
        return np.broadcast_to(array, all_heads).reshape((*outer, -1, features))

    def _broadcast_queries(self, array: Any, features: int) -> Any:
        """An array of shape (…, 1 or T, 1 or features) with all queries and features."""
        if array.size == 1:  # as most often, at a tenth of what broadcasting takes
            shape = self.shape[-2], features
            return np.ndarray(shape, array.dtype, np.ascontiguousarray(array), strides=(0, 0))
        folded = self._folded(array)
        return np.broadcast_to(folded, (*folded.shape[:-2], self.shape[-2], features))

    def _mask(self, keys: slice) -> Any:
        mask, (top, bottom, _, _, reach, _) = self._problem.mask, self._sequence
        mask = np.ones((1, 1), bool) if mask is None else mask
        mask = mask[..., keys] if mask.shape[-1] > 1 else mask
        mask = mask[..., top:bottom, :] if mask.shape[-2] > 1 else mask
        if reach is None or self._t == 1:
            return mask
        return mask & (np.arange(keys.stop - keys.start) <= np.arange(top, bottom)[:, None] + reach)

    def _bias(self, visible: int) -> Any:
        bias = self._problem.bias
        if bias is None:
            return np.zeros((1, 1), self._problem.dtype)
        return bias.view(bias.rows, self._sequence.top, self._sequence, (self._t, visible))
