"""Keys and values in pages, with bounds of the scores that the keys of a page can have.

The keys k of a page lie in a box of middle m and half widths h, and in a ball of radius R around m.
So for a query q, with |q| entry by entry,

    q·k = q·m + q·(k − m)  ≤  q·m + min(|q|·h, ‖q‖ R).

The ball is tighter where the keys vary equally in all directions, the box where a few features vary
most. The bounds of all pages take two small matrix products.

Why no computed score exceeds its bound, despite rounding: The d products of a dot product x·y are
summed in some order, each sum and product with a relative error of at most u = ε/2, so that the
error is at most d u/(1 − d u) · Σ|x_i y_i| ≤ d ε ‖x‖ ‖y‖ (d u ≤ 1/2), and at most d times the
smallest normal number more where products underflow. This holds for q·k, q·m and |q|·h, whose
vectors are at most N = ‖m‖ + ‖h‖ long, since |k| ≤ |m| + h. `SLACK` (d + 8) ε ‖q‖ N covers them
many times. If ‖q‖ N comes close to the largest number, intermediate sums may overflow, and if a key
is not finite there is no bound: such pages have the bound ∞.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyentmax.sparse_attention import compressed_rows

SLACK = 8
AT_ONCE = 1 << 20  # entries of keys that are bounded together


class Pages:
    """Keys and values of some heads, with room for more.

    Attributes
    ----------
    length : int
        number of keys of each head
    size : int
        number of keys in a page
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
        """The number of pages of a head; the last one may have room."""
        return -(-self.length // self.size)

    @property
    def full(self) -> int:
        """The number of pages without room, which have bounds."""
        return self.length // self.size

    @property
    def features(self) -> int:
        """The number of features of a key."""
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
        """Bytes of memory, including the room for more."""
        arrays = self._keys, self._values, self._boxes, self._radii, self._norms
        return sum(array.nbytes for array in arrays)

    def append(self, keys: Any, values: Any) -> None:
        """Add keys (heads, n, d) and values (heads, n, width) at the end."""
        before, full = self.length, self.full
        length = before + keys.shape[1]
        self._make_room(-(-length // self.size))
        self.length = length
        self.values[:, before:] = values
        for page in range(before // self.size, self.count):
            start, stop = max(page * self.size, before), min((page + 1) * self.size, length)
            some = np.swapaxes(keys[:, start - before : stop - before], 1, 2)
            self._keys[:, page, :, start - page * self.size :][..., : stop - start] = some
        heads, _, d, _ = self._keys.shape
        step = max(1, AT_ONCE // max(1, heads * self.size * d))
        for first in range(full, self.full, step):
            self._bound(slice(first, min(first + step, self.full)))

    def bounds(self, query: Any) -> Any:
        """Bounds of the scores of queries (heads, r, d) in full pages, (heads, r, pages)."""
        pages, d = self.full, query.shape[-1]
        information = np.finfo(self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("hrd,hrd->hr", query, query, dtype=np.float64))[..., None]
            left = np.stack([query, np.abs(query)], axis=1)
            products = np.matmul(left, np.swapaxes(self._boxes[:, :, :pages], -1, -2))
            norms = lengths * self._norms[:, None, :pages]
            # An infinite radius times a length of 0 is NaN, which fmin ignores.
            bound = np.fmin(products[:, 1], lengths * self._radii[:, None, :pages])
            bound += products[:, 0]
            bound += SLACK * (d + 8) * float(information.eps) * norms
            bound += SLACK * d * float(information.tiny)
        return np.where(norms < float(information.max) / 4, bound, np.inf)

    def look(self, query: Any, todo: Any, visible: Any, least: Any) -> tuple[Any, Any, Any]:
        """The scores of queries (heads, r, d) in the pages todo, (heads, r, pages), from least on.

        Returns the scores, their keys, and the number of scores of each query.
        """
        room = int(np.count_nonzero(todo)) * self.size
        scores, keys = np.empty(room, self.dtype), np.empty(room, np.int32)
        ends = np.empty(todo.shape[:2], np.int64)
        operands = query, self._keys[:, : self.count], todo, visible, least
        compressed_rows.rows_page_scores(*operands, out=(scores, keys, ends))
        count = int(ends[-1, -1])
        return scores[:count], keys[:count], np.diff(ends.ravel(), prepend=0)

    def _make_room(self, pages: int) -> None:
        have = self._keys.shape[1]
        if pages <= have:
            return
        more = max(pages, have + have // 2) - have
        self._keys, self._values = _longer(self._keys, more, 1), _longer(self._values, more, 1)
        self._boxes = _longer(self._boxes, more, 2)
        self._radii, self._norms = _longer(self._radii, more, 1), _longer(self._norms, more, 1)

    def _bound(self, some: slice) -> None:
        """Compute box and ball of pages that have become full."""
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
