"""Keys and values in pages, with bounds of the scores that a page can give.

The keys k of a page lie in a box of middle m and half widths h, and in a ball of radius R about m.
So for a query q, with |q| entry by entry,

    q·k = q·m + q·(k − m)  ≤  q·m + min(|q|·h, ‖q‖ R).

The ball is closer where the keys scatter alike in all directions, the box where a few features
scatter most. For all pages the bound takes two small matrix products.

What rounds, and why no score as it is computed exceeds its bound: The d products of a dot product
x·y are summed in some order, each sum and product with a relative error of at most u = ε/2, so that
the error is at most d u/(1 − d u) · Σ|x_i y_i| ≤ d ε ‖x‖ ‖y‖ (d u ≤ 1/2), and at most d times the
smallest normal number more where products underflow. That happens to q·k, q·m and |q|·h, whose
vectors are all no longer than N = ‖m‖ + ‖h‖, since |k| ≤ |m| + h. `SLACK` (d + 8) ε ‖q‖ N covers
them many times. Where ‖q‖ N comes close to the largest number, sums may overflow on the way, and
where a key is not finite, nothing is known: such pages have the bound ∞.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pyentmax.sparse_attention import compressed_rows

SLACK = 8
AT_ONCE = 1 << 20  # numbers that are looked at together when bounds are made


class Pages:
    """Keys and values of some heads, with room for more.

    Attributes
    ----------
    length : int
        how many keys each head has
    size : int
        of a page
    """

    def __init__(self, heads: int, d: int, width: int, size: int, dtype: Any) -> None:
        self.length, self.size, self.dtype = 0, size, np.dtype(dtype)
        self._keys = np.zeros((heads, 0, d, size), dtype)  # a page's keys are columns
        self._values = np.zeros((heads, 0, size, width), dtype)
        self._boxes = np.zeros((heads, 2, 0, d), dtype)  # m and h
        self._radii = np.zeros((heads, 0))
        self._norms = np.zeros((heads, 0))  # N, or ∞ where there is no bound

    @property
    def count(self) -> int:
        """Pages of a head, the last of which may have room."""
        return -(-self.length // self.size)

    @property
    def full(self) -> int:
        """Pages without room; these have bounds."""
        return self.length // self.size

    @property
    def features(self) -> int:
        """Of a key."""
        return int(self._keys.shape[2])

    @property
    def keys(self) -> Any:
        """Of shape (heads, length, d), a copy."""
        heads, pages, d, size = self._keys.shape
        return np.swapaxes(self._keys, 2, 3).reshape(heads, pages * size, d)[:, : self.length]

    @property
    def values(self) -> Any:
        """Of shape (heads, length, width), a view."""
        heads, pages, size, width = self._values.shape
        return self._values.reshape(heads, pages * size, width)[:, : self.length]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, the room for more among them."""
        arrays = self._keys, self._values, self._boxes, self._radii, self._norms
        return sum(array.nbytes for array in arrays)

    def append(self, keys: Any, values: Any) -> None:
        """Add keys (heads, n, d) and values (heads, n, width) at the end."""
        before, full = self.length, self.full
        length = before + keys.shape[1]
        self._make_room(-(-length // self.size))
        self.length = length
        self.values[:, before:] = values
        for start, stop in self._stretches(before, length):
            page, place = divmod(start, self.size)
            some = keys[:, start - before : stop - before]
            count = -(-(stop - start) // self.size)
            apart = some.reshape(len(some), count, -1, some.shape[-1])
            to = self._keys[:, page : page + count, :, place : place + apart.shape[2]]
            to[...] = np.swapaxes(apart, 2, 3)
        heads, _, d, _ = self._keys.shape
        step = max(1, AT_ONCE // max(1, heads * self.size * d))
        for first in range(full, self.full, step):
            self._bound(slice(first, min(first + step, self.full)))

    def bounds(self, query: Any) -> Any:
        """Bounds of what queries (heads, r, d) score, as computed, with full pages: (…, pages)."""
        pages, d = self.full, query.shape[-1]
        information = np.finfo(self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("hrd,hrd->hr", query, query, dtype=np.float64))[..., None]
            left = np.stack([query, np.abs(query)], axis=1)
            products = np.matmul(left, np.swapaxes(self._boxes[:, :, :pages], -1, -2))
            norms = lengths * self._norms[:, None, :pages]
            # A ball that is too large for a number, times no length, is no bound.
            bound = np.fmin(products[:, 1], lengths * self._radii[:, None, :pages])
            bound += products[:, 0]
            bound += SLACK * (d + 8) * float(information.eps) * norms
            bound += SLACK * d * float(information.tiny)
        return np.where(norms < float(information.max) / 4, bound, np.inf)

    def look(self, query: Any, todo: Any, visible: Any, least: Any) -> tuple[Any, Any, Any]:
        """What queries (heads, r, d) score with the pages todo, (heads, r, pages), if not less.

        Returns the scores that are kept, their keys, and how many of them each query has.
        """
        room = int(np.count_nonzero(todo)) * self.size
        scores, keys = np.empty(room, self.dtype), np.empty(room, np.int32)
        ends = np.empty(todo.shape[:2], np.int64)
        operands = query, self._keys[:, : self.count], todo, visible, least
        compressed_rows.rows_page_scores(*operands, out=(scores, keys, ends))
        count = int(ends[-1, -1])
        return scores[:count], keys[:count], np.diff(ends.ravel(), prepend=0)

    def _stretches(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """What lies from start to stop, in parts of one page or of several whole ones."""
        while start < stop:
            whole = (stop - start) // self.size * self.size if start % self.size == 0 else 0
            end = start + whole if whole else min(stop, (start // self.size + 1) * self.size)
            yield start, end
            start = end

    def _make_room(self, pages: int) -> None:
        have = self._keys.shape[1]
        if pages <= have:
            return
        more = max(pages, have + have // 2) - have
        self._keys, self._values = _longer(self._keys, more, 1), _longer(self._values, more, 1)
        self._boxes = _longer(self._boxes, more, 2)
        self._radii, self._norms = _longer(self._radii, more, 1), _longer(self._norms, more, 1)

    def _bound(self, some: slice) -> None:
        """Find box and ball of pages that have become full."""
        keys, d = self._keys[:, some], self._keys.shape[2]
        with np.errstate(over="ignore", invalid="ignore"):
            least, largest = keys.min(axis=3), keys.max(axis=3)
            middle = least / 2 + largest / 2
            # A difference is off by half a unit in the last place; the next number is not below it.
            half = np.nextafter(np.maximum(largest - middle, middle - least), np.inf)
            gaps = keys - middle[..., None]
            squares = np.einsum("hpds,hpds->hps", gaps, gaps).max(axis=2)
            eps, tiny = (float(x) for x in (np.finfo(self.dtype).eps, np.finfo(self.dtype).tiny))
            radius = np.sqrt(squares.astype(np.float64) + d * tiny) * (1 + SLACK * (d + 8) * eps)
            norm = _length(middle) + _length(half)
        known = np.isfinite(least).all(axis=-1) & np.isfinite(largest).all(axis=-1)
        known &= np.isfinite(norm)
        self._boxes[:, 0, some] = np.where(known[..., None], middle, 0)
        self._boxes[:, 1, some] = np.where(known[..., None], half, 0)
        self._radii[:, some] = np.where(known, radius, np.inf)
        self._norms[:, some] = np.where(known, norm, np.inf)


def _length(x: Any) -> Any:
    """‖x‖ of the last axis, rounded up."""
    information = np.finfo(x.dtype)
    squares = np.einsum("...d,...d->...", x, x, dtype=np.float64)
    rounding = 1 + SLACK * (x.shape[-1] + 8) * float(information.eps)
    return (np.sqrt(squares) + math.sqrt(x.shape[-1] * float(information.tiny))) * rounding


def _longer(array: Any, more: int, axis: int) -> Any:
    shape = list(array.shape)
    shape[axis] = more
    return np.concatenate([array, np.zeros(shape, array.dtype)], axis=axis)
