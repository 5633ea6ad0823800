"""Settings of every test run: inputs drawn, order of files, time limit, header."""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# A shell lets what it starts in the background ignore Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis draws the same inputs in every run, so that a failure comes from a change; `make
# check-deep` draws others, and more of them. It may be missing where only adapters are tested.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("explore", settings(deadline=None, max_examples=200, print_blob=True))
    settings.register_profile("repeat", settings(deadline=None, max_examples=12, derandomize=True))
    settings.load_profile("repeat")


# Scripts that are checked and not run, and what needs a process of its own.
collect_ignore = ["typing", "adapters/interpreted_triton.py"]

ADAPTERS = {"jax", "sklearn", "torch"}  # rooms named after libraries that may be missing
NEEDS = {
    "triton_attention.py": "triton",
    "screened_cache.py": "transformers",
    "screened_head.py": "transformers",
}  # files in them


# Files whose tests take many seconds: begun last, they would leave the other workers without work.
LONG = {
    "tests/adapters/test_jax.py",
    "tests/adapters/test_sklearn.py",
    "tests/cuda/test_compile.py",
    "tests/cuda/test_kernels.py",
    "tests/seq2seq/decoding/test_certificates.py",
    "tests/test_docs_pages.py",
    "tests/test_install.py",
}


class WithoutAdapters:
    """Skips the doctests of an adapter whose library is not installed."""

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Return True for such an adapter; None leaves the decision to other hooks."""
        name = collection_path.name
        adapter = name in ADAPTERS and collection_path.parent.name == "pyentmax"
        library = NEEDS.get(name, name)
        is_missing = (
            importlib.util.find_spec(library) is None if adapter or library != name else False
        )
        return True if is_missing else None


# For a test outside the deep stage; on two idle cores none takes a tenth of it.
TIME_LIMIT = float(os.environ.get("PYENTMAX_TEST_SECONDS", "600"))


class TimeLimit:
    """Ends the process of a test that hangs and prints the stack of each of its threads.

    An exception would not do: the test may hang in C or in a lock. With `-n`, pytest names the test
    and runs the others in another process.
    """

    def __init__(self) -> None:
        self._stderr = os.dup(sys.__stderr__.fileno())  # pytest captures sys.stderr

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Set the clock for one test, its fixtures included."""
        if not item.get_closest_marker("deep"):
            faulthandler.dump_traceback_later(TIME_LIMIT, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


class Outcomes:
    """Leaves a file for `tools/skipped_tests.py`: what was skipped, and why, and what passed."""

    def __init__(self, folder: str) -> None:
        self._file = Path(folder) / f"{os.getpid()}.json"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the file; of a report on a skip, the third entry says why."""
        stats = terminalreporter.stats
        skipped = {report.nodeid: report.longrepr[2] for report in stats.get("skipped", ())}
        passed = [report.nodeid for report in stats.get("passed", ())]
        self._file.write_text(json.dumps({"skipped": skipped, "passed": passed}), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Register hooks for the whole run; those of this file see the folder of the tests only."""
    if (folder := os.environ.get("PYENTMAX_TEST_OUTCOMES")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(folder), "outcomes")
    config.pluginmanager.register(WithoutAdapters(), "without-adapters")
    config.pluginmanager.register(TimeLimit(), "time-limit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, the others in their order; tests of experiments in the second stage."""
    for item in items:
        if item.nodeid.startswith("tests/experiments/"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.nodeid.partition("::")[0] not in LONG)


def pytest_report_header() -> list[str]:
    """Say what is under test: without this line, missing kernels would go unnoticed."""
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
