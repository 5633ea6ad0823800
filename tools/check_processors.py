"""Run tests as other processors would: each core of OpenBLAS and each build that runs here.

    python tools/check_processors.py [arguments of pytest]

OpenBLAS sums in the order that suits the processor, and the kernels fuse and sum as their build
does, so results of two machines agree within the contract of accuracy, and no test may ask for
more. A core that this machine cannot run ends the process that tries it, and is left out, as are
builds that were not compiled: `make check-processors` compiles all. Prints a line for each run, and
everything of one that fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

# Of OpenBLAS, by the processors that they are meant for; those of AArch64 last.
CORES = (
    "Prescott Nehalem Sandybridge Haswell Zen SkylakeX Cooperlake Sapphirerapids "
    "ARMV8 NEOVERSEN1 NEOVERSEV1"
).split()
# Multiplies in both types, so that a missing instruction shows, and prints what OpenBLAS took.
TRY_CORE = """
import numpy as np, threadpoolctl
for dtype in "fd":
    x = np.ones((70, 70), dtype)
    np.linalg.svd(x @ x)
print(*{info["architecture"] for info in threadpoolctl.threadpool_info() if "architecture" in info})
"""
LIST_BUILDS = "from pyentmax import _cpu; print(*_cpu.BUILDS, sep='\\n')"


def run(code: str, **variables: str) -> str:
    """What some Python code prints; nothing if its process does not survive it."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def settings() -> Iterator[dict[str, str]]:
    """The variables of each run, but for what this machine chooses by itself."""
    seen = {run(TRY_CORE), ""}
    for core in CORES:
        if (taken := run(TRY_CORE, OPENBLAS_CORETYPE=core)) not in seen:
            seen.add(taken)
            yield {"OPENBLAS_CORETYPE": core}
    for build in run(LIST_BUILDS).splitlines()[1:]:
        words = build.split()
        yield {"PYENTMAX_INSTRUCTION_SET": words[1] if "baseline" in words else words[0]}


def main(arguments: list[str]) -> int:
    """Run pytest with each of the settings; returns how many runs failed."""
    failed = 0
    for variables in settings():
        command = [sys.executable, "-m", "pytest", *arguments]
        start = time.monotonic()
        done = subprocess.run(
            command, env={**os.environ, **variables}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            failed += 1
            print(done.stdout)
        name, seconds = " ".join(map("=".join, variables.items())), time.monotonic() - start
        result = "".join(done.stdout.splitlines()[-1:]).strip("= ")
        print(f"{name}: {result} ({seconds:.0f} s)", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
