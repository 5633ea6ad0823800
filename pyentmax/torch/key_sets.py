"""Sets of keys as the mask of attention of tensors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyentmax.sparse_attention.key_sets import KeySets, compressed, key_sets
from pyentmax.torch.attention_weights import AttentionWeights

MAPPINGS = ("entmax", "softmax", "entmax15", "sparsemax")


@torch.compiler.disable  # sizes depend on values
def tensor_sets(mask: Any, shape: tuple[int, ...], **options: Any) -> KeySets | None:
    """The sets of a mask that is not of bools, for scores of that shape; None for what is no set.

    `options` are those of the call that a set may not go with. Errors as of
    `pyentmax.sparse_attention.key_sets.key_sets`.
    """
    sets = _sets(mask, *shape[-2:])
    if sets is not None:
        if options.pop("mapping") not in MAPPINGS:
            raise ValueError(
                f"a set of keys as mask: expected a mapping of {', '.join(MAPPINGS)}; pass a mask "
                "of bools"
            )
        for name, value in options.items():
            if value is not None and not (isinstance(value, float) and value == 0):
                raise ValueError(
                    f"a set of keys as mask does not go with {name}: pass a mask of bools"
                )
    return sets


def _sets(mask: Any, t: int, s: int) -> KeySets | None:
    tensors = (mask.indptr,) if isinstance(mask, AttentionWeights) else (mask,)
    if any(isinstance(x, Tensor) and not x.is_cpu for x in tensors):
        if mask.layout is torch.strided and (mask.dtype.is_floating_point or mask.dtype.is_complex):
            return None
        raise TypeError(f"a set of keys as mask: expected CPU tensors, got {tensors[0].device}")
    if isinstance(mask, AttentionWeights):
        if mask.shape[-2:] != (t, s):
            raise ValueError(f"mask: expected weights of shape (…, {t}, {s}), got {mask.shape}")
        return compressed(mask.indices.numpy(), mask.indptr.numpy(), tuple(mask.shape[:-2]), s)
    if not isinstance(mask, Tensor):
        return key_sets(mask, t, s)
    if mask.layout is not torch.sparse_csr:
        whole = mask.layout is torch.strided and mask.dtype.is_signed
        whole = whole and not (mask.dtype.is_floating_point or mask.dtype.is_complex)
        return key_sets(mask.numpy(), t, s) if whole or mask.dtype == torch.uint8 else None
    if mask.dtype != torch.bool:
        raise TypeError(f"mask: expected a boolean CSR tensor, got {mask.dtype}; pass mask.bool()")
    if mask.shape[-2:] != (t, s):
        raise ValueError(f"mask: expected a CSR tensor of shape (…, {t}, {s}), got {mask.shape}")
    batch = tuple(mask.shape[:-2])
    starts, columns = mask.crow_indices().numpy(), mask.col_indices().numpy()
    firsts = np.arange(math.prod(batch)).reshape((*batch, 1)) * columns.shape[-1]
    indptr = np.concatenate([[0], (starts[..., 1:] + firsts).ravel()])
    stored = mask.values().numpy().ravel()
    return replace(compressed(columns.ravel(), indptr, batch, s, stored), entry_shape=columns.shape)


def bias_of_entries(bias: Tensor, sets: KeySets) -> Tensor:
    """The numbers of the entries of sets, in order, from those that the caller stores."""
    flat: Tensor = replace(sets, order=None).in_order(bias)
    return flat if sets.order is None else flat.index_select(-1, torch.from_numpy(sets.order))
