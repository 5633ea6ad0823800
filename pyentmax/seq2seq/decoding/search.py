"""One search behind beams, best-first search and complete lists, with one certificate.

Open prefixes wait in a pool, by source and best first. A round expands the best prefixes of every
source in one step of the model, puts their continuations into the pool, and cuts the pool to the
room of each source:

    search      room of a source    a round expands     ends when
    beam        ``width``           all prefixes        nothing is open, or enough is settled
    best first  remaining budget    the ``width`` best  so, or the budget is used up

A prefix is at least as probable as every string that begins with it. Whatever a search gives up
goes to `Missing`, which keeps a bound on the best of it and on its sum; the list is complete if and
only if nothing is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pyentmax.seq2seq.decoding._shared import length_limits, refuse_stuck
from pyentmax.seq2seq.decoding.hypotheses import Hypothesis, SearchResult, bounds_text, proved_text
from pyentmax.seq2seq.models.protocol import BoolArray, FloatArray, IntArray, Step, take, unseen

# Why something is missing: for the words of a result only, proofs do not look at it.
OPEN, PRUNED, TOO_LONG, HIDDEN, BUDGET = 0, 1, 2, 4, 8


class Missing:
    """An upper bound on what a search does not list; `add` is the only way to give something up.

    Attributes
    ----------
    best : (2, sources) array
        The best log-probability that each source gave up, and that of what is within the length
        limit. Nothing is missing only where it is −∞: a finite one counts although its exp is 0.
    mass : (sources,) array
        The sum of the probabilities.
    why : (sources,) int array
        The causes, as bits.
    """

    def __init__(self, sources: int) -> None:
        self.best, self.mass = np.full((2, sources), -np.inf), np.zeros(sources)
        self.why = np.zeros(sources, dtype=np.int64)

    def add(self, why: int, sources: IntArray, scores: FloatArray, mass: Any = None) -> None:
        """Give up prefixes, by their sources and log-probabilities; with the mass if it is less."""
        for best in self.best[: 1 if why == TOO_LONG else 2]:
            np.maximum.at(best, sources, scores)
        self.mass += np.bincount(sources, np.exp(scores) if mass is None else mass, len(self.mass))
        np.bitwise_or.at(self.why, sources, why)


class Prefixes(NamedTuple):
    """Open prefixes, by source and, within a source, from the best down.

    Attributes
    ----------
    source, score, length, token : arrays
        Of each prefix its source, log-probability, number of tokens and last token.
    node : int array
        Its place in the `Tree`.
    block, row : int arrays
        The round whose state it continues from, and its row there.
    """

    source: IntArray
    score: FloatArray
    length: IntArray
    token: IntArray
    node: IntArray
    block: IntArray
    row: IntArray

    def at(self, places: Any) -> Prefixes:
        """The prefixes at these places."""
        return Prefixes(*(x[places] for x in self))


class Tree:
    """Parent, token and length of every prefix that was ever open, the empty ones first."""

    def __init__(self, sources: int, bos: int) -> None:
        root = np.zeros(sources, dtype=np.int64)
        self.columns: list[tuple[IntArray, ...]] = [(root, root + bos, root)]
        self.size = sources
        self.expanded: list[tuple[IntArray, FloatArray]] = []  # nodes of a round, their attention

    def add(self, parent: IntArray, token: IntArray, length: IntArray) -> IntArray:
        """Add prefixes; their nodes."""
        self.columns.append((parent, token, length))
        self.size += len(parent)
        return np.arange(self.size - len(parent), self.size)

    def hypotheses(
        self, source: IntArray, log_prob: FloatArray, node: IntArray, finished: BoolArray, mask: Any
    ) -> list[Hypothesis]:
        """The strings that end at some nodes, with the attention of each step that wrote them."""
        parent, token, length = map(np.concatenate, zip(*self.columns, strict=True))
        n = length[node]
        path = np.zeros((len(node), n.max(initial=0) + 1), dtype=np.int64)
        path[np.arange(len(node)), n] = node
        for t in range(path.shape[1] - 1, 0, -1):
            longer = np.flatnonzero(n >= t)
            path[longer, t - 1] = parent[path[longer, t]]
        tokens = token[path[:, 1:]][np.arange(path.shape[1] - 1) < n[:, None]].tolist()
        stops = np.cumsum(n).tolist()
        strings = [tuple(tokens[a:b]) for a, b in zip([0, *stops], stops, strict=False)]
        weights: list[Any] = [None] * len(node)
        if self.expanded:
            nodes, attention = map(np.concatenate, zip(*self.expanded, strict=True))
            place = np.zeros(self.size, dtype=np.int64)
            place[nodes] = np.arange(len(nodes))
            rows = zip(path, (n + finished).tolist(), source.tolist(), strict=True)
            weights = [attention[place[p[:k]]][:, mask[i]] for p, k, i in rows]
        return list(map(Hypothesis, strings, log_prob.tolist(), weights, finished.tolist()))


class Ends:
    """Where strings ended, or prefixes that cannot go on did.

    Attributes
    ----------
    columns : list of (source, log-probability, node, rank, length, finished) arrays
        A rank is what a search compares: the log-probability, or its mean over the tokens.
    best : (sources, at most enough) array
        The best ranks of strings that are finished, in descending order.
    """

    def __init__(self, sources: int, enough: float, normalize: bool) -> None:
        self.enough, self.normalize = enough, normalize
        self.columns: list[tuple[Any, ...]] = []
        self.best = np.empty((sources, 0))  # grows, since a list may be far shorter than enough

    def add(
        self, prefixes: Prefixes, places: IntArray, score: FloatArray, finished: bool = True
    ) -> None:
        """The prefixes at these places, in the order of sources, end with these scores."""
        if not places.size:
            return
        source, _, length, _, node, _, _ = prefixes.at(places)
        rank = score / (length + 1) if self.normalize else score
        self.columns.append((source, score, node, rank, length, np.full(len(source), finished)))
        if finished and self.enough < math.inf:
            place = _ranks(source)
            new = np.full((len(self.best), place.max() + 1), -np.inf)
            new[source, place] = rank
            both = np.concatenate([self.best, new], axis=1)
            self.best = -np.sort(-both, axis=1)[:, : int(self.enough)]

    def settled(self, source: IntArray, most: FloatArray) -> BoolArray:
        """Whether a source has enough strings that are at least as good as ``most``, by rank."""
        if self.best.shape[1] < self.enough:
            return np.zeros(len(source), dtype=bool)
        return self.best[source, -1] >= most


@dataclass(frozen=True)
class Plan:
    """A kind of search.

    Attributes
    ----------
    best_first : bool
        Whether the ``width`` best prefixes of a source are expanded while others wait; else all of
        them are, and no more than ``width`` stay open.
    enough : float
        How many strings have to be settled; infinity for all.
    budget : float
        The most prefixes of a source that are expanded.
    normalize, max_length, keep_attention, prove : as in `beam_search`
    """

    best_first: bool
    width: int
    enough: float = math.inf
    budget: float = math.inf
    normalize: bool = False
    max_length: int | None = None
    keep_attention: bool = True
    prove: bool = True


def search(model: Any, source: IntArray, mask: BoolArray, plan: Plan) -> list[SearchResult]:
    """The result of each source."""
    return _Search(model, mask, plan).run(source) if len(source) else []


class _Search:
    """A search that is running."""

    def __init__(self, model: Any, mask: BoolArray, plan: Plan) -> None:
        self.model, self.mask, self.plan = model, mask, plan
        sources = len(mask)
        self.limit = length_limits(mask, plan.max_length)
        self.sparse = plan.prove and model.output_is_sparse  # so that a list may be complete
        self.missing, self.tree = Missing(sources), Tree(sources, model.bos)
        self.ends = Ends(sources, plan.enough, plan.normalize)
        self.expanded = np.zeros(sources, dtype=np.int64)
        self.zeros = np.zeros(sources, dtype=bool)  # sources with a support that is not all

    def run(self, source: IntArray) -> list[SearchResult]:
        """Expand prefixes until none is open; the result of each source."""
        model, roots = self.model, np.arange(len(source))
        none = np.zeros_like(roots)
        pool = Prefixes(roots, np.zeros(len(roots)), none, none + model.bos, roots, none, roots)
        blocks = {0: (model.encode(source, self.mask), len(roots))}
        number = 0
        while pool.source.size:
            number += 1
            chosen, waiting = self._choose(pool)
            state = _state(blocks, chosen, waiting)
            step, state = model.step(state, chosen.token, self.plan.prove)
            if self.plan.keep_attention:
                self.tree.expanded.append((chosen.node, step.attention))
            room = self._room(chosen)
            pool = self._children(step, chosen, room, number)
            if waiting is not None:
                columns: Any = map(np.concatenate, zip(waiting, pool, strict=True))
                both = Prefixes(*columns)
                both = both.at(np.argsort(both.source, kind="stable"))
                pool = both.at(self._cut(both.source, both.score, room))
            pool = self._open(pool, room)
            blocks[number] = state, len(chosen.source)
            blocks = {b: blocks[b] for b in (set(pool.block.tolist()) if waiting else [number])}
        return self._results()

    def _choose(self, pool: Prefixes) -> tuple[Prefixes, Prefixes | None]:
        """The prefixes of the next round, and those that wait."""
        if self.plan.best_first:
            most = np.minimum(self.plan.width, self.plan.budget - self.expanded)
            first = _ranks(pool.source) < most[pool.source]
            if not first.all():
                return pool.at(first), pool.at(~first)
        return pool, None

    def _room(self, chosen: Prefixes) -> FloatArray:
        """The number of prefixes of each source that may be open after this round."""
        if not self.plan.best_first:
            return np.full(len(self.mask), self.plan.width)
        self.expanded += np.bincount(chosen.source, minlength=len(self.mask))
        return self.plan.budget - self.expanded + 1  # one stays, to be shown if nothing ends

    def _children(self, step: Step, chosen: Prefixes, room: FloatArray, number: int) -> Prefixes:
        """Extend the chosen prefixes by a token, to at most ``room`` prefixes for each source."""
        rows, tokens, total, stuck = self._continuations(step, chosen, room)
        ended = tokens == self.model.eos
        self.ends.add(chosen, rows[ended], total[ended])
        goes_on = ~ended
        too_long = chosen.length == self.limit[chosen.source]
        stuck |= too_long
        if stuck.any():
            self.ends.add(chosen, np.flatnonzero(stuck), chosen.score[stuck], finished=False)
            long = goes_on & too_long[rows]
            self.missing.add(TOO_LONG, chosen.source[rows[long]], total[long])
            goes_on &= ~long
        rows, tokens, total = rows[goes_on], tokens[goes_on], total[goes_on]
        kept = self._cut(chosen.source[rows], total, room)
        rows, tokens, length = rows[kept], tokens[kept], chosen.length[rows[kept]] + 1
        node = self.tree.add(chosen.node[rows], tokens, length)
        block = np.full_like(rows, number)
        return Prefixes(chosen.source[rows], total[kept], length, tokens, node, block, rows)

    def _continuations(
        self, step: Step, chosen: Prefixes, room: FloatArray
    ) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
        """Rows, tokens and scores of what may come next; which rows have hidden tokens alone."""
        log_prob, support, prove = step.log_prob, step.support, self.plan.prove
        vocabulary, full, bars = log_prob.shape[1], support.all(), None
        if not (self.sparse or full):
            self.zeros[chosen.source[~support.all(axis=1)]] = True
        # Of many tokens only those that may be among the best are looked at: with the end symbol
        # and one that is cut, two more than there is room for.
        if full and 4 * room.max() < vocabulary > 64:
            bars = _bars(log_prob, int(room.max()) + 2)
        listed = support if bars is None else log_prob >= bars[:, None]
        if bars is not None:
            listed[:, self.model.eos] = True
        rows, tokens = np.divmod(np.flatnonzero(listed), vocabulary)  # far faster than np.nonzero
        each = log_prob[rows, tokens]
        # A probability that rounding lifts above 1 would break the bounds.
        total = chosen.score[rows] + (np.minimum(each, 0) if prove else each)
        if bars is not None:  # all are finite; the others are below the bar, and share the rest
            if prove:
                rest = 1 - np.bincount(rows, np.exp(each, dtype=np.float64))
                mass = np.exp(chosen.score) * np.maximum(rest, 0)
                self.missing.add(PRUNED, chosen.source, chosen.score + np.minimum(bars, 0), mass)
            return rows, tokens, total, np.zeros(len(log_prob), dtype=bool)
        finite, possible = np.isfinite(total), np.zeros(len(log_prob), dtype=bool)
        possible[rows[finite]] = True
        refuse_stuck(step, possible, chosen.source, chosen.length)
        if not finite.all():
            r, t = rows[~finite], tokens[~finite]
            # A NaN may hide anything: 0 is its bound.
            most = np.where(np.isneginf(log_prob[r, t]), unseen(step)[r], 0.0)
            self.missing.add(HIDDEN, chosen.source[r], chosen.score[r] + most)
            rows, tokens, total = rows[finite], tokens[finite], total[finite]
        return rows, tokens, total, ~possible

    def _cut(self, source: IntArray, score: FloatArray, room: FloatArray) -> IntArray:
        """Places of the best of each source, as many as there is room for; others are missing."""
        kept = _best(source, score, room)
        if self.plan.prove and len(kept) < len(score):
            cut = np.ones(len(score), dtype=bool)
            cut[kept] = False
            why = BUDGET if self.plan.best_first else PRUNED
            self.missing.add(why, source[cut], score[cut])
        return kept

    def _open(self, pool: Prefixes, room: FloatArray) -> Prefixes:
        """The pool without sources that are settled or have no budget left.

        No string is more probable than its prefixes, and its log-probability is divided by at most
        L + 1. So once enough strings are at least as good as a prefix can become, no better one can
        follow from it.
        """
        source, first = pool.source, np.searchsorted(pool.source, pool.source)
        # A beam goes on with all of a source's prefixes, or with none.
        rival = pool.score if self.plan.best_first else pool.score[first]
        over = self.ends.settled(source, self._most(rival, source))
        if self.plan.best_first:
            spent = room[source] <= 1
            np.bitwise_or.at(self.missing.why, source[spent], BUDGET)
            over |= spent
        if not over.any():
            return pool
        self.missing.add(OPEN, source[over], pool.score[over])
        best = np.flatnonzero(over & (first == np.arange(len(first))))
        self.ends.add(pool, best, pool.score[best], finished=False)
        return pool.at(~over)

    def _most(self, score: FloatArray, source: Any) -> FloatArray:
        """The highest rank of a string through prefixes with these scores."""
        return score / (self.limit[source] + 1) if self.plan.normalize else score

    def _results(self) -> list[SearchResult]:
        """The list of each source, and what is proved of it."""
        plan, missing, columns = self.plan, self.missing, zip(*self.ends.columns, strict=True)
        source, log_prob, node, rank, length, finished = map(np.concatenate, columns)
        ended = source[finished]
        masses = np.bincount(ended, np.exp(log_prob[finished]), len(self.mask)).tolist()
        # Prefixes are shown only where no string ended.
        order = np.flatnonzero(finished | ~np.isin(source, ended))
        order = order[np.lexsort((length[order], -rank[order], source[order]))]
        source, rank, finished = source[order], rank[order], finished[order]
        ends = source, log_prob[order], node[order], finished
        hypotheses = self.tree.hypotheses(*ends, self.mask)
        stops, results = np.searchsorted(source, np.arange(len(self.mask) + 1)).tolist(), []
        rivals = self._most(missing.best[int(plan.normalize)], slice(None))
        for i, mass in enumerate(masses):
            mine = slice(stops[i], stops[i + 1])
            exact = bool(self.sparse and missing.best[0, i] == -np.inf)
            proved, bound, rest = 0, 1.0, 1.0
            if plan.prove:
                proved = int(np.count_nonzero(finished[mine] & (rank[mine] >= rivals[i])))
                bound = math.exp(missing.best[0, i])
                rest = max(float(missing.mass[i]), bound)
            reason = self._reason(i, proved, bound, rest, exact)
            claims = exact, mass, reason, proved, bound, rest
            results.append(SearchResult(tuple(hypotheses[mine]), *claims))
        return results

    def _reason(self, i: int, proved: int, bound: float, rest: float, exact: bool) -> str:
        """Why the list of source i is complete, or not, and what is proved of it nevertheless."""
        plan, limit, sentences = self.plan, self.limit[i], []
        if exact:
            beam = "no possible continuation was pruned and every branch ended"
            why = "every possible prefix was expanded" if plan.best_first else beam
            return f"Exact and complete: {why}, so no other string has a probability above zero."
        if not plan.prove:
            return "Never complete: the search was asked to prove nothing."
        if not self.sparse:
            why = "Without proof of its zeros an" if self.zeros[i] else "A dense"
            sentences.append(f"{why} output mapping makes infinitely many strings possible.")
        among = f" by mean log-probability among strings of at most {limit} tokens"
        claim = proved_text(proved) or "No string is proved to be the best"
        sentences.append(f"{claim}{among if plan.normalize else ''}.")
        sentences.append(bounds_text(bound, rest))
        causes = {
            PRUNED: f"Possible continuations were pruned (beam {plan.width}).",
            BUDGET: f"The budget of {plan.budget} prefixes is used up.",
            TOO_LONG: f"Strings beyond the limit of {limit} tokens are possible.",
            HIDDEN: "Some are too improbable for the model's floating-point type.",
        }
        sentences += [text for cause, text in causes.items() if self.missing.why[i] & cause]
        return " ".join(sentences)


def _state(blocks: dict[int, tuple[Any, int]], chosen: Prefixes, waiting: Prefixes | None) -> Any:
    """The state with a row for each chosen prefix, into whose arrays the model may write."""
    numbers = [*blocks] if len(blocks) == 1 else np.unique(chosen.block).tolist()
    states, rows = zip(*(blocks[number] for number in numbers), strict=True)
    if len(states) > 1:
        return take(states, np.searchsorted(numbers, chosen.block), chosen.row)
    shared = waiting is not None and numbers[0] in waiting.block
    if shared or not np.array_equal(chosen.row, np.arange(*rows)):
        return take(states, None, chosen.row)
    return states[0]


def _ranks(source: IntArray) -> IntArray:
    """The place of each among those of its source; sources are in order."""
    return np.arange(len(source)) - np.searchsorted(source, source)


def _bars(log_prob: FloatArray, least: int) -> FloatArray | None:
    """For each row a number that ``least`` or more of its entries reach, but not many more.

    The entries are dealt to disjoint parts. At least k of the row reach the k-th largest of the
    largest ones of these; to select the k-th largest of the row takes many passes. None if there is
    a NaN or an infinity.
    """
    rows, width = log_prob.shape
    parts = max(least, int(width**0.5))
    whole = width // parts * parts
    largest = log_prob[:, :whole].reshape(rows, -1, parts).max(axis=1)
    np.maximum(largest[:, : width - whole], log_prob[:, whole:], out=largest[:, : width - whole])
    if not (math.isfinite(log_prob.min()) and math.isfinite(largest.max())):
        return None
    bars: FloatArray = np.partition(largest, parts - least, axis=1)[:, parts - least]
    return bars


def _best(source: IntArray, score: FloatArray, room: FloatArray) -> IntArray:
    """Places of the best of every source, as many as it has room for, by source and rank.

    Sources are in order. Ties keep their order: the better prefix first, then the lower token.
    """
    listed, counts = np.arange(len(score)), np.bincount(source, minlength=len(room))
    # To sort a whole dense support costs more than first to select the best, with their ties.
    if len(score) > 4 * np.minimum(room, counts).sum():
        present = np.flatnonzero(counts)
        padded = np.full((len(present), counts.max()), -np.inf)
        padded[np.arange(padded.shape[1]) < counts[present, None]] = score
        if (k := int(room.max())) < padded.shape[1]:
            bars = np.partition(padded, -k, axis=1)[:, -k]
            listed = np.flatnonzero(score >= bars.repeat(counts[present]))
    order: IntArray = listed[np.lexsort((-score[listed], source[listed]))]
    return order[_ranks(source[order]) < room[source[order]]]
