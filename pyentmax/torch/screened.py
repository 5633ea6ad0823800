"""Screened rows of tensors: keys of a growing cache, or an output layer, read in 8 bits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pyentmax
from pyentmax.sparse_attention import DistanceBias
from pyentmax.sparse_attention.entmax_linear import weights_of_rows
from pyentmax.sparse_attention.screened_rows import Bfloat16
from pyentmax.torch.arrays import on_arrays
from pyentmax.torch.calls import name_of

DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64


class ScreenedRows:
    """Rows with copies of 8 bits, as key of `attention` or the matrix of `entmax_linear`.

    That of `pyentmax.ScreenedRows`, in the memory of a tensor on the host: most rows are proven
    from their copies to have no weight, and not read. Results are those of all rows. They have no
    gradient, and take part in no graph.

    Parameters
    ----------
    rows : Tensor of shape (…, n, d) of a floating type, on the CPU
        kept as it is until rows are appended; do not change it. Of float16 and bfloat16 only the
        rows that are read in full are converted, to float32
    room : int, default 0
        number of rows to take memory for at once, which copies `rows`

    Raises
    ------
    TypeError
        if rows are not such a tensor
    ValueError
        if they have fewer than two dimensions

    Examples
    --------
    >>> import torch, pyentmax.torch as pt
    >>> query, key, value = torch.eye(4)[:1], torch.randn(500, 4), torch.randn(500, 4)
    >>> keys = pt.ScreenedRows(key)
    >>> torch.allclose(pt.attention(query, keys, value), pt.attention(query, key, value))
    True
    >>> keys.append(torch.randn(1, 4))
    >>> keys
    ScreenedRows(501 rows of 4, torch.float32)
    """

    def __init__(self, rows: Tensor, *, room: int = 0) -> None:
        if not isinstance(rows, Tensor) or rows.dtype not in DTYPES or not rows.is_cpu:
            what = f"{rows.dtype} on {rows.device}" if isinstance(rows, Tensor) else type(rows)
            raise TypeError(
                f"rows: expected a tensor of a floating type on the CPU, got {what}; convert it "
                "first"
            )
        self.screened = pyentmax.ScreenedRows(_array(rows), room=room)

    @property
    def rows(self) -> Tensor:
        """The rows, in memory that later rows may share: do not change them."""
        array = self.screened._rows[..., : self.shape[-2], :]
        if array.dtype == np.uint16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    @property
    def shape(self) -> torch.Size:
        """(…, n, d)."""
        return torch.Size(self.screened.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The rows' dtype."""
        return self.rows.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of memory, with what is reserved for rows to come."""
        return self.screened.nbytes

    def __repr__(self) -> str:
        *shape, _ = repr(self.screened).rpartition(", ")
        return "".join(shape) + f"{self.dtype})"

    def append(self, more: Tensor) -> None:
        """Add rows behind the others, (…, k, d); errors as of `pyentmax.ScreenedRows`."""
        self.screened.append(_array(more.to(self.dtype)))

    def crop(self, n: int) -> None:
        """Keep the first n rows."""
        self.screened.crop(n)

    def take(self, order: Tensor) -> ScreenedRows:
        """The matrices `order` of the first dimension, as when beams are reordered."""
        result = object.__new__(ScreenedRows)
        result.screened = self.screened.take(order.numpy())
        return result


def _array(tensor: Tensor) -> Any:
    """The memory of a tensor, as bits if it is of a type that NumPy lacks."""
    tensor = tensor.detach()
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    return tensor.view(torch.int16).numpy().view(np.uint16).view(Bfloat16)


def entmax_linear(
    x: Tensor,
    rows: ScreenedRows,
    alpha: float | Tensor = 1.5,
    *,
    bias: Tensor | None = None,
    scale: float = 1.0,
    return_counts: bool = False,
) -> Any:
    """α-entmax of scale · x · rowsᵀ + bias, as a sparse tensor, without most of the products.

    Parameters
    ----------
    x : Tensor of shape (b, d), on the CPU
    rows : ScreenedRows of shape (n, d)
    alpha : float or Tensor of shape (b,)
        above 1, and 2 at most
    bias : Tensor of shape (n,), optional
    scale : float, default 1
    return_counts : bool, default False
        also return for how many of the rows each x needed the product, a Tensor of shape (b,)

    Returns
    -------
    sparse CSR Tensor of shape (b, n), without gradient, or that and the counts
        ``.to_dense()`` makes it one with all zeros

    Raises
    ------
    TypeError, ValueError
        as `pyentmax.entmax_linear`; a TypeError for tensors that require a gradient, while
        gradients are enabled

    Examples
    --------
    >>> import torch, pyentmax.torch as pt
    >>> rows = pt.ScreenedRows(torch.tensor([[1.0, 0.0], [0.8, 0.6], [-1.0, 0.0]]))
    >>> pt.entmax_linear(torch.tensor([[1.0, 0.5]]), rows, 2).to_dense()
    tensor([[0.4500, 0.5500, 0.0000]])
    """
    check_no_gradient("entmax_linear", x, alpha, bias)
    if not isinstance(rows, ScreenedRows):
        raise TypeError(f"rows: expected pyentmax.torch.ScreenedRows, got {type(rows).__name__}")

    def run(x: Any, alpha: Any, bias: Any) -> Any:
        data, indices, indptr, counts = weights_of_rows(x, rows.screened, alpha, bias, scale)
        return data, indices.astype(np.int64), indptr.astype(np.int64), counts

    wide = torch.promote_types(rows.dtype, torch.float32)
    values, columns, edges, counts = on_arrays(run, x, alpha, bias, dtype=wide)
    shape = len(x), rows.shape[0]
    with warnings.catch_warnings():  # PyTorch's, once, that such tensors are in a beta state
        warnings.simplefilter("ignore", UserWarning)
        p = torch.sparse_csr_tensor(edges, columns, values, shape, check_invariants=False)
    return (p, counts) if return_counts else p


def screened_attention(
    query: Tensor, key: ScreenedRows, value: Tensor, alpha: Any, *, mapping: Any, bias: Any,
    mask: Any, scale: Any, sink: Any, causal: bool, offset: Any, **refused: Any,
) -> Tensor:  # fmt: skip
    """The output of `pyentmax.torch.attention` with screened keys."""
    for name, argument in refused.items():
        if argument is not None and not (isinstance(argument, (bool, float)) and not argument):
            raise ValueError(f"ScreenedRows as key do not go with {name}: pass key.rows instead")
    options = {"mapping": name_of(mapping), "causal": causal, "offset": offset}
    array = bias.array if isinstance(bias, DistanceBias) else bias
    tensors = {"mask": mask, "scale": scale, "sink": sink}
    alpha = 1.5 if alpha is None else alpha
    check_no_gradient("attention with ScreenedRows", query, value, alpha, array, *tensors.values())

    def run(query: Any, alpha: Any, array: Any, **arrays: Any) -> Any:
        own = bias.with_array(array) if isinstance(bias, DistanceBias) else array
        keys, values = key.screened, _array(value)
        return pyentmax.attention(query, keys, values, alpha, bias=own, **arrays, **options)

    output: Tensor = on_arrays(run, query, alpha, array, **tensors)
    return output


def check_no_gradient(name: str, *arguments: Any) -> None:
    """Raise a TypeError if a tensor is to get a gradient."""
    tensors = [x for x in arguments if isinstance(x, Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise TypeError(f"{name} has no gradient: call it under torch.no_grad()")
