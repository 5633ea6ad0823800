"""Output of which every part is whole, whatever stops the command."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import threading

import pytest

from pyentmax.tasks.output import Terminated, in_parts

STOPS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


class Interrupted(io.StringIO):
    """A stream that signals meet while it is written to, after half of the text."""

    def __init__(self, *signals):
        super().__init__()
        self.signals = list(signals)

    def write(self, text):
        super().write(text[: len(text) // 2])
        while self.signals:
            signal.raise_signal(self.signals.pop(0))
        return super().write(text[len(text) // 2 :])


@pytest.mark.parametrize("number", STOPS)
def test_a_part_that_is_being_written_is_written_whole(monkeypatch, number):
    stream = Interrupted(number)
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(KeyboardInterrupt) as stopped, in_parts(2000, "words") as write:
        write("hund\nkatze\n" * 600, 1200)
    assert type(stopped.value) is STOPS[number]
    assert str(stopped.value) == "1,200 of 2,000 words are written"
    assert stream.getvalue() == "hund\nkatze\n" * 600


@pytest.mark.parametrize("number", STOPS)
def test_between_two_parts_it_stops_at_once(capsys, number):

    def work() -> None:
        with in_parts(2, "words") as write:
            write("hund\n", 1)
            signal.raise_signal(number)
            write("katze\n", 1)

    with pytest.raises(STOPS[number], match="1 of 2 words are written"):
        work()
    assert capsys.readouterr().out == "hund\n"


class Unbuffered(io.RawIOBase):
    """What ``python -u`` writes to, where the system takes a little at a time."""

    def __init__(self, room):
        self.taken, self.room = b"", room

    def writable(self):
        return True

    def write(self, data):
        size = min(7, len(data), self.room - len(self.taken))
        if not size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.taken += bytes(data[:size])
        return size


def unbuffered(monkeypatch, room):
    raw = Unbuffered(room)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "utf-8", write_through=True))
    return raw


def test_a_part_is_written_whole_where_python_does_not_buffer(monkeypatch):
    raw = unbuffered(monkeypatch, 10**6)
    with in_parts(3, "words") as write:
        write("hündin\n" * 3, 3)
    assert raw.taken.decode() == "hündin\n".replace("\n", os.linesep) * 3


def test_a_mark_of_the_encoding_stands_at_the_beginning_alone(monkeypatch):
    raw = unbuffered(monkeypatch, 10**6)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "utf-8-sig", write_through=True))
    print("in")
    with in_parts(2, "words") as write:
        write("hund\n", 1)
        write("katze\n", 1)
    expected = "in\nhund\nkatze\n".replace("\n", os.linesep)
    assert raw.taken == expected.encode("utf-8-sig")


def test_a_full_disk_is_an_error_where_python_does_not_buffer(monkeypatch):
    raw = unbuffered(monkeypatch, 20)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)), in_parts(9, "words") as write:
        write("hund\n" * 9, 9)
    assert len(raw.taken) == 20


def test_the_second_signal_does_not_wait(monkeypatch):
    """The pipe may be full, and nobody reads it."""
    stream = Interrupted(signal.SIGINT, signal.SIGINT)
    monkeypatch.setattr(sys, "stdout", stream)
    stops = pytest.raises(KeyboardInterrupt, match="0 of 2 words are written")
    with stops, in_parts(2, "words") as write:
        write("hund\n", 1)
    assert stream.getvalue() == "hu"


def test_whoever_handles_a_signal_already_goes_on_doing_so(capsys):
    before, seen = signal.getsignal(signal.SIGTERM), []
    signal.signal(signal.SIGTERM, lambda *_: seen.append("application"))
    try:
        with in_parts(1, "words") as write:
            signal.raise_signal(signal.SIGTERM)
            write("hund\n", 1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["application"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with in_parts(1, "words") as write:
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_thread_can_write_too(capsys):
    def work() -> None:
        with in_parts(1, "words") as write:
            write("hund\n", 1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert capsys.readouterr().out == "hund\n"


WRITES = """
import sys
from pyentmax.tasks.output import in_parts
with in_parts(2, "words") as write:
    write("hund\\n", 1)
    sys.stdin.read()
"""


def test_a_part_is_there_before_the_next_is_done():
    """A pipe got nothing before its buffer was full."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"hund\n"
        process.stdin.close()
