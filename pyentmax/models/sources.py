"""What every encoder-decoder checks of its source."""

from __future__ import annotations

import numpy as np

from pyentmax.autograd.tensor import Array


def check_sources(source: Array, mask: Array, size: int) -> None:
    """Refuse an empty source, and ids that a vocabulary of this size does not have.

    Arrays on a GPU are not looked at, since that would wait for it.
    """
    if not isinstance(mask, np.ndarray):
        return
    if not mask.any(axis=1).all():
        empty = int(np.flatnonzero(~mask.any(axis=1))[0])
        raise ValueError(f"source_mask: row {empty} has no token to attend to")
    if isinstance(source, np.ndarray):
        strange = mask & ((source < 0) | (source >= size))
        if strange.any():
            raise ValueError(
                f"source: expected token ids from 0 to {size - 1}, got {source[strange][0]}"
            )
