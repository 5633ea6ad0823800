"""Ctrl-C between updates, never within one."""

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
    """Turn the first Ctrl-C into a flag, which the loop reads between updates."""
    requested = False

    def note(signum: int, frame: Any) -> None:
        nonlocal requested
        requested = True
        signal.signal(signal.SIGINT, before)
        if sys.stderr is not None:
            # Not print: the signal may arrive while the progress bar is being written.
            with suppress(OSError):
                os.write(2, b"\nfinishing the current update; Ctrl-C again to stop at once\n")

    before = signal.getsignal(signal.SIGINT)
    # Python delivers signals to the main thread only; a background job may have SIGINT ignored.
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: requested
    finally:
        signal.signal(signal.SIGINT, before)
