"""Files written whole or not at all, and one process at a time."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import pytest

from pyentmax.engine.system.files import locked, replacing

needs_locks = pytest.mark.skipif(
    sys.platform == "win32", reason="this system has no locks that end with a process"
)

HOLDS = """
import sys, time
from pyentmax.engine.system.files import locked
with locked(sys.argv[1], "holding"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_error_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "word"
    path.write_text("draw")
    with pytest.raises(KeyError), replacing(path):
        raise KeyError
    assert path.read_text() == "draw"
    assert os.listdir(tmp_path) == ["word"]


def test_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "other").touch()
    with replacing(tmp_path / ("字" * 80)) as file:  # 240 bytes: the longest names are 255
        file.write(b"drawn")
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("operation", ["chmod", "fsync"])
@pytest.mark.parametrize("reason", ["EPERM", "ENOTSUP", "EINVAL", "ENOSYS", "EIO"])
def test_file_system_may_lack_an_operation(tmp_path, monkeypatch, operation, reason):
    """Drives of Windows in WSL refuse chmod, some FUSE and CIFS mounts fsync."""

    def refuse(*_, **__):
        raise OSError(getattr(errno, reason), "refused")

    path = tmp_path / "word"
    path.write_text("draw")
    monkeypatch.setattr(os, operation, refuse)
    failed = reason == "EIO"  # the disk is broken: the file may not be there
    with pytest.raises(OSError, match="refused") if failed else nullcontext():
        with replacing(path) as file:
            file.write(b"drawn")
    assert path.read_text() == ("draw" if failed else "drawn")
    assert os.listdir(tmp_path) == ["word"]


def test_link_and_permissions_stay(tmp_path):
    shared, link = tmp_path / "shared", tmp_path / "link"
    shared.touch()
    shared.chmod(0o600)
    link.symlink_to(shared.name)
    with replacing(link) as file:
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
        file.write(b"drawn")
    assert link.is_symlink()
    assert shared.read_bytes() == b"drawn"
    assert shared.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(OSError, match="pipe .*expected a regular file"),
        replacing(tmp_path / "pipe"),
    ):
        pass
    assert (tmp_path / "pipe").is_fifo()


@needs_locks
def test_lock_is_waited_for_until_its_holder_dies(tmp_path, capfd):
    path = tmp_path / "cell" / "lock"  # in a folder that does not exist yet
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
        with pytest.raises(BlockingIOError, match="busy"), locked(path, "busy", wait=False):
            pass
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.2)
        holder.send_signal(signal.SIGKILL)
    thread.join(30)
    assert entered.is_set()
    assert "waiting for another process: training" in capfd.readouterr().err


@needs_locks
def test_threads_take_turns(tmp_path):
    inside, most = [], []

    def work() -> None:
        for _ in range(20):
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
    assert most == 80 * [1]


def test_error_ends_the_lock(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path / "lock", "failing"):
        raise RuntimeError
    with locked(tmp_path / "lock", "going on", wait=False):
        pass
