"""Freed memory stays with the process, so that new arrays ask the system for few pages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyentmax.engine.system.memory import keep_freed_memory

PROGRAM = """
import resource
import numpy as np
from pyentmax.engine.system.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        arrays = [np.ones(2**21) for _ in range(8)]  # 128 MiB, 32768 pages of 4 KiB
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), keep_freed_memory(), faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_arrays_that_are_freed_make_room_for_the_next():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, kept, after = done.stdout.split()
    assert kept == "True"
    assert int(after) < int(before) / 4, "the first round may ask for pages, the nine others not"


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
