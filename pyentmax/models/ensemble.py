"""Several models that decode as one: the mean of their probabilities at each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyentmax.models.protocol import BoolArray, FloatArray, IntArray, JoinableDecodable, Step

__all__ = ["Ensemble"]


class Ensemble:
    r"""A model whose next-token probabilities are the mean of its members'.

    .. math:: p(y_t \mid y_{<t}, x) = \frac1M \sum_m p_m(y_t \mid y_{<t}, x)

    A token is possible if one member thinks so: the support is the union of theirs, and searches
    prove things about this averaged model. It is sparse if all members are.

    Parameters
    ----------
    members : sequence of JoinableDecodable
        Models of one vocabulary. Each keeps a state of its own.

    Raises
    ------
    ValueError
        If there is none, or they differ in their begin or end symbol; in a step, if they differ in
        the size of their vocabularies.

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.1 (ensembles).

    Examples
    --------
    >>> from pyentmax.decoding import beam_search
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
        self.members = tuple(members)
        if not self.members:
            raise ValueError("an ensemble needs at least one model, but the list is empty")
        symbols = {(member.bos, member.eos) for member in self.members}
        if len(symbols) > 1:
            raise ValueError(
                "the models of an ensemble must share their begin and end symbols, not "
                + " and ".join(map(str, sorted(symbols)))
            )
        [(self.bos, self.eos)] = symbols

    @property
    def output_is_sparse(self) -> bool:
        """Whether all members can give a token the probability 0: one dense model fills in all."""
        return all(member.output_is_sparse for member in self.members)

    def encode(self, source: IntArray, source_mask: BoolArray) -> tuple[Any, ...]:
        """A state of each member."""
        return tuple(member.encode(source, source_mask) for member in self.members)

    def step(self, state: tuple[Any, ...], tokens: IntArray) -> tuple[Step, tuple[Any, ...]]:
        """Read one token a row with every member; the mean of probabilities and of attention."""
        pairs = [member.step(own, tokens) for member, own in zip(self.members, state, strict=True)]
        steps = [step for step, _ in pairs]
        sizes = [step.log_prob.shape[1] for step in steps]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"the models of an ensemble must share one vocabulary, not have {sizes} tokens"
            )
        step = Step(
            _log_mean([step.log_prob for step in steps]),
            np.any([step.support for step in steps], axis=0),
            np.mean([step.attention for step in steps], axis=0),
        )
        return step, tuple(own for _, own in pairs)

    def select(self, state: tuple[Any, ...], rows: IntArray) -> tuple[Any, ...]:
        """The state of some rows, each as often as it is named."""
        return tuple(
            member.select(own, rows) for member, own in zip(self.members, state, strict=True)
        )

    def join(self, states: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """The rows of several states of one encoding, one state after another."""
        return tuple(
            member.join(own)
            for member, own in zip(self.members, zip(*states, strict=True), strict=True)
        )


def _log_mean(log_probs: Sequence[FloatArray]) -> FloatArray:
    """log of the mean of exp, where no probability can underflow that matters; −∞ stays.

    In the members' own float type: the searches ask it how much an underflow can hide.
    """
    stacked = np.stack(log_probs)
    top = stacked.max(axis=0)
    largest = np.where(np.isneginf(top), 0, top)  # −∞ − (−∞) is no number
    mean = np.exp(stacked.astype(np.float64) - largest).mean(axis=0)
    with np.errstate(divide="ignore"):
        result: FloatArray = (largest + np.log(mean)).astype(stacked.dtype)
    return result
