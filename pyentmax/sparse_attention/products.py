"""Products of whole matrices, on the thread that asks for them.

Several threads work on tiles of attention already, so that BLAS, which would share each product
among threads of its own, is not asked where there is a kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.choice import writes_out
from pyentmax.engine.calls.dtypes import KERNEL_DTYPES


@writes_out
def product(x: Any, y: Any, *, out: Any) -> None:
    """``x @ y``, whose batch shapes broadcast."""
    np.matmul(x, y, out=out)


def matmul(x: Any, y: Any) -> Any:
    """``x @ y``; arrays of other libraries and dtypes are multiplied as these do."""
    dtype = np.result_type(x.dtype, y.dtype)
    if type(x) is not np.ndarray or dtype not in KERNEL_DTYPES:
        return np.matmul(x, y)
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    out = np.empty((*batch, x.shape[-2], y.shape[-1]), dtype)
    product(x, y, out=out)
    return out
