"""Arrays whose entries are mapped one by one: how a call's arguments get there, and its result.

No axis makes rows here: every score is a problem of its own, and parameters broadcast to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.engine.calls.rows import check_mask, check_out


def arrange_entries(z: Any, mask: Any, out: Any = None, name: str = "z") -> tuple[Any, Any, Any]:
    """An array in the dtype to compute in, its mask or None, and the dtype to return."""
    z, dtype = as_floating(z, name)
    check_out(out, z, dtype)
    return z, None if mask is None else check_mask(mask, z, name), dtype


def finish_entries(result: Any, mask: Any, dtype: Any, out: Any = None) -> Any:
    """The result in the caller's dtype and ``out``; 0 where masked."""
    if mask is not None:
        result = np.where(mask, result, 0)
    result = result.astype(dtype, copy=False)
    if out is None:
        return result[()]
    out[...] = result
    return out
