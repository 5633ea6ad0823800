"""How many threads BLAS multiplies matrices with: one, unless told otherwise.

The matrices of small models are small. To share such a product among all cores costs more than it
saves, and far more where the cores have other work: the threads wait for the slowest of them, and
they wait spinning. BLAS takes all cores unless something limits it; here threadpoolctl does, in the
process that is running already, however it was started.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from pyentmax.system.notes import note

MOST = 1 << 16  # threads; BLAS takes the number as a C int, of which it would keep 32 bits

# The limits that are in force, the innermost last. Like BLAS's own they hold for the whole process.
_limits: list[int] = []

# Blocks of `one_blas_thread` that run just now, in any thread, and what to undo after the last.
_alone = 0
_before: list[tuple[Any, int]] = []
_lock = threading.Lock()


@contextmanager
def limit_blas(threads: int | None = None, *, announce: bool = False) -> Iterator[None]:
    """Limit BLAS to some threads within a block, or, as a decorator, within a function.

    Afterwards it has as many as before.

    Without threadpoolctl, or with a BLAS that it cannot steer, the block runs without a limit.

    Parameters
    ----------
    threads : int, optional
        At least 1. If not given, a limit that is in force stays, and otherwise it is 1.
    announce : bool, default False
        Whether to say on standard error that there are now fewer threads than before.

    Raises
    ------
    ValueError
        If ``threads`` is below 1, or above what any machine has.

    Examples
    --------
    >>> with limit_blas():
    ...     print(describe_blas())
    BLAS runs 1 thread; blas_threads=N changes that
    """
    if threads is not None and threads < 1:
        raise ValueError(f"blas_threads: expected at least 1, got {threads}")
    if threads is not None and threads > MOST:
        raise ValueError(f"blas_threads: expected at most {MOST:,}, got {threads}")
    pools = _pools()
    if not pools or (threads is None and _limits):
        yield
        return
    before = _threads(pools)
    _limits.append(threads or 1)
    try:
        with pools.limit(limits=_limits[-1]):
            if announce and _threads(pools) < before:
                note(describe_blas())
            yield
    finally:
        _limits.pop()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread within a block that shares its work among threads itself.

    Blocks of several threads may overlap: the last to end gives BLAS what it had before the first
    began. Costs a microsecond or two, where `limit_blas` takes fifty.
    """
    global _alone
    with _lock:
        if not _alone and _pools():
            _before[:] = [(pool, pool.num_threads) for pool in _pools().lib_controllers]
            for pool, count in _before:
                if count != 1:
                    pool.set_num_threads(1)
        _alone += 1
    try:
        yield
    finally:
        with _lock:
            _alone -= 1
            if not _alone:
                for pool, count in _before:
                    if count != 1:
                        pool.set_num_threads(count)
                _before.clear()


def describe_blas(option: str = "blas_threads=N") -> str:
    """Say in one line how many threads BLAS runs, and which option changes that."""
    pools = _pools()
    if pools is None:
        return (
            "BLAS takes as many threads as it likes: pip install 'pyentmax[models]' brings "
            "threadpoolctl, which limits them"
        )
    if not pools:
        return "BLAS takes as many threads as it likes: threadpoolctl cannot limit it"
    count = _threads(pools)
    return f"BLAS runs {count} thread{'s' * (count != 1)}; {option} changes that"


@cache
def _pools() -> Any:
    """Threadpoolctl's controller of BLAS, empty if it finds none; None if it is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    import numpy  # noqa: F401  # its BLAS has to be there to be found

    return ThreadpoolController().select(user_api="blas")


def _threads(pools: Any) -> int:
    return max(pool["num_threads"] for pool in pools.info())
