"""What is said on standard error while something else is done."""

from __future__ import annotations

import sys


def note(text: str) -> None:
    """Print a line on standard error, if it can be written: no work ends for want of a note.

    The device may be full, or the stream closed. A pipe that nobody reads any more is an error all
    the same: whoever closed it wants no more of the work.

    Raises
    ------
    BrokenPipeError
        If nobody reads the pipe that standard error is.

    Examples
    --------
    >>> from contextlib import redirect_stderr
    >>> with redirect_stderr(sys.stdout):
    ...     note("  10/40 updates")
      10/40 updates
    """
    if sys.stderr is None:  # it was closed before Python started, and print would take the other
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except (OSError, ValueError):  # the latter of a stream that was closed since
        pass
