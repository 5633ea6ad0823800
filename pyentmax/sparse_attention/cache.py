"""Attention of a few queries to a cache of keys and values that grows, as in decoding.

A query that looks for the few keys that get weight need not look at all. The keys lie in pages with
bounds of what they can score (`pages`), and a key whose score lies below the threshold of any other
scores gets nothing (`row_thresholds`). So pages are visited from the highest bound on, and once the
next bound lies below the threshold of the scores seen so far, the rest is skipped: exactly, for
what was not seen has weight 0.

Skipping changes no bit of the result. A score is a dot product by itself, whichever others there
are; which scores are above the threshold is decided by larger scores alone; and weights and output
are computed from these, in the order of the keys. `attention` takes whole matrices to BLAS, and
sums over other scores to find the threshold, so that it may differ from this in rounding.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyentmax.calls.dask_arrays import is_dask
from pyentmax.calls.devices import on_device
from pyentmax.calls.dtypes import as_floating
from pyentmax.calls.record import Mapping
from pyentmax.calls.rows import KERNEL_DTYPES
from pyentmax.mappings.entmax import ENTMAX
from pyentmax.mappings.softmax import SOFTMAX
from pyentmax.sparse_attention import compressed_rows as rows
from pyentmax.sparse_attention.arguments import Inputs, RowMapping, Setting
from pyentmax.sparse_attention.functions import attention
from pyentmax.sparse_attention.pages import Pages
from pyentmax.sparse_attention.row_thresholds import Found, Threshold, threshold
from pyentmax.sparse_attention.weights import AttentionWeights

# Pages that a query looks at in the first rounds; then at all that may still matter. A round more
# is worth its while if it may save many times its own pages.
ROUNDS, WORTH = (8, 64), 4


@dataclass(frozen=True)
class CacheReport:
    """What `KeyValueCache.attend` looked at, and the weights that it found.

    Attributes
    ----------
    pages : int
        that each head of the cache has
    visited : array of int, of the output's shape without its last axis
        how many of them each query looked at
    reason : str
        why no page can be skipped; empty where pages can be
    weights : AttentionWeights
        of all queries and keys

    Examples
    --------
    >>> from pyentmax import KeyValueCache
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
        keys in a page. Pages with fewer keys are skipped more often, and their bounds take a larger
        share of the time

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cache = KeyValueCache(page_size=16)
    >>> for topic in 6 * rng.standard_normal((20, 8)):  # 20 pages of keys that are alike
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
            self.page_size = operator.index(page_size)
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
        """Bytes of memory, room for positions to come among them."""
        return 0 if self._pages is None else self._pages.nbytes

    def append(self, key: Any, value: Any) -> None:
        """Add positions at the end; what is given is copied.

        Parameters
        ----------
        key : array of shape (…, n, d)
        value : array of shape (…, n, dᵥ)
            with the batch shape of the keys; fewer heads than the queries will have are grouped

        Raises
        ------
        ValueError
            if shapes do not fit each other or the cache
        TypeError
            if an array is not NumPy's, not of real numbers, or of more digits than the cache has
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
            self._check_digits(array, name)
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
        scale: float | None = None,
        **parameters: Any,
    ) -> tuple[Any, CacheReport]:
        """Output of `attention` to all keys and values, and what was looked at for it.

        Parameters
        ----------
        query : array of shape (…, T, d)
            of few queries: one for each head, or some positions at once
        alpha, mapping, scale, **parameters : as in `attention`
        causal : bool, default False
            the queries belong to the last T positions, and none sees a later one

        Returns
        -------
        output : array of shape (…, T, dᵥ)
            as of `attention`, up to rounding. Skipping pages changes no bit of it
        report : CacheReport
            with the weights, and the share of pages that were skipped. α-entmax with α > 1,
            sparsemax and mappings of the k largest scores skip, others do not

        Raises
        ------
        ValueError
            if shapes do not fit, a parameter is out of its range, or the cache is still empty
        TypeError
            as in `attention`, or if the query is not NumPy's or has more digits than the cache
        """
        held = self._held()
        given, answer = _on_host(query, "query")
        self._check_digits(given, "query")
        keys = np.broadcast_to(held.dtype.type(0), (*self._batch, len(self), held.features))
        inputs = Inputs(given, keys, self._shaped(held.values))
        inputs.answer = np.promote_types(answer, self._answer)
        offset: dict[str, Any] = {
            "causal": causal,
            "offset": len(self) - given.shape[-2] if causal else 0,
        }
        setting = Setting(inputs, alpha, mapping, parameters, scale=scale, **offset)
        rule = threshold(setting.mapping)
        if rule is None or not math.prod(inputs.shape) * inputs.value.size:
            output, weights = attention(
                given, self.key, self.value, alpha, mapping=mapping, scale=scale,
                return_weights=True, **offset, **parameters,
            )  # fmt: skip
            visited = np.full(weights.shape[:-1], held.count)
            reason = _reason(setting.mapping, rule)
            output = output.astype(inputs.answer, copy=False)
            return output, CacheReport(held.count, visited, reason, weights)
        if "k" in setting.mapping.record.parameters:
            # A score for each is enough for the mapping to tell a wrong one.
            [k] = setting.mapping.values
            setting.mapping.record.forward(np.zeros((*np.shape(k), 1)), k)
        search = _Search(held, inputs, setting)
        output, found = search.run()
        weights = replace(found, shape=inputs.outer_shape)
        visited = search.visited.reshape(weights.shape[:-1])
        return inputs.output(output), CacheReport(held.count, visited, "", weights)

    def _held(self) -> Pages:
        if self._pages is None:
            raise ValueError("the cache is empty: append keys and values first")
        return self._pages

    def _shaped(self, array: Any) -> Any:
        return array.reshape(*self._batch, *array.shape[1:])

    def _check_digits(self, array: Any, name: str) -> None:
        dtype = self._held().dtype
        if not np.can_cast(array.dtype, dtype):
            raise TypeError(
                f"{name} of {array.dtype} has more digits than the cache, of {dtype}: convert it "
                f"with {name}.astype({dtype}), or fill a cache with keys of {array.dtype}"
            )


class _Search:
    """One call, query by query, those of each head of the cache together.

    Attributes
    ----------
    visited : array of int, of shape batch + (T,)
        pages that each query looked at
    """

    def __init__(self, pages: Pages, inputs: Inputs, setting: Setting) -> None:
        self._pages, self._inputs, self._mapping = pages, inputs, setting.mapping
        batch, (t, s) = inputs.batch, inputs.shape[-2:]
        own = math.prod(inputs.key.shape[:-2])
        number = np.arange(own).reshape(inputs.key.shape[:-2])
        number = np.broadcast_to(number, batch).ravel()
        # The queries of each head of the cache, all of which have as many: of shape (own, r).
        heads = np.argsort(number, kind="stable").reshape(own, -1)
        self._order = (heads[..., None] * t + np.arange(t)).reshape(own, -1)
        query = inputs.query * inputs.dtype.type(setting.scale)
        query = np.broadcast_to(query, (*batch, *query.shape[-2:]))
        self._query = query.reshape(-1, query.shape[-1])[self._order]
        values = (np.broadcast_to(value, (*batch, t)) for value in setting.mapping.values)
        self._values = tuple(value.ravel()[self._order].ravel() for value in values)
        reach = s if setting.reach is None else setting.reach + 1
        visible = np.arange(t) + reach if setting.reach is not None else np.full(t, s)
        self._visible = np.clip(visible, 0, s)[self._order.ravel() % t]
        self.visited = np.zeros((*batch, t), np.int64)

    def run(self) -> tuple[Any, AttentionWeights]:
        """Output, of shape batch + (T, dᵥ), and weights."""
        inputs, own = self._inputs, len(self._query)
        kept = self._candidates()
        weights = RowMapping(self._mapping.record, self._values, self._mapping.bounds).forward(
            kept.scores, kept.columns >= 0
        )
        found = weights != 0
        data, indices = weights[found], kept.columns[found]
        counts = np.count_nonzero(found, axis=1)
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
        return (
            output.reshape(*self.visited.shape, -1),
            AttentionWeights(inputs.shape, data, indices, indptr),
        )

    def _candidates(self) -> _Scores:
        """For each query the scores that may get weight, with all others proved to get none."""
        pages = self._pages
        rule = threshold(RowMapping(self._mapping.record, self._values, self._mapping.bounds))
        assert rule is not None
        bounds = np.full((self._order.size, pages.count), np.inf)
        full = pages.bounds(self._query)
        bounds[:, : pages.full] = full.reshape(len(bounds), pages.full)
        seen = np.zeros(bounds.shape, bool)
        kept = _Scores.none(len(bounds), pages.dtype)
        found: Found | None = None
        for most in (*ROUNDS, pages.count):
            todo = ~seen if found is None else ~seen & ~(bounds < found.least[:, None])
            left = int(np.count_nonzero(todo, axis=1).max())
            if not left:
                break
            if left > (WORTH * most if most > ROUNDS[0] else most):
                todo &= _largest(todo, bounds, most)
            seen |= todo
            kept = kept.joined(self._look(todo, found))
            found = rule.find(kept.scores)
            kept = kept.only(~(kept.scores < found.least[:, None]))
        assert found is not None
        self.visited.reshape(-1)[self._order.ravel()] = np.count_nonzero(seen, axis=1)
        broken = ~(kept.scores.max(axis=-1) < np.inf)  # by a NaN, or ∞
        chosen = kept.only(rule.above(kept.scores, found) | broken[:, None])
        return chosen.spoilt(broken, self._visible) if broken.any() else chosen

    def _look(self, todo: Any, found: Found | None) -> _Scores:
        """The scores of pages (queries, pages) that are not below the threshold found."""
        least = np.full(len(todo), -np.inf) if found is None else found.least
        # In the keys' dtype, and not above.
        least = np.nextafter(least.astype(self._pages.dtype), -np.inf)
        shape = self._order.shape
        operands = todo.reshape(*shape, -1), self._visible.reshape(shape), least.reshape(shape)
        scores, columns, counts = self._pages.look(self._query, *operands)
        return _Scores.of_rows(counts, columns, scores)


@dataclass(frozen=True)
class _Scores:
    """Some scores of each row, with their columns, which rise; what is over has column −1.

    Attributes
    ----------
    scores : array of shape (rows, n), −∞ where there is none
    columns : array of int32
    """

    scores: Any
    columns: Any

    @classmethod
    def none(cls, count: int, dtype: Any) -> _Scores:
        """No scores of so many rows."""
        return cls(np.empty((count, 0), dtype), np.empty((count, 0), np.int32))

    @classmethod
    def of_rows(cls, counts: Any, columns: Any, scores: Any) -> _Scores:
        """So many of each row, the rows one after the other."""
        most = max(1, int(counts.max()))
        if (counts == most).all():
            return cls(scores.reshape(-1, most), columns.reshape(-1, most))
        mask = np.arange(most) < counts[:, None]
        padded = np.full(mask.shape, -np.inf, scores.dtype)
        places = np.full(mask.shape, -1, np.int32)
        padded[mask], places[mask] = scores, columns
        return cls(padded, places)

    def only(self, chosen: Any) -> _Scores:
        """Those that are chosen."""
        chosen = chosen & (self.columns >= 0)
        counts = np.count_nonzero(chosen, axis=1)
        return self.of_rows(counts, self.columns[chosen], self.scores[chosen])

    def joined(self, other: _Scores) -> _Scores:
        """Both."""
        columns = np.concatenate([self.columns, other.columns], axis=1)
        scores = np.concatenate([self.scores, other.scores], axis=1)
        if not self.columns.size:
            return other
        order = np.argsort(columns, axis=1)
        columns = np.take_along_axis(columns, order, axis=1)
        return _Scores(np.take_along_axis(scores, order, axis=1), columns)

    def spoilt(self, broken: Any, visible: Any) -> _Scores:
        """With NaN in every column that a broken row sees."""
        width = max(self.scores.shape[1], int(visible[broken].max()))
        more = ((0, 0), (0, width - self.scores.shape[1]))
        scores = np.pad(self.scores, more, constant_values=-np.inf)
        columns = np.pad(self.columns, more, constant_values=-1)
        every = np.arange(width, dtype=np.int32)
        columns[broken] = np.where(every < visible[broken, None], every, np.int32(-1))
        scores[broken] = np.nan
        return _Scores(scores, columns)


def _largest(todo: Any, bounds: Any, most: int) -> Any:
    """Where the largest bounds of each row are among those of `todo`, so many."""
    ranked = np.where(todo, bounds, -np.inf)
    kept = np.zeros_like(todo)
    np.put_along_axis(kept, np.argpartition(ranked, -most, axis=1)[:, -most:], True, axis=1)
    return kept


def _ends(counts: Any) -> Any:
    """Where rows of so many entries end, after a first 0."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def _on_host(array: Any, name: str) -> tuple[Any, Any]:
    if is_dask(array) or on_device(array):
        raise TypeError(f"a cache takes NumPy arrays, and {name} is a {type(array).__name__}")
    return as_floating(array, name)


def _reason(mapping: RowMapping, rule: Threshold | None) -> str:
    if rule is not None:
        return ""
    name = mapping.record.name
    if name in (SOFTMAX.name, ENTMAX.name):
        return "softmax gives every key a weight"
    return f"no threshold is known below which {name} gives nothing"
