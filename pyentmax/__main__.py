"""``python -m pyentmax``."""

import contextlib
import io
import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as the package set it, for its import
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A stream that was closed (2>&-) is None, and the next file that is opened would get its number.
# In this order each gets its own.
for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
    if getattr(sys, name) is None:
        setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))

# A terminal or pipe that cannot show α shows "?" instead of failing.
for stream in (sys.stdout, sys.stderr):
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")

# Whether a byte of the input that is no UTF-8 is an error would depend on the locale: the command
# says which it is.
if isinstance(sys.stdin, io.TextIOWrapper):
    sys.stdin.reconfigure(errors="surrogateescape")

with contextlib.suppress(
    KeyboardInterrupt
):  # while everything is imported, there is nothing to say
    from pyentmax.cli import main

    sys.exit(main())
sys.exit(130)
