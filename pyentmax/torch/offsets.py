"""Rows of different lengths in tensors: a dimension that `offsets` cut.

On the host they go through the functions of arrays, as does the first derivative (`operations`).
Elsewhere, for second derivatives, in forward mode and under `torch.func`, rows that need the same
power of two go together, the shorter ones filled up by masked entries, and through the function of
tensors as ever. Which rows these are is read on the host; a graph of `torch.compile` breaks there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyentmax.engine.calls.offsets import CutAxis
from pyentmax.torch.arguments import check_broadcast, check_dim, check_tensor
from pyentmax.torch.arrays import lent
from pyentmax.torch.composed import wide


class Cut(CutAxis):
    """A dimension of scores, cut into rows; what is per row has their number in its place."""

    def __init__(self, offsets: Tensor, z: Tensor, dim: int) -> None:
        check_dim(dim)
        check_tensor(offsets, "offsets")
        on_host = lent(offsets) if offsets.is_cpu else np.array(offsets.tolist())
        super().__init__(on_host, tuple(z.shape), dim, "z")
        self.device = z.device

    def padded_groups(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The rows that go together, the places of their entries, and where there is one."""
        powers = np.ceil(np.log2(np.maximum(self.lengths, 1)))
        last = max(self.shape[self.axis] - 1, 0)
        for power in np.unique(powers):
            rows = np.flatnonzero(powers == power)
            along = np.arange(max(self.lengths[rows].max(), 1))
            places = np.minimum(self.starts[rows, None] + along, last)
            group = rows, places, along < self.lengths[rows, None]
            yield tuple(torch.from_numpy(x).to(self.device) for x in group)

    def map_rows(
        self, call: Callable[..., Tensor], entries: Sequence[Any], numbers: Sequence[Any]
    ) -> Tensor:
        """``call(live, *entries, *numbers)`` of rows along the last dimension, for those cut.

        Parameters
        ----------
        call : callable
            `live` is where there is an entry. It returns one for each, or a number for each row
        entries, numbers : sequences of Tensors, and of what all groups get as it is
            what broadcasts to the scores, and to what is per row
        """
        entries = [self._first(x, self.shape) for x in entries]
        numbers = [self._first(x, self.batch) for x in numbers]
        parts, places = [], []
        for rows, at, live in self.padded_groups():
            only = live.view(len(live), *(1,) * (len(self.shape) - 1), live.shape[1])
            own = [x[at].movedim(1, -1) if _is_cut(x) else x for x in entries]
            own += [x[rows] if _is_cut(x) else x for x in numbers]
            part = call(only, *own)
            is_each_entry = part.ndim > len(self.shape)
            parts.append(part.movedim(-1, 1)[live] if is_each_entry else part)
            places.append(at[live] if is_each_entry else rows)
        order = torch.cat(places)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order), device=self.device)
        return torch.cat(parts)[inverse].movedim(0, self.axis).contiguous()

    def _first(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.expand(shape).movedim(self.axis, 0) if _is_cut(x) else x


def _is_cut(x: Any) -> bool:
    return isinstance(x, Tensor) and x.ndim > 0


@torch.compiler.disable
def loss_of_rows(
    call: Callable[..., Tensor],
    cut: Cut,
    z: Tensor,
    y: Tensor,
    value: Any,
    weight: Tensor | None,
    mask: Tensor | None,
    reduction: str,
    ignore_index: int | None,
) -> Tensor:
    """A loss of rows that offsets cut, by ``call(z, y, value, weight, mask)`` for those along the
    last dimension, which returns that of each.
    """
    labels = not y.is_floating_point() and y.shape == cut.batch
    if not labels and y.shape != z.shape:
        raise ValueError(
            f"y must be integer labels of shape {cut.batch}, one for each row, or "
            f"distributions of shape {tuple(z.shape)}, got {y.dtype} of {tuple(y.shape)}"
        )
    for x, name in ((value, "the parameter"), (weight, "weight")):
        if isinstance(x, Tensor):
            check_broadcast(x, cut.batch, name, "the rows")
    share = torch.ones(cut.batch, dtype=wide(z).dtype, device=z.device)
    share = share if weight is None else share * weight
    if labels and ignore_index is not None:
        share = share.where(y != ignore_index, 0)
    empty = torch.from_numpy(cut.lengths == 0).to(z.device)
    if labels and (share.movedim(cut.axis, 0)[empty] != 0).any():
        raise ValueError("the label of an empty row must be ignore_index")

    def each_of(live: Tensor, z: Tensor, mask: Any, *rest: Any) -> Tensor:
        y, value, weight = rest
        live = live if mask is None else live & mask
        return call(z, y if labels else y.where(live, 0), value, weight, live)

    if not z.numel():
        return z.new_zeros(cut.batch) if reduction == "none" else z.sum()
    entries, numbers = [z, mask], [value, weight]
    if labels:
        numbers.insert(0, y)
    else:
        entries.append(y)
    each = cut.map_rows(each_of, entries, numbers)
    if reduction == "none":
        return each
    total = wide(each).sum()
    if reduction == "mean":
        live = z.detach() != -torch.inf
        live = live if mask is None else live & mask
        counts = cut.map_rows(lambda only, live: (only & live).any(-1), (live,), ())
        divisor = share.where(counts, 0).sum()
        total = total / divisor.where(divisor > 0, 1)
    return total.to(each.dtype)
