"""What the signature of a generalised ufunc says about its operands."""

from __future__ import annotations

import functools
import re


@functools.cache
def core_dimensions(signature: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many core dimensions each input and each output has: 1, 0 and 1 in (n),()->(n)."""
    inputs, outputs = signature.split("->")
    count = [
        tuple(len(names.split(",")) if names else 0 for names in re.findall(r"\((.*?)\)", side))
        for side in (inputs, outputs)
    ]
    return count[0], count[1]
