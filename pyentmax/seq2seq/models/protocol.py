"""What decoders need from a model.

Decoders encode once, advance one token at a time and rearrange rows. They know nothing else about a
model, so the same code decodes a recurrent network, a Transformer, an ensemble or a table of
probabilities. All arrays that they pass and receive are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.floating[Any]]

State = TypeVar("State")


class Step(NamedTuple):
    """The distribution of the next token of each row.

    Attributes
    ----------
    log_prob : (rows, vocabulary) float array
        Log-probability of each token as the next one; −inf off the support.
    support : (rows, vocabulary) bool array
        True where the output mapping gives a probability above zero. It is the support of the
        mapping itself (u > 0), not of the floats: a probability may round to zero within it. Since
        certificates rest on it, it is False only where that is beyond doubt.
    attention : (rows, source) float array
        Weights of the source positions in this step.
    unseen : (rows,) float array, optional
        Where a log-probability is −∞ within the support, what it is at most. By default that of the
        smallest normal number of the float type, as where a probability rounds to zero.
    """

    log_prob: FloatArray
    support: BoolArray
    attention: FloatArray
    unseen: FloatArray | None = None


def unseen(step: Step) -> FloatArray:
    """What a log-probability of −∞ within the support is at most, for each row of a step.

    Examples
    --------
    >>> print(unseen(Step(np.zeros((1, 2)), np.ones((1, 2), bool), np.ones((1, 3)))).round(1))
    [-708.4]
    """
    if step.unseen is None:
        tiny = np.finfo(step.log_prob.dtype).tiny
        return np.full(len(step.log_prob), math.log(tiny))
    return step.unseen


class Decodable(Protocol[State]):
    """A sequence-to-sequence model as the decoders see it.

    ``State`` is whatever the model carries from step to step for a number of rows. Decoders pass it
    back and never look inside. No method may change the state that it is given, because a decoder
    may continue from it more than once. A model may have a method ``unproved_step``, too: its
    ``step`` for searches that prove nothing, with a support that is as floats tell it.
    """

    @property
    def bos(self) -> int:
        """Token that the model reads before the first one."""

    @property
    def eos(self) -> int:
        """Token that ends a sequence."""

    @property
    def output_is_sparse(self) -> bool:
        """Whether the output mapping can give probabilities of exactly zero, proved to be so."""

    def encode(self, source: IntArray, source_mask: BoolArray) -> State:
        """State before the first token, one row per (B, S) source; without dropout."""

    def step(self, state: State, tokens: IntArray) -> tuple[Step, State]:
        """Read one token per row; return the distribution of the next one and the new state."""

    def select(self, state: State, rows: IntArray) -> State:
        """State whose row i is row ``rows[i]`` of the given one; rows may be repeated."""


class JoinableDecodable(Decodable[State], Protocol[State]):
    """What exact search needs in addition: one step for prefixes of different lengths."""

    def join(self, states: Sequence[State]) -> State:
        """State with the rows of all given states of one encoding, in their order."""
