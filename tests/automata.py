"""Automata small enough to enumerate every string that they can write."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from pyentmax.seq2seq.decoding import Step
from pyentmax.seq2seq.models import from_steps
from pyentmax.seq2seq.models.protocol import unseen
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

BOS, EOS = 0, 1


@dataclass
class Automaton:
    """A model given by tables (state, token); a source begins in the state source[0]."""

    log_prob: np.ndarray
    support: np.ndarray
    following: np.ndarray
    output_is_sparse: bool = True
    bos: int = BOS
    eos: int = EOS
    steps: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, probabilities, following, **kwargs):
        p = np.array(probabilities, dtype=float)
        with np.errstate(divide="ignore"):
            return cls(np.log(p), p > 0, np.array(following), **kwargs)

    def encode(self, source, source_mask):
        return source[:, 0], np.full(len(source), -1), source_mask

    def step(self, state, tokens, prove=True):
        place, last, mask = state
        assert tokens.shape == place.shape
        self.steps.append(len(tokens))
        place = np.where(last < 0, place, self.following[place, tokens])
        # Attention that tells the state and the step: tests can see whose it is.
        weights = (place[:, None] + 1.0) * mask / mask.sum(axis=1, keepdims=True)
        step = Step(self.log_prob[place], self.support[place], weights)
        return step, (place, tokens, mask)

    def strings(self, start, limit):
        """Every finished string with its log-probability."""
        return Truth(self, np.array([[start]]), limit).strings


def loop(end, **kwargs):
    """Writes token 2 again and again, ending with probability ``end`` each time."""
    return Automaton.of([[0, end, 1 - end]], [[0, 0, 0]], **kwargs)


def stateful(automaton):
    """A function that walks through an automaton, with the place in a nested state."""

    def fn(prefixes, state):
        if state is None:
            place = walk(automaton, prefixes)
        else:
            assert np.array_equal(state["place"][0], state["again"])
            place = automaton.following[state["again"], prefixes[:, -1]]
        return automaton.log_prob[place], {"place": [place], "again": place.copy()}

    return from_steps(fn, eos=EOS, keep="min_p=0")  # what is −∞ is impossible, and nothing else


def stateless(automaton):
    """A function that reads all of a prefix."""

    def fn(prefixes, state):
        assert state is None
        return automaton.log_prob[walk(automaton, prefixes)], None

    return from_steps(fn, eos=EOS, keep="min_p=0")


def walk(automaton, prefixes):
    place = prefixes[:, 0]
    for token in prefixes[:, 1:].T:
        place = automaton.following[place, token]
    return place


class Truth:
    """All that a model can write from one source, each prefix read alone and from the start.

    Attributes
    ----------
    rows : dict
        The step after each prefix of up to `limit` tokens, for one row.
    scores : dict
        The log-probability of each.
    strings : dict
        That of every finished string of up to `limit` tokens.
    beyond, hidden : lists
        That of the shortest prefixes that are too long, and what possible tokens without a finite
        one have at most. Each stands for all strings through it.
    widths : list
        How many prefixes of each length go on.
    """

    def __init__(self, model, source, limit):
        self.model, self.source, self.limit = model, source, limit
        self.rows, self.scores, self.strings, self.hidden = {}, {(): 0.0}, {}, []
        self.widths, self.beyond, level = [], [], [()]
        for _ in range(limit + 1):
            longer = {}
            for tokens in level:
                step, score = self.read(tokens), self.scores[tokens]
                for token in np.flatnonzero(step.support[0] & ~np.isfinite(step.log_prob[0])):
                    infinite = np.isneginf(step.log_prob[0, token])
                    self.hidden.append(score + (float(unseen(step)[0]) if infinite else 0.0))
                for token, total in self.continuations(tokens, score):
                    if token == model.eos:
                        self.strings[tokens] = total
                    else:
                        longer[*tokens, token] = total
            self.widths.append(len(longer))
            self.beyond, level = list(longer.values()), list(longer)
            self.scores |= longer

    def read(self, tokens):
        state = self.model.encode(self.source, np.ones(self.source.shape, bool))
        for token in (self.model.bos, *tokens):
            step, state = self.model.step(state, np.array([token]))
        self.rows[tokens] = step
        return step

    def continuations(self, tokens, score):
        """The possible next tokens and what they lead to."""
        log_prob, support = self.rows[tokens].log_prob[0], self.rows[tokens].support[0]
        for token in np.flatnonzero(support & np.isfinite(log_prob)).tolist():
            yield token, score + min(float(log_prob[token]), 0.0)

    @property
    def sums_to_one(self):
        """Whether the probabilities of what follows a prefix do."""
        rows = (np.exp(step.log_prob[step.support]).sum() for step in self.rows.values())
        return not self.hidden and np.allclose([*rows], 1, rtol=0, atol=1e-6)

    def rank(self, tokens, score, normalize):
        return score / (len(tokens) + 1) if normalize else score

    def beam(self, width, normalize=False):
        """Beam search as in a textbook, a list of tuples per step."""
        done, level = [], [((), 0.0)]
        for length in range(self.limit + 1):
            longer = []
            for tokens, score in level:
                for token, total in self.continuations(tokens, score):
                    if token == self.model.eos:
                        done.append((tokens, total))
                    else:
                        longer.append(((*tokens, token), total))
            longer.sort(key=lambda item: -item[1])
            level = longer[:width] if length < self.limit else []
        return sorted(done, key=lambda item: -self.rank(*item, normalize))

    def best_first(self, n_best, budget, normalize=False):
        """Best-first search with a heap, one prefix at a time; of equal ones, the oldest first."""
        waiting, done, order = [(0.0, 0, ())], [], itertools.count(1)
        while waiting and budget:
            cost, _, tokens = waiting[0]
            ranks = sorted((self.rank(*item, normalize) for item in done), reverse=True)
            most = -cost / (self.limit + 1 if normalize else 1)
            if n_best and len(ranks) >= n_best and ranks[n_best - 1] >= most:
                break
            heapq.heappop(waiting)
            budget -= 1
            found = sorted(self.continuations(tokens, -cost), key=lambda item: -item[1])
            for token, total in found:
                if token == self.model.eos:
                    done.append((tokens, total))
                elif len(tokens) < self.limit:
                    heapq.heappush(waiting, (-total, next(order), (*tokens, token)))
        return dict(done)


@dataclass
class Table:
    """A model given by its steps; every token leads to the next one."""

    log_prob: np.ndarray
    support: np.ndarray
    unseen: np.ndarray | None
    output_is_sparse: bool = True
    bos: int = BOS
    eos: int = EOS

    def encode(self, source, source_mask):
        return np.zeros(len(source), int)

    def step(self, state, tokens, prove=True):
        row = np.minimum(state, len(self.log_prob) - 1)
        most = None if self.unseen is None else self.unseen[row]
        attention = np.ones((len(row), 1))
        return Step(self.log_prob[row], self.support[row], attention, most), state + 1

    @classmethod
    def of_scores(cls, scores, output):
        chosen = choose_mapping(output)
        log_prob, support, most = chosen.certified(scores)
        # Of fusedmax and oscarmax, floats off the support may round to more than 0.
        log_prob = np.where(support, log_prob, log_prob.dtype.type(-np.inf))
        return cls(log_prob, support, most, chosen.proves_zeros)


@st.composite
def automata(draw, cyclic=False):
    """A random sparse automaton, often with tied probabilities; without cycles all strings end."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    states, vocabulary = draw(st.integers(1, 6)), draw(st.integers(3, 6))
    weights = rng.integers(0, 4, (states, vocabulary)).astype(float)
    if draw(st.booleans()):
        weights *= rng.random(weights.shape)
    weights[:, BOS] = 0
    weights[:, EOS] += ~weights.any(axis=1)  # every state goes somewhere
    following = rng.integers(0, states, weights.shape)
    if not cyclic:  # forward only, and the last state ends
        weights[-1] = np.arange(vocabulary) == EOS
        later = np.arange(states)[:, None] + 1 + rng.integers(0, states, weights.shape)
        following = np.minimum(later, states - 1)
    return Automaton.of(weights / weights.sum(axis=1, keepdims=True), following)
