"""Operands of a generalised ufunc, as its signature describes them."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import numpy as np

BLOCK, SHORT = 32, 256
"""Number of rows that kernels do side by side, and their longest: as in cython_ext/rows/sizes.h."""
WORTH_A_COPY = 3
"""An operand is copied if that saves this many blocks: fewer take less time than a copy."""


@functools.cache
def core_dimensions(kernel: Any) -> list[int]:
    """The number of core dimensions of each operand of a ufunc: 1, 0 and 1 in (n),()->(n)."""
    if kernel.signature is None:  # entries go one by one
        return [0] * kernel.nargs
    operands = re.findall(r"\((.*?)\)", kernel.signature)
    return [len(names.split(",")) if names else 0 for names in operands]


def in_blocks(operand: Any, like: Any, core: int) -> Any:
    """A mask or parameter of scores `like`, spread over rows that a kernel should do side by side.

    It does `BLOCK` short rows in the time of one, of those that NumPy hands it at once: as many as
    all operands step through evenly. One that stays the same along the last batch axes and not
    along others, or the other way round, breaks them up: four heads with an α each, of many
    sentences, would come by fours. If much is lost by that, the operand is copied to have a value
    for each row; otherwise it comes back as it is.

    `core` is 1 for an operand with an entry for each score, and 0 for one with a value per row.

    Examples
    --------
    >>> scores, alpha = np.zeros((64, 4, 1, 9)), np.array([[1.1], [1.2], [1.3], [1.4]])
    >>> in_blocks(alpha, scores, core=0).shape
    (64, 4, 1)
    """
    *batch, d = like.shape
    rows = math.prod(batch)
    if rows < WORTH_A_COPY * BLOCK or d > SHORT or operand.ndim == core:
        return operand
    if type(operand) is not np.ndarray or type(like) is not np.ndarray:
        return operand
    together, stepped = 1, None
    for i in range(-1, -1 - len(batch), -1):
        if batch[i] == 1:
            continue
        place = operand.ndim - core + i
        steps = place >= 0 and operand.shape[place] > 1 and operand.strides[place] != 0
        if stepped not in (None, steps):
            break
        stepped = steps
        together *= batch[i]
    else:
        return operand  # all rows come together
    now, then = rows // together * math.ceil(together / BLOCK), math.ceil(rows / BLOCK)
    if 2 * now <= 3 * then or now - then < WORTH_A_COPY:
        return operand
    each = np.empty(like.shape if core else tuple(batch), operand.dtype)
    each[...] = operand
    return each
