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
def finish_first() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a flag, which the loop reads between updates."""
    asked = False

    def note(signum: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)
        # print could meet itself: the signal may arrive while the bar is being written.
        if own is not None:
            with suppress(OSError):
                os.write(own, b"\nfinishing the current update; Ctrl-C again to stop at once\n")

    before = signal.getsignal(signal.SIGINT)
    # Python delivers signals to the main thread only; a background job may have SIGINT ignored.
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield lambda: False
        return
    own = _copy_of_standard_error()
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
        if own is not None:
            os.close(own)


def _copy_of_standard_error() -> int | None:
    """A descriptor of our own for standard error; None where there is none.

    The number 2 itself may be closed, and then be that of any file that is opened next, such as a
    checkpoint.
    """
    if sys.stderr is None:
        return None
    try:
        return os.dup(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or no file, as in a notebook
        return None
