"""A layer of a cache of ``transformers`` whose keys carry their copies of 8 bits.

`pyentmax.torch.transformers.ScreenedCache` makes a cache of such layers. This module imports
``transformers``, and is imported by nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from pyentmax.torch.screened import DTYPES, ScreenedRows


class ScreenedLayer(DynamicLayer):
    """Keys as `ScreenedRows`, and values, in memory that is reserved for more than there are.

    The keys that `update` returns have the attribute ``screened``, which attention looks for. A
    tensor made from them lacks it, and is scored in full. Tensors that get a gradient, those on
    another device, and those of a type that `ScreenedRows` do not take, are kept as in a
    `DynamicLayer`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._rows: ScreenedRows | None = None
        self._room: Any = None  # the values, and room for more

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Add keys and values, and return all of them."""
        new = key_states, value_states
        learned = torch.is_grad_enabled() and any(x.requires_grad for x in new)
        if learned or not key_states.is_cpu or any(x.dtype not in DTYPES for x in new):
            self._rows = None
            return super().update(*new, *args, **options)
        if self._rows is None:
            keys, self._room = super().update(*new, *args, **options)
            self._rows = ScreenedRows(keys)
        else:
            n = self.get_seq_length()
            self._rows.append(key_states)
            stop = self._rows.shape[-2]
            if stop > self._room.shape[-2]:
                self._room = _with_room(self._room[..., :n, :], 2 * stop)
            self._room[..., n:stop, :] = value_states
        self._show()
        return self.keys, self.values

    def _show(self) -> None:
        assert self._rows is not None
        self.keys, self.values = self._rows.rows, self._room[..., : self._rows.shape[-2], :]
        self.keys.screened = self._rows

    def reset(self) -> None:
        """Drop all keys and values."""
        super().reset()
        self._rows = self._room = None

    def crop(self, *args: Any) -> None:
        """Drop the last keys and values."""
        super().crop(*args)
        if self._rows is not None and self.keys is not None:
            self._rows.crop(self.keys.shape[-2])

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep these members of the batch, in this order."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each member of the batch."""
        if self.get_seq_length():
            self.batch_select_indices(torch.arange(len(self.keys)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these members of the batch, in this order."""
        if self._rows is None:
            super().batch_select_indices(indices)
        elif not torch.equal(indices, torch.arange(len(self.keys))):
            self._rows = self._rows.take(indices)
            self._room = _with_room(self.values[indices], self._room.shape[-2])
            self._show()


def _with_room(values: Tensor, size: int) -> Tensor:
    """Values (…, n, d) in front of room for as many as `size`."""
    room = values.new_empty((*values.shape[:-2], size, values.shape[-1]))
    room[..., : values.shape[-2], :] = values
    return room
