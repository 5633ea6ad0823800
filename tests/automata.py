"""Automata small enough to enumerate every string that they can write."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from pyentmax.seq2seq.decoding import Step
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

    def step(self, state, tokens):
        place, last, mask = state
        assert tokens.shape == place.shape
        self.steps.append(len(tokens))
        place = np.where(last < 0, place, self.following[place, tokens])
        # Attention that tells the state and the step: tests can see whose it is.
        weights = (place[:, None] + 1.0) * mask / mask.sum(axis=1, keepdims=True)
        step = Step(self.log_prob[place], self.support[place], weights)
        return step, (place, tokens, mask)

    def select(self, state, rows):
        return tuple(part[rows] for part in state)

    def join(self, states):
        return tuple(np.concatenate(parts) for parts in zip(*states, strict=True))

    def strings(self, start, limit):
        """Every finished string with its log-probability; how many prefixes each length has."""
        found, level = {}, [((), start, 0.0)]
        widths = []
        for length in range(limit + 1):
            following = []
            for tokens, place, score in level:
                for token in np.flatnonzero(self.support[place]):
                    total = score + self.log_prob[place, token]
                    if token == EOS:
                        found[tokens] = total
                    elif total > -math.inf:
                        following.append(
                            ((*tokens, int(token)), self.following[place, token], total)
                        )
            widths.append(len(following))
            level = following if length < limit else []
        return found, widths

    def prefixes(self, start, length):
        """Log-probabilities of all prefixes of so many tokens."""
        level = [(start, 0.0)]
        for _ in range(length):
            level = [
                (self.following[place, token], score + self.log_prob[place, token])
                for place, score in level
                for token in np.flatnonzero(self.support[place])
                if token != EOS
            ]
        return [score for _, score in level]


def loop(end, **kwargs):
    """Writes token 2 again and again, ending with probability ``end`` each time."""
    return Automaton.of([[0, end, 1 - end]], [[0, 0, 0]], **kwargs)


def search_one(search, model, start=0, length=3, **options):
    """The result for a source that begins in the state `start`."""
    source = np.array([[start] * length])
    [result] = search(model, source, np.ones_like(source, dtype=bool), **options)
    return result


def together_and_alone(search, model, **options):
    """The results of sources that are decoded together, each with that of the source alone.

    The hypotheses of both have to be equal.
    """
    states = len(model.support)
    source = np.arange(states)[:, None].repeat(4, axis=1)
    mask = np.arange(4) <= (np.arange(states) % 4)[:, None]  # real lengths 1 to 4
    for row, batched in enumerate(search(model, source, mask, **options)):
        n = mask[row].sum()
        [alone] = search(model, source[row : row + 1, :n], mask[row : row + 1, :n], **options)
        assert len(batched.hypotheses) == len(alone.hypotheses)
        for one, other in zip(batched.hypotheses, alone.hypotheses, strict=True):
            assert (one.tokens, one.log_prob) == (other.tokens, other.log_prob)
            np.testing.assert_array_equal(one.attention, other.attention)
        yield batched, alone


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

    def step(self, state, tokens):
        row = np.minimum(state, len(self.log_prob) - 1)
        most = None if self.unseen is None else self.unseen[row]
        attention = np.ones((len(row), 1))
        return Step(self.log_prob[row], self.support[row], attention, most), state + 1

    def select(self, state, rows):
        return state[rows]

    def join(self, states):
        return np.concatenate(states)

    @classmethod
    def of_scores(cls, scores, output):
        chosen = choose_mapping(output)
        log_prob, support, most = chosen.certified(scores)
        # Of fusedmax and oscarmax, floats off the support may round to more than 0.
        log_prob = np.where(support, log_prob, log_prob.dtype.type(-np.inf))
        return cls(log_prob, support, most, chosen.proves_zeros)


@st.composite
def automata(draw, cyclic=False):
    """A random sparse automaton, often with tied probabilities."""
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
