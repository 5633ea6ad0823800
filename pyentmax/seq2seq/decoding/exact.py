"""Best-first search that proves its result, or bounds the probability that it did not explore.

A prefix is at least as probable as every string that begins with it. So the most probable open
prefix bounds all strings that were not found yet, and the sum over the open prefixes bounds their
total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, nlargest
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.seq2seq.decoding._shared import as_source, length_limits, positive, refuse_stuck
from pyentmax.seq2seq.decoding.hypotheses import Hypothesis, SearchResult, bounds_text, proved_text
from pyentmax.seq2seq.models.protocol import FloatArray, JoinableDecodable, unseen

State = TypeVar("State")


def exact_search(
    model: JoinableDecodable[State],
    source: ArrayLike,
    source_mask: ArrayLike,
    *,
    n_best: int | None = 1,
    budget: int = 1000,
    normalize: bool = False,
    max_length: int | None = None,
    width: int = 5,
    keep_attention: bool = True,
) -> list[SearchResult]:
    r"""The most probable strings of each source with a proof, or all that are possible.

    The open prefixes of a source wait in the order of their probability. Each step of the model
    expands the ``width`` best ones of every source together; whether a string is proved does not
    depend on the width. Let :math:`s(x)` be the log-probability of prefix x. No further token has a
    probability above 1, so a string y through x has :math:`\log p(y) \le s(x)`. Therefore, with

    - **plain** scores :math:`\log p(y)`, y is proved to be among the best once none of the open
      prefixes x has :math:`s(x) > \log p(y)`. This holds among all strings, however long, because
      a prefix at the length limit is never expanded and stays open to the end;
    - **length-normalised** scores :math:`\log p(y) / (|y| + 1)`, where the end symbol counts,
      strings of at most L tokens have :math:`1 \le |y| + 1 \le L + 1`, and since
      :math:`s(x) \le 0`,

      .. math:: \frac{\log p(y)}{|y|+1} \;\le\; \frac{s(x)}{|y|+1} \;\le\; \frac{s(x)}{L+1}.

      The right side bounds all strings through x of at most L tokens, and the proof is one among
      those: longer strings may score better.

    Both bounds order prefixes in the same way, so both searches go in the order of s. A proof holds
    for the log-probabilities as the model rounds them.

    Parameters
    ----------
    model : JoinableDecodable
    source, source_mask, max_length, keep_attention : as in `beam_search`
    n_best : int or None
        Stop once this many strings are proved to be the best ones. None: list the whole support.
    budget : int
        The largest number of prefixes that are expanded for one source.
    normalize : bool
        Whether strings are compared by log-probability divided by length.
    width : int
        Prefixes of a source that share a step of the model. A width of 1 expands the fewest
        prefixes, which is fastest for the best strings of many sources; a larger one takes fewer
        steps.

    Returns
    -------
    list of B SearchResult
        Everything found, best score first. The first ``proved`` hypotheses are proved to be the
        best; ``bound`` and ``mass_bound`` limit what was not found. The list is ``exact`` if
        nothing was left open. The support of a dense mapping, or of one whose zeros are not proved
        (``model.output_is_sparse`` is False), is infinite, so its list is never exact, although its
        best strings can be proved.

    Raises
    ------
    ValueError
        As in `beam_search`, and if any other number is below 1.

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.1; Stahlberg and
    Byrne (2019), On NMT Search Errors and Model Errors: Cat Got Your Tongue?, §2 (exact search in
    dense models).

    Examples
    --------
    A model that ends with probability 0.1, 0.5 after one token, and always after two:

    >>> import numpy as np
    >>> from pyentmax.seq2seq.decoding import Step, exact_search
    >>> class Words:
    ...     bos, eos, output_is_sparse = 0, 1, True
    ...     table = np.array([[0, 0.1, 0.6, 0.3], [0, 0.5, 0, 0.5], [0, 1, 0, 0]])
    ...     def encode(self, source, source_mask):
    ...         return np.zeros(len(source), int)
    ...     def step(self, length, tokens):
    ...         p = self.table[length]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, np.ones((len(p), 1))), length + 1
    ...     def select(self, length, rows):
    ...         return length[rows]
    ...     def join(self, lengths):
    ...         return np.concatenate(lengths)
    >>> source = np.array([[4]])
    >>> [result] = exact_search(Words(), source, source > 0, n_best=None)
    >>> [(h.tokens, round(h.probability, 2)) for h in result.hypotheses]
    [((2,), 0.3), ((2, 3), 0.3), ((3,), 0.15), ((3, 3), 0.15), ((), 0.1)]
    >>> result.exact
    True
    >>> [result] = exact_search(Words(), source, source > 0, n_best=1, width=1)
    >>> result.best.tokens, result.proved
    ((2,), 1)
    >>> round(result.bound, 2), round(result.mass_bound, 2)
    (0.3, 0.6)
    >>> print(result.reason[:73])
    The best string is proved. No other has a probability above 0.3, all that
    """
    source, source_mask = as_source(source, source_mask)
    requested = math.inf if n_best is None else positive("n_best", n_best)
    budget, width = positive("budget", budget), positive("width", width)
    limits = length_limits(source_mask, max_length)
    sources = len(source)
    if sources == 0:
        return []
    searches = [_Search(int(n), requested, budget, normalize) for n in limits]
    block = _Block(0, model.encode(source, source_mask), sources)
    for row, search in enumerate(searches):
        search.add(0.0, _Prefix(None, model.bos, 0), block, row)

    zeros = False
    while chosen := [(i, o) for i, search in enumerate(searches) for o in search.next(width)]:
        chosen.sort(key=lambda item: item[1].block.number)  # so each state is selected from once
        source_index = np.array([i for i, _ in chosen])
        places = [place for _, place in chosen]
        prefixes = [place.prefix for place in places]
        state = _gather(model, places)
        step, state = model.step(state, np.array([prefix.token for prefix in prefixes]))
        zeros = zeros or not (model.output_is_sparse or step.support.all())
        block = _Block(block.number + 1, state, len(chosen))
        if keep_attention:
            for i, prefix, attention in zip(source_index, prefixes, step.attention, strict=True):
                prefix.attention = attention[source_mask[i]]
        # A probability that rounding lifts above 1 would break the bounds.
        score = np.array([-place.cost for place in places])
        total = score[:, None] + np.minimum(step.log_prob, 0)
        length = np.array([prefix.length for prefix in prefixes])
        possible = step.support & np.isfinite(total)
        refuse_stuck(step, np.any(possible, axis=1), source_index, length)
        hidden = step.support & ~possible
        if hidden.any():
            for row in np.flatnonzero(~possible.any(axis=1)).tolist():
                searches[source_index[row]].stuck.append((-score[row], prefixes[row]))
            # The log-probability of a NaN is unknown: 0 is its bound.
            most = np.where(np.isneginf(step.log_prob), unseen(step)[:, None], 0.0)
            for row, token in zip(*np.nonzero(hidden), strict=True):
                searches[source_index[row]].underflow(score[row] + most[row, token])

        for row in np.flatnonzero(possible[:, model.eos]).tolist():
            searches[source_index[row]].finish(float(total[row, model.eos]), prefixes[row])
        possible[:, model.eos] = False
        # The budget limits how many continuations can still be expanded, the best ones first. One
        # stays in any case, to be shown if nothing ends.
        too_long = length == limits[source_index]
        room = np.array([max(searches[i].budget_left, 1) for i in source_index])
        room[too_long] = 0
        floor = np.array([searches[i].floor for i in source_index])[:, None]
        too_many = np.count_nonzero(possible, axis=1) > room
        too_many |= (possible & (total < floor)).any(axis=1)
        for row in np.flatnonzero(too_many).tolist():
            tokens = np.flatnonzero(possible[row])
            tokens = tokens[np.argsort(-total[row, tokens], kind="stable")]
            closed = tokens[min(room[row], np.count_nonzero(total[row, tokens] >= floor[row])) :]
            searches[source_index[row]].close(total[row, closed], bool(too_long[row]))
            possible[row, closed] = False
            if too_long[row]:
                searches[source_index[row]].stuck.append((-score[row], prefixes[row]))
        rows, tokens = np.nonzero(possible)
        scores = total[rows, tokens].tolist()
        for row, token, child in zip(rows.tolist(), tokens.tolist(), scores, strict=True):
            prefix = _Prefix(prefixes[row], token, prefixes[row].length + 1)
            searches[source_index[row]].add(child, prefix, block, row)
        for search in searches:
            search.trim()

    positions = source_mask.sum(axis=1)
    return [
        search.result(model.output_is_sparse, zeros, int(n) if keep_attention else None)
        for search, n in zip(searches, positions, strict=True)
    ]


@dataclass(slots=True, eq=False)
class _Prefix:
    """A prefix, as its last token and the prefix before it; expanding it sets the attention."""

    parent: _Prefix | None
    token: int
    length: int
    attention: FloatArray | None = None

    def path(self) -> list[_Prefix]:
        """From the empty prefix, whose token is bos, to this one."""
        path = [self]
        while (parent := path[-1].parent) is not None:
            path.append(parent)
        return path[::-1]

    def hypothesis(self, log_prob: float, positions: int | None, *, finished: bool) -> Hypothesis:
        """This prefix as a result, with its attention if ``positions`` of the source are given."""
        path = self.path()
        attention = None
        if positions is not None:
            rows = [node.attention for node in (path if finished else path[:-1])]
            attention = np.array(rows, dtype=float).reshape(len(rows), positions)
        tokens = tuple(node.token for node in path[1:])
        return Hypothesis(tokens, log_prob, attention, finished)


class _Block(NamedTuple):
    """The state after one step of the model, with its number of rows."""

    number: int
    state: Any
    rows: int


class _OpenPrefix(NamedTuple):
    """An open prefix and the row of the state to continue from; ordered best first, then oldest."""

    cost: float  # the negative log-probability
    serial: int
    prefix: _Prefix
    block: _Block
    row: int


class _Unexpanded(NamedTuple):
    """Prefixes that will never be expanded: the score of the best one and their total mass."""

    score: float
    mass: float
    too_long: bool  # because of the length limit


def _gather(model: JoinableDecodable[State], places: Sequence[_OpenPrefix]) -> State:
    """The state with a row for each open prefix, given in the order of their blocks."""
    parts: list[State] = []
    for _, group in groupby(places, key=lambda place: place.block.number):
        members = list(group)
        block = members[0].block
        rows = np.array([place.row for place in members])
        whole = np.array_equal(rows, np.arange(block.rows))
        parts.append(block.state if whole else model.select(block.state, rows))
    return parts[0] if len(parts) == 1 else model.join(parts)


class _Search:
    """The search of one source: its open, finished and unexpanded prefixes."""

    def __init__(self, limit: int, requested: float, budget: int, normalize: bool) -> None:
        self.limit, self.requested = limit, requested
        self.budget, self.normalize = budget, normalize
        self.expanded = self.added = self.underflowed = 0
        self.floor = -math.inf  # the budget cannot reach prefixes with a lower score
        self.open: list[_OpenPrefix] = []  # a heap
        self.finished: list[tuple[float, float, _Prefix]] = []  # rank, log-probability, string
        self.unexpanded: list[_Unexpanded] = []
        # Cost and prefix, where the limit was reached or all continuations are hidden.
        self.stuck: list[tuple[float, _Prefix]] = []

    @property
    def budget_left(self) -> int:
        """The number of prefixes that may still be expanded."""
        return self.budget - self.expanded

    def add(self, score: float, prefix: _Prefix, block: _Block, row: int) -> None:
        """Add an open prefix."""
        heappush(self.open, _OpenPrefix(-score, self.added, prefix, block, row))
        self.added += 1

    def finish(self, log_prob: float, prefix: _Prefix) -> None:
        """Record a finished string."""
        rank = log_prob / (prefix.length + 1) if self.normalize else log_prob
        self.finished.append((rank, log_prob, prefix))

    def close(self, scores: FloatArray, too_long: bool = False) -> None:
        """Record prefixes that will not be expanded."""
        mass = float(np.exp(scores).sum())
        self.unexpanded.append(_Unexpanded(float(scores.max()), mass, too_long))

    def underflow(self, most: float) -> None:
        """Close a token of the support whose log-probability is only known to be at most this."""
        self.close(np.array([most]))
        self.underflowed += 1

    def trim(self) -> None:
        """Close prefixes that the remaining budget cannot reach, since enough better ones wait."""
        reach = self.budget_left + 1  # one stays, to be shown if nothing ends
        if len(self.open) > 2 * reach:
            self.open.sort()
            self.close(np.array([-place.cost for place in self.open[reach:]]))
            del self.open[reach:]
            self.floor = -self.open[-1].cost

    def bound(self, score: float) -> float:
        """The highest rank that a string through an open prefix with this score can have."""
        return score / (self.limit + 1) if self.normalize else score

    def next(self, width: int) -> list[_OpenPrefix]:
        """The next prefixes to expand; none if enough is proved or the budget is used up."""
        bar = -math.inf
        if len(self.finished) >= self.requested:
            bar = nlargest(int(self.requested), (rank for rank, _, _ in self.finished))[-1]
        chosen: list[_OpenPrefix] = []
        while self.open and len(chosen) < width and self.budget_left:
            if self.bound(-self.open[0].cost) <= bar:
                break
            chosen.append(heappop(self.open))
            self.expanded += 1
        return chosen

    def result(self, sparse: bool, zeros: bool, positions: int | None) -> SearchResult:
        """The strings found, and what is proved about them.

        If the mapping is not ``sparse``, ``zeros`` says whether it gave zeros, which then are not
        proved.
        """
        still_open = [_Unexpanded(-o.cost, math.exp(-o.cost), False) for o in self.open]
        unexpanded = self.unexpanded + still_open
        # The comparison by length is among strings within the limit.
        rivals = [x.score for x in unexpanded if not (self.normalize and x.too_long)]
        bar = self.bound(max(rivals, default=-math.inf))
        proved = sum(rank >= bar for rank, _, _ in self.finished)
        hypotheses = [
            (rank, prefix.hypothesis(log_prob, positions, finished=True))
            for rank, log_prob, prefix in self.finished
        ]
        hypotheses.sort(key=lambda item: (-item[0], len(item[1].tokens), item[1].tokens))
        listed = tuple(hypothesis for _, hypothesis in hypotheses)
        if not listed:
            candidates = self.stuck + [(place.cost, place.prefix) for place in self.open]
            cost, prefix = min(candidates, key=lambda item: item[0])
            listed = (prefix.hypothesis(-cost, positions, finished=False),)
        bound = math.exp(max((x.score for x in unexpanded), default=-math.inf))
        mass_bound = float(sum(x.mass for x in unexpanded))
        mass = float(sum(h.probability for h in listed if h.finished))
        reason = self._reason(sparse, zeros, proved, bound, mass_bound)
        exact = sparse and not unexpanded
        return SearchResult(listed, exact, mass, reason, proved, bound, mass_bound)

    def _reason(
        self, sparse: bool, zeros: bool, proved: int, bound: float, mass_bound: float
    ) -> str:
        if sparse and not (self.open or self.unexpanded):
            return (
                "Exact and complete: every possible prefix was expanded, so no other string has a "
                "probability above zero."
            )
        text = ""
        if not sparse:
            why = "Without proof of its zeros an" if zeros else "A dense"
            text = f"{why} output mapping makes infinitely many strings possible. "
        text += proved_text(proved) or "No string is proved to be the best"
        if self.normalize:
            text += f" by mean log-probability among strings of at most {self.limit} tokens"
        text += f". {bounds_text(bound, mass_bound)}"
        if proved >= self.requested:
            return text
        if not self.budget_left:
            text += f" The budget of {self.budget} prefixes is used up."
        if any(x.too_long for x in self.unexpanded):
            text += f" Strings beyond the limit of {self.limit} tokens are possible."
        if self.underflowed:
            text += " Some are too improbable for the model's floating-point type."
        return text
