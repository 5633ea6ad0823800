"""Accuracy: the share of correct words, and the edit distance of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
    pairs = _pairs(predictions, references)
    return sum(bool(one == other) for one, other in pairs) / len(pairs)


def levenshtein(a: Sequence[object], b: Sequence[object]) -> int:
    """The fewest insertions, deletions and substitutions that turn ``a`` into ``b``.

    Both are strings, or sequences of tokens.

    Examples
    --------
    >>> levenshtein("drawed", "drawn")
    2
    """
    # distance[j] is from the part of a that was read to b[:j]: one row of the usual table.
    distance = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        diagonal, distance[0] = distance[0], i
        for j, y in enumerate(b, start=1):
            best = min(distance[j] + 1, distance[j - 1] + 1, diagonal + (x != y))
            diagonal, distance[j] = distance[j], best
    return distance[-1]


def mean_levenshtein(
    predictions: Sequence[Sequence[object]], references: Sequence[Sequence[object]]
) -> float:
    """Mean `levenshtein` distance of the predictions from their references.

    Parameters
    ----------
    predictions, references : sequences of the same length, not empty
        Of strings or sequences of tokens.

    Examples
    --------
    >>> mean_levenshtein(["drawn", "drawed"], ["drawn", "drawn"])
    1.0
    """
    pairs = _pairs(predictions, references)
    return sum(levenshtein(one, other) for one, other in pairs) / len(pairs)


def _pairs(predictions: Sequence[Any], references: Sequence[Any]) -> list[tuple[Any, Any]]:
    if len(predictions) != len(references):
        raise ValueError(
            "predictions and references must have the same length, "
            f"not {len(predictions)} and {len(references)}"
        )
    if not len(predictions):
        raise ValueError("there is nothing to compare: predictions and references are empty")
    return list(zip(predictions, references, strict=True))
