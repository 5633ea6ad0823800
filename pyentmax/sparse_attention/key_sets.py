"""Sets of keys, one for each query: a mask that is stored without what it hides.

A mask of T × S bools takes T · S bytes and steps, even if a query sees ten keys. Its other forms
list these: a boolean CSR array, numbers of keys, the weights of another call. All of them become a
`KeySets`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyentmax.engine.calls.devices import is_dask, on_device
from pyentmax.engine.calls.rows import is_masked
from pyentmax.sparse_attention.weights import OUTSIDE, AttentionWeights, check_weights


@dataclass(frozen=True)
class KeySets:
    """The keys that each query sees.

    Attributes
    ----------
    indices : array of int32
        the keys of all sets, one set after the other, which rise within each
    ends : array of int64, of shape (…, T)
        where each query's set ends among them; the batch shape broadcasts to that of the scores
    entry_shape : tuple of int
        the shape in which the caller stores one number for each entry
    order : array of int, or None
        where each entry is in an array of that shape, flat; None if they are in order
    """

    indices: Any
    ends: Any
    entry_shape: tuple[int, ...]
    order: Any = None

    @property
    def indptr(self) -> Any:
        """Starts of the sets, and the end of the last one."""
        return np.concatenate([np.zeros(1, np.int64), self.ends.ravel()])

    @property
    def rows(self) -> Any:
        """The set of each entry, counted over the batch."""
        return np.repeat(np.arange(self.ends.size), np.diff(self.indptr))

    def up_to(self, last: Any) -> KeySets:
        """Without the keys behind the last that each query may see, (T,)."""
        rows = np.broadcast_to(last, self.ends.shape).ravel()
        return self._chosen(self.indices <= np.repeat(rows, np.diff(self.indptr)))

    def _chosen(self, chosen: Any) -> KeySets:
        if chosen.all():
            return self
        ends = np.concatenate([[0], np.cumsum(chosen)])[self.ends]
        order = np.flatnonzero(chosen) if self.order is None else self.order[chosen]
        return replace(self, indices=self.indices[chosen], ends=ends, order=order)

    def in_order(self, numbers: Any) -> Any:
        """One number for each entry, (…, entries), of an array as the caller stores it.

        Raises a ValueError unless the last axes are those of the entries.
        """
        axes = len(self.entry_shape)
        if numbers.ndim < axes or tuple(numbers.shape[numbers.ndim - axes :]) != self.entry_shape:
            shape = ", ".join(map(str, self.entry_shape))
            raise ValueError(
                f"bias with a set of keys as mask: expected one number for each entry, of shape "
                f"(…, {shape}), or a DistanceBias, got shape {tuple(numbers.shape)}"
            )
        flat = numbers.reshape((*numbers.shape[: numbers.ndim - axes], math.prod(self.entry_shape)))
        return flat if self.order is None else flat[..., self.order]

    def as_stored(self, numbers: Any, shape: tuple[int, ...]) -> Any:
        """Numbers of the entries, (…, entries), in the caller's shape; 0 for what is not seen."""
        if self.order is not None:
            lead = shape[: len(shape) - len(self.entry_shape)]
            stored = np.zeros((*lead, math.prod(self.entry_shape)), numbers.dtype)
            stored[..., self.order] = numbers.reshape((*lead, -1))
            numbers = stored
        return numbers.reshape(shape)

    def places(self, rows: Any, keys: Any) -> Any:
        """The entries that hold these keys of some sets; every key has to be in its set."""
        width = 1 + max(self.indices.max(initial=0), keys.max(initial=0))
        return np.searchsorted(self.rows * width + self.indices, rows * width + keys)


def key_sets(mask: Any, t: int, s: int) -> KeySets | None:
    """The sets of t queries among s keys that a mask lists; None for a mask of bools, or none.

    Raises
    ------
    TypeError
        if it is sparse in another form, or not in the memory of the host
    ValueError
        if shapes do not fit, or a key is out of range or listed twice
    """
    if mask is None or isinstance(mask, KeySets):
        return mask
    if isinstance(mask, AttentionWeights):
        if mask.shape[-2:] != (t, s):
            raise ValueError(f"mask: expected weights of shape (…, {t}, {s}), got {mask.shape}")
        check_weights(mask, mask.shape)
        return compressed(mask.indices, mask.indptr, mask.shape[:-2], s)
    if hasattr(mask, "tocsr"):
        if getattr(mask, "format", None) != "csr" or mask.dtype != np.bool_:
            raise TypeError(
                f"mask: expected a boolean CSR array, got {mask.dtype} of format "
                f"{getattr(mask, 'format', type(mask).__name__)}; mask.tocsr().astype(bool) is one"
            )
        if mask.shape != (t, s):
            raise ValueError(f"mask: expected a CSR array of shape ({t}, {s}), got {mask.shape}")
        return compressed(mask.indices, mask.indptr, (), s, mask.data)
    array = np.asarray(mask) if isinstance(mask, (list, tuple)) else mask
    if getattr(getattr(array, "dtype", None), "kind", "") not in "iu" or is_masked(array):
        return None
    if on_device(array) or is_dask(array):
        raise TypeError(f"mask of numbers of keys: expected a NumPy array, got {type(array)}")
    return _listed(np.asarray(array), t, s)


def _listed(numbers: Any, t: int, s: int) -> KeySets:
    """The sets of numbers of keys, (…, T, k), in any order, with −1 for none."""
    if numbers.ndim < 2 or numbers.shape[-2] != t:
        raise ValueError(
            f"mask of numbers of keys: expected shape (…, {t}, k), got {numbers.shape}; a mask of "
            "bools is mask.astype(bool)"
        )
    k = numbers.shape[-1]
    least, most = (numbers.min(), numbers.max()) if numbers.size else (0, -1)
    if k == s > 2 and least >= 0 and most <= 1:
        raise ValueError(
            f"mask of integers, all 0 or 1, with shape {numbers.shape}: expected numbers of keys; "
            "did you mean mask.astype(bool)?"
        )
    if least < -1 or most >= s:
        raise ValueError(
            f"mask of numbers of keys: expected 0 to {s - 1}, or -1 for none, got {least} to {most}"
        )
    seen = numbers >= 0
    ends = np.cumsum(np.count_nonzero(seen, axis=-1)).reshape(numbers.shape[:-1])
    rises = numbers[..., 1:] > numbers[..., :-1]
    if (rises | ~(seen[..., 1:] | seen[..., :-1])).all():  # in order, and −1 in front
        keys, order = (
            (numbers.ravel(), None) if seen.all() else (numbers[seen], np.flatnonzero(seen))
        )
        return KeySets(keys.astype(np.int32), ends, numbers.shape, order)
    # A key and where it stands are one number, so that sorting the keys orders both.
    both = numbers.astype(np.int64) << 32 | np.arange(k)
    both.sort(axis=-1)
    keys = both >> 32
    seen = keys >= 0
    if k:
        _check_once(keys[..., 1:] == keys[..., :-1], keys[..., 1:], seen[..., 1:])
    both &= (1 << 32) - 1
    both += (np.arange(math.prod(numbers.shape[:-1])) * k).reshape((*numbers.shape[:-1], 1))
    return KeySets(keys[seen].astype(np.int32), ends, numbers.shape, both[seen])


def compressed(
    indices: Any, indptr: Any, batch: tuple[int, ...], s: int, stored: Any = None
) -> KeySets:
    """The sets of compressed rows among s keys, without the entries that are stored as False."""
    if on_device(indices):
        raise TypeError("a set of keys as mask: expected arrays on the host, got one on a GPU")
    indptr = np.asarray(indptr, np.int64)
    count = int(indptr[-1])
    indices = indices[:count]
    if indptr[0] != 0 or (np.diff(indptr) < 0).any() or len(indices) != count:
        raise ValueError(OUTSIDE)
    if count and not (indices.min() >= 0 and indices.max() < s):
        raise ValueError(
            f"mask: expected keys from 0 to {s - 1}, got {indices.min()} to {indices.max()}"
        )
    ends = indptr[1:].reshape((*batch, -1)) if len(indptr) > 1 else np.zeros((*batch, 0), np.int64)
    sets = KeySets(np.asarray(indices, np.int32), ends, (count,))
    if stored is not None:
        sets = sets._chosen(np.asarray(stored[:count], bool))
    rows, keys = sets.rows, sets.indices
    if not ((np.diff(keys) > 0) | (np.diff(rows) > 0)).all():
        by_key = np.argsort(rows * s + keys, kind="stable")
        order = by_key if sets.order is None else sets.order[by_key]
        sets = replace(sets, indices=keys[by_key], order=order)
        keys = sets.indices
        _check_once((keys[1:] == keys[:-1]) & (rows[1:] == rows[:-1]), keys[1:], True)
    return sets


def _check_once(repeated: Any, keys: Any, seen: Any) -> None:
    repeated = repeated & seen
    if repeated.any():
        raise ValueError(
            f"mask: expected each key of a query once, got key {keys[repeated][0]} twice"
        )
