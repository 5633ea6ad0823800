"""Greedy decoding, always the most probable token: fast enough to validate during training."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.seq2seq.decoding._shared import as_source, follow, length_limits, refuse_stuck
from pyentmax.seq2seq.models.protocol import BoolArray, Decodable, IntArray, Step


def greedy_search(
    model: Decodable, source: ArrayLike, source_mask: ArrayLike, *, max_length: int | None = None
) -> list[IntArray]:
    """Decode each source with the most probable token at every step.

    Parameters
    ----------
    model, source, source_mask, max_length : as in `beam_search`

    Returns
    -------
    list of B int arrays
        The tokens before the end symbol, or up to the length limit if that came first. Ties go to
        the lowest token id.

    Raises
    ------
    ValueError
        As in `beam_search`.

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.seq2seq.decoding import Step, greedy_search
    >>> class Copy:  # repeats its source; token 0 begins and ends
    ...     bos, eos, output_is_sparse = 0, 0, True
    ...     def encode(self, source, source_mask):
    ...         return np.where(source_mask, source, 0)
    ...     def step(self, state, tokens, prove=True):
    ...         support = np.eye(5, dtype=bool)[state[:, 0]]
    ...         rest = np.roll(state, -1, axis=1) * (np.arange(state.shape[1]) < state.shape[1] - 1)
    ...         return Step(np.where(support, 0.0, -np.inf), support, np.ones(state.shape)), rest
    >>> source = np.array([[3, 1, 4], [2, 0, 0]])
    >>> [tokens.tolist() for tokens in greedy_search(Copy(), source, source > 0)]
    [[3, 1, 4], [2]]
    """
    source, source_mask = as_source(source, source_mask)
    limit = length_limits(source_mask, max_length)
    output = np.zeros((len(source), limit.max(initial=0)), dtype=np.int64)
    lengths = np.zeros(len(source), dtype=np.int64)

    def choose(step: Step, rows: IntArray, length: int) -> tuple[IntArray, BoolArray]:
        best = _most_probable(step, rows, length)
        active = best != model.eos
        output[rows[active], length] = best[active]
        lengths[rows[active]] += 1
        return best, active & (length + 1 < limit[rows])

    follow(model, source, source_mask, choose)
    return [row[:n] for row, n in zip(output, lengths, strict=True)]


def _most_probable(step: Step, source_index: IntArray, length: int) -> IntArray:
    """The most probable token of each row; ties go to the lowest id."""
    best = step.log_prob.argmax(axis=1)
    rows = np.arange(len(best))
    if step.support[rows, best].all() and np.isfinite(step.log_prob[rows, best]).all():
        return best  # the largest of all is possible, so no other possible one is larger
    possible = step.support & np.isfinite(step.log_prob)
    refuse_stuck(step, np.any(possible, axis=1), source_index, length, hidden=False)
    return np.where(possible, step.log_prob, -np.inf).argmax(axis=1)
