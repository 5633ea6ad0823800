"""A call of attention of tensors: its arguments, checked, with defaults filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyentmax.sparse_attention import DistanceBias
from pyentmax.sparse_attention.arguments import batch_shapes
from pyentmax.sparse_attention.key_sets import KeySets
from pyentmax.sparse_attention.problem import AttentionProblem
from pyentmax.torch.operations import PARAMETERS


class TensorProblem(NamedTuple):
    """The arguments of an operation of attention, all of one floating dtype.

    The schemas of the operations are made from the fields, so that a problem is what they take.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mapping: str
    parameter: Any  # of the mapping, a tensor or None; or else a number
    number: Any
    mask: Any  # bools; or the keys of sets, of integers, which end at `ends`
    ends: Any
    causal: bool
    offset: Any
    scale: Any
    sink: Any
    bias: Any  # a tensor or None, by its kind: "scores", "entries", "distances" or "slopes"
    kind: str
    cu_queries: Any  # where packed sequences begin and end, and the offset of each
    cu_keys: Any
    offsets: Any
    softcap: Any = None
    dropout: float = 0.0
    return_weights: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the scores."""
        batch, _ = batch_shapes(self.query.shape[:-2], self.key.shape[:-2], self.value.shape[:-2])
        return (*batch, self.query.shape[-2], self.key.shape[-2])

    @property
    def parameter_value(self) -> Any:
        """The mapping's parameter, a number or a tensor; None if it has none."""
        return self.number if self.parameter is None else self.parameter

    @property
    def alpha(self) -> Any:
        """The α of α-entmax, 1.5-entmax and sparsemax; None of other mappings."""
        alphas = {"entmax": self.parameter_value, "entmax15": 1.5, "sparsemax": 2.0}
        return alphas.get(self.mapping)

    @property
    def masks_keys(self) -> bool:
        """True if some keys are masked; masked keys may contain NaN."""
        return self.causal or self.mask is not None or self.cu_queries is not None

    @property
    def modifies_scores(self) -> bool:
        """True if a bias by score, a softcap or dropout changes scores or weights."""
        added = self.bias is not None and self.kind == "scores"
        return added or self.softcap is not None or bool(self.dropout)

    @property
    def learns(self) -> bool:
        """Whether a derivative may be asked for."""
        if torch.is_grad_enabled():
            for x in (*self[:3], self.parameter, self.sink, self.bias):
                if isinstance(x, Tensor) and x.requires_grad:
                    return True
        return False

    @property
    def has_few_queries(self) -> bool:
        """Whether the kernel for few queries serves the problem, if they are few.

        Its backward pass would go tile by tile, so a call that learns goes by whole matrices.
        """
        served = self.mapping in ("entmax", "entmax15", "sparsemax")
        return served and self.query.is_cpu and not self.learns

    @property
    def is_softmax(self) -> bool:
        """Whether PyTorch's `scaled_dot_product_attention` computes the same."""
        if self.mapping != "softmax":
            return False
        q, k, v = (x.shape for x in self[:3])
        same_heads = q[:-2] == k[:-2] == v[:-2]
        grouped = len(q) == 4 and q[0] == k[0] and k[:-2] == v[:-2] and not q[1] % max(k[1], 1)
        nothing_else = self.softcap is None and self.sink is None and not self.return_weights
        one_form = self.cu_queries is None and not (self.mask is not None and self.bias is not None)
        return (
            nothing_else and one_form and len(q) >= 3
            and (same_heads or grouped) and 0 not in self.shape
        )  # fmt: skip

    def positions(self) -> tuple[Tensor, Tensor, Any, Tensor | None]:
        """The positions of queries (T, 1) and keys in their sequences, and the queries' offset.

        In packed sequences keys have a position for each query, and the last says whether both are
        in one sequence.
        """
        row = torch.arange(self.query.shape[-2], device=self.query.device)[:, None]
        column = torch.arange(self.key.shape[-2], device=self.query.device)
        if self.cu_queries is None:
            return row, column, self.offset, None
        queries, keys = self.cu_queries, self.cu_keys
        own = torch.searchsorted(queries, row[:, 0].to(queries.dtype), right=True)[:, None]
        together = own == torch.searchsorted(keys, column.to(keys.dtype), right=True)
        offset = self.offset if self.offsets is None else self.offsets[own - 1]
        return row - queries[own - 1], column - keys[own - 1], offset, together

    def attention_mask(self) -> Tensor | None:
        """The mask of keys that a query sees; None for all."""
        mask: Tensor | None = self.mask
        if self.cu_queries is None and not self.causal:
            return mask
        row, column, offset, seen = self.positions()
        if self.causal:
            earlier = column <= row + offset
            seen = earlier if seen is None else seen & earlier
        return seen if mask is None or seen is None else seen & mask

    def added(self) -> Tensor | None:
        """The bias of the scores, as a tensor that broadcasts to them; None if there is none."""
        bias: Tensor | None = self.bias
        if bias is None or self.kind == "scores":
            return bias
        row, column, offset, together = self.positions()
        if self.kind == "slopes":
            return -bias[..., None, None] * (row + offset - column).abs()
        place = column - row + self.query.shape[-2] - 1
        return bias[..., place if together is None else torch.where(together, place, 0)]


def problem_of(arrays: Sequence[Any]) -> AttentionProblem:
    """The problem whose operands, and further ones, are these arrays."""
    own = TensorProblem._make(arrays[:FIELDS])
    name, bias, mask = PARAMETERS[own.mapping], own.bias, own.mask
    if bias is not None and own.kind in ("distances", "slopes"):
        bias = DistanceBias(slopes=bias) if own.kind == "slopes" else DistanceBias(bias)
    if own.ends is not None:
        mask = KeySets(mask, own.ends, mask.shape)
    parameter = own.number if own.parameter is None else own.parameter
    return AttentionProblem(
        *own[:3], mapping=own.mapping, mask=mask, causal=own.causal,
        offset=own.offset if own.offsets is None else own.offsets, scale=own.scale,
        sink=own.sink, bias=bias,
        cu_seqlens=None if own.cu_queries is None else (own.cu_queries, own.cu_keys),
        **({} if name is None else {name: parameter}),
    )  # fmt: skip


SCHEMA = (
    "Tensor query, Tensor key, Tensor value, str mapping, Tensor? parameter, float? number, "
    "Tensor? mask, Tensor? ends, bool causal, int offset, float? scale, Tensor? sink, "
    "Tensor? bias, str kind, Tensor? cu_queries, Tensor? cu_keys, Tensor? offsets, "
    "float? softcap, float dropout, bool return_weights"
)
FIELDS = len(TensorProblem._fields)
