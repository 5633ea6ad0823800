"""How the scores of attention are cut into tiles.

A tile is some queries of one head before all keys that they may see, or several whole heads where
these are small; of packed sequences, those of one head and sequence. Where it lies, which keys its
queries see and which matrices its heads share do not depend on the mapping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.backends import choice
from pyentmax.engine.calls.devices import array_module
from pyentmax.sparse_attention.arguments import Arguments, Sequence

TILE = 1 << 18  # scores in a tile, which has to fit a cache of a megabyte or so
DEVICE_TILE = 1 << 24  # scores in a tile on a GPU
SIDE = 64  # the number of queries of a tile is a multiple of it
SAMPLE = 16  # queries of a head that tell whether few of its weights are zero
QUERIES = 256  # queries in a causal tile
ROWS = 4096  # queries in a tile of the backward pass over the support, if threads do not share them
KEYS = 1024  # keys in a block, whose gradients have to fit the cache


class Tile(NamedTuple):
    """Queries `top` to `bottom` of heads `start` to `stop`, and the first `keys` of a sequence."""

    start: int
    stop: int
    top: int
    bottom: int
    keys: int
    sequence: Sequence
    heads: slice
    rows: tuple[slice, slice]  # its heads and queries
    columns: slice  # where the keys are among those of all sequences
    shape: tuple[int, int, int]  # heads, queries and keys
    size: int  # the number of its scores


@dataclass(frozen=True)
class Heads:
    """Matrices, one for each head, where several heads may share one.

    Attributes
    ----------
    own : array of the different matrices
    number : array of int
        the matrix of each head
    is_shared : bool
    """

    own: Any
    number: Any
    is_shared: bool

    def some(self, start: int, stop: int) -> Any:
        """The matrices of the heads from start to stop; a view where they lie side by side."""
        if not self.is_shared:
            return self.own[start:stop]
        numbers = self.number[start:stop].tolist()
        if len(set(numbers)) == 1:
            one = self.own[numbers[0] : numbers[0] + 1]
            return np.broadcast_to(one, (len(numbers), *one.shape[1:]))
        return np.stack([self.own[n] for n in numbers])

    def queries(self, tile: Tile) -> Any:
        """The rows of a tile's queries."""
        if not self.is_shared:
            return self.own[tile.rows]
        return self.some(tile.start, tile.stop)[:, tile.top : tile.bottom]

    def keys(self, tile: Tile) -> Any:
        """The rows of a tile's keys."""
        if not self.is_shared:
            return self.own[tile.heads, tile.columns]
        return self.some(tile.start, tile.stop)[:, tile.columns]

    def scores(self, tile: Tile) -> Any:
        """A tile of a mask or of bounds, whose axes may have length 1."""
        some = self.some(tile.start, tile.stop)
        some = some[:, tile.top : tile.bottom] if some.shape[1] > 1 else some
        some = some[:, :, tile.columns] if some.shape[2] > 1 else some
        return np.broadcast_to(some, tile.shape)


class Tiling:
    """The tiles of a problem.

    Attributes
    ----------
    problem : Arguments
    t, s, n_heads : int
    has_kernels : bool
        whether compiled kernels take these arrays
    again : bool array
        the heads whose weights are not stored: each derivative recomputes them
    visible : int array (T,)
        the number of the keys that each query sees if no mask hides any
    zeros : callable
        an array of a `shape` that lies where the queries do
    """

    def __init__(self, problem: Arguments) -> None:
        self.problem = problem
        self.t, self.s = problem.shape[-2:]
        self.n_heads: int = math.prod(problem.batch)
        self.again: Any = np.zeros(self.n_heads, bool)
        self.zeros: Any = partial(np.zeros_like, problem.query)
        if isinstance(problem.query, np.ndarray):  # from memory that is 0 already
            self.zeros = partial(np.zeros, dtype=problem.query.dtype)
        query, key, value = problem.query, problem.key, problem.value
        self.has_kernels: bool = (
            isinstance(query, np.ndarray)
            and isinstance(key, np.ndarray)
            and isinstance(value, np.ndarray)
            and min(query.size, key.size, value.size) > 0
            and problem.dtype in (np.float32, np.float64)
            and bool(choice.kernels())
            and (problem.support_alpha is None or bool(np.all(problem.support_alpha >= 1)))
        )
        self.mask: Heads | None = None if problem.mask is None else self.per_score(problem.mask)
        self._room = TILE if isinstance(query, np.ndarray) else DEVICE_TILE
        self.visible: Any = np.full(self.t, self.s)
        for top, bottom, first, stop, reach, _ in problem.sequences:
            last = stop - first if reach is None else np.arange(top, bottom) + (reach + 1)
            self.visible[top:bottom] = np.clip(last, 0, stop - first)

    def heads(self, array: Any, *, as_it_lies: bool = False) -> Heads:
        """An array of shape (…, n, features) as its matrices."""
        if self.has_kernels and not as_it_lies:
            array = np.ascontiguousarray(array)
        own = array.reshape(math.prod(array.shape[:-2]), *array.shape[-2:])
        number, batch = np.arange(len(own)), self.problem.batch
        is_shared = array.shape[:-2] != batch
        if is_shared:
            number = np.broadcast_to(number.reshape(array.shape[:-2]), batch).ravel()
        return Heads(own, number, is_shared)

    def per_score(self, array: Any) -> Heads:
        """An array of shape (…, 1 or T, 1 or S) as its matrices, not repeated where it was."""
        strides = getattr(array, "strides", (1,) * array.ndim)  # 0 where it was broadcast
        array = array[tuple(slice(0, 1 if step == 0 else None) for step in strides)]
        return self.heads(array, as_it_lies=True)

    def at_once(self, each: int = 1, queries: int | None = None) -> int:
        """The number of groups of `each` heads, or of some of their queries, that fit a tile."""
        queries = self.t if queries is None else queries
        return max(1, self._room // max(1, each * queries * self.s))

    def tiles(self, start: int, stop: int, *, in_order: bool = True) -> list[Tile]:
        """The tiles of the heads from start to stop, as high as there is room.

        In the order of rows, a tile has several heads only where it has all of their queries. So
        have those of one sequence, for which that is the order in which keys stay in a cache. The
        weights of a tile's heads are all stored, or none are.
        """
        tiles, places = [], self._places
        if len(places) > 1 and (in_order or len(self.problem.sequences) == 1):
            return [self.tile(n, n + 1, *place) for n in range(start, stop) for place in places]
        for first, last, _ in runs(self.again[start:stop]):
            for top, bottom, sequence in places:
                scores = (bottom - top) * (sequence.stop - sequence.first)
                heads = max(1, self._room // max(1, scores))
                for i in range(start + first, start + last, heads):
                    some = i, min(i + heads, start + last)
                    tiles.append(self.tile(*some, top, bottom, sequence))
        return tiles

    def blocks(self) -> list[tuple[Sequence, int]]:
        """The first of each block of keys, and the sequences that have them, as one."""
        spans: list[Sequence] = []
        for own in self.problem.sequences:
            if spans and own.stop - spans[-1].first <= KEYS:
                spans[-1] = spans[-1]._replace(bottom=own.bottom, stop=own.stop)
            else:
                spans.append(own)
        return [(own, top) for own in spans for top in range(own.first, own.stop, KEYS)]

    def rows(self, start: int, stop: int, side: int) -> list[Tile]:
        """Tiles of `side` stored rows before all keys, where sequences need not be kept apart."""
        whole = Sequence(0, self.t, 0, self.s, None, 0)
        heads = max(1, side // max(1, self.t))
        return [
            self.tile(first, min(first + heads, stop), top, min(top + side, self.t), whole)
            for first in range(start, stop, heads)
            for top in range(0, self.t, side)
        ]

    def tile(self, start: int, stop: int, top: int, bottom: int, sequence: Sequence) -> Tile:
        """Some queries of a sequence before all keys that they may see."""
        keys = sequence.stop - sequence.first
        if sequence.reach is not None:
            keys = min(max(bottom + sequence.reach, 0), keys)
        heads, columns = slice(start, stop), slice(sequence.first, sequence.first + keys)
        rows, shape = (heads, slice(top, bottom)), (stop - start, bottom - top, keys)
        size = shape[0] * shape[1] * keys
        return Tile(start, stop, top, bottom, keys, sequence, heads, rows, columns, shape, size)

    @cached_property
    def _places(self) -> list[tuple[int, int, Sequence]]:
        """Top and bottom of a head's tiles, which are higher while causality hides keys."""
        places = []
        side = SIDE if self.has_kernels else 1
        for sequence in self.problem.sequences:
            top, reach = sequence.top, sequence.reach
            keys = max(1, sequence.stop - sequence.first)
            high = max(side, self._room // keys // side * side)
            while top < sequence.bottom:
                size = high
                while reach is not None and 2 * size <= QUERIES:
                    if 2 * size * (top + 2 * size + reach) > self._room:
                        break
                    size *= 2
                bottom = min(top + size, sequence.bottom)
                places.append((top, bottom, sequence))
                top = bottom
        return places

    def attention_mask(self, tile: Tile) -> Any:
        """The mask of keys that the queries of a tile see; None for all."""
        mask = None if self.mask is None else self.mask.scores(tile)
        if tile.sequence.reach is None:
            return mask
        xp = array_module(self.problem.query)
        last = xp.arange(tile.top, tile.bottom)[:, None] + tile.sequence.reach
        causal = np.broadcast_to(xp.arange(tile.keys) <= last, tile.shape)
        return causal if mask is None else mask & causal


def runs(
    marks: Any, each: int = 1, most: dict[Any, int] | None = None
) -> Iterator[tuple[int, int, Any]]:
    """First and last of the heads of neighbours with one mark, and that mark.

    There is a mark for each group of `each` heads, and `most` says how many groups stay together.
    """
    start = 0
    for mark, run in groupby(marks.tolist()):
        stop = start + each * len(list(run))
        step = stop - start if most is None else most[mark] * each
        for first in range(start, stop, step):
            yield first, min(first + step, stop), mark
        start = stop
