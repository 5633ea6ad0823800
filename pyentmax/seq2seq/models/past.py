"""The keys and values of the tokens that a decoder has read, in memory for more of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.models.protocol import IntArray

LARGE = 1 << 14  # keys and values of a row that are copied one by one


class Past:
    """The keys and values of the tokens that a decoder has read.

    Parameters
    ----------
    layers : list of Kept
        Those of each layer.
    lengths : (rows,) int array
        How many of the T are a row's own, on the host; zeros follow.
    longest : int
        T.
    """

    def __init__(self, layers: list[Kept], lengths: IntArray, longest: int) -> None:
        self.layers = layers
        self.lengths = lengths
        self.longest = longest

    @classmethod
    def of(cls, arrays: Sequence[Array], lengths: IntArray) -> Past:
        """That of (rows, 2, T, n) arrays."""
        return cls([Kept(x) for x in arrays], lengths, arrays[0].shape[2])

    def longer(self) -> Past:
        """The same for one more token, the last of each row, once `with_last` has put it there."""
        return Past(list(self.layers), self.lengths + 1, self.longest + 1)

    @cached_property
    def own(self) -> Array | None:
        """Which keys are a row's own, (rows, 1, 1, T); None if all are."""
        if (self.lengths == self.longest).all():
            return None
        return np.asarray(np.arange(self.longest) < self.lengths[:, None])[:, None, None, :]

    @property
    def positions(self) -> IntArray:
        """The position of each row's last token, (rows, 1), or (1,) if all are the same."""
        return np.array([self.longest - 1]) if self.own is None else self.lengths[:, None] - 1

    def with_last(self, layer: int, pair: tuple[Tensor, Tensor]) -> tuple[Array, Array]:
        """A layer's keys and values with those of each row's last token."""
        last = None if self.own is None else np.asarray(self.lengths - 1)
        kept = self.layers[layer].longer(self.longest, in_place=last is None)
        self.layers[layer] = kept
        return kept.with_last(tuple(x.data[:, 0] for x in pair), last)

    def select(self, rows: IntArray) -> Past:
        """Those of the given rows."""
        return Past([x.select(rows) for x in self.layers], self.lengths[rows], self.longest)

    @staticmethod
    def join(pasts: Sequence[Past]) -> Past:
        """Those of the rows of several decoders, one after the other."""
        longest = max(past.longest for past in pasts)
        arrays = [
            np.concatenate([_with_room(x.arrays, longest) for x in layer])
            for layer in zip(*(past.layers for past in pasts), strict=True)
        ]
        return Past.of(arrays, np.concatenate([past.lengths for past in pasts]))


class Kept:
    """Keys and values of a layer, (rows, 2, T, n), in memory for more.

    A step writes behind them, so that it need not copy what is there. States that were made of one
    another share the memory: the first that writes to a place owns it, and others copy.

    Parameters
    ----------
    room : (rows, 2, size, n) array
        Zeros behind the first T.
    length : int, optional
        T; all by default.
    """

    def __init__(
        self, room: Array, length: int | None = None, used: list[int] | None = None
    ) -> None:
        self.room, self.length = room, room.shape[2] if length is None else length
        self._used = [self.length] if used is None else used  # of the memory, by any state

    @property
    def arrays(self) -> Array:
        """Keys and values, (rows, 2, T, n)."""
        return self.room[:, :, : self.length]

    def longer(self, length: int, *, in_place: bool = False) -> Kept:
        """The same with zeros behind, up to a length; in place, if there is room that is free."""
        if in_place and self._used[0] == self.length and length <= self.room.shape[2]:
            self._used[0] = length
            return Kept(self.room, length, self._used)
        size = max(length, 2 * self.length) if in_place else length
        return Kept(_with_room(self.arrays, size), length)

    def with_last(self, pair: Any, places: Array | None) -> tuple[Array, Array]:
        """Keys and values, with those of the last position, or of each row's place, written."""
        index: Any = np.s_[:, self.length - 1]
        if places is not None:
            index = np.arange(len(self.room)), places
        for k, new in enumerate(pair):
            self.room[:, k][index] = new
        keys, values = self.arrays.swapaxes(0, 1)
        return keys, values

    def select(self, rows: IntArray) -> Kept:
        """Those of the given rows."""
        return Kept(_with_room(self.arrays, self.room.shape[2], rows), self.length)


def _with_room(arrays: Array, size: int, rows: IntArray | None = None) -> Array:
    """(…, T, n) in front of zeros, as many as make `size`; of the given rows."""
    count = len(arrays) if rows is None else len(rows)
    room = np.zeros((count, *arrays.shape[1:-2], size, arrays.shape[-1]), arrays.dtype)
    own = room[:, :, : arrays.shape[-2]]
    if rows is None:
        own[...] = arrays
    elif arrays[0].size > LARGE:  # without an array between
        for place, row in enumerate(rows):
            own[place] = arrays[row]
    else:
        own[...] = arrays[np.asarray(rows)]
    return room
