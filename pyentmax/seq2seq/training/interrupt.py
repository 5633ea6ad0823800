"""Ctrl-C and SIGTERM between updates, never within one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def defer_interrupt() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a flag, which the loop reads between updates.

    SIGTERM is sent again at the end, to whatever would have received it: it ends the process.
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

    # A background job may have SIGINT ignored; what was set in C cannot be restored.
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    before: dict[int, Any] = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}
    # Python delivers signals to the main thread only.
    if threading.current_thread() is not threading.main_thread():
        before = {}
    for signum in before:
        signal.signal(signum, note)
    try:
        yield lambda: bool(requested)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        if requested == signal.SIGTERM:
            signal.raise_signal(signal.SIGTERM)
