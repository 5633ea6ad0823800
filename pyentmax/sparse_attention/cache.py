"""Attention of a few queries to a cache of keys and values that grows, as in decoding.

A query needs to visit only pages of keys that may get weight. The keys lie in pages with bounds of
their scores (`pages`), and a key whose score lies below the threshold of any other scores gets no
weight (`row_thresholds`). So pages are visited from the highest bound on, and once the next bound
lies below the threshold of the scores seen so far, the rest is skipped. This is exact: the skipped
keys have weight 0. A sink is one more score, seen from the start, so that more pages are skipped.

Skipping changes no bit of the result. A score is a dot product of its own, independent of other
scores; larger scores alone decide which scores are above the threshold; and weights and output are
computed from these, in the order of the keys. `attention` multiplies whole matrices by BLAS, and
sums over other scores to find the threshold, so that its results may differ in rounding.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyentmax.calls.devices import is_dask, on_device
from pyentmax.calls.dtypes import KERNEL_DTYPES, as_floating
from pyentmax.calls.record import Mapping
from pyentmax.mappings.entmax import ENTMAX
from pyentmax.mappings.softmax import SOFTMAX
from pyentmax.sparse_attention import compressed_rows as rows
from pyentmax.sparse_attention.arguments import Inputs, RowMapping, Setting
from pyentmax.sparse_attention.functions import attention
from pyentmax.sparse_attention.pages import Pages
from pyentmax.sparse_attention.row_thresholds import EntmaxThreshold, threshold
from pyentmax.sparse_attention.weights import AttentionWeights

# The number of pages that a query visits in the first rounds; then it visits all that may matter.
# A second round pays if it may save several times its own pages.
ROUNDS, WORTH = (8, 64), 4


@dataclass(frozen=True)
class CacheReport:
    """The pages that `KeyValueCache.attend` visited, and the weights.

    Attributes
    ----------
    pages : int
        number of pages of each head of the cache
    visited : array of int, of the output's shape without its last axis
        number of pages that each query visited
    reason : str
        why no page can be skipped; empty if pages can be
    weights : AttentionWeights
        of all queries and keys

    Examples
    --------
    >>> from pyentmax.sparse_attention import KeyValueCache
    >>> cache, key = KeyValueCache(page_size=2), np.arange(8.0).reshape(8, 1)
    >>> cache.append(key, key)
    >>> output, report = cache.attend([[1.0]], 2)
    >>> print(output, report.skipped)
    [[7.]] 0.0
    >>> print(cache.attend([[1.0]], 1)[1])
    visited all 4 pages: softmax gives every key a weight
    """

    pages: int
    visited: Any
    reason: str
    weights: AttentionWeights

    @property
    def skipped(self) -> float:
        """The share of pages that were skipped, over all queries."""
        total = self.pages * np.size(self.visited)
        return 1 - float(np.sum(self.visited)) / total if total else 0.0

    def __str__(self) -> str:
        if self.reason:
            return f"visited all {self.pages} pages: {self.reason}"
        visited = float(np.mean(self.visited)) if np.size(self.visited) else 0.0
        return f"visited {visited:g} of {self.pages} pages per query, skipped {self.skipped:.1%}"


class KeyValueCache:
    """Keys and values of the positions so far, to which new queries attend.

    The first call of `append` sets the batch shape, the numbers of features and the dtype.

    Parameters
    ----------
    page_size : int, default 64
        number of keys in a page. Smaller pages are skipped more often, but their bounds take a
        larger share of the time

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cache = KeyValueCache(page_size=16)
    >>> for topic in 6 * rng.standard_normal((20, 8)):  # 20 pages of similar keys
    ...     key = topic + rng.standard_normal((16, 8))
    ...     cache.append(key, key)
    >>> len(cache), cache.key.shape
    (320, (320, 8))
    >>> output, report = cache.attend(cache.key[-1:], alpha=1.5)
    >>> print(report, report.weights.support_sizes)
    visited 8 of 20 pages per query, skipped 60.0% [2]
    >>> from pyentmax import attention
    >>> np.allclose(output, attention(cache.key[-1:], cache.key, cache.value))
    True
    """

    def __init__(self, page_size: int = 64) -> None:
        try:
            self.page_size: int = operator.index(page_size)
        except TypeError:
            raise TypeError(f"page_size must be a whole number, got {page_size!r}") from None
        if self.page_size < 1:
            raise ValueError(f"page_size must be at least 1, got {self.page_size}")
        self._pages: Pages | None = None
        self._batch: tuple[int, ...] = ()
        self._answer: Any = None

    def __len__(self) -> int:
        """The number of positions."""
        return 0 if self._pages is None else self._pages.length

    def __repr__(self) -> str:
        if self._pages is None:
            return f"KeyValueCache(page_size={self.page_size})"
        return (
            f"<KeyValueCache of batch shape {self._batch}: {len(self)} positions in "
            f"{self._pages.count} pages of {self.page_size}>"
        )

    @property
    def key(self) -> Any:
        """All keys, of shape (…, S, d), a copy."""
        return self._shaped(self._held().keys)

    @property
    def value(self) -> Any:
        """All values, of shape (…, S, dᵥ), a copy."""
        return self._shaped(self._held().values.copy())

    @property
    def nbytes(self) -> int:
        """Bytes of memory, including room for further positions."""
        return 0 if self._pages is None else self._pages.nbytes

    def append(self, key: Any, value: Any) -> None:
        """Add positions at the end; the arrays are copied.

        Parameters
        ----------
        key : array of shape (…, n, d)
        value : array of shape (…, n, dᵥ)
            with the batch shape of the keys; several heads of queries may share one of the keys

        Raises
        ------
        ValueError
            if shapes do not fit each other or the cache
        TypeError
            if an array is not NumPy's, not of real numbers, or more precise than the cache
        """
        (key, k_answer), (value, v_answer) = _on_host(key, "key"), _on_host(value, "value")
        if key.ndim < 2 or key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                "key and value must have shapes (…, n, d) and (…, n, dᵥ) that differ in the last "
                f"axis only, got {key.shape} and {value.shape}"
            )
        if self._pages is None:
            if not key.shape[-1] * math.prod(key.shape[:-2]):
                raise ValueError(f"a cache needs a head and a feature at least, got {key.shape}")
            dtype = np.promote_types(key.dtype, value.dtype)
            if dtype not in KERNEL_DTYPES:
                raise TypeError(f"a cache holds float16, float32 or float64, got {dtype}")
            self._batch, self._answer = key.shape[:-2], np.promote_types(k_answer, v_answer)
            heads, widths = math.prod(self._batch), (key.shape[-1], value.shape[-1])
            self._pages = Pages(heads, *widths, self.page_size, dtype)
        held = self._pages
        widths = held.features, held.values.shape[-1]
        for name, array, width in zip(("key", "value"), (key, value), widths, strict=True):
            if (*array.shape[:-2], array.shape[-1]) != (*self._batch, width):
                raise ValueError(
                    f"{name} must have the batch shape and the features of the cache, "
                    f"{self._batch} and {width}, got shape {array.shape}"
                )
            self._check_precision(array, name)
        self._answer = np.promote_types(self._answer, np.promote_types(k_answer, v_answer))
        heads = math.prod(self._batch)
        held.append(*(x.reshape(heads, *x.shape[-2:]) for x in (key, value)))

    def attend(
        self,
        query: Any,
        alpha: Any = 1.5,
        *,
        mapping: str | Mapping | None = None,
        causal: bool = False,
        scale: Any = None,
        sink: Any = None,
        **parameters: Any,
    ) -> tuple[Any, CacheReport]:
        """Output of `attention` to all keys and values, and a report of the pages visited for it.

        Parameters
        ----------
        query : array of shape (…, T, d)
            a few queries: one for each head, or several positions at once
        alpha, mapping, scale, sink, **parameters : as in `attention`
        causal : bool, default False
            the queries belong to the last T positions, and none sees a later one

        Returns
        -------
        output : array of shape (…, T, dᵥ)
            as of `attention`, up to rounding. Skipping pages changes no bit of it
        report : CacheReport
            with the weights and the share of skipped pages. α-entmax with α > 1, sparsemax and
            the top-k mappings skip pages, others do not

        Raises
        ------
        ValueError
            if shapes do not fit, a parameter is out of its range, or the cache is still empty
        TypeError
            if the query is not NumPy's or more precise than the cache; else as in `attention`
        """
        held = self._held()
        given, answer = _on_host(query, "query")
        self._check_precision(given, "query")
        keys = np.broadcast_to(held.dtype.type(0), (*self._batch, len(self), held.features))
        inputs = Inputs(given, keys, self._shaped(held.values))
        inputs.answer = np.promote_types(answer, self._answer)
        offset: dict[str, Any] = {
            "causal": causal,
            "offset": len(self) - given.shape[-2] if causal else 0,
        }
        setting = Setting(inputs, alpha, mapping, parameters, scale=scale, sink=sink, **offset)
        if "k" in setting.mapping.record.parameters:
            # The mapping checks k, with one score for each.
            [k] = setting.mapping.values
            setting.mapping.record.forward(np.zeros((*np.shape(k), 1)), k)
        reason = "" if threshold(setting.mapping) is not None else _reason(setting.mapping)
        results = None
        if not reason and inputs.value.size * math.prod(inputs.shape):
            search = _Search(held, inputs, setting)
            results = search.run()
        if results is not None:
            output, weights = results
            weights = replace(weights, shape=inputs.outer_shape)
            if weights.sink is not None:
                weights = replace(weights, sink=weights.sink.reshape(weights.shape[:-1]))
            visited = search.visited.reshape(weights.shape[:-1])
            return inputs.output(output), CacheReport(held.count, visited, "", weights)
        output, weights = attention(
            given, self.key, self.value, alpha, mapping=mapping, scale=scale, sink=sink,
            return_weights=True, **offset, **parameters,
        )  # fmt: skip
        visited = np.full(weights.shape[:-1], held.count)
        report = CacheReport(held.count, visited, reason, weights)
        return output.astype(inputs.answer, copy=False), report

    def _held(self) -> Pages:
        if self._pages is None:
            raise ValueError("the cache is empty: append keys and values first")
        return self._pages

    def _shaped(self, array: Any) -> Any:
        return array.reshape(*self._batch, *array.shape[1:])

    def _check_precision(self, array: Any, name: str) -> None:
        dtype = self._held().dtype
        if not np.can_cast(array.dtype, dtype):
            raise TypeError(
                f"{name} of {array.dtype} is more precise than the cache, of {dtype}: convert it "
                f"with {name}.astype({dtype}), or fill a cache with keys of {array.dtype}"
            )


class _Search:
    """One call, query by query, with the queries of each head of the cache together.

    Attributes
    ----------
    visited : array of int, of shape batch + (T,)
        number of pages that each query visited
    """

    def __init__(self, pages: Pages, inputs: Inputs, setting: Setting) -> None:
        self._pages, self._inputs = pages, inputs
        batch, (t, s) = inputs.batch, inputs.shape[-2:]
        own = math.prod(inputs.key.shape[:-2])
        number = np.arange(own).reshape(inputs.key.shape[:-2])
        number = np.broadcast_to(number, batch).ravel()
        # The queries of each head of the cache, of shape (own, r).
        heads = np.argsort(number, kind="stable").reshape(own, -1)
        self._order = (heads[..., None] * t + np.arange(t)).reshape(own, -1)
        query = inputs.query * setting.scale
        query = np.broadcast_to(query, (*batch, *query.shape[-2:]))
        self._query = query.reshape(-1, query.shape[-1])[self._order]

        def by_row(value: Any) -> Any:
            return np.broadcast_to(value, (*batch, t)).ravel()[self._order].ravel()

        self._mapping = replace(
            setting.mapping,
            values=tuple(map(by_row, setting.mapping.values)),
            sink=None if setting.sink is None else by_row(setting.sink),
        )
        reach = s if setting.reach is None else setting.reach + 1
        visible = np.arange(t) + reach if setting.reach is not None else np.full(t, s)
        self._visible = np.clip(visible, 0, s)[self._order.ravel() % t]
        self.visited = np.zeros((*batch, t), np.int64)

    def run(self) -> tuple[Any, AttentionWeights] | None:
        """Output, of shape batch + (T, dᵥ), and weights; None if a visible score is not finite."""
        inputs, own = self._inputs, len(self._query)
        kept = self._candidates()
        if kept is None:
            return None
        weights, sink = self._mapping.forward(kept.scores, kept.columns >= 0), None
        if self._mapping.sink is not None:
            weights, sink = weights[:, :-1], weights[:, -1]
        on_support = weights != 0
        data, indices = weights[on_support], kept.columns[on_support]
        counts = np.count_nonzero(on_support, axis=1)
        indptr = _ends(counts)
        edges = (x.reshape(own, -1) for x in (indptr[:-1], indptr[1:]))
        output = np.empty((*self._order.shape, inputs.value.shape[-1]), inputs.dtype)
        rows.rows_product(data, indices, *edges, self._pages.values, out=output)
        output = output.reshape(-1, output.shape[-1])
        back = np.argsort(self._order.ravel())
        if (back[1:] < back[:-1]).any():
            to = _ends(counts[back])
            entries = np.repeat(indptr[back] - to[:-1], counts[back]) + np.arange(to[-1])
            data, indices, indptr, output = data[entries], indices[entries], to, output[back]
            sink = None if sink is None else sink[back]
        return (
            output.reshape(*self.visited.shape, -1),
            AttentionWeights(inputs.shape, data, indices, indptr, sink),
        )

    def _candidates(self) -> _Scores | None:
        """For each query the scores that get weight; None if a visible score is not finite."""
        pages, sink = self._pages, self._mapping.sink
        if sink is not None and not (sink < np.inf).all():
            return None
        rule = threshold(self._mapping)
        assert rule is not None
        bounds = np.full((self._order.size, pages.count), np.inf)
        bounds[:, : pages.full] = pages.bounds(self._query).reshape(len(bounds), pages.full)
        seen = np.zeros(bounds.shape, bool)
        kept = _Scores.none(len(bounds), pages.dtype)
        least = most = np.full(len(bounds), -np.inf)
        if isinstance(rule, EntmaxThreshold) and rule.sink is not None:
            least, most = rule.find(kept.scores)
        for n_pages in (*ROUNDS, pages.count):
            todo = ~seen & ~(bounds < least[:, None])
            remaining = int(np.count_nonzero(todo, axis=1).max())
            if not remaining:
                break
            if remaining > (WORTH * n_pages if n_pages > ROUNDS[0] else n_pages):
                todo &= _largest(todo, bounds, n_pages)
            seen |= todo
            kept = kept.joined(self._look(todo, least))
            if not (kept.scores.max(axis=-1) < np.inf).all():
                return None
            least, most = rule.find(kept.scores)
            kept = kept.only(~(kept.scores < least[:, None]))
        self.visited.reshape(-1)[self._order.ravel()] = np.count_nonzero(seen, axis=1)
        return kept.only(rule.above(kept.scores, least, most))

    def _look(self, todo: Any, least: Any) -> _Scores:
        """The scores of pages (queries, pages), except those below the threshold `least`."""
        # In the keys' dtype, rounded down.
        least = np.nextafter(least.astype(self._pages.dtype), -np.inf)
        shape = self._order.shape
        operands = todo.reshape(*shape, -1), self._visible.reshape(shape), least.reshape(shape)
        scores, columns, counts = self._pages.look(self._query, *operands)
        return _Scores.of_rows(counts, columns, scores)


@dataclass(frozen=True)
class _Scores:
    """Some scores of each row with their columns, which rise; short rows are padded.

    Attributes
    ----------
    scores : array of shape (rows, n), padded with −∞
    columns : array of int32, padded with −1
    """

    scores: Any
    columns: Any

    @classmethod
    def none(cls, count: int, dtype: Any) -> _Scores:
        """Empty rows."""
        return cls(np.empty((count, 0), dtype), np.empty((count, 0), np.int32))

    @classmethod
    def of_rows(cls, counts: Any, columns: Any, scores: Any) -> _Scores:
        """From rows that follow each other, with the number of scores of each."""
        most = max(1, int(counts.max()))
        if (counts == most).all():
            return cls(scores.reshape(-1, most), columns.reshape(-1, most))
        mask = np.arange(most) < counts[:, None]
        padded = np.full(mask.shape, -np.inf, scores.dtype)
        places = np.full(mask.shape, -1, np.int32)
        padded[mask], places[mask] = scores, columns
        return cls(padded, places)

    def only(self, chosen: Any) -> _Scores:
        """The chosen scores."""
        chosen = chosen & (self.columns >= 0)
        counts = np.count_nonzero(chosen, axis=1)
        return self.of_rows(counts, self.columns[chosen], self.scores[chosen])

    def joined(self, other: _Scores) -> _Scores:
        """The scores of both."""
        columns = np.concatenate([self.columns, other.columns], axis=1)
        scores = np.concatenate([self.scores, other.scores], axis=1)
        if not self.columns.size:
            return other
        order = np.argsort(columns, axis=1)
        columns = np.take_along_axis(columns, order, axis=1)
        return _Scores(np.take_along_axis(scores, order, axis=1), columns)


def _largest(todo: Any, bounds: Any, most: int) -> Any:
    """Where in each row the `most` largest bounds of `todo` are."""
    ranked = np.where(todo, bounds, -np.inf)
    kept = np.zeros_like(todo)
    np.put_along_axis(kept, np.argpartition(ranked, -most, axis=1)[:, -most:], True, axis=1)
    return kept


def _ends(counts: Any) -> Any:
    """Where rows with these numbers of entries end, after a first 0."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def _on_host(array: Any, name: str) -> tuple[Any, Any]:
    if is_dask(array) or on_device(array):
        raise TypeError(f"a cache takes NumPy arrays, and {name} is a {type(array).__name__}")
    return as_floating(array, name)


def _reason(mapping: RowMapping) -> str:
    name = mapping.record.name
    if name in (SOFTMAX.name, ENTMAX.name):
        return "softmax gives every key a weight"
    return f"no threshold is known below which {name} gives no weight"
