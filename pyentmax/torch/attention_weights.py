"""The weights of attention of tensors without their zeros."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from pyentmax.sparse_attention.weights import flat_head


class AttentionWeights:
    """The weights of all queries as one matrix in compressed sparse rows.

    As `pyentmax.AttentionWeights`, with tensors. `data` and what `to_dense` returns have gradients.
    Where attention made all weights, compressed rows are made when they are first asked for.

    Parameters
    ----------
    shape : tuple of int
        batch + (T, S), the shape of `to_dense`
    parts : tuple of Tensors, optional
        data, indices and indptr
    sink : Tensor of shape batch + (T,), optional
        the weight of each query's sink
    dense : Tensor, optional
        all weights, in place of parts

    Attributes
    ----------
    data : Tensor of the non-zero weights
    indices : Tensor of int32, the key of each
    indptr : Tensor of int64, of length batch · T + 1, where each row begins

    Examples
    --------
    >>> x = torch.tensor([[4.0], [0.0]])
    >>> keys = torch.tensor([[1.0], [0.5], [-1.0]])
    >>> from pyentmax.torch import attention
    >>> output, weights = attention(x, keys, keys, 2, scale=1, return_weights=True)
    >>> print(weights.to_dense())
    tensor([[1.0000, 0.0000, 0.0000],
            [0.3333, 0.3333, 0.3333]])
    >>> print(weights.support_sizes, round(weights.density, 4))
    tensor([1, 3]) 0.6667
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        parts: tuple[Tensor, Tensor, Tensor] | None = None,
        sink: Tensor | None = None,
        *,
        dense: Tensor | None = None,
    ) -> None:
        self.shape, self.sink = shape, sink
        self._compressed, self._dense = parts, dense

    @functools.cached_property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._compressed is not None:
            return self._compressed
        assert self._dense is not None
        rows = self._dense.reshape(math.prod(self.shape[:-1]), self.shape[-1])
        row, column = rows.detach().nonzero(as_tuple=True)
        counts = (rows.detach() != 0).sum(-1)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return rows[row, column], column.int(), indptr

    @property
    def data(self) -> Tensor:
        """The non-zero weights."""
        return self._parts[0]

    @property
    def indices(self) -> Tensor:
        """The key of each."""
        return self._parts[1]

    @property
    def indptr(self) -> Tensor:
        """The start of each row."""
        return self._parts[2]

    @property
    def support_sizes(self) -> Tensor:
        """The number of keys with weight of each query, of shape batch + (T,)."""
        return self.indptr.diff().reshape(self.shape[:-1])

    @property
    def density(self) -> float:
        """The share of weights that are not zero; 0 if there are no weights."""
        return self.data.numel() / max(1, math.prod(self.shape))

    def to_dense(self) -> Tensor:
        """All weights, zeros included, as a tensor of shape batch + (T, S), with its gradient."""
        if self._dense is not None:
            return self._dense
        data, indices, indptr = self._parts
        rows = rows_of(indptr)
        dense = data.new_zeros(len(indptr) - 1, self.shape[-1])
        return dense.index_put((rows, indices.long()), data).reshape(self.shape)

    def csr(self, *head: int) -> Tensor:
        """One head's weights as a sparse tensor of shape (T, S), in layout ``torch.sparse_csr``.

        Parameters
        ----------
        *head : int
            the index of the head in the batch shape; nothing if that is ()

        Raises
        ------
        IndexError
            if there is no such head
        """
        t, s = self.shape[-2:]
        flat = flat_head(head, self.shape[:-2])
        ends = self.indptr[flat * t : (flat + 1) * t + 1]
        entries = slice(int(ends[0]), int(ends[-1]))
        columns = self.indices[entries].long()
        parts = ends - ends[0], columns, self.data[entries]
        return torch.sparse_csr_tensor(*parts, (t, s), check_invariants=False)

    def to(self, dtype: torch.dtype) -> AttentionWeights:
        """The weights in another dtype."""
        parts = self._compressed and (self._compressed[0].to(dtype), *self._compressed[1:])
        sink = None if self.sink is None else self.sink.to(dtype)
        dense = None if self._dense is None else self._dense.to(dtype)
        return AttentionWeights(self.shape, parts, sink, dense=dense)


def rows_of(indptr: Tensor) -> Tensor:
    """The row of each entry."""
    return torch.arange(len(indptr) - 1, device=indptr.device).repeat_interleave(indptr.diff())
