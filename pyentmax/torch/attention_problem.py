"""A call of attention of tensors: its arguments, checked, with defaults filled in."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyentmax.sparse_attention import DistanceBias
from pyentmax.sparse_attention.arguments import check_edges, pair_of


class Packed(NamedTuple):
    """Where packed sequences begin and end, in queries and keys, and the offset of each."""

    queries: Tensor
    keys: Tensor
    offsets: Tensor | None

    @classmethod
    def of(cls, cu_seqlens: Any, offset: Any, like: Tensor) -> Packed:
        """Those of the arguments of `pyentmax.torch.attention`."""
        queries, keys = (torch.as_tensor(x, device=like.device) for x in pair_of(cu_seqlens))
        for tensor in (queries, keys):
            check_edges(tensor, not (tensor.is_floating_point() or tensor.dtype == torch.bool))
        is_one = isinstance(offset, int) or offset is None
        return cls(queries, keys, None if is_one else torch.as_tensor(offset, device=like.device))


class TensorProblem(NamedTuple):
    """The arguments of a call of `pyentmax.torch.attention`, of one dtype, with their defaults."""

    query: Tensor
    key: Tensor
    value: Tensor
    shape: tuple[int, ...]  # of the scores
    mapping: str
    parameter: Any
    mask: Tensor | None
    causal: bool
    offset: Any
    scale: float
    sink: Tensor | None = None
    packed: Packed | None = None
    bias: Tensor | DistanceBias | None = None
    softcap: float | None = None
    dropout: float = 0.0
    return_weights: bool = False

    @property
    def arrays(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def hides(self) -> bool:
        """Whether queries may not see some keys, which may hold anything then."""
        return self.causal or self.mask is not None or self.packed is not None

    @property
    def changed(self) -> bool:
        """Whether scores or weights are changed on their way, by more than distances."""
        added = isinstance(self.bias, Tensor)
        return added or self.softcap is not None or bool(self.dropout)

    @property
    def has_few_queries(self) -> bool:
        """Whether the kernel for few queries serves the problem, if they are few.

        Its backward pass would go tile by tile, so a call that learns goes by whole matrices.
        """
        tensors = [x for x in (*self.arrays, self.parameter, self.sink) if isinstance(x, Tensor)]
        learns = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        served = self.mapping in ("entmax", "entmax15", "sparsemax")
        return served and self.query.is_cpu and not learns

    @property
    def is_softmax(self) -> bool:
        """Whether PyTorch's `scaled_dot_product_attention` computes the same."""
        if self.mapping != "softmax":
            return False
        q, k, v = (x.shape for x in self.arrays)
        same_heads = q[:-2] == k[:-2] == v[:-2]
        grouped = len(q) == 4 and q[0] == k[0] and k[:-2] == v[:-2] and not q[1] % max(k[1], 1)
        nothing_else = self.softcap is None and self.sink is None and not self.return_weights
        one_form = self.packed is None and not (self.mask is not None and self.bias is not None)
        return (
            nothing_else and one_form and len(q) >= 3
            and (same_heads or grouped) and 0 not in self.shape
        )  # fmt: skip

    def positions(self) -> tuple[Tensor, Tensor, Any, Tensor | None]:
        """The positions of queries (T, 1) and keys in their sequences, and the queries' offset.

        In packed sequences keys have a position for each query, and the last says whether both are
        in one sequence.
        """
        t, s = self.shape[-2:]
        row = torch.arange(t, device=self.query.device)[:, None]
        column = torch.arange(s, device=self.query.device)
        if self.packed is None:
            return row, column, self.offset, None
        queries, keys, offsets = self.packed
        own = torch.searchsorted(queries, row[:, 0].to(queries.dtype), right=True)[:, None]
        together = own == torch.searchsorted(keys, column.to(keys.dtype), right=True)
        offset = self.offset if offsets is None else offsets[own - 1]
        return row - queries[own - 1], column - keys[own - 1], offset, together

    def attention_mask(self) -> Tensor | None:
        """Which keys a query sees; None for all."""
        if self.packed is None and not self.causal:
            return self.mask
        row, column, offset, mask = self.positions()
        if self.causal:
            earlier = column <= row + offset
            mask = earlier if mask is None else mask & earlier
        return mask if self.mask is None or mask is None else mask & self.mask

    def added(self) -> Tensor | None:
        """What is added to the scores, as a tensor that broadcasts to them; None for nothing."""
        if not isinstance(self.bias, DistanceBias):
            return self.bias
        row, column, offset, together = self.positions()
        array: Tensor = self.bias.array
        if self.bias.is_alibi:
            return -array[..., None, None] * (row + offset - column).abs()
        place = column - row + self.shape[-2] - 1
        return array[..., place if together is None else torch.where(together, place, 0)]
