"""The kernels and their threads across forks, process pools and callers' own threads.

A failure here is a hang, so every program runs in a process that can be killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax.engine.backends import threads

TIMEOUT = 60  # seconds; nothing here takes two

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

PREPARE = """
import os, sys, threading
import numpy as np
import pyentmax
from pyentmax.engine.backends import threads

threads.ENTRIES_PER_WORKER = 1  # small inputs are shared as big ones are,
threads.SECONDS_PER_WORKER = 0  # and quick ones as slow ones
z = np.random.default_rng(0).standard_normal((64, 500)).astype(np.float32)
with pyentmax.set_workers(1):
    expected = pyentmax.entmax15(z)

def check(workers):
    with pyentmax.set_workers(workers):
        for _ in range(5):
            assert (pyentmax.entmax15(z) == expected).all()

def succeeded(child):
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


def run(program: str) -> str:
    """What the program prints; killed with its children if that takes too long."""
    process = subprocess.Popen(
        [sys.executable, "-c", PREPARE + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"hung after printing {out!r}\n{err}")
    assert process.returncode == 0, err
    return out


@needs_fork
def test_fork_while_another_thread_calls() -> None:
    run("""
def call():
    check(2)
    with pyentmax.set_workers(2):
        pyentmax.attention(z, z, z)
    pyentmax.entmax15(z.tolist())

def serve():
    while True:
        call()
threading.Thread(target=serve, daemon=True).start()  # forks come from its first call on
for _ in range(10):
    child = os.fork()
    if not child:
        call()
        os._exit(0)
    succeeded(child)
""")


@pytest.mark.slow
@pytest.mark.parametrize("method", [pytest.param("fork", marks=needs_fork), "spawn"])
def test_pool_of_processes(method: str) -> None:
    printed = run(f"""
import multiprocessing
check(2)
with multiprocessing.get_context("{method}").Pool(2) as pool:
    assert (pool.map(pyentmax.entmax15, z) == expected).all()
    print(pool.apply(pyentmax.get_workers))
    pool.apply(pyentmax.set_workers, [2])
    assert (np.concatenate(pool.map(pyentmax.entmax15, np.split(z, 4))) == expected).all()
check(2)
""")
    assert printed == "1\n"  # a process of a pool keeps to one thread


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_eight_threads_at_once_get_the_same_bits(
    workers: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "ENTRIES_PER_WORKER", 1)
    monkeypatch.setattr(threads, "SECONDS_PER_WORKER", 0)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((40, 300)).astype(np.float32) for _ in range(8)]
    with pyentmax.set_workers(1):
        expected = [pyentmax.entmax15(z) for z in inputs]

    def call(z: Any) -> Any:
        if workers is None:
            return pyentmax.entmax15(z)
        with pyentmax.set_workers(workers):
            return pyentmax.entmax15(z)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            found = list(pool.map(call, inputs))
            for got, want in zip(found, expected, strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a global lock"
)
def test_python_without_a_global_lock_stays_without() -> None:
    # A module that does not declare itself safe would bring the lock back when imported.
    assert run("check(2); print(sys._is_gil_enabled())") == "False\n"
