"""α-entmax of the products with many rows, as of an output layer, without most of the products."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.reference.sparse_output import csr, scipy_sparse
from pyentmax.sparse_attention.few_queries import FEW, nonzeros
from pyentmax.sparse_attention.screened_rows import ScreenedRows, widened
from pyentmax.sparse_attention.weights import indptr_of


def entmax_linear(
    x: Any,
    rows: ScreenedRows,
    alpha: Any = 1.5,
    *,
    bias: Any = None,
    scale: float = 1.0,
    return_counts: bool = False,
) -> Any:
    """α-entmax of scale · x · rowsᵀ + bias, as a `scipy.sparse` CSR array.

    The distribution over a vocabulary that an output layer gives for a hidden state. Products are
    computed for those words alone that may have a probability (`ScreenedRows`), so that most of the
    matrix is not read. Each row of the result is that of all products.

    Parameters
    ----------
    x : array of shape (b, d)
        converted to the rows' dtype, or float32 for rows of a half type, in which all is computed
    rows : ScreenedRows of shape (n, d)
        made once for many calls
    alpha : float or array of shape (b,)
        above 1, and 2 at most
    bias : array of shape (n,), optional
    scale : float, default 1
        of the products, such as 1 / temperature, together with ``bias / temperature``
    return_counts : bool, default False
        also return for how many of the rows each x needed the product, an array of shape (b,)

    Returns
    -------
    scipy.sparse.csr_array of shape (b, n), or that and the counts

    Raises
    ------
    TypeError
        if rows are not `ScreenedRows`, or an array is not of real numbers
    ValueError
        if shapes do not fit, or α is out of its range; softmax needs all products
    ImportError
        if SciPy is missing, which the extra ``pyentmax[sparse]`` installs

    Examples
    --------
    >>> rows = ScreenedRows(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-1.0, 0.0]]))
    >>> p, counts = entmax_linear([[1.0, 0.5]], rows, return_counts=True)
    >>> print(p.toarray().round(4))
    [[0.3955 0.4609 0.1436 0.    ]]
    >>> bool(counts[0] <= 4)  # 3 with kernels, which screen the last row out
    True
    """
    if not isinstance(rows, ScreenedRows):
        raise TypeError(
            f"rows: expected ScreenedRows, got {type(rows).__name__}; make them once, by "
            "ScreenedRows(matrix)"
        )
    csr_array = scipy_sparse().csr_array
    data, indices, indptr, counts = weights_of_rows(x, rows, alpha, bias, scale)
    p = csr_array((data, indices, indptr), shape=(len(counts), rows.shape[0]))
    return (p, counts) if return_counts else p


@np.errstate(under="ignore")
def weights_of_rows(
    x: Any, rows: ScreenedRows, alpha: Any, bias: Any, scale: float
) -> tuple[Any, Any, Any, Any]:
    """The parts of a CSR array, and the counts; a call on tensors makes no such array."""
    x = as_floating(x, "x")[0]
    if rows.ndim != 2 or x.ndim != 2 or x.shape[-1] != rows.shape[-1]:
        raise ValueError(
            f"expected x of shape (b, d) and rows of shape (n, d), got {x.shape} and {rows.shape}"
        )
    b, n, dtype = len(x), rows.shape[0], rows.bounds.dtype
    alphas = np.asarray(alpha, np.float64)
    if alphas.shape not in ((), (b,)) or not np.all((alphas > 1) & (alphas <= 2)):
        raise ValueError(
            f"alpha must be above 1 and 2 at most, one number or one for each of {b} rows, got "
            f"{alpha}; softmax, of alpha 1, has no zeros to gain from"
        )
    if bias is None:
        bias = np.zeros((), dtype)
    else:
        bias = as_floating(bias, "bias")[0].astype(dtype, copy=False)
        if bias.shape != (n,):
            raise ValueError(f"bias must have the shape ({n},), one for each row, got {bias.shape}")
    x = np.ascontiguousarray(x.astype(dtype, copy=False) * dtype.type(scale))
    alphas = np.broadcast_to(alphas, (b,))
    if not b or not n:
        return np.empty(0, dtype), np.empty(0, np.int32), np.zeros(b + 1, np.int32), np.full(b, n)
    if not choice.kernels() or not x.size:
        with np.errstate(all="ignore"):  # as the kernels, which raise no warnings
            scores = x @ widened(rows.rows).T + bias
        p = csr("entmax", scores, alpha=alphas)
        return p.data, p.indices, p.indptr, np.full(b, n)
    parts: list[Any] = [None] * -(-b // FEW)

    def run(i: int) -> None:
        parts[i] = _nonzero(x[i * FEW : (i + 1) * FEW], rows, alphas[i * FEW : (i + 1) * FEW], bias)

    workers = min(threads.get_workers(), x.size * n // threads.ENTRIES_PER_WORKER)
    threads.run_pieces(range(len(parts)), lambda: run, workers)
    if len(parts) == 1:
        [(data, indices, sizes, counts)] = parts
    else:
        data, indices, sizes, counts = map(np.concatenate, zip(*parts, strict=True))
    return data, indices, indptr_of(sizes), counts


def _nonzero(x: Any, rows: ScreenedRows, alpha: Any, bias: Any) -> tuple[Any, Any, Any, Any]:
    """The non-zeros of up to `FEW` rows, their columns, and how many each has, and scored."""
    shape, sink = (len(x), rows.shape[0]), np.full(len(x), -np.inf, x.dtype)
    operands = np.broadcast_to(True, shape), alpha, sink, np.broadcast_to(bias, shape)
    screen = rows.copies, rows.bounds, rows.scales
    values, columns, edges, _, stops = nonzeros((), x, rows.rows, *operands, screen=screen)
    found = slice(0, int(edges[-1]))
    return values[found].copy(), columns[found].copy(), np.diff(edges), np.diff(stops, prepend=0)
