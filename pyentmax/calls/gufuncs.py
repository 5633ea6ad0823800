"""What the signature of a generalised ufunc says about its operands."""

from __future__ import annotations

import functools
import re
from typing import Any


def core_dimensions(kernel: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many core dimensions each input and output of a ufunc has: 1, 0 and 1 in (n),()->(n).

    None where entries go one by one, of which NumPy has no signature.
    """
    signature = kernel.signature
    if signature is None:
        return (0,) * kernel.nin, (0,) * kernel.nout
    return _counted(signature)


@functools.cache
def _counted(signature: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    inputs, outputs = signature.split("->")
    count = [
        tuple(len(names.split(",")) if names else 0 for names in re.findall(r"\((.*?)\)", side))
        for side in (inputs, outputs)
    ]
    return count[0], count[1]
