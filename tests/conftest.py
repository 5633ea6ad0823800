"""What every test run says about itself."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path

# A shell makes what it starts in the background deaf to Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> list[str]:
    """Say what is under test: kernels that were silently not built would silently not be tested."""
    package = importlib.import_module("pyentmax")
    try:
        cpu = importlib.import_module("pyentmax._cpu")
    except ImportError:
        kernels = "NO compiled kernels, everything runs in pure NumPy"
    else:
        kernels = f"kernels built for {cpu.INSTRUCTION_SET} ({cpu.BUILD_INFO})"
    asked = os.environ.get("PYENTMAX_BACKEND") or "default"
    return [
        f"pyentmax: {kernels}; PYENTMAX_BACKEND: {asked}",
        f"pyentmax from {Path(str(package.__file__)).parent}",
    ]
