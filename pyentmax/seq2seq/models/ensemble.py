"""Several models that decode as one, by the mean of their probabilities at each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyentmax.seq2seq.models.protocol import (
    BoolArray,
    FloatArray,
    IntArray,
    JoinableDecodable,
    Step,
    unseen,
)


class Ensemble:
    r"""A model whose next-token probabilities are the mean of its members'.

    .. math:: p(y_t \mid y_{<t}, x) = \frac1M \sum_m p_m(y_t \mid y_{<t}, x)

    A token is possible if at least one member finds it possible, so the support is the union of
    theirs. Certificates of a search hold for this averaged model. It is sparse if all members are.

    A member may find a token possible without a number for its probability, which is too small for
    its float type, or next to the threshold (``Step.unseen``). Then the mean has a number only if
    that probability, whatever it is, does not change it. Otherwise the mean hides the token, too,
    and bounds it by the mean of the members' probabilities and bounds. Searches that prove nothing
    (`greedy_search`, `ancestral_sampling`, and `beam_search` with ``prove=False``) take what is
    hidden for 0, and lose no token by it.

    Parameters
    ----------
    members : sequence of JoinableDecodable
        Models that share a vocabulary. Each keeps its own state.

    Raises
    ------
    ValueError
        If there are none, or if they differ in their begin or end symbol; in a step, if their
        vocabularies differ in size.

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.1 (ensembles).

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import beam_search
    >>> class Says:
    ...     "Writes token 2 with probability p, else token 3, and ends."
    ...     bos, eos, output_is_sparse = 0, 1, True
    ...     def __init__(self, p):
    ...         self.table = np.array([[0, 0, p, 1 - p]] + 3 * [[0, 1, 0, 0]])
    ...     def encode(self, source, source_mask):
    ...         return np.ones(source.shape)
    ...     def step(self, state, tokens):
    ...         p = self.table[tokens]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, state), state
    ...     def select(self, state, rows):
    ...         return state[rows]
    ...     def join(self, states):
    ...         return np.concatenate(states)
    >>> source = np.array([[4]])
    >>> [result] = beam_search(Ensemble([Says(1), Says(0.5)]), source, source > 0)
    >>> {h.tokens: round(h.probability, 2) for h in result.hypotheses}
    {(2,): 0.75, (3,): 0.25}
    >>> result.exact
    True
    """

    def __init__(self, members: Sequence[JoinableDecodable[Any]]) -> None:
        self.members: tuple[JoinableDecodable[Any], ...] = tuple(members)
        if not self.members:
            raise ValueError("an ensemble needs at least one model, but the list is empty")
        symbols = {(member.bos, member.eos) for member in self.members}
        if len(symbols) > 1:
            raise ValueError(
                "the models of an ensemble must share their begin and end symbols, but have "
                + " and ".join(map(str, sorted(symbols)))
            )
        [(self.bos, self.eos)] = symbols

    @property
    def output_is_sparse(self) -> bool:
        """Whether all members can give a token the probability 0; one dense model prevents it."""
        return all(member.output_is_sparse for member in self.members)

    def encode(self, source: IntArray, source_mask: BoolArray) -> tuple[Any, ...]:
        """The states of the members."""
        return tuple(member.encode(source, source_mask) for member in self.members)

    def step(self, state: tuple[Any, ...], tokens: IntArray) -> tuple[Step, tuple[Any, ...]]:
        """Read one token per row with every member; average the probabilities and the attention."""
        steps, states = self._steps([m.step for m in self.members], state, tokens)
        log_probs = np.stack([step.log_prob for step in steps])
        hides = np.stack([step.support for step in steps]) & (log_probs == -np.inf)
        mean = _mean(steps)
        if hides.any():
            bounds = [unseen(step) for step in steps]
            log_prob, most = _hidden(mean.log_prob, log_probs, hides, bounds)
            mean = mean._replace(log_prob=log_prob, unseen=most)
        return mean, states

    def unproved_step(
        self, state: tuple[Any, ...], tokens: IntArray
    ) -> tuple[Step, tuple[Any, ...]]:
        """The same for a search that proves nothing: what a member hides counts as 0."""
        advance = [getattr(m, "unproved_step", m.step) for m in self.members]
        steps, states = self._steps(advance, state, tokens)
        return _mean(steps), states

    def _steps(
        self, advance: Sequence[Callable[..., Any]], state: tuple[Any, ...], tokens: IntArray
    ) -> tuple[list[Step], tuple[Any, ...]]:
        """The members' steps and their new states."""
        pairs = [one(s, tokens) for one, s in zip(advance, state, strict=True)]
        sizes = [step.log_prob.shape[1] for step, _ in pairs]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"the models of an ensemble must share a vocabulary, but theirs have {sizes} tokens"
            )
        return [step for step, _ in pairs], tuple(s for _, s in pairs)

    def select(self, state: tuple[Any, ...], rows: IntArray) -> tuple[Any, ...]:
        """The state of the given rows; a row may be repeated."""
        return tuple(m.select(s, rows) for m, s in zip(self.members, state, strict=True))

    def join(self, states: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """The rows of several states of one encoding, one state after the other."""
        by_member = zip(*states, strict=True)
        return tuple(m.join(s) for m, s in zip(self.members, by_member, strict=True))


def _mean(steps: Sequence[Step]) -> Step:
    """The mean of the members' probabilities, where what they hide counts as 0."""
    log_probs, supports, attention, _ = zip(*steps, strict=True)
    log_prob = _log_mean_exp(np.stack(log_probs))
    return Step(log_prob, np.any(supports, axis=0), np.mean(attention, axis=0))


def _log_mean_exp(log_probs: FloatArray) -> FloatArray:
    """log of the mean of exp, without underflow of what counts; −∞ in all members stays −∞.

    The result has the members' dtype, because a search derives from it what an underflow can hide.
    """
    top = log_probs.max(axis=0)
    largest = np.where(np.isneginf(top), 0, top)  # −∞ − (−∞) would be NaN
    mean = np.exp(log_probs.astype(np.float64) - largest).mean(axis=0)
    with np.errstate(divide="ignore"):
        return (largest + np.log(mean)).astype(log_probs.dtype)


def _hidden(
    log_prob: FloatArray, log_probs: FloatArray, hides: BoolArray, bounds: Sequence[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """The mean of known tokens, and an upper bound on that of the others, by row.

    A member that hides a token gives it anything from 0 to its bound. Where the mean is the same
    number with the one as with the other, it is known; elsewhere the token is hidden in the mean.
    """
    rows, tokens = np.nonzero(hides.any(axis=0))
    members = log_probs[:, rows, tokens].astype(np.float64)
    low = _log_mean_exp(members)
    high = _log_mean_exp(np.where(hides[:, rows, tokens], np.stack(bounds)[:, rows], members))
    unknown = high.astype(log_prob.dtype) != low.astype(log_prob.dtype)
    unknown &= ~np.isnan(low)  # a NaN has to stay one
    rows, tokens, high = rows[unknown], tokens[unknown], high[unknown]
    log_prob[rows, tokens] = -np.inf
    # Rounded outward: by what exp, the sum, its logarithm and the last addition are off at most.
    high += 2 * np.finfo(high.dtype).eps * (len(log_probs) + np.abs(high))
    most = np.full(len(log_prob), -np.inf)
    np.maximum.at(most, rows, np.minimum(high, 0))
    return log_prob, most
