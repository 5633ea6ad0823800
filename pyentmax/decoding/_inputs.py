"""Common checks and defaults of all decoders."""

from __future__ import annotations

from operator import index

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.models.protocol import BoolArray, FloatArray, IntArray, Step


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


def as_target(tokens: ArrayLike) -> IntArray:
    """The ids of one target as an array."""
    ids = np.asarray(tokens)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(
            "targets: expected a list of token ids for each source, got one of "
            f"{ids.dtype} and shape {ids.shape}"
        )
    if ids.size and ids.min() < 0:
        raise ValueError(f"targets: expected token ids from 0 up, got {ids.min()}")
    return ids.astype(np.int64)


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


def possible_continuations(
    step: Step, total: FloatArray, source_index: IntArray, length: int | IntArray
) -> BoolArray:
    """Continuations that are in the support and have a finite log-probability.

    ``total`` holds their scores, ``source_index`` the source of each row, ``length`` its number of
    tokens so far.
    """
    possible: BoolArray = step.support & np.isfinite(total)
    refuse_stuck(np.any(possible, axis=1), source_index, length)
    return possible


def refuse_lost(
    step: Step, possible: BoolArray, source_index: IntArray, length: int | IntArray
) -> None:
    """Raise a ValueError unless every row has a possible continuation, or only hidden ones.

    ``possible`` says of each row whether it has one with a finite log-probability.
    """
    if not possible.all():
        hidden = step.support & np.isneginf(step.log_prob)
        refuse_stuck(possible | hidden.any(axis=1), source_index, length)


def refuse_stuck(possible: BoolArray, source_index: IntArray, length: int | IntArray) -> None:
    """Raise a ValueError unless every row has a possible continuation."""
    if possible.all():
        return
    row = int(np.flatnonzero(~possible)[0])
    tokens = np.broadcast_to(length, source_index.shape)[row]
    raise ValueError(
        f"the model gives source {source_index[row]} no next token after {tokens} tokens: "
        "expected every row of Step to support at least one token with a finite "
        "log-probability; are there NaNs among the model's scores or parameters?"
    )
