"""Biases that attention adds to its scores: a number for each of them, or one for each distance.

Distances need T + S − 1 numbers instead of T · S, since all scores on a diagonal have the same one.
Either way the number of query t and key j is entry ``first + down · t + right · j`` of a row, so
that a tile's numbers are a view with these strides, and no array of T × S is made for distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import array_module


class DistanceBias:
    """A bias of attention by the distance from query to key, such as ALiBi.

    Parameters
    ----------
    numbers : array, or tensor, of shape (…, T + S − 1), optional
        ``numbers[..., T - 1 + j - t]`` is added to the score of query t with key j, from the key
        that is furthest before its query to the one that is furthest behind. The other axes
        broadcast against the batch shape: (H, T + S − 1) is a row for each head. In packed
        sequences t and j count from the start of their own, while T and S are the whole lengths
    slopes : float, array or tensor that broadcasts against the batch shape, optional
        instead: −m |t + offset − j| is added, with the slope m of each head

    Both get a gradient if they are arrays. Attention of long inputs stays sparse with them, and no
    array of T × S numbers is made.

    Raises
    ------
    TypeError
        unless exactly one of the two is passed

    References
    ----------
    Press, Smith and Lewis (2022), Train Short, Test Long: Attention with Linear Biases Enables
    Input Length Extrapolation, §3 (ALiBi).

    Examples
    --------
    >>> from pyentmax import attention
    >>> x = np.eye(3)
    >>> _, near = attention(x, x, x, bias=DistanceBias(slopes=1.0), return_weights=True)
    >>> _, same = attention(x, x, x, bias=DistanceBias([-2, -1, 0, -1, -2]), return_weights=True)
    >>> print(near.to_dense().round(3))
    [[0.963 0.037 0.   ]
     [0.032 0.936 0.032]
     [0.    0.037 0.963]]
    >>> bool((near.to_dense() == same.to_dense()).all())
    True
    """

    def __init__(self, numbers: Any = None, *, slopes: Any = None) -> None:
        if (numbers is None) == (slopes is None):
            raise TypeError("DistanceBias: expected numbers by distance, or slopes, and not both")
        self.is_alibi: bool = numbers is None
        self.array: Any = slopes if self.is_alibi else numbers

    def __repr__(self) -> str:
        return f"DistanceBias({'slopes=' if self.is_alibi else ''}{self.array!r})"

    def with_array(self, array: Any) -> DistanceBias:
        """The same kind of bias with other numbers, or slopes."""
        return DistanceBias(slopes=array) if self.is_alibi else DistanceBias(array)


def array_of(bias: Any) -> Any:
    """The array of a `DistanceBias`, and anything else as it is."""
    return bias.array if isinstance(bias, DistanceBias) else bias


def check_distances(shape: tuple[int, ...], t: int, s: int) -> None:
    """Raise a ValueError unless there is a number for each distance of t queries and s keys."""
    count = max(t + s - 1, 0)
    if not shape or shape[-1] != count:
        raise ValueError(
            f"bias by distance: expected T + S − 1 = {count} numbers for {t} queries and {s} keys, "
            f"got shape {tuple(shape)}"
        )


@dataclass(frozen=True)
class ScoreBias:
    """The numbers to add to scores, as rows.

    Attributes
    ----------
    rows : array of shape (…, 1, n)
        whose batch shape broadcasts to that of the scores
    first, down, right : int
        query t and key j have entry ``first + down · t + right · j`` of their head's row
    by_distance : bool
        whether packed sequences, whose distances count from their own starts, shift that
    """

    rows: Any
    first: int
    down: int
    right: int
    by_distance: bool

    @classmethod
    def of_scores(cls, array: Any) -> ScoreBias:
        """The bias by an array of shape (…, 1 or T, 1 or S)."""
        t, s = array.shape[-2:]
        rows = array.reshape((*array.shape[:-2], 1, t * s))
        return cls(rows, 0, s if t > 1 else 0, 1 if s > 1 else 0, False)

    @classmethod
    def of_entries(cls, rows: Any) -> ScoreBias:
        """The bias by numbers for entries of sets of keys, of shape (…, 1, entries)."""
        return cls(rows, 0, 0, 0, False)

    @classmethod
    def of_distances(cls, rows: Any, t: int) -> ScoreBias:
        """The bias by numbers for distances, of shape (…, 1, T + S − 1)."""
        return cls(rows, t - 1, -1, 1, True)

    def places(self, query: Any, key: Any, shift: Any) -> Any:
        """Places in a row of the numbers of queries and keys, for a sequence with this shift."""
        places = self.first + self.down * query + self.right * key
        return places + shift if self.by_distance else places

    def tile(self, rows: Any, tile: Any) -> Any:
        """The numbers of a `Tile`, of which `rows` are those of its heads, (heads, 1, n)."""
        shape, first, shift = tile.shape, tile.sequence.first, tile.sequence.shift
        if not isinstance(rows, np.ndarray):
            xp = array_module(rows)
            query, key = xp.arange(tile.top, tile.bottom)[:, None], xp.arange(tile.keys)
            return rows[:, 0, self.places(query, first + key, shift)]
        return self.view(rows, tile.top, tile.sequence, shape[1:])

    def view(self, rows: Any, top: int, sequence: Any, shape: tuple[int, ...]) -> Any:
        """The numbers (…, m, n) of queries from `top` on and a `Sequence`'s first keys."""
        rows = rows[..., 0, self.places(top, sequence.first, sequence.shift) :]
        *outer, entry = rows.strides
        strides = *outer, self.down * entry, self.right * entry
        shape = *rows.shape[:-1], *shape
        return np.lib.stride_tricks.as_strided(rows, shape, strides, writeable=False)
