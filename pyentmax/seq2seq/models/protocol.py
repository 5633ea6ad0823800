"""The interface between decoders and models.

Decoders encode once, advance one token at a time and rearrange the rows of states. They know
nothing else about a model, so the same code decodes a recurrent network, a Transformer, an ensemble
or a table of probabilities. All arrays that they pass and receive are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.floating[Any]]


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
    """An upper bound on log-probabilities of −∞ within the support, for each row of a step.

    Examples
    --------
    >>> print(unseen(Step(np.zeros((1, 2)), np.ones((1, 2), bool), np.ones((1, 3)))).round(1))
    [-708.4]
    """
    if step.unseen is None:
        tiny = np.finfo(step.log_prob.dtype).tiny
        return np.full(len(step.log_prob), math.log(tiny))
    return step.unseen


class Decodable(Protocol):
    """A sequence-to-sequence model as the decoders see it.

    What a model carries from step to step is a state: arrays with a row for each prefix, in nested
    tuples, which `take` rearranges; `Shared` holds what is the same for all rows. A decoder gives a
    state to `step` once, so that `step` may write into its arrays: what else continues from it has
    a copy.
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

    def encode(self, source: IntArray, source_mask: BoolArray) -> Any:
        """State before the first token, one row per (B, S) source; without dropout."""

    def step(self, state: Any, tokens: IntArray, prove: bool = True) -> tuple[Step, Any]:
        """Read one token per row; return the distribution of the next one and the new state.

        If nothing has to be proved, the support may be as floats tell it.
        """


def take(states: Sequence[Any], which: IntArray | None, rows: IntArray) -> Any:
    """The state whose row i is row ``rows[i]`` of ``states[which[i]]``: an array of its own.

    Parameters
    ----------
    states : sequence of states
        Of one encoding. Where their arrays differ in shape, as caches do, what is shorter gets
        zeros behind. A part that is neither None, a tuple nor an array, or not only one, has a
        method ``take_rows`` like this function.
    which : (rows,) int array, or None for a single state
    rows : (rows,) int array

    Examples
    --------
    >>> short, long = (np.array([[1, 2]]), None), (np.array([[3, 4, 5], [6, 7, 8]]), None)
    >>> take([short, long], np.array([1, 0]), np.array([1, 0]))
    (array([[6, 7, 8],
           [1, 2, 0]]), None)
    """
    first = states[0]
    if first is None:
        return None
    if hasattr(first, "take_rows"):
        return first.take_rows(states, which, rows)
    if isinstance(first, tuple):
        parts = [take(part, which, rows) for part in zip(*states, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if len(states) == 1:
        return first[rows]
    longest = np.max([x.shape[1:] for x in states], axis=0)
    taken = np.zeros((len(rows), *longest), first.dtype)
    for number, x in enumerate(states):
        mine = np.flatnonzero(which == number)
        index: Any = (mine, *map(slice, x.shape[1:]))
        taken[index] = x[rows[mine]]
    return taken


class Shared(NamedTuple):
    """A part of a state without rows, such as what was encoded: `take` leaves it as it is."""

    part: Any

    @staticmethod
    def take_rows(states: Sequence[Shared], which: IntArray | None, rows: IntArray) -> Shared:
        """The same for any rows."""
        return states[0]


def append(array: Any, lengths: IntArray, new: Any) -> Any:
    """An array (rows, room, …) with ``new`` (rows, …) at each row's length, written in place.

    Where the room is full it is doubled, in a new array.

    Examples
    --------
    >>> append(np.array([[1, 2], [3, 0]]), np.array([2, 1]), np.array([8, 9]))
    array([[1, 2, 8, 0],
           [3, 9, 0, 0]])
    """
    if lengths.max(initial=0) == array.shape[1]:
        array = np.concatenate([array, np.zeros_like(array)], axis=1)
    array[np.arange(len(array)), lengths] = new
    return array
