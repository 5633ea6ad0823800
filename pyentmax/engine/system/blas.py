"""How many threads BLAS multiplies matrices with: one in commands and trainings, by default.

The matrices of small models are small. To share such a product among all cores costs more than it
saves, and far more where the cores have other work: the threads wait for the slowest of them, and
they wait spinning. BLAS takes all cores unless something limits it; here threadpoolctl does, in the
process that is running already, however it was started.

The limit holds for the whole process, so only what owns the process sets it: a command or a
training, in the main thread. Array functions never do.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# The limits in force, the innermost last. Only the main thread changes them, so there is no lock
# that a fork could copy while it is held.
_limits: list[int] = []


@contextmanager
def limit_blas(threads: int | None = None, *, announce: bool = False) -> Iterator[None]:
    """Limit BLAS to some threads within a block, or, as a decorator, within a function.

    Afterwards it has as many as before. Outside the main thread, without threadpoolctl, or with a
    BLAS that it cannot control, the block changes nothing.

    Parameters
    ----------
    threads : int, optional
        At least 1. By default a limit that is in force stays, and otherwise it is 1.
    announce : bool, default False
        Whether to say on standard error that there are now fewer threads than before.

    Raises
    ------
    ValueError
        If ``threads`` is below 1.

    Examples
    --------
    >>> with limit_blas():
    ...     print(describe_blas())
    BLAS runs 1 thread; blas_threads=N changes that
    """
    if threads is not None and threads < 1:
        raise ValueError(f"blas_threads: expected at least 1, got {threads}")
    pools = _pools() or []
    in_main = threading.current_thread() is threading.main_thread()
    if not pools or not in_main or (threads is None and _limits):
        yield
        return
    before = [(pool, pool.num_threads) for pool in pools]
    _limits.append(threads or 1)
    try:
        for pool in pools:
            pool.set_num_threads(_limits[-1])
        if announce and _limits[-1] < max(count for _, count in before):
            print(describe_blas(), file=sys.stderr)
        yield
    finally:
        _limits.pop()
        for pool, count in before:
            pool.set_num_threads(count)


def describe_blas(option: str = "blas_threads=N") -> str:
    """Say in one line how many threads BLAS runs, and which option changes that."""
    pools = _pools()
    if pools is None:
        return (
            "BLAS takes all cores: pip install 'pyentmax[models]' brings threadpoolctl, which "
            "limits it"
        )
    if not pools:
        return "BLAS may take all cores: threadpoolctl cannot limit it"
    count = max(pool.num_threads for pool in pools)
    return f"BLAS runs {count} thread{'s' * (count != 1)}; {option} changes that"


@cache
def _pools() -> list[Any] | None:
    """Threadpoolctl's controllers of BLAS; None if it is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    import numpy  # noqa: F401  # its BLAS must be loaded to be found

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
