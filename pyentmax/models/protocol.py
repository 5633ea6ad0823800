"""What a model is trained on, and what it offers to the decoders.

Decoders encode once, advance one token at a time and rearrange rows. They know nothing else of a
model, so that a recurrent network, a Transformer, an ensemble or a
table of probabilities are decoded by the same code. They run on the host: all arrays that they give
and get are NumPy's, and where a model computes on a GPU, only its state stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BoolArray",
    "Decodable",
    "FloatArray",
    "IntArray",
    "JoinableDecodable",
    "PairBatch",
    "Step",
]

IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.floating[Any]]

State = TypeVar("State")


class PairBatch(Protocol):
    """B pairs of a source and a target, padded to rectangles: what an encoder-decoder learns from.

    Attributes
    ----------
    source, source_mask : arrays of shape (B, S)
        Token numbers, and True where there is a token.
    target_in, target_out, target_mask : arrays of shape (B, T)
        Tokens put in (from bos on), tokens to predict (up to eos), and where there are any.
    """

    @property
    def source(self) -> Any: ...
    @property
    def source_mask(self) -> Any: ...
    @property
    def target_in(self) -> Any: ...
    @property
    def target_out(self) -> Any: ...
    @property
    def target_mask(self) -> Any: ...

    def on(self, xp: ModuleType) -> PairBatch:
        """The same batch as arrays of a module: numpy's, or cupy's."""


class Step(NamedTuple):
    """What a model says about the next token of each row.

    Attributes
    ----------
    log_prob : (rows, vocabulary) float array
        Log-probability of each token as the next one; −inf off the support.
    support : (rows, vocabulary) bool array
        True where the output mapping gives a probability above zero. It comes from the mapping
        itself (u > 0) and not from a float: a probability may round to zero within the support.
    attention : (rows, source) float array
        Weight of each source position in this step.
    """

    log_prob: FloatArray
    support: BoolArray
    attention: FloatArray


class Decodable(Protocol[State]):
    """A sequence-to-sequence model as the decoders see it.

    ``State`` is whatever the model carries from step to step for a number of rows; decoders hand it
    back and never look inside. No method may change the state that it was given, since a decoder
    may take several rows from it.
    """

    @property
    def bos(self) -> int:
        """Token that is fed before the first one."""

    @property
    def eos(self) -> int:
        """Token that ends a sequence."""

    @property
    def output_is_sparse(self) -> bool:
        """Whether the output mapping can give probabilities that are exactly zero."""

    def encode(self, source: IntArray, source_mask: BoolArray) -> State:
        """State before the first token, a row for each of the (B, S) sources; without dropout."""

    def step(self, state: State, tokens: IntArray) -> tuple[Step, State]:
        """Read one token per row; give the distribution of the next one and the new state."""

    def select(self, state: State, rows: IntArray) -> State:
        """State whose row i is row ``rows[i]`` of the given one; rows may repeat or be left out."""


class JoinableDecodable(Decodable[State], Protocol[State]):
    """What exact search needs besides: prefixes of different steps that go on in one."""

    def join(self, states: Sequence[State]) -> State:
        """State with the rows of all given ones, which stem from one encoding, in their order."""
