"""Checks and defaults of decoders, and the loop of those that follow one prefix per row."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from operator import index

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.seq2seq.models.protocol import BoolArray, Decodable, IntArray, Step, take


def as_source(source: ArrayLike, source_mask: ArrayLike) -> tuple[IntArray, BoolArray]:
    """The batch of sources and its mask as arrays of the same (B, S) shape."""
    ids, mask = np.asarray(source), np.asarray(source_mask)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            "source must be an integer array of shape (sentences, positions), "
            f"not {ids.dtype} of shape {ids.shape}; pass a single sentence as source[None]"
        )
    if mask.shape != ids.shape or mask.dtype != np.bool_:
        raise ValueError(
            f"source_mask must be a bool array of source's shape {ids.shape} (True = real token), "
            f"not {mask.dtype} of shape {mask.shape}"
        )
    if (ids[mask] < 0).any():
        raise ValueError(f"source: expected token ids from 0 up, got {ids[mask].min()}")
    return ids, mask


def positive(name: str, value: int) -> int:
    """``value`` as an integer; a ValueError if it is below 1."""
    number = index(value)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, not {number}")
    return number


def length_limits(source_mask: BoolArray, max_length: int | None) -> IntArray:
    """The most tokens, end symbol not counted, that the output for each source may have.

    The default depends on each source's own length, never on the padding that its batch happens to
    need, so that a sentence is decoded the same in every batch.
    """
    if max_length is not None:
        return np.full(len(source_mask), positive("max_length", max_length))
    return 2 * source_mask.sum(axis=1) + 10


def follow(
    model: Decodable, source: IntArray, source_mask: BoolArray,
    choose: Callable[[Step, IntArray, int], tuple[IntArray, BoolArray]], *, copies: int = 1,
    prove: bool = False,
) -> None:  # fmt: skip
    """Extend the rows of all sources together, token by token.

    Parameters
    ----------
    choose : callable
        Given the model's step, the rows that are open and their length, returns their next tokens
        and which of the rows continue.
    copies : int
        Rows of each source, next to each other.
    prove : bool
        Whether the support has to be proved; some models are faster without.
    """
    rows = np.arange(copies * len(source))
    if not rows.size:
        return
    state = model.encode(source, source_mask)
    if copies > 1:
        state = take([state], None, rows // copies)
    tokens = np.full(len(rows), model.bos)
    for length in count():
        step, state = model.step(state, tokens, prove)
        tokens, active = choose(step, rows, length)
        rows, tokens = rows[active], tokens[active]
        if not rows.size:
            return
        if not active.all():
            state = take([state], None, np.flatnonzero(active))


def refuse_stuck(
    step: Step, possible: BoolArray, source_index: IntArray, length: int | IntArray, *,
    hidden: bool = True,
) -> None:  # fmt: skip
    """Raise a ValueError unless every row has a possible continuation.

    ``possible`` says of each row whether it has one with a finite log-probability. Where ``hidden``
    ones count, one of the support whose probability rounds to zero is enough.
    """
    if hidden and not possible.all():
        possible = possible | np.any(step.support & np.isneginf(step.log_prob), axis=1)
    if possible.all():
        return
    row = possible.argmin()
    tokens = np.broadcast_to(length, source_index.shape)[row]
    raise ValueError(
        f"the model gives source {source_index[row]} no next token after {tokens} tokens: "
        "expected every row of Step to support at least one token with a finite "
        "log-probability; are there NaNs among the model's scores or parameters?"
    )
