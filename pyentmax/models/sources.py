"""What every encoder-decoder checks of its source."""

from __future__ import annotations

import numpy as np

from pyentmax.autograd.gradients import Array


def check_sources(mask: Array) -> None:
    """Refuse an empty source. A mask on a GPU is not looked at, since that would wait for it."""
    if isinstance(mask, np.ndarray) and not mask.any(axis=1).all():
        empty = int(np.flatnonzero(~mask.any(axis=1))[0])
        raise ValueError(f"source_mask: row {empty} has no token to attend to")
