"""Beam search that says whether its list of hypotheses is exact and complete.

A sparse output mapping gives most continuations a probability of exactly zero, so that the strings
which a model finds possible may be few. If the beam never had to throw one of them away, it has
enumerated them all, and what it found is not an approximation (Peters et al. 2019, §4.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.decoding._inputs import (
    checked_source,
    length_limits,
    positive,
    possible_continuations,
)
from pyentmax.decoding.hypotheses import Hypothesis, SearchResult
from pyentmax.models.protocol import BoolArray, Decodable, FloatArray, IntArray

__all__ = ["beam_search"]

State = TypeVar("State")


def beam_search(
    model: Decodable[State],
    source: ArrayLike,
    source_mask: ArrayLike,
    *,
    beam: int = 5,
    max_length: int | None = None,
    keep_attention: bool = True,
) -> list[SearchResult]:
    r"""Decode each source with a beam, and prove the result complete where that is possible.

    Every step advances the open prefixes of all sources in one call of ``model.step``. A prefix
    that can end gives a finished hypothesis, which leaves the beam and is kept; of all the other
    continuations with a probability above zero each source keeps the ``beam`` most probable (of
    equally probable ones that with the better prefix, then the lower token id).

    The result is **exact**, which includes complete, if and only if no continuation in the support
    of the output mapping was pruned and none was left open at the length limit. Then the listed
    probabilities sum to 1. The support is read from the mapping (``Step.support``); a continuation
    in it whose probability rounds to zero is not impossible, only too improbable for its float
    type, and it makes the list unproved.

    With a sparse output mapping the search goes on until nothing is open. With a dense one
    (``model.output_is_sparse`` is False) it stops once ``beam`` finished hypotheses are at least as
    probable as the best open prefix, and is never exact.

    Parameters
    ----------
    model : Decodable
        The model to decode.
    source, source_mask : (B, S) int array, (B, S) bool array
        Token ids and True where they are real.
    beam : int
        Most open prefixes that each source keeps per step.
    max_length : int, optional
        Most tokens of a hypothesis, the end symbol not counted; 2 × source length + 10 by default.
    keep_attention : bool
        Whether hypotheses carry their attention weights.

    Returns
    -------
    list of B SearchResult
        In the order of the sources.

    Raises
    ------
    ValueError
        If the arrays do not fit together, ``beam`` or ``max_length`` is under 1, or the model gives
        some row no token at all (as NaN scores do).

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.1 and Figure 1.

    Examples
    --------
    A model that writes token 2 or 3 and then ends:

    >>> import numpy as np
    >>> from pyentmax.decoding import Step, beam_search
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
    """
    source, source_mask = checked_source(source, source_mask)
    beam = positive("beam", beam)
    limit = length_limits(source_mask, max_length)
    sentences = len(source)
    if sentences == 0:
        return []

    trail = _Trail(keep_attention)
    losses = _Losses(sentences)
    finished, unfinished = _Ends(sentences, beam), _Ends(sentences, beam)
    state = model.encode(source, source_mask)
    # One row per open prefix, ordered by source and, within a source, from the best prefix down.
    owner = np.arange(sentences)
    score = np.zeros(sentences)
    tokens = np.full(sentences, model.bos)
    length = 0
    while owner.size:
        step, state = model.step(state, tokens)
        trail.look(step.attention)
        total = score[:, None] + step.log_prob
        possible = possible_continuations(step, total, owner, length)
        losses.underflow(owner, step.support & ~possible)

        finished.add(np.flatnonzero(possible[:, model.eos]), owner, total[:, model.eos], length)
        possible[:, model.eos] = False

        at_limit = limit[owner] == length
        if at_limit.any():
            unfinished.add(np.flatnonzero(at_limit), owner, score, length)
            losses.cut(owner, total, possible & at_limit[:, None])
            possible[at_limit] = False

        rows, tokens = _best_continuations(total, possible, owner, beam)
        if model.output_is_sparse:
            possible[rows, tokens] = False  # what is left now is pruned
            losses.prune(owner, total, possible, length + 1)
        else:
            going = ~finished.settled(owner[rows], total[rows, tokens])
            rows, tokens = rows[going], tokens[going]

        if rows.size and not np.array_equal(rows, np.arange(len(owner))):
            state = model.select(state, rows)
        owner, score = owner[rows], total[rows, tokens]
        trail.grow(rows, tokens)
        length += 1

    hypotheses = _listed(trail, finished, unfinished, source_mask)
    masses = finished.masses()
    results = []
    for i in range(sentences):
        mass = float(masses[i])
        exact = model.output_is_sparse and losses.none(i)
        reason = (
            losses.reason(i, beam, int(limit[i])) if model.output_is_sparse else _dense_reason(mass)
        )
        proved, left = (len(hypotheses[i]), 0.0) if exact else (0, 1.0)
        results.append(
            SearchResult(
                tuple(hypotheses[i]), exact, mass, reason, proved, bound=left, mass_bound=left
            )
        )
    return results


def _best_continuations(
    total: FloatArray, possible: BoolArray, owner: IntArray, beam: int
) -> tuple[IntArray, IntArray]:
    """Rows and tokens of the ``beam`` best continuations of every source, by source and rank."""
    vocabulary = possible.shape[1]
    if vocabulary > beam and 10 * np.count_nonzero(possible) > possible.size:
        # Sorting all of a dense support would cost more than finding each row's beam-th score
        # first, under which nothing can be kept. Ties with it stay in, for the order below.
        masked = np.where(possible, total, -np.inf)
        bar = np.partition(masked, vocabulary - beam, axis=1)[:, vocabulary - beam, None]
        possible = possible & (total >= bar)
    rows, tokens = np.nonzero(possible)
    # nonzero lists by row, then token, and lexsort is stable: ties fall to the better prefix, then
    # to the lower token id.
    order = np.lexsort((-total[rows, tokens], owner[rows]))
    rows, tokens = rows[order], tokens[order]
    first = np.searchsorted(owner[rows], owner[rows])
    kept = np.arange(len(rows)) - first < beam
    return rows[kept], tokens[kept]


class _Ends:
    """Where hypotheses ended, in the order in which they were found.

    Attributes
    ----------
    places : list of (owner, log_prob, length, row) arrays
        The source, the score, and which row it had when it was ``length`` tokens long.
    best : (sources, beam) array
        The best scores of each source, from the best down; −∞ where there is none.
    """

    def __init__(self, sentences: int, beam: int) -> None:
        self.places: list[tuple[IntArray, FloatArray, IntArray, IntArray]] = []
        self.best = np.full((sentences, beam), -np.inf)

    def add(self, rows: IntArray, owner: IntArray, score: FloatArray, length: int) -> None:
        """The prefixes in these rows, ordered by source, ended with these scores."""
        if not rows.size:
            return
        sources, scores = owner[rows], score[rows]
        self.places.append((sources, scores, np.full_like(rows, length), rows))
        new = np.full_like(self.best, -np.inf)
        new[sources, np.arange(len(rows)) - np.searchsorted(sources, sources)] = scores
        both = np.concatenate([self.best, new], axis=1)
        self.best = -np.sort(-both, axis=1)[:, : self.best.shape[1]]

    def settled(self, owner: IntArray, score: FloatArray) -> BoolArray:
        """For each kept prefix, whether its source's ``beam`` best hypotheses are final.

        No hypothesis is more probable than a prefix of it, so once ``beam`` of them reach the best
        open prefix of their source, going on cannot bring a better one.
        """
        first = np.searchsorted(owner, owner)  # the best prefix of a source comes first
        settled: BoolArray = self.best[owner, -1] >= score[first]
        return settled

    def masses(self) -> FloatArray:
        """The sum of the probabilities of each source."""
        owner, score = self.joined()[:2]
        masses: NDArray[Any] = np.bincount(owner, np.exp(score), minlength=len(self.best))
        return masses

    def joined(self) -> list[NDArray[Any]]:
        """Sources, scores, lengths and rows of all of them."""
        nothing = tuple(np.zeros(0, dtype) for dtype in (np.int64, np.float64, np.int64, np.int64))
        return [np.concatenate(parts) for parts in zip(nothing, *self.places, strict=True)]


def _listed(
    trail: _Trail, finished: _Ends, unfinished: _Ends, source_mask: BoolArray
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, best first; open prefixes where none was finished."""
    ended, cut = finished.joined(), unfinished.joined()
    alone = ~np.isin(cut[0], ended[0])
    whole = np.arange(len(ended[0]) + np.count_nonzero(alone)) < len(ended[0])
    places = [np.concatenate([a, b[alone]]) for a, b in zip(ended, cut, strict=True)]
    order = np.lexsort((-places[1], places[0]))
    owner, score, length, row = (part[order] for part in places)
    whole = whole[order]
    rows = trail.rows(length, row)
    tokens, looks = trail.tokens_along(rows), trail.attention_along()
    listed: list[list[Hypothesis]] = [[] for _ in source_mask]
    for k, (i, n, is_whole) in enumerate(zip(owner.tolist(), length.tolist(), whole, strict=True)):
        attention = None
        if looks is not None:
            seen = n + 1 if is_whole else n
            attention = looks(rows[k, :seen])[:, source_mask[i]]
        listed[i].append(
            Hypothesis(tuple(tokens[k][:n]), float(score[k]), attention, bool(is_whole))
        )
    return listed


class _Trail:
    """The way back from any row to its tokens and attention, without copying prefixes around.

    ``parents[t][r]`` is the row, one step earlier, of the prefix whose token t + 1 made row r.
    """

    def __init__(self, keep_attention: bool) -> None:
        self.keep_attention = keep_attention
        self.parents: list[IntArray] = []
        self.tokens: list[IntArray] = []
        self.attention: list[FloatArray] = []

    def look(self, attention: FloatArray) -> None:
        """Record where the open rows look when they choose their next token."""
        if self.keep_attention:
            self.attention.append(attention)

    def grow(self, parents: IntArray, tokens: IntArray) -> None:
        """Record the new rows."""
        self.parents.append(parents)
        self.tokens.append(tokens)

    def rows(self, length: IntArray, row: IntArray) -> IntArray:
        """The row of each hypothesis at every step from 0 to its length; 0 behind."""
        rows = np.zeros((len(row), max(length, default=0) + 1), dtype=np.int64)
        rows[np.arange(len(row)), length] = row
        for t in reversed(range(rows.shape[1] - 1)):
            longer = np.flatnonzero(length > t)
            rows[longer, t] = self.parents[t][rows[longer, t + 1]]
        return rows

    def tokens_along(self, rows: IntArray) -> list[list[int]]:
        """The tokens on the way of each hypothesis, as long as its row is true."""
        steps = rows.shape[1] - 1
        if not steps:
            return [[] for _ in rows]
        columns = [self.tokens[t][rows[:, t + 1]] for t in range(steps)]
        tokens: list[list[int]] = np.stack(columns, axis=1).tolist()
        return tokens

    def attention_along(self) -> Callable[[IntArray], FloatArray] | None:
        """A function from the rows of a way to the weights there; None if none were kept."""
        if not self.attention:
            return None
        all_rows = np.concatenate(self.attention)
        start = np.cumsum([0] + [len(part) for part in self.attention])

        def along(rows: IntArray) -> FloatArray:
            weights: FloatArray = all_rows[start[: len(rows)] + rows]
            return weights

        return along


class _Losses:
    """Per source, everything possible that a search left out: what stands against the certificate.

    Counts decide, not masses: a mass may round to zero and its strings are possible all the same.
    """

    def __init__(self, sentences: int) -> None:
        self.pruned = np.zeros(sentences, dtype=np.int64)
        self.pruned_mass = np.zeros(sentences)
        self.pruned_first = np.zeros(sentences, dtype=np.int64)
        self.cut_off = np.zeros(sentences, dtype=np.int64)
        self.cut_mass = np.zeros(sentences)
        self.underflowed = np.zeros(sentences, dtype=np.int64)

    def prune(self, owner: IntArray, total: FloatArray, lost: BoolArray, step: int) -> None:
        """``lost`` continuations did not fit into the beam."""
        count, mass = self._sums(owner, total, lost)
        self.pruned_first[(self.pruned == 0) & (count > 0)] = step
        self.pruned += count
        self.pruned_mass += mass

    def cut(self, owner: IntArray, total: FloatArray, lost: BoolArray) -> None:
        """``lost`` continuations were open at the length limit."""
        count, mass = self._sums(owner, total, lost)
        self.cut_off += count
        self.cut_mass += mass

    def underflow(self, owner: IntArray, lost: BoolArray) -> None:
        """``lost`` continuations are in the support, but their probability is no positive float."""
        np.add.at(self.underflowed, owner[np.nonzero(lost)[0]], 1)

    def _sums(
        self, owner: IntArray, total: FloatArray, lost: BoolArray
    ) -> tuple[IntArray, FloatArray]:
        rows, tokens = np.nonzero(lost)
        mass = np.zeros(len(self.pruned))
        np.add.at(mass, owner[rows], np.exp(total[rows, tokens]))
        return np.bincount(owner[rows], minlength=len(mass)), mass

    def none(self, i: int) -> bool:
        """Whether the search of source i left out nothing."""
        return not (self.pruned[i] or self.cut_off[i] or self.underflowed[i])

    def reason(self, i: int, beam: int, limit: int) -> str:
        """The sentence of the certificate, or the one that says what is missing for it."""
        if self.none(i):
            return (
                "Exact and complete: no possible continuation was pruned and every branch ended, "
                "so no other string has a probability above zero."
            )
        parts = []
        if n := self.pruned[i]:
            parts.append(
                f"{_continuations(n)} of mass {self.pruned_mass[i]:.2g} {_were(n)} pruned, "
                f"first at step {self.pruned_first[i]} (beam {beam})"
            )
        if n := self.cut_off[i]:
            parts.append(
                f"{_continuations(n)} of mass {self.cut_mass[i]:.2g} {_were(n)} still open at the "
                f"limit of {limit} tokens"
            )
        if n := self.underflowed[i]:
            parts.append(
                f"{_continuations(n)} {_were(n)} too improbable for the model's floating-point type"
            )
        return "Not proved complete: " + ", and ".join(parts) + "."


def _continuations(n: int) -> str:
    return f"{n} possible continuation{'' if n == 1 else 's'}"


def _were(n: int) -> str:
    return "was" if n == 1 else "were"


def _dense_reason(mass: float) -> str:
    return (
        "Never complete: a dense output mapping gives every continuation a probability above zero, "
        f"so infinitely many strings are possible; the listed ones hold mass {mass:.4g}."
    )
