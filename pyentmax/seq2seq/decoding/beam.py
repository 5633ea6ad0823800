"""Beam search with a certificate: whether its list of hypotheses is exact and complete.

A sparse output mapping gives most continuations a probability of exactly zero, so a model may find
only a few strings possible. If beam search never had to prune one of them, it has enumerated them
all, and its result is not an approximation (Peters et al. 2019, §4.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise, repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.seq2seq.decoding._shared import as_source, length_limits, positive, refuse_stuck
from pyentmax.seq2seq.decoding.hypotheses import Hypothesis, SearchResult, bounds_text, proved_text
from pyentmax.seq2seq.models.protocol import (
    BoolArray,
    Decodable,
    FloatArray,
    IntArray,
    Step,
    unseen,
)

State = TypeVar("State")


def beam_search(
    model: Decodable[State],
    source: ArrayLike,
    source_mask: ArrayLike,
    *,
    beam: int = 5,
    n_best: int | None = None,
    max_length: int | None = None,
    normalize: bool = False,
    keep_attention: bool = True,
    prove: bool = True,
) -> list[SearchResult]:
    r"""Decode each source with a beam, and prove the result complete where that is possible.

    Every step advances the open prefixes of all sources in one call of ``model.step``. If a prefix
    can end, the finished hypothesis leaves the beam and is kept. Of all other continuations with a
    probability above zero, each source keeps the ``beam`` most probable ones. Ties go to the better
    prefix, then to the lower token id.

    The result is **exact**, which includes complete, if and only if no continuation in the support
    of the output mapping was pruned and none was left open at the length limit. Then the listed
    probabilities sum to 1. The support is that of the mapping (``Step.support``). A continuation
    whose probability rounds to zero within the support is not impossible, only too improbable for
    its float type, and then the list is not proved complete.

    With a sparse output mapping the search continues until nothing is open. With a dense one, or
    one whose zeros are not proved (``model.output_is_sparse`` is False), it stops once ``beam``
    finished hypotheses are at least as probable as the best open prefix, and it is never exact.

    With ``n_best``, a source is done as soon as that many finished hypotheses are at least as
    probable as its best open prefix: no open prefix can change the ``n_best`` best of the list.
    The open prefixes are still possible, so the list is not complete. The proof also takes the
    pruned prefixes into account: the first ``proved`` hypotheses are at least as probable as
    all pruned and open prefixes, hence the best of all strings; the others are only the best that
    this beam finds. ``bound`` and ``mass_bound`` limit all strings that are not listed.

    Parameters
    ----------
    model : Decodable
        The model to decode.
    source, source_mask : (B, S) int array, (B, S) bool array
        Token ids and True where they are real.
    beam : int
        The largest number of open prefixes per source and step.
    n_best : int, optional
        Stop once this many best hypotheses are settled. By default the search continues, to prove
        the list complete, unless the output mapping is dense.
    max_length : int, optional
        The most tokens of a hypothesis, end symbol not counted; by default 2 × source length + 10.
    normalize : bool
        Where the search stops early, compare strings by their mean log-probability per token, end
        symbol included. An open prefix x of log-probability s(x) can reach a mean of s(x) / (L + 1)
        at most, where L is the length limit: the search takes more steps, since this is far above
        the mean so far. The list is still in the order of probabilities.
    keep_attention : bool
        Whether hypotheses carry their attention weights.
    prove : bool
        False leaves the proofs out, and treats every output mapping as a dense one: faster, if only
        the strings are needed.

    Returns
    -------
    list of B SearchResult
        In the order of the sources.

    Raises
    ------
    ValueError
        If the arrays do not fit together, if ``beam``, ``n_best`` or ``max_length`` is below 1, or
        if the model gives a row no possible token (as NaN scores do).

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.1 and Figure 1.

    Examples
    --------
    A model that writes token 2 or 3 and then ends:

    >>> import numpy as np
    >>> from pyentmax.seq2seq.decoding import Step, beam_search
    >>> class Coin:
    ...     bos, eos, output_is_sparse = 0, 1, True
    ...     table = np.array([[0, 0, 0.75, 0.25], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    ...     def encode(self, source, source_mask):
    ...         return source
    ...     def step(self, state, tokens):
    ...         p = self.table[tokens]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, np.ones(state.shape)), state
    ...     def select(self, state, rows):
    ...         return state[rows]
    >>> source = np.array([[4]])
    >>> [result] = beam_search(Coin(), source, source > 0)
    >>> [(h.tokens, round(h.probability, 2)) for h in result.hypotheses]
    [((2,), 0.75), ((3,), 0.25)]
    >>> result.exact
    True
    >>> [result] = beam_search(Coin(), source, source > 0, beam=1)
    >>> result.exact
    False
    >>> print(result.reason)
    Not proved complete: 1 possible continuation of mass 0.25 was pruned, first at step 1 (beam 1).
    >>> [result] = beam_search(Coin(), source, source > 0, beam=1, n_best=1)
    >>> result.best.tokens, result.proved, round(result.bound, 2)
    ((2,), 1, 0.25)
    """
    source, source_mask = as_source(source, source_mask)
    beam = positive("beam", beam)
    # How many settled hypotheses end the search of a source.
    enough = None if prove and model.output_is_sparse else beam
    if n_best is not None:
        enough = positive("n_best", n_best)
    limit = length_limits(source_mask, max_length)
    if len(source) == 0:
        return []
    search = _Search(model, beam, enough, limit, n_best, prove=prove, normalize=normalize)
    return search.run(source, source_mask, keep_attention)


class _Open(NamedTuple):
    """The open prefixes, by source and, within a source, from the best down.

    Attributes
    ----------
    source_index, score, tokens : arrays
        The source, the log-probability and the last token of each.
    """

    source_index: IntArray
    score: FloatArray
    tokens: IntArray


class _Search:
    """One beam search: what its steps share.

    Attributes
    ----------
    sparse : bool
        Whether zeros of the output mapping are certain, so that the list may be complete.
    bounded : bool
        Whether what is omitted has to be bounded, to prove the best strings.
    """

    def __init__(
        self,
        model: Decodable[Any],
        beam: int,
        enough: int | None,
        limit: IntArray,
        n_best: int | None,
        *,
        prove: bool,
        normalize: bool,
    ) -> None:
        self.model, self.beam, self.enough, self.limit = model, beam, enough, limit
        self.sparse = prove and model.output_is_sparse
        self.bounded = prove and n_best is not None
        self.advance = model.step if prove else getattr(model, "unproved_step", model.step)
        self.backpointers = _Backpointers()
        self.omitted = _Omissions(len(limit))
        self.finished = _Endings(len(limit), enough or 1, limit if normalize else None)
        self.unfinished = _Endings(len(limit), 1)
        self.zeros = np.zeros(len(limit), dtype=bool)  # sources with a support that is not all

    def run(
        self, source: IntArray, source_mask: BoolArray, keep_attention: bool
    ) -> list[SearchResult]:
        """Advance all open prefixes until none is left; the result of each source."""
        model, sources = self.model, len(self.limit)
        state = model.encode(source, source_mask)
        start = np.full(sources, model.bos)
        prefixes, length = _Open(np.arange(sources), np.zeros(sources), start), 0
        while prefixes.source_index.size:
            step, state = self.advance(state, prefixes.tokens)
            if keep_attention:
                self.backpointers.attention.append(step.attention)
            rows, prefixes = self._longer(step, prefixes, length)
            if rows.size and not np.array_equal(rows, np.arange(len(step.support))):
                state = model.select(state, rows)
            self.backpointers.parents.append(rows)
            self.backpointers.tokens.append(prefixes.tokens)
            length += 1
        hypotheses = self.backpointers.hypotheses(self.finished, self.unfinished, source_mask)
        masses = self.finished.masses().tolist()
        return [self._result(i, hypotheses[i], mass) for i, mass in enumerate(masses)]

    def _longer(self, step: Step, prefixes: _Open, length: int) -> tuple[IntArray, _Open]:
        """The prefixes that stay open after a step, and the row that each continues."""
        source_index, score, _ = prefixes
        if not (self.sparse or step.support.all()):
            self.zeros[source_index[~step.support.all(axis=1)]] = True
        # A probability that rounding lifts above 1 would break the bounds.
        log_prob = np.minimum(step.log_prob, 0) if self.bounded else step.log_prob
        # A certificate counts the pruned continuations, so that all possible ones are listed.
        # Without one these are enough: the end symbol of each prefix, the ``beam`` best, and the
        # best of those that are pruned.
        most = None if self.sparse else 2 * self.beam + 1
        candidates = _continuations(step, log_prob, score, source_index, length, most)
        if candidates.hidden.size:
            self._omit_hidden(step, candidates, prefixes)
        eos = self.model.eos
        ends = score + log_prob[:, eos]
        ended = np.flatnonzero(step.support[:, eos] & np.isfinite(ends))
        self.finished.add(ended, source_index, ends, length)
        others = candidates.tokens != eos
        listed = candidates.rows[others], candidates.tokens[others], candidates.total[others]
        listed = self._within_limit(*listed, candidates, prefixes, length)
        rows, tokens, total = self._best_settled(*listed, source_index, length)
        return rows, _Open(source_index[rows], total, tokens)

    def _omit_hidden(self, step: Step, candidates: _Continuations, prefixes: _Open) -> None:
        """Count the possible tokens whose log-probability is not finite."""
        rows = candidates.hidden
        infinite = np.isneginf(step.log_prob[rows, candidates.hidden_tokens])
        bounds = np.where(infinite, unseen(step)[rows], 0.0)
        self.omitted.add(_HIDDEN, prefixes.source_index[rows], prefixes.score[rows] + bounds)

    def _within_limit(
        self,
        rows: IntArray,
        tokens: IntArray,
        total: FloatArray,
        candidates: _Continuations,
        prefixes: _Open,
        length: int,
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Continuations that are not too long; prefixes that cannot go on end here."""
        source_index = prefixes.source_index
        at_limit = self.limit[source_index] == length
        stuck = at_limit.copy()
        if candidates.hidden.size:  # all continuations of a prefix may be
            stuck[np.setdiff1d(candidates.hidden, candidates.rows)] = True
        self.unfinished.add(np.flatnonzero(stuck), source_index, prefixes.score, length)
        if at_limit.any():
            too_long = at_limit[rows]
            self.omitted.add(_CUT, source_index[rows[too_long]], total[too_long])
            rows, tokens, total = rows[~too_long], tokens[~too_long], total[~too_long]
        return rows, tokens, total

    def _best_settled(
        self,
        rows: IntArray,
        tokens: IntArray,
        total: FloatArray,
        source_index: IntArray,
        length: int,
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """The ``beam`` best continuations of each source that is not settled."""
        omitted, best = self.omitted, _best(rows, total, source_index, self.beam)
        if self.sparse or self.bounded:
            pruned = np.ones(len(rows), dtype=bool)
            pruned[best] = False
            omitted.add(_PRUNED, source_index[rows[pruned]], total[pruned])
            new = (omitted.count[_PRUNED] > 0) & (omitted.first_pruned == 0)
            omitted.first_pruned[new] = length + 1
        rows, tokens, total = rows[best], tokens[best], total[best]
        if self.enough is not None:
            settled = self.finished.settled(source_index[rows], total)
            if self.bounded:
                omitted.add(_OPEN, source_index[rows[settled]], total[settled])
            rows, tokens, total = rows[~settled], tokens[~settled], total[~settled]
        return rows, tokens, total

    def _result(self, i: int, hypotheses: list[Hypothesis], mass: float) -> SearchResult:
        """The hypotheses of source i, and what is proved of them."""
        reason = _dense_reason(mass, self.zeros[i])
        if self.sparse:
            reason = self.omitted.reason(i, self.beam, int(self.limit[i]))
        exact = self.sparse and self.omitted.none(i)
        proved, bound = (len(hypotheses), 0.0) if exact else (0, 1.0)
        mass_bound = bound
        if self.bounded and not exact:
            best = float(self.omitted.best[i])
            proved = sum(h.finished and h.log_prob >= best for h in hypotheses)
            bound = math.exp(best)
            mass_bound = max(1 - mass, bound)
            claim = proved_text(proved) or "The best string of this beam is not proved"
            reason = f"{claim}. {bounds_text(bound, mass_bound)} {reason}"
        return SearchResult(tuple(hypotheses), exact, mass, reason, proved, bound, mass_bound)


class _Continuations(NamedTuple):
    """Continuations of the open rows, in the order of rows and then of tokens.

    Attributes
    ----------
    rows, tokens, total : arrays
        The row, the token and the score of each possible one that is listed.
    hidden, hidden_tokens : int arrays
        Rows and tokens of those in the support without a finite log-probability.
    """

    rows: IntArray
    tokens: IntArray
    total: FloatArray
    hidden: IntArray
    hidden_tokens: IntArray


_NONE = np.zeros(0, dtype=np.int64)
_LEAST_SHOWN = 1e-300  # smaller floats lose digits


def _continuations(
    step: Step,
    log_prob: FloatArray,
    score: FloatArray,
    source_index: IntArray,
    length: int,
    most: int | None,
) -> _Continuations:
    """The continuations of the open rows: all, or at least the ``most`` best of each source."""
    if most is not None:
        best = _best_of_dense(step, log_prob, score, source_index, most)
        if best is not None:
            return best
    vocabulary = log_prob.shape[1]
    # Much faster than np.nonzero of two axes.
    rows, tokens = np.divmod(np.flatnonzero(step.support), vocabulary)
    total = score[rows] + log_prob[rows, tokens]
    finite = np.isfinite(total)
    hidden = rows[~finite], tokens[~finite]
    if hidden[0].size:
        rows, tokens, total = rows[finite], tokens[finite], total[finite]
    possible = np.zeros(len(score), dtype=bool)
    possible[rows] = True
    refuse_stuck(step, possible, source_index, length)
    return _Continuations(rows, tokens, total, *hidden)


def _best_of_dense(
    step: Step, log_prob: FloatArray, score: FloatArray, source_index: IntArray, most: int
) -> _Continuations | None:
    """The best of every source if every token is possible, as `_continuations`; None otherwise.

    One pass over the log-probabilities finds the largest entries of disjoint parts of each row. At
    least ``most`` continuations of a source reach the ``most``-th best of these, and a part whose
    largest entry does not reach it is skipped.
    """
    vocabulary = log_prob.shape[1]
    if most >= vocabulary or not step.support.all():
        return None
    # With few tokens each is a part of its own.
    largest = log_prob if vocabulary <= 64 else _largest_of_parts(log_prob, most)
    parts = largest.shape[1]
    # A NaN would be both. Where all are finite, each row has a possible continuation.
    if not (math.isfinite(log_prob.min()) and math.isfinite(largest.max())):
        return None
    total = score[:, None] + largest
    rows_of_source = _counts_in_order(source_index)
    bar = np.repeat(_bars(total.ravel(), rows_of_source * parts, most), rows_of_source)
    rows, part = np.divmod(np.flatnonzero(total >= bar[:, None]), parts)
    if parts == vocabulary:
        return _Continuations(rows, part, total[rows, part], _NONE, _NONE)
    tokens = part[:, None] + parts * np.arange(-(-vocabulary // parts))
    valid = tokens < vocabulary
    total = score[rows, None] + log_prob[rows[:, None], np.where(valid, tokens, 0)]
    near, column = np.nonzero(valid & (total >= bar[rows, None]))
    rows, tokens, total = rows[near], tokens[near, column], total[near, column]
    order = np.argsort(rows * vocabulary + tokens)
    return _Continuations(rows[order], tokens[order], total[order], _NONE, _NONE)


def _largest_of_parts(x: FloatArray, least: int) -> FloatArray:
    """The largest entries of ``least`` or more disjoint parts of each row.

    Entry i is in part i mod the number of parts. At least k entries of the row reach the k-th
    largest of these, but not many more; to select the k-th largest of the row takes many passes.
    """
    rows, width = x.shape
    parts = max(least, int(width**0.5))
    length = width // parts
    largest: FloatArray = x[:, : parts * length].reshape(rows, length, parts).max(axis=1)
    rest = x[:, parts * length :]
    np.maximum(largest[:, : rest.shape[1]], rest, out=largest[:, : rest.shape[1]])
    return largest


def _best(rows: IntArray, total: FloatArray, source_index: IntArray, beam: int) -> IntArray:
    """Places of the ``beam`` best continuations of every source, by source and rank."""
    sources = source_index[rows]
    counts = _counts_in_order(sources)
    listed = np.arange(len(total))
    # Sorting a whole dense support would cost more than first selecting, for each source, its
    # ``beam``-th best score. Ties with it stay in, for the order below.
    if len(total) > 4 * beam * len(counts):
        listed = np.flatnonzero(total >= np.repeat(_bars(total, counts, beam), counts))
    # They are listed by row, then by token, and lexsort is stable: ties go to the better prefix,
    # then to the lower token id.
    order = listed[np.lexsort((-total[listed], sources[listed]))]
    in_order = sources[order]
    return order[np.arange(len(order)) - np.searchsorted(in_order, in_order) < beam]


def _counts_in_order(sources: IntArray) -> IntArray:
    """The number of entries of each source that has any; those of one source are contiguous."""
    return np.diff(np.flatnonzero(np.diff(sources, prepend=-1, append=-1)))


def _bars(total: FloatArray, counts: IntArray, k: int) -> FloatArray:
    """The k-th best score of each source, whose ``counts`` scores are contiguous.

    −∞ where there are fewer.
    """
    width = counts.max(initial=0)
    if width < k:
        return np.full(len(counts), -np.inf)
    if len(total) == width * len(counts):  # the same number for each
        padded = total.reshape(-1, width)
    else:
        padded = np.full((len(counts), width), -np.inf)
        padded[np.arange(width) < counts[:, None]] = total
    bars: FloatArray = np.partition(padded, width - k, axis=1)[:, width - k]
    return bars


class _Endings:
    """Where hypotheses ended, in the order of the search.

    Attributes
    ----------
    endings : list of (source, log_prob, length, row) arrays
        The source, the score, and the row that the hypothesis had when it was ``length`` tokens
        long.
    best : (sources, at most enough) array
        The best scores of each source, in descending order; −∞ where there is none. With a length
        ``limit`` they are means over the tokens, end symbol included.
    """

    def __init__(self, sources: int, enough: int, limit: IntArray | None = None) -> None:
        self.endings: list[tuple[IntArray, FloatArray, IntArray, IntArray]] = []
        self.enough, self.limit = enough, limit
        self.best = np.empty((sources, 0))  # grows, since a list may be far shorter than enough

    def add(self, rows: IntArray, source_index: IntArray, score: FloatArray, length: int) -> None:
        """Record that the prefixes in these rows, ordered by source, ended with these scores."""
        if not rows.size:
            return
        sources, scores = source_index[rows], score[rows]
        self.endings.append((sources, scores, np.full_like(rows, length), rows))
        place = np.arange(len(rows)) - np.searchsorted(sources, sources)
        new = np.full((len(self.best), place.max() + 1), -np.inf)
        new[sources, place] = scores if self.limit is None else scores / (length + 1)
        both = np.concatenate([self.best, new], axis=1)
        self.best = -np.sort(-both, axis=1)[:, : self.enough]

    def settled(self, source_index: IntArray, score: FloatArray) -> BoolArray:
        """For each kept prefix, whether its source has enough hypotheses that are final.

        No string is more probable than its prefixes, and its log-probability is divided by at most
        L + 1. So once enough hypotheses are at least as good as the best open prefix of their
        source can become, no better one can follow.
        """
        if self.best.shape[1] < self.enough:
            return np.zeros(len(source_index), dtype=bool)
        first = np.searchsorted(source_index, source_index)  # of a source, its best prefix
        divisor = 1 if self.limit is None else self.limit[source_index] + 1
        return self.best[source_index, -1] >= score[first] / divisor

    def masses(self) -> NDArray[Any]:
        """The sum of the probabilities, for each source."""
        source_index, score = self.concatenated()[:2]
        return np.bincount(source_index, np.exp(score), minlength=len(self.best))

    def concatenated(self) -> list[NDArray[Any]]:
        """Sources, scores, lengths and rows of all endings."""
        empty = tuple(np.zeros(0, dtype) for dtype in (np.int64, np.float64, np.int64, np.int64))
        return [np.concatenate(parts) for parts in zip(empty, *self.endings, strict=True)]


class _Backpointers:
    """The way back from any row to its tokens and attention, without copies of prefixes.

    Row r of step t + 1 was made by the token ``tokens[t][r]`` from the row ``parents[t][r]`` of
    step t. ``attention[t]`` is that of the rows of step t as they choose their tokens.
    """

    def __init__(self) -> None:
        self.parents: list[IntArray] = []
        self.tokens: list[IntArray] = []
        self.attention: list[FloatArray] = []

    def hypotheses(
        self, finished: _Endings, unfinished: _Endings, source_mask: BoolArray
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first; the open prefixes of a source without any."""
        complete, cut = finished.concatenated(), unfinished.concatenated()
        alone = ~np.isin(cut[0], complete[0])
        is_complete = np.arange(len(complete[0]) + np.count_nonzero(alone)) < len(complete[0])
        places = [np.concatenate([a, b[alone]]) for a, b in zip(complete, cut, strict=True)]
        order = np.lexsort((-places[1], places[0]))
        source_index, score, length, row = (part[order] for part in places)
        is_complete = is_complete[order]
        rows = self._rows(length, row)
        attention: Iterable[FloatArray | None] = repeat(None, len(rows))
        if self.attention:
            read = zip(source_index, rows, length + is_complete, strict=True)
            # Concatenated, the rows of step t begin at start[t].
            start = np.cumsum([0, *map(len, self.attention)])
            together = np.concatenate(self.attention)
            attention = [together[start[:n] + row[:n]][:, source_mask[i]] for i, row, n in read]
        strings = self._strings(rows, length)
        listed = list(map(Hypothesis, strings, score.tolist(), attention, is_complete.tolist()))
        first = np.searchsorted(source_index, np.arange(len(source_mask) + 1)).tolist()
        return [listed[begin:end] for begin, end in pairwise(first)]

    def _rows(self, length: IntArray, row: IntArray) -> IntArray:
        """The row of each hypothesis at every step from 0 to its length, padded with 0."""
        rows = np.zeros((len(row), max(length, default=0) + 1), dtype=np.int64)
        rows[np.arange(len(row)), length] = row
        for t in reversed(range(rows.shape[1] - 1)):
            longer = np.flatnonzero(length > t)
            rows[longer, t] = self.parents[t][rows[longer, t + 1]]
        return rows

    def _strings(self, rows: IntArray, length: IntArray) -> list[tuple[int, ...]]:
        """The tokens of each hypothesis."""
        tokens = np.empty((len(rows), rows.shape[1] - 1), dtype=np.int64)
        for t in range(tokens.shape[1]):
            tokens[:, t] = self.tokens[t][rows[:, t + 1]]
        joined = tokens[np.arange(tokens.shape[1]) < length[:, None]].tolist()
        ends = np.cumsum(length).tolist()
        return [tuple(joined[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]


# Why a possible continuation is not in the list: it did not fit into the beam, was open at the
# length limit, has a probability that rounds to zero, or was open when the search was settled.
_PRUNED, _CUT, _HIDDEN, _OPEN = range(4)


class _Omissions:
    """The possible continuations that each source's search left out, which prevent a certificate.

    Counts decide, not masses: strings remain possible even if their mass rounds to zero.
    """

    def __init__(self, sources: int) -> None:
        self.count = np.zeros((4, sources), dtype=np.int64)
        self.mass = np.zeros((4, sources))
        self.first_pruned = np.zeros(sources, dtype=np.int64)  # the step, from 1 on
        self.best = np.full(sources, -np.inf)  # the best score: no string omitted is more probable

    def add(self, why: int, sources: IntArray, total: FloatArray) -> None:
        """Count continuations, by their sources and scores."""
        np.maximum.at(self.best, sources, total)
        self.count[why] += np.bincount(sources, minlength=len(self.best))
        self.mass[why] += np.bincount(sources, np.exp(total), minlength=len(self.best))

    def none(self, i: int) -> bool:
        """Whether the search of source i left nothing out."""
        return not self.count[:, i].any()

    def reason(self, i: int, beam: int, limit: int) -> str:
        """The certificate as a sentence, or what is missing for it."""
        if self.none(i):
            return (
                "Exact and complete: no possible continuation was pruned and every branch ended, "
                "so no other string has a probability above zero."
            )
        fates = {
            _PRUNED: f"pruned, first at step {self.first_pruned[i]} (beam {beam})",
            _CUT: f"still open at the limit of {limit} tokens",
            _HIDDEN: "too improbable for the model's floating-point type",
        }
        parts = []
        for why, fate in fates.items():
            if n := self.count[why, i]:
                noun, verb = ("continuation", "was") if n == 1 else ("continuations", "were")
                mass = "" if why == _HIDDEN else f" of mass {_mass(self.mass[why, i])}"
                parts.append(f"{n} possible {noun}{mass} {verb} {fate}")
        if self.count[_OPEN, i]:
            parts.append("the search stopped with prefixes open")
        return f"Not proved complete: {', and '.join(parts)}."


def _mass(mass: float) -> str:
    """A sum of probabilities, in its significant digits.

    >>> _mass(0.0312), _mass(5e-324)
    ('0.031', 'below 1e-300')
    """
    return f"{mass:.2g}" if mass >= _LEAST_SHOWN else f"below {_LEAST_SHOWN:.0e}"


def _dense_reason(mass: float, zeros: np.bool_) -> str:
    why = "a dense output mapping gives every continuation a probability above zero, "
    if zeros:
        why = "the zeros of the output mapping are not proved, "
    return (
        f"Never complete: {why}so infinitely many strings are possible; the listed ones hold mass "
        f"{mass:.4g}."
    )
