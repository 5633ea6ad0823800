"""The best words of an output layer, and draws from softmax, without most of the products.

Greedy decoding, top-k, min-p and a draw ask which words j have the largest scores

    z_j = scale · x · k_j + bias_j

of one state x. Each row k_j of `ScreenedRows` has bounds low_j ≤ z_j ≤ high_j.

**The k best.** Let t be the k-th largest low_j. At least k scores are t or more, so a word with
high_j < t is not among the k best. **min-p** keeps the words with p_j ≥ min_p · max p, that is
z_j ≥ max z + T log min_p for a temperature T. Since max z ≥ max low, a word with
high_j < max low + T log min_p is out. What remains is scored, and the rule is applied to the
scores.

**A draw** needs no normaliser. If the g_j are independent Gumbel noise, −log of an exponential
variable, then argmax_j (z_j / T + g_j) is a draw from softmax(z / T). T g_j is a bias that is
known, so a draw is a maximum, k = 1, with T g_j added to both bounds. With top-k or min-p the words
are selected first, and the noise decides between them.

**Rounding.** Bounds of the products hold with the rounding of a product in any order
(`screened_rows`). What the screen adds to them, b = bias + T g, is rounded to their dtype, at most
u |b| off with u = ε/2, and so is each sum s. Widened by 4ε (|s| + |b|) the bounds hold for all of
that. The products that are compared get bias and noise in float64. t − margin is lowered by
4ε (|t| + margin).

**Order.** Words are those of ``np.argsort(-z, kind="stable")``: ties go to the lowest word, and a
NaN comes last. A row or a state that is not finite has no bound, and is always scored.

**Dense.** Where bounds decide little, as when rows are nearly equal, all products take less time.
So one of `SAMPLED` rows or more is screened first, and if more than `DENSE` of these remain, all
are scored. What needs Σ_j e^{z_j}, such as top-p or log p, is not here: it needs all scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.sparse_attention.compressed_rows import OVERHANG
from pyentmax.sparse_attention.few_queries import FEW, SCREENED_WORK
from pyentmax.sparse_attention.screened_rows import (
    ScreenedRows,
    is_half,
    rows_at,
    widened,
)  # fmt: skip

SAMPLED = 64  # or more, for a thousand rows
DENSE = 0.25
WIDENED = 256  # rows of a half type at a time, which stay in a cache
LEAST_ROWS = 4096  # from which on a sample decides


def linear_argmax(x: Any, rows: Any, *, bias: Any = None, scale: float = 1.0) -> tuple[Any, Any]:
    """The word with the largest of the scores scale · x · rowsᵀ + bias, and that score.

    Parameters
    ----------
    x : array of shape (d,) or (b, d)
        states, converted to the rows' dtype, or float32 for rows of a half type
    rows : ScreenedRows of shape (n, d), or an array
        an array is multiplied with as a whole, for the same results
    bias : array of shape (n,), optional
    scale : float, default 1
        above 0

    Returns
    -------
    words, scores : arrays of shape () or (b,)
        of equal scores the lowest word

    Raises
    ------
    TypeError
        if an argument is not of real numbers
    ValueError
        if shapes do not fit, there are no rows, or the scale is not above 0

    Examples
    --------
    >>> rows = ScreenedRows(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
    >>> words, scores = linear_argmax([[1.0, 0.5], [0.0, 2.0]], rows)
    >>> words.tolist(), scores.round(3).tolist()
    ([1, 2], [1.1, 2.0])
    """
    head = Head(x, rows, bias, scale)
    found = [_best(*own, 1) for own in head.scored(1)]
    return head.one_each(found)


def linear_top_k(
    x: Any, rows: Any, k: int, *, bias: Any = None, scale: float = 1.0
) -> tuple[Any, Any, Any]:
    """The k words with the largest scores, as compressed rows, by falling score.

    Parameters
    ----------
    x, rows, bias, scale : as in `linear_argmax`
    k : int
        at least 1; all words if there are not more

    Returns
    -------
    words, scores : arrays
        of all states, one after the other
    offsets : array of shape (b + 1,)
        where each begins; b is 1 for one state

    Examples
    --------
    >>> rows = ScreenedRows(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
    >>> words, scores, offsets = linear_top_k([1.0, 0.5], rows, 2)
    >>> words.tolist(), scores.round(3).tolist(), offsets.tolist()
    ([1, 0], [1.1, 1.0], [0, 2])
    """
    head = Head(x, rows, bias, scale)
    k = min(_count(k), head.n)
    return head.compressed([_best(*own, k) for own in head.scored(k)])


def linear_min_p(
    x: Any, rows: Any, min_p: float, *, bias: Any = None, scale: float = 1.0
) -> tuple[Any, Any, Any]:
    """The words with at least min_p of the largest probability of softmax, as `linear_top_k`.

    Parameters
    ----------
    x, rows, bias, scale : as in `linear_argmax`
    min_p : float
        above 0, and 1 at most

    Examples
    --------
    >>> rows = ScreenedRows(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
    >>> linear_min_p([1.0, 0.5], rows, 0.8)[0].tolist()  # exp(1.0 - 1.1) is 0.9, exp(0.5 - 1.1) 0.5
    [1, 0]
    """
    head, margin = Head(x, rows, bias, scale), -np.log(_share(min_p))
    return head.compressed([_near(*own, margin) for own in head.scored(1, margin)])


def linear_sample(
    x: Any, rows: Any, rng: np.random.Generator, *, temperature: float = 1.0,
    top_k: int | None = None, min_p: float | None = None, bias: Any = None, scale: float = 1.0,
) -> tuple[Any, Any]:  # fmt: skip
    """A word for each state, drawn from softmax of the scores / temperature.

    Of all words; of the `top_k` best; of those that have `min_p` of the largest probability; or of
    those that are both. The largest score with Gumbel noise is such a draw, without a normaliser.

    Parameters
    ----------
    x, rows, bias, scale : as in `linear_argmax`
    rng : numpy.random.Generator
        gives one number for every word of each state, whatever the options, so that the draw does
        not depend on how it was computed
    temperature : float, default 1
        above 0
    top_k : int, optional
    min_p : float, optional

    Returns
    -------
    words, scores : arrays of shape () or (b,)
        the scores without temperature and noise

    Examples
    --------
    >>> rows = ScreenedRows(np.array([[1.0, 0.0], [0.8, 0.6], [-9.0, 0.0]]))
    >>> words, scores = linear_sample([[1.0, 0.5]] * 4, rows, np.random.default_rng(0))
    >>> words.tolist()
    [0, 0, 0, 1]
    """
    n = rows.shape[0] if isinstance(rows, ScreenedRows) else len(rows)

    def noise(start: int, count: int) -> Any:
        numbers = rng.standard_exponential((count, n))
        with np.errstate(divide="ignore"):
            return np.negative(np.log(numbers, out=numbers), out=numbers)

    return sampled(x, rows, noise, temperature, top_k, min_p, bias, scale)


def sampled(
    x: Any, rows: Any, noise: Callable[[int, int], Any], temperature: float, top_k: int | None,
    min_p: float | None, bias: Any, scale: float,
) -> tuple[Any, Any]:  # fmt: skip
    """The same with Gumbel noise (count, n) for `count` states from the first argument on."""
    head, t = Head(x, rows, bias, scale), float(temperature)
    if not 0 < t < np.inf:
        raise ValueError(f"temperature must be above 0, got {temperature}; at 0: linear_argmax")
    k = None if top_k is None else min(_count(top_k), head.n)
    margin = None if min_p is None else -t * np.log(_share(min_p))
    found = []
    for i in range(0, len(head.x), FEW):
        g = noise(i, min(FEW, len(head.x) - i))
        if k is None and margin is None:
            scored = head.scored(1, 0, t * g, i)
        else:
            scored = head.scored(k or 1, (margin or 0) if k is None else 0, None, i)
        for own, row in zip(scored, g, strict=True):
            words, z = own if k is None else _best(*own, k)
            words, z = (words, z) if margin is None else _near(words, z, margin)
            place = _first(z.astype(np.float64) / t + row[words], words)
            found.append((words[place : place + 1], z[place : place + 1]))
    return head.one_each(found)


def _count(k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be a whole number of at least 1, got {k!r}")
    return int(k)


def _share(min_p: Any) -> float:
    if not 0 < min_p <= 1:
        raise ValueError(f"min_p must be above 0 and 1 at most, got {min_p}")
    return float(min_p)


def _first(z: Any, words: Any) -> int:
    """The place of the largest score: of ties the lowest word's, and a NaN comes last."""
    places = np.flatnonzero(z == np.fmax.reduce(z))
    return int(places[words[places].argmin()]) if len(places) else int(words.argmin())


def _best(words: Any, z: Any, k: int | None) -> tuple[Any, Any]:
    """The k best of words in rising order, by falling score; all for None."""
    if k == 1:
        place = _first(z, words)
        return words[place : place + 1], z[place : place + 1]
    if k is not None and k < len(z):
        least = -np.partition(-z, k - 1)[k - 1]
        places = np.flatnonzero(~(z < least))  # ties and NaN, too
        words, z = words[places], z[places]
    order = np.argsort(-z, kind="stable")[:k]
    return words[order], z[order]


def _near(words: Any, z: Any, margin: float) -> tuple[Any, Any]:
    """Words with a score at most `margin` below the largest, by falling score."""
    with np.errstate(invalid="ignore"):
        places = np.flatnonzero(z >= np.fmax.reduce(z).astype(np.float64) - margin)
    places = places if len(places) else np.array([words.argmin()])  # NaN alone
    return _best(words[places], z[places], None)


class Head:
    """States, rows and bias in one dtype, and the scores that a rule cannot do without."""

    def __init__(self, x: Any, rows: Any, bias: Any, scale: float) -> None:
        self.screened = rows if isinstance(rows, ScreenedRows) else None
        if self.screened is not None:
            self.rows: Any = self.screened.rows
        else:
            self.rows = rows if is_half(rows) else as_floating(rows, "rows")[0]
        x = as_floating(x, "x")[0]
        self.shape = x.shape[:-1]
        if self.rows.ndim != 2 or x.ndim not in (1, 2) or x.shape[-1] != self.rows.shape[-1]:
            raise ValueError(
                "expected x of shape (d,) or (b, d) and rows of shape (n, d), got "
                f"{x.shape} and {self.rows.shape}"
            )
        if not 0 < scale < np.inf:
            raise ValueError(f"scale must be above 0, got {scale}")
        self.n: int = len(self.rows)
        if not self.n:
            raise ValueError("rows: expected at least one, got none")
        dtype = np.dtype(np.float32) if is_half(self.rows) else self.rows.dtype
        x = x.astype(dtype, copy=False) * dtype.type(scale)
        self.x = np.ascontiguousarray(x.reshape(-1, x.shape[-1]))
        self.bias = None
        if bias is not None:
            self.bias = as_floating(bias, "bias")[0].astype(np.float64, copy=False)
            if self.bias.shape != (self.n,):
                raise ValueError(
                    f"bias must have the shape ({self.n},), one for each row, got {self.bias.shape}"
                )

    def one_each(self, found: list[Any]) -> tuple[Any, Any]:
        """The only word of each state, and its score, in the shape of the states."""
        words, scores, _ = self.compressed(found)
        return words.reshape(self.shape), scores.reshape(self.shape)

    def compressed(self, found: list[Any]) -> tuple[Any, Any, Any]:
        """Words, scores and offsets of all states."""
        offsets = np.zeros(len(found) + 1, np.int64)
        offsets[1:] = np.cumsum([len(words) for words, _ in found])
        words, scores = zip(*found or [(np.empty(0), self.x[:0, 0])], strict=True)
        joined = np.concatenate(scores).astype(self.x.dtype, copy=False)
        return np.concatenate(words).astype(np.int64), joined, offsets

    def scored(
        self, k: int, margin: float = 0.0, added: Any = None, start: int | None = None
    ) -> list[tuple[Any, Any]]:
        """The words of each state, in order, and their scores: all but some that are proved out.

        Not among the k best, and more than `margin` below the k-th, with what is added, (b, n), to
        choose by, which is overwritten. Of `FEW` states from `start` on, or of all.
        """
        if start is None:
            pieces = range(0, len(self.x), FEW)
            return [own for i in pieces for own in self.scored(k, margin, None, i)]
        x = self.x[start : start + FEW]
        if self.screened is None or k >= self.n or not choice.kernels() or not x.size:
            return self._all(x)
        bias: Any = np.zeros(()) if self.bias is None else self.bias
        if added is not None:
            bias = added if self.bias is None else np.add(added, bias, out=added)
        with np.errstate(over="ignore"):
            bias = np.broadcast_to(bias.astype(x.dtype, copy=False), (len(x), self.n))
        undecided = self._undecided(x, k, margin, bias)
        result: list[Any] = [None] * len(x)
        if (places := np.flatnonzero(~undecided)).size:
            for i, own in zip(places, self._from_screen(x, k, margin, bias, places), strict=True):
                result[i] = own
                undecided[i] = len(own[0]) < k  # fewer than k scores are above −∞
        if (places := np.flatnonzero(undecided)).size:
            for i, own in zip(places, self._all(x[places]), strict=True):
                result[i] = own
        return result

    def _undecided(self, x: Any, k: int, margin: float, bias: Any) -> Any:
        """Whether so many rows of a sample remain that all had better be scored."""
        if self.n < LEAST_ROWS:
            return np.zeros(len(x), bool)
        step = max(SAMPLED, self.n // 1024)
        some = slice(None, None, step)
        size = len(range(self.n)[some])
        _, stops = self._screen(x, -(-k // step), margin, bias, some)
        return np.diff(stops, prepend=0) > DENSE * size

    def _screen(self, x: Any, k: int, margin: float, bias: Any, rows: slice) -> tuple[Any, Any]:
        """The places of the rows that remain, among those of the slice."""
        assert self.screened is not None
        copies, bounds = self.screened.copies[rows], self.screened.bounds[:, rows]
        k, b = min(k, len(copies)), len(x)
        kept = np.empty(b * len(copies) + OVERHANG, np.int32), np.empty(b, np.int64)
        bounds = np.ascontiguousarray(bounds) if rows.step else bounds
        margins = np.full(b, float(margin))
        query = x * self.screened.scales
        screen = choice.kernels()["screen_best"]
        screen(query, copies, bounds, np.full(b, k), margins, bias[:, rows], out=kept)
        return kept

    def _from_screen(self, x: Any, k: int, margin: float, bias: Any, places: Any) -> list[Any]:
        """The same from a screen of all rows, each thread's of its own."""
        if len(places) < len(x):
            x, bias = x[places], bias[places]
        most = max(x.size * self.n // SCREENED_WORK, 1)
        count = min(threads.get_workers(), most, self.n)
        cuts = [self.n * i // count for i in range(count + 1)]
        parts: list[Any] = [None] * count

        def run(i: int) -> None:
            start, stop = cuts[i], cuts[i + 1]
            columns, stops = self._screen(x, k, margin, bias, slice(start, stop))
            ends = np.concatenate([[0], stops])
            key, at = rows_at(self.rows[start:stop], columns, stops)
            scores = np.empty(ends[-1], x.dtype)
            operands = at[: ends[-1]], ends[:-1][None], ends[1:][None], x[None], key[None]
            choice.kernels()["rows_dots"](*operands, out=scores)
            words = columns[: ends[-1]] + np.int32(start)
            parts[i] = words, scores if self.bias is None else scores + self.bias[words], ends

        threads.run_pieces(range(count), lambda: run, count)
        return [
            tuple(
                np.concatenate([p[side][p[2][i] : p[2][i + 1]] for p in parts]) for side in (0, 1)
            )
            for i in range(len(x))
        ]

    def _all(self, x: Any) -> list[tuple[Any, Any]]:
        """All words, and their scores."""
        with np.errstate(all="ignore"):  # as the kernels, which raise no warnings
            if is_half(self.rows):
                scores = np.empty((len(x), self.n), x.dtype)
                for i in range(0, self.n, WIDENED):
                    some = slice(i, i + WIDENED)
                    np.matmul(x, widened(self.rows[some]).T, out=scores[:, some])
            else:
                scores = x @ self.rows.T
            scores = scores if self.bias is None else scores + self.bias
        words = np.arange(self.n, dtype=np.int32)
        return [(words, z) for z in scores]
