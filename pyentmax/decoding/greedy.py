"""Greedy decoding: always the most probable token, fast enough to validate a training run with."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.decoding._inputs import checked_source, length_limits
from pyentmax.models.protocol import Decodable, IntArray

__all__ = ["greedy_search"]

State = TypeVar("State")


def greedy_search(
    model: Decodable[State],
    source: ArrayLike,
    source_mask: ArrayLike,
    *,
    max_length: int | None = None,
) -> list[IntArray]:
    """Decode each source by the most probable token at every step.

    Parameters
    ----------
    model : Decodable
        The model to decode.
    source, source_mask : (B, S) int array, (B, S) bool array
        Token ids and True where they are real.
    max_length : int, optional
        Most tokens of an output, the end symbol not counted; 2 × source length + 10 by default.

    Returns
    -------
    list of B int arrays
        Tokens up to the end symbol, or up to the length limit if that came first. Of equally
        probable tokens the one with the lowest id is taken.

    Raises
    ------
    ValueError
        If the arrays do not fit together or ``max_length`` is under 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.decoding import Step, greedy_search
    >>> class Copy:  # repeats its source; token 0 begins and ends
    ...     bos, eos, output_is_sparse = 0, 0, True
    ...     def encode(self, source, source_mask):
    ...         return np.where(source_mask, source, 0)
    ...     def step(self, state, tokens):
    ...         support = np.eye(5, dtype=bool)[state[:, 0]]
    ...         rest = np.roll(state, -1, axis=1) * (np.arange(state.shape[1]) < state.shape[1] - 1)
    ...         return Step(np.where(support, 0.0, -np.inf), support, np.ones(state.shape)), rest
    ...     def select(self, state, rows):
    ...         return state[rows]
    >>> source = np.array([[3, 1, 4], [2, 0, 0]])
    >>> [tokens.tolist() for tokens in greedy_search(Copy(), source, source > 0)]
    [[3, 1, 4], [2]]
    """
    source, source_mask = checked_source(source, source_mask)
    limit = length_limits(source_mask, max_length)
    sentences = len(source)
    if sentences == 0:
        return []
    output = np.zeros((sentences, limit.max()), dtype=np.int64)
    length = np.zeros(sentences, dtype=np.int64)
    state = model.encode(source, source_mask)
    owner = np.arange(sentences)  # which sentence each row of the state decodes
    tokens = np.full(sentences, model.bos)
    while owner.size:
        step, state = model.step(state, tokens)
        best = np.where(step.support, step.log_prob, -np.inf).argmax(axis=1)
        going = best != model.eos
        output[owner[going], length[owner[going]]] = best[going]
        length[owner[going]] += 1
        going &= length[owner] < limit[owner]
        owner, tokens = owner[going], best[going]
        if not going.all() and owner.size:
            state = model.select(state, np.flatnonzero(going))
    return [row[:n] for row, n in zip(output, length, strict=True)]
