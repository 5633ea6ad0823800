"""Install the Debian packages that some tests need: a browser, a compiler for AArch64, an emulator.

    python3 tools/install_test_packages.py

Quick where they are there. Where it may not install, it says what is missing, and the tests that
need it are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# What the tests look for → the package that has it.
NEEDED = {
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "/usr/aarch64-linux-gnu/include/stdio.h": "libc6-dev-arm64-cross",
    "qemu-aarch64": "qemu-user",
}
LIMIT = 300  # seconds


def missing() -> list[str]:
    """The packages that are missing."""
    return [p for name, p in NEEDED.items() if not (shutil.which(name) or Path(name).exists())]


def install(packages: list[str]) -> str:
    """Install packages; returns why not, or an empty text."""
    if shutil.which("apt-get") is None:
        return "this system has no apt-get"
    if os.geteuid() != 0:
        return "only root may install"
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        try:
            subprocess.run(
                ["apt-get", "-qq", *command],
                check=True,
                timeout=LIMIT,
                env=environment,
                stdout=sys.stderr,
            )
        except subprocess.SubprocessError as error:
            return str(error)
    return ""


def main() -> None:
    """Install what is missing, or say why it is not."""
    packages = missing()
    reason = install(packages) if packages else ""
    if left := missing():
        print(f"SKIPPED: {reason}; tests that need {', '.join(left)} are skipped")
    else:
        print(f"installed: {', '.join(packages) or 'nothing, all was there'}")


if __name__ == "__main__":
    main()
