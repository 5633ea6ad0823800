"""What every test run says about itself."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import signal
import sys
import zlib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

# A shell makes what it starts in the background deaf to Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Inputs that Hypothesis draws are the same in every run, so that a failure belongs to a change and
# not to the day; `make check-deep` draws others, and more of them. It may be missing where adapters
# alone are tested.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("explore", settings(deadline=None, max_examples=200, print_blob=True))
    settings.register_profile("repeat", settings(deadline=None, max_examples=20, derandomize=True))
    settings.load_profile("repeat")


ADAPTERS = {
    "jax",
    "sklearn",
    "torch",
}  # rooms named after what they adapt to, which may not be installed


# Few tests of many seconds: begun last, they would leave all workers but one without work.
LONG = [
    "tests/tasks/translation/test_translation_commands.py",
    "tests/cuda/test_mutants.py",
    "tests/cuda/test_compile.py",
    "tests/adapters/test_jax.py",
    "tests/cuda/test_emulated_fused.py",
    "tests/test_docs_pages.py",
    "tests/test_install.py",
    "tests/tasks/test_damaged_models.py",
    "tests/tasks/inflection/test_demo.py",
    "tests/test_lazy_arrays.py",
    "tests/cuda/test_gpu_benchmark.py",
]


class WithoutAdapters:
    """Leaves the doctests of an adapter alone where there is nothing to adapt to."""

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Whether a path is such an adapter; None leaves the decision to others."""
        name = collection_path.name
        adapter = name in ADAPTERS and collection_path.parent.name == "pyentmax"
        return True if adapter and importlib.util.find_spec(name) is None else None


# Seconds, of a test outside the deep stage. On two idle cores none takes a tenth of that.
MOST_SECONDS = float(os.environ.get("PYENTMAX_TEST_SECONDS", "600"))


class TimeLimit:
    """Ends the process of a test that hangs, and says where every thread of it is.

    An exception would not do: what hangs may be in C, or a lock's own code. With `-n`, pytest names
    the test, and another process goes on with the others.
    """

    def __init__(self) -> None:
        self._stderr = os.dup(sys.__stderr__.fileno())  # the tests' own is caught

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Set the clock for one test, its fixtures included."""
        if not item.get_closest_marker("deep"):
            faulthandler.dump_traceback_later(MOST_SECONDS, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


def pytest_configure(config: pytest.Config) -> None:
    """Register hooks for the whole run: those of this file alone know the tests' folder only."""
    config.pluginmanager.register(WithoutAdapters(), "without-adapters")
    config.pluginmanager.register(TimeLimit(), "time-limit")


def leave_combinations_to_later(items: list[pytest.Item]) -> None:
    """Of a test of several parameters, a stage sees each value of each; with the next, each pair.

    The others of the first stage's cases are slow, and the others of the slow ones are deep.
    """
    # In an order that is nobody's choice, so that no parameter stays at its first value meanwhile.
    items = sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode()))
    for stage, at_once, later in (("first", 1, "slow"), ("slow", 2, "deep")):
        seen: dict[str, set[frozenset[tuple[str, int]]]] = {}
        for item in items:
            marks = ["first", *(mark for mark in ("slow", "deep") if item.get_closest_marker(mark))]
            case = getattr(item, "callspec", None)
            if marks[-1] != stage or case is None:
                continue
            values = [(name, id(value)) for name, value in case.params.items()]
            shows = {frozenset(some) for some in combinations(values, min(at_once, len(values)))}
            before = seen.setdefault(item.nodeid.partition("[")[0], set())
            if shows <= before:
                item.add_marker(later)
            before |= shows


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first, the others in their order; of files that are named, all combinations."""
    if not all(".py" in argument for argument in config.args):
        leave_combinations_to_later(items)
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(LONG)))


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
