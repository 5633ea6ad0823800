"""``python -m pyentmax``."""

import contextlib
import io
import sys

# A terminal or pipe that cannot show α shows "?" instead of failing.
for stream in (sys.stdout, sys.stderr):
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")

with contextlib.suppress(
    KeyboardInterrupt
):  # while everything is imported, there is nothing to say
    from pyentmax.cli import main

    sys.exit(main())
sys.exit(130)
