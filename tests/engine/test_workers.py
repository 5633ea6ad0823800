"""Calls shared by threads: who decides how many, and that nobody can tell from the result."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from compiled_functions import FUNCTIONS, arguments, as_tuple, compiled_functions

import pyentmax
from pyentmax.engine.backends import threads

TIMEOUT = 60  # seconds; nothing here takes one


class Witness:
    """A kernel that doubles rows, notes which thread did how many, and may start with a meeting."""

    signature = "(n),(n)->(n)"

    def __init__(self, meeting: int = 1) -> None:
        self.calls: list[tuple[threading.Thread, int]] = []
        self.trouble: dict[bool, BaseException] = {}  # raised in the caller's thread, or elsewhere
        self.caller = threading.current_thread()
        self._meeting = threading.Barrier(meeting)

    def __call__(self, z: Any, mask: Any, out: Any = None) -> Any:
        out = out[0] if isinstance(out, tuple) else out
        if not z.size:
            return np.empty_like(z)
        here = threading.current_thread()
        first = here not in [thread for thread, _ in self.calls]
        self.calls.append((here, len(z)))
        if first:  # alone it would time out
            self._meeting.wait(TIMEOUT)
        if (here is self.caller) in self.trouble:
            raise self.trouble[here is self.caller]
        return np.multiply(z, 2, out=out)


@pytest.fixture(autouse=True)
def _every_entry_pays() -> Iterator[None]:
    """Small inputs are shared as big ones are; a test's own patches come and go on top."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "ENTRIES_PER_WORKER", 1)
        patch.setattr(threads, "SECONDS_PER_WORKER", 0)
        yield


def rows(count: int = 64) -> tuple[Any, Any]:
    return np.arange(count * 3.0).reshape(count, 3), np.broadcast_to(True, (3,))


# --- how many ------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinities")
def test_default_is_every_available_cpu() -> None:
    program = (
        "import os, pyentmax; cpus = os.sched_getaffinity(0); before = pyentmax.get_workers();"
        "os.sched_setaffinity(0, {min(cpus)}); print(before == len(cpus), pyentmax.get_workers())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [b"True", b"1"]


def test_other_threads_use_one_worker_by_default() -> None:
    def ask() -> tuple[int, int]:
        with pyentmax.set_workers(3):
            asked = pyentmax.get_workers()
        return asked, pyentmax.get_workers()

    # Python 3.14 without its lock starts a thread in a copy of the context.
    copied = getattr(sys.flags, "thread_inherit_context", False)
    with ThreadPoolExecutor(1) as pool, pyentmax.set_workers(5):
        assert pool.submit(ask).result() == (3, 5 if copied else 1)
        assert pyentmax.get_workers() == 5


def test_set_workers_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_cpus", lambda: 6)
    with pyentmax.set_workers(2):
        with pyentmax.set_workers(-1):
            assert pyentmax.get_workers() == 6
        assert pyentmax.get_workers() == 2
        with pytest.raises(ZeroDivisionError), pyentmax.set_workers(-6):
            assert 1 // (pyentmax.get_workers() - 1)
        assert pyentmax.get_workers() == 2
    assert pyentmax.get_workers() == 6


def test_set_workers_holds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_cpus", lambda: 6)

    def run() -> list[int]:
        counts = []
        pyentmax.set_workers(2)
        pyentmax.set_workers(3)
        counts.append(pyentmax.get_workers())
        with pyentmax.set_workers(4):
            pyentmax.set_workers(5)
            counts.append(pyentmax.get_workers())
        counts.append(pyentmax.get_workers())
        return counts

    assert contextvars.copy_context().run(run) == [3, 5, 3]
    assert pyentmax.get_workers() == 6


def test_set_workers_of_one_task_is_its_own() -> None:
    async def task(workers: int) -> int:
        with pyentmax.set_workers(workers):
            await asyncio.sleep(0)
            return pyentmax.get_workers()

    async def both() -> list[int]:
        return await asyncio.gather(task(2), task(3))

    assert asyncio.run(both()) == [2, 3]


def test_suspended_generator_leaves_no_workers_behind() -> None:
    def suspended() -> Iterator[None]:
        with pyentmax.set_workers(7):
            yield

    before, generator = pyentmax.get_workers(), suspended()
    with pyentmax.set_workers(5):
        next(generator)
    generator.close()
    assert pyentmax.get_workers() == before


@pytest.mark.parametrize("wrong", [0, -7, 1.0, "2"])
def test_wrong_workers_are_refused(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_cpus", lambda: 6)
    expected = rf"workers must be (a whole number|.* -1 \(all 6 CPUs\) to -6), got '?{wrong}"
    with pytest.raises((ValueError, TypeError), match=expected):
        pyentmax.set_workers(wrong)


# --- who does what -------------------------------------------------------------------------------


def test_two_threads_work_at_the_same_time() -> None:
    kernel, (z, mask) = Witness(meeting=2), rows()
    np.testing.assert_array_equal(threads.run(kernel, (z, mask), workers=2), 2 * z)
    assert len({thread for thread, _ in kernel.calls}) == 2
    assert sum(count for _, count in kernel.calls) == len(z)


def test_number_of_threads_follows_the_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_cpus", lambda: 8)
    hired: list[int] = []
    share = threads._share

    def note(work: Any, helpers: int, give_up: Any) -> None:
        hired.append(helpers)
        share(work, helpers, give_up)

    monkeypatch.setattr(threads, "_share", note)
    z, mask = rows()
    monkeypatch.setattr(threads, "ENTRIES_PER_WORKER", z.size)
    threads.run(Witness(), (z, mask))
    threads.run(Witness(), (z, mask), workers=2)  # the most, not a command to be slower
    assert hired == []
    monkeypatch.setattr(threads, "ENTRIES_PER_WORKER", z.size // 3)
    threads.run(Witness(), (z, mask))
    assert hired == [2]
    monkeypatch.setattr(threads, "ENTRIES_PER_WORKER", 1)
    threads.run(Witness(), (z, mask))
    assert hired == [2, 7]
    monkeypatch.setattr(threads, "_is_child_of_a_pool", lambda: True)
    threads.run(Witness(), (z, mask))
    assert hired == [2, 7]
    threads.run(Witness(), (z, mask), workers=2)
    assert hired == [2, 7, 1]


def test_number_of_threads_follows_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Clock(Witness):
        """A kernel whose rows each take as long as wanted."""

        now, seconds_per_row = 0.0, 0.0

        def __call__(self, z: Any, mask: Any, out: Any = None) -> Any:
            self.now += len(z) * self.seconds_per_row
            return super().__call__(z, mask, out)

    monkeypatch.setattr(threads, "SECONDS_PER_WORKER", 1.0)
    z, mask = rows(80)  # 10 are tried, and 70 left
    monkeypatch.setattr(threads, "ENTRIES_PER_WORKER", z.size // 4)
    for seconds, expected in ((0.0, 1), (1.9 / 70, 1), (2.1 / 70, 2), (3.9 / 70, 3), (9.0, 4)):
        kernel = Clock()
        hired: list[int] = []
        kernel.seconds_per_row = seconds

        def alone(work: Any, helpers: int, _: Any, hired: list[int] = hired) -> None:
            hired.append(helpers)
            work()

        with monkeypatch.context() as patch:
            patch.setattr(threads.time, "perf_counter", lambda kernel=kernel: kernel.now)
            patch.setattr(threads, "_share", alone)
            np.testing.assert_array_equal(threads.run(kernel, (z, mask), workers=4), 2 * z)
        assert sum(count for _, count in kernel.calls) == len(z)
        assert kernel.calls[0][1] == 10
        assert hired == [expected - 1] * (expected > 1), seconds


# --- when something goes wrong -------------------------------------------------------------------


@pytest.mark.parametrize("in_caller", [True, False])
def test_errors_in_threads_reach_the_caller(in_caller: bool) -> None:
    kernel, (z, mask) = Witness(meeting=2), rows()
    kernel.trouble = {in_caller: MemoryError("no room")}
    with pytest.raises(MemoryError, match="no room"):
        threads.run(kernel, (z, mask), workers=2)
    assert threads.run(Witness(), (z, mask), workers=2).shape == z.shape


@pytest.mark.parametrize("workers", [1, 2])
def test_errstate_reaches_the_threads(workers: int) -> None:
    # As NumPy's own: `np.errstate` around the call reaches the threads that share it.
    def overflow(z: Any, mask: Any, out: Any = None) -> Any:
        return np.multiply(witness(z, mask, out), np.finfo(np.float64).max, out=out)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(over="ignore"):
            witness = Witness(meeting=workers)
            overflow.signature = witness.signature  # type: ignore[attr-defined]
            doubled = threads.run(overflow, rows(), workers=workers)
            assert np.isinf(doubled[1:]).all()
        witness = Witness(meeting=workers)
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            threads.run(overflow, rows(), workers=workers)


def test_interrupt_ends_the_call() -> None:
    class Interrupted(Witness):
        def __call__(self, z: Any, mask: Any, out: Any = None) -> Any:
            doubled = super().__call__(z, mask, out)
            if z.size and threading.current_thread() is self.caller:
                signal.raise_signal(signal.SIGINT)
            return doubled

    # Both meet, lest the other thread does all of it before the caller has begun.
    kernel, (z, mask) = Interrupted(meeting=2), rows(6000)
    with pytest.raises(KeyboardInterrupt):
        threads.run(kernel, (z, mask), workers=2)
    done = len(kernel.calls)
    np.testing.assert_array_equal(threads.run(Witness(), (z, mask), workers=2), 2 * z)
    assert len(kernel.calls) == done, "the interrupted call went on by itself"


def test_caller_does_it_all_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    kernel, (z, mask) = Witness(), rows()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    np.testing.assert_array_equal(threads.run(kernel, (z, mask), workers=3), 2 * z)
    assert {thread for thread, _ in kernel.calls} == {kernel.caller}
    monkeypatch.undo()
    np.testing.assert_array_equal(threads.run(Witness(meeting=2), (z, mask), workers=2), 2 * z)


def test_a_call_while_the_interpreter_shuts_down() -> None:
    program = (
        "import atexit, numpy, pyentmax; from pyentmax.engine.backends import threads;"
        "threads.ENTRIES_PER_WORKER, threads.SECONDS_PER_WORKER = 1, 0; z = numpy.zeros((40, 2));"
        "pyentmax.set_workers(2); call = lambda: print(pyentmax.softmax(z).sum());"
        "call(); atexit.register(call)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    assert (done.stdout.split(), done.stderr) == (["40.0", "40.0"], "")


# --- the result ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", compiled_functions())
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_results_do_not_depend_on_threads(name: str, dtype: Any) -> None:
    function = FUNCTIONS[name]
    for shape in ((37, 20), (3, 50, 7), (1, 300), (2, 17, 5, 3), (45, 400), (0, 4), (6,)):
        given = arguments(function, shape, dtype)
        with pyentmax.set_workers(1):
            alone = function(*given)
        with pyentmax.set_workers(3):
            together = function(*given)
        for one, other in zip(as_tuple(alone), as_tuple(together), strict=True):
            assert one.dtype == other.dtype
            assert np.shape(one) == np.shape(other)
            np.testing.assert_array_equal(one, other)


def test_parameters_of_every_shape() -> None:
    z = np.random.default_rng(4).standard_normal((6, 11, 5))
    for shape in ((), (1,), (11,), (6, 1), (6, 11), (1, 11)):
        alpha = 1 + np.random.default_rng(5).random(shape)
        with pyentmax.set_workers(1):
            expected = pyentmax.entmax(z, alpha)
        with pyentmax.set_workers(4):
            np.testing.assert_array_equal(pyentmax.entmax(z, alpha), expected)


@pytest.mark.parametrize("workers", [1, 3])
def test_out_that_overlaps_the_scores(workers: int) -> None:
    start = np.random.default_rng(6).standard_normal((50, 8))
    expected = pyentmax.sparsemax(start)

    with pyentmax.set_workers(workers):
        z = start.copy()
        assert pyentmax.sparsemax(z, out=z) is z
        np.testing.assert_array_equal(z, expected)

        z = start.copy()
        pyentmax.sparsemax(z, out=z[::-1])
        np.testing.assert_array_equal(z[::-1], expected)

        shared = np.concatenate([np.zeros(20), start.ravel()])
        pyentmax.sparsemax(shared[20:].reshape(50, 8), out=shared[:-20].reshape(50, 8))
        np.testing.assert_array_equal(shared[:-20].reshape(50, 8), expected)
