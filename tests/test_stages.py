"""Which combinations of parameters each stage of the tests sees, and how a test that hangs ends."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import pytest

@pytest.mark.parametrize("a", "abc")
@pytest.mark.parametrize("b", "xyz")
@pytest.mark.parametrize("c", "123")
def test_something(a, b, c): ...
"""
STAGES = "not slow and not deep", "slow and not deep", "deep"


def collected(stage: str, path: Path) -> list[str]:
    """What is between the brackets of each test that a stage takes."""
    marks = ("--strict-markers", "-o", "markers=slow\n deep")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *marks, "-m", stage, path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition("[")[2][:-1] for line in done.stdout.splitlines() if "::" in line]


def copy_rules(folder: Path) -> None:
    rules = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
    (folder / "conftest.py").write_text(rules, encoding="utf-8")


@pytest.mark.slow
def test_values_come_first_then_pairs_then_the_rest(tmp_path: Path) -> None:
    copy_rules(tmp_path)
    file = tmp_path / "test_something.py"
    file.write_text(PROGRAM)
    first, second, third = (
        [case.split("-") for case in collected(stage, tmp_path)] for stage in STAGES
    )
    everything = sorted([*first, *second, *third])
    assert everything == [list(case) for case in itertools.product("123", "xyz", "abc")]
    assert {x for case in first for x in case} == set("abcxyz123")
    pairs = {frozenset(pair) for case in first + second for pair in itertools.combinations(case, 2)}
    groups = itertools.combinations(("abc", "xyz", "123"), 2)
    wanted = {frozenset(pair) for one, other in groups for pair in itertools.product(one, other)}
    assert wanted <= pairs
    assert len(first) < len(second)
    assert third
    assert len(collected(STAGES[0], file)) == 27, "whoever names a file gets all of it"


def test_a_test_that_hangs_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    copy_rules(tmp_path)
    (tmp_path / "test_something.py").write_text("""
import os, threading

def test_before(): ...
def test_of_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def test_after(): ...
""")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        text=True,
        env=os.environ | {"PYENTMAX_TEST_SECONDS": "0.5"},
    )
    assert done.returncode == 1
    assert "crashed while running" in done.stdout
    assert "test_something.py::test_of_a_lock'" in done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert "in test_of_a_lock" in done.stderr
