"""Accuracy: the share of correct words."""

from __future__ import annotations

from collections.abc import Sequence


def word_accuracy(predictions: Sequence[object], references: Sequence[object]) -> float:
    """Share of the predictions that equal their reference, from 0 to 1.

    Parameters
    ----------
    predictions, references : sequences of the same length, not empty
        Of strings, tuples of tokens, or anything else that ``==`` compares as a whole.

    Examples
    --------
    >>> word_accuracy(["drawn", "drawed"], ["drawn", "drawn"])
    0.5
    """
    right = [bool(one == other) for one, other in zip(predictions, references, strict=True)]
    if not right:
        raise ValueError("there is nothing to compare: predictions and references are empty")
    return sum(right) / len(right)
