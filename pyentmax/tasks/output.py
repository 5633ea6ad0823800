"""Output that comes part by part, each of them whole whatever stops the command."""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM, which stops a command as Ctrl-C does."""


@contextmanager
def in_parts(total: int, what: str) -> Iterator[Callable[[str, int], None]]:
    """Write standard output part by part, flushed: whoever stops the command keeps what it wrote.

    Within the block, Ctrl-C and SIGTERM wait until the part that is being written is whole. A
    second one does not wait, for a pipe may be full that nobody reads.

    Parameters
    ----------
    total : int
        How many there will be.
    what : str
        What is counted: "translations".

    Yields
    ------
    callable
        To be called with a text, and how many it holds.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C, or its subclass `Terminated` on SIGTERM; the message says how many are written.

    Examples
    --------
    >>> with in_parts(3, "words") as write:
    ...     write("a\\nb\\n", 2)
    ...     write("c\\n", 1)
    a
    b
    c
    """
    written, writing = 0, False
    asked: type[KeyboardInterrupt] | None = None

    def stop(signum: int, frame: Any) -> None:
        nonlocal asked
        first = asked is None
        asked = KeyboardInterrupt if signum == signal.SIGINT else Terminated
        if not (writing and first):
            raise asked

    def write(text: str, count: int) -> None:
        nonlocal written, writing
        writing = True
        try:
            _write_whole(text)
            written += count
        finally:
            writing = False
        if asked is not None:
            raise asked

    try:
        with _handled_by(stop):
            yield write
    except KeyboardInterrupt as error:
        raise type(error)(f"{written:,} of {total:,} {what} are written") from None


def _write_whole(text: str) -> None:
    """Write a text to standard output, and flush it.

    Where Python does not buffer (``python -u``, PYTHONUNBUFFERED), it calls the system once for a
    text, and drops what a full disk, a signal or a limit left over.
    """
    raw = getattr(sys.stdout, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    sys.stdout.flush()
    text = text.replace("\n", os.linesep)
    encoder = codecs.getincrementalencoder(sys.stdout.encoding)(sys.stdout.errors or "strict")
    encoder.encode("")  # a byte-order mark, where there is one, stands at the beginning alone
    left = memoryview(encoder.encode(text, final=True))
    while left:
        size = raw.write(left)
        if size is None:
            raise BlockingIOError(errno.EAGAIN, "standard output takes no more for now")
        left = left[size:]


@contextmanager
def _handled_by(stop: Callable[[int, Any], None]) -> Iterator[None]:
    """Within it, Ctrl-C and SIGTERM call a function; not where they are ignored or another's."""
    # Python delivers signals to the main thread only.
    own = threading.current_thread() is threading.main_thread()
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {n: handler for n, handler in usual.items() if own and signal.getsignal(n) is handler}
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
