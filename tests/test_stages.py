"""A test that hangs ends after a time limit, and the others run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import threading

def test_before(): ...
def test_of_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def test_after(): ...
"""


@pytest.mark.slow
def test_hanging_test_is_named_and_ended(tmp_path: Path) -> None:
    conftest = Path(__file__).with_name("conftest.py")
    (tmp_path / "conftest.py").write_text(conftest.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test_something.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        text=True,
        env=os.environ | {"PYENTMAX_TEST_SECONDS": "0.5"},
    )
    assert done.returncode == 1
    assert "test_something.py::test_of_a_lock'" in done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert "in test_of_a_lock" in done.stderr
