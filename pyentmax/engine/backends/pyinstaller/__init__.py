"""How PyInstaller finds what a frozen program needs of the package: its data and the kernels."""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """The folder with the hook, for the entry point ``pyinstaller40``."""
    return [str(Path(__file__).parent)]
