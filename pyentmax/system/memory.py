"""What becomes of the memory that arrays give back."""

from __future__ import annotations

import ctypes
import sys

# From <malloc.h>. The largest threshold that glibc takes for blocks of their own is 32 MiB.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _LARGEST_BLOCK = 1 << 30, 1 << 25


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next arrays, where it is glibc.

    An update of a model allocates its activations and gradients and then frees them all. glibc
    hands so much back to the system, which has to clear and map every page anew for the next
    update: a fifth of the time of a big model. From this call on up to 1 GiB stays with the
    process, which thus never takes more than it once took.

    Returns
    -------
    bool
        Whether there was anything to tell: on other systems freed memory is treated otherwise.

    Examples
    --------
    >>> keep_freed_memory() in (True, False)
    True
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and mallopt(_TRIM_THRESHOLD, _KEPT))
