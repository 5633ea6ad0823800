"""The command line, called within the tests' process."""

from __future__ import annotations

from typing import Any

from pyentmax.cli import main


def run(*words: Any) -> Any:
    """The exit code of ``pyentmax WORDS``."""
    try:
        return main([str(word) for word in words])
    except SystemExit as stop:
        return stop.code
