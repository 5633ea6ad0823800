"""Rows of different lengths in tensors: a dimension that `offsets` cut, and jagged tensors.

On the host they go through the functions of arrays, as does the first derivative (`operations`).
Elsewhere, for second derivatives, in forward mode and under `torch.func`, rows that need the same
power of two go together, the shorter ones filled up by masked entries, and through the function of
tensors as ever. Which rows these are is read on the host; a graph of `torch.compile` breaks there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from pyentmax.torch.arguments import check_broadcast, check_dim, check_tensor
from pyentmax.torch.composed import wide


class Cut:
    """A dimension of scores, cut into rows; what is per row has their number in its place."""

    def __init__(self, offsets: Tensor, z: Tensor, dim: int) -> None:
        check_dim(dim)
        check_tensor(offsets, "offsets")
        if offsets.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"offsets must be int32 or int64, got {offsets.dtype}")
        if not z.ndim:
            raise ValueError("z is 0-dimensional; offsets cut a dimension into rows")
        self.offsets, self.device = offsets, z.device
        self.dim, self.shape = dim % z.ndim, z.shape
        at, length = offsets.to("cpu", torch.int64), z.shape[self.dim]
        if at.ndim != 1 or not len(at):
            raise ValueError(f"offsets must have the shape (rows + 1,), got {tuple(offsets.shape)}")
        if at[0] != 0 or at[-1] != length or (at.diff() < 0).any():
            raise ValueError(
                f"offsets must rise from 0 to {length}, the length of the dimension, got "
                f"{at[0]} to {at[-1]}" + (", falling" if (at.diff() < 0).any() else "")
            )
        self.starts, self.lengths = at[:-1], at.diff()
        self.batch = (*z.shape[: self.dim], len(self.starts), *z.shape[self.dim + 1 :])

    def rows_first(self, x: Tensor, name: str, *, per_row: bool = False) -> Tensor:
        """What is per entry, or per row, with that dimension first."""
        shape, what = (self.batch, "the rows") if per_row else (self.shape, "z")
        check_broadcast(x, shape, name, what)
        x = x.expand(shape).movedim(self.dim, 0)
        if per_row or len(x):
            return x
        return x.new_zeros(1, *x.shape[1:]) + x.sum(0, keepdim=True)  # a place for empty rows

    def groups(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The rows that go together, the places of their entries, and where there is one."""
        powers = (self.lengths - 1).clamp(min=0).to(torch.float64)
        powers = torch.where(powers > 0, powers.log2().floor() + 1, 0)
        last = max(self.shape[self.dim] - 1, 0)
        for power in powers.unique().tolist():
            rows = torch.nonzero(powers == power)[:, 0]
            along = torch.arange(int(self.lengths[rows].max().clamp(min=1)), device="cpu")
            live = along < self.lengths[rows, None]
            places = (self.starts[rows, None] + along).clamp(max=last)
            yield rows.to(self.device), places.to(self.device), live.to(self.device)

    def taken(self, x: Tensor, places: Tensor) -> Tensor:
        """Entries, of an array with the dimension first, in rows that lie last."""
        return x[places].movedim(1, -1)

    def only(self, live: Tensor) -> Tensor:
        """Where there is an entry, for the rows of `taken`."""
        return live.view(len(live), *(1,) * (len(self.shape) - 1), live.shape[1])

    def entries(self, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Groups of what is per entry, with their `places` where `live`, as one tensor."""
        shape = (self.shape[self.dim], *self.shape[: self.dim], *self.shape[self.dim + 1 :])
        joined, order = torch.cat([x for x, _ in parts]), _inverse([places for _, places in parts])
        return joined[order].view(shape).movedim(0, self.dim).contiguous()

    def numbers(self, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Groups of what is per row, with the rows."""
        order = _inverse([rows for _, rows in parts])
        return torch.cat([part for part, _ in parts])[order].movedim(0, self.dim)


def _inverse(places: list[Tensor]) -> Tensor:
    """Where 0, 1, … stand in a permutation, which comes in parts."""
    order = torch.cat(places)
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


def map_rows(
    call: Callable[..., Tensor], cut: Cut, z: Tensor, value: Any, mask: Any, per_score: bool
) -> Tensor:
    """``call(z, value, mask)`` of rows along the last dimension, for those that are cut."""
    z = cut.rows_first(z, "z")
    mask = None if mask is None else cut.rows_first(mask, "mask")
    if isinstance(value, Tensor) and value.ndim:
        value = cut.rows_first(value, "the parameter", per_row=not per_score)
    parts = []
    for rows, places, live in cut.groups():
        own = value
        if isinstance(value, Tensor) and value.ndim:
            own = cut.taken(value, places) if per_score else value[rows]
        only = cut.only(live)
        if mask is not None:
            only = only & cut.taken(mask, places)
        p = call(cut.taken(z, places), own, only)
        parts.append((p.movedim(-1, 1)[live], places[live]))
    return cut.entries(parts)


@torch.compiler.disable
def loss_of_rows(
    call: Callable[..., Tensor],
    offsets: Tensor,
    z: Tensor,
    y: Tensor,
    value: Any,
    dim: int,
    weight: Tensor | None,
    mask: Tensor | None,
    reduction: str,
    ignore_index: int | None,
) -> Tensor:
    """A loss of rows that offsets cut, by ``call(z, y, value, weight, mask)`` for those along the
    last dimension, which returns that of each.
    """
    cut = Cut(offsets, z, dim)
    labels = not y.is_floating_point() and y.shape == cut.batch
    if not labels and y.shape != z.shape:
        raise ValueError(
            f"y must be integer labels of shape {tuple(cut.batch)}, one for each row, or "
            f"distributions of shape {tuple(z.shape)}, got {y.dtype} of {tuple(y.shape)}"
        )
    z, y = cut.rows_first(z, "z"), cut.rows_first(y, "y", per_row=labels)
    mask = None if mask is None else cut.rows_first(mask, "mask")
    if isinstance(value, Tensor) and value.ndim:
        value = cut.rows_first(value, "the parameter", per_row=True)
    share = torch.ones(cut.batch, dtype=wide(z).dtype, device=z.device)
    if weight is not None:
        share = share * weight
        weight = cut.rows_first(weight, "weight", per_row=True)
    share = share.movedim(cut.dim, 0)
    if labels and ignore_index is not None:
        share = share.where(y != ignore_index, 0)
    empty = (cut.lengths == 0).nonzero()[:, 0].to(z.device)
    if labels and len(empty) and (share[empty] != 0).any():
        raise ValueError("the label of an empty row must be ignore_index")
    parts, counts = [], []
    for rows, places, live in cut.groups():
        scores, only = cut.taken(z, places), cut.only(live)
        if mask is not None:
            only = only & cut.taken(mask, places)
        target = y[rows] if labels else cut.taken(y, places).where(only, 0)
        own = value[rows] if isinstance(value, Tensor) and value.ndim else value
        each = call(scores, target, own, None if weight is None else weight[rows], only)
        parts.append((each, rows))
        counts.append((((scores.detach() != -torch.inf) & only).any(-1), rows))
    if not parts:
        return z.new_zeros(cut.batch) if reduction == "none" else z.sum()
    each = cut.numbers(parts)
    if reduction == "none":
        return each
    total = wide(each).sum()
    if reduction == "mean":
        divisor = share.movedim(0, cut.dim).where(cut.numbers(counts), 0).sum()
        total = total / divisor.where(divisor > 0, 1)
    return total.to(each.dtype)


def of_jagged(z: Tensor, dim: int, mask: Tensor | None) -> tuple[Any, ...]:
    """The values of a jagged tensor, their dimension, the offsets if it is cut, and the mask's.

    The last part is a function that makes a jagged tensor of values.
    """
    if z.lengths() is not None:
        raise ValueError("z is a jagged tensor with holes between its rows: pass z.contiguous()")
    check_dim(dim)
    ragged = next(i for i, n in enumerate(z.shape) if i and type(n) is not int)
    dim %= z.ndim
    if dim == 0:
        raise ValueError("dim must not be 0, the dimension of a jagged tensor's parts")
    if mask is not None:
        if not mask.is_nested or mask.shape != z.shape:
            raise ValueError("mask must be a jagged tensor with the offsets of z")
        mask = mask.values()
    offsets = z.offsets()

    def wrapped(values: Tensor) -> Tensor:
        return torch.nested.nested_tensor_from_jagged(values, offsets, jagged_dim=ragged)

    return z.values(), dim - 1, offsets if dim == ragged else None, mask, wrapped
