"""Several models that decode as one, by the mean of their probabilities at each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyentmax.seq2seq.models.protocol import (
    BoolArray,
    Decodable,
    FloatArray,
    IntArray,
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
    members : sequence of Decodable
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
    ...     def step(self, state, tokens, prove=True):
    ...         p = self.table[tokens]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, state), state
    >>> source = np.array([[4]])
    >>> [result] = beam_search(Ensemble([Says(1), Says(0.5)]), source, source > 0)
    >>> {h.tokens: round(h.probability, 2) for h in result.hypotheses}
    {(2,): 0.75, (3,): 0.25}
    >>> result.exact
    True
    """

    def __init__(self, members: Sequence[Decodable]) -> None:
        self.members: tuple[Decodable, ...] = tuple(members)
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

    def step(
        self, state: tuple[Any, ...], tokens: IntArray, prove: bool = True
    ) -> tuple[Step, tuple[Any, ...]]:
        """Read one token per row with every member; average the probabilities and the attention.

        If nothing has to be proved, what a member hides counts as 0.
        """
        pairs = [m.step(s, tokens, prove) for m, s in zip(self.members, state, strict=True)]
        steps, states = zip(*pairs, strict=True)
        sizes = [step.log_prob.shape[1] for step in steps]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"the models of an ensemble must share a vocabulary, but theirs have {sizes} tokens"
            )
        log_probs = np.stack([step.log_prob for step in steps])
        supports = np.stack([step.support for step in steps])
        attention = np.mean([step.attention for step in steps], axis=0)
        log_prob, most = _log_mean_exp(log_probs), None
        hides = supports & (log_probs == -np.inf)
        if prove and hides.any():
            log_prob, most = _hidden(log_prob, log_probs, hides, [unseen(step) for step in steps])
        return Step(log_prob, np.any(supports, axis=0), attention, most), states


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
