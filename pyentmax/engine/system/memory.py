"""The peak memory of a process, and what happens to the memory of freed arrays."""

from __future__ import annotations

import ctypes
import sys

# From <malloc.h>. The largest threshold that glibc takes for blocks of their own is 32 MiB.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _LARGEST_BLOCK = 1 << 30, 1 << 25


def peak_memory() -> float | None:
    """The most memory that this process has used at a time, in MB; None on Windows.

    Examples
    --------
    >>> peak_memory() > 1
    True
    """
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next arrays, if it is glibc.

    An update of a model allocates its activations and gradients and then frees them all. glibc
    returns so much memory to the operating system, which has to clear and map every page again for
    the next update: a fifth of the time of a large model. From this call on, up to 1 GiB stays with
    the process, which never holds more than it has needed at its peak. Returns whether the setting
    was made: False where the C library is not glibc.

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
