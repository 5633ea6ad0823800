"""Rows of different lengths for any function of rows of tensors, by a call for each length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyentmax.engine.calls.by_rows import checked_offsets, groups
from pyentmax.torch.arguments import check_tensor
from pyentmax.torch.arrays import lent


@torch.compiler.disable
def by_rows(
    function: Callable[..., Any],
    entries: Sequence[Tensor],
    offsets: Tensor,
    per_row: Sequence[Any] = (),
) -> Any:
    """Results of a function for rows that lie one after the other in flat tensors.

    As `pyentmax.by_rows`, with the function's gradients, of every order that it has. Offsets are
    read on the host, and a graph of `torch.compile` breaks here.

    Parameters
    ----------
    function : callable
        of tensors of shape (rows, d), one for each of `entries`, then of what is `per_row`. It
        returns a tensor of that shape, or of shape (rows,), or a tuple of these: a mapping,
        ``partial(pt.entmax15.loss, reduction="none")``, ``lambda z, mask: …``
    entries : tuple of Tensors of shape (n,)
    offsets : Tensor of int32 or int64, of shape (rows + 1,)
        row r has the entries from offsets[r] to offsets[r + 1] and may be empty
    per_row : tuple of Tensors of shape (rows,), or of numbers for all

    Returns
    -------
    Tensor of shape (n,), or of shape (rows,) where a row gives a number, 0 for an empty row; or a
    tuple of these

    Raises
    ------
    ValueError, TypeError
        if the tensors or offsets do not fit, or the function returns anything else; else as the
        function

    Examples
    --------
    >>> import pyentmax.torch as pt
    >>> z, offsets = torch.tensor([1.0, 0.5, -2.0, 0.0, 0.0]), torch.tensor([0, 3, 3, 5])
    >>> by_rows(pt.sparsemax, (z,), offsets)
    tensor([0.7500, 0.2500, 0.0000, 0.5000, 0.5000])
    """
    for name, x in (("offsets", offsets), *((f"entries[{i}]", x) for i, x in enumerate(entries))):
        check_tensor(x, name)
    if not entries or any(x.ndim != 1 or x.shape != entries[0].shape for x in entries):
        shapes = [tuple(x.shape) for x in entries]
        raise ValueError(f"entries must be of one shape (n,), got {shapes}")
    length, device = len(entries[0]), entries[0].device
    edges = lent(offsets) if offsets.is_cpu else np.array(offsets.tolist())
    edges = checked_offsets(edges, length)
    n_rows = len(edges) - 1
    for i, x in enumerate(per_row):
        if isinstance(x, Tensor) and x.ndim and x.shape != (n_rows,):
            raise ValueError(
                f"per_row[{i}] must have the shape ({n_rows},), one for each row, got "
                f"{tuple(x.shape)}"
            )
    results: list[Any] = []
    for rows, d in groups(np.diff(edges)):
        index = torch.from_numpy(rows).to(device)
        places = torch.from_numpy(edges[rows, None] + np.arange(d)).to(device)
        values = [x[index] if isinstance(x, Tensor) and x.ndim else x for x in per_row]
        results.append((index, places, function(*(x[places] for x in entries), *values)))
    if isinstance(results[0][2], tuple):
        by_result = zip(*(parts for _, _, parts in results), strict=True)
        return tuple(_joined(results, parts, length, n_rows) for parts in by_result)
    return _joined(results, [part for _, _, part in results], length, n_rows)


def _joined(groups: Any, parts: Sequence[Tensor], length: int, n_rows: int) -> Tensor:
    """The groups' entries, or numbers of rows, each in its place."""
    for (_, places, _), part in zip(groups, parts, strict=True):
        if part.shape not in (places.shape, places.shape[:1]):
            raise ValueError(
                f"function must return an entry for each score, shape {tuple(places.shape)}, or a "
                'number for each row (of a loss with reduction="none"), got shape '
                f"{tuple(part.shape)}"
            )
    each = parts[0].ndim == 1
    index = torch.cat([rows if each else places.flatten() for rows, places, _ in groups])
    values = torch.cat([part.flatten() for part in parts])
    return values.new_zeros(n_rows if each else length).index_put((index,), values)
