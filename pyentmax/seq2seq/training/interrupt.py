"""Ctrl-C, SIGTERM and SIGHUP between updates, never within one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

TERMINATING = tuple(getattr(signal, n) for n in ("SIGTERM", "SIGHUP") if hasattr(signal, n))
"""Signals that end a process from outside; Windows has no SIGHUP."""


@contextmanager
def handling(handler: Callable[[int, Any], None], signals: Iterable[int]) -> Iterator[Any]:
    """Have a handler for these signals in the block; yields those before, by signal.

    A signal that is ignored, as SIGINT in background jobs and SIGHUP under ``nohup``, stays so.
    """
    handlers = {n: signal.getsignal(n) for n in signals}
    # What was set in C cannot be restored.
    before: dict[int, Any] = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}
    # Python delivers signals to the main thread only.
    if threading.current_thread() is not threading.main_thread():
        before = {}
    for signum in before:
        signal.signal(signum, handler)
    try:
        yield before
    finally:
        for signum, earlier in before.items():
            signal.signal(signum, earlier)


@contextmanager
def defer_interrupt() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C, SIGTERM or SIGHUP into a flag, which the loop reads between updates.

    All but Ctrl-C is sent again at the end, to whatever would have received it: it ends the
    process.
    """
    requested = 0

    def note(signum: int, frame: Any) -> None:
        nonlocal requested
        requested = signum
        signal.signal(signum, before[signum])
        if sys.stderr is not None:
            # Not print: the signal may arrive while the progress bar is being written.
            with suppress(OSError):
                os.write(2, b"\nfinishing the current update; Ctrl-C again to stop at once\n")

    try:
        with handling(note, (signal.SIGINT, *TERMINATING)) as before:
            yield lambda: bool(requested)
    finally:
        if requested in TERMINATING:
            signal.raise_signal(requested)
