"""What is said on standard error, where that can be written."""

from __future__ import annotations

import errno
import io
import os
import sys

import pytest

from pyentmax.system.notes import note


class Failing(io.StringIO):
    """A stream that cannot be written."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def flush(self) -> None:
        raise OSError(self.number, os.strerror(self.number))


def test_a_note_that_cannot_be_written_is_none(monkeypatch, capsys):
    closed = io.StringIO()
    closed.close()
    for stream in (Failing(errno.ENOSPC), Failing(errno.EIO), closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        note("10/40 updates")
    assert capsys.readouterr().out == ""


def test_whoever_closes_the_pipe_wants_no_more(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Failing(errno.EPIPE))
    with pytest.raises(BrokenPipeError):
        note("10/40 updates")
