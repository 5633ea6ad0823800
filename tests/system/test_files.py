"""One process at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from pyentmax.system.files import distinct_names, locked

pytest.importorskip("fcntl", reason="this system has no locks that end with a process")

HOLDS = """
import sys, time
from pyentmax.system.files import locked
with locked(sys.argv[1], "holding"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_waited_for_until_its_holder_is_dead(tmp_path, capfd):
    path = tmp_path / "cell" / "lock"  # whose folder is not there yet
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE, text=True
    )
    entered = threading.Event()

    def enter() -> None:
        with locked(path, "training"):
            entered.set()

    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.2)
        holder.send_signal(signal.SIGKILL)
    thread.join(30)
    assert entered.is_set()
    assert "waiting for another process: training" in capfd.readouterr().err


def test_threads_take_turns(tmp_path):
    inside, most = [], []

    def work() -> None:
        for _ in range(50):
            with locked(tmp_path / "lock", "counting"):
                inside.append(1)
                time.sleep(0.001)  # without the lock another thread comes in
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 200
    assert max(most) == 1


def test_names_that_a_file_system_takes_for_the_same_get_numbers():
    names = ["a", "a-2", "A", "a", "\u00e4", "a\u0308", "a-2", "\u017f", "s", "a"]
    distinct = distinct_names(names)
    assert distinct[:5] == ["a", "a-2", "A-3", "a-4", "\u00e4"]
    assert distinct[5:] == ["a\u0308-2", "a-2-2", "\u017f", "s-2", "a-5"]
    many = distinct_names(5000 * ["a"])  # one after the other, not each against all
    assert len(set(many)) == 5000


def test_an_error_ends_the_lock(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path / "lock", "failing"):
        raise RuntimeError
    with locked(tmp_path / "lock", "going on"):
        pass
